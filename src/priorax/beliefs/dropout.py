"""Dropout as a posterior (section 2.1, appendix C.1): one network with Bernoulli masks on the hidden units."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, BeliefState, Info, check_number
from priorax.beliefs.gradient import Adam, Optimizer, as_optimizer, gradient_step, shape_output, stream_losses
from priorax.beliefs.regularization import L2
from priorax.checks import fraction
from priorax.heads import Head, Scalar, values_of
from priorax.networks import MLP, Table


def _share(name: str, value: object) -> float:
    return 1.0 if value == 1 else fraction(name, value)


class Dropout(Belief):
    """Dropout as a posterior: a draw is one mask, fixed for the life of the draw; training draws one per example and
    step.
    """

    p_keep: float | Float[Array, ""] = 0.5
    """Probability that a unit is kept; kept units are scaled by 1/p_keep."""
    network: MLP | Table = eqx.field(static=True, default=MLP())
    """A network with hidden layers, to which the masks apply."""
    l2: L2 | None = None
    """The regulariser R of equation (1), added to the mean loss: `L2(to="zero")` for the usual lambda |theta|²."""
    head: Head = eqx.field(static=True, default=Scalar())
    """Interpretation of an output."""
    num_outputs: int = eqx.field(static=True, default=1)
    """Number of regression targets, or of actions."""
    optimizer: Optimizer = eqx.field(default=Adam(), converter=as_optimizer)
    """Optimiser of the weights."""

    def __check_init__(self) -> None:
        check_number(_share, "p_keep", self.p_keep)

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        if not isinstance(self.network, MLP | Table) or not self.network.widths:
            raise ValueError(f"network={self.network!r} has no hidden layer for dropout; pass MLP((20, 20))")
        key_net, key_anchor = jax.random.split(key)
        num_out = self.num_outputs * self.head.size
        params = self.network.init(key_net, x, num_out)
        anchor = () if self.l2 is None else self.l2.anchor(self.network, key_anchor, x, num_out, params)
        return BeliefState(params, anchor, self.optimizer.init(params))

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> tuple[Float[Array, " unit"], ...]:
        """Draw a mask for every hidden layer.

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            The masks.
        """
        widths = self.network.widths
        kept = jax.random.bernoulli(key, self.p_keep, (sum(widths),)) / self.p_keep
        return tuple(jnp.split(kept, list(itertools.accumulate(widths))[:-1]))

    def output(self, params: PyTree, masks: tuple[Array, ...], x: Any) -> Float[Array, "output size"]:
        """Evaluate the network under one mask at ONE input.

        Args:
            params: Weights of the network.
            masks: A mask for every hidden layer.
            x: One input, without batch axis.

        Returns:
            `head.size` numbers for each output.
        """
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

    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        losses = stream_losses(self.head, self.forward(state, key, batch.x, None, batch.shared), batch)
        if self.l2 is None:
            return losses
        return losses + self.l2.penalty(state.params, state.frozen, batch.count[0], reading="coefficient")

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        return gradient_step(self, state, batch, key)
