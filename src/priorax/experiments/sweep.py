"""Experiments that consist of many runs: rows are written as runs finish, and interrupted sweeps continue.

Such a module has `ladders(budget)`, which returns lists of levels of tasks (`priorax.analysis.parallel`), and may have
`outcome(result)`, which makes rows of a run; by default one row with its learning time. A task may also be a
measurement that trains no agent and returns rows itself.

The CSV file records what is done. Beside it, `NAME.settings.json` has all hyperparameters of each run, by the id in the
column `settings`. A run is not repeated if it has rows made with `ROWS_VERSION` and the same hyperparameters; rows of
other runs stay in the file and are not shown. Nothing is ever rewritten.
"""

import dataclasses
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from priorax.agents import Settings, agent_spec, settings
from priorax.analysis.parallel import Task, climb
from priorax.doctor import is_installed
from priorax.files import write_atomically
from priorax.fitting import NonFiniteLoss
from priorax.report.rows import Row, read_rows, write_rows
from priorax.training.records import Result
from priorax.training.setup import choose_backend
from priorax.version import __version__

ROWS_VERSION = 2
"""Raised when a change of agents or environments alters results, so that rows made before are not mixed with new ones.
A new setting does not need it if its default keeps earlier behaviour."""
MILLISECONDS = {1: 0.15, 5: 0.5, 10: 0.9, 20: 1.7, 40: 3.5}
"""Time of an environment step on one core by number of members, for estimates only."""
OTHER_MILLISECONDS = {
    "qr": 1.4,
    "bbb": 0.9,
    "c51": 0.6,
    "noisy": 0.45,
    "hypermodel": 0.9,
    "epinet": 4.0,
    "dropout": 0.3,
}
"""The same of agents that are slower than one member."""
LEARNED_AFTER = 30
"""First episode of DeepSea that counts as learned, for all agents: on small grids, luck in the first few episodes looks
like learning."""


FIRST_SEED = 200
"""First seed of the runs that figures show; no setting was chosen on seeds from here on."""


def fresh_seeds(count: int) -> range:
    """List seeds on which no setting was chosen.

    Args:
        count: Number of seeds.

    Returns:
        The seeds, from `FIRST_SEED` on.
    """
    return range(FIRST_SEED, FIRST_SEED + count)


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
    return Task(name, {**arguments, "stop_when_learned": True, "learned_after": LEARNED_AFTER})


def ladder(
    name: str,
    agent: str,
    sizes: Iterable[int],
    seeds: Iterable[int],
    episodes: int,
    env: str = "deep_sea",
    preset: str = "tuned",
    **changes: Any,
) -> list[list[Task]]:
    """Define a ladder of sizes, each with all seeds.

    Args:
        name: Name of the group of runs in the rows.
        agent: Name of the agent.
        sizes: Sizes of the environment, in the order of their runs.
        seeds: Random seeds.
        episodes: Most episodes of a run.
        env: Name of the environment.
        preset: Preset of hyperparameters.
        **changes: Changed settings.

    Returns:
        The ladder (`priorax.analysis.parallel`).
    """
    seeds = tuple(seeds)
    return [
        [task(name, agent, size, seed, episodes, env, **changes).asking(preset=preset) for seed in seeds]
        for size in sizes
    ]


Outcome = Callable[[Any], list[dict[str, Any]]]


