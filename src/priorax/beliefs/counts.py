"""Density counts (section 2.4): a mean learned by any belief, plus a bonus where few examples have been.

The bonus is bonus_scale / sqrt(count). What was never seen counts as `first_count` visits, so its bonus is finite.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Num, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, BeliefState, Wrapper, check_number
from priorax.checks import non_negative, positive, positive_int


@runtime_checkable
class Density(Protocol):
    """A model of where the examples are."""

    def init(self, x: Any) -> PyTree: ...
    def add(self, tally: PyTree, x: Any, weight: Float[Array, " batch"]) -> PyTree: ...
    def count(self, tally: PyTree, x: Any) -> Float[Array, ""]: ...


@dataclass(frozen=True)
class TableCount:
    """True visit counts of discrete states; an index outside [0, num_rows) is no state, and is never counted."""

    num_rows: int

    def __post_init__(self) -> None:
        positive_int("num_rows", self.num_rows)

    def init(self, x: Any) -> Float[Array, " row"]:
        return jnp.zeros(self.num_rows)

    def add(self, tally: Array, x: Integer[Array, " batch"], weight: Float[Array, " batch"]) -> Float[Array, " row"]:
        return tally.at[self._row(x)].add(weight, mode="drop")

    def count(self, tally: Float[Array, " row"], x: Integer[Array, ""]) -> Float[Array, ""]:
        return tally.at[self._row(x)].get(mode="fill", fill_value=0.0)

    def _row(self, x: Integer[Array, "*batch"]) -> Integer[Array, "*batch"]:
        """Where JAX would count a negative index from the end, one past it."""
        return jnp.where(x < 0, self.num_rows, x)


@dataclass(frozen=True)
class OneHotCount:
    """True counts of inputs that are one-hot; any other input is never counted."""

    def init(self, x: Any) -> Float[Array, " input"]:
        return jnp.zeros(jnp.size(x))

    def add(self, tally: Array, x: Num[Array, "batch ..."], weight: Float[Array, " batch"]) -> Float[Array, " input"]:
        return tally + weight @ jax.vmap(_one_hot)(x)

    def count(self, tally: Float[Array, " input"], x: Num[Array, "..."]) -> Float[Array, ""]:
        return tally @ _one_hot(x)


def _one_hot(x: Num[Array, "..."]) -> Float[Array, " input"]:
    """The input as a flat vector; zeros where it is not one-hot."""
    flat = jnp.ravel(x).astype(float)
    return flat * (jnp.all((flat == 0) | (flat == 1)) & (jnp.sum(flat) == 1))


class Moments(NamedTuple):
    """What a Gaussian is made of. All of it is small where inputs differ little, wherever they are: sums of squares
    would lose a spread that is small beside the mean."""

    n: Float[Array, ""]
    origin: Float[Array, " dim"]
    """The first input."""
    mean: Float[Array, " dim"]
    """From the origin."""
    scatter: Float[Array, "dim dim"]
    """About the mean."""


@dataclass(frozen=True)
class GaussianCount:
    """The pseudocount of a Gaussian density fitted to all inputs: n * p(x)/p(mean), as in figure 2."""

    ridge: float = 1e-3
    """Added to the covariance's diagonal."""

    def __post_init__(self) -> None:
        non_negative("ridge", self.ridge)

    def init(self, x: Any) -> Moments:
        dim = jnp.size(x)
        if dim > MOST_INPUTS:
            raise ValueError(
                f"x has {dim} numbers, and GaussianCount keeps a covariance of at most {MOST_INPUTS}; "
                "count them with HashCount()"
            )
        return Moments(jnp.zeros(()), jnp.zeros(dim), jnp.zeros(dim), jnp.zeros((dim, dim)))

    def add(self, tally: Moments, x: Num[Array, "batch ..."], weight: Float[Array, " batch"]) -> Moments:
        """The moments of both together (Chan et al. 1979)."""
        rows = x.reshape(x.shape[0], -1).astype(float)
        origin = jnp.where(tally.n > 0, tally.origin, rows[jnp.argmax(weight > 0)])
        rows, new = rows - origin, jnp.sum(weight)
        mean = weight @ rows / jnp.where(new > 0, new, 1.0)
        apart = rows - mean
        scatter = (apart * weight[:, None]).T @ apart
        n = tally.n + new
        gap, part = mean - tally.mean, new / jnp.where(n > 0, n, 1.0)
        scatter = tally.scatter + scatter + tally.n * part * jnp.outer(gap, gap)
        return Moments(n, origin, tally.mean + part * gap, scatter)

    def count(self, tally: Moments, x: Num[Array, "..."]) -> Float[Array, ""]:
        """By the Cholesky factor of the correlations: units do not matter, and a distance is never negative."""
        dim = tally.mean.size
        cov = tally.scatter / jnp.maximum(tally.n, 1.0) + self.ridge * jnp.eye(dim)
        std = jnp.sqrt(jnp.maximum(jnp.diagonal(cov), 1e-30))
        rounding = 10 * dim * jnp.finfo(cov.dtype).eps
        factor = jnp.linalg.cholesky(cov / jnp.outer(std, std) + rounding * jnp.eye(dim))
        gap = (jnp.ravel(x).astype(float) - tally.origin - tally.mean) / std
        return tally.n * jnp.exp(-0.5 * jnp.sum(jax.scipy.linalg.solve_triangular(factor, gap, lower=True) ** 2))


