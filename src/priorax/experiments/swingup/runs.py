"""Common parts of figures 5 and 11: tasks on cartpole swing-up (section 4.2.2), their rows, and learning curves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes

from priorax.agents import Agent
from priorax.analysis.parallel import Task
from priorax.envs.jax.cartpole import CartpoleState, CartpoleSwingup
from priorax.replay import Transition
from priorax.report.intervals import median_interval
from priorax.report.plots import plain_ticks
from priorax.report.rows import Row, column, where
from priorax.training.backends.scan import ScanBackend
from priorax.training.records import Result

BLOCK = 10
"""Episodes per row."""
EVALUATE_EVERY = 50
"""Episodes between evaluations of the deployed policy."""
EVALUATIONS = 10
"""Episodes of each evaluation."""
LINEAR = 10
"""Where the logarithmic axis of returns begins."""
LEARNED = 300.0
"""Return of the deployed policy above which a run counts as learned; 1,000 is the highest conceivable."""
CELL = np.array([0.4, 1.5, 0.3, 0.75])
"""Resolution of angle, angular velocity, cart position and velocity at which states count as distinct."""


class NewTransitions:
    """The transitions that were inserted into replay since the last look."""

    def __init__(self) -> None:
        self.looked_at = 0

    def __call__(self, backend: ScanBackend) -> Transition:
        buffer = backend.live.replay
        stored, time = buffer.data.transition, int(buffer.time)
        capacity = len(stored.reward)
        slots = np.arange(max(self.looked_at, time - capacity), time) % capacity
        self.looked_at = time
        return jax.tree.map(lambda ring: np.asarray(ring[slots]), stored)


class Diagnostics:
    """Diagnostics of a run.

    The value of hanging at rest and of balancing, the members' disagreement there, the number of distinct states
    reached, the number of rewarded decisions so far, and the mean return of the deployed policy, without exploration.
    """

    def __init__(self) -> None:
        self.new = NewTransitions()
        self.cells: set[bytes] = set()
        self.rewarded = 0
        self.evaluated = -1
        self.greedy = np.nan

    def __call__(self, backend: ScanBackend) -> dict[str, float]:
        new = self.new(backend)
        obs = np.asarray(new.next_obs, float)
        place = np.stack([np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2], obs[:, 3], obs[:, 4]], axis=1)
        self.cells.update(row.tobytes() for row in np.floor(place / CELL).astype(np.int16))
        self.rewarded += int(np.sum(new.reward > 0))
        episodes = int(backend.live.episodes)
        if episodes // EVALUATE_EVERY > self.evaluated:
            self.evaluated = episodes // EVALUATE_EVERY
            self.greedy = float(np.mean(backend.evaluate(EVALUATIONS, "mean", episodes)))
        values = np.asarray(_values(backend.agent, backend.state))
        (rest, top), (rest_spread, top_spread) = values.mean(axis=0), values.std(axis=0)
        return {
            "value_at_rest": float(rest),
            "spread_at_rest": float(rest_spread),
            "value_at_top": float(top),
            "spread_at_top": float(top_spread),
            "cells": len(self.cells),
            "rewarded": self.rewarded,
            "greedy": self.greedy,
        }


@jax.jit
def _observations() -> Array:
    task = CartpoleSwingup()
    zero = jnp.zeros(())
    return jnp.stack(
        [task.observe(CartpoleState(zero, angle + zero, zero, zero, jnp.zeros((), int))) for angle in (np.pi, 0)]
    )


def _values(agent: Agent, state: Any) -> Array:
    """[function, (at rest, at the top)]."""
    key = jax.random.key(0)
    return jnp.max(agent.values(agent.deployed(state, key), key, _observations())[1], axis=-1)


def swingup_task(
    name: str, agent: str, seed: int, episodes: int, env: str = "cartpole_swingup", **changes: Any
) -> Task:
    """Define one run to its last episode.

    Args:
        name: Name of the run's group in the rows.
        agent: Name of the agent.
        seed: Random seed.
        episodes: Number of episodes.
        env: Name of the environment.
        **changes: Changed settings.

    Returns:
        The task.
    """
    arguments = {"agent": agent, "env": env, "size": 1, "seed": seed, "episodes": episodes, "changes": changes}
    return Task(name, {**arguments, "preset": "swingup", "probe": Diagnostics()})


def outcome(result: Result) -> list[dict[str, Any]]:
    """Make one row for each ten episodes: their mean return, and the diagnostics at their end.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    returns = [episode.total_return for episode in result.history]
    rows = []
    for end in range(BLOCK, len(returns) + 1, BLOCK):
        seen = next((probe for probe in result.probes if probe["episode"] >= end), result.probes[-1])
        block = returns[end - BLOCK : end]
        measured = {name: round(value, 4) for name, value in seen.items()}
        rows.append(
            {**measured, "episode": end, "mean_return": round(float(np.mean(block)), 3), "best": round(max(block), 3)}
        )
    return rows


