"""The sources of measured numbers in the texts: small functions that compute a number or a table from committed files.

Most read the rows of an experiment, `results/FILE.csv`. Keyword arguments that are not named below select rows by the
values of columns, as in `method=bsp` or, for a range of numbers, `x=-1..1`; underscores stand for spaces there.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from priorax.experiments import experiment, rows_of
from priorax.experiments.bsuite.rules import learned_in_time, published_scores, swingup_score
from priorax.report.intervals import median_interval
from priorax.report.learning_times import median_table, seeds_of
from priorax.report.rows import Row, read_rows
from tools.throughput import costs_by_rate, measured_beside_model

ROOT = Path(__file__).parent.parent
SOURCES: dict[str, Callable[..., str]] = {}
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
STATISTICS: dict[str, Callable[[list[float]], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "min": np.min,
    "max": np.max,
    "last": lambda values: values[-1],
    "count": len,
}
OPTIONS = ("how", "each", "tail", "form")
"""Arguments of `statistic` that texts may give."""


def source(name: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a source.

    Args:
        name: Its name in texts.

    Returns:
        A decorator.
    """

    def register(function: Callable[..., str]) -> Callable[..., str]:
        SOURCES[name] = function
        return function

    return register


@functools.cache
def rows(name: str, budget: str = "full") -> list[Row]:
    """Read the rows of an experiment that this version would make, once.

    Args:
        name: Name of the experiment.
        budget: Size of the experiment.

    Returns:
        The rows.
    """
    return rows_of(name, budget, ROOT / "results")


@functools.cache
def file_rows(file: str) -> list[Row]:
    """Read all rows of a file, once; those of earlier versions have other columns.

    Args:
        file: Name of the file in results/, without its suffix.

    Returns:
        The rows.
    """
    return list[Row](read_rows(ROOT / "results" / f"{file}.csv"))


def select(found: Iterable[Row], **values: str) -> list[Row]:
    """Select rows by the values of columns.

    Args:
        found: The rows.
        **values: Values as text, by column; underscores stand for spaces, `low..high` for a range of numbers.

    Returns:
        The rows that have all of these values.

    Raises:
        ValueError: If there are none, which is most often an error of spelling.
    """

    def same(value: Any, text: str) -> bool:
        if isinstance(value, int | float):
            low, _, high = text.partition("..")
            return bool(NUMBER.fullmatch(low)) and float(low) <= value <= float(high or low)
        return str(value).replace(" ", "_") == text.replace(" ", "_")

    mine = [row for row in found if all(same(row.get(name, ""), text) for name, text in values.items())]
    if not mine:
        raise ValueError(f"no rows have {values}; look at the columns of the file")
    return mine


def table(lines: list[tuple[str, ...]]) -> str:
    """Format a table as Markdown.

    Args:
        lines: A header, then rows.

    Returns:
        The Markdown text.
    """
    header, *body = [tuple(cell.replace("|", "/") for cell in line) for line in lines]
    parts = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(line)} |" for line in body)]
    return "\n".join(parts)


@source("summary")
def summary(name: str, budget: str = "full") -> str:
    """The table that `priorax reproduce` prints."""
    return table(experiment(name).summary(rows(name, budget)))


@source("times")
def times(file: str, label: str = "name", **values: str) -> str:
    """A table of the median learning times in a file, by a column and size, with intervals and runs that learned."""
    mine = [{**row, "name": str(row.get(label, ""))} for row in select(file_rows(file), **values)]
    return table(median_table(mine, {name: name for name in dict.fromkeys(row["name"] for row in mine)}))


@source("tabular")
def tabular(kind: str, budget: str = "full") -> str:
    """The table of `priorax benchmark tabular`: of regressions (`number`) or classifications (`class`)."""
    return table(experiment("tabular").summary(rows("tabular", budget), kind))


@source("testbed")
def testbed(method: str, tau: str = "100", sampling: str = "dyadic", name: str = "shown", budget: str = "quick") -> str:
    """A KL divergence of the Neural Testbed over that of a plain network."""
    found = rows("testbed", budget)
    return f"{experiment('testbed').normalised(found, method, int(tau), sampling, name.replace('_', ' ')).value:.2f}"


@source("time")
def time(name: str, method: str, N: str, budget: str = "full") -> str:
    """The median learning time on DeepSea, with its interval."""
    return median_interval(seeds_of(select(rows(name, budget), name=method, size=N))).words()


@source("median")
def median(method: str, N: str, name: str = "", budget: str = "full", file: str = "", **values: str) -> str:
    """The median learning time on DeepSea, of an experiment or of all rows of a file."""
    found = file_rows(file) if file else rows(name, budget)
    return f"{median_interval(seeds_of(select(found, name=method, size=N, **values))).value:,.0f}"


@source("learned")
def learned(method: str, N: str, name: str = "", budget: str = "full", file: str = "", **values: str) -> str:
    """How many runs learned DeepSea, of an experiment or of all rows of a file."""
    rows_ = file_rows(file) if file else rows(name, budget)
    found = seeds_of(select(rows_, name=method, size=N, **values))
    return f"{int(np.sum(np.isfinite(found)))} of {len(found)}"


