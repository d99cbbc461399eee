"""One network instead of twenty on DeepSea: hypermodel and epinet beside BSP, learning time and time per step.

All agents have the preset `tuned`; those of one network were tuned by `tools/indexed_search.py`, whose rows are
committed, on seeds 0 to 2. Seeds from 200 on: no setting was chosen on them.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.figure3 import FIRST_SEED
from priorax.experiments.sweep import task
from priorax.report.learning_times import seeds_of, time_words, times_to_learn
from priorax.report.looks import looks_of
from priorax.report.plots import panels
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
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS[budget])
    return [
        [[task(agent, agent, size, seed, MOST_EPISODES[budget]) for seed in seeds] for size in SIZES[budget]]
        for agent in AGENTS
    ]


def milliseconds(rows: list[Row], agent: str, size: int) -> float:
    """Compute the median time of a step, with its update.

    Args:
        rows: Rows of the experiment.
        agent: Name of the agent.
        size: Size of DeepSea.

    Returns:
        Milliseconds; NaN if there are no rows.
    """
    found = [1000 / row["steps_per_second"] for row in where(rows, name=agent, size=size)]
    return float(np.median(found)) if found else np.nan


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time, and the time of a step, against N.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=5.6, height=4.2, share=False)
    times_to_learn(axes[0, 1], rows, looks_of(AGENTS))
    for name, look in looks_of(AGENTS).items():
        sizes = sorted({row["size"] for row in where(rows, name=name)})
        times = [milliseconds(rows, name, size) for size in sizes]
        axes[0, 0].plot(sizes, times, look.line, marker=look.marker, ms=5, color=look.color)
    axes[0, 0].set(xlabel="DeepSea size N", ylabel="milliseconds of a step with its update", ylim=(0, None))
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate learning times with 95% bootstrap intervals, and times of a step, beside those of BSP.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("agent", "N", "episodes to learn", "of BSP's", "ms of a step", "of BSP's")]
    for name in looks_of(AGENTS):
        for size in sorted({row["size"] for row in where(rows, name=name)}):
            times, step = seeds_of(rows, name=name, size=size), milliseconds(rows, name, size)
            bsp = float(np.median(seeds_of(rows, name="bsp", size=size) or [np.nan]))
            episodes = float(np.median(times)) / bsp
            shares = [
                f"{share:.2f}" if np.isfinite(share) else ""
                for share in (episodes, step / milliseconds(rows, "bsp", size))
            ]
            table.append((name, str(size), time_words(times), shares[0], f"{step:.2f}", shares[1]))
    return table
