"""Dropout as posterior (section 2.1, appendix C.1): one network, a Bernoulli mask on the hidden units."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import (
    L2,
    Adam,
    Batch,
    BeliefState,
    Info,
    Optimizer,
    as_optimizer,
    check_number,
    gradient_step,
    shape_output,
    stream_losses,
    values_of,
)
from priorax.checks import fraction
from priorax.heads import Head, Scalar
from priorax.networks import MLP, Table


def _share(name: str, value: object) -> float:
    return 1.0 if value == 1 else fraction(name, value)


class Dropout(eqx.Module):
    """A draw is one mask, kept for as long as the draw is; training draws one per example and step."""

    p_keep: float | Float[Array, ""] = 0.5
    """Probability that a unit stays; what stays is scaled by 1/p_keep."""
    network: MLP | Table = eqx.field(static=True, default=MLP())
    """A perceptron with hidden layers: the masks sit on them."""
    l2: L2 | None = None
    """The regulariser R of equation (1), beside the mean loss: `L2(to="zero")` for the usual lambda |theta|²."""
    head: Head = eqx.field(static=True, default=Scalar())
    num_outputs: int = eqx.field(static=True, default=1)
    optimizer: Optimizer = eqx.field(default=Adam(), converter=as_optimizer)

    def __check_init__(self) -> None:
        check_number(_share, "p_keep", self.p_keep)

    @property
    def num_streams(self) -> int:
        return 1

    @property
    def by_gradient(self) -> bool:
        return True

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        if not isinstance(self.network, MLP | Table) or not self.network.widths:
            raise ValueError(f"network={self.network!r} has no hidden layer to drop units of; pass MLP((20, 20))")
        key_net, key_anchor = jax.random.split(key)
        num_out = self.num_outputs * self.head.size
        params = self.network.init(key_net, x, num_out)
        anchor = () if self.l2 is None else self.l2.anchor(self.network, key_anchor, x, num_out, params)
        return BeliefState(params, anchor, self.optimizer.init(params))

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> tuple[Float[Array, " unit"], ...]:
        """A mask for every hidden layer."""
        widths = self.network.widths
        kept = jax.random.bernoulli(key, self.p_keep, (sum(widths),)) / self.p_keep
        return tuple(jnp.split(kept, list(itertools.accumulate(widths))[:-1]))

    def output(self, params: PyTree, masks: tuple[Array, ...], x: Any) -> Float[Array, "output size"]:
        """The network under one mask at ONE input."""
        return shape_output(self.network.apply(params, x, masks), self.num_outputs, self.head.size)

    def value(self, state: BeliefState, index: tuple[Array, ...], x: Any) -> Float[Array, " output"]:
        return values_of(self.head, self.output(state.params, index, x))

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        rows = x if shared else jax.tree.map(lambda leaf: leaf[0], x)
        keys = jax.random.split(key, jax.tree.leaves(rows)[0].shape[0])
        masks = jax.vmap(lambda k: self.draw(state, k))(keys)
        return jax.vmap(lambda m, row: self.output(state.params, m, row))(masks, rows)[None]

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        return state

    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        losses = stream_losses(self.head, self.forward(state, key, batch.x, None, batch.shared), batch)
        if self.l2 is None:
            return losses
        return losses + self.l2.penalty(state.params, state.frozen, batch.count[0], reading="coefficient")

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        return gradient_step(self, state, batch, key)
