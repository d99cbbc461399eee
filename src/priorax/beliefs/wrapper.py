"""Base class of beliefs that wrap another belief, such as counts around an ensemble."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, BeliefState, Info, draw_values, index_values
from priorax.heads import Head


class Wrapper(Belief):
    """Base class of a belief around another one, whose state it shares and to which it delegates by default."""

    base: eqx.AbstractVar[Any]
    """The wrapped belief."""

    @property
    def head(self) -> Head:
        return self.base.head

    @property
    def network(self) -> Any:
        """The network of the wrapped belief, if it has one."""
        return self.base.network

    @property
    def num_outputs(self) -> int:
        return self.base.num_outputs

    @property
    def num_streams(self) -> int:
        return self.base.num_streams

    @property
    def by_gradient(self) -> bool:
        return self.base.by_gradient

    @property
    def num_members(self) -> int | None:
        return self.base.num_members

    @property
    def draws_members(self) -> bool:
        """As for the wrapped belief, unless a subclass overrides `draw`."""
        return type(self).draw is Wrapper.draw and self.base.draws_members

    @property
    def acts_on_forward(self) -> bool:
        """As for the wrapped belief, unless a subclass overrides `draw` or `value`."""
        return self.draws_members and type(self).value is Wrapper.value and self.base.acts_on_forward

    @property
    def has_prior(self) -> bool:
        return self.base.has_prior

    @property
    def prior_scale(self) -> float | Float[Array, ""]:
        return self.base.prior_scale

    @property
    def stores_prior(self) -> bool:
        return self.base.stores_prior

    @property
    def pairs_targets(self) -> bool:
        return self.base.pairs_targets

    @property
    def pays_bonus(self) -> bool:
        return self.base.pays_bonus

    @property
    def observes(self) -> bool:
        return type(self).observe is not Wrapper.observe or self.base.observes

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        return self.base.init(key, x)

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree:
        return self.base.draw(state, key)

    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        return self.base.value(state, index, x)

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        return self.base.forward(state, key, x, prior, shared)

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        return self.base.update(state, batch, key)

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        return self.base.observe(state, batch)

    def member_output(self, state: BeliefState, index: Int[Array, ""], x: Any) -> Float[Array, "output size"]:
        return self.base.member_output(state, index, x)

    def member_axes(self, state: BeliefState) -> BeliefState:
        return self.base.member_axes(state)

    def prior_values(self, state: BeliefState, x: Any) -> Float[Array, "stream batch output prior"] | None:
        return self.base.prior_values(state, x)

    def prior_spread(self, state: BeliefState, x: Any) -> Float[Array, "batch output"]:
        return self.base.prior_spread(state, x)

    def reward_bonus(self, state: BeliefState, x: Any) -> Float[Array, " batch"]:
        return self.base.reward_bonus(state, x)

    def functions(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "function batch output"]:
        # by this class's own `value`, so that deployment agrees with acting
        if not self.draws_members:
            return draw_values(self, state, key, x, num_draws)
        return index_values(self, state, jnp.arange(self.base.num_members), x)

    def spread(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "batch output"]:
        return self.base.spread(state, key, x, num_draws)

    def check_learning(self, shared_batch: bool, lagged: bool, prioritised: bool) -> None:
        self.base.check_learning(shared_batch, lagged, prioritised)
