"""Figure 6: Montezuma's Revenge at several prior scales, and a double dueling prioritised DQN.

The paper's runs are as long as Ape-X's: billions of frames with hundreds of actors. `quick` is what two cores can do in
half an hour: its rows have the number of distinct states that each agent reaches, and its returns. `full` is for a
cluster, and states its requirements before it starts.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.pixels.runs import curves, host_task, last, words
from priorax.experiments.pixels.runs import outcome as outcome
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row

SCALES = {"quick": (1.0, 10.0), "full": (0.0, 1.0, 3.0, 10.0, 30.0)}
STEPS = {"quick": 30_000, "full": 50_000_000}
SEEDS = {"quick": 1, "full": 3}
COLORS = ("#c6dbef", "#9ecae1", "#6baed6", "#2171b5", "#08306b")
"""Darker is a larger scale."""
NEEDS = (
    "the paper's figure 6 needs 200 million frames (50 million actions) or more for each of 18 runs: days on two cores "
    "for each (docs/scaling.md). Where there is a cluster, run `priorax apex --address ADDRESS --actors 360 --preset "
    "apex --env atari --game MontezumaRevenge --steps 50000000` for each scale and seed instead"
)


def looks(rows: list[Row]) -> dict[str, tuple[str, str]]:
    """Choose label and colour of each agent.

    Args:
        rows: Rows of the experiment.

    Returns:
        Label and colour by name.
    """
    names = {str(row["name"]) for row in rows}
    found = {f"bsp {beta:g}": (f"BSP, β={beta:g}", color) for beta, color in zip(SCALES["full"], COLORS, strict=True)}
    found["dqn"] = ("double dueling prioritised DQN", "#8a8f98")
    return {name: look for name, look in found.items() if name in names}


def ladders(budget: str) -> list[Any]:
    """List every run separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    game: dict[str, Any] = {"game": "MontezumaRevenge", "learn_after": 1000, "learn_every": 8}
    if budget == "quick":
        game["target_period"] = 50  # the run is short
    found = []
    for seed in range(SEEDS[budget]):
        for beta in SCALES[budget]:
            one = host_task(f"bsp {beta:g}", "bsp", "atari", seed, STEPS[budget], prior_scale=beta, **game)
            found.append([[one]])
        found.append([[host_task("dqn", "eps_greedy", "atari", seed, STEPS[budget], epsilon=0.4, **game)]])
    return found


def figure(rows: list[Row]) -> Figure:
    """Plot distinct states and the best game against environment steps.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=4.6, height=3.4, share=False)
    shown = looks(rows)
    curves(axes[0, 0], rows, "cells", shown)
    axes[0, 0].set(title="Montezuma's Revenge: states visited", ylabel="distinct states (11 x 8 cells, 8 greys)")
    curves(axes[0, 1], rows, "best", shown)
    axes[0, 1].set(title="what it has found", ylabel="return of the best game so far")
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the final results of each agent.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("agent", "distinct states, by seed", "best game, by seed", "actions, by seed")]
    for name, (label, _) in looks(rows).items():
        table.append((label, *(words(last(rows, name, what)) for what in ("cells", "best", "step"))))
    return table
