"""An ensemble of heads on one torso: "to save computation we use a shared convnet" (section 4.2.3).

The torso is evaluated once for all K members; its gradient is the mean of the members' gradients. Prior functions have
a torso of their own, drawn once and never trained.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.base import SHARED, Batch, Belief, BeliefState, Info
from priorax.beliefs.ensemble import Ensemble
from priorax.beliefs.gradient import Adam, Optimizer, as_optimizer, gradient_step, stream_losses
from priorax.checks import positive_int
from priorax.convnets import Convnet
from priorax.heads import Head, values_of
from priorax.networks import Network, as_network


class Parts(NamedTuple):
    """Parameters, or frozen arrays, of torso and members."""

    torso: PyTree
    """Those of the torso."""
    members: PyTree
    """Those of the members, with a leading member axis."""


class SharedTorso(Belief):
    """K members on a shared torso, Q_k = f_k(torso(x)) + prior_scale * p_k(prior_torso(x))."""

    base: Ensemble
    """The members; their inputs are the torso's features. Its optimiser is not used."""
    torso: Network = eqx.field(static=True, default=Convnet(), converter=as_network)
    """The torso's network: trained, and drawn a second time for the prior functions."""
    num_features: int = eqx.field(static=True, default=256)
    """Number of features, after a ReLU and normalisation to a root mean square of one."""
    optimizer: Optimizer = eqx.field(default=Adam(), converter=as_optimizer)
    """Optimiser of torso and members together."""

    def __check_init__(self) -> None:
        positive_int("num_features", self.num_features)
        if self.base.is_sparse or self.base.l2 is not None:
            raise ValueError("members on a shared torso support neither sparse_rows nor l2; leave both out")

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
    def num_members(self) -> int:
        return self.base.num_members

    @property
    def prior(self) -> Network | None:
        """The members' prior network; None: no prior functions."""
        return self.base.prior

    @property
    def has_prior(self) -> bool:
        return self.base.has_prior

    @property
    def stores_prior(self) -> bool:
        return self.base.stores_prior

    @property
    def prior_scale(self) -> float | Float[Array, ""]:
        return self.base.prior_scale

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        """Initialise K members, the torso and the priors' torso, from independent keys.

        Args:
            key: PRNG key.
            x: One example input.

        Returns:
            The initial state.
        """
        key_torso, key_prior, key_members = jax.random.split(key, 3)
        torso = self.torso.init(key_torso, x, self.num_features)
        prior = self.torso.init(key_prior, x, self.num_features) if self.base.prior is not None else ()
        members = self.base.init(key_members, jnp.zeros(self.num_features))
        params = Parts(torso, members.params)
        return BeliefState(params, Parts(prior, members.frozen), self.optimizer.init(params))

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> Int[Array, ""]:
        return self.base.draw(self._members(state), key)

    def value(self, state: BeliefState, index: Int[Array, ""], x: Any) -> Float[Array, " output"]:
        return values_of(self.head, self.member_output(state, index, x))

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        axes = 1 if shared else 2
        features = self._features(state.params.torso, x, axes)
        share = 1 / self.num_members  # the torso receives the mean of the members' gradients, not their sum
        features = share * features + (1 - share) * jax.lax.stop_gradient(features)
        if prior is None and self.base.prior is not None:
            prior = self._prior_values(state, x, axes)
        return self.base.forward(self._members(state), key, features, prior, shared)

    def prior_values(self, state: BeliefState, x: Any) -> Float[Array, "stream batch output prior"] | None:
        return None if self.base.prior is None else self._prior_values(state, x, 1)

    def member_axes(self, state: BeliefState) -> BeliefState:
        members = jax.tree_util.GetAttrKey("members")  # of `Parts`, which optimiser states contain as well
        axes: BeliefState = jax.tree_util.tree_map_with_path(lambda path, _: 0 if members in path else SHARED, state)
        return axes

    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        return stream_losses(self.head, self.forward(state, key, batch.x, batch.prior, batch.shared), batch)

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        return gradient_step(self, state, batch, key)

    def _members(self, state: BeliefState) -> BeliefState:
        return BeliefState(state.params.members, state.frozen.members)

    def _features(self, torso: PyTree, x: Any, axes: int) -> Float[Array, "*axis feature"]:
        """Evaluate the torso on inputs with `axes` leading axes.

        Features have a root mean square of one, so that a prior scale means the same for dark and bright images.
        """

        def evaluate(row: Any) -> Array:
            flat = jax.nn.relu(self.torso.apply(torso, row))
            return flat * jax.lax.rsqrt(jnp.mean(flat**2) + 1e-8)

        for _ in range(axes):
            evaluate = jax.vmap(evaluate)
        return evaluate(x)

    def _prior_values(self, state: BeliefState, x: Any, axes: int) -> Float[Array, "stream batch output prior"]:
        features = jax.lax.stop_gradient(self._features(state.frozen.torso, x, axes))
        own = lambda frozen, rows: jax.vmap(lambda row: self.base.prior_value(frozen, row))(rows)  # noqa: E731
        return jax.vmap(own, in_axes=(0, None if axes == 1 else 0))(state.frozen.members, features)
