"""Prior functions (paper, algorithm 1, line 4: sample p_k).

A prior function is a network whose parameters are drawn once and never trained. Every network in `priorax.networks` can
be used as a prior: `MLP(...)` is the randomly initialised network of the paper. This module has the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Num, PRNGKeyArray, PyTree

from priorax.checks import non_negative, one_of, positive, positive_int
from priorax.networks import ACTIVATIONS, MLP, Layer, Network, as_network


@dataclass(frozen=True)
class Linear:
    """A linear function with weights w ~ N(0, std² I). With `prior_scale` = sqrt(lambda) it is the prior of lemma 3."""

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
    """Parameters of one draw of random Fourier features."""

    frequency: Float[Array, "in feature"]
    phase: Float[Array, " feature"]
    weight: Float[Array, "feature out"]


@dataclass(frozen=True)
class RandomFourier:
    """Draws of a Gaussian process with kernel exp(-|x-x'|²/(2 lengthscale²)), approximated by random Fourier
    features.
    """

    lengthscale: float = 1.0
    """Length scale of the kernel, in units of the inputs."""
    num_features: int = 256
    """Number of features; more approximate the Gaussian process better."""

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
    """A prior over discrete states that is evaluated once at every state and then looked up.

    The states are 0 to num_rows - 1; one further row stands for every index outside that range.
    """

    prior: Network
    """The prior to tabulate: a network whose input is a state index."""
    num_rows: int
    """Number of states."""

    def __post_init__(self) -> None:
        positive_int("num_rows", self.num_rows)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Float[Array, "row out"]:
        params = self.prior.init(key, x, num_out)
        return jax.vmap(lambda row: self.prior.apply(params, row))(jnp.arange(self.num_rows + 1))

    def apply(self, params: Float[Array, "row out"], x: Integer[Array, ""]) -> Float[Array, " out"]:
        return _row(params, x)


class UnitSizeParams(NamedTuple):
    """Parameters of one draw of `UnitSize`."""

    prior: PyTree
    """Parameters of the prior."""
    size: Float[Array, ""]
    """Its root mean square."""


@dataclass(frozen=True)
class UnitSize:
    """A prior whose draws are divided by their root mean square over inputs and outputs.

    Its scale is then the size of the prior functions in units of the output, whatever their form.
    """

    prior: Network
    """The prior to divide."""
    num_rows: int | None = None
    """Inputs are the indices of this many states; None: they are arrays."""
    input_scale: tuple[float, ...] = ()
    """Standard deviation of each component of an array; empty: one. The components are drawn as independent normal
    numbers, the same for all members."""

    NUM_INPUTS: ClassVar[int] = 256

    def __post_init__(self) -> None:
        if self.num_rows is not None:
            positive_int("num_rows", self.num_rows)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> UnitSizeParams:
        params = self.prior.init(key, x, num_out)
        values = jax.vmap(lambda row: self.prior.apply(params, row))(self._inputs(x))
        size = jnp.sqrt(jnp.mean(values**2))
        return UnitSizeParams(params, jnp.where(size > 0, size, 1.0))  # a draw that is zero everywhere remains so

    def apply(self, params: UnitSizeParams, x: Any) -> Array:
        return self.prior.apply(params.prior, x) / params.size

    def _inputs(self, x: Any) -> Array:
        if self.num_rows is not None:
            return jnp.arange(self.num_rows)
        drawn = np.random.default_rng(0).normal(size=(self.NUM_INPUTS, *jnp.shape(x)))
        return jnp.asarray(drawn * (self.input_scale or 1.0), jnp.result_type(float))


class RandomSizeParams(NamedTuple):
    """Parameters of one draw of `RandomSize`."""

    prior: PyTree
    """Parameters of the prior."""
    factor: Float[Array, ""]
    """Its factor."""


@dataclass(frozen=True)
class RandomSize:
    """A prior whose draws are multiplied by random factors, log-uniform between 1/ratio and ratio.

    It is the prior of somebody who does not know the right scale: an ensemble has members for each.
    """

    prior: Network
    """The prior to multiply."""
    ratio: float
    """Largest factor, and the inverse of the smallest; at least 1."""

    def __post_init__(self) -> None:
        if not self.ratio >= 1:
            raise ValueError(f"ratio={self.ratio} must be at least 1; pass for example 10")

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> RandomSizeParams:
        key_prior, key_factor = jax.random.split(key)
        exponent = jax.random.uniform(key_factor, minval=-1.0, maxval=1.0)
        return RandomSizeParams(self.prior.init(key_prior, x, num_out), self.ratio**exponent)

    def apply(self, params: RandomSizeParams, x: Any) -> Array:
        return params.factor * self.prior.apply(params.prior, x)


class UnitRowsParams(NamedTuple):
    """Parameters of one draw of `UnitRows`."""

    features: PyTree
    """Parameters of the network below."""
    weight: Float[Array, "feature out"]
    """P: one row of unit norm per feature and output, [feature, output * index]."""


@dataclass(frozen=True)
class UnitRows:
    """The prior function of a hypermodel, <P xi, phi(x)>, as the numbers by which the index xi is multiplied.

    phi are the activations of a random network's last hidden layer; the rows of P, one per feature and output, are
    uniform on the unit sphere of the index.
    """

    features: Network
    """The random network whose outputs are activated to give the features."""
    num_features: int
    """Number of features."""
    index_dim: int
    """Dimension of the index."""
    activation: str = "relu"
    """Activation function of the features, by name."""

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        positive_int("num_features", self.num_features)
        positive_int("index_dim", self.index_dim)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> UnitRowsParams:
        key_features, key_rows = jax.random.split(key)
        num_each = _outputs_each(self.index_dim, num_out)
        rows = jax.random.normal(key_rows, (self.num_features, num_each, self.index_dim))
        rows = rows / jnp.linalg.norm(rows, axis=-1, keepdims=True)
        features = self.features.init(key_features, x, self.num_features)
        return UnitRowsParams(features, rows.reshape(self.num_features, num_out))

    def apply(self, params: UnitRowsParams, x: Any) -> Array:
        return ACTIVATIONS[self.activation](self.features.apply(params.features, x)) @ params.weight


@dataclass(frozen=True)
class Independent:
    """The prior function of an epinet, sum_k z_k p_k(x), as the numbers by which the index z is multiplied.

    The p_k are independent draws of a prior, one per component of the index.
    """

    prior: Network
    """Distribution of each p_k."""
    index_dim: int
    """Dimension of the index."""

    def __post_init__(self) -> None:
        positive_int("index_dim", self.index_dim)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> PyTree:
        num_each = _outputs_each(self.index_dim, num_out)
        return jax.vmap(lambda own: self.prior.init(own, x, num_each))(jax.random.split(key, self.index_dim))

    def apply(self, params: PyTree, x: Any) -> Array:
        return jnp.ravel(jax.vmap(lambda own: self.prior.apply(own, x), out_axes=-1)(params))


def _outputs_each(index_dim: int, num_out: int) -> int:
    """The number of outputs of each component of an index."""
    if num_out % index_dim:
        raise ValueError(
            f"index_dim={index_dim} does not divide the {num_out} outputs; give the belief the same index_dim"
        )
    return num_out // index_dim


@dataclass(frozen=True)
class Around:
    """Draws around known values of discrete states, N(values, std²): the paper's "task-specific knowledge"."""

    values: tuple[tuple[float, ...], ...]
    """One row per state with one number per output; the mean at any other index is 0."""
    std: float = 1.0
    """Standard deviation of the draws."""

    def __post_init__(self) -> None:
        non_negative("std", self.std)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Float[Array, "row out"]:
        mean = jnp.asarray((*self.values, (0.0,) * num_out))
        return mean + self.std * jax.random.normal(key, mean.shape)

    def apply(self, params: Float[Array, "row out"], x: Integer[Array, ""]) -> Float[Array, " out"]:
        return _row(params, x)


@dataclass(frozen=True)
class Constant:
    """A constant function: one standard normal number per output."""

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Float[Array, " out"]:
        return jax.random.normal(key, (num_out,))

    def apply(self, params: Float[Array, " out"], x: Any) -> Float[Array, " out"]:
        return params


@dataclass(frozen=True)
class Function:
    """A known function of x, the same for every member; it is evaluated at x as passed, not standardised.

    For functions that differ between members, pass an `(init, apply)` pair, whose `init(key, x)` draws one.
    """

    function: Callable[[Any], Array]
    """The function of one input."""

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> PyTree:
        return ()

    def apply(self, params: PyTree, x: Any) -> Array:
        return jnp.ravel(jnp.asarray(self.function(x), dtype=float))


def _row(table: Float[Array, "row out"], x: Integer[Array, ""]) -> Float[Array, " out"]:
    """Look up the row of a state; the last row stands for every index outside the range."""
    last = table.shape[0] - 1
    return table[jnp.where(x < 0, last, jnp.minimum(x, last))]


TABLES = (Tabulated, Around)
"""Priors that are table look-ups, whose values need not be stored with the data."""


def as_prior(prior: Any) -> Network | None:
    """Convert an argument to a prior.

    Args:
        prior: A network, an `(init, apply)` pair, or None.

    Returns:
        The network; None for no prior.

    Raises:
        TypeError: If it is none of these.
    """
    return None if prior is None else as_network(prior, "prior")
