"""Exact Bayes for linear-Gaussian models: equation (3), the reference that the others approximate."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.beliefs.base import Batch, Info, State, check_number
from priorax.checks import positive
from priorax.heads import Head, Scalar


class Gram(NamedTuple):
    """Posterior precision and precision-weighted mean."""

    precision: Float[Array, "feature feature"]
    moment: Float[Array, "feature output"]


class ExactBayes(eqx.Module):
    """theta ~ N(prior_mean, prior_variance I), y = features(x)' theta + N(0, noise_std²)."""

    features: Callable[[Any], Array] = eqx.field(static=True, default=jnp.ravel)
    """What the model is linear in."""
    prior_variance: float | Float[Array, ""] = 1.0
    """lambda."""
    noise_std: float | Float[Array, ""] = 1.0
    """sigma."""
    prior_mean: float | Float[Array, ""] = 0.0
    """theta bar, the same for every weight."""
    num_outputs: int = eqx.field(static=True, default=1)
    head: Head = eqx.field(static=True, default=Scalar())

    @property
    def num_streams(self) -> int:
        return 1

    @property
    def by_gradient(self) -> bool:
        return False

    def __check_init__(self) -> None:
        check_number(positive, "prior_variance", self.prior_variance)
        check_number(positive, "noise_std", self.noise_std)

    def init(self, key: PRNGKeyArray, x: Any) -> State:
        dim = jax.eval_shape(self.features, x).size
        precision = jnp.eye(dim) / self.prior_variance
        moment = jnp.full((dim, self.num_outputs), self.prior_mean / self.prior_variance, dtype=float)
        return State((), aux=Gram(precision, moment))

    def posterior(self, state: State) -> tuple[Float[Array, "feature output"], Float[Array, "feature feature"]]:
        """Mean and covariance of theta given the data: equation (3)."""
        cov = jnp.linalg.inv(state.aux.precision)
        return cov @ state.aux.moment, cov

    def draw(self, state: State, key: PRNGKeyArray) -> Float[Array, "feature output"]:
        """theta, a sample of the posterior."""
        factor = jnp.linalg.cholesky(state.aux.precision)
        mean = jax.scipy.linalg.cho_solve((factor, True), state.aux.moment)
        noise = jax.random.normal(key, state.aux.moment.shape)
        return mean + jax.scipy.linalg.solve_triangular(factor.T, noise, lower=False)

    def value(self, state: State, index: Float[Array, "feature output"], x: Any) -> Float[Array, " output"]:
        return self.features(x) @ index

    def forward(
        self, state: State, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        rows = x if shared else jax.tree.map(lambda leaf: leaf[0], x)
        theta = self.draw(state, key)
        return jax.vmap(lambda row: self.value(state, theta, row))(rows)[None, :, :, None]

    def observe(self, state: State, batch: Batch) -> State:
        """Condition on a batch, in closed form."""
        rows = batch.x if batch.shared else jax.tree.map(lambda leaf: leaf[0], batch.x)
        phi = jax.vmap(self.features)(rows)
        weighted = phi * batch.weight[0][:, None] / self.noise_std**2
        gram = Gram(state.aux.precision + weighted.T @ phi, state.aux.moment + weighted.T @ batch.target[0])
        return state._replace(aux=gram)

    def update(self, state: State, batch: Batch, key: PRNGKeyArray) -> tuple[State, Info]:
        """Nothing is left to learn by gradient."""
        return state, Info(jnp.zeros(1))
