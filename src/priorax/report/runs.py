"""Find, read and group run folders, and reconstruct the command that repeats each run."""

import csv
import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from priorax.agents import agent_spec, settings
from priorax.agents.setting_values import hints
from priorax.envs import make_environment
from priorax.envs.registry import usable_environment
from priorax.files import BadFile
from priorax.training.request import parse_changes
from priorax.training.run_files import PRIOR_FILE, as_json

DEPTH = 2
"""Folder levels below the given ones that are searched for runs."""
LEARNED_BELOW = 0.9
"""Average regret below which an unfinished run counts as learned; finished runs record it."""
NEEDED = ("episode", "total_return")
EVALUATED = ("step", "total_return")
ASKED = ("agent", "env", "seed", "preset")
MISSING = object()
LAST = 100
"""Maximum number of episodes over which the final return of a run is averaged."""


@dataclass(frozen=True)
class Run:
    """One run, finished or in progress."""

    name: str
    """Folder of the run, relative to the given one."""
    config: Mapping[str, Any]
    """Content of run.json."""
    rows: Mapping[str, np.ndarray]
    """Columns of episodes.csv; NaN where a cell is empty."""
    result: Mapping[str, Any] | None
    """Content of result.json; None if the run is not finished."""
    evaluations: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Columns of evaluations.csv, if any."""
    prior: str | None = None
    """Path of the run's learned prior, if it has one."""

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
        """The environment, with its size or game."""
        env, game, size = self.config["env"], self.config.get("game"), self.config.get("size")
        if game is not None:
            return f"{env} {game}"
        spec = usable_environment(str(env))
        return str(env) if size is None or (spec is not None and not spec.sized) else f"{env} {size}"

    @cached_property
    def steps(self) -> np.ndarray | None:
        """Environment steps at the end of each episode, if the rows have them."""
        if "step" in self.rows:
            return self.rows["step"]
        return np.cumsum(self.rows["length"]) if "length" in self.rows else None

    @cached_property
    def changes(self) -> dict[str, Any]:
        """Settings that differ from the preset in this version; all settings if the preset is unknown.

        The file of a learned prior is named by its digest.
        """
        try:
            preset = as_json(settings(self.config["agent"], self.config["preset"]).settled())
        except (ValueError, TypeError):
            preset = {}
        changed = {name: v for name, v in self.config["settings"].items() if v != preset.get(name, MISSING)}
        if "prior_digest" in self.config:
            changed["prior_file"] = self.config["prior_digest"]
        return changed

    @cached_property
    def tells_regret(self) -> bool:
        return self._tells("average_regret", lambda env: getattr(env, "tells_regret", False))

    @cached_property
    def tells_solved(self) -> bool:
        return self._tells("solved", lambda env: hasattr(env, "optimal_path"))

    def _tells(self, column: str, known: Callable[[Any], bool]) -> bool:
        """Check whether a column has values; before the first row, whether the environment will report them."""
        if column not in self.rows:
            return False
        if self.episodes:
            return not np.isnan(self.rows[column]).all()
        return self.config.get("backend") == "scan" and bool(known(_environment(self.config["env"])))

    @cached_property
    def learned(self) -> int | None:
        """Episodes to learn; None if the run has not learned, or the environment does not report regret."""
        if not self.tells_regret:
            return None
        if self.result is not None and "episodes_to_learn" in self.result:
            return _count(self.result["episodes_to_learn"])
        below = np.flatnonzero(self.rows["average_regret"] < LEARNED_BELOW)
        return int(self.rows["episode"][below[0]]) if below.size else None

    @cached_property
    def solved(self) -> int | None:
        """Episodes until the greedy policy stays optimal; None if it does not, or the optimum is unknown."""
        if not self.tells_solved or not self.episodes:
            return None
        wrong = np.flatnonzero(self.rows["solved"] != 1)
        first = int(self.rows["episode"][wrong[-1]]) + 1 if wrong.size else 1
        return first if first <= self.episodes else None

    def mean_return(self, last: int = LAST) -> float | None:
        """Return the mean return of the last episodes.

        Args:
            last: Maximum number of episodes to average over.

        Returns:
            The mean; None if there are no episodes.
        """
        return float(np.mean(self.rows["total_return"][-last:])) if self.episodes else None

    @property
    def deployed(self) -> float | None:
        """The mean return of the last evaluation; None if there is none."""
        steps = self.evaluations.get("step", np.zeros(0))
        return float(np.mean(self.evaluations["total_return"][steps == steps[-1]])) if steps.size else None


@dataclass
class Group:
    """Runs that differ in their seed only."""

    key: str
    """Key that identifies the group."""
    runs: list[Run] = field(default_factory=list)
    """The runs."""
    label: str = ""
    """Label that distinguishes the group from others on the same task."""

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def counted(self) -> list[Run]:
        """The longest run of each seed."""
        longest: dict[str, Run] = {}
        for run in self.runs:
            kept = longest.setdefault(str(run.config["seed"]), run)
            if (run.episodes, run.finished) > (kept.episodes, kept.finished):
                longest[str(run.config["seed"])] = run
        return list(longest.values())


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """Find the runs in folders, or up to two levels below.

    Args:
        folders: The folders.

    Returns:
        The runs, each once.

    Raises:
        ValueError: If a folder does not exist or contains no run.
        BadFile: If a file of a run is damaged.
    """
    if not folders:
        raise ValueError("folders=[] is empty; pass at least one folder that contains a run.json")
    found: dict[Path, Run] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"folder {str(folder)!r} does not exist; pass the folder of a run, or a folder of runs")
        paths = _with_runs(folder, DEPTH)
        if not paths:
            raise ValueError(
                f"folder {str(folder)!r} contains no run: there is no run.json in it, nor up to {DEPTH} levels below; "
                "create one with: priorax train --out DIR"
            )
        for path in paths:
            inside = path.relative_to(folder).parts
            found.setdefault(path.resolve(), read_run(path, "/".join((folder.resolve().name, *inside))))
    return list(found.values())