def learning_curves(
    axis: Axes, rows: list[Row], looks: dict[str, tuple[str, str]], until: int | None = None, measure: str = "greedy"
) -> None:
    """Plot returns against episodes, one line for each seed of each agent.

    Args:
        axis: The axes to draw on.
        rows: Rows of the experiment.
        looks: Label and colour by name.
        until: Last episode to plot; then the axis of returns is logarithmic beyond `LINEAR`.
        measure: greedy: of the deployed policy, the mean of ten separate episodes; mean_return: while learning, the
            mean of ten episodes.
    """
    for name, (label, color) in looks.items():
        for i, seed in enumerate(sorted({row["seed"] for row in where(rows, name=name)})):
            mine = [row for row in where(rows, name=name, seed=seed) if until is None or row["episode"] <= until]
            words = label if i == 0 else None
            axis.plot(column(mine, "episode"), column(mine, measure), color=color, lw=1.3, alpha=0.85, label=words)
    axis.axhline(0, color="k", lw=0.6, ls=":")
    if until is not None:  # a run that learns early would hide all others
        axis.set_yscale("symlog", linthresh=LINEAR)
        plain_ticks(axis.yaxis)
    axis.set(
        xlabel="episode", ylabel="return of the deployed policy" if measure == "greedy" else "return while learning"
    )


def final_returns(rows: list[Row], name: str) -> dict[int, float]:
    """Return the mean return of the deployed policy at the end of each run, without exploration.

    Args:
        rows: Rows of the experiment.
        name: Name of the agent.

    Returns:
        The mean of its evaluation episodes by seed.
    """
    seeds = sorted({row["seed"] for row in where(rows, name=name)})
    return {seed: float(where(rows, name=name, seed=seed)[-1]["greedy"]) for seed in seeds}


def first_reward(rows: list[Row], name: str, seed: int) -> int | None:
    """Return when a run first balanced the pole.

    Args:
        rows: Rows of the experiment.
        name: Name of the agent.
        seed: The seed.

    Returns:
        The last episode of the first rewarded block; None if there is none.
    """
    mine = where(rows, name=name, seed=seed)
    return next((row["episode"] for row in mine if row["rewarded"] > 0), None)


def first_learned(rows: list[Row], name: str, seed: int) -> int | None:
    """Return when the deployed policy of a run first returned more than `LEARNED`.

    Args:
        rows: Rows of the experiment.
        name: Name of the agent.
        seed: The seed.

    Returns:
        The episode of that evaluation; None if there is none.
    """
    return next((row["episode"] for row in where(rows, name=name, seed=seed) if row["greedy"] > LEARNED), None)


HEADER = (
    "agent",
    "first rewarded by episode",
    "learned by episode",
    "return at the end, by seed",
    "median, 95% interval",
)


def lines(rows: list[Row], looks: dict[str, tuple[str, str]]) -> list[tuple[str, ...]]:
    """Tabulate the results of each agent.

    Args:
        rows: Rows of the experiment.
        looks: Label and colour by name.

    Returns:
        The table: a header, then rows.
    """
    found: list[tuple[str, ...]] = []
    for name, (label, _) in looks.items():
        last = final_returns(rows, name)
        if last:
            first, learned = (
                ", ".join(str(when(rows, name, seed) or "never") for seed in last)
                for when in (first_reward, first_learned)
            )
            returns = ", ".join(f"{value:.0f}" for value in last.values())
            found.append((label, first, learned, returns, median_interval(list(last.values())).words(".0f")))
    return found
