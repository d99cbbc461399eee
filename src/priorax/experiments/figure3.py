"""Figure 3: time to learn DeepSea against its size N, for eps-greedy, BS, BSR and BSP, with the 2^N of dithering.

Each method climbs N until all of its seeds fail. Same network, optimiser, minibatches and updates for all (the preset
`tuned`): they differ in what their names say; ε-greedy's first ε, annealed to zero over 2,000 episodes, is swept. The
paper goes on to 500,000 episodes; `paper` here stops at 3,000, where the order is plain.
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
    """A ladder of sizes for each method."""
    return [
        [[_task(method, size, seed, MOST_EPISODES[preset]) for seed in range(SEEDS[preset])] for size in SIZES[preset]]
        for method in reversed(METHODS)
    ]


def _task(method: str, size: int, seed: int, episodes: int) -> Any:
    agent, *start = method.split()
    changes: dict[str, Any] = {"epsilon": float(start[0])} if start else {}
    return task(method, agent, size, seed, episodes, **changes)


def figure(rows: list[Row]) -> Figure:
    """Time to learn against N."""
    drawing, axes = panels(1, 1, width=6.4, height=4.4)
    times_to_learn(axes[0, 0], rows, METHODS)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """The median time to learn of each method and size."""
    return median_table(rows, {method: label for method, (label, *_) in METHODS.items()})
