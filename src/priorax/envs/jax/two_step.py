"""A minimal task with a choice and a bootstrap, on which every agent can be checked."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray


@dataclass(frozen=True)
class TwoStep:
    """Two states. The first leads to the second for any action; there the second action has reward 1, the first 0.

    With gamma = 0.9 the optimal values are 0.9 in the first state, and 0 and 1 in the second.
    """

    continuous: bool = False
    """Whether actions are numbers in [-1, 1], of which only the sign matters, and observations one-hot vectors."""

    @property
    def num_actions(self) -> int:
        return 1 if self.continuous else 2

    @property
    def num_states(self) -> int | None:
        return None if self.continuous else 2

    @property
    def action_bound(self) -> float | None:
        return 1.0 if self.continuous else None

    @property
    def horizon(self) -> int:
        return 2

    @property
    def default_params(self) -> None:
        return None

    def observe(self, state: Array) -> Array:
        """Return the observation of a state.

        Args:
            state: 0 or 1.
        """
        return jax.nn.one_hot(state, 2) if self.continuous else state

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Array, Array]:
        """Start in the first state.

        Args:
            key: Unused.
            params: Unused.
        """
        state = jnp.zeros((), int)
        return self.observe(state), state

    def step(
        self, key: PRNGKeyArray, state: Array, action: Any, params: Any
    ) -> tuple[Array, Array, Array, Array, Array, dict[str, Any]]:
        """Move to the second state, or end the episode.

        Args:
            key: Unused.
            state: 0 or 1.
            action: 0 or 1, or a number of which only the sign matters.
            params: Unused.
        """
        right = action[0] > 0 if self.continuous else action == 1
        done = state == 1
        after = 1 - state  # the end of an episode is the start of the next
        reward = jnp.where(done & right, 1.0, 0.0)
        seen = self.observe(after)
        return seen, after, reward, done, jnp.zeros((), bool), {"final_observation": seen}
