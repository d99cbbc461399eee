"""Novelty without reward (section 4.1): how much of a DeepSea without any reward each agent visits.

Prior functions make members disagree about states that have not been visited, so they go there. Without priors, targets
of zero are soon fitted everywhere, and nothing drives exploration.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.agents import settings
from priorax.experiments import Report
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, column, where
from priorax.training.backends.loop import prepare, run_chunk, start

AGENTS = {"eps_greedy": "ε-greedy DQN", "bs": "BS: bootstrap", "bsp": "BSP: with priors"}
SIZE = 20
EPISODES = {"quick": 200, "full": 1000}
SEEDS = {"quick": 1, "full": 3}


def visits(agent: str, seed: int, episodes: int) -> np.ndarray:
    """Train an agent without reward.

    Args:
        agent: Its name.
        seed: Seed of the run.
        episodes: Number of episodes.

    Returns:
        The cells of each episode, [episode, step].
    """
    loop, key, params = prepare(agent, settings(agent, capacity=episodes * SIZE), "deep_sea_no_reward", SIZE, seed)
    live, _ = run_chunk(loop, key, params, start(loop, key, params), episodes * SIZE)
    return np.asarray(live.replay.data.transition.obs).reshape(episodes, SIZE)


def run(budget: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield the number of distinct cells visited by each episode and, for seed 0, the visits of each cell.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        report: Called with the fraction of work done and a word on the current work.

    Yields:
        The rows.
    """
    runs = [(agent, seed) for agent in AGENTS for seed in range(SEEDS[budget])]
    for i, (agent, seed) in enumerate(runs):
        report(i / len(runs), f"{AGENTS[agent]}, seed {seed}")
        cells = visits(agent, seed, EPISODES[budget])
        seen: set[int] = set()
        for episode, path in enumerate(cells, 1):
            seen |= set(path.tolist())
            yield {"kind": "curve", "agent": agent, "seed": seed, "episode": episode, "distinct": len(seen)}
        if seed == 0:
            for cell, count in zip(*np.unique(cells, return_counts=True), strict=True):
                yield {"kind": "cell", "agent": agent, "cell": int(cell), "visits": int(count)}
    report(1.0, "")


def figure(rows: list[Row]) -> Figure:
    """Plot which cells each agent visited, and how fast.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1 + len(AGENTS), width=2.9, height=3.2, share=False)
    colors = {"eps_greedy": "#8a8f98", "bs": "#d03a2b", "bsp": "#1f5fb4"}
    curve = axes[0, -1]
    for axis, (agent, label) in zip(axes[0], AGENTS.items(), strict=False):
        grid = np.full(SIZE * SIZE, np.nan)
        cells = where(rows, kind="cell", agent=agent)
        grid[column(cells, "cell")] = np.log10(column(cells, "visits"))
        axis.imshow(grid.reshape(SIZE, SIZE), cmap="viridis", vmin=0)
        axis.plot([-0.5, SIZE - 0.5], [-0.5, SIZE - 0.5], color="#d03a2b", lw=0.7)
        axis.set(title=f"{label}\n{len(cells)} of {SIZE * (SIZE + 1) // 2} cells", xticks=[], yticks=[])
        for seed in sorted({row["seed"] for row in where(rows, kind="curve", agent=agent)}):
            mine = where(rows, kind="curve", agent=agent, seed=seed)
            words = label if seed == 0 else None
            curve.plot(column(mine, "episode"), column(mine, "distinct"), color=colors[agent], label=words)
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
