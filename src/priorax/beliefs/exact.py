"""Exact Bayes for linear-Gaussian models: equation (3), the reference that the other beliefs approximate."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.beliefs.base import Batch, Belief, BeliefState, Info, check_number
from priorax.checks import positive
from priorax.heads import Head, Scalar


class Root(NamedTuple):
    """The posterior by a square root of its precision: precision = factor' factor, factor @ mean = moment.

    The precision itself squares the features, which exceeds float32 accuracy if they are large compared with their
    differences: [1, 1000 + u] would have no inverse.
    """

    factor: Float[Array, "feature feature"]
    """Upper triangular square root."""
    moment: Float[Array, "feature output"]
    """Right-hand side of the equation for the mean."""


class ExactBayes(Belief):
    """Bayesian linear regression: theta ~ N(prior_mean, prior_variance I), y = features(x)' theta + N(0, noise_std²)
    noise.
    """

    features: Callable[[Any], Array] = eqx.field(static=True, default=jnp.ravel)
    """Feature function, in which the model is linear."""
    prior_variance: float | Float[Array, ""] = 1.0
    """Prior variance lambda."""
    noise_std: float | Float[Array, ""] = 1.0
    """Noise standard deviation sigma."""
    prior_mean: float | Float[Array, ""] = 0.0
    """Prior mean theta bar, the same for every weight."""
    num_outputs: int = eqx.field(static=True, default=1)
    """Number of regression targets."""
    head: Head = eqx.field(static=True, default=Scalar())
    """Interpretation of an output."""

    def __check_init__(self) -> None:
        check_number(positive, "prior_variance", self.prior_variance)
        check_number(positive, "noise_std", self.noise_std)

    @property
    def by_gradient(self) -> bool:
        return False

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        dim = jax.eval_shape(self.features, x).size
        scale = 1 / jnp.sqrt(jnp.asarray(self.prior_variance, float))
        moment = jnp.full((dim, self.num_outputs), self.prior_mean * scale)
        return BeliefState((), aux=Root(scale * jnp.eye(dim), moment))

    def posterior(self, state: BeliefState) -> tuple[Float[Array, "feature output"], Float[Array, "feature feature"]]:
        """Compute mean and covariance of theta given the data: equation (3).

        Args:
            state: State of the belief.

        Returns:
            Mean and covariance.
        """
        root: Root = state.aux
        inverse = _solve(root.factor, jnp.eye(root.factor.shape[0]))
        return _solve(root.factor, root.moment), inverse @ inverse.T

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> Float[Array, "feature output"]:
        """Sample theta from the posterior.

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            The sample.
        """
        root: Root = state.aux
        return _solve(root.factor, root.moment + jax.random.normal(key, root.moment.shape))

    def value(self, state: BeliefState, index: Float[Array, "feature output"], x: Any) -> Float[Array, " output"]:
        return self.features(x) @ index

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        rows = x if shared else jax.tree.map(lambda leaf: leaf[0], x)
        theta = self.draw(state, key)
        return jax.vmap(lambda row: self.value(state, theta, row))(rows)[None, :, :, None]

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        """Condition on a batch, in closed form.

        Args:
            state: State of the belief.
            batch: New examples.

        Returns:
            The new state.
        """
        rows = batch.x if batch.shared else jax.tree.map(lambda leaf: leaf[0], batch.x)
        phi = jax.vmap(self.features)(rows)
        dim = phi.shape[1]
        weight = jnp.sqrt(batch.weight[0])[:, None] / self.noise_std
        before = jnp.concatenate([state.aux.factor, state.aux.moment], axis=1)
        new = weight * jnp.concatenate([phi, batch.target[0]], axis=1)
        both = jnp.linalg.qr(jnp.concatenate([before, new]), mode="r")[:dim]
        return state._replace(aux=Root(both[:, :dim], both[:, dim:]))

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        # nothing is learned by gradient: `observe` conditions on the data
        return state, Info(jnp.zeros(1))


def _solve(factor: Float[Array, "feature feature"], right: Float[Array, "feature column"]) -> Array:
    return jax.scipy.linalg.solve_triangular(factor, right, lower=False)
