"""Table 1: important issues in posterior approximations, each cell measured and compared with the paper's mark.

Each number is the median over seeds (data, initialisation and noise), with its 95% bootstrap interval; what is measured
in each column is described in `table1_measurements`. THRESHOLDS were committed before the first run of their columns;
appendix C.6 itself calls its table "a rough summary". A mark is *firm* if the ends of the interval, and thresholds a
quarter lower or higher, give the same mark.

Two rules override a threshold, since there is nothing to measure:

- *data concentration*: a spread at n = 100 below a quarter of that of exact Bayes is a cross.
- *multi step*: if learning from the other states reduces the spread at the last state below a tenth of its initial
  value, the mark is a cross.

*prior effect* has a second form, shown beside the first: if the agent, with the settings that the equal search chose
for it, learns DeepSea 10 within 1,000 episodes (dithering needs 2^10) on fewer than half of the seeds, the mark is one
worse. The agent of exact Bayes is RLSVI.

What changed after looking at results: prior effect had its data on [-1, 0] and measured [0.5, 1.5], where half the
units of a network without biases had never been active, so that every network looked uncertain; multi step had PSRL for
exact Bayes, whose last state may lead anywhere, so that its value grows with the remaining steps. The second form of
prior effect came after its first measurements, and brought three marks to agreement with the paper: so both are shown.
The rule on a collapsed last state came after the spread of C51 had been found to collapse there.
"""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.experiments.deep_sea.search import chosen
from priorax.experiments.sweep import FIRST_SEED, task
from priorax.experiments.table1.measurements import AGENT, BY_SEED, cheap_compute, works_in_noise
from priorax.report.intervals import Estimate, mean_interval, median_interval
from priorax.report.plots import panels
from priorax.report.rows import Row, where

ROWS = {
    "dropout": "Dropout",
    "noisy": "NoisyNet",
    "bbb": "BBB / VI",
    "count": "Density count",
    "c51": "'Distributional' RL",
    "ensemble": "Ensemble",
    "bs": "Bootstrap",
    "bsp": "Bootstrap + prior",
    "exact": "Exact Bayes",
}
COLUMNS = ("data concentration", "learned metric", "multi step", "works in noise", "prior effect", "cheap compute")
TICK, CIRCLE, CROSS = MARKS = ("tick", "circle", "cross")
PAPER = {
    "dropout": (CROSS, TICK, CROSS, CIRCLE, CROSS, TICK),
    "noisy": (CIRCLE, TICK, CROSS, TICK, CROSS, TICK),
    "bbb": (CIRCLE, TICK, CROSS, TICK, CIRCLE, TICK),
    "count": (TICK, CROSS, TICK, CROSS, CIRCLE, TICK),
    "c51": (CROSS, CIRCLE, TICK, CIRCLE, CROSS, TICK),
    "ensemble": (CROSS, TICK, TICK, CROSS, CROSS, CROSS),
    "bs": (TICK, TICK, TICK, TICK, CROSS, CROSS),
    "bsp": (TICK, TICK, TICK, TICK, TICK, CROSS),
    "exact": (TICK, TICK, TICK, TICK, TICK, CROSS),
}


class Threshold(NamedTuple):
    """Thresholds of one column: a tick at or beyond `tick`, a cross beyond `cross`, else a circle."""

    tick: float
    """Threshold of a tick."""
    cross: float
    """Threshold of a cross."""
    low_is_good: bool
    """Whether lower numbers are better."""

    def mark(self, number: float) -> str:
        """Return the mark of a measurement.

        Args:
            number: The measured number.

        Returns:
            The mark.
        """
        sign = 1 if self.low_is_good else -1
        if sign * number <= sign * self.tick:
            return TICK
        return CROSS if sign * number > sign * self.cross else CIRCLE

    def moved(self) -> tuple["Threshold", "Threshold"]:
        """Move both thresholds by a quarter.

        Returns:
            The thresholds divided and multiplied by 1.25.
        """
        return self._replace(tick=self.tick / 1.25, cross=self.cross / 1.25), self._replace(
            tick=self.tick * 1.25, cross=self.cross * 1.25
        )


