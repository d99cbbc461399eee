"""Your own compiled environment: a corridor with a small reward nearby and a large one far away."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from priorax import train


class State(NamedTuple):
    place: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Corridor:
    """Action 1 moves right, action 0 left. The reward is 0.001 at the left end and 1 at the right end."""

    length: int = 12
    num_actions: int = 2
    default_params: Any = None

    @property
    def num_states(self) -> int:  # observations are state indices: networks become tables
        return self.length

    @property
    def horizon(self) -> int:
        return self.length + 4

    def reset(self, key, params):
        start = State(jnp.ones((), int), jnp.zeros((), int))
        return start.place, start

    def step(self, key, state, action, params):
        place = jnp.clip(state.place + 2 * action - 1, 0, self.length - 1)
        after = State(place, state.time + 1)
        reward = jnp.where(place == self.length - 1, 1.0, jnp.where(place == 0, 0.001, 0.0))
        terminated = after.time == self.horizon
        first, start = self.reset(key, params)
        following = jax.tree.map(lambda a, b: jnp.where(terminated, a, b), start, after)
        seen = jnp.where(terminated, first, place)
        truncated = jnp.zeros((), bool)
        return seen, following, reward, terminated, truncated, {"final_observation": place}


run = train("bsp", Corridor(), seed=0, episodes=100)
print(f"return of the first episode {run.history[0].total_return:.3f}, of the last {run.history[-1].total_return:.3f}")
assert run.history[-1].total_return > 4
