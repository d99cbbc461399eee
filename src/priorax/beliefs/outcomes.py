"""Reading a distributional head as if it were a posterior: the mistake of lemma 5, for measuring it.

'Distributional RL' itself is `Ensemble(num_members=1, head=C51(...))` or `Quantiles(...)`, greedy on the mean.
"""

from typing import Any

import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, BeliefState, Wrapper
from priorax.beliefs.ensemble import Ensemble
from priorax.beliefs.shared_torso import SharedTorso


class Outcomes(Wrapper):
    """Thompson sampling over outcomes: a draw is a quantile level for each output, apart from each other."""

    base: Ensemble | SharedTorso
    """Whose head is read."""

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        return self.base.init(key, x)

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree:
        """A member and the quantile level of each output."""
        key_member, key_level = jax.random.split(key)
        return self.base.draw(state, key_member), jax.random.uniform(key_level, (self.num_outputs,))

    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        member, level = index
        return jax.vmap(self.head.quantile)(self.base.member_output(state, member, x), level)

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        return self.base.observe(state, batch)
