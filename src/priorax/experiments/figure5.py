"""Figure 5: learning curves on cartpole swing-up with sparse reward: DQN, BS, BSP and D4PG; and the first 500 episodes.

All share the preset `swingup` (network, discount, double Q, n-step, targets, replay); BS is BSP without priors and with
the bootstrap, D4PG has continuous pushes. The paper says neither how many episodes nor which hyperparameters.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments import swingup
from priorax.experiments.swingup import learning_curves, swingup_task, table
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row

LOOKS = {
    "bsp": ("BSP: bootstrap with priors", "#1f5fb4"),
    "bs": ("BS: bootstrap", "#d03a2b"),
    "eps_greedy": ("ε-greedy DQN", "#8a8f98"),
    "d4pg": ("D4PG", "#4daf4a"),
}
EPISODES = {"quick": 500, "paper": 2000}
SEEDS = {"quick": 3, "paper": 5}
outcome = swingup.outcome


def ladders(preset: str) -> list[Any]:
    """All seeds of all agents."""
    return [[[swingup_task(agent, agent, seed, EPISODES[preset])] for seed in range(SEEDS[preset])] for agent in LOOKS]


def figure(rows: list[Row]) -> Figure:
    """Left, all episodes; right, the first 500."""
    drawing, axes = panels(1, 2, width=4.6, height=3.6, share=False)
    learning_curves(axes[0, 0], rows, LOOKS)
    learning_curves(axes[0, 1], rows, LOOKS, until=500)
    axes[0, 0].set_title("sparse cartpole swing-up")
    axes[0, 1].set_title("the first 500 episodes")
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """When each balanced first, and where it ended."""
    return table(rows, LOOKS)
