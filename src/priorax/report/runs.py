"""Runs as they lie in folders (`training/folder.py`): found, read, put into groups, and the command to repeat each."""

import csv
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from priorax.agents import Settings, settings
from priorax.envs import BSUITE, ENVIRONMENTS, GYMNASIUM, GYMNAX, make_environment
from priorax.envs.registry import lives_on_host
from priorax.storage import BadFile
from priorax.training.folder import as_json
from priorax.training.request import parse_changes

DEPTH = 2
"""How many folders down runs are looked for."""
LEARNED_BELOW = 0.9
"""The average regret below which a run that is not over counts as learned; one that is over says so itself."""
NEEDED = ("episode", "total_return")
EVALUATED = ("step", "total_return")
ASKED = ("agent", "env", "seed", "preset")
SIZELESS = ("atari", "bernoulli_bandit", "cartpole_", GYMNASIUM, BSUITE, GYMNAX)
"""How the names of environments begin that ignore their size."""
MISSING = object()
LAST = 100
"""Episodes that the return at the end of a run is the mean of, at most."""


@dataclass(frozen=True)
class Run:
    """One run, as far as it is."""

    name: str
    """Its folder, from the one that was given."""
    config: Mapping[str, Any]
    rows: Mapping[str, np.ndarray]
    """The columns of episodes.csv."""
    result: Mapping[str, Any] | None
    """None where the run is not over."""
    evaluations: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The columns of evaluations.csv, where there is one."""

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def episodes(self) -> int:
        return len(self.rows["episode"])

    @property
    def agent(self) -> str:
        return str(self.config["agent"])

    @property
    def task(self) -> str:
        """The environment, and its size or game where it has one."""
        env, game, size = self.config["env"], self.config.get("game"), self.config.get("size")
        if game is not None:
            return f"{env} {game}"
        return str(env) if size is None or str(env).startswith(SIZELESS) else f"{env} {size}"

    @cached_property
    def steps(self) -> np.ndarray | None:
        """Steps taken by the end of each episode, where rows have them."""
        if "step" in self.rows:
            return self.rows["step"]
        return np.cumsum(self.rows["length"]) if "length" in self.rows else None

    @cached_property
    def changes(self) -> dict[str, Any]:
        """What differs from the preset, by what this version knows of it; all of it where the preset is unknown."""
        try:
            preset = as_json(settings(self.config["agent"], self.config["preset"]))
        except (ValueError, TypeError):
            preset = {}
        return {name: v for name, v in self.config["settings"].items() if v != preset.get(name, MISSING)}

    @cached_property
    def tells_regret(self) -> bool:
        if "average_regret" not in self.rows:
            return False
        if self.result is not None and isinstance(self.result.get("tells_regret"), bool):
            return bool(self.result["tells_regret"])
        return bool(getattr(_environment(self.config["env"]), "tells_regret", False))

    @cached_property
    def tells_solved(self) -> bool:
        if "solved" not in self.rows:
            return False
        return bool(self.rows["solved"].any()) or hasattr(_environment(self.config["env"]), "optimal_path")

    @cached_property
    def learned(self) -> int | None:
        """Episodes to learn; None where it has not, or where the environment does not tell."""
        if not self.tells_regret:
            return None
        if self.result is not None and "episodes_to_learn" in self.result:
            return _count(self.result["episodes_to_learn"])
        below = np.flatnonzero(self.rows["average_regret"] < LEARNED_BELOW)
        return int(self.rows["episode"][below[0]]) if below.size else None

    @cached_property
    def solved(self) -> int | None:
        """Episodes until the greedy policy stays optimal; None where it does not, or where nothing can tell."""
        if not self.tells_solved or not self.episodes:
            return None
        wrong = np.flatnonzero(self.rows["solved"] != 1)
        first = int(self.rows["episode"][wrong[-1]]) + 1 if wrong.size else 1
        return first if first <= self.episodes else None

    def mean_return(self, last: int = LAST) -> float | None:
        """Of the last episodes, or of all where there are fewer."""
        return float(np.mean(self.rows["total_return"][-last:])) if self.episodes else None

    @property
    def deployed(self) -> float | None:
        """The mean return of the last evaluation; None where nothing was evaluated."""
        steps = self.evaluations.get("step", np.zeros(0))
        return float(np.mean(self.evaluations["total_return"][steps == steps[-1]])) if steps.size else None


@dataclass
class Group:
    """Runs that differ in their seed only."""

    key: str
    runs: list[Run] = field(default_factory=list)
    label: str = ""
    """What sets it apart from others in the same task."""

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def counted(self) -> list[Run]:
        """One run of each seed, the longest: another of the same seed is no further evidence."""
        longest: dict[str, Run] = {}
        for run in self.runs:
            kept = longest.setdefault(str(run.config["seed"]), run)
            if (run.episodes, run.finished) > (kept.episodes, kept.finished):
                longest[str(run.config["seed"])] = run
        return list(longest.values())


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in these folders, or up to two folders down; each once."""
    if not folders:
        raise ValueError("folders=[] names no run; pass at least one folder that holds a run.json")
    found: dict[Path, Run] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"folder {str(folder)!r} is not there; pass the folder of a run, or one that holds runs")
        paths = _with_runs(folder, DEPTH)
        if not paths:
            raise ValueError(
                f"folder {str(folder)!r} holds no run: there is no run.json in it, nor up to {DEPTH} folders down; "
                "make one with: priorax train --out DIR"
            )
        for path in paths:
            inside = path.relative_to(folder).parts
            found.setdefault(path.resolve(), read_run(path, "/".join((folder.resolve().name, *inside))))
    return list(found.values())


