"""Density counts (section 2.4): a mean learned by any belief, plus a bonus where few examples have been.

The bonus is bonus_scale / sqrt(count). What was never seen counts as `first_count` visits, so its bonus is finite.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, State, Wrapper, check_number
from priorax.checks import non_negative, positive, positive_int


@runtime_checkable
class Density(Protocol):
    """A model of where the examples are."""

    def init(self, x: Any) -> PyTree: ...
    def add(self, tally: PyTree, x: Any, weight: Float[Array, " batch"]) -> PyTree: ...
    def count(self, tally: PyTree, x: Any) -> Float[Array, ""]: ...


@dataclass(frozen=True)
class TableCount:
    """True visit counts of discrete states."""

    num_rows: int

    def __post_init__(self) -> None:
        positive_int("num_rows", self.num_rows)

    def init(self, x: Any) -> Float[Array, " row"]:
        return jnp.zeros(self.num_rows)

    def add(self, tally: Array, x: Integer[Array, " batch"], weight: Float[Array, " batch"]) -> Float[Array, " row"]:
        return tally.at[x].add(weight, mode="drop")

    def count(self, tally: Float[Array, " row"], x: Integer[Array, ""]) -> Float[Array, ""]:
        return tally.at[x].get(mode="fill", fill_value=0.0)


@dataclass(frozen=True)
class OneHotCount:
    """True counts of inputs that are one-hot."""

    def init(self, x: Any) -> Float[Array, " input"]:
        return jnp.zeros(jnp.size(x))

    def add(self, tally: Array, x: Float[Array, "batch input"], weight: Float[Array, " batch"]) -> Array:
        return tally + weight @ x

    def count(self, tally: Float[Array, " input"], x: Float[Array, " input"]) -> Float[Array, ""]:
        return tally @ x


class Moments(NamedTuple):
    """Sums that a Gaussian is made of."""

    n: Float[Array, ""]
    first: Float[Array, " dim"]
    second: Float[Array, "dim dim"]


@dataclass(frozen=True)
class GaussianCount:
    """The pseudocount of a Gaussian density fitted to all inputs: n * p(x)/p(mean), as in figure 2."""

    ridge: float = 1e-3
    """Added to the covariance's diagonal."""

    def init(self, x: Any) -> Moments:
        dim = jnp.size(x)
        return Moments(jnp.zeros(()), jnp.zeros(dim), jnp.zeros((dim, dim)))

    def add(self, tally: Moments, x: Float[Array, "batch ..."], weight: Float[Array, " batch"]) -> Moments:
        rows = x.reshape(x.shape[0], -1)
        weighted = rows * weight[:, None]
        return Moments(tally.n + jnp.sum(weight), tally.first + weighted.sum(0), tally.second + weighted.T @ rows)

    def count(self, tally: Moments, x: Float[Array, "..."]) -> Float[Array, ""]:
        n = jnp.maximum(tally.n, 1.0)
        mean = tally.first / n
        cov = tally.second / n - jnp.outer(mean, mean) + self.ridge * jnp.eye(mean.size)
        gap = jnp.ravel(x) - mean
        return tally.n * jnp.exp(-0.5 * gap @ jnp.linalg.solve(cov, gap))


class Counts(Wrapper):
    """The mean of `base`, made optimistic by `bonus`."""

    base: Belief
    """Learns the mean: DQN is `Ensemble(num_members=1)`."""
    density: Density = eqx.field(static=True)
    """TableCount or GaussianCount."""
    bonus_scale: float | Float[Array, ""] = 0.1
    """beta."""
    first_count: float = eqx.field(static=True, default=0.01)
    """What an unseen input counts as: its bonus is bonus_scale / sqrt(first_count)."""

    def __check_init__(self) -> None:
        check_number(non_negative, "bonus_scale", self.bonus_scale)
        positive("first_count", self.first_count)

    def init(self, key: PRNGKeyArray, x: Any) -> State:
        return self.base.init(key, x)._replace(aux=self.density.init(x))

    def draw(self, state: State, key: PRNGKeyArray) -> PyTree:
        return self.base.draw(state, key)

    def bonus(self, state: State, x: Any) -> Float[Array, ""]:
        """bonus_scale / sqrt(count of x), the count before this visit."""
        return self.bonus_scale / jnp.sqrt(jnp.maximum(self.density.count(state.aux, x), self.first_count))

    def value(self, state: State, index: PyTree, x: Any) -> Float[Array, " output"]:
        return self.base.value(state, index, x) + self.bonus(state, x)

    def observe(self, state: State, batch: Batch) -> State:
        """Count each example once."""
        rows = batch.x if batch.shared else jax.tree.map(lambda leaf: leaf[0], batch.x)
        return state._replace(aux=self.density.add(state.aux, rows, batch.weight[0]))