def _with_runs(folder: Path, depth: int) -> list[Path]:
    """List folders with a run, ordered by name; folders inside a run are not searched."""
    if (folder / "run.json").is_file():
        return [folder]
    inner = sorted(path for path in folder.iterdir() if path.is_dir()) if depth else []
    return [path for each in inner for path in _with_runs(each, depth - 1)]


def read_run(path: Path, name: str) -> Run:
    """Read a run; an incomplete last row of a run in progress is ignored.

    Args:
        path: Folder of the run.
        name: Name to give it.

    Returns:
        The run.

    Raises:
        BadFile: If a file of the run is damaged.
    """
    config = _read_object(path / "run.json")
    lacking = [key for key in ASKED if key not in config]
    if lacking or not isinstance(config.get("settings"), dict):
        raise BadFile(f"{path / 'run.json'} is damaged (no {', '.join(lacking) or 'settings'}); leave this folder out")
    rows = _read_columns(path / "episodes.csv", NEEDED)
    tried = path / "evaluations.csv"
    evaluations = _read_columns(tried, EVALUATED) if tried.is_file() else {}
    result = _read_object(path / "result.json") if (path / "result.json").is_file() else None
    if result is not None and result.get("episodes") != len(rows["episode"]):
        result = None  # the run was resumed and extended since
    prior = str(path / PRIOR_FILE) if "prior_digest" in config else None
    return Run(name, config, rows, result, evaluations, prior)


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
        table = np.array([[_read_cell(*pair, needed) for pair in zip(header, row, strict=True)] for row in rows])
        table = table.reshape(len(rows), len(header))
    except (ValueError, csv.Error) as error:
        raise BadFile(f"{path} is damaged ({error}); leave this folder out, or run it again") from None
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise BadFile(f"{path} is damaged (no column {', '.join(lacking)}); leave this folder out, or run it again")
    return {name: table[:, i] for i, name in enumerate(header)}


def _read_cell(name: str, text: str, needed: Sequence[str]) -> float:
    """Parse a cell; NaN for an empty cell of an optional column."""
    return math.nan if text == "" and name not in needed else float(text)


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Group runs by agent, task, preset and changed settings.

    Args:
        runs: The runs.

    Returns:
        The groups, ordered by task; runs of a group are ordered by seed.
    """
    groups: dict[str, Group] = {}
    for run in runs:
        identity = [run.agent, run.task, run.config["preset"], run.config.get("actors"), run.config.get("shards")]
        key = json.dumps([identity, run.changes], sort_keys=True)
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
    """Get the sort key: numbers in order, anything else last."""
    return value if isinstance(value, int | float) else math.inf


def command(run: Run) -> tuple[str, str]:
    """Return the command that repeats a run.

    Args:
        run: The run.

    Returns:
        The command, empty if there is none, and a remark.
    """
    config = run.config
    try:
        known = hints(agent_spec(config["agent"]).settings)
        unknown = [name for name in run.changes if name not in known]
        changed = {**run.changes, **({"prior_file": run.prior} if run.prior else {})}
        words = [f"{name}={word(value)}" for name, value in changed.items() if name not in unknown]
        changes = parse_changes(config["agent"], words)
        again = as_json(settings(config["agent"], config["preset"], **changes).settled())
    except (ValueError, TypeError) as error:
        return "", f"No command of this version repeats this run: {error}"
    env = str(config["env"])
    spec = usable_environment(str(env))
    if spec is None:
        own = env.removeprefix("object:")
        return "", f"No command repeats this run: {own} is a custom environment; pass it to priorax.train."
    distributed = "actors" in config
    names = ["agent", "env", "game", *(["size"] if spec.sized else []), "seed", "episodes", "steps", "preset"]
    names += ["actors", "shards"] if distributed else []
    parts = ["priorax", "apex" if distributed else "train"]
    for name in (name for name in names if config.get(name) is not None):
        parts += [f"--{name}", str(config[name])]
    if config.get("evaluate_every") is not None:
        for name in (name for name in EVALUATING if config.get(name) is not None):
            parts += [f"--{name.replace('_', '-')}", str(config[name])]
    usual = "host" if spec.on_host else "scan"
    if config.get("backend") in ("scan", "host") and config["backend"] != usual:
        parts += ["--backend", config["backend"]]
    parts += ["--stop-when-learned"] if _stopped_when_learned(run) else []
    parts += ["--set", *words] if words else []
    notes = [f"this version has no setting {', '.join(unknown)}"] if unknown else []
    added = [name for name in again if name not in config["settings"]]
    notes += [f"the run's version had no setting {', '.join(added)}, which keeps its default"] if added else []
    differing = [name for name, value in config["settings"].items() if name not in unknown and again[name] != value]
    notes += [f"the values of {', '.join(differing)} cannot be given on the command line"] if differing else []
    return shlex.join(parts), f"Not identical: {'; '.join(notes)}." if notes else ""


EVALUATING = ("evaluate_every", "evaluation_episodes", "deploy")


def _stopped_when_learned(run: Run) -> bool:
    requested = run.config.get("episodes")
    return run.finished and isinstance(requested, int) and run.episodes < requested and run.learned == run.episodes


def word(value: Any) -> str:
    """Format a setting's value for `--set`.

    Args:
        value: The value.

    Returns:
        The text.
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "()"
    return str(value)


def _environment(name: Any) -> Any:
    """Create an environment of default size by name; None if it is not available."""
    try:
        return make_environment(name, 4)
    except (ValueError, TypeError):
        return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
