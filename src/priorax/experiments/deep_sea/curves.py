"""Learning curves of BSP and epsilon-greedy DQN on one DeepSea: the demonstration of deep exploration.

Seeds from 200 on: no setting was chosen on them.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.envs.jax.deep_sea import DeepSea
from priorax.experiments.sweep import fresh_seeds, task
from priorax.report.looks import LOOKS
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, column, where
from priorax.training.records import Result

AGENTS = {name: (LOOKS[name].short, LOOKS[name].color) for name in ("eps_greedy", "bsp")}
"""Labels and colours."""
SIZE = 20
EPISODES = {"quick": 400, "full": 1000}
SEEDS = {"quick": 1, "full": 3}


def ladders(budget: str) -> list[Any]:
    """List every run separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    runs = [task(agent, agent, SIZE, seed, EPISODES[budget]) for agent in AGENTS for seed in seeds]
    return [[[one.asking(stop_when_learned=False)]] for one in runs]


def outcome(result: Result) -> list[dict[str, Any]]:
    """Make one row for each episode.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    return [
        {"episode": row.episode, "total_return": row.total_return, "average_regret": row.average_regret}
        for row in result.history
    ]


def figure(rows: list[Row]) -> Figure:
    """Plot the return of each episode, and the average regret.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=4.4, height=3.2, share=False)
    returns, regret = axes[0]
    for agent, (label, color) in AGENTS.items():
        for i, seed in enumerate(sorted({row["seed"] for row in where(rows, agent=agent)})):
            mine = where(rows, agent=agent, seed=seed)
            episode, words = column(mine, "episode"), label if i == 0 else None
            returns.plot(episode, column(mine, "total_return"), ".", color=color, ms=3, label=words)
            regret.plot(episode, column(mine, "average_regret"), color=color)
    best = DeepSea(SIZE).optimal_return
    returns.axhline(best, color="k", lw=0.8, ls="--", label=f"the best possible, {best:.2f}")
    regret.axhline(0.9, color="k", lw=0.8, ls=":")
    regret.annotate("dotted: “learned” below it (the paper's 0.9)", (0, 0.03), size=8)
    returns.set(
        xlabel="episode",
        ylabel="return of the episode",
        title=f"DeepSea, N={SIZE}: one of {2**SIZE:,} paths is rewarded",
    )
    regret.set(xlabel="episode", ylabel="average regret so far", ylim=(0, 1.03), title="regret per episode")
    legend_below(drawing, returns)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate when each agent first found the treasure and when it counts as learned.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("agent", "seed", "treasure first found", "learned", "mean of last 50 returns")]
    for agent, (label, _) in AGENTS.items():
        for seed in sorted({row["seed"] for row in where(rows, agent=agent)}):
            mine = where(rows, agent=agent, seed=seed)
            found = next((row["episode"] for row in mine if row["total_return"] > 0.5), "never")
            learned = next((row["episode"] for row in mine if row["average_regret"] < 0.9), "not")
            last = np.mean([row["total_return"] for row in mine[-50:]])
            table.append((label, str(seed), str(found), str(learned), f"{last:.2f}"))
    return table
