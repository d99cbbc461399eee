"""The bootstrap mask on DeepSea: ensembles without prior, with l2, and with priors, each with and without a bootstrap.

In other experiments BS and BSR have mask probability 0.5, as in the paper, while BSP has 1. Here each method has both,
which separates the effect of the prior from that of training on all data. An ensemble without prior and with mask 1 is
the paper's "ensemble", with mask 0.5 its "bootstrap". BSR has both interpretations of its weight (`l2_reading`).
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.sweep import fresh_seeds, ladder
from priorax.report.learning_times import median_table, times_figure
from priorax.report.looks import LOOKS, Look
from priorax.report.rows import Row

AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "BSP": ("bsp", {}),
    "BSR, λ/n": ("bsr", {"l2_reading": "posterior"}),
    "BSR, λ": ("bsr", {"l2_reading": "coefficient"}),
    "no prior": ("bs", {}),
}
"""Agent and changed settings by label."""
MASKS = (0.5, 1.0)
SIZES = {"quick": (10,), "full": (10, 20, 30)}
SEEDS = {"quick": 1, "full": 5}
MOST_EPISODES = {"quick": 500, "full": 2000}


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for each method and mask.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    return [
        ladder(f"{label}, mask {mask:g}", agent, SIZES[budget], seeds, MOST_EPISODES[budget], mask_prob=mask, **changes)
        for label, (agent, changes) in AGENTS.items()
        for mask in MASKS
    ]


def looks() -> dict[str, Look]:
    """Choose the looks: a colour for each method; open markers and dashed lines for mask 0.5.

    Returns:
        Looks by name.
    """
    found = {}
    for label, (agent, changes) in AGENTS.items():
        for mask in MASKS:
            marker = "D" if changes.get("l2_reading") == "coefficient" else LOOKS[agent].marker
            color = "#e0b85a" if changes.get("l2_reading") == "coefficient" else LOOKS[agent].color
            name = f"{label}, mask {mask:g}"
            found[name] = Look(name, color, marker, "--" if mask < 1 else "-")
    return found


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time against N.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    return times_figure(rows, looks())


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by method, mask and size, with 95% bootstrap intervals.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    return median_table(rows, {name: name for name in looks()})
