"""Inspection of checkpoints and other files: their contents and checksums. No code in them is run."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from priorax.agents import settings
from priorax.envs.registry import usable_environment
from priorax.files import BadFile, read
from priorax.training.checkpoint import Checkpoints
from priorax.training.run_files import as_json, read_config

Facts = list[tuple[str, str]]


def inspect(path: Path | str) -> Facts:
    """Describe a run's folder, or a single file.

    Args:
        path: Folder of a run, or a .safetensors file.

    Returns:
        Rows of names and values.

    Raises:
        BadFile: If a file is damaged.
    """
    path = Path(path)
    if path.is_dir():
        return _run(path)
    found = read(path)
    facts = [("file", f"{path}, {_bytes([path])}, checksum valid"), ("kind", found.kind)]
    if isinstance(found.description, dict):
        facts += [(name, _short(value)) for name, value in found.description.items()]
    return [*facts, *_arrays(found.arrays)]


def _short(value: Any) -> str:
    """Format a value as JSON, without long lists."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(part)}" for name, part in value.items())
    if isinstance(value, list) and len(value) > 8:
        return f"({len(value)} values)"
    return json.dumps(value)


def _run(path: Path) -> Facts:
    config = read_config(path)
    names = ["agent", "env", "game", "size", "seed", "preset", "backend", "actors", "shards"]
    spec = usable_environment(str(config.get("env")))
    if spec is None or not spec.sized:
        names.remove("size")
    facts = [("run", ", ".join(f"{name} {config[name]}" for name in names if config.get(name) is not None))]
    facts.append(("written by", f"priorax {config.get('version', 'of unknown version')}"))
    lengths = [f"{config[name]:,} {name}" for name in ("episodes", "steps") if config.get(name) is not None]
    done = "finished" if (path / "result.json").exists() else "not finished"
    facts.append(("length", f"{', '.join(lengths)} requested; {done}"))
    facts.append(("settings", _changed(config)))
    commits = Checkpoints(path / "checkpoint")
    if commits.last is None:
        return [*facts, ("checkpoint", "none yet")]
    last = commits.last
    facts.append(("checkpoint", f"{last.step:,} steps, {last.episodes:,} episodes finished"))
    files = sorted(path.glob("checkpoint/*"))
    facts.append(("checkpoint files", f"{len(files)}, {_bytes(files)}"))
    with commits.explained():
        facts += _arrays(commits.state())
        if last.segments:
            for _ in commits.replay():  # reading verifies the checksum
                pass
            kept = f"insertions {last.segments[0][0]:,} to {last.segments[-1][1]:,}"
            facts.append(("replay", f"{kept}, in {len(last.segments)} files"))
        else:
            facts.append(("replay", "not saved; refilled on resume"))
    return [*facts, ("checksums", "all valid")]


def _changed(config: Mapping[str, Any]) -> str:
    """Format the preset of a run, and settings that differ from it."""
    try:
        usual = as_json(settings(config["agent"], config["preset"]).settled())
        mine = config["settings"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadFile(
            f"run.json has no configuration that this version can read ({error!r}); inspect it with the version that "
            "wrote it"
        ) from None
    changed = [f"{name}={value}" for name, value in mine.items() if usual.get(name) != value]
    return f"preset {config['preset']}" + (f" with {', '.join(changed)}" if changed else "")


def _arrays(arrays: Mapping[str, np.ndarray]) -> Facts:
    """Summarise arrays by purpose."""
    groups: dict[str, list[np.ndarray]] = {}
    for name, array in arrays.items():
        groups.setdefault(_purpose(name), []).append(array)
    return [
        (purpose, f"{sum(array.size for array in mine):,} numbers in {len(mine)} array{'s' * (len(mine) > 1)}")
        for purpose, mine in groups.items()
    ]


PURPOSES = {
    ".belief.params": "trained weights",
    ".belief.frozen": "prior functions and anchors",
    ".belief.opt": "optimizer state",
    ".target": "target network",
    "replay.": "replay counters",
    ".replay": "replay counters",
    "state.params": "trained weights",
    "state.frozen": "prior functions and anchors",
    "state.opt": "optimizer state",
}


def _purpose(name: str) -> str:
    return next((purpose for part, purpose in PURPOSES.items() if part in name), "counters and random keys")


def _bytes(paths: Iterable[Path]) -> str:
    size = float(sum(path.stat().st_size for path in paths))
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
