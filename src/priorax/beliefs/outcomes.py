"""Reading a distributional head as if it were a posterior: the mistake of lemma 5, for measuring it.

'Distributional RL' itself is `Ensemble(num_members=1, head=C51(...))` or `Quantiles(...)`, greedy on the mean.
"""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Info, State
from priorax.beliefs.ensemble import Ensemble
from priorax.heads import Head


class Outcomes(eqx.Module):
    """Thompson sampling over outcomes: a draw is a quantile level for each output, apart from each other."""

    base: Ensemble
    """Whose head is read."""

    @property
    def head(self) -> Head:
        return self.base.head

    @property
    def num_outputs(self) -> int:
        return self.base.num_outputs

    @property
    def num_streams(self) -> int:
        return self.base.num_streams

    @property
    def by_gradient(self) -> bool:
        return self.base.by_gradient

    def init(self, key: PRNGKeyArray, x: Any) -> State:
        return self.base.init(key, x)

    def draw(self, state: State, key: PRNGKeyArray) -> PyTree:
        """A member and the quantile level of each output."""
        key_member, key_level = jax.random.split(key)
        return self.base.draw(state, key_member), jax.random.uniform(key_level, (self.num_outputs,))

    def value(self, state: State, index: PyTree, x: Any) -> Float[Array, " output"]:
        member, level = index
        params, frozen = jax.tree.map(lambda leaf: leaf[member], (state.params, state.frozen))
        return jax.vmap(self.head.quantile)(self.base.output(params, frozen, x), level)

    def forward(
        self, state: State, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        return self.base.forward(state, key, x, prior, shared)

    def observe(self, state: State, batch: Batch) -> State:
        return self.base.observe(state, batch)

    def losses(self, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        return self.base.losses(state, batch, key)

    def update(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Info]:
        return self.base.update(state, batch, key)
