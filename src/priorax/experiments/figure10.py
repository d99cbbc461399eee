"""Figure 10: DQN with a count bonus (UCB) on DeepSea, sweeping the bonus scale beta, against BSP.

The bonus is beta/sqrt(N(s)) by the true visit counts; what was never visited counts as one visit. Both ways of paying
it are swept: by the count at insertion, and by the count when the transition is replayed. It dithers as DQN does
(epsilon 0.1 annealed): purely greedy it is paid for whichever action it tried first and never tries the other.
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
    """Name -> agent and changes."""
    swept = {
        f"β={scale:g}, by the count at {when}": ("ucb", {"bonus_scale": scale, "bonus_at": when})
        for when in ("insertion", "learning")
        for scale in SCALES[preset]
    }
    return {"BSP": ("bsp", {}), **swept}


def ladders(preset: str) -> list[Any]:
    """A ladder of sizes for each scale."""
    return [
        [
            [task(name, agent, size, seed, MOST_EPISODES[preset], **changes) for seed in range(SEEDS[preset])]
            for size in SIZES[preset]
        ]
        for name, (agent, changes) in variants(preset).items()
    ]


def figure(rows: list[Row]) -> Figure:
    """One panel for each way of paying, BSP in both."""
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
    """The median time to learn of each scale and size."""
    names = dict.fromkeys(row["name"] for row in rows)
    return median_table(rows, {name: name for name in names})
