"""Hypermodels: one network whose last layer is linear in a random index (Dwaracherla et al. 2020; Li et al. 2024).

    Q(s, a, xi) = <W xi + b, phi(s)> + prior_scale * <P xi, phi_prior(s)>

The index xi is uniform on the unit sphere of `index_dim` dimensions; a draw is one index. The network computes b'phi
and all columns of W'phi at once, so that one evaluation serves every index. W is stored divided by sqrt(index_dim): the
L2 penalty of the stored weights is then the mean over indices of |W xi + b|², the penalty of equation (4).

An update averages the loss over `num_indices` indices. `target_index` says at which indices Q-learning computes their
targets: fresh, one new index per example, as published, or same, each index by its own target, as the members of an
ensemble do. With `perturbed` the data has one perturbed copy per component of the index; an index xi is fitted to the
targets t + xi'(t_1 - t, ..., t_d - t), where t is the mean of the copies: for Gaussian data noise this is sigma xi'z.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

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
    """What is known of a batch before an index is chosen."""

    net: Float[Array, "batch output size coefficient"]
    """The network's outputs: the constant b'phi, then the columns of W'phi divided by sqrt(index_dim)."""
    prior: Float[Array, "batch output prior index"] | None
    """The columns of P'phi_prior, unscaled; None without a prior."""


