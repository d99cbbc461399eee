"""Figure 11: BSP on cartpole swing-up with sparse reward, sweeping the prior scale beta.

Too small, and it settles for standing still; too large, and the prior takes long to wash away.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments import swingup
from priorax.experiments.swingup import learning_curves, swingup_task, table
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row

SCALES = {"quick": (1.0, 5.0, 20.0, 100.0), "paper": (0.3, 1.0, 3.0, 10.0, 20.0, 30.0, 100.0)}
EPISODES = {"quick": 500, "paper": 2000}
SEEDS = {"quick": 3, "paper": 5}
SHADES = ("#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#1f5fb4", "#08306b")
outcome = swingup.outcome


def ladders(preset: str) -> list[Any]:
    """All seeds of all scales."""
    return [
        [[swingup_task(f"β={scale:g}", "bsp", seed, EPISODES[preset], prior_scale=scale)]]
        for scale in SCALES[preset]
        for seed in range(SEEDS[preset])
    ]


def looks(rows: list[Row]) -> dict[str, tuple[str, str]]:
    """Darker where the scale is larger."""
    names = sorted({row["name"] for row in rows}, key=lambda name: float(name.removeprefix("β=")))
    shades = SHADES[-len(names) :]
    return {name: (name, shade) for name, shade in zip(names, shades, strict=True)}


def figure(rows: list[Row]) -> Figure:
    """A line for each seed."""
    drawing, axes = panels(1, 1, width=6.4, height=3.8)
    learning_curves(axes[0, 0], rows, looks(rows))
    axes[0, 0].set_title("sparse cartpole swing-up: the scale of the prior")
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """When each balanced first, and where it ended."""
    return table(rows, looks(rows))
