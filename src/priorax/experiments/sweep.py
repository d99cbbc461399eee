"""Experiments that consist of many runs: rows are written as runs finish, and interrupted sweeps continue.

Such a module has `ladders(preset)`, which returns lists of levels of tasks (`priorax.analysis.parallel`), and may have
`outcome(result)`, which makes rows of a run; by default one row with its learning time. The CSV file records what is
done: a run that has rows there, from this version and with the same settings, is not run again.
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
from priorax.training.records import Result
from priorax.version import __version__

MILLISECONDS = {1: 0.15, 5: 0.5, 10: 0.9, 20: 1.7, 40: 3.5}
"""Time of an environment step on one core by number of members, for estimates only."""


def task(name: str, agent: str, size: int, seed: int, episodes: int, env: str = "deep_sea", **changes: Any) -> Task:
    """Define one run, up to learning or a number of episodes.

    Args:
        name: Name of the run's group in the rows.
        agent: Name of the agent.
        size: Size of the environment.
        seed: Random seed.
        episodes: Most episodes.
        env: Name of the environment.
        **changes: Changed settings.

    Returns:
        The task.
    """
    arguments = {"agent": agent, "env": env, "size": size, "seed": seed, "episodes": episodes, "changes": changes}
    return Task(name, {**arguments, "stop_when_learned": True})


Outcome = Callable[[Any], list[dict[str, Any]]]


def time_to_learn(result: Result) -> list[dict[str, Any]]:
    """Make one row: the learning time of a run.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    summary = result.summary()
    wanted = ("episodes", "episodes_to_learn", "episodes_to_solve", "total_return")
    speed = {"env_steps": result.steps, "env_steps_per_second": result.steps_per_second}
    return [{**{name: summary[name] for name in wanted}, **speed}]


def run_sweep(
    name: str,
    preset: str,
    ladders: Sequence[Any],
    path: Path,
    report: Any,
    only: bool = True,
    outcome: Outcome = time_to_learn,
) -> list[Row]:
    """Run the tasks that have no rows yet; rows of a finished run are written at once.

    Args:
        name: Name of the experiment.
        preset: Size of the experiment.
        ladders: Ladders of tasks.
        path: The CSV file.
        report: Called with the fraction of work done and a word on the current work.
        only: Whether rows of other runs, such as those with other settings, are dropped from the file.
        outcome: Makes rows of the result of a run.

    Returns:
        The rows of these runs.
    """
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
    if not result.tells_regret:
        return f"{result.steps:,} steps"
    return f"N={result.size} {result.episodes_to_learn or 'not learned'}"


def hours(ladders: Sequence[Any]) -> float:
    """Estimate an upper bound of the duration on two cores.

    It assumes that every run takes all its episodes, and `bsp` on DeepSea twice its usual learning time.

    Args:
        ladders: Ladders of tasks.

    Returns:
        The hours.
    """
    tasks = [item.arguments for ladder in ladders for level in ladder for item in level]
    return sum(_milliseconds(spec) for spec in tasks) / 1000 / 3600 / 2


def _milliseconds(spec: dict[str, Any]) -> float:
    chosen = settings(spec["agent"], spec.get("preset", "tuned"), **spec["changes"])
    if lives_on_host(spec["env"]):
        return spec["steps"] * (2 + 35 * chosen.updates / chosen.learn_every)
    cost = MILLISECONDS[min(MILLISECONDS, key=lambda k: abs(k - getattr(chosen, "num_members", 1)))]
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


def fingerprint(agent: str, changes: Mapping[str, Any], preset: str = "tuned") -> str:
    """Hash all hyperparameters, so that rows of different settings are not confused.

    Args:
        agent: Name of the agent.
        changes: Changed settings.
        preset: Preset of hyperparameters.

    Returns:
        A short hash.
    """
    chosen = dataclasses.asdict(settings(agent, preset, **changes))
    text = json.dumps({"agent": agent, **chosen}, sort_keys=True)
    return "s" + hashlib.sha256(text.encode()).hexdigest()[:8]


def _identity(row: Any) -> tuple[str, ...]:
    names = ("name", "agent", "env", "size", "seed", "most_episodes", "learned_after", "changes", "settings")
    return tuple(str(row.get(name, "")) for name in names)