@source("ladders")
def ladders(files: str) -> str:
    """A table of the largest DeepSea that each agent learned: by all seeds with one setting, and by any run."""
    lines: list[tuple[str, ...]] = [
        ("agent", "settings", "seeds", "episodes", "largest N tried", "by all seeds", "by any seed", "rows")
    ]
    for file in files.split(","):
        found = file_rows(file)
        for agent in dict.fromkeys(row["agent"] for row in found):
            mine = [row for row in found if row["agent"] == agent]
            settings, seeds = (len({row[name] for row in mine}) for name in ("settings", "seed"))
            learned_by = [
                (row["size"], np.isfinite(seeds_of(mine, size=row["size"], settings=row["settings"]))) for row in mine
            ]
            every = max((size for size, runs in learned_by if runs.all()), default="none")
            some = max((size for size, runs in learned_by if runs.any()), default="none")
            most, top = (max(row[name] for row in mine) for name in ("most_episodes", "size"))
            shown = (settings, seeds, f"{most:,}", top, every, some, f"`{file}.csv`")
            lines.append((f"`{agent}`", *map(str, shown)))
    return table(lines)


@source("exponent")
def exponent(method: str = "bsp", least: str = "0", unit: str = "episodes_to_learn", budget: str = "full") -> str:
    """The exponent of N in the learning time, with its interval."""
    return experiment("figure8").slope(rows("figure8", budget), int(least), method.replace("_", " "), unit).words(".2f")


@source("deep_sea")
def deep_sea(budget: str = "full") -> str:
    """A table of the median learning times of BSP with their intervals, by size."""
    mine = select(rows("figure8", budget), name="bsp")
    sizes = sorted({row["size"] for row in mine})
    estimates = [median_interval(seeds_of(mine, size=size)) for size in sizes]
    lines = [("N", *map(str, sizes)), ("median episodes", *(f"{found.value:,.0f}" for found in estimates))]
    return table([*lines, ("95% interval", *(f"{found.low:,.0f} to {found.high:,.0f}" for found in estimates))])


@source("spread")
def spread(name: str, method: str, where: str, form: str = ".2f", budget: str = "full") -> str:
    """The spread of a method in figure 12, by number of examples, or in figure 13, by place, with its interval."""
    found = rows(name, budget)
    if name == "figure12":
        return experiment(name).spread_at_data(found, method, int(where)).words(form)
    place = dict(zip(("left", "data", "right"), experiment(name).PLACES, strict=True))[where]
    return experiment(name).spread(found, method, place).words(form)


def statistic(
    found: list[Row], column: str, how: str = "mean", each: str = "", tail: str = "", form: str = ",.0f"
) -> str:
    """Format a statistic of a column.

    Args:
        found: The rows; those without the column are left out.
        column: Name of the column.
        how: Name of the statistic, one of `STATISTICS`.
        each: A column by which to group rows; the statistics of all groups are listed.
        tail: Number of rows at the end of each group to use; all if empty.
        form: Format of numbers.

    Returns:
        The text.
    """
    groups: dict[Any, list[float]] = {}
    for row in found:
        if column in row:
            groups.setdefault(row.get(each), []).append(row[column])
    last = int(tail) if tail else 0
    texts = [format(STATISTICS[how](group[-last:]), form) for group in groups.values()]
    return ", ".join(re.sub(r"^-(?=[0.]*$)", "", text) for text in texts)


@source("stat")
def stat(file: str, column: str, **options: str) -> str:
    """A statistic of a column; `each=seed`: one for each seed; `tail=5`: of the last five rows of each group."""
    return statistic(select(file_rows(file), **_filters(options)), column, **_rest(options))


def _filters(options: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name not in OPTIONS}


def _rest(options: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name in OPTIONS}


@source("first")
def first(file: str, column: str, above: str, each: str = "seed", **values: str) -> str:
    """The first episode whose row has more than `above` in a column, for each seed."""
    past = [row for row in select(file_rows(file), **values) if row[column] > float(above)]
    return statistic(past, "episode", "min", each)


@source("ratio")
def ratio(file: str, column: str, vary: str, of: str, to: str, form: str = ".1f", **values: str) -> str:
    """The mean of a column in rows where `vary` is `of`, divided by that where it is `to`."""
    top, bottom = (
        np.mean([row[column] for row in select(file_rows(file), **values, **{vary: which})]) for which in (of, to)
    )
    return format(top / bottom, form)


@source("pivot")
def pivot(file: str, row: str, by: str, column: str, more: str = "", **options: str) -> str:
    """A table of a statistic (see `stat`), one line for each value of `row`, one column for each value of `by`.

    `more` names columns, separated by commas, whose values are shown as well.
    """
    mine = [found for found in select(file_rows(file), **_filters(options)) if column in found]
    lines, heads = (list(dict.fromkeys(found[name] for found in mine)) for name in (row, by))

    def cell(line: Any, head: Any) -> str:
        own = [found for found in mine if found[row] == line and found[by] == head]
        if not own:
            return ""
        return ", ".join(
            [statistic(own, column, **_rest(options)), *(own[-1][name] for name in more.split(",") if name)]
        )

    return table([(row, *map(str, heads)), *((str(line), *(cell(line, head) for head in heads)) for line in lines)])


