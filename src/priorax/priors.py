"""Where prior functions come from (paper, algorithm 1, line 4: sample p_k).

A prior function is a network whose parameters are drawn once and never trained, so anything in
`priorax.networks` is also a prior: `MLP(...)` is the paper's random network. Here are the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Num, PRNGKeyArray, PyTree

from priorax.checks import non_negative, positive, positive_int
from priorax.networks import MLP, Layer, Network


@dataclass(frozen=True)
class Linear:
    """x' w with w ~ N(0, std² I): with `prior_scale` = sqrt(lambda) the prior of lemma 3."""

    std: float = 1.0
    """Standard deviation of each weight."""
    bias_std: float = 0.0
    """Standard deviation of the constant term."""

    def __post_init__(self) -> None:
        non_negative("std", self.std)
        non_negative("bias_std", self.bias_std)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> tuple[Layer, ...]:
        return self._network().init(key, x, num_out)

    def apply(self, params: tuple[Layer, ...], x: Num[Array, "..."]) -> Array:
        return self._network().apply(params, x)

    def _network(self) -> MLP:
        return MLP((), use_bias=self.bias_std > 0, bias_scale=self.bias_std, weight_std=self.std)


class Fourier(NamedTuple):
    """The frozen numbers of one random-feature draw."""

    frequency: Float[Array, "in feature"]
    phase: Float[Array, " feature"]
    weight: Float[Array, "feature out"]


@dataclass(frozen=True)
class RandomFourier:
    """Draws of a Gaussian process with kernel exp(-|x-x'|²/(2 lengthscale²)), by random Fourier features."""

    lengthscale: float = 1.0
    """How far one must go for the function to change."""
    num_features: int = 256
    """More features come closer to the Gaussian process."""

    def __post_init__(self) -> None:
        positive("lengthscale", self.lengthscale)
        positive_int("num_features", self.num_features)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Fourier:
        key_frequency, key_phase, key_weight = jax.random.split(key, 3)
        return Fourier(
            jax.random.normal(key_frequency, (jnp.size(x), self.num_features)) / self.lengthscale,
            jax.random.uniform(key_phase, (self.num_features,), maxval=2 * jnp.pi),
            jax.random.normal(key_weight, (self.num_features, num_out)) * (2 / self.num_features) ** 0.5,
        )

    def apply(self, params: Fourier, x: Num[Array, "..."]) -> Array:
        return jnp.cos(jnp.ravel(x) @ params.frequency + params.phase) @ params.weight


@dataclass(frozen=True)
class Tabulated:
    """A prior over discrete states, evaluated once at each of them: the same function, later only looked up.

    The states are 0..num_rows-1; the row after them stands for every index outside.
    """

    prior: Network
    """What is evaluated: any network of an index."""
    num_rows: int
    """How many states there are."""

    def __post_init__(self) -> None:
        positive_int("num_rows", self.num_rows)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Float[Array, "row out"]:
        params = self.prior.init(key, x, num_out)
        return jax.vmap(lambda row: self.prior.apply(params, row))(jnp.arange(self.num_rows + 1))

    def apply(self, params: Float[Array, "row out"], x: Integer[Array, ""]) -> Float[Array, " out"]:
        return _row(params, x)


@dataclass(frozen=True)
class Around:
    """Draws around known values of discrete states, N(values, std²): the paper's "task-specific knowledge"."""

    values: tuple[tuple[float, ...], ...]
    """One row per state, one number per output; outside, zero."""
    std: float = 1.0
    """How far draws are from them."""

    def __post_init__(self) -> None:
        non_negative("std", self.std)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Float[Array, "row out"]:
        mean = jnp.asarray((*self.values, (0.0,) * num_out))
        return mean + self.std * jax.random.normal(key, mean.shape)

    def apply(self, params: Float[Array, "row out"], x: Integer[Array, ""]) -> Float[Array, " out"]:
        return _row(params, x)


@dataclass(frozen=True)
class Constant:
    """The same standard normal number everywhere, one per output."""

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Float[Array, " out"]:
        return jax.random.normal(key, (num_out,))

    def apply(self, params: Float[Array, " out"], x: Any) -> Float[Array, " out"]:
        return params


@dataclass(frozen=True)
class Function:
    """A user's own function of x, the same for every member. It sees x as the user gave it.

    For one that differs by member pass a `(init, apply)` pair instead: `init(key, x)` draws it.
    """

    function: Callable[[Any], Array]

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> PyTree:
        return ()

    def apply(self, params: PyTree, x: Any) -> Array:
        return jnp.ravel(jnp.asarray(self.function(x), dtype=float))


def _row(table: Float[Array, "row out"], x: Integer[Array, ""]) -> Float[Array, " out"]:
    """The row of a state; the last row stands for every index outside."""
    last = table.shape[0] - 1
    return table[jnp.where(x < 0, last, jnp.minimum(x, last))]


TABLES = (Tabulated, Around)
"""Priors that are only looked up: keeping their values elsewhere would save nothing."""
