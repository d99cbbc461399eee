"""Density counts (section 2.4): a mean learned by any belief, plus an exploration bonus where examples are few.

The bonus is bonus_scale / sqrt(count). An unseen input has a count of `first_count`, so that its bonus is finite.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Num, PRNGKeyArray, PyTree

from priorax.beliefs.base import Belief, BeliefState, check_number
from priorax.beliefs.bonus import Bonus
from priorax.checks import non_negative, positive, positive_int


@runtime_checkable
class Density(Protocol):
    """Interface of a density model that counts inputs."""

    def init(self, x: Any) -> PyTree:
        """Create an empty tally.

        Args:
            x: One example input.

        Returns:
            The tally.
        """
        ...

    def add(self, tally: PyTree, x: Any, weight: Float[Array, " batch"]) -> PyTree:
        """Count a batch of inputs.

        Args:
            tally: The tally.
            x: Inputs [batch, ...].
            weight: Weight of each input; zero is not counted.

        Returns:
            The new tally.
        """
        ...

    def count(self, tally: PyTree, x: Any) -> Float[Array, ""]:
        """Look up the (pseudo)count of ONE input.

        Args:
            tally: The tally.
            x: One input, without batch axis.

        Returns:
            The count.
        """
        ...


@dataclass(frozen=True)
class TableCount:
    """Exact visit counts of discrete states; indices outside [0, num_rows) are never counted."""

    num_rows: int
    """Number of states."""

    def __post_init__(self) -> None:
        positive_int("num_rows", self.num_rows)

    def init(self, x: Any) -> Float[Array, " row"]:
        return jnp.zeros(self.num_rows)

    def add(self, tally: Array, x: Integer[Array, " batch"], weight: Float[Array, " batch"]) -> Float[Array, " row"]:
        return tally.at[self._row(x)].add(weight, mode="drop")

    def count(self, tally: Float[Array, " row"], x: Integer[Array, ""]) -> Float[Array, ""]:
        return tally.at[self._row(x)].get(mode="fill", fill_value=0.0)

    def _row(self, x: Integer[Array, "*batch"]) -> Integer[Array, "*batch"]:
        """Map negative indices, which JAX would count from the end, to an index outside the table."""
        return jnp.where(x < 0, self.num_rows, x)


@dataclass(frozen=True)
class OneHotCount:
    """Exact counts of one-hot inputs; other inputs are never counted."""

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
    """Sufficient statistics of a Gaussian, numerically stable if the spread is small compared with the mean, where sums
    of squares would lose it.
    """

    n: Float[Array, ""]
    """Number of inputs."""
    origin: Float[Array, " dim"]
    """The first input."""
    mean: Float[Array, " dim"]
    """Mean, relative to the origin."""
    scatter: Float[Array, "dim dim"]
    """Scatter matrix about the mean."""


@dataclass(frozen=True)
class GaussianCount:
    """Pseudocount by a Gaussian density fitted to all inputs: n * p(x)/p(mean), as in figure 2."""

    ridge: float = 1e-3
    """Added to the diagonal of the covariance."""

    def __post_init__(self) -> None:
        non_negative("ridge", self.ridge)

    def init(self, x: Any) -> Moments:
        dim = jnp.size(x)
        if dim > MOST_INPUTS:
            raise ValueError(
                f"x has {dim} components, and the covariance of GaussianCount has at most {MOST_INPUTS}; "
                "use HashCount()"
            )
        return Moments(jnp.zeros(()), jnp.zeros(dim), jnp.zeros(dim), jnp.zeros((dim, dim)))

    def add(self, tally: Moments, x: Num[Array, "batch ..."], weight: Float[Array, " batch"]) -> Moments:
        """Merge the moments of a batch (Chan et al. 1979).

        Args:
            tally: The moments so far.
            x: Inputs [batch, ...].
            weight: Weight of each input; zero is not counted.

        Returns:
            The merged moments.
        """
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
        """Compute the pseudocount by the Cholesky factor of the correlation matrix, which makes it independent of
        units, and distances non-negative.

        Args:
            tally: The moments.
            x: One input, without batch axis.

        Returns:
            The pseudocount.
        """
        dim = tally.mean.size
        cov = tally.scatter / jnp.maximum(tally.n, 1.0) + self.ridge * jnp.eye(dim)
        std = jnp.sqrt(jnp.maximum(jnp.diagonal(cov), 1e-30))
        rounding = 10 * dim * jnp.finfo(cov.dtype).eps
        factor = jnp.linalg.cholesky(cov / jnp.outer(std, std) + rounding * jnp.eye(dim))
        gap = (jnp.ravel(x).astype(float) - tally.origin - tally.mean) / std
        return tally.n * jnp.exp(-0.5 * jnp.sum(jax.scipy.linalg.solve_triangular(factor, gap, lower=True) ** 2))


MOST_INPUTS = 2048
"""Maximum dimension of inputs of `GaussianCount`, whose covariance is factorised at each count."""


class Hashed(NamedTuple):
    """Visits by hash code, and the hash function."""

    visits: Float[Array, " code"]
    """Number of visits of each code."""
    origin: Float[Array, " input"]
    """A point on all hyperplanes."""
    directions: Float[Array, "bit input"]
    """Normal vectors of the hyperplanes."""


@dataclass(frozen=True)
class HashCount:
    """Counts of similar inputs by locality-sensitive hashing, for high-dimensional inputs such as images (SimHash, Tang
    et al. 2017).

    The code of an input has one bit for each random hyperplane: the side on which it lies. Hyperplanes go through the
    example input of `init`, so that components which are equal in all inputs have no influence.
    """

    bits: int = 16
    """Number of hyperplanes; there are 2**bits codes."""

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


class Counts(Bonus):
    """The mean of `base` plus a count-based exploration bonus."""

    base: Belief
    """Learns the mean: DQN is `Ensemble(num_members=1)`; any other belief that learns by gradient is possible."""
    density: Density = eqx.field(static=True)
    """The density model: TableCount, OneHotCount, GaussianCount or HashCount."""
    bonus_scale: float | Float[Array, ""] = 0.1
    """Scale beta of the bonus."""
    first_count: float = eqx.field(static=True, default=0.01)
    """Count of an unseen input: its bonus is bonus_scale / sqrt(first_count)."""

    def __check_init__(self) -> None:
        check_number(non_negative, "bonus_scale", self.bonus_scale)
        positive("first_count", self.first_count)

    @property
    def _stored(self) -> str:
        return "counts"

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        """Initialise the state of the base, and the counts to zero.

        Args:
            key: PRNG key.
            x: One example input.

        Returns:
            The initial state.

        Raises:
            ValueError: If the base uses `aux` itself.
        """
        return self._init_base(key, x)._replace(aux=self.density.init(x))

    def bonus(self, state: BeliefState, x: Any) -> Float[Array, ""]:
        """Compute the bonus at ONE input: bonus_scale / sqrt(count of x before this visit).

        Args:
            state: State of the belief.
            x: One input, without batch axis.

        Returns:
            The bonus.
        """
        return self.bonus_scale / jnp.sqrt(jnp.maximum(self.density.count(state.aux, x), self.first_count))

    def reward_bonus(self, state: BeliefState, x: Any) -> Float[Array, " batch"]:
        return jax.vmap(lambda row: self.bonus(state, row))(x)

    def _seen(self, state: BeliefState, rows: Any, weight: Float[Array, " batch"]) -> PyTree:
        return self.density.add(state.aux, rows, weight)
