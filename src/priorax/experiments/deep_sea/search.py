"""The equal search: twelve settings of every method on DeepSea, with the same two seeds, sizes and episodes.

The settings of all agents other than BSP in figures 3, 9 and 10 and in table 1 are chosen here, by one rule (`best`),
on seeds that no figure shows. Settings that are not in a grid are those of the preset `tuned` for all methods. That
preset was found for BSP, by an earlier and larger search whose rows were not kept. Exact methods are searched as well.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.grids import Changes, grid, words
from priorax.experiments.sweep import ladder
from priorax.report.learning_times import seeds_of
from priorax.report.looks import LOOKS
from priorax.report.plots import panels
from priorax.report.rows import Row, where

SEEDS = {"quick": (0,), "full": (0, 1)}
SIZES = {"quick": (5, 8), "full": (5, 8, 10, 12, 15, 20)}
MOST_EPISODES = {"quick": 300, "full": 3000}


GRIDS: dict[str, list[Changes]] = {
    "bsr": grid(l2=(0.01, 0.1, 1.0), learning_rate=(1e-3, 2e-3), mask_prob=(0.5, 1.0)),
    "bs": grid(learning_rate=(5e-4, 1e-3, 2e-3), mask_prob=(0.5, 1.0), target_period=(1, 4)),
    "ensemble": grid(learning_rate=(3e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3), target_period=(1, 4)),
    "eps_greedy": grid(epsilon=(0.05, 0.1, 0.3, 1.0), learning_rate=(5e-4, 1e-3, 2e-3)),
    "ucb": grid(bonus_scale=(0.01, 0.1, 1.0), bonus_at=("insertion", "learning"), epsilon=(0.1, None)),
    "noisy": grid(initial_std=(0.5, 1.0, 2.0, 5.0, 10.0, 20.0), draw_each_step=(True, False)),
    "dropout": grid(p_keep=(0.1, 0.5, 0.8), draw_each_step=(True, False), widths=((50, 50), (200, 200))),
    "bbb": grid(kl_weight=(0.001, 0.01, 0.1, 1.0), prior_std=(0.3, 1.0, 3.0)),
    "c51": grid(epsilon=(0.1, 0.3, 1.0), learning_rate=(5e-4, 1e-3, 2e-3, 4e-3)),
    "qr": grid(epsilon=(0.1, 0.3, 1.0), learning_rate=(5e-4, 1e-3, 2e-3, 4e-3)),
    "rlsvi": grid(noise_std=(0.01, 0.03, 0.1, 0.3), prior_std=(0.3, 1.0, 3.0)),
    "psrl": grid(noise_std=(0.01, 0.03, 0.1), concentration=(0.01, 0.03, 0.1, 1.0)),
    "ucrl": grid(confidence=(1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0)),
    "bsp": grid(prior_scale=(3.0, 10.0, 30.0), learning_rate=(1e-3, 2e-3), mask_prob=(0.5, 1.0)),
}
"""Twelve settings of each method, in the order of their runs. Epsilon is annealed to zero over 2,000 episodes, as in
the paper."""
CHOSEN: dict[str, Changes] = {}
"""What `best` chooses from the committed rows (`results/search_full.csv`), by method; a test compares the two."""


def chosen(agent: str) -> Changes:
    """Return the settings that the search chose for an agent.

    Args:
        agent: Name of the agent.

    Returns:
        Changes to the preset `tuned`; none for BSP, which is shown with `tuned` itself, and none for an agent without a
        choice (see `check_choices`).
    """
    return {} if agent == "bsp" else CHOSEN.get(agent, {})


def check_choices(name: str, agents: Sequence[str], budget: str) -> str | None:
    """Check that the search has chosen the settings of the agents that an experiment compares BSP with.

    Args:
        name: Name of the experiment.
        agents: Names of these agents.
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        With `quick`, a message that names the agents that run with their defaults; None if there are none.

    Raises:
        ValueError: With `full`, if the search has not chosen the settings of all these agents.
    """
    missing = ", ".join(agent for agent in agents if agent not in CHOSEN)
    if not missing:
        return None
    if budget == "quick":
        return f"no settings have been chosen for {missing}: budget=quick runs them with the defaults of `tuned`"
    raise ValueError(
        f"budget={budget!r} of {name} needs settings chosen by the equal search for {missing}; run `priorax reproduce "
        "search --budget full`, then copy its choices into `CHOSEN` in priorax/experiments/deep_sea/search.py, or use "
        "`--budget quick`, which runs them with defaults"
    )


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for each setting of each method.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        ladder(method, method, SIZES[budget], SEEDS[budget], MOST_EPISODES[budget], **changes)
        for method, settings in GRIDS.items()
        for changes in settings
    ]


def rank(rows: list[Row], method: str, changes: Changes) -> tuple[float, ...]:
    """Rank a setting: the largest size that all seeds learned, then that any seed learned, then their mean time there.

    Args:
        rows: Rows of the experiment.
        method: Name of the method.
        changes: The setting.

    Returns:
        Numbers to sort by; larger is better.
    """
    mine = where(rows, name=method, changes=words(changes))
    by_size = {size: seeds_of(mine, size=size) for size in sorted({row["size"] for row in mine})}
    every = max((size for size, found in by_size.items() if np.all(np.isfinite(found))), default=0)
    some = max((size for size, found in by_size.items() if np.any(np.isfinite(found))), default=0)
    times = [time for time in by_size.get(some, []) if np.isfinite(time)]
    return float(every), float(some), -float(np.mean(times)) if times else -np.inf


def best(rows: list[Row], method: str) -> Changes:
    """Choose the best setting of a method.

    Args:
        rows: Rows of the experiment.
        method: Name of the method.

    Returns:
        The setting; the first in the grid, of equals.
    """
    return max(GRIDS[method], key=lambda changes: rank(rows, method, changes))


def figure(rows: list[Row]) -> Figure:
    """Plot the largest size that each setting learned on all seeds and on any, one line per method.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    methods = [method for method in GRIDS if where(rows, name=method)]
    drawing, axes = panels(1, 1, width=7.4, height=0.9 + 0.36 * len(methods))
    axis = axes[0, 0]
    for i, method in enumerate(reversed(methods)):
        look = LOOKS[method]
        ranks = sorted((rank(rows, method, changes)[:2] for changes in GRIDS[method]), reverse=True)
        for j, (every, some) in enumerate(ranks):
            y = i + 0.3 - 0.6 * j / (len(ranks) - 1)
            axis.plot([every, some], [y, y], color=look.color, lw=1, alpha=0.6)
            axis.plot(some, y, "o", color=look.color, mfc="none", ms=3.5)
            axis.plot(every, y, "o", color=look.color, ms=3.5)
    axis.set_yticks(range(len(methods)), [LOOKS[method].short for method in reversed(methods)], size=8)
    most = max(row["most_episodes"] for row in rows)
    axis.set_xlabel(f"largest DeepSea learned in {most:,} episodes by all seeds (full) and by any (hollow)")
    axis.set_xticks(sorted({0, *(row["size"] for row in rows)}))
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the best setting of each method.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("method", "best of 12 settings", "N learned by all seeds", "by any", "mean time")]
    for method in GRIDS:
        if where(rows, name=method):
            chosen = best(rows, method)
            every, some, time = rank(rows, method, chosen)
            shown = f"{-time:.0f}" if np.isfinite(time) else "-"
            table.append((method, words(chosen), f"{every:g}", f"{some:g}", shown))
    return table
