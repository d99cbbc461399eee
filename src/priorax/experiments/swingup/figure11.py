"""Figure 11: BSP on cartpole swing-up with sparse reward for several prior scales beta.

With too small a scale the agent settles for standing still; with too large a scale the prior takes long to be overcome.
`full` is the paper's task; `quick` has a wider rewarded region (see figure 5), which is learned much sooner. Curves
are returns of the deployed policy, without exploration.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.swingup import runs as swingup
from priorax.experiments.swingup.runs import learning_curves, swingup_task
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row

SCALES = {"quick": (0.5, 5.0, 50.0), "full": (0.5, 1.5, 5.0, 15.0, 50.0)}
EPISODES = {"quick": 250, "full": 2000}
SEEDS = {"quick": range(3), "full": range(310, 313)}
FORMS = {"quick": "cartpole_swingup_wide", "full": "cartpole_swingup"}
SHADES = ("#fdd49e", "#fdbb84", "#9ecae1", "#1f5fb4", "#8856a7", "#4d004b")
outcome = swingup.outcome


def ladders(budget: str) -> list[Any]:
    """List all seeds of all scales.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [[swingup_task(f"β={scale:g}", "bsp", seed, EPISODES[budget], FORMS[budget], prior_scale=scale)]]
        for scale in SCALES[budget]
        for seed in SEEDS[budget]
    ]


def looks(rows: list[Row]) -> dict[str, tuple[str, str]]:
    """Choose label and colour of each scale; darker is larger.

    Args:
        rows: Rows of the experiment.

    Returns:
        Label and colour by name.
    """
    names = sorted({row["name"] for row in rows}, key=lambda name: float(name.removeprefix("β=")))
    return {name: (name, SHADES[i + (len(names) < len(SHADES))]) for i, name in enumerate(names)}


def figure(rows: list[Row]) -> Figure:
    """Plot one line for each seed.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=6.4, height=3.8)
    learning_curves(axes[0, 0], rows, looks(rows))
    titles = {"cartpole_swingup": "cartpole swing-up: prior scale"}
    axes[0, 0].set_title(titles.get(rows[0]["env"], "cartpole swing-up, wider rewarded region: prior scale"))
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate when each run first was rewarded and first learned, and its final return.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    return [swingup.HEADER, *swingup.lines(rows, looks(rows))]
