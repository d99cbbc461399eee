"""Figure 9: NoisyNet and dropout on DeepSea, and Bayes by Backprop, C51 and QR-DQN, each with the best of twelve
settings (`search`), compared with BSP.

Seeds from 200 on: no setting was chosen on them. The paper tunes up to 50,000 episodes, `full` here up to 3,000.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.deep_sea.search import chosen
from priorax.experiments.sweep import fresh_seeds, ladder
from priorax.report.learning_times import median_table, times_figure
from priorax.report.looks import looks_of
from priorax.report.rows import Row

METHODS = ("bsp", "noisy", "dropout", "bbb", "c51", "qr")
SEARCHED = METHODS[1:]
SIZES = {"quick": (5, 8, 10, 12), "full": (5, 8, 10, 12, 15, 20)}
SEEDS = {"quick": 2, "full": 5}
MOST_EPISODES = {"quick": 500, "full": 3000}


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for each method.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    return [ladder(method, method, SIZES[budget], seeds, MOST_EPISODES[budget], **chosen(method)) for method in METHODS]


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
