"""Figure 8: learning time of BSP on DeepSea against N on logarithmic axes, with the fitted slope, N³ and other
references.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from priorax.experiments.sweep import task
from priorax.report.learning_times import seeds_of
from priorax.report.plots import MEAN, panels
from priorax.report.rows import Row

SIZES = {"quick": {8: 2, 10: 2, 14: 2, 20: 2, 28: 2}, "paper": {10: 10, 20: 10, 30: 10, 50: 10, 100: 3}}
"""Number of seeds for each size."""
FIRST_SEED = 100
"""First seed; no setting was chosen on these seeds."""
MOST_EPISODES = {"quick": 2000, "paper": 20_000}


def ladders(preset: str) -> list[Any]:
    """List the sizes, one after the other.

    Args:
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [
            [task("bsp", "bsp", size, FIRST_SEED + i, MOST_EPISODES[preset]) for i in range(seeds)]
            for size, seeds in SIZES[preset].items()
        ]
    ]


def slope(rows: list[Row]) -> tuple[float, float, float]:
    """Fit the exponent of N by least squares on the logarithms of all seeds that learned.

    Args:
        rows: Rows of the experiment.

    Returns:
        The exponent and its 95% interval.
    """
    learned = [row for row in rows if "episodes_to_learn" in row]
    x, y = (np.log([row[name] for row in learned]) for name in ("size", "episodes_to_learn"))
    fit = stats.linregress(x, y)
    half = stats.t.ppf(0.975, len(learned) - 2) * fit.stderr
    return float(fit.slope), float(fit.slope - half), float(fit.slope + half)


def figure(rows: list[Row]) -> Figure:
    """Plot seeds as dots, medians as a line, references dashed.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=6.0, height=4.4)
    axis = axes[0, 0]
    learned = [row for row in rows if "episodes_to_learn" in row]
    axis.plot([row["size"] for row in learned], [row["episodes_to_learn"] for row in learned], "o", color=MEAN, ms=4)
    sizes = np.array(sorted({row["size"] for row in learned}))
    exponent, low, high = slope(rows)
    medians = [np.median(seeds_of(rows, size=int(size))) for size in sizes]
    axis.plot(sizes, medians, color=MEAN, label=f"BSP, median; slope {exponent:.2f} [{low:.2f}, {high:.2f}]")
    n = np.linspace(sizes.min(), sizes.max(), 50)
    axis.plot(n, n**3, "k--", lw=1, label="N³: the paper's line")
    axis.plot(n, 0.36 * n**2, color="#2e8b57", ls="--", lw=1, label="0.36 N²: tabular RLSVI (a public run)")
    axis.plot(n, 2.65 * n, color="#c98a1b", ls=":", lw=1.2, label="2.65 N: R-max that knows the layers")
    few = n[n <= 14]
    axis.plot(few, 2**few, color="#d03a2b", ls=":", lw=1.2, label="2^N: dithering")
    axis.set(xscale="log", yscale="log", xlabel="DeepSea size N", ylabel="episodes to learn")
    axis.set_xticks(list(sizes), [str(size) for size in sizes], minor=False)
    axis.minorticks_off()
    axis.legend(fontsize=8)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate median and range by size, and the slope.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("N", "median", "least", "most", "seeds that learned")]
    for size in sorted({row["size"] for row in rows}):
        found = seeds_of(rows, size=size)
        learned = [value for value in found if np.isfinite(value)]
        shown = (f"{np.median(found):.0f}", f"{min(found):.0f}", f"{max(found):.0f}")
        table.append((str(size), *shown, f"{len(learned)} of {len(found)}"))
    exponent, low, high = slope(rows)
    return [*table, ("slope", f"{exponent:.2f}", f"{low:.2f}", f"{high:.2f}", "(95% interval)")]
