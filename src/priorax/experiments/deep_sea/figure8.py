"""Figure 8: the runs of BSP in figure 3 on logarithmic axes, against episodes and against gradient steps, with the
fitted exponent of N, and a line of slope three, that of the paper.

An episode of DeepSea has N steps, so that learning at each step makes N updates in an episode, and the exponent in
updates is one larger. The paper's own settings make one update in an episode.
"""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from priorax.experiments.deep_sea import figure3
from priorax.report.intervals import Estimate, median_interval
from priorax.report.learning_times import READING, seeds_of
from priorax.report.looks import LOOKS
from priorax.report.plots import panels
from priorax.report.rows import Row, where

SAME_RUNS = "figure3"
SHOWN = ("bsp", "bsp paper")
FITTED = 10
"""Smallest size in the fits: at N=5 many runs learn at the earliest episode that counts."""
LARGE = 30
"""Sizes from here on have a fit of their own: the exponent grows with N."""


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for BSP with each preset: those of figure 3.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return figure3.ladders(budget, SHOWN)


def slope(rows: list[Row], least: int = 0, name: str = "bsp", unit: str = "episodes_to_learn") -> Estimate:
    """Fit the exponent of N by least squares on the logarithms of all runs that learned.

    Args:
        rows: Rows of the experiment.
        least: Smallest size to include.
        name: Name of the method.
        unit: Column of the learning time.

    Returns:
        The exponent and its 95% interval.
    """
    learned = [row for row in where(rows, name=name) if "episodes_to_learn" in row and row["size"] >= least]
    x, y = (np.log([row[column] for row in learned]) for column in ("size", unit))
    fit = stats.linregress(x, y)
    half = stats.t.ppf(0.975, len(learned) - 2) * fit.stderr
    return Estimate(float(fit.slope), float(fit.slope - half), float(fit.slope + half))


def figure(rows: list[Row]) -> Figure:
    """Plot medians with intervals, runs as dots, and references; left against episodes, right against updates.

    Runs that did not learn count in the medians, and are told in the legend.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=5.4, height=4.4, share=False)
    _panel(axes[0, 0], rows, "episodes_to_learn", "episodes to learn")
    _panel(axes[0, 1], rows, "updates", "gradient steps to learn")
    sizes = np.array(sorted({row["size"] for row in where(rows, name="bsp")}))
    n = np.linspace(max(sizes.min(), 5), sizes.max(), 50)
    first = min((size for size in sizes if size >= FITTED), default=sizes[0])
    start = float(np.median(seeds_of(where(rows, name="bsp"), size=first)))
    through = f"slope 3, as in the paper, through the median at N={first}"
    axes[0, 0].plot(n, start * (n / first) ** 3, "k-", lw=0.8, label=through)
    few = n[n <= 14]
    axes[0, 0].plot(few, 2**few, "k--", lw=0.8, label="2^N: dithering")
    for axis in axes[0]:
        axis.legend(fontsize=8, frameon=False, title=READING, title_fontsize=7)
    return drawing


def _panel(axis: Axes, rows: list[Row], unit: str, words: str) -> None:
    for name in SHOWN:
        mine, look = where(rows, name=name), LOOKS[name]
        learned = [row for row in mine if "episodes_to_learn" in row]
        if len({row["size"] for row in learned if row["size"] >= FITTED}) < 2:
            continue
        fit = slope(rows, FITTED, name, unit)
        axis.plot(
            [row["size"] for row in learned], [row[unit] for row in learned], ".", color=look.color, ms=4, alpha=0.5
        )
        middle = {}
        for size in sorted({row["size"] for row in mine}):
            found = [float(row[unit]) if "episodes_to_learn" in row else np.inf for row in where(mine, size=size)]
            estimate = median_interval(found)
            if np.isfinite(estimate.value):
                middle[size] = estimate.value
                most = max(time for time in found if np.isfinite(time))
                axis.plot([size] * 2, [estimate.low, min(estimate.high, most)], color=look.color, lw=1.2)
        failed = len(mine) - len(learned)
        missing = f"\n{failed} of {len(mine)} runs did not learn" if failed else ""
        axis.plot(
            list(middle),
            list(middle.values()),
            look.line,
            marker=look.marker,
            ms=4,
            color=look.color,
            label=f"{look.label}: exponent {fit.words('.2f')}{missing}",
        )
    ticks = [n for n in (5, 10, 20, 50, 100) if n <= max(row["size"] for row in rows)]
    axis.set(xscale="log", yscale="log", xlabel="DeepSea size N", ylabel=words)
    axis.set_xticks(ticks, [str(n) for n in ticks], minor=False)
    axis.minorticks_off()


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate median, interval and range of BSP by size, and the exponents.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("method", "N", "median [95% interval]", "least", "most", "runs that learned")]
    for name in SHOWN:
        mine = where(rows, name=name)
        for size in sorted({row["size"] for row in mine}):
            found = seeds_of(mine, size=size)
            learned = sum(np.isfinite(found))
            shown = (median_interval(found).words(), f"{min(found):.0f}", f"{max(found):.0f}")
            table.append((name, str(size), *shown, f"{learned} of {len(found)}"))
    return [*table, *_exponents(rows)]


def _exponents(rows: list[Row]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    wanted: list[tuple[str, int, str]] = [
        ("bsp", FITTED, "episodes_to_learn"),
        ("bsp", LARGE, "episodes_to_learn"),
        ("bsp", FITTED, "updates"),
        ("bsp paper", FITTED, "episodes_to_learn"),
    ]
    for name, least, unit in wanted:
        sizes: set[Any] = {
            row["size"] for row in where(rows, name=name) if "episodes_to_learn" in row and row["size"] >= least
        }
        if len(sizes) >= 2:
            which = f"exponent of {unit.split('_')[0]}, N >= {least}"
            found.append((name, which, slope(rows, least, name, unit).words(".2f"), "", "", ""))
    return found
