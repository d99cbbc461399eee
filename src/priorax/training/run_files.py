"""Contents of run.json and episodes.csv, and reading them."""

import csv
import dataclasses
import hashlib
import io
import json
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from priorax.agents import Settings
from priorax.files import BadFile, write_atomically
from priorax.training.records import Episode
from priorax.version import __version__

FORMAT = 5
"""Format version of the files of a run; a run of another format cannot be resumed."""
PRIOR_FILE = "prior.safetensors"
"""A run's copy of the file in the setting `prior_file`."""


def describe_run(arguments: Mapping[str, Any], chosen: Settings) -> dict[str, Any]:
    """Create the contents of run.json.

    Args:
        arguments: Arguments of the run.
        chosen: Hyperparameters.

    Returns:
        Values by name.
    """
    return {**arguments, "settings": as_json(chosen), "version": __version__, "format": FORMAT}


def as_json(chosen: Settings) -> dict[str, Any]:
    """Convert settings to JSON values.

    Args:
        chosen: Hyperparameters.

    Returns:
        Values by name.
    """
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(chosen)))
    return found


def read_config(path: Path) -> dict[str, Any]:
    """Read the configuration of a run.

    Args:
        path: The folder.

    Returns:
        The contents of run.json.

    Raises:
        ValueError: If there is no run.
        BadFile: If the file is damaged.
    """
    if not (path / "run.json").is_file():
        raise ValueError(f"{str(path)!r} contains no run to resume; start one with --out {path}")
    try:
        found = json.loads((path / "run.json").read_text())
    except ValueError as error:
        raise BadFile(f"{path / 'run.json'} is damaged ({error}); start the run again with --overwrite") from None
    if not isinstance(found, dict):
        raise BadFile(f"{path / 'run.json'} is damaged (no object); start the run again with --overwrite")
    chosen = found.get("settings")
    if isinstance(chosen, dict) and chosen.get("prior_file"):  # whatever the file says, only the run's own copy is read
        chosen["prior_file"] = str(path / PRIOR_FILE)
    return found


def read_prior(chosen: Mapping[str, Any]) -> bytes | None:
    """Read the file of a learned prior when a run is set up; the run and its workers get copies and need no other file.

    Args:
        chosen: Hyperparameters by name.

    Returns:
        The file; None if there is none.
    """
    used = chosen.get("prior_file")
    return Path(used).read_bytes() if used else None


def with_digest(config: Mapping[str, Any], content: bytes | None) -> dict[str, Any]:
    """Add the digest of the learned prior, by which runs with different priors are told apart.

    Args:
        config: Contents of run.json.
        content: The prior's file; None if there is none.

    Returns:
        The contents, with `prior_digest` if there is a prior.
    """
    return dict(config) if content is None else {**config, "prior_digest": hashlib.sha256(content).hexdigest()[:16]}


def keep_prior(path: Path, config: Mapping[str, Any], content: bytes | None) -> dict[str, Any]:
    """Write the copy of the learned prior of a run into its folder.

    Args:
        path: The folder.
        config: Contents of run.json.
        content: The prior's file; None if there is none.

    Returns:
        The contents, in which `prior_file` is the copy.
    """
    if content is None:
        return dict(config)
    write_atomically(path / PRIOR_FILE, content)
    return {**config, "settings": {**config["settings"], "prior_file": PRIOR_FILE}}


def read_episodes(path: Path, until: int | None = None, finished: int | None = None) -> list[Episode]:
    """Read the episodes of a run.

    Args:
        path: The folder.
        until: Number of bytes to read; by default all.
        finished: Expected number of rows.

    Returns:
        The rows.

    Raises:
        BadFile: If the file is shorter than that, cannot be parsed, does not number episodes from 1, or has another
            number of rows.
    """
    file = path / "episodes.csv"
    try:
        content = file.read_bytes()[:until]
        if until is not None and len(content) < until:
            raise BadFile(f"{file} is truncated: it has {len(content)} bytes, the checkpoint expects {until}")
        rows = [_episode(row) for row in csv.DictReader(io.StringIO(content.decode(), newline=""))]
    except BadFile:
        raise
    except FileNotFoundError:
        raise BadFile(f"{file} is missing") from None
    except (KeyError, ValueError, TypeError) as error:
        raise BadFile(f"{file} is damaged ({error!r})") from None
    for number, row in enumerate(rows, start=1):
        if row.episode != number:
            raise BadFile(f"{file} is damaged: row {number} has the episode number {row.episode}")
    if finished is not None and len(rows) != finished:
        raise BadFile(f"{file} was modified: it has {len(rows)} episodes, the checkpoint expects {finished}")
    return rows


def _episode(row: Mapping[str, str]) -> Episode:
    return Episode(*(_READ[name](row[name]) for name in Episode._fields))


def _reader(hint: Any) -> Callable[[str], Any]:
    """Get the parser of a cell of that type; an empty cell is None if the type allows it."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    read: Callable[[str], Any] = (lambda text: bool(int(text))) if kinds == [bool] else kinds[0]
    optional = len(typing.get_args(hint)) > len(kinds)
    return lambda text: None if optional and text == "" else read(text)


_READ = {name: _reader(hint) for name, hint in typing.get_type_hints(Episode).items()}