THRESHOLDS = {
    "data concentration": Threshold(tick=0.35, cross=0.75, low_is_good=True),
    "learned metric": Threshold(tick=0.7, cross=0.4, low_is_good=False),
    "prior effect": Threshold(tick=0.1, cross=0.01, low_is_good=False),
    "cheap compute": Threshold(tick=3.0, cross=10.0, low_is_good=True),
    "multi step": Threshold(tick=0.7, cross=0.3, low_is_good=False),
    "works in noise": Threshold(tick=2.0, cross=4.0, low_is_good=True),
}
LEAST_SPREAD = 0.25
"""Fraction of exact Bayes' spread at n = 100 below which data concentration is a cross."""
LEAST_LEFT = 0.1
"""Fraction of its first spread below which the last state of the chain has collapsed."""
STEPS = {"quick": 3000, "full": 10000}
SEEDS = {"quick": 2, "full": 20}
BANDITS = {"quick": 20, "full": 100}
"""Seeds of *works in noise*."""
SIZE, MOST_EPISODES = 10, 1000
"""Of DeepSea."""
DEEP_SEA = {name: {**AGENT, "exact": "rlsvi"}.get(name, name) for name in ROWS}
"""The agent of each row that is run on DeepSea."""
SEARCHED = tuple(agent for agent in DEEP_SEA.values() if agent != "bsp")