MOST_INPUTS = 2048
"""Of a `GaussianCount`: its covariance is factorised at each count."""


class Hashed(NamedTuple):
    """Visits of each code, and how an input gets its code."""

    visits: Float[Array, " code"]
    origin: Float[Array, " input"]
    directions: Float[Array, "bit input"]


@dataclass(frozen=True)
class HashCount:
    """Counts of what looks alike, for inputs of many numbers such as pictures (SimHash, Tang et al. 2017).

    An input's code says on which side of so many random planes it lies. They go through the example input that the
    belief was started with, so that what is the same in all inputs does not matter.
    """

    bits: int = 16
    """Planes; there are 2**bits codes."""

    def __post_init__(self) -> None:
        if positive_int("bits", self.bits) > 24:
            raise ValueError(f"bits={self.bits} would need a table of 2**{self.bits} counts; pass at most bits=24")

    def init(self, x: Any) -> Hashed:
        origin = jnp.ravel(jnp.asarray(x)).astype(float)
        return Hashed(jnp.zeros(2**self.bits), origin, jax.random.normal(jax.random.key(0), (self.bits, origin.size)))

    def add(self, tally: Hashed, x: Num[Array, "batch ..."], weight: Float[Array, " batch"]) -> Hashed:
        codes = jax.vmap(lambda row: self._code(tally, row))(x)
        return tally._replace(visits=tally.visits.at[codes].add(weight))

    def count(self, tally: Hashed, x: Num[Array, "..."]) -> Float[Array, ""]:
        return tally.visits[self._code(tally, x)]

    def _code(self, tally: Hashed, x: Num[Array, "..."]) -> Integer[Array, ""]:
        sides = tally.directions @ (jnp.ravel(x).astype(float) - tally.origin) > 0
        return jnp.sum(jnp.where(sides, 2 ** jnp.arange(self.bits), 0))


class Counts(Wrapper):
    """The mean of `base`, made optimistic by `bonus`."""

    base: Belief
    """Learns the mean: DQN is `Ensemble(num_members=1)`; any other that learns by gradient will do."""
    density: Density = eqx.field(static=True)
    """TableCount, OneHotCount, GaussianCount or HashCount."""
    bonus_scale: float | Float[Array, ""] = 0.1
    """beta."""
    first_count: float = eqx.field(static=True, default=0.01)
    """What an unseen input counts as: its bonus is bonus_scale / sqrt(first_count)."""

    def __check_init__(self) -> None:
        check_number(non_negative, "bonus_scale", self.bonus_scale)
        positive("first_count", self.first_count)
        if not self.base.by_gradient:
            raise ValueError(
                f"base={type(self.base).__name__} keeps what it saw where counts are kept; "
                "use one that learns by gradient, such as Ensemble(num_members=1)"
            )

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        return self.base.init(key, x)._replace(aux=self.density.init(x))

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree:
        return self.base.draw(state, key)

    def bonus(self, state: BeliefState, x: Any) -> Float[Array, ""]:
        """bonus_scale / sqrt(count of x), the count before this visit."""
        return self.bonus_scale / jnp.sqrt(jnp.maximum(self.density.count(state.aux, x), self.first_count))

    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        return self.base.value(state, index, x) + self.bonus(state, x)

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        """Count each example once."""
        rows = batch.x if batch.shared else jax.tree.map(lambda leaf: leaf[0], batch.x)
        return state._replace(aux=self.density.add(state.aux, rows, batch.weight[0]))
