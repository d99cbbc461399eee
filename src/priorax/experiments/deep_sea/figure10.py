"""Figure 10: DQN with a count bonus (UCB) on DeepSea for several bonus scales beta, compared with BSP.

The bonus is beta/sqrt(N(s)) with the true visit counts; unvisited states count as one visit. Whether it uses the count
at insertion or that at each replay, and whether the agent also takes epsilon-greedy actions, are those of the best of
twelve settings (`search`); beta is swept, on seeds on which no setting was chosen. The paper runs up to 50,000
episodes, `full` here up to 3,000.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.deep_sea.search import chosen
from priorax.experiments.sweep import fresh_seeds, ladder
from priorax.report.learning_times import median_table, times_figure
from priorax.report.looks import LOOKS, Look
from priorax.report.rows import Row

SEARCHED = ("ucb",)
SCALES = {"quick": (0.01, 0.1, 1.0), "full": (0.001, 0.01, 0.1, 1.0, 10.0)}
SIZES = {"quick": (5, 8, 10, 12), "full": (5, 8, 10, 12, 15, 20)}
SEEDS = {"quick": 2, "full": 5}
MOST_EPISODES = {"quick": 500, "full": 3000}
SHADES = {0.001: "#c7e9c0", 0.01: "#8fd18f", 0.1: "#4daf4a", 1.0: "#238b45", 10.0: "#00441b"}
MARKERS = {0.001: "1", 0.01: "s", 0.1: "X", 1.0: "D", 10.0: "^"}


def variants(budget: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """List the variants.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Agent and changed settings of each variant, by name.
    """
    swept = {f"β={scale:g}": ("ucb", {**chosen("ucb"), "bonus_scale": scale}) for scale in SCALES[budget]}
    return {"bsp": ("bsp", {}), **swept}


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for each scale.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    return [
        ladder(name, agent, SIZES[budget], seeds, MOST_EPISODES[budget], **changes)
        for name, (agent, changes) in variants(budget).items()
    ]


def looks() -> dict[str, Look]:
    """Choose the looks: shades of green by scale.

    Returns:
        Looks by name.
    """
    shades = {f"β={scale:g}": Look(f"count bonus, β={scale:g}", SHADES[scale], MARKERS[scale]) for scale in SHADES}
    return {"bsp": LOOKS["bsp"], **shades}


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time against N.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    return times_figure(rows, looks())


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by scale and size, with 95% bootstrap intervals.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    return median_table(rows, {name: look.label for name, look in looks().items()})