def _with_runs(folder: Path, depth: int) -> list[Path]:
    """Folders with a run, in the order of their names; a run's own folders are not looked into."""
    if (folder / "run.json").is_file():
        return [folder]
    inner = sorted(path for path in folder.iterdir() if path.is_dir()) if depth else []
    return [path for each in inner for path in _with_runs(each, depth - 1)]


def read_run(path: Path, name: str) -> Run:
    """The run in a folder; one under way may end in half a row, which does not count."""
    config = _read_object(path / "run.json")
    lacking = [key for key in ASKED if key not in config]
    if lacking or not isinstance(config.get("settings"), dict):
        raise BadFile(f"{path / 'run.json'} is damaged (no {', '.join(lacking) or 'settings'}); leave this folder out")
    rows = _read_columns(path / "episodes.csv", NEEDED)
    tried = path / "evaluations.csv"
    evaluations = _read_columns(tried, EVALUATED) if tried.is_file() else {}
    result = _read_object(path / "result.json") if (path / "result.json").is_file() else None
    if result is not None and result.get("episodes") != len(rows["episode"]):
        result = None  # it was resumed since, to be made longer
    return Run(name, config, rows, result, evaluations)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{path} is damaged ({error}); leave this folder out, or run it again") from None
    if not isinstance(found, dict):
        raise BadFile(f"{path} is damaged (no object); leave this folder out, or run it again")
    return found


def _read_columns(path: Path, needed: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ",".join(needed) + "\n"
        header, *rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines())) or [list(needed)]
        table = np.array([[float(cell) for cell in row] for row in rows]).reshape(len(rows), len(header))
    except (ValueError, csv.Error) as error:
        raise BadFile(f"{path} is damaged ({error}); leave this folder out, or run it again") from None
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise BadFile(f"{path} is damaged (no column {', '.join(lacking)}); leave this folder out, or run it again")
    return {name: table[:, i] for i, name in enumerate(header)}


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """By agent, task, preset and changes to it; a task's groups as they come, a group's runs by seed."""
    groups: dict[str, Group] = {}
    for run in runs:
        asked = [run.agent, run.task, run.config["preset"], run.config.get("actors"), run.config.get("shards")]
        key = json.dumps([asked, run.changes], sort_keys=True)
        groups.setdefault(key, Group(key)).runs.append(run)
    ordered = sorted(
        groups.values(),
        key=lambda group: (str(group.first.config["env"]), _number(group.first.config.get("size")), group.first.task),
    )
    for group in ordered:
        group.runs.sort(key=lambda run: (_number(run.config["seed"]), str(run.config["seed"]), run.name))
    presets: dict[str, set[str]] = {}
    for group in ordered:
        presets.setdefault(group.first.task, set()).add(str(group.first.config["preset"]))
    for group in ordered:
        group.label = _label(group.first, len(presets[group.first.task]) > 1)
    return ordered


def _label(run: Run, with_preset: bool) -> str:
    more = [str(run.config["preset"])] if with_preset else []
    more += [f"{name}={word(value)}" for name, value in run.changes.items()]
    more += [f"{run.config[name]} {name}" for name in ("actors", "shards") if name in run.config]
    return f"{run.agent}, {', '.join(more)}" if more else run.agent


def _number(value: Any) -> int | float:
    """What to sort by; what is no number comes last."""
    return value if isinstance(value, int | float) else math.inf


def command(run: Run) -> tuple[str, str]:
    """The command that repeats a run, and what is to be known about it; no command where there is none."""
    config = run.config
    unknown = [name for name in run.changes if name not in as_json(Settings())]
    words = [f"{name}={word(value)}" for name, value in run.changes.items() if name not in unknown]
    try:
        again = as_json(settings(config["agent"], config["preset"], **parse_changes(words)))
    except (ValueError, TypeError) as error:
        return "", f"No command of this version repeats it: {error}"
    env = str(config["env"])
    if not lives_on_host(env) and not env.startswith(GYMNAX) and env not in ENVIRONMENTS:
        own = env.removeprefix("object:")
        entry = "priorax.Explorer" if own != env else "priorax.train"
        return "", f"No command repeats it: {own} is an environment of your own; pass it to {entry}."
    distributed = "actors" in config
    names = ["agent", "env", "game", "size", "seed", "episodes", "steps", "preset"]
    names += ["actors", "shards"] if distributed else []
    parts = ["priorax", "apex" if distributed else "train"]
    for name in (name for name in names if config.get(name) is not None):
        parts += [f"--{name}", str(config[name])]
    if config.get("evaluate_every") is not None:
        for name in (name for name in EVALUATING if config.get(name) is not None):
            parts += [f"--{name.replace('_', '-')}", str(config[name])]
    parts += ["--stop-when-learned"] if _stopped_when_learned(run) else []
    parts += ["--set", *words] if words else []
    notes = [f"this version knows no setting {', '.join(unknown)}"] if unknown else []
    added = [name for name in again if name not in config["settings"]]
    notes += [f"its version had no setting {', '.join(added)}, which the command leaves as it is"] if added else []
    differing = [name for name, value in config["settings"].items() if name not in unknown and again[name] != value]
    notes += [f"the command line cannot say {', '.join(differing)} as they were"] if differing else []
    return shlex.join(parts), f"Not quite the same: {'; '.join(notes)}." if notes else ""


EVALUATING = ("evaluate_every", "evaluation_episodes", "deploy")


def _stopped_when_learned(run: Run) -> bool:
    asked = run.config.get("episodes")
    return run.finished and isinstance(asked, int) and run.episodes < asked and run.learned == run.episodes


def word(value: Any) -> str:
    """A setting's value as `--set` takes it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "()"
    return str(value)


def _environment(name: Any) -> Any:
    """One of that name, whatever its size; None where there is none."""
    try:
        return make_environment(name, 4)
    except (ValueError, TypeError):
        return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
