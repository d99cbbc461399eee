"""Ensembles: naive, bootstrap (BS), bootstrap with L2 (BSR), bootstrap with prior functions (BSP), as settings of one
belief.

The data noise is not part of it: it is drawn when the data set is formed (`priorax.noise`). One member with a
distributional head is distributional RL; one member with a scalar head is DQN.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.base import SHARED, Batch, Belief, BeliefState, Info, check_number
from priorax.beliefs.gradient import (
    Adam,
    Optimizer,
    as_optimizer,
    check_output,
    check_sparse,
    check_sparse_learning,
    gradient_step,
    shape_output,
    stream_losses,
)
from priorax.beliefs.regularization import L2
from priorax.beliefs.sparse_rows import SIDE_BY_SIDE, SparseParams, read, sparse_params, write
from priorax.checks import non_negative, one_of, positive_int
from priorax.heads import Head, Scalar, values_of
from priorax.networks import MLP, Network, Table, as_network
from priorax.priors import TABLES, as_prior


class Frozen(NamedTuple):
    """Arrays that training never changes, one per member."""

    prior: PyTree
    """Parameters of the prior functions."""
    anchor: PyTree
    """Anchors of the L2 regularisation."""
    buffers: PyTree
    """Arrays of a custom network that are not weights (integers)."""


FEW_ROWS = 32
"""Up to this batch size, shared inputs are copied for each member: the compiler would otherwise transpose all members'
first layers into one matrix, which costs ten times as much as evaluating them on one input."""
MANY_WEIGHTS = 5_000
"""... if a member has at least this many weights: below it, products with copies cost more than the transposition."""


class Ensemble(Belief):
    """An ensemble of K members, Q_k = f_theta_k + prior_scale * p_k (algorithm 1)."""

    num_members: int = eqx.field(static=True, default=20)
    """Ensemble size K."""
    network: Network = eqx.field(static=True, default=MLP(), converter=as_network)
    """f: the trainable function, a network or an (init, apply) pair."""
    prior: Network | None = eqx.field(static=True, default=None, converter=as_prior)
    """Distribution of the prior functions p_k: a network whose initialisation is drawn; None: no prior functions."""
    prior_scale: float | Float[Array, ""] = 1.0
    """Prior scale beta, which multiplies the prior functions."""
    l2: L2 | None = None
    """L2 regularisation towards an anchor; None: none."""
    head: Head = eqx.field(static=True, default=Scalar())
    """Interpretation of an output."""
    num_outputs: int = eqx.field(static=True, default=1)
    """Number of regression targets, or of actions."""
    optimizer: Optimizer = eqx.field(default=Adam(), converter=as_optimizer)
    """Optimiser, applied to each member separately: gradients are clipped per member."""
    sparse_rows: str = eqx.field(static=True, default="no")
    """For a `Table` with `Adam` and no l2: update only the rows in a batch (`sparse_rows.py`). shared: all members
    always have the same inputs, so that one look-up serves all; own: each member has its own; no: dense updates."""

    def __check_init__(self) -> None:
        positive_int("num_members", self.num_members)
        positive_int("num_outputs", self.num_outputs)
        check_number(non_negative, "prior_scale", self.prior_scale)
        one_of("sparse_rows", self.sparse_rows, ("no", "own", "shared"))
        if self.is_sparse:
            used = f"sparse_rows={self.sparse_rows!r}"
            check_sparse(self.network, self.optimizer, self.l2, used, "sparse_rows='no'")

    @property
    def is_sparse(self) -> bool:
        """Whether only the rows in a batch are updated."""
        return self.sparse_rows != "no"

    @property
    def num_streams(self) -> int:
        return self.num_members

    @property
    def has_prior(self) -> bool:
        return self.prior is not None

    @property
    def stores_prior(self) -> bool:
        return self.prior is not None and not isinstance(self.prior, TABLES)

    def check_learning(self, shared_batch: bool, lagged: bool, prioritised: bool) -> None:
        """Check that sparse rows, if used, support the settings of Q-learning.

        Args:
            shared_batch: Whether all streams learn from the same minibatch.
            lagged: Whether a target network lags behind the online one.
            prioritised: Whether minibatches are drawn by priority.

        Raises:
            ValueError: If sparse rows do not support a setting; the message names the remedy.
        """
        if not self.is_sparse:
            return
        check_sparse_learning(lagged, prioritised, "sparse_rows='no'")
        if shared_batch != (self.sparse_rows == "shared"):
            raise ValueError(
                f"shared_batch={shared_batch} is incompatible with sparse_rows={self.sparse_rows!r}; "
                f"use sparse_rows={'shared' if shared_batch else 'own'!r}"
            )

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        """Initialise K members and their prior functions, from independent keys.

        Args:
            key: PRNG key.
            x: One example input.

        Returns:
            The initial state.
        """
        params, frozen = jax.vmap(lambda k: self._init_member(k, x))(jax.random.split(key, self.num_members))
        if self.is_sparse:
            params = sparse_params(params, self.sparse_rows == "shared")
            return BeliefState(params, frozen, jax.vmap(self.optimizer.init)(params.rest))
        return BeliefState(params, frozen, jax.vmap(self.optimizer.init)(params))

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

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> Int[Array, ""]:
        """Draw a member, uniformly (the paper's j ~ Unif[1..K]).

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            Index of the member.
        """
        return jax.random.randint(key, (), 0, self.num_members)

    def output(self, params: PyTree, frozen: Frozen, x: Any, prior: Array | None = None) -> Float[Array, "output size"]:
        """Evaluate ONE member at ONE input.

        Args:
            params: Weights of the member.
            frozen: Its prior function and buffers.
            x: One input, without batch axis.
            prior: Its unscaled prior value at x, if already known.

        Returns:
            `head.size` numbers for each output.
        """
        return self.with_prior(self.network.apply(eqx.combine(params, frozen.buffers), x), frozen, x, prior)

    def with_prior(self, flat: Array, frozen: Frozen, x: Any, prior: Array | None) -> Float[Array, "output size"]:
        """Add the prior function to a network's flat output at ONE input.

        Args:
            flat: The flat output.
            frozen: Prior function of the member.
            x: One input, without batch axis.
            prior: Its unscaled prior value at x, if already known.

        Returns:
            `head.size` numbers for each output.
        """
        out = shape_output(flat, self.num_outputs, self.head.size)
        if self.prior is None:
            return out
        if prior is None:
            prior = self.prior_value(frozen, x)
        return jax.vmap(self.head.add_prior)(out, self.prior_scale * prior)

    def prior_value(self, frozen: Frozen, x: Any) -> Float[Array, "output prior"]:
        """Evaluate ONE member's prior function at ONE input, unscaled. It never changes, so compute it once per
        example.

        Args:
            frozen: Prior function of the member.
            x: One input, without batch axis.

        Returns:
            The prior value.
        """
        assert self.prior is not None
        value = self.prior.apply(frozen.prior, x)
        return shape_output(jax.lax.stop_gradient(value), self.num_outputs, self.head.prior_size)

    def member_axes(self, state: BeliefState) -> BeliefState:
        axes: BeliefState = jax.tree.map(lambda leaf: 0, state)._replace(
            aux=jax.tree.map(lambda leaf: SHARED, state.aux)
        )
        if self.is_sparse:
            rows = SIDE_BY_SIDE if self.sparse_rows == "shared" else axes.params.rows
            axes = axes._replace(params=axes.params._replace(rows=rows, step=SHARED))
        return axes

    def prior_values(self, state: BeliefState, x: Any) -> Float[Array, "stream batch output prior"] | None:
        if self.prior is None:
            return None

        def member(frozen: Frozen, x: Any) -> Array:
            return jax.vmap(lambda row: self.prior_value(frozen, row))(x)

        x, shared = self._copied_if_few(x, True, state.frozen.prior)
        axes = (0, None if shared else 0)
        return jax.vmap(member, in_axes=axes, axis_size=self.num_members)(state.frozen, x)

    def value(self, state: BeliefState, index: Int[Array, ""], x: Any) -> Float[Array, " output"]:
        return values_of(self.head, self.member_output(state, index, x))

    def member_output(self, state: BeliefState, index: Int[Array, ""], x: Any) -> Float[Array, "output size"]:
        """Evaluate a member at ONE input.

        Args:
            state: State of the belief.
            index: Index of the member.
            x: One input, without batch axis.

        Returns:
            `head.size` numbers for each output.
        """
        if isinstance(self.network, Table):  # one row of every member is less work than a copy of one member's table
            return self.forward(state, jax.random.key(0), x[None], shared=True)[index, 0]
        params, frozen = jax.tree.map(lambda leaf: leaf[index], (state.params, state.frozen))
        return self.output(params, frozen, x)

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        if self.is_sparse:
            rows = self._rows(state.params, x, shared)
            return self._after_rows(state.params.rest, state.frozen, rows, x, prior, shared)

        def member(params: PyTree, frozen: Frozen, rows: Any, prior_rows: Array | None) -> Array:
            return jax.vmap(lambda row, p: self.output(params, frozen, row, p))(rows, prior_rows)

        x, shared = self._copied_if_few(x, shared, state.params)
        return jax.vmap(member, in_axes=(0, 0, None if shared else 0, 0))(state.params, state.frozen, x, prior)

    def _copied_if_few(self, x: Any, shared: bool, params: PyTree) -> tuple[Any, bool]:
        """Copy few shared inputs for each member (`FEW_ROWS`); return the inputs, and whether they are still shared."""
        weights = sum(leaf.size for leaf in jax.tree.leaves(params)) // self.num_members
        few = jax.tree.leaves(x)[0].shape[0] <= FEW_ROWS
        if not shared or not few or weights < MANY_WEIGHTS or isinstance(self.network, Table):
            return x, shared
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.num_members, *leaf.shape)), x), False

    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        losses = stream_losses(self.head, self.forward(state, key, batch.x, batch.prior, batch.shared), batch)
        if self.l2 is not None:
            losses = losses + jax.vmap(self.l2.penalty)(state.params, state.frozen.anchor, batch.count)
        return losses

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        if self.is_sparse:
            return self._sparse_update(state, batch)
        return gradient_step(self, state, batch, key, per_stream=True)

    def _rows(self, params: SparseParams, x: Any, shared: bool) -> Float[Array, "member batch unit"]:
        """The first layer's rows of all members."""
        adam = self.optimizer
        assert isinstance(adam, Adam)
        if self.sparse_rows == "shared":
            if not shared:
                raise ValueError("sparse_rows='shared' needs inputs that all members share; use sparse_rows='own'")
            rows = read(adam, params.rows, x, params.step)
            return jnp.moveaxis(rows.reshape(len(x), self.num_members, -1), 1, 0)
        x = jnp.broadcast_to(x, (self.num_members, x.shape[-1]))
        return jax.vmap(lambda table, own: read(adam, table, own, params.step))(params.rows, x)

    def _after_rows(
        self, rest: PyTree, frozen: Frozen, rows: Array, x: Any, prior: Array | None, shared: bool
    ) -> Float[Array, "member batch output size"]:
        """What the members make of their first layer's rows at x."""
        network = self.network
        assert isinstance(network, Table)

        def member(rest: PyTree, frozen: Frozen, rows: Array, x: Array, prior: Array | None) -> Array:
            def one(row: Array, x: Array, prior: Array | None) -> Array:
                return self.with_prior(network.apply_row(rest, row), frozen, x, prior)

            return jax.vmap(one)(rows, x, prior)

        return jax.vmap(member, in_axes=(0, 0, 0, None if shared else 0, 0))(rest, frozen, rows, x, prior)

    def _sparse_update(self, state: BeliefState, batch: Batch) -> tuple[BeliefState, Info]:
        """The same step, on the rows of the batch and the layers behind them."""
        adam, params = self.optimizer, state.params
        assert isinstance(adam, Adam)
        rows = self._rows(params, batch.x, batch.shared)

        def total(rest: PyTree, rows: Array) -> tuple[Array, Array]:
            out = self._after_rows(rest, state.frozen, rows, batch.x, batch.prior, batch.shared)
            losses = stream_losses(self.head, out, batch)
            return jnp.sum(losses), losses

        (by_rest, by_row), losses = jax.grad(total, argnums=(0, 1), has_aux=True)(params.rest, rows)
        updates, opt = jax.vmap(adam.update)(by_rest, state.opt, params.rest)
        step = params.step + 1
        if self.sparse_rows == "shared":
            wide = (len(batch.x), -1)
            weight, gradient = (jnp.moveaxis(part, 0, 1).reshape(wide) for part in (rows, by_row))
            table = write(adam, params.rows, batch.x, weight, gradient, step)
        else:
            x = jnp.broadcast_to(batch.x, rows.shape[:2])
            member = jax.vmap(lambda table, x, weight, by: write(adam, table, x, weight, by, step))
            table = member(params.rows, x, rows, by_row)
        after = SparseParams(table, optax.apply_updates(params.rest, updates), step)
        return state._replace(params=after, opt=opt), Info(losses)
