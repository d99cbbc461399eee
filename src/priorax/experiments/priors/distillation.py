"""One network instead of twenty: what is lost when the ensemble of a trained agent is distilled (`priorax.distil`).

The paper asks whether an ensemble can be distilled into a single network. BSP is trained, then distilled at the
observations that its members visit, with several numbers of directions of spread. Measured are the returns of both
deployed policies in the same episodes, how often they choose the same action, how well the ranking of uncertainties
survives, and the time of one decision.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from priorax.agents import settings
from priorax.analysis.parallel import Task
from priorax.envs import make_world
from priorax.report.intervals import mean_interval, median_interval
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, column, where
from priorax.training.backends.host import play
from priorax.training.distil import distil, visited
from priorax.training.policy import Policy
from priorax.training.trainer import train

DIRECTIONS = (0, 1, 2, 4, 8)
"""Directions of spread that are kept."""
SEEDS = {"quick": range(100, 101), "full": range(100, 105)}
STEPS = {"quick": 2000, "full": 20000}
"""Optimiser steps of each distillation."""
EPISODES = 20
"""Episodes that both policies play."""
LANES = 8


class Setting(NamedTuple):
    """A task on which an agent is trained and distilled."""

    label: str
    size: int
    length: dict[str, dict[str, int]]
    """Length of training by budget: episodes or steps."""
    visits: int
    """Steps of each of eight environments in which observations are collected; 0: all states that can be reached."""
    color: str


TASKS = {
    "deep_sea": Setting(
        "DeepSea 10", 10, {"quick": {"episodes": 60}, "full": {"episodes": 300}}, visits=0, color="#1f5fb4"
    ),
    "gymnasium:CartPole-v1": Setting(
        "CartPole", 1, {"quick": {"steps": 2000}, "full": {"steps": 30000}}, visits=500, color="#d95f02"
    ),
    "cartpole_swingup_wide": Setting(
        "swing-up, wider region", 1, {"quick": {"episodes": 3}, "full": {"episodes": 600}}, visits=1000, color="#4daf4a"
    ),
}


def ladders(budget: str) -> list[Any]:
    """List every task and seed separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [[Task("bsp", {"env": env, "seed": seed, "length": about.length[budget], "steps": STEPS[budget]}, measure)]]
        for env, about in TASKS.items()
        for seed in SEEDS[budget]
    ]


def measure(env: str, seed: int, length: dict[str, int], steps: int) -> list[dict[str, Any]]:
    """Train an agent, distil it with each number of directions, and compare.

    Args:
        env: Name of the environment, one of `TASKS`.
        seed: Random seed.
        length: Length of training, `episodes` or `steps`.
        steps: Optimiser steps of each distillation.

    Returns:
        One row per number of directions.
    """
    about = TASKS[env]
    run = train("bsp", env, size=about.size, seed=seed, episodes=length.get("episodes"), steps=length.get("steps"))
    hold = settings("bsp", run.preset).hold

    def world(lanes: int) -> Any:
        return make_world(env, lanes, size=about.size, seed=seed, hold=hold)

    obs = visited(run.policy, world(LANES), about.visits, seed) if about.visits else _reachable(about.size)
    teacher = _played(run.policy, world, seed)
    rows = []
    for directions in DIRECTIONS:
        found = distil(run.policy, obs, directions=directions, steps=steps, seed=seed)
        row = {"env": env, "seed": seed, "directions": directions, "observations": len(obs)}
        measured = {
            "agreement": found.agreement,
            "spread_correlation": found.spread_correlation if directions else "",
            "explained": found.explained,
            **{f"ensemble_{name}": value for name, value in teacher.items()},
            **{f"distilled_{name}": value for name, value in _played(found.policy, world, seed).items()},
        }
        rows.append({**row, **{name: _rounded(value) for name, value in measured.items()}})
    return rows


def _reachable(size: int) -> np.ndarray:
    """List the states of DeepSea that can be reached: those on and below the diagonal of the grid."""
    row, column = np.divmod(np.arange(size**2), size)
    return np.flatnonzero(column <= row)


def _rounded(value: Any) -> Any:
    return value if value == "" else round(float(value), 5)


def _played(policy: Policy, world: Callable[[int], Any], seed: int) -> dict[str, float]:
    """Measure the mean return of a policy, and the milliseconds of one decision."""
    returns = play(policy.agent, policy.state, world(LANES), EPISODES, "mean", seed)
    obs = world(1).reset(seed)
    policy.values_of(obs)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        policy.values_of(obs)
        times.append(time.perf_counter() - start)
    return {"return": float(np.mean(returns)), "ms": 1e3 * float(np.median(times))}


def figure(rows: list[Row]) -> Figure:
    """Plot the return that is kept, and the rank correlation of uncertainties, against the number of directions.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=4.2, height=3.2, share=False)
    for env, about in TASKS.items():
        mine = where(rows, env=env)
        if not mine:
            continue
        for axis, name in ((axes[0, 0], "return"), (axes[0, 1], "spread_correlation")):
            kept = sorted({row["directions"] for row in mine if row["directions"] > 0 or name == "return"})
            measured = {d: _measured(where(mine, directions=d), name) for d in kept}
            kept = [d for d in kept if measured[d]]
            found = [mean_interval(measured[d]) for d in kept]
            axis.plot(kept, [one.value for one in found], "o-", ms=4, color=about.color, label=about.label)
            axis.fill_between(
                kept, [one.low for one in found], [one.high for one in found], color=about.color, alpha=0.15, lw=0
            )
    axes[0, 0].axhline(1, color="k", lw=0.6, ls=":")
    axes[0, 0].set(xlabel="directions of spread", ylabel="return, as a fraction of the ensemble's")
    axes[0, 1].set(xlabel="directions of spread", ylabel="rank correlation of uncertainties")
    legend_below(drawing, axes[0, 0])
    return drawing


def _measured(rows: list[Row], name: str) -> list[float]:
    if name == "return":  # of ensembles that learned: a fraction of nothing says nothing
        return [row["distilled_return"] / row["ensemble_return"] for row in rows if row["ensemble_return"] > 0]
    return column(rows, name)


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate medians over seeds, with intervals.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    header = (
        "task",
        "directions",
        "return",
        "ensemble's return",
        "same action",
        "rank correlation",
        "ms",
        "ensemble's",
    )
    table: list[tuple[str, ...]] = [header]
    for env, about in TASKS.items():
        for directions in sorted({row["directions"] for row in where(rows, env=env)}):
            mine = where(rows, env=env, directions=directions)
            returns = [median_interval(column(mine, f"{of}_return")).words(".3g") for of in ("distilled", "ensemble")]
            agreement = median_interval(column(mine, "agreement")).words(".2f")
            ranks = median_interval(column(mine, "spread_correlation")).words(".2f") if directions else ""
            times = [f"{np.median(column(mine, f'{of}_ms')):.2f}" for of in ("distilled", "ensemble")]
            table.append((about.label, str(directions), *returns, agreement, ranks, *times))
    return table
