"""Beliefs with a random index: one network whose function depends on an index that is drawn, as in hypermodels and
epinets.

A draw is one index. `Indexed` has what these beliefs share: prior functions that are linear in the index, several
indices per update, over which the loss is averaged, and their targets. A subclass defines the distribution of the index
and the trained function.

`target_index` says at which indices Q-learning computes the targets of an update: fresh, one new index per example, as
published, or same, each index by its own target, as the members of an ensemble do. With `perturbed` the data has one
perturbed copy per component of the index; an index of length `radius` in direction u is fitted to the targets
t + u'(t_1 - t, ..., t_d - t), where t is the mean of the copies: for Gaussian data noise this is sigma u'z.
"""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, BeliefState, Info, check_number, index_values
from priorax.beliefs.ensemble import Frozen
from priorax.beliefs.gradient import (
    Adam,
    Optimizer,
    as_optimizer,
    check_output,
    check_sparse,
    check_sparse_learning,
    gradient_step,
    stream_losses,
)
from priorax.beliefs.regularization import L2
from priorax.beliefs.sparse_rows import SparseParams, fresh, read, write
from priorax.checks import non_negative, one_of, positive_int
from priorax.heads import Head, Scalar, values_of
from priorax.networks import MLP, Layer, Network, Table, as_network
from priorax.priors import TABLES, as_prior

TARGET_INDICES = ("fresh", "same")


class Parts(NamedTuple):
    """What is known of a batch before an index is chosen; of one input, without batch axis."""

    net: PyTree
    """What the trained networks compute without the index."""
    prior: Float[Array, "*batch output prior index"] | None
    """The numbers by which the index is multiplied in the prior function, unscaled; None without a prior."""


@dataclass(frozen=True)
class AfterRow:
    """A `Table` as a network whose input is a row of the table that was looked up before."""

    table: Table
    """The table."""

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> PyTree:
        return self.table.init(key, x, num_out)

    def apply(self, params: tuple[Layer, ...], x: Float[Array, " unit"]) -> Array:
        return self.table.apply_row(params, x)

    def features(self, params: tuple[Layer, ...], x: Float[Array, " unit"]) -> Array:
        """Compute the last hidden layer.

        Args:
            params: Parameters; the table in them is not read.
            x: The row.

        Returns:
            The activations.
        """
        return self.table.row_features(params, x)