def time_to_learn(result: Result) -> list[dict[str, Any]]:
    """Make one row: the learning time of a run.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    summary = result.summary()
    wanted = ("episodes", "episodes_to_learn", "episodes_to_solve", "total_return", "steps", "updates")
    return [{**{name: summary[name] for name in wanted}, "steps_per_second": round(result.steps_per_second, 1)}]


def run_sweep(
    name: str,
    budget: str,
    ladders: Sequence[Any],
    path: Path,
    report: Any,
    outcome: Outcome = time_to_learn,
) -> list[Row]:
    """Run the tasks that have no rows yet; rows of a finished run are written at once.

    Args:
        name: Name of the experiment.
        budget: Size of the experiment.
        ladders: Ladders of tasks.
        path: The CSV file.
        report: Called with the fraction of work done and a word on the current work.
        outcome: Makes rows of the result of a run.

    Returns:
        The rows of these runs.
    """
    made = stamp(name, budget)
    ladders = [[list(level) for level in ladder] for ladder in ladders]
    wanted = {_identity(row) for row in map(_row, _tasks(ladders))}
    kept = read_rows(path) if path.exists() else []
    book = _Settings(path)
    known = {identity: row for row in kept if (identity := book.identity(row)) in wanted}

    def done(item: Task) -> bool | None:
        row = known.get(_identity(_row(item)))
        return None if row is None else "episodes_to_learn" in row

    report(len(known) / max(len(wanted), 1), f"{len(known)} of at most {len(wanted)} runs")
    for item, result in climb(ladders, done):
        new = [{**made, **_row(item), **row} for row in _measured(item, result, outcome)]
        kept.extend(new)
        known[_identity(new[0])] = new[0]
        book.add(item)
        write_rows(path, sorted(kept, key=_order))
        report(len(known) / len(wanted), f"{item.name}{_told(result)}")
    return select(path, ladders)


def stamp(name: str, budget: str) -> dict[str, Any]:
    """Say what made a row: its first columns.

    Args:
        name: Name of the experiment.
        budget: Size of the experiment.

    Returns:
        The columns. Another version of JAX, or another kind of CPU, rounds differently, so that the same seed may give
        another run.
    """
    return {
        "experiment": name,
        "budget": budget,
        "version": __version__,
        "jax": jax.__version__,
        "rows_version": ROWS_VERSION,
    }


def _measured(item: Task, result: Any, outcome: Outcome) -> list[dict[str, Any]]:
    """Make the rows of a task; a run that diverged did not learn."""
    if isinstance(result, NonFiniteLoss):
        if outcome is not time_to_learn:
            raise result
        return [{"diverged": str(result)}]
    return result if item.measure else outcome(result)


def runnable(ladders: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Leave out tasks whose packages are not installed.

    Args:
        ladders: Ladders of tasks.

    Returns:
        Ladders of the other tasks, and what to tell about those left out.
    """
    counts = Counter(item.needs for item in _tasks(ladders) if item.needs and not is_installed(item.needs))
    kept = [[[item for item in level if item.needs not in counts] for level in ladder] for ladder in ladders]
    told = [
        f"{name} is not installed, so {count} measurements with it are skipped; pip install {name} and run this again"
        for name, count in counts.items()
    ]
    return kept, told


def select(path: Path, ladders: Sequence[Any]) -> list[Row]:
    """Read the rows of an experiment's own runs from a file that may have others.

    Args:
        path: The CSV file.
        ladders: Ladders of tasks.

    Returns:
        The rows.
    """
    wanted = {_identity(row) for row in map(_row, _tasks(ladders))}
    book = _Settings(path)
    return [row for row in read_rows(path) if book.identity(row) in wanted]


def _tasks(ladders: Sequence[Any]) -> list[Task]:
    return [item for ladder in ladders for level in ladder for item in level]


class _Settings:
    """The file with the hyperparameters of the runs in a CSV file."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_suffix(".settings.json")
        self.known: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            self.known = json.loads(self.path.read_text())

    def add(self, item: Task) -> None:
        """Write the hyperparameters of a run, unless they are known.

        Args:
            item: The run.
        """
        chosen = hyperparameters(item)
        if self.known.setdefault(fingerprint(chosen), chosen) is chosen:
            write_atomically(self.path, (json.dumps(self.known, indent=1, sort_keys=True) + "\n").encode())

    def identity(self, row: Row) -> tuple[str, ...] | None:
        """Identify the run of a row by its hyperparameters, completed by defaults of settings that are new since.

        Args:
            row: The row.

        Returns:
            The identity; None if the row was made by a version whose agents behave differently.
        """
        stored = self.known.get(str(row.get("settings")))
        if stored is None or row.get("rows_version") != ROWS_VERSION:
            return None
        return _identity({**row, "settings": fingerprint(_completed(stored))})


def _completed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Add settings that did not exist when a row was made, at their defaults, which keep earlier behaviour."""
    if "measure" in stored:  # whatever its arguments are called
        return dict(stored)
    kind = agent_spec(stored["agent"]).settings
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    return {**_plain(defaults), **stored}


