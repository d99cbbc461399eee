"""One network instead of twenty: the learning time of hypermodel and epinet on DeepSea beside that of BSP.

All agents have the preset `tuned`; those of one network were tuned by `tools/indexed_search.py`, whose rows are
committed, on seeds 0 to 2. Seeds from 200 on: no setting was chosen on them. The time of a step is measured by
`python -m tools.indexed_search '{}' --steps`, since runs of a sweep share the machine.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.sweep import fresh_seeds, ladder
from priorax.report.learning_times import seeds_of, time_words, times_figure
from priorax.report.looks import looks_of
from priorax.report.rows import Row, where

AGENTS = ("hypermodel", "bsp", "epinet")
"""In the order of their runs."""
SIZES = {"quick": (5, 10), "full": (10, 20, 30, 40, 50)}
SEEDS = {"quick": 2, "full": 5}
MOST_EPISODES = {"quick": 300, "full": 3000}


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for each agent.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    return [ladder(agent, agent, SIZES[budget], seeds, MOST_EPISODES[budget]) for agent in AGENTS]


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time against N.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    return times_figure(rows, looks_of(AGENTS))


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate learning times with 95% bootstrap intervals, and their medians as multiples of BSP's.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("agent", "N", "episodes to learn", "median over BSP's")]
    for name in looks_of(AGENTS):
        for size in sorted({row["size"] for row in where(rows, name=name)}):
            times = seeds_of(rows, name=name, size=size)
            share = float(np.median(times)) / float(np.median(seeds_of(rows, name="bsp", size=size) or [np.nan]))
            table.append((name, str(size), time_words(times), f"{share:.2f}" if np.isfinite(share) else ""))
    return table
