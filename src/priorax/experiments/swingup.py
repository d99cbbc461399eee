"""What figures 5 and 11 share: runs on cartpole swing-up (section 4.2.2), what is written of them, learning curves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes

from priorax.agents import QLearner
from priorax.analysis.parallel import Task
from priorax.beliefs import belief_values
from priorax.envs.jax.cartpole import CartpoleState, CartpoleSwingup
from priorax.report.rows import Row, column, where
from priorax.training.backends.scan import Live, Loop
from priorax.training.trainer import Result

BLOCK = 10
"""Episodes per row."""
CELL = np.array([0.4, 1.5, 0.3, 0.75])
"""Of angle, its speed, the cart's place and its speed: how far states are apart that count as distinct."""


class Diagnostics:
    """Why a run does what it does: what it thinks of hanging at rest and of balancing, how far its members disagree
    there, how many distinct states it has reached, and how much of its replay is rewarded."""

    def __init__(self) -> None:
        self.cells: set[bytes] = set()
        self.looked_at = 0

    def __call__(self, loop: Loop, live: Live) -> dict[str, float]:
        buffer = live.agent.buffer
        capacity, time = loop.agent.buffer.capacity, int(buffer.time)
        stored = getattr(buffer.data, "transition", buffer.data)
        slots = np.arange(max(self.looked_at, time - capacity), time) % capacity
        self.looked_at = time
        obs = np.asarray(stored.next_obs[slots], float)
        place = np.stack([np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2], obs[:, 3], obs[:, 4]], axis=1)
        self.cells.update(row.tobytes() for row in np.floor(place / CELL).astype(np.int16))
        values = np.asarray(_values(loop, live.agent))
        (rest, top), (rest_spread, top_spread) = values.mean(axis=0), values.std(axis=0)
        return {
            "value_at_rest": float(rest),
            "spread_at_rest": float(rest_spread),
            "value_at_top": float(top),
            "spread_at_top": float(top_spread),
            "cells": len(self.cells),
            "rewarded_share": float(jnp.sum(stored.reward > 0)) / max(min(time, capacity), 1),
        }


@jax.jit
def _observations() -> Array:
    task = CartpoleSwingup()
    zero = jnp.zeros(())
    return jnp.stack(
        [task.observe(CartpoleState(zero, angle + zero, zero, zero, jnp.zeros((), int))) for angle in (np.pi, 0)]
    )


def _values(loop: Loop, state: Any) -> Array:
    """[member, (at rest, at the top)]; one member where there is no belief."""
    obs, agent = _observations(), loop.agent
    if isinstance(agent, QLearner):
        return jnp.max(belief_values(agent.belief, state.belief, jax.random.key(0), obs), axis=-1)
    return jnp.max(agent.mean_values(state, jax.random.key(0), obs), axis=-1)[None]


def swingup_task(
    name: str, agent: str, seed: int, episodes: int, env: str = "cartpole_swingup", **changes: Any
) -> Task:
    """One run to its last episode."""
    arguments = {"agent": agent, "env": env, "size": 1, "seed": seed, "episodes": episodes, "changes": changes}
    return Task(name, {**arguments, "preset": "swingup", "probe": Diagnostics()})


def outcome(result: Result) -> list[dict[str, Any]]:
    """A row for each ten episodes: their mean return, and the diagnostics at their end."""
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


def learning_curves(axis: Axes, rows: list[Row], looks: dict[str, tuple[str, str]], until: int | None = None) -> None:
    """A line for each seed of each agent, their mean return against episodes."""
    for name, (label, color) in looks.items():
        for i, seed in enumerate(sorted({row["seed"] for row in where(rows, name=name)})):
            mine = [row for row in where(rows, name=name, seed=seed) if until is None or row["episode"] <= until]
            words = label if i == 0 else None
            axis.plot(
                column(mine, "episode"), column(mine, "mean_return"), color=color, lw=1.3, alpha=0.85, label=words
            )
    axis.axhline(0, color="k", lw=0.6, ls=":")
    axis.set(xlabel="episode", ylabel=f"return, mean of {BLOCK} episodes")


def last_returns(rows: list[Row], name: str, episodes: int = 50) -> dict[int, float]:
    """Of each seed, the mean return over its last episodes."""
    seeds = sorted({row["seed"] for row in where(rows, name=name)})
    blocks = episodes // BLOCK
    return {seed: float(np.mean(column(where(rows, name=name, seed=seed), "mean_return")[-blocks:])) for seed in seeds}


def first_reward(rows: list[Row], name: str, seed: int) -> int | None:
    """The end of the block of episodes in which the pole was first balanced; None: never."""
    mine = where(rows, name=name, seed=seed)
    return next((row["episode"] for row in mine if row["rewarded_share"] > 0), None)


HEADER = ("agent", "first balanced by episode", "mean return of last 50, by seed")


def lines(rows: list[Row], looks: dict[str, tuple[str, str]]) -> list[tuple[str, ...]]:
    """What came of each agent."""
    found: list[tuple[str, ...]] = []
    for name, (label, _) in looks.items():
        last = last_returns(rows, name)
        if last:
            first = ", ".join(str(first_reward(rows, name, seed) or "never") for seed in last)
            found.append((label, first, ", ".join(f"{value:.0f}" for value in last.values())))
    return found