def ladders(budget: str) -> list[Any]:
    """List every measurement separately, and the runs on DeepSea.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds, steps = range(SEEDS[budget]), STEPS[budget]
    found: list[Task] = []
    for name in ROWS:
        for column_name, measure in BY_SEED.items():
            found += [Task(column_name, {"method": name, "seed": seed, "steps": steps}, measure) for seed in seeds]
        found.append(Task("works in noise", {"method": name, "seeds": BANDITS[budget], "steps": 1000}, works_in_noise))
        found.append(Task("cheap compute", {"method": name}, cheap_compute))
        agent = DEEP_SEA[name]
        runs = (FIRST_SEED + i for i in seeds)
        found += [task(f"deep sea {name}", agent, SIZE, seed, MOST_EPISODES, **chosen(agent)) for seed in runs]
    return [[[run]] for run in found]


class Cell(NamedTuple):
    """A cell of the table."""

    number: Estimate
    """The median with its interval."""
    mark: str
    """Our mark."""
    firm: bool
    """Whether the ends of the interval, and moved thresholds, give the same mark."""
    demoted: str | None = None
    """The mark by the second form of *prior effect*, if it is another."""


def cell(rows: list[Row], name: str, column_name: str) -> Cell:
    """Compute a cell of the table from its rows.

    Args:
        rows: Rows of the experiment.
        name: Name of the method.
        column_name: Name of the column.

    Returns:
        The cell.
    """
    mine = [row for row in where(rows, name=column_name) if row.get("method") == name]
    number = median_interval([row["number"] for row in mine])
    if column_name == "works in noise":
        exact = [row["number"] for row in where(rows, name=column_name) if row.get("method") == "exact"]
        ratios = [row["number"] for row in mine]
        mean = float(np.mean(exact))
        number = Estimate(*(part / mean for part in mean_interval(ratios)))
    threshold = THRESHOLDS[column_name]
    worst = _collapsed(mine, column_name)
    mark = CROSS if worst else threshold.mark(number.value)
    others = {threshold.mark(part) for part in number} | {t.mark(number.value) for t in threshold.moved()}
    demoted = None
    if column_name == "prior effect":
        seen = where(rows, name=f"deep sea {name}")
        learned = sum("episodes_to_learn" in row for row in seen)
        if 2 * learned < len(seen):
            demoted = MARKS[min(MARKS.index(mark) + 1, 2)]
    return Cell(number, mark, worst or others == {mark}, demoted if demoted != mark else None)


def _collapsed(rows: list[Row], column_name: str) -> bool:
    """Whether there is no spread to measure."""
    limits = {"data concentration": ("spread_of_exact", LEAST_SPREAD), "multi step": ("left_of_first", LEAST_LEFT)}
    if column_name not in limits:
        return False
    name, least = limits[column_name]
    return float(np.median([row[name] for row in rows])) < least


def short(number: float) -> str:
    """Format a number with two digits.

    Args:
        number: The number.

    Returns:
        The text.
    """
    if abs(number) < 1e-3:
        return "0"
    return f"{number:.0f}" if abs(number) >= 10 else f"{number:.2g}"


SIGNS = {TICK: ("✓", "#2a8f3c"), CIRCLE: ("●", "#e0a100"), CROSS: ("✗", "#c0332b")}


def figure(rows: list[Row]) -> Figure:
    """Draw the table: our marks large with their numbers, the paper's marks small behind them.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=11.5, height=5.0)
    axis = axes[0, 0]
    axis.set(xlim=(0, len(COLUMNS)), ylim=(len(ROWS), 0))
    axis.set_xticks(np.arange(len(COLUMNS)) + 0.5, COLUMNS)
    axis.set_yticks(np.arange(len(ROWS)) + 0.5, list(ROWS.values()))
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    for i, name in enumerate(ROWS):
        axis.axhline(i, color="#dddddd", lw=0.8)
        for j, column_name in enumerate(COLUMNS):
            found = cell(rows, name, column_name)
            sign, colour = SIGNS[found.mark]
            axis.text(j + 0.2, i + 0.5, sign, color=colour, ha="center", va="center", fontsize=14)
            if found.demoted:
                sign, colour = SIGNS[found.demoted]
                axis.text(j + 0.2, i + 0.8, f"→ {sign}", color=colour, ha="center", va="center", fontsize=8)
            tilde = "" if found.firm else "~"
            axis.text(j + 0.32, i + 0.38, tilde + short(found.number.value), va="center", fontsize=9, color="#444444")
            ends = f"[{short(found.number.low)}, {short(found.number.high)}]"
            axis.text(j + 0.32, i + 0.7, ends, va="center", fontsize=6.5, color="#888888")
            sign, colour = SIGNS[PAPER[name][j]]
            axis.text(j + 0.85, i + 0.5, sign, color=colour, ha="center", va="center", fontsize=9, alpha=0.7)
    words = (
        "large: measured here, median and 95% interval; small, right: the paper's mark; ~: the mark depends on the "
        "interval or the threshold; →: one worse, since the agent does not learn DeepSea 10"
    )
    drawing.supxlabel(words, fontsize=8)
    return drawing


def agreement(rows: list[Row], demoted: bool = False) -> int:
    """Count the cells whose mark is the paper's.

    Args:
        rows: Rows of the experiment.
        demoted: Whether to use the second form of *prior effect*.

    Returns:
        The number of cells, of 54.
    """
    pairs = [(cell(rows, name, c), paper) for name in ROWS for c, paper in zip(COLUMNS, PAPER[name], strict=True)]
    return sum(((demoted and found.demoted) or found.mark) == paper for found, paper in pairs)


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate where our marks agree with the paper's.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("ours | the paper's", *COLUMNS)]
    for name, title in ROWS.items():
        cells = []
        for column_name, paper in zip(COLUMNS, PAPER[name], strict=True):
            found = cell(rows, name, column_name)
            ours = SIGNS[found.mark][0] + (f"→{SIGNS[found.demoted][0]}" if found.demoted else "")
            tilde = "" if found.firm else "~"
            cells.append(f"{ours} {tilde}{short(found.number.value)} | {SIGNS[paper][0]}")
        table.append((title, *cells))
    total = len(ROWS) * len(COLUMNS)
    counts = f"{agreement(rows)} of {total}", f"{agreement(rows, demoted=True)} of {total} with the second form"
    return [*table, ("marks as in the paper", *counts, *[""] * (len(COLUMNS) - 2))]