class Hypermodel(Belief):
    """A network with a last layer that is linear in a random index, and a fixed prior function of the same form."""

    index_dim: int = eqx.field(static=True, default=4)
    """Dimension of the index."""
    num_indices: int = eqx.field(static=True, default=8)
    """Indices per update, over which the loss is averaged; see `update_indices`."""
    network: Network = eqx.field(static=True, default=MLP(), converter=as_network)
    """The network; it gets `index_dim` + 1 times as many outputs."""
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
    """L2 regularisation of W and b (and of the network below) towards an anchor; None: none."""
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
        """Initialise the network and its prior function, from independent keys.

        Args:
            key: PRNG key.
            x: One example input.

        Returns:
            The initial state.
        """
        key_net, key_prior, key_anchor = jax.random.split(key, 3)
        num_out = self.num_outputs * self.head.size * (self.index_dim + 1)
        whole = self.network.init(key_net, x, num_out)
        check_output("network", self.network, whole, x, num_out)
        params, buffers = eqx.partition(whole, eqx.is_inexact_array)
        prior: PyTree = ()
        if self.prior is not None:
            num_prior = self.num_outputs * self.head.prior_size * self.index_dim
            prior = self.prior.init(key_prior, x, num_prior)
            check_output("prior", self.prior, prior, x, num_prior)
        anchor = () if self.l2 is None else self.l2.anchor(self.network, key_anchor, x, num_out, params)
        frozen = Frozen(prior, anchor, buffers)
        if self.sparse_rows:
            rest = (Layer(params[0].weight[:0], params[0].bias), *params[1:])
            sparse = SparseParams(fresh(params[0].weight), rest, jnp.zeros((), int))
            return BeliefState(sparse, frozen, self.optimizer.init(rest))
        return BeliefState(params, frozen, self.optimizer.init(params))

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw an index, uniformly on the unit sphere.

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            The index.
        """
        return self._indices(key, 1)[0]

    def update_indices(self, key: PRNGKeyArray) -> Float[Array, "draw index"]:
        """Draw the indices of an update: random orthonormal directions and their opposites.

        Each is uniform on the sphere. If `num_indices` is a multiple of 2 * `index_dim`, their mean and covariance are
        exactly those of the sphere: a squared error is averaged without error.

        Args:
            key: PRNG key.

        Returns:
            `num_indices` indices of unit norm.
        """
        dim = self.index_dim
        frames = -(-self.num_indices // (2 * dim))
        directions, upper = jnp.linalg.qr(jax.random.normal(key, (frames, dim, dim)))
        directions = directions * jnp.sign(jnp.diagonal(upper, axis1=1, axis2=2))[:, None, :]
        both = jnp.stack([directions, -directions], axis=1).reshape(-1, dim, dim)
        return jnp.swapaxes(both, 1, 2).reshape(-1, dim)[: self.num_indices]

    def _indices(self, key: PRNGKeyArray, count: int) -> Float[Array, "draw index"]:
        """Draw independent indices, uniformly on the unit sphere."""
        normal = jax.random.normal(key, (count, self.index_dim))
        return normal / jnp.maximum(jnp.linalg.norm(normal, axis=1, keepdims=True), 1e-12)

    def at(self, parts: Parts, index: Float[Array, " index"]) -> Float[Array, "output size"]:
        """Evaluate the function of ONE index at ONE input.

        Args:
            parts: What is known of the input, without batch axis.
            index: The index.

        Returns:
            `head.size` numbers for each output.
        """
        out = parts.net[..., 0] + parts.net[..., 1:] @ (self.index_dim**0.5 * index)
        if parts.prior is None:
            return out
        return jax.vmap(self.head.add_prior)(out, parts.prior @ (self.prior_scale * index))

    def value(self, state: BeliefState, index: Float[Array, " index"], x: Any) -> Float[Array, " output"]:
        parts = self._parts(state, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], x), None)
        return values_of(self.head, self.at(jax.tree.map(lambda leaf: leaf[0], parts), index))

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
        parts = self._parts(state, self._rows_of(x, shared), prior)
        if self.perturbed:
            return self._at_all(parts, jnp.eye(self.index_dim))
        if self.pairs_targets:
            return self._at_all(parts, self.update_indices(key))
        return jax.vmap(self.at)(parts, self._indices(key, parts.net.shape[0]))[None]

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
        variance = jnp.sum(self._prior(state, x) ** 2, axis=-1) / self.index_dim
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
        losses = self._data_losses(self._parts(state, rows, batch.prior), batch, key)
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

    def _data_losses(self, parts: Parts, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        index = self.update_indices(key)
        target, weight, action = batch.target, batch.weight, batch.action
        if action is not None:  # only the chosen outputs are evaluated at every index
            chosen = action if action.ndim == 1 else action[0]
            parts = jax.tree.map(lambda leaf: jax.vmap(lambda row, a: row[a][None])(leaf, chosen), parts)
            target = target[:, :, None]
        if self.perturbed:
            mean = jnp.mean(target, axis=0)
            target = mean + jnp.tensordot(index, target - mean, axes=1)
            weight = jnp.mean(weight, axis=0, keepdims=True)
        count = index.shape[0]
        parts = parts._replace(net=self._share(parts.net))
        target, weight = (jnp.broadcast_to(part, (count, *part.shape[1:])) for part in (target, weight))
        examples = Batch((), target, weight, jnp.ones(count), shared=True)
        losses = stream_losses(self.head, self._at_all(parts, index), examples)
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
            losses = self._data_losses(Parts(self._after_rows(rest, rows), prior), batch, key)
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
            raise ValueError("one evaluation serves all streams of a hypermodel; let them share their inputs")
        return jax.tree.map(lambda leaf: leaf[0], x)

    def _at_all(self, parts: Parts, index: Array) -> Float[Array, "draw batch output size"]:
        return jax.vmap(lambda one: jax.vmap(lambda part: self.at(part, one))(parts))(index)

    def _parts(self, state: BeliefState, x: Any, prior: Array | None) -> Parts:
        if self.sparse_rows:
            adam = self.optimizer
            assert isinstance(adam, Adam)
            net = self._after_rows(state.params.rest, read(adam, state.params.rows, x, state.params.step))
        else:
            whole = eqx.combine(state.params, state.frozen.buffers)
            net = self._shaped(jax.vmap(lambda row: self.network.apply(whole, row))(x))
        return Parts(net, self._prior_or(state, x, prior))

    def _after_rows(self, rest: PyTree, rows: Array) -> Float[Array, "batch output size coefficient"]:
        network = self.network
        assert isinstance(network, Table)
        return self._shaped(jax.vmap(lambda row: network.apply_row(rest, row))(rows))

    def _shaped(self, flat: Array) -> Float[Array, "batch output size coefficient"]:
        return flat.reshape(-1, self.num_outputs, self.head.size, self.index_dim + 1)

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
