"""Learning times: figures and tables of rows with `name`, `size`, `seed`, `most_episodes` and `episodes_to_learn`.

`episodes_to_learn` is empty if a run did not learn.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from priorax.report.rows import Row

Look = tuple[str, str, str]
"""Label, colour and marker of a curve."""


def seeds_of(rows: Iterable[Any], **values: Any) -> list[float]:
    """Return the learning times of the selected runs.

    Args:
        rows: Rows, one per run.
        **values: Columns and the values to select by.

    Returns:
        Episodes to learn; infinite if the run did not learn.
    """
    return [
        float(row.get("episodes_to_learn", "inf"))
        for row in rows
        if all(row.get(name) == value for name, value in values.items())
    ]


def times_to_learn(axis: Axes, rows: Sequence[Row], looks: Mapping[str, Look], beside: bool = False) -> None:
    """Plot the learning time against size: the median over seeds as a line and every seed as a marker.

    Runs that did not learn are hollow markers at the top. The dashed line is 2^N, the lower bound of dithering.

    Args:
        axis: The axes to draw on.
        rows: Rows, one per run.
        looks: Label, colour and marker by name.
        beside: Whether the legend is outside the axes.
    """
    top = max(row["most_episodes"] for row in rows)
    for place, (name, (label, color, marker)) in enumerate(looks.items()):
        mine = [row for row in rows if row["name"] == name]
        sizes = sorted({row["size"] for row in mine})
        medians = [np.median(seeds_of(mine, size=size)) for size in sizes]
        axis.plot(sizes, [m if np.isfinite(m) else np.nan for m in medians], color=color, lw=1.5)
        for row in mine:
            learned = row.get("episodes_to_learn")
            x = row["size"] if learned else row["size"] + 0.15 * (place - len(looks) / 2)
            face = color if learned else "none"
            axis.plot(x, learned or top * 1.3, marker, color=color, mfc=face, ms=5, alpha=0.8)
        axis.plot([], [], marker, color=color, ls="-", label=label)
    n = np.arange(min(row["size"] for row in rows) - 1, np.log2(top) + 1)
    axis.plot(n, 2**n, "k--", lw=1, label="2^N: lower bound of dithering")
    axis.axhline(top, color="k", lw=0.5, ls=":")
    widest = max(row["size"] for row in rows)
    axis.annotate(f"hollow: not learned in {top:,} episodes", (widest, top * 1.8), ha="right", va="center", size=8)
    axis.set(yscale="log", xlabel="DeepSea size N", ylabel="episodes to learn")
    axis.set_ylim(None, top * 2.4)
    if beside:
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    else:
        axis.legend(loc="lower right", fontsize=8)


def median_table(rows: Sequence[Row], labels: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by name and size.

    Args:
        rows: Rows, one per run.
        labels: Label by name.

    Returns:
        The table: a header, then rows.
    """
    sizes = sorted({row["size"] for row in rows})
    table = [("method", *(f"N={size}" for size in sizes))]
    for name, label in labels.items():
        cells = []
        for size in sizes:
            found = seeds_of(rows, name=name, size=size)
            middle = float(np.median(found)) if found else float("nan")
            cells.append(f"{middle:.0f}" if np.isfinite(middle) else ("not learned" if found else ""))
        table.append((label, *cells))
    return table
