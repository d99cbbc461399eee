"""Figure 3: learning time on DeepSea against its size N, for epsilon-greedy, BS, BSR and BSP, with the 2^N of
dithering.

Each method goes through the sizes until all its seeds fail. Network, optimiser, minibatches and updates are the same
for all (the preset `tuned`), except for the settings that the equal search chose for BS, BSR and epsilon-greedy
(`search`). BSP is shown with the preset `tuned`, and with the paper's own settings (the preset `paper`, appendix B),
which learn only at the end of episodes and get ten times as many. Epsilon-greedy is shown with the paper's annealing
over 2,000 episodes, and annealed from 1 over the whole budget of BSP.

Seeds from 200 on: no setting was chosen on them.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.experiments.deep_sea.search import chosen
from priorax.experiments.sweep import fresh_seeds, ladder
from priorax.report.learning_times import median_table, times_figure
from priorax.report.looks import looks_of
from priorax.report.rows import Row

METHODS = ("bsp", "bsp paper", "bsr", "bs", "ensemble", "eps_greedy", "eps_greedy long")
SEARCHED = ("bsr", "bs", "ensemble", "eps_greedy")
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "quick": dict.fromkeys(METHODS, (5, 10, 15, 20)),
    "full": {
        **dict.fromkeys(METHODS, (5, 10, 15, 20, 30, 40, 50)),
        "bsp": (5, 10, 15, 20, 30, 40, 50, 60, 80, 100),
    },
}
MOST_EPISODES: dict[str, dict[str, int]] = {
    "quick": {**dict.fromkeys(METHODS, 1000), "bsp paper": 5000, "eps_greedy long": 5000},
    "full": {**dict.fromkeys(METHODS, 3000), "bsp": 5000, "bsp paper": 50_000, "eps_greedy long": 5000},
}


def seeds(budget: str, method: str, size: int) -> range:
    """List the seeds.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        method: Name of the method.
        size: Size of DeepSea.

    Returns:
        The seeds: in `full`, ten for BSP up to N=50, else five.
    """
    count = 2 if budget == "quick" else 10 if method == "bsp" and size <= 50 else 5
    return fresh_seeds(count)


def ladders(budget: str, methods: Sequence[str] = METHODS) -> list[Any]:
    """List a ladder of sizes for each method.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        methods: Names of the methods.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [[level for size in SIZES[budget][method] for level in _level(method, size, budget)] for method in methods]


def _level(method: str, size: int, budget: str) -> list[list[Task]]:
    agent, episodes = method.split()[0], MOST_EPISODES[budget][method]
    preset = "paper" if method == "bsp paper" else "tuned"
    long = {"epsilon": 1.0, "epsilon_episodes": episodes} if method == "eps_greedy long" else {}
    changes = {**chosen(agent), **long}
    return ladder(method, agent, [size], seeds(budget, method, size), episodes, preset=preset, **changes)


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time against N.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    return times_figure(rows, looks_of(METHODS))


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by method and size, with 95% bootstrap intervals.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    return median_table(rows, {method: look.label for method, look in looks_of(METHODS).items()})
