"""One look for all pictures, and how they are written."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from priorax.report.rows import Row, column
from priorax.storage import write_atomically

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
    """A figure and its axes [row, column], sharing both scales unless told."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False)
    return figure, axes


def posterior(axis: Axes, rows: Sequence[Row], data: Sequence[Row]) -> None:
    """A predictive distribution as the paper draws it: grey bands of 1 and 2 standard deviations, mean blue, one
    sample red; data as black dots."""
    x, mean, std, sample = (np.asarray(column(rows, name)) for name in ("x", "mean", "std", "sample"))
    axis.fill_between(x, mean - 2 * std, mean + 2 * std, color=BAND, alpha=0.25, lw=0, label="± 2 std")
    axis.fill_between(x, mean - std, mean + std, color=BAND, alpha=0.6, lw=0, label="± 1 std")
    axis.plot(x, mean, color=MEAN, lw=1.8, label="mean")
    axis.plot(x, sample, color=SAMPLE, lw=1.0, label="one sample")
    size = 4 if len(data) < 500 else 1
    axis.plot(column(data, "x"), column(data, "mean"), "k.", ms=size, label="data", alpha=0.5, zorder=1.5)


def legend_below(figure: Figure, axis: Axes) -> None:
    """One legend for all panels, under them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def save_figure(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write a figure in each format, atomically; the same rows give the same bytes."""
    paths = []
    for kind in formats:
        buffer = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
        paths.append(folder / f"{name}.{kind}")
        write_atomically(paths[-1], buffer.getvalue())
    return paths
