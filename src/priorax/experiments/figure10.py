"""Figure 10: DQN with a count bonus (UCB) on DeepSea for several bonus scales beta, compared with BSP.

The bonus is beta/sqrt(N(s)) with the true visit counts; unvisited states count as one visit. Both ways of paying it are
swept: by the count at insertion, and by the count when the transition is replayed. The agent also dithers as DQN does
(epsilon 0.1, annealed): a purely greedy one collects the bonus of the action it tried first and never tries the other.
The paper runs up to 50,000 episodes, `paper` here up to 3,000.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.sweep import task
from priorax.report.learning_times import median_table, times_to_learn
from priorax.report.plots import panels
from priorax.report.rows import Row

SCALES = {"quick": (0.01, 0.1, 1.0), "paper": (0.001, 0.01, 0.1, 1.0, 10.0)}
SIZES = {"quick": (8, 12, 16, 20), "paper": (8, 12, 16, 20, 24, 28, 32, 36, 40)}
SEEDS = {"quick": 2, "paper": 3}
MOST_EPISODES = {"quick": 600, "paper": 3000}
SHADES = ("#c7e9c0", "#8fd18f", "#4daf4a", "#238b45", "#00441b")


def variants(preset: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """List the variants.

    Args:
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        Agent and changed settings of each variant, by name.
    """
    swept = {
        f"β={scale:g}, by the count at {when}": ("ucb", {"bonus_scale": scale, "bonus_at": when})
        for when in ("insertion", "learning")
        for scale in SCALES[preset]
    }
    return {"BSP": ("bsp", {}), **swept}


def ladders(preset: str) -> list[Any]:
    """List a ladder of sizes for each scale.

    Args:
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [
            [task(name, agent, size, seed, MOST_EPISODES[preset], **changes) for seed in range(SEEDS[preset])]
            for size in SIZES[preset]
        ]
        for name, (agent, changes) in variants(preset).items()
    ]


def figure(rows: list[Row]) -> Figure:
    """Plot one panel for each way of paying the bonus, with BSP in both.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=5.0, height=4.2)
    for axis, when in zip(axes[0], ("insertion", "learning"), strict=True):
        names = sorted({row["name"] for row in rows if row["name"].endswith(when)}, key=_scale)
        looks = {name: (name.split(",")[0], SHADES[i], "s") for i, name in enumerate(names)}
        times_to_learn(axis, rows, {**looks, "BSP": ("BSP", "#1f5fb4", "o")})
        axis.set_title(f"bonus by the count at {when}")
    return drawing


def _scale(name: str) -> float:
    return float(name.split(",")[0].removeprefix("β="))


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by scale and size.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    names = dict.fromkeys(row["name"] for row in rows)
    return median_table(rows, {name: name for name in names})
