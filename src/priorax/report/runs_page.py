"""The report on runs: a single HTML file for any set of run folders. All text from their files is escaped."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from priorax.report.markup import table, text
from priorax.report.runs import LAST, LEARNED_BELOW, Group, Run, command, find_runs, group_runs, word
from priorax.report.viewer import write_page
from priorax.version import __version__

POINTS = 400
"""Maximum number of points plotted per run."""
NAMED = 4
"""Maximum number of groups described in the summary."""
UNFOLDED = 20
"""Maximum number of runs for which lists are expanded."""
ABSENT = "not measured"


def write_report(folders: Sequence[Path | str], out: Path | str) -> Path:
    """Write a report on runs as one HTML page that needs no network.

    It shows learning curves, learning times, hyperparameters and commands, also of runs in progress.

    Args:
        folders: Folders with runs, directly or up to two levels below.
        out: The file to write.

    Returns:
        The file written.

    Raises:
        ValueError: If a folder does not exist or contains no run.
        BadFile: If a file of a run is damaged.
    """
    runs = find_runs([Path(folder) for folder in folders])
    groups = group_runs(runs)
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.first.task, []).append(group)
    data = [_task(task, inside) for task, inside in tasks.items()]
    filled = {
        "title": text(f"{_listed(dict.fromkeys(run.agent for run in runs))} on {_listed(tasks)}"),
        "summary": _summary(runs, groups, tasks),
        "times": _times(groups, len(tasks) > 1),
        "settings": _settings(groups, len(tasks) > 1),
        "runs": _runs(groups),
        "versions": _versions(runs),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return write_page("report.html", filled, out)


# -- charts


def _task(task: str, groups: Sequence[Group]) -> dict[str, Any]:
    """Create the charts of one environment."""
    lengths = {float(v) for group in groups for run in group.runs for v in np.unique(run.rows.get("length", [-1.0]))}
    same = lengths.pop() if len(lengths) == 1 else None
    charts = [
        {"title": "Return by episode", "x": "episode", "y": "return", "smooth": True, "curves": _each(groups, _returns)}
    ]
    by_step = [] if same is not None and same > 0 else _each(groups, _returns_by_step)
    if any(curve["runs"] for curve in by_step):
        charts.append({"title": "Return by step", "x": "step", "y": "return", "smooth": True, "curves": by_step})
    deployed = _each(groups, _deployed_by_step)
    if any(curve["runs"] for curve in deployed):
        evaluated = {"title": "Return of the deployed policy by step", "x": "step", "y": "return", "smooth": False}
        charts.append({**evaluated, "curves": deployed})
    regrets = _each(groups, _regrets)
    if any(curve["runs"] for curve in regrets):
        regret = {"title": "Average regret by episode", "x": "episode", "y": "average regret", "smooth": False}
        charts.append({**regret, "curves": regrets, "learned": LEARNED_BELOW})
    note = f"Every episode has {same:,.0f} steps, so curves by step are the same." if same and same > 0 else ""
    labels = [
        {"label": group.label, "seeds": len(group.counted), "open": sum(not run.finished for run in group.counted)}
        for group in groups
    ]
    return {"task": task, "groups": labels, "charts": charts, "note": note}


def _each(groups: Sequence[Group], curve: Callable[[Sequence[Run]], dict[str, Any]]) -> list[dict[str, Any]]:
    return [curve([run for run in group.counted if run.episodes]) for group in groups]


def _returns(runs: Sequence[Run]) -> dict[str, Any]:
    """Average returns over bins of episodes, the same for all seeds, with at most `POINTS` bins."""
    return _by_episode(runs, "total_return", np.mean)


def _regrets(runs: Sequence[Run]) -> dict[str, Any]:
    """Select the last average regret of each bin of episodes."""
    runs = [run for run in runs if run.tells_regret]
    return _by_episode(runs, "average_regret", lambda part: part[-1])


def _by_episode(runs: Sequence[Run], column: str, kind: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    most = max((run.episodes for run in runs), default=1)
    width = math.ceil(most / POINTS)
    return _curve(runs, width, [_binned(run.rows[column], width, kind) for run in runs], most)


def _returns_by_step(runs: Sequence[Run]) -> dict[str, Any]:
    runs = [run for run in runs if run.steps is not None]
    return _by_step(runs, [np.asarray(run.steps) for run in runs], [run.rows["total_return"] for run in runs])


def _deployed_by_step(runs: Sequence[Run]) -> dict[str, Any]:
    runs = [run for run in runs if run.deployed is not None]
    tried = [run.evaluations for run in runs]
    return _by_step(runs, [each["step"] for each in tried], [each["total_return"] for each in tried])


def _by_step(runs: Sequence[Run], steps: Sequence[np.ndarray], returns: Sequence[np.ndarray]) -> dict[str, Any]:
    """Average returns over bins of steps; bins without a finished episode repeat the previous value."""
    most = max((int(mine[-1]) for mine in steps), default=1)
    points = max(1, min(POINTS, int(np.median([len(np.unique(mine)) for mine in steps])))) if runs else 1
    width = max(1, math.ceil(most / points))
    values = []
    for mine, paid in zip(steps, returns, strict=True):
        places = np.clip((mine - 1) // width, 0, points - 1)
        line: list[float | None] = [None] * (int(places[-1]) + 1)
        for place in np.unique(places):
            line[int(place)] = _finite(np.mean(paid[places == place]))
        for i in range(1, len(line)):
            line[i] = line[i - 1] if line[i] is None else line[i]
        values.append(line)
    return _curve(runs, width, values, most)


def _curve(runs: Sequence[Run], width: int, values: list[list[float | None]], last: int) -> dict[str, Any]:
    """Create the data of a curve.

    Point i is at (i + 1) * `width` episodes or steps, the last at `last`; `each` is the number of episodes per point.
    """
    lines = [{"seed": str(run.config["seed"]), "values": line} for run, line in zip(runs, values, strict=True)]
    each = sum(run.episodes for run in runs) / max(1, sum(map(len, values)))
    return {"width": width, "last": last, "each": each, "runs": lines}


def _binned(values: np.ndarray, width: int, kind: Callable[[np.ndarray], Any]) -> list[float | None]:
    return [_finite(kind(values[at : at + width])) for at in range(0, len(values), width)]


def _finite(value: Any) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


# -- text


def _summary(runs: Sequence[Run], groups: Sequence[Group], tasks: dict[str, list[Group]]) -> str:
    unfinished = sum(not run.finished for run in runs)
    total = sum(run.episodes for run in runs)
    words = [f"{_many(len(runs), 'run')} in {_many(len(groups), 'group')}, {_many(total, 'episode')} in total."]
    repeated = len(runs) - sum(len(group.counted) for group in groups)
    if repeated:
        same = "One of them repeats" if repeated == 1 else f"{repeated} of them repeat"
        words.append(f"{same} a seed with the same settings: only the longest run of each seed counts.")
    words.append("All are finished." if not unfinished else f"{unfinished} of them not finished: shown up to now.")
    said = [text(" ".join(words))]
    for group in groups[:NAMED]:
        where = f" on {group.first.task}" if len(tasks) > 1 else ""
        said.append(f"<b>{text(group.label)}</b>{text(where)}: {text(_outcome(group))}.")
    if len(groups) > NAMED:
        said.append("The table below has all groups.")
    return " ".join(said)


def _outcome(group: Group) -> str:
    """Summarise the results of a group in a sentence."""
    tried = [run.deployed for run in group.counted if run.deployed is not None]
    deployed = f"; deployed {np.mean(tried):.4g} in the last evaluation" if tried else ""
    telling = [run for run in group.counted if run.tells_regret]
    if telling:
        learned = [run for run in telling if run.learned is not None]
        without = [run.episodes for run in telling if run.learned is None]
        if not learned:
            return f"not learned in {_from_to(without, 'episode')} by any of {_many(len(telling), 'seed')}{deployed}"
        middle = _median([run.learned for run in telling])
        median = f", median {_plain(middle)} episodes" if math.isfinite(middle) else ""
        rest = f", not in {_from_to(without, 'episode')} by the rest" if without else ""
        return f"learned by {len(learned)} of {_many(len(telling), 'seed')}{median}{rest}{deployed}"
    ended = [run for run in group.counted if run.episodes]
    if not ended:
        return f"no episode has finished yet{deployed}"
    last = _from_to([min(run.episodes, LAST) for run in ended], "episode")
    return f"mean return {np.mean([run.mean_return() for run in ended]):.4g} over the last {last}{deployed}"


def _times(groups: Sequence[Group], several: bool) -> str:
    header = ["group", "learned", "median episodes to learn", "by seed"]
    header += ["median episodes to solve", "by seed", "mean return at the end"]
    tried = any(run.deployed is not None for group in groups for run in group.counted)
    header += ["deployed, last evaluation"] if tried else []
    rows = []
    for group in groups:
        learn = [(run, run.learned) for run in group.counted if run.tells_regret]
        solve = [(run, run.solved) for run in group.counted if run.tells_solved]
        count = f"{sum(when is not None for _, when in learn)} of {len(learn)}" if learn else ABSENT
        row = [_name(group, several), count, _middle(learn, "learned"), _by_seed(learn)]
        row += [_middle(solve, "solved"), _by_seed(solve), _end(group.counted)]
        row += [_deployed(group.counted)] if tried else []
        rows.append(row)
    return table(header, rows)


def _end(runs: Sequence[Run]) -> str:
    ended = [run for run in runs if run.episodes]
    if not ended:
        return "no episode yet"
    last = _from_to([min(run.episodes, LAST) for run in ended], "episode")
    mean = np.mean([run.mean_return() for run in ended])
    return f'{mean:.4g} <small class="soft">last {last}</small>'


def _deployed(runs: Sequence[Run]) -> str:
    found = [run.deployed for run in runs if run.deployed is not None]
    return f"<b>{np.mean(found):.4g}</b>" if found else f'<span class="soft">{ABSENT}</span>'


def _from_to(counts: Sequence[int], noun: str) -> str:
    """Format a range of counts: "5 episodes" or "5 to 10 episodes"."""
    low, high = min(counts), max(counts)
    return _many(high, noun) if low == high else f"{low:,} to {_many(high, noun)}"


def _median(times: Iterable[int | None]) -> float:
    """Compute the median; infinite if half or more are None."""
    return float(np.median([math.inf if when is None else when for when in times]))


def _middle(times: Sequence[tuple[Run, int | None]], done: str) -> str:
    if not times:
        return f'<span class="soft">{ABSENT}</span>'
    middle = _median([when for _, when in times])
    if math.isfinite(middle):
        return f"<b>{_plain(middle)}</b>"
    return f"not {done}" if all(run.finished for run, _ in times) else f"not {done} yet"


def _by_seed(times: Sequence[tuple[Run, int | None]]) -> str:
    def said(run: Run, when: int | None) -> str:
        if when is not None:
            return f"{when:,}"
        return f"not in {run.episodes:,}" if run.finished else f"not yet in {run.episodes:,}"

    each = (
        f'<span class="seed"><small>{text(run.config["seed"])}:</small> {said(run, when)}</span>' for run, when in times
    )
    return " ".join(each)


def _settings(groups: Sequence[Group], several: bool) -> str:
    """Create the tables of hyperparameters: those that differ, then all."""
    names = list(dict.fromkeys(name for group in groups for name in group.first.config["settings"]))

    def row(name: str) -> list[str]:
        return [word(group.first.config["settings"].get(name, "–")) for group in groups]

    def of(chosen: Sequence[str]) -> str:
        heads = [_head(group, several) for group in groups]
        return table(["setting", *heads], [[f"<code>{text(name)}</code>", *map(text, row(name))] for name in chosen])

    presets = table(
        ["group", "preset", "changed settings"],
        [[text(_head(g, several)), text(g.first.config["preset"]), _changed(g)] for g in groups],
    )
    differing = [name for name in names if len(set(row(name))) > 1]
    words = of(differing) if differing else "<p>No hyperparameter differs between the runs.</p>"
    everything = f"<details><summary>All {len(names)} hyperparameters</summary>{of(names)}</details>"
    return f"{presets}<h3>Differences</h3>{words}{everything}"


def _changed(group: Group) -> str:
    changes = group.first.changes.items()
    return ", ".join(f"<code>{text(f'{name}={word(value)}')}</code>" for name, value in changes) or "none"


def _runs(groups: Sequence[Group]) -> str:
    """Create the list of runs with their folders, progress and commands; collapsed if there are many."""
    shown = " open" if sum(len(group.runs) for group in groups) <= UNFOLDED else ""
    parts = []
    for group in groups:
        title = f"<summary>{_name(group, with_task=True)}, {_many(len(group.runs), 'run')}</summary>"
        counted = {run.name for run in group.counted}
        each = "".join(_run(run, run.name in counted) for run in group.runs)
        parts.append(f'<details{shown}>{title}<ul class="runs">{each}</ul></details>')
    return "".join(parts)


def _run(run: Run, counted: bool) -> str:
    again, note = command(run)
    facts = [f"seed {run.config['seed']}", _many(run.episodes, "episode")]
    if run.steps is not None and run.episodes:
        facts.append(f"{run.steps[-1]:,.0f} steps")
    facts += [] if counted else ["repeats a seed, not counted above"]
    facts.append(f"priorax {run.config.get('version', 'of unknown version')}")
    state = "" if run.finished else f' <span class="open">not finished{_asked(run)}</span>'
    shown = f'<pre><code class="again">{text(again)}</code></pre>' if again else ""
    noted = f'<p class="soft">{text(note)}</p>' if note else ""
    return f"<li><b>{text(run.name)}</b>{state}<br><small>{text(', '.join(facts))}</small>{shown}{noted}</li>"


def _asked(run: Run) -> str:
    """Format the requested length of a run."""
    for name in ("episodes", "steps"):
        if isinstance(run.config.get(name), int):
            return text(f": {run.config[name]:,} {name} requested")
    return ""


def _versions(runs: Sequence[Run]) -> str:
    counts: dict[str, int] = {}
    for run in runs:
        version = str(run.config.get("version", "unknown"))
        counts[version] = counts.get(version, 0) + 1
    each = [f"priorax {version} ({_many(count, 'run')})" for version, count in counts.items()]
    return text(f"Run by {_listed(each)}; this page was written by priorax {__version__}.")


# -- HTML


def _name(group: Group, with_task: bool = False) -> str:
    missing = sum(not run.finished for run in group.runs)
    mark = f' <span class="open">{missing} not finished</span>' if missing else ""
    return text(_head(group, with_task)) + mark


def _head(group: Group, with_task: bool) -> str:
    return f"{group.label} ({group.first.task})" if with_task else group.label


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _plain(middle: float) -> str:
    return f"{middle:,.1f}".removesuffix(".0")


def _listed(words: Iterable[str], most: int = 4) -> str:
    """Join words: "a, b and c"."""
    each = list(words)
    if len(each) > most:
        each = [*each[: most - 1], f"{len(each) - most + 1} others"]
    return " and ".join(filter(None, [", ".join(each[:-1]), each[-1]]))