def hours(ladders: Sequence[Any]) -> float:
    """Estimate an upper bound of the duration on two cores.

    It assumes that every run takes all its episodes, and `bsp` on DeepSea twice its usual learning time. Measurements
    that train no agent are left out.

    Args:
        ladders: Ladders of tasks.

    Returns:
        The hours.
    """
    return sum(_milliseconds(item.arguments) for item in _tasks(ladders) if not item.measure) / 1000 / 3600 / 2


def _order(row: Row) -> tuple[str, int, int]:
    return str(row["name"]), int(row.get("size", 0)), int(row.get("seed", 0))


def _told(result: Any) -> str:
    if isinstance(result, list):
        return ""
    if isinstance(result, NonFiniteLoss):
        return f": {result}"
    if not result.tells_regret:
        return f": {result.steps:,} steps"
    return f": N={result.size} {result.episodes_to_learn or 'not learned'}"


def _milliseconds(spec: dict[str, Any]) -> float:
    chosen = settings(spec["agent"], spec.get("preset", "tuned"), **spec["changes"])
    if choose_backend(spec["env"]) == "host":
        return spec["steps"] * (2 + 35 * chosen.updates / chosen.learn_every)
    cost = MILLISECONDS[min(MILLISECONDS, key=lambda k: abs(k - getattr(chosen, "num_members", 1)))]
    cost = OTHER_MILLISECONDS.get(spec["agent"], cost)
    if "cartpole" in spec["env"]:
        return spec["episodes"] * 1000 / chosen.hold * chosen.updates * 2 * cost + 5000  # wider networks
    if chosen.learn_every == 0:  # one update in an episode
        cost = 0.15 + 2 * cost / spec["size"]
    usual = spec["size"] ** 2 if spec["agent"] == "bsp" else 2.0 ** spec["size"]
    return min(spec["episodes"], usual + 100) * spec["size"] * cost + 5000


def _row(item: Task) -> dict[str, Any]:
    spec = item.arguments
    if item.measure is not None:
        return {"name": item.name, **spec, "settings": fingerprint(hyperparameters(item))}
    changes = " ".join(f"{name}={value}" for name, value in sorted(spec["changes"].items()))
    return {
        "name": item.name,
        "agent": spec["agent"],
        "env": spec.get("game") or spec["env"],
        "size": spec["size"],
        "seed": spec["seed"],
        "most_episodes": spec["episodes"] if "episodes" in spec else f"{spec['steps']} steps",
        "learned_after": spec.get("learned_after", 1),
        "preset": spec.get("preset", "tuned"),
        "changes": changes,
        "settings": fingerprint(hyperparameters(item)),
    }


def hyperparameters(item: Task) -> dict[str, Any]:
    """List the agent and all its hyperparameters in a run, as they are written to JSON.

    Args:
        item: The run.

    Returns:
        Values by name; `agent` is the agent. Of a measurement its function, as `measure`, and the arguments but for the
        seed.
    """
    spec = item.arguments
    if item.measure is not None:
        return {"measure": item.measure.__name__, **_plain({k: v for k, v in spec.items() if k != "seed"})}
    chosen: Settings = settings(spec["agent"], spec.get("preset", "tuned"), **spec["changes"])
    return {"agent": spec["agent"], **_plain(dataclasses.asdict(chosen))}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def fingerprint(chosen: Mapping[str, Any]) -> str:
    """Hash hyperparameters, so that rows of different settings are not confused.

    Args:
        chosen: All hyperparameters by name, and the agent.

    Returns:
        A short hash.
    """
    return _hash(json.dumps(chosen, sort_keys=True))


@functools.cache
def _hash(text: str) -> str:
    return "s" + hashlib.sha256(text.encode()).hexdigest()[:10]


def _identity(row: Any) -> tuple[str, ...]:
    """Identify a run by the columns that `_row` gives it; those of a measurement are its arguments."""
    run = ("agent", "env", "size", "most_episodes", "learned_after") if "agent" in row else ()
    names = ("name", "seed", "settings", *run)
    return tuple(str(row.get(name, "")) for name in names)
