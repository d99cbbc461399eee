"""The style of all figures, and how they are written."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from priorax.checks import short_number
from priorax.files import write_atomically
from priorax.report.rows import Row, column

MEAN, SAMPLE, BAND = "#1f5fb4", "#d03a2b", "#8a8f98"
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "svg.hashsalt": "priorax",
}


def panels(
    rows: int, columns: int, width: float = 3.2, height: float = 2.7, share: bool = True
) -> tuple[Figure, np.ndarray]:
    """Create a figure with a grid of axes.

    Args:
        rows: Rows of the grid.
        columns: Columns of the grid.
        width: Width of a panel in inches.
        height: Height of a panel in inches.
        share: Whether panels share both axes.

    Returns:
        The figure and its axes [row, column].
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False)
    return figure, axes


def posterior(axis: Axes, rows: Sequence[Row], data: Sequence[Row]) -> None:
    """Plot a predictive distribution in the paper's style.

    Grey bands of 1 and 2 standard deviations, the mean in blue, one sample in red, data as black dots.

    Args:
        axis: The axes to draw on.
        rows: Rows of the predictive distribution.
        data: Rows of the data.
    """
    x, mean, std, sample = (np.asarray(column(rows, name)) for name in ("x", "mean", "std", "sample"))
    axis.fill_between(x, mean - 2 * std, mean + 2 * std, color=BAND, alpha=0.25, lw=0, label="± 2 std")
    axis.fill_between(x, mean - std, mean + std, color=BAND, alpha=0.6, lw=0, label="± 1 std")
    axis.plot(x, mean, color=MEAN, lw=1.8, label="mean")
    axis.plot(x, sample, color=SAMPLE, lw=1.0, label="one sample")
    size = 4 if len(data) < 500 else 1
    axis.plot(column(data, "x"), column(data, "mean"), "k.", ms=size, label="data", alpha=0.5, zorder=1.5)


def plain_ticks(axis: Axis) -> None:
    """Write the numbers of an axis without a common factor, and without exponents unless they are very large or small.

    Args:
        axis: The axis.
    """
    axis.set_major_formatter(lambda value, _: short_number(float(value)))


def legend_below(figure: Figure, axis: Axes) -> None:
    """Put one legend for all panels below them.

    Args:
        figure: The figure.
        axis: The axes whose legend is used.
    """
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def save_figure(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure atomically in each format; equal rows give equal bytes.

    Args:
        figure: The figure.
        folder: The folder to write to.
        name: Name of the files, without suffix.
        formats: Suffixes of the formats.

    Returns:
        The files written.
    """
    paths = []
    for kind in formats:
        paths.append(folder / f"{name}.{kind}")
        write_atomically(paths[-1], figure_bytes(figure, kind))
    return paths


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """Encode a figure; equal figures give equal bytes.

    Args:
        figure: The figure.
        kind: The format, `png` or `svg`.

    Returns:
        The content of the file.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()
