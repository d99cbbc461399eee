"""Novelty without reward (section 4.1): how much of a DeepSea without any reward each agent visits.

Prior functions make members disagree about states that have not been visited, so they go there. Without priors, targets
of zero are soon fitted everywhere, and nothing drives exploration.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.agents import settings
from priorax.analysis.parallel import Task
from priorax.experiments.sweep import FIRST_SEED, fresh_seeds
from priorax.report.looks import LOOKS
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, column, where
from priorax.training.backends.loop import prepare, run_chunk, start

AGENTS = {"eps_greedy": "ε-greedy DQN", "bs": "BS: bootstrap", "bsp": "BSP: with priors"}
SIZE = 20
EPISODES = {"quick": 200, "full": 1000}
SEEDS = {"quick": 1, "full": 3}
EVERY = 5
"""Episodes between rows."""


def visits(agent: str, size: int, seed: int, episodes: int) -> np.ndarray:
    """Train an agent without reward.

    Args:
        agent: Its name.
        size: Size of DeepSea.
        seed: Seed of the run.
        episodes: Number of episodes.

    Returns:
        The cells of each episode, [episode, step].
    """
    loop, key, params = prepare(agent, settings(agent, capacity=episodes * size), "deep_sea_no_reward", size, seed)
    live, _ = run_chunk(loop, key, params, start(loop, key, params), episodes * size)
    return np.asarray(live.replay.data.transition.obs).reshape(episodes, size)


def measure(agent: str, size: int, seed: int, episodes: int) -> list[dict[str, Any]]:
    """Train an agent without reward and count the cells that it visits.

    Args:
        agent: Its name.
        size: Size of DeepSea.
        seed: Seed of the run.
        episodes: Number of episodes.

    Returns:
        Rows with the number of distinct cells so far; for the first seed also the visits of each cell.
    """
    cells = visits(agent, size, seed, episodes)
    seen: set[int] = set()
    found = []
    for episode, path in enumerate(cells, 1):
        seen |= set(path.tolist())
        if episode % EVERY == 0 or episode == 1:
            found.append({"kind": "curve", "episode": episode, "distinct": len(seen)})
    if seed == FIRST_SEED:
        for cell, count in zip(*np.unique(cells, return_counts=True), strict=True):
            found.append({"kind": "cell", "cell": int(cell), "visits": int(count)})
    return found


def ladders(budget: str) -> list[Any]:
    """List every run separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    return [
        [[Task(agent, {"agent": agent, "size": SIZE, "seed": seed, "episodes": EPISODES[budget]}, measure)]]
        for agent in AGENTS
        for seed in seeds
    ]


def figure(rows: list[Row]) -> Figure:
    """Plot which cells each agent visited, and how fast.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1 + len(AGENTS), width=2.9, height=3.2, share=False)
    curve = axes[0, -1]
    most = max(row["visits"] for row in where(rows, kind="cell"))
    for axis, (agent, label) in zip(axes[0], AGENTS.items(), strict=False):
        grid = np.full(SIZE * SIZE, np.nan)
        cells = where(rows, kind="cell", agent=agent)
        grid[column(cells, "cell")] = np.log10(column(cells, "visits"))
        shown = axis.imshow(grid.reshape(SIZE, SIZE), cmap="viridis", vmin=0, vmax=np.log10(most))
        axis.plot([-0.5, SIZE - 0.5], [-0.5, SIZE - 0.5], color="#d03a2b", lw=0.7, label="always right")
        axis.set(title=f"{label}\n{len(cells)} of {SIZE * (SIZE + 1) // 2} cells", xticks=[], yticks=[])
        axis.set(xlabel="column", ylabel="row, one a step")
        for i, seed in enumerate(sorted({row["seed"] for row in where(rows, kind="curve", agent=agent)})):
            mine = where(rows, kind="curve", agent=agent, seed=seed)
            words = label if i == 0 else None
            curve.plot(column(mine, "episode"), column(mine, "distinct"), color=LOOKS[agent].color, label=words)
    drawing.colorbar(shown, ax=list(axes[0, :-1]), label="log10 of visits; white: none", shrink=0.8)
    axes[0, 0].legend(fontsize=7, loc="upper right")
    curve.axhline(SIZE * (SIZE + 1) // 2, color="k", lw=0.8, ls="--", label="all reachable cells")
    curve.set(xlabel="episode", ylabel="distinct cells visited", title="without any reward")
    legend_below(drawing, curve)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the number of cells visited.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("agent", "cells visited", "of", "episodes")]
    for agent, label in AGENTS.items():
        mine = where(rows, kind="curve", agent=agent)
        last = max(row["episode"] for row in mine)
        ends = [str(row["distinct"]) for row in mine if row["episode"] == last]
        table.append((label, ", ".join(ends), str(SIZE * (SIZE + 1) // 2), str(last)))
    return table
