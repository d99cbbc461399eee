"""bsuite's score of `bsp` on its `cartpole_swingup`: 20 difficulties, 1,000 episodes each; and a published comparison.

Half of a difficulty's score is the return as a fraction of 700 per episode, half is given if an episode returned more
than 100. It is run on our compiled port; `priorax bsuite --sweep cartpole_swingup` runs bsuite's own environment.

The comparison is that of Russo and Proutiere (2023), "Model-free active exploration in reinforcement learning": the
number of rewarded steps in 200 episodes at two difficulties, over 20 seeds, where their DBMF-BPI has the most.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.envs.jax.bsuite_cartpole import NUM_DIFFICULTIES
from priorax.experiments.bsuite.rules import GOOD_EPISODE, published_scores, swingup_score
from priorax.experiments.sweep import task
from priorax.experiments.swingup.runs import NewTransitions
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, where
from priorax.training.backends.scan import ScanBackend
from priorax.training.records import Result

DIFFICULTIES = {"quick": (0, 5, 10, 15, 19), "full": tuple(range(NUM_DIFFICULTIES))}
EPISODES = {"quick": 300, "full": 1000}
STUDY_SEEDS = {"quick": 1, "full": 20}
STUDY_EPISODES = 200
PUBLISHED_STEPS = {5: 58_000, 10: 31_000}
"""Rewarded steps of DBMF-BPI by difficulty, read off a figure."""


class RewardedSteps:
    """Counts the rewarded steps of a run. A step is rewarded by 1, and an action that moves costs 0.1 per step."""

    def __init__(self) -> None:
        self.new = NewTransitions()
        self.steps = 0

    def __call__(self, backend: ScanBackend) -> dict[str, float]:
        self.steps += int(np.maximum(np.ceil(self.new(backend).reward - 1e-3), 0).sum())
        return {"rewarded_steps": float(self.steps)}


def ladders(budget: str) -> list[Any]:
    """List every difficulty separately, then the runs of the comparison; bsuite's difficulty k is our size k + 1.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    scored = [_task("bsp", k, 0, EPISODES[budget]) for k in DIFFICULTIES[budget]]
    seeds = range(STUDY_SEEDS[budget])
    compared = [_task("200 episodes", k, 100 + seed, STUDY_EPISODES) for k in PUBLISHED_STEPS for seed in seeds]
    return [[[one]] for one in (*scored, *compared)]


def _task(name: str, difficulty: int, seed: int, episodes: int) -> Any:
    found = task(name, "bsp", difficulty + 1, seed, episodes, env="bsuite_cartpole_swingup")
    return found.asking(preset="swingup", stop_when_learned=False, probe=RewardedSteps())


def outcome(result: Result) -> list[dict[str, Any]]:
    """Make one row: the mean return, that of the best episode and of the last 50, and the number of rewarded steps.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    returns = [episode.total_return for episode in result.history]
    wanted = {"mean_return": np.mean(returns), "best": np.max(returns), "last_50": np.mean(returns[-50:])}
    counted = {"episodes": result.episodes, "rewarded_steps": result.probes[-1]["rewarded_steps"]}
    return [{**{name: round(float(value), 2) for name, value in wanted.items()}, **counted}]


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
    rows = sorted(where(rows, name="bsp"), key=lambda row: row["size"])
    places = [row["size"] - 1 for row in rows]
    for name, color, words in (
        ("best", "#9ecae1", "the best episode"),
        ("last_50", "#1f5fb4", "mean of the last 50"),
        ("mean_return", "#8a8f98", "mean of all"),
    ):
        axis.plot(places, [row[name] for row in rows], "o-", ms=4, color=color, label=words)
    axis.axhline(GOOD_EPISODE, color="k", lw=0.6, ls=":", label=f"{GOOD_EPISODE:g} in any episode: half of the score")
    total = np.mean([score(row) for row in rows])
    axis.set(xlabel="bsuite's difficulty", ylabel="return of an episode", xlim=(-0.5, NUM_DIFFICULTIES - 0.5))
    axis.set_xticks(places)
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
    scored = sorted(where(rows, name="bsp"), key=lambda row: row["size"])
    for row in scored:
        numbers = (f"{row['mean_return']:.0f}", f"{row['best']:.0f}", f"{row['last_50']:.0f}", f"{score(row):.2f}")
        table.append((str(row["size"] - 1), *numbers))
    name = f"all (bsuite's boot_dqn: {published_scores('cartpole_swingup')})"
    table.append((name, "", "", "", f"{np.mean([score(row) for row in scored]):.2f}"))
    for difficulty, published in PUBLISHED_STEPS.items():
        steps = [row["rewarded_steps"] for row in where(rows, name="200 episodes", size=difficulty + 1)]
        if steps:
            words = f"{difficulty}: rewarded steps in {STUDY_EPISODES} episodes, mean of {len(steps)} seeds"
            table.append((f"{words} (DBMF-BPI {published:,})", "", "", "", f"{np.mean(steps):,.0f}"))
    return table
