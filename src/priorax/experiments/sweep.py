"""Experiments that are many runs: rows as they finish, each run once, whatever interrupts.

A module of this kind has `ladders(preset)`: lists of levels of tasks (`analysis/parallel.py`), and may have
`outcome(result)`: what to write of a run, by default one row, how long it took to learn. Its rows file is also its
memory: a run that has rows there, from this version and with these very settings, is not run again.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from priorax.agents import settings
from priorax.analysis.parallel import Task, climb
from priorax.envs.registry import lives_on_host
from priorax.report.rows import Row, read_rows, write_rows
from priorax.training.host_training import HostResult
from priorax.training.trainer import Result
from priorax.version import __version__

MILLISECONDS = {1: 0.15, 5: 0.5, 10: 0.9, 20: 1.7, 40: 3.5}
"""What an environment step costs here on one core, by number of members: for estimates only."""


def task(name: str, agent: str, size: int, seed: int, episodes: int, env: str = "deep_sea", **changes: Any) -> Task:
    """One run up to learning, or to so many episodes; `changes` to the agent's settings."""
    arguments = {"agent": agent, "env": env, "size": size, "seed": seed, "episodes": episodes, "changes": changes}
    return Task(name, {**arguments, "stop_when_learned": True})


Outcome = Callable[[Any], list[dict[str, Any]]]


def time_to_learn(result: Result) -> list[dict[str, Any]]:
    """One row: how long a run took to learn."""
    summary = result.summary()
    wanted = ("episodes", "episodes_to_learn", "episodes_to_solve", "total_return", "env_steps", "env_steps_per_second")
    return [{name: summary[name] for name in wanted}]


def run_sweep(
    name: str,
    preset: str,
    ladders: Sequence[Any],
    path: Path,
    report: Any,
    only: bool = True,
    outcome: Outcome = time_to_learn,
) -> list[Row]:
    """Run what has no rows yet; those of a finished run are in the file at once. Gives the rows of these runs.

    `only`: rows of other runs than these, as of other settings, are dropped."""
    stamp = {"experiment": name, "preset": preset, "version": __version__}
    ladders = [[list(level) for level in ladder] for ladder in ladders]
    wanted = {_identity(_row(item)) for ladder in ladders for level in ladder for item in level}
    found = read_rows(path) if path.exists() else []
    rows = [row for row in found if all(str(row.get(key)) == value for key, value in stamp.items())]
    rows = [row for row in rows if not only or _identity(row) in wanted]
    if len(rows) < len(found):
        write_rows(path, rows)
    known = {_identity(row): row for row in rows if _identity(row) in wanted}
    total = len(wanted)

    def done(item: Task) -> bool | None:
        row = known.get(_identity(_row(item)))
        return None if row is None else "episodes_to_learn" in row

    report(len(known) / total, f"{len(known)} of at most {total} runs")
    for item, result in climb(ladders, done):
        new = [{**stamp, **_row(item), **row} for row in outcome(result)]
        rows.extend(new)
        known[_identity(new[0])] = new[0]
        write_rows(path, sorted(rows, key=lambda row: (row["name"], row["size"], row["seed"])))
        report(len(known) / total, f"{item.name}: {_told(result)}")
    return [row for row in read_rows(path) if _identity(row) in wanted]


def _told(result: Any) -> str:
    if isinstance(result, HostResult):
        return f"{result.steps:,} steps"
    return f"N={result.size} {result.episodes_to_learn or 'not learned'}"


def hours(ladders: Sequence[Any]) -> float:
    """At most so long, on two cores: every run to its end, and bsp on DeepSea to twice what it usually needs."""
    tasks = [item.arguments for ladder in ladders for level in ladder for item in level]
    return sum(_milliseconds(spec) for spec in tasks) / 1000 / 3600 / 2


def _milliseconds(spec: dict[str, Any]) -> float:
    chosen = settings(spec["agent"], spec.get("preset", "tuned"), **spec["changes"])
    if lives_on_host(spec["env"]):
        return spec["steps"] * (2 + 35 * chosen.updates / chosen.learn_every)
    cost = MILLISECONDS[min(MILLISECONDS, key=lambda k: abs(k - chosen.num_members))]
    if "cartpole" in spec["env"]:
        return spec["episodes"] * 1000 / chosen.hold * chosen.updates * 2 * cost + 5000  # wider networks
    usual = spec["size"] ** 2 if spec["agent"] == "bsp" else 2.0 ** spec["size"]
    return min(spec["episodes"], usual + 100) * spec["size"] * cost + 5000


def _row(item: Task) -> dict[str, Any]:
    spec = item.arguments
    changes = " ".join(f"{name}={value}" for name, value in sorted(spec["changes"].items()))
    shown = {"agent": spec["agent"], "env": spec.get("game") or spec["env"], "size": spec["size"], "seed": spec["seed"]}
    return {
        "name": item.name,
        **shown,
        "most_episodes": spec["episodes"] if "episodes" in spec else f"{spec['steps']} steps",
        "learned_after": spec.get("learned_after", 1),
        "changes": changes,
        "settings": fingerprint(spec["agent"], spec["changes"], spec.get("preset", "tuned")),
    }


LATER = {
    "torso": "none",
    "shared_torso": True,
    "features": 256,
    "precision": "float32",
    "optimizer": "adam",
    "learn_after": 1,
    "lanes": 1,
    "clip_rewards": False,
}
"""Settings that came after the first rows, and what they are where they say nothing new: those rows still count."""


def fingerprint(agent: str, changes: Mapping[str, Any], preset: str = "tuned") -> str:
    """A short name for all hyperparameters together, so that another preset's rows are not taken for this one's."""
    chosen = dataclasses.asdict(settings(agent, preset, **changes))
    text = json.dumps({k: v for k, v in chosen.items() if k not in LATER or v != LATER[k]}, sort_keys=True)
    return "s" + hashlib.sha256(text.encode()).hexdigest()[:8]


def _identity(row: Any) -> tuple[str, ...]:
    names = ("name", "agent", "env", "size", "seed", "most_episodes", "learned_after", "changes", "settings")
    return tuple(str(row.get(name, "")) for name in names)
