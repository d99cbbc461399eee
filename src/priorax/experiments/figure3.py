"""Figure 3: learning time on DeepSea against its size N, for epsilon-greedy, BS, BSR and BSP, with the 2^N of
dithering.

Each method goes through the sizes until all its seeds fail. Network, optimiser, minibatches and updates are the same
for all (the preset `tuned`); the initial epsilon of epsilon-greedy, annealed to zero over 2,000 episodes, is swept.
The paper runs up to 500,000 episodes; `paper` here stops at 3,000, where the order is clear.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.sweep import task
from priorax.report.learning_times import median_table, times_to_learn
from priorax.report.plots import panels
from priorax.report.rows import Row

METHODS = {
    "eps_greedy": ("ε-greedy DQN, ε = 0.1", "#8a8f98", "s"),
    "eps_greedy 0.5": ("ε-greedy DQN, ε = 0.5", "#5f646d", "P"),
    "eps_greedy 1": ("ε-greedy DQN, ε = 1", "#2f3237", "X"),
    "bs": ("BS: bootstrap", "#d03a2b", "v"),
    "bsr": ("BSR: bootstrap + l2", "#c98a1b", "D"),
    "bsp": ("BSP: with priors", "#1f5fb4", "o"),
}
SIZES = {"quick": (5, 10, 15, 20), "paper": tuple(range(5, 61, 5))}
SEEDS = {"quick": 2, "paper": 5}
MOST_EPISODES = {"quick": 1000, "paper": 3000}


def ladders(preset: str) -> list[Any]:
    """List a ladder of sizes for each method.

    Args:
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [[_task(method, size, seed, MOST_EPISODES[preset]) for seed in range(SEEDS[preset])] for size in SIZES[preset]]
        for method in reversed(METHODS)
    ]


def _task(method: str, size: int, seed: int, episodes: int) -> Any:
    agent, *start = method.split()
    changes: dict[str, Any] = {"epsilon": float(start[0])} if start else {}
    return task(method, agent, size, seed, episodes, **changes)


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time against N.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=6.4, height=4.4)
    times_to_learn(axes[0, 0], rows, METHODS)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by method and size.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    return median_table(rows, {method: label for method, (label, *_) in METHODS.items()})