@source("medians")
def medians(file: str, row: str, by: str, column: str, form: str = ".3g", **values: str) -> str:
    """A table of medians with their 95% intervals, one line for each value of `row`, one column for each of `by`."""
    mine = select(file_rows(file), **values)
    lines, heads = (list(dict.fromkeys(found[name] for found in mine)) for name in (row, by))

    def cell(line: Any, head: Any) -> str:
        found = median_interval([each[column] for each in mine if each[row] == line and each[by] == head])
        return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"

    return table([(row, *map(str, heads)), *((str(line), *(cell(line, head) for head in heads)) for line in lines)])


@source("regrets")
def regrets(file: str = "bandits") -> str:
    """A table of the regret of each belief as a multiple of exact Thompson sampling's, and how it grows."""
    mine = select(file_rows(file), kind="growth")
    bandits = list(dict.fromkeys(row["bandit"] for row in mine))
    found = {(row["method"], row["bandit"]): row for row in mine}

    def cell(method: str, bandit: str) -> str:
        one = found[method, bandit]
        return f"{one['regret'] / found['exact', bandit]['regret']:.1f}, {one['growth']}"

    methods = [name for name in dict.fromkeys(row["method"] for row in mine) if name != "exact"]
    return table([("method", *bandits), *((name, *(cell(name, bandit) for bandit in bandits)) for name in methods)])


@source("correlation")
def correlation(file: str, columns: str, form: str = ".2f", **values: str) -> str:
    """The correlation of two columns."""
    mine = select(file_rows(file), **values)
    first, second = ([row[name] for row in mine] for name in columns.split(","))
    return format(np.corrcoef(first, second)[0, 1], form)


@source("agreement")
def agreement(file: str, columns: str) -> str:
    """How many rows have the same value in two columns."""
    first, second = columns.split(",")
    mine = [row for row in file_rows(file) if first in row and second in row]
    return f"{sum(row[first] == row[second] for row in mine)} of {len(mine)}"


@source("bsuite_score")
def bsuite_score(file: str, name: str) -> str:
    """bsuite's score over the sizes or difficulties that were run."""
    mine = select(file_rows(file), name=name)
    if "best" in mine[0]:
        return f"{np.mean([swingup_score(float(row['mean_return']), float(row['best'])) for row in mine]):.2f}"
    good = [learned_in_time(float(row.get("episodes_to_learn", "inf")), row["size"]) for row in mine]
    return f"{sum(good)} of {len(good)}"


@source("peer")
def peer(task: str) -> str:
    """The published scores of bsuite's `boot_dqn`, with their source."""
    return published_scores(task)


@source("benchmark")
def benchmark(name: str, note: str = "", form: str = ".1f") -> str:
    """A number of benchmarks/results.json, as measured or, by its place (`note=0`), in the note beside it."""
    benchmarks: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    (found,) = [value for key, value in benchmarks.items() if key.replace(" ", "_") == name.replace(" ", "_")]
    if note:
        return re.findall(r"\d[\d,.]*\d|\d", found["note"])[int(note)]
    return format(found["measured"], form)


ACTING = "pixels, acting over bare emulator and networks"
UPDATE = "pixels, update of ten heads over one, per operation"


def unit_costs() -> tuple[float, float]:
    """The actions per second of one actor, and the seconds of an update, each with the machine to itself."""
    return float(benchmark(ACTING, note="0")), float(benchmark(UPDATE, note="0")) / 1000


@source("throughput")
def throughput(ratio: str, actors: str) -> str:
    """A table of the actions per second of actors and of one learner with an update per `ratio` actions."""
    one_actor, update = unit_costs()
    learning = int(ratio) / update
    lines: list[tuple[str, ...]] = [("actors", "acting, per second", "learning, per second", "bottleneck")]
    for count in map(int, actors.split(",")):
        slower = "the actors" if count * one_actor < learning else "the learner"
        lines.append((str(count), f"{count * one_actor:,.0f}", f"{learning:,.0f}", slower))
    return table(lines)


def actor_rows() -> list[Row]:
    """The rows of `python -m benchmarks.actors`, if it was run."""
    path = ROOT / "results" / "actors.csv"
    return list(read_rows(path)) if path.exists() else []


@source("actors")
def actors() -> str:
    """A table of the measured throughput of one machine beside the fitted model and that of the unit costs."""
    found = actor_rows()
    if not found:
        return "There are no rows yet: the command has not been run on idle cores."
    return table(measured_beside_model(found, *unit_costs()))


@source("costs")
def costs() -> str:
    """A table of the machine hours and dollars of a run of figure 6, by the model and by measured rates."""
    return table(costs_by_rate(actor_rows(), *unit_costs()))
