"""Learning times: figures and tables of rows with `name`, `size`, `seed`, `most_episodes` and `episodes_to_learn`.

`episodes_to_learn` is empty if a run did not learn.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from priorax.report.intervals import median_interval
from priorax.report.looks import Look
from priorax.report.plots import panels
from priorax.report.rows import Row

READING = "line: median; bar: 95% interval; dots: runs"
"""How to read the figures, as the title of their legends."""


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


def times_to_learn(axis: Axes, rows: Sequence[Row], looks: Mapping[str, Look]) -> None:
    """Plot the learning time against size: the median with its 95% bootstrap interval, and every run as a small marker.

    Methods are drawn side by side, so that none hides another. Above the dotted line: how many of a size's runs did not
    learn, by method. The dashed line is 2^N, the lower bound of dithering.

    Args:
        axis: The axes to draw on.
        rows: Rows, one per run.
        looks: Looks by name; names without rows are left out.
    """
    looks = {name: look for name, look in looks.items() if any(row["name"] == name for row in rows)}
    sizes = sorted({row["size"] for row in rows})
    most = {name: max(row["most_episodes"] for row in rows if row["name"] == name) for name in looks}
    top = max(most.values())
    gap = min((b - a for a, b in itertools.pairwise(sizes)), default=1)
    width = min(0.6 * gap, 0.12 * (sizes[-1] - sizes[0]) or 0.6)
    failed = False
    for place, (name, look) in enumerate(looks.items()):
        mine = [row for row in rows if row["name"] == name]
        shift = width * ((place + 0.5) / len(looks) - 0.5)
        middle = {}
        for size in sorted({row["size"] for row in mine}):
            found = seeds_of(mine, size=size)
            learned = [time for time in found if np.isfinite(time)]
            axis.plot([size + shift] * len(learned), learned, look.marker, color=look.color, ms=3, alpha=0.35)
            estimate = median_interval(found)
            if np.isfinite(estimate.value):
                middle[size] = estimate.value
                ends = [estimate.low, min(estimate.high, most[name])]
                axis.plot([size + shift] * 2, ends, color=look.color, lw=1.2)
            if len(learned) < len(found):
                failed = True
                height = top * 1.35 * 1.45**place
                words = f"{len(found) - len(learned)}/{len(found)}"
                axis.annotate(words, (size, height), color=look.color, size=7, ha="center", va="center")
        places = [size + shift for size in middle]
        axis.plot(places, list(middle.values()), look.line, marker=look.marker, ms=5, color=look.color)
        shown = look.label if most[name] == top else f"{look.label} ({most[name]:,} episodes)"
        axis.plot([], [], look.line, marker=look.marker, color=look.color, label=shown)
    n = np.arange(min(sizes) - 1, np.log2(top) + 1)
    axis.plot(n, 2**n, "k--", lw=1, label="2^N: dithering, order of magnitude")
    if failed:
        axis.axhline(top, color="k", lw=0.5, ls=":")
        axis.annotate(
            f"not learned, of runs ({top:,} episodes)",
            (1, top),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            size=7,
        )
    axis.set(yscale="log", xlabel="DeepSea size N", ylabel="episodes to learn")
    axis.set_ylim(None, top * 1.35 * 1.45 ** len(looks) if failed else top * 1.3)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False, title=READING, title_fontsize=8
    )


def times_figure(rows: Sequence[Row], looks: Mapping[str, Look]) -> Figure:
    """Plot the learning time against size in a figure of its own.

    Args:
        rows: Rows, one per run.
        looks: Looks by name; names without rows are left out.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=8.2, height=4.6)
    times_to_learn(axes[0, 0], rows, looks)
    return drawing


def median_table(rows: Sequence[Row], labels: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by name and size, with 95% bootstrap intervals and runs that did not learn.

    Args:
        rows: Rows, one per run.
        labels: Label by name; names without rows are left out.

    Returns:
        The table: a header, then rows.
    """
    sizes = sorted({row["size"] for row in rows})
    table = [("method", *(f"N={size}" for size in sizes))]
    for name, label in labels.items():
        if any(row["name"] == name for row in rows):
            table.append((label, *(time_words(seeds_of(rows, name=name, size=size)) for size in sizes)))
    return table


def time_words(found: list[float]) -> str:
    """Format learning times: `median [low, high]`, and how many learned if not all did.

    Args:
        found: The learning times, as of `seeds_of`.

    Returns:
        The words; none without times.
    """
    if not found:
        return ""
    learned = int(np.sum(np.isfinite(found)))
    if learned == 0:
        return f"0 of {len(found)}"
    words = median_interval(found).words()
    return words if learned == len(found) else f"{words}, {learned} of {len(found)}"
