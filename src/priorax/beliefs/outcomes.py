"""Reading a distributional head as if it were a posterior: the error of lemma 5, for comparison.

Distributional RL itself is `Ensemble(num_members=1, head=C51(...))` or `Quantiles(...)`, greedy on the mean.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import Belief, BeliefState
from priorax.beliefs.wrapper import Wrapper


class Outcomes(Wrapper):
    """Thompson sampling over outcomes: a draw is an independent quantile level for each output."""

    base: Belief
    """The belief whose head is sampled: an ensemble, of one member or more."""

    def __check_init__(self) -> None:
        if not self.base.draws_members:
            raise ValueError(
                f"base={type(self.base).__name__} has no members whose outcomes could be sampled; "
                "use an ensemble, such as Ensemble(num_members=1, head=C51())"
            )

    @property
    def draws_members(self) -> bool:
        return False

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree:
        """Draw a member and a quantile level for each output.

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            The draw.
        """
        key_member, key_level = jax.random.split(key)
        return self.base.draw(state, key_member), jax.random.uniform(key_level, (self.num_outputs,))

    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        member, level = index
        return jax.vmap(self.head.quantile)(self.base.member_output(state, member, x), level)

    def spread(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "batch output"]:
        return jnp.std(self.functions(state, key, x, num_draws), axis=0)
