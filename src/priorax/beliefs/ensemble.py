"""Ensembles: naive, bootstrap (BS), bootstrap + l2 (BSR), bootstrap + prior function (BSP). Settings of one belief.

The data noise is not here: it is drawn when the data set is formed (`priorax.noise`). One member with a
distributional head is 'distributional RL'; one with a scalar head is DQN.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.base import (
    L2,
    Adam,
    Batch,
    Info,
    Optimizer,
    State,
    check_number,
    check_output,
    gradient_step,
    shape_output,
    stream_losses,
    values_of,
)
from priorax.beliefs.sparse_rows import SparseParams, read, sparse_params, write
from priorax.checks import non_negative, positive_int
from priorax.heads import Head, Scalar
from priorax.networks import MLP, Network, Table, as_network


class Frozen(NamedTuple):
    """What training never touches, one per member."""

    prior: PyTree
    anchor: PyTree
    buffers: PyTree
    """Arrays of a user's network that are not weights (integers)."""


def _as_prior(prior: Any) -> Network | None:
    return None if prior is None else as_network(prior)


class Ensemble(eqx.Module):
    """K members, Q_k = f_theta_k + prior_scale * p_k (algorithm 1)."""

    num_members: int = eqx.field(static=True, default=20)
    """K."""
    network: Network = eqx.field(static=True, default=MLP(), converter=as_network)
    """f: the trainable function, or an (init, apply) pair."""
    prior: Network | None = eqx.field(static=True, default=None, converter=_as_prior)
    """Where p_k is drawn from; None: no prior function."""
    prior_scale: float | Float[Array, ""] = 1.0
    """beta: multiplies the prior function."""
    l2: L2 | None = None
    """The pull towards an anchor; None: none."""
    head: Head = eqx.field(static=True, default=Scalar())
    """What an output means."""
    num_outputs: int = eqx.field(static=True, default=1)
    """Targets of a regression, or actions."""
    optimizer: Optimizer = eqx.field(static=True, default=Adam())
    """Acts on each member apart: a gradient clip is per member."""
    sparse_rows: bool = eqx.field(static=True, default=False)
    """For a `Table` with `Adam` and no l2: update only the rows that a batch touches (`sparse_rows.py`)."""

    def __check_init__(self) -> None:
        positive_int("num_members", self.num_members)
        positive_int("num_outputs", self.num_outputs)
        check_number(non_negative, "prior_scale", self.prior_scale)
        if self.sparse_rows and not self._can_be_sparse():
            raise ValueError(
                "sparse_rows=True needs network=Table(...), optimizer=Adam(...) and no l2, where rows outside a batch "
                "have no gradient; leave sparse_rows=False"
            )

    def _can_be_sparse(self) -> bool:
        return isinstance(self.network, Table) and isinstance(self.optimizer, Adam) and self.l2 is None

    @property
    def num_streams(self) -> int:
        return self.num_members

    @property
    def by_gradient(self) -> bool:
        return True

    def init(self, key: PRNGKeyArray, x: Any) -> State:
        """K members and their priors, from K independent keys; x is one example input."""
        params, frozen = jax.vmap(lambda k: self._init_member(k, x))(jax.random.split(key, self.num_members))
        if self.sparse_rows:
            params = sparse_params(params)
            return State(params, frozen, jax.vmap(self.optimizer.init)(params.rest))
        return State(params, frozen, jax.vmap(self.optimizer.init)(params))

    def _init_member(self, key: PRNGKeyArray, x: Any) -> tuple[PyTree, Frozen]:
        key_net, key_prior, key_anchor = jax.random.split(key, 3)
        num_out = self.num_outputs * self.head.size
        whole = self.network.init(key_net, x, num_out)
        check_output("network", self.network, whole, x, num_out)
        params, buffers = eqx.partition(whole, eqx.is_inexact_array)
        prior: PyTree = ()
        if self.prior is not None:
            num_prior = self.num_outputs * self.head.prior_size
            prior = self.prior.init(key_prior, x, num_prior)
            check_output("prior", self.prior, prior, x, num_prior)
        anchor = () if self.l2 is None else self.l2.anchor(self.network, key_anchor, x, num_out, params)
        return params, Frozen(prior, anchor, buffers)

    def draw(self, state: State, key: PRNGKeyArray) -> Int[Array, ""]:
        """A member, uniformly (the paper's j ~ Unif[1..K])."""
        return jax.random.randint(key, (), 0, self.num_members)

    def output(self, params: PyTree, frozen: Frozen, x: Any, prior: Array | None = None) -> Float[Array, "output size"]:
        """ONE member at ONE input; its prior value there may be handed in."""
        if self.sparse_rows:
            assert isinstance(self.network, Table)
            assert isinstance(self.optimizer, Adam)
            flat = self.network.apply_row(params.rest, read(self.optimizer, params.rows, x, params.step).weight)
        else:
            flat = self.network.apply(eqx.combine(params, frozen.buffers), x)
        return self.with_prior(flat, frozen, x, prior)

    def with_prior(self, flat: Array, frozen: Frozen, x: Any, prior: Array | None) -> Float[Array, "output size"]:
        """A network's flat output at ONE input, the prior function added."""
        out = shape_output(flat, self.num_outputs, self.head.size)
        if self.prior is None:
            return out
        if prior is None:
            prior = self.prior_value(frozen, x)
        return jax.vmap(self.head.add_prior)(out, self.prior_scale * prior)

    def prior_value(self, frozen: Frozen, x: Any) -> Float[Array, "output prior"]:
        """ONE member's prior function at ONE input, unscaled. It never changes, so compute it once per example."""
        assert self.prior is not None
        value = self.prior.apply(frozen.prior, x)
        return shape_output(jax.lax.stop_gradient(value), self.num_outputs, self.head.prior_size)

    def prior_values(self, state: State, x: Any) -> Float[Array, "stream batch output prior"] | None:
        """All members' priors on a shared batch of inputs, for `Batch.prior`."""
        if self.prior is None:
            return None

        def member(frozen: Frozen) -> Array:
            return jax.vmap(lambda row: self.prior_value(frozen, row))(x)

        return jax.vmap(member, axis_size=self.num_members)(state.frozen)

    def value(self, state: State, index: Int[Array, ""], x: Any) -> Float[Array, " output"]:
        return values_of(self.head, self.member_output(state, index, x))

    def member_output(self, state: State, index: Int[Array, ""], x: Any) -> Float[Array, "output size"]:
        """The member of that number at ONE input."""
        params, frozen = jax.tree.map(lambda leaf: leaf[index], (state.params, state.frozen))
        return self.output(params, frozen, x)

    def forward(
        self, state: State, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        """Member k on stream k's inputs, or all members on the same ones."""

        def member(params: PyTree, frozen: Frozen, rows: Any, prior_rows: Array | None) -> Array:
            return jax.vmap(lambda row, p: self.output(params, frozen, row, p))(rows, prior_rows)

        return jax.vmap(member, in_axes=(0, 0, None if shared else 0, 0))(state.params, state.frozen, x, prior)

    def observe(self, state: State, batch: Batch) -> State:
        return state

    def losses(self, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        """What each member minimises."""
        out = self.forward(state, key, batch.x, batch.prior, batch.shared)
        losses = stream_losses(self.head, out, batch)
        if self.l2 is not None:
            losses = losses + jax.vmap(self.l2.penalty)(state.params, state.frozen.anchor, batch.count)
        return losses

    def update(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Info]:
        """One optimiser step of every member on its own stream."""
        if self.sparse_rows:
            return self._sparse_update(state, batch)
        return gradient_step(self, state, batch, key, per_stream=True)

    def _sparse_update(self, state: State, batch: Batch) -> tuple[State, Info]:
        """The same step, on the rows of the batch and the layers behind them."""
        assert isinstance(self.network, Table)
        assert isinstance(self.optimizer, Adam)
        network, adam, params = self.network, self.optimizer, state.params
        shape = (self.num_members, batch.weight.shape[1])
        x = jnp.broadcast_to(batch.x, shape)
        rows = jax.vmap(lambda *parts: read(adam, *parts))(params.rows, x, params.step)

        def member(rest: PyTree, frozen: Frozen, weight: Array, x: Array, prior: Array | None) -> Array:
            def one(row: Array, x: Array, prior: Array | None) -> Array:
                return self.with_prior(network.apply_row(rest, row), frozen, x, prior)

            return jax.vmap(one)(weight, x, prior)

        def total(rest: PyTree, weight: Array) -> tuple[Array, Array]:
            out = jax.vmap(member)(rest, state.frozen, weight, x, batch.prior)
            losses = stream_losses(self.head, out, batch)
            return jnp.sum(losses), losses

        (by_rest, by_row), losses = jax.grad(total, argnums=(0, 1), has_aux=True)(params.rest, rows.weight)
        updates, opt = jax.vmap(adam.update)(by_rest, state.opt, params.rest)
        step = params.step + 1
        table = jax.vmap(lambda *parts: write(adam, *parts))(params.rows, x, rows, by_row, step)
        after = SparseParams(table, optax.apply_updates(params.rest, updates), step)
        return state._replace(params=after, opt=opt), Info(losses)
