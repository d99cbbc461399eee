"""bsuite's score of `bsp` on its `cartpole_swingup`: 20 difficulties, 1,000 episodes each.

Half of a difficulty's score is the return as a fraction of 700 per episode, half is given if an episode returned more
than 100. It is run on our compiled port; `priorax bsuite --sweep cartpole_swingup` runs bsuite's own environment.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.envs.jax.bsuite_cartpole import NUM_DIFFICULTIES
from priorax.experiments.bsuite_rules import GOOD_EPISODE, published_scores, swingup_score
from priorax.experiments.sweep import task
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row
from priorax.training.records import Result

DIFFICULTIES = {"quick": (0, 5, 10, 15, 19), "full": tuple(range(NUM_DIFFICULTIES))}
EPISODES = {"quick": 300, "full": 1000}


def ladders(budget: str) -> list[Any]:
    """List every difficulty separately; bsuite's difficulty k is our size k + 1.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    make = {"env": "bsuite_cartpole_swingup"}
    return [
        [[task("bsp", "bsp", k + 1, 0, EPISODES[budget], **make).asking(preset="swingup", stop_when_learned=False)]]
        for k in DIFFICULTIES[budget]
    ]


def outcome(result: Result) -> list[dict[str, Any]]:
    """Make one row: the total return, and that of the best episode.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    returns = [episode.total_return for episode in result.history]
    wanted = {"mean_return": np.mean(returns), "best": np.max(returns), "last_50": np.mean(returns[-50:])}
    return [{**{name: round(float(value), 2) for name, value in wanted.items()}, "episodes": result.episodes}]


def score(row: Row) -> float:
    """Compute bsuite's score of one difficulty.

    Args:
        row: Row of the difficulty.

    Returns:
        The score.
    """
    return swingup_score(row["mean_return"], row["best"])


def figure(rows: list[Row]) -> Figure:
    """Plot the return of each difficulty.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=6.0, height=3.6)
    axis = axes[0, 0]
    rows = sorted(rows, key=lambda row: row["size"])
    where = [row["size"] - 1 for row in rows]
    for name, color, words in (
        ("best", "#9ecae1", "the best episode"),
        ("last_50", "#1f5fb4", "mean of the last 50"),
        ("mean_return", "#8a8f98", "mean of all"),
    ):
        axis.plot(where, [row[name] for row in rows], "o-", ms=4, color=color, label=words)
    axis.axhline(GOOD_EPISODE, color="k", lw=0.6, ls=":")
    total = np.mean([score(row) for row in rows])
    axis.set(xlabel="bsuite's difficulty", ylabel="return of an episode", xlim=(-0.5, NUM_DIFFICULTIES - 0.5))
    axis.set_xticks(where)
    axis.set_title(f"bsuite cartpole_swingup, BSP: score {total:.2f}")
    legend_below(drawing, axis)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the scores of each difficulty and of all.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("difficulty", "mean return", "best episode", "last 50", "score")]
    for row in sorted(rows, key=lambda row: row["size"]):
        numbers = (f"{row['mean_return']:.0f}", f"{row['best']:.0f}", f"{row['last_50']:.0f}", f"{score(row):.2f}")
        table.append((str(row["size"] - 1), *numbers))
    name = f"all (bsuite's boot_dqn: {published_scores('cartpole_swingup')})"
    table.append((name, "", "", "", f"{np.mean([score(row) for row in rows]):.2f}"))
    return table