class Indexed(Belief):
    """Base class of beliefs whose draws are random indices; see the module docstring."""

    index_dim: int = eqx.field(static=True, default=4)
    """Dimension of the index."""
    num_indices: int = eqx.field(static=True, default=8)
    """Indices per update, over which the loss is averaged; see `update_indices`."""
    network: Network = eqx.field(static=True, default=MLP(), converter=as_network)
    """The network."""
    prior: Network | None = eqx.field(static=True, default=None, converter=as_prior)
    """Distribution of the prior function, such as `priors.UnitRows`; it gets `index_dim` times as many outputs, which
    are multiplied by the index. None: no prior function."""
    prior_scale: float | Float[Array, ""] = 1.0
    """Prior scale beta, which multiplies the prior function."""
    target_index: str = eqx.field(static=True, default="fresh")
    """Indices of Q-learning's targets. fresh: one new index per example; same: the index that is updated."""
    perturbed: bool = eqx.field(static=True, default=False)
    """Whether the data has `index_dim` perturbed copies, one per component of the index: for regression."""
    l2: L2 | None = None
    """L2 regularisation of all trained weights towards an anchor; None: none."""
    head: Head = eqx.field(static=True, default=Scalar())
    """Interpretation of an output."""
    num_outputs: int = eqx.field(static=True, default=1)
    """Number of regression targets, or of actions."""
    optimizer: Optimizer = eqx.field(default=Adam(), converter=as_optimizer)
    """Optimiser of the weights."""
    sparse_rows: bool = eqx.field(static=True, default=False)
    """For a `Table` with `Adam` and no l2: update only the rows in a batch (`sparse_rows.py`)."""

    def __check_init__(self) -> None:
        for name in ("index_dim", "num_indices", "num_outputs"):
            positive_int(name, getattr(self, name))
        check_number(non_negative, "prior_scale", self.prior_scale)
        one_of("target_index", self.target_index, TARGET_INDICES)
        if self.perturbed and (self.target_index == "same" or self.head.takes_classes):
            raise ValueError(
                "perturbed=True mixes the targets of one copy of the data per component of the index, which neither "
                "target_index='same' nor classes as targets permit; use perturbed=False"
            )
        if self.sparse_rows:
            check_sparse(self.network, self.optimizer, self.l2, "sparse_rows=True", "sparse_rows=False")

    @property
    @abc.abstractmethod
    def radius(self) -> float:
        """Root mean square of the norm of an index."""

    @abc.abstractmethod
    def _indices(self, key: PRNGKeyArray, count: int) -> Float[Array, "draw index"]:
        """Draw independent indices."""

    @abc.abstractmethod
    def _start(self, key: PRNGKeyArray, key_anchor: PRNGKeyArray, x: Any) -> tuple[PyTree, PyTree]:
        """Draw the parameters of the trained networks, and their anchor, which is () without L2."""

    @abc.abstractmethod
    def _known(self, network: Network, params: PyTree, x: Any) -> PyTree:
        """Compute at ONE input what does not depend on the index. `network` is the belief's, or `AfterRow` of it."""

    @abc.abstractmethod
    def _chosen(self, net: PyTree, action: Int[Array, ""]) -> PyTree:
        """Select one output of what `_known` returned."""

    @abc.abstractmethod
    def _trained(self, weights: PyTree, net: PyTree, index: Float[Array, " index"]) -> Float[Array, "output size"]:
        """Evaluate the trained function of ONE index at ONE input, from what `_known` returned there."""

    def _start_network(
        self, name: str, network: Network, key: PRNGKeyArray, key_anchor: PRNGKeyArray, x: Any, num_out: int
    ) -> tuple[PyTree, PyTree]:
        """Draw the parameters of one network, and their anchor."""
        whole = network.init(key, x, num_out)
        check_output(name, network, whole, x, num_out)
        if self.l2 is None:
            return whole, ()
        return whole, self.l2.anchor(network, key_anchor, x, num_out, eqx.filter(whole, eqx.is_inexact_array))

    def _weights(self, params: PyTree) -> PyTree:
        """The parameters that `_trained` needs."""
        return ()

    def _split_table(self, params: PyTree) -> tuple[Float[Array, "row unit"], PyTree]:
        """Separate the weights that have a row per state from all others; `_known` sees such a row as its input."""
        first, *others = params
        return first.weight, (Layer(first.weight[:0], first.bias), *others)

    @property
    def num_streams(self) -> int:
        if self.perturbed:
            return self.index_dim
        return self.num_indices if self.target_index == "same" else 1

    @property
    def pairs_targets(self) -> bool:
        return self.target_index == "same"

    @property
    def has_prior(self) -> bool:
        return self.prior is not None

    @property
    def stores_prior(self) -> bool:
        return self.prior is not None and not isinstance(self.prior, TABLES) and self.num_streams == 1

    def check_learning(self, shared_batch: bool, lagged: bool, prioritised: bool) -> None:
        """Check that indices and sparse rows, if used, go with the settings of Q-learning.

        Args:
            shared_batch: Whether all streams learn from the same minibatch.
            lagged: Whether a target network lags behind the online one.
            prioritised: Whether minibatches are drawn by priority.

        Raises:
            ValueError: If a setting is not supported; the message names the remedy.
        """
        if self.perturbed:
            raise ValueError("perturbed=True needs fixed targets, and those of Q-learning move; use perturbed=False")
        if self.num_streams > 1 and not shared_batch:
            raise ValueError(
                "shared_batch=False does not go with target_index='same': one evaluation serves all indices; use "
                "shared_batch=True or target_index='fresh'"
            )
        if self.sparse_rows:
            check_sparse_learning(lagged, prioritised, "sparse_rows=False")

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        """Initialise the networks and the prior function, from independent keys.

        Args:
            key: PRNG key.
            x: One example input.

        Returns:
            The initial state.
        """
        key_net, key_prior, key_anchor = jax.random.split(key, 3)
        whole, anchor = self._start(key_net, key_anchor, x)
        params, buffers = eqx.partition(whole, eqx.is_inexact_array)
        prior: PyTree = ()
        if self.prior is not None:
            num_prior = self.num_outputs * self.head.prior_size * self.index_dim
            prior = self.prior.init(key_prior, x, num_prior)
            check_output("prior", self.prior, prior, x, num_prior)
        frozen = Frozen(prior, anchor, buffers)
        if self.sparse_rows:
            table, rest = self._split_table(params)
            sparse = SparseParams(fresh(table), rest, jnp.zeros((), int))
            return BeliefState(sparse, frozen, self.optimizer.init(rest))
        return BeliefState(params, frozen, self.optimizer.init(params))

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw an index.

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            The index.
        """
        return self._indices(key, 1)[0]

    def update_indices(self, key: PRNGKeyArray) -> Float[Array, "draw index"]:
        """Draw the indices of an update, over which the loss is averaged.

        Args:
            key: PRNG key.

        Returns:
            `num_indices` indices, each with the distribution of `draw`.
        """
        return self._directions(key)

    def _directions(self, key: PRNGKeyArray) -> Float[Array, "draw index"]:
        """Draw `num_indices` unit vectors: random orthonormal directions and their opposites.

        Each is uniform on the sphere. If `num_indices` is a multiple of 2 * `index_dim`, their mean and covariance are
        exactly those of the sphere.
        """
        dim = self.index_dim
        frames = -(-self.num_indices // (2 * dim))
        directions, upper = jnp.linalg.qr(jax.random.normal(key, (frames, dim, dim)))
        directions = directions * jnp.sign(jnp.diagonal(upper, axis1=1, axis2=2))[:, None, :]
        both = jnp.stack([directions, -directions], axis=1).reshape(-1, dim, dim)
        return jnp.swapaxes(both, 1, 2).reshape(-1, dim)[: self.num_indices]

    def value(self, state: BeliefState, index: Float[Array, " index"], x: Any) -> Float[Array, " output"]:
        parts = self._parts(state, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], x), None)
        one = jax.tree.map(lambda leaf: leaf[0], parts)
        return values_of(self.head, self._at(self._weights(self._whole(state)), one, index))

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        """Evaluate the functions of the streams: those of the update with this key, or of one new index per example.

        Args:
            state: State of the belief.
            key: PRNG key of the indices.
            x: Inputs [stream, batch, ...], or [batch, ...] if `shared`.
            prior: Unscaled prior values at x, if already known.
            shared: Whether all streams have the same inputs.

        Returns:
            `head.size` numbers for each stream, example and output.
        """
        rows = self._rows_of(x, shared)
        parts, weights = self._parts(state, rows, prior), self._weights(self._whole(state))
        if self.perturbed:
            return self._at_all(weights, parts, self.radius * jnp.eye(self.index_dim))
        if self.pairs_targets:
            return self._at_all(weights, parts, self.update_indices(key))
        indices = self._indices(key, jax.tree.leaves(rows)[0].shape[0])
        return jax.vmap(lambda part, index: self._at(weights, part, index))(parts, indices)[None]

    def prior_values(self, state: BeliefState, x: Any) -> Float[Array, "stream batch output prior"] | None:
        """Evaluate the prior function on a batch of inputs for every component of the index, before `prior_scale`.

        Args:
            state: State of the belief.
            x: Inputs [batch, ...].

        Returns:
            `head.prior_size` times `index_dim` numbers for each output, the same for all streams; None without a prior.
        """
        if self.prior is None:
            return None
        values = self._prior(state, x)
        flat = values.reshape(*values.shape[:2], -1)
        return jnp.broadcast_to(flat, (self.num_streams, *flat.shape))

    def prior_spread(self, state: BeliefState, x: Any) -> Float[Array, "batch output"]:
        if self.prior is None:
            return super().prior_spread(state, x)
        variance = self.radius**2 * jnp.sum(self._prior(state, x) ** 2, axis=-1) / self.index_dim
        return self.prior_scale * jnp.sqrt(jnp.mean(variance, axis=-1))

    def functions(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "function batch output"]:
        """Evaluate drawn functions on a batch of inputs, in pairs of opposite indices.

        Args:
            state: State of the belief.
            key: PRNG key.
            x: Inputs [batch, ...].
            num_draws: Number of functions.

        Returns:
            One value per function, input and output.
        """
        half = self._indices(key, -(-num_draws // 2))
        return index_values(self, state, jnp.concatenate([half, -half])[:num_draws], x)

    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        """Compute the loss of each stream: of its index, or averaged over all indices of the update.

        Args:
            state: State of the belief.
            batch: Examples.
            key: PRNG key of the indices.

        Returns:
            One loss per stream. The gradient of their sum is that of their mean.
        """
        rows = self._rows_of(batch.x, batch.shared)
        losses = self._data_losses(self._whole(state), self._parts(state, rows, batch.prior), batch, key)
        if self.l2 is None:
            return losses
        return losses + self._share(self.l2.penalty(state.params, state.frozen.anchor, batch.count[0]))

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        """Perform one optimiser step.

        Args:
            state: State of the belief.
            batch: Examples.
            key: PRNG key of the indices.

        Returns:
            The new state, and the losses.
        """
        if self.sparse_rows:
            return self._sparse_update(state, batch, key)
        return gradient_step(self, state, batch, key)

    def _data_losses(self, params: PyTree, parts: Parts, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        index = self.update_indices(key)
        target, weight, action = batch.target, batch.weight, batch.action
        net, weights = jax.tree.map(self._share, (parts.net, self._weights(params)))
        prior = parts.prior
        if action is not None:  # only the chosen outputs are evaluated at every index
            chosen = action if action.ndim == 1 else action[0]
            net = jax.vmap(self._chosen)(net, chosen)
            prior = None if prior is None else jax.vmap(lambda row, a: row[a][None])(prior, chosen)
            target = target[:, :, None]
        if self.perturbed:
            mean = jnp.mean(target, axis=0)
            target = mean + jnp.tensordot(index / self.radius, target - mean, axes=1)
            weight = jnp.mean(weight, axis=0, keepdims=True)
        count = index.shape[0]
        target, weight = (jnp.broadcast_to(part, (count, *part.shape[1:])) for part in (target, weight))
        examples = Batch((), target, weight, jnp.ones(count), shared=True)
        losses = stream_losses(self.head, self._at_all(weights, Parts(net, prior), index), examples)
        return losses if self.pairs_targets else jnp.broadcast_to(jnp.mean(losses), (self.num_streams,))

    def _share(self, number: Array) -> Array:
        """Divide the gradient by the number of streams, over which losses are summed."""
        share = 1 / self.num_streams
        return number if share == 1 else share * number + (1 - share) * jax.lax.stop_gradient(number)

    def _sparse_update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        """The same step, on the rows of the batch and the layers behind them."""
        adam, params = self.optimizer, state.params
        assert isinstance(adam, Adam)
        x = self._rows_of(batch.x, batch.shared)
        rows = read(adam, params.rows, x, params.step)
        prior = self._prior_or(state, x, batch.prior)

        def total(rest: PyTree, rows: Array) -> tuple[Array, Array]:
            losses = self._data_losses(rest, Parts(self._after_rows(rest, rows), prior), batch, key)
            return jnp.sum(losses), losses

        (by_rest, by_row), losses = jax.grad(total, argnums=(0, 1), has_aux=True)(params.rest, rows)
        updates, opt = adam.update(by_rest, state.opt, params.rest)
        step = params.step + 1
        table = write(adam, params.rows, x, rows, by_row, step)
        after = SparseParams(table, optax.apply_updates(params.rest, updates), step)
        return state._replace(params=after, opt=opt), Info(losses)

    def _rows_of(self, x: Any, shared: bool) -> Any:
        """The inputs without stream axis."""
        if shared:
            return x
        if self.num_streams > 1:
            raise ValueError("one evaluation serves all streams of this belief; let them share their inputs")
        return jax.tree.map(lambda leaf: leaf[0], x)

    def _at_all(self, weights: PyTree, parts: Parts, index: Array) -> Float[Array, "draw batch output size"]:
        return jax.vmap(lambda one: jax.vmap(lambda part: self._at(weights, part, one))(parts))(index)

    def _at(self, weights: PyTree, parts: Parts, index: Float[Array, " index"]) -> Float[Array, "output size"]:
        """Evaluate the function of ONE index at ONE input."""
        out = self._trained(weights, parts.net, index)
        if parts.prior is None:
            return out
        return jax.vmap(self.head.add_prior)(out, parts.prior @ (self.prior_scale * index))

    def _whole(self, state: BeliefState) -> PyTree:
        """All parameters, without the rows of a sparse table."""
        return state.params.rest if self.sparse_rows else eqx.combine(state.params, state.frozen.buffers)

    def _parts(self, state: BeliefState, x: Any, prior: Array | None) -> Parts:
        whole = self._whole(state)
        if self.sparse_rows:
            adam = self.optimizer
            assert isinstance(adam, Adam)
            net = self._after_rows(whole, read(adam, state.params.rows, x, state.params.step))
        else:
            net = jax.vmap(lambda row: self._known(self.network, whole, row))(x)
        return Parts(net, self._prior_or(state, x, prior))

    def _after_rows(self, rest: PyTree, rows: Float[Array, "batch unit"]) -> PyTree:
        assert isinstance(self.network, Table)
        network = AfterRow(self.network)
        return jax.vmap(lambda row: self._known(network, rest, row))(rows)

    def _prior_or(self, state: BeliefState, x: Any, known: Array | None) -> Array | None:
        """The unscaled prior at x [batch, output, prior, index], from known values if there are any."""
        if self.prior is None:
            return None
        if known is None:
            return self._prior(state, x)
        return known[0].reshape(-1, self.num_outputs, self.head.prior_size, self.index_dim)

    def _prior(self, state: BeliefState, x: Any) -> Float[Array, "batch output prior index"]:
        prior = self.prior
        assert prior is not None
        flat = jax.vmap(lambda row: prior.apply(state.frozen.prior, row))(x)
        shape = (-1, self.num_outputs, self.head.prior_size, self.index_dim)
        return jax.lax.stop_gradient(flat).reshape(shape)
