"""Action repeat (frame skip) for compiled environments."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.checks import positive_int


@dataclass(frozen=True)
class Held:
    """An environment that repeats each action `times` times, or until the episode ends, and sums the rewards.

    `info["steps"]` is the number of steps taken in `env`; all other attributes are those of `env`.
    """

    env: Any
    """The environment."""
    times: int
    """Steps for which each action is repeated."""

    def __post_init__(self) -> None:
        positive_int("times", self.times)

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not set yet while copying
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    @property
    def default_params(self) -> Any:
        return self.env.default_params

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[PyTree, PyTree]:
        return self.env.reset(key, params)

    def step(
        self, key: PRNGKeyArray, state: PyTree, action: Any, params: Any
    ) -> tuple[PyTree, PyTree, Array, Array, Array, dict[str, Any]]:
        first = self.env.step(key, state, action, params)

        def again(carry: Any, i: Array) -> Any:
            (obs, state, total, terminated, truncated, info), steps = carry
            on = ~(terminated | truncated)
            after = self.env.step(jax.random.fold_in(key, i), state, action, params)
            after = (*after[:2], total + after[2], *after[3:])
            now = (obs, state, total, terminated, truncated, info)
            return (jax.tree.map(lambda a, b: jnp.where(on, a, b), after, now), steps + on), None

        ones = jnp.ones((), int)
        (last, steps), _ = jax.lax.scan(again, (first, ones), jnp.arange(1, self.times))
        *rest, info = last
        obs, state, total, terminated, truncated = rest
        return obs, state, total, terminated, truncated, {**info, "steps": steps}
