"""Data noise: the perturbation of each member's copy of the data (paper, algorithm 1, line 3).

It is drawn ONCE per (example, member) and then kept: noise redrawn at every step would average out, and neither the
bootstrap nor lemma 3 would hold. A noise assigns each example a weight with mean one, or shifts its target.

Weights and shifts of n examples come in arrays of `size` rows (by default n). With a fixed `size`, n may be a traced
array, so that data sets of similar size share compiled code; rows past n are never read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from priorax.checks import non_negative, one_of

Count = int | Int[Array, ""]
"""A number of examples, static or traced."""


@runtime_checkable
class Noise(Protocol):
    """The perturbation of one member's copy of the data."""

    def weights(self, key: PRNGKeyArray, n: Count, size: int | None = None) -> Float[Array, " row"]:
        """Draw the weights of the examples.

        Args:
            key: A PRNG key.
            n: Number of examples.
            size: Number of rows; by default n.

        Returns:
            Weights with mean one.
        """
        ...

    def shift(
        self, key: PRNGKeyArray, n: Count, num_outputs: int, size: int | None = None
    ) -> Float[Array, "row output"] | None:
        """Draw shifts to add to the targets.

        Args:
            key: A PRNG key.
            n: Number of examples.
            num_outputs: Number of targets of each example.
            size: Number of rows; by default n.

        Returns:
            The shifts, or None if this noise does not change targets.
        """
        ...

    def take(self, rows: np.ndarray) -> "Noise":
        """Return the noise of a subset of the examples.

        Args:
            rows: Indices of the examples.

        Returns:
            The noise for those examples.
        """
        ...


@dataclass(frozen=True)
class Resampling:
    """Random weights with mean one; targets are not changed."""

    draw: Callable[[PRNGKeyArray, Count, int], Array]
    """Draws the weights: `draw(key, n, size)`."""
    independent: Callable[[PRNGKeyArray, Count, int], Array] | None = None
    """For weights that depend on each other (Efron's bootstrap): the independent weights they converge to as n grows.
    `online` uses them.
    """

    def weights(self, key: PRNGKeyArray, n: Count, size: int | None = None) -> Float[Array, " row"]:
        return self.draw(key, n, _size(n, size)).astype(float)

    def shift(self, key: PRNGKeyArray, n: Count, num_outputs: int, size: int | None = None) -> None:
        return None

    def take(self, rows: np.ndarray) -> "Resampling":
        return self


class Gaussian(eqx.Module):
    """Normal noise on the targets, y~_i ~ N(y_i, scale²): the noise of lemma 3."""

    scale: float | np.ndarray | Float[Array, "*example"]
    """Standard deviation: one number, or one per example."""

    def __check_init__(self) -> None:
        if np.ndim(self.scale) == 0:
            non_negative("scale", self.scale)
        elif not (np.all(np.isfinite(self.scale)) and np.all(np.asarray(self.scale) >= 0)):
            raise ValueError("scale has a negative or non-finite value; every scale must be finite and at least 0")

    def weights(self, key: PRNGKeyArray, n: Count, size: int | None = None) -> Float[Array, " row"]:
        return jnp.ones(_size(n, size))

    def shift(
        self, key: PRNGKeyArray, n: Count, num_outputs: int, size: int | None = None
    ) -> Float[Array, "row output"]:
        scale, size = jnp.asarray(self.scale, dtype=float), _size(n, size)
        if scale.ndim:
            if isinstance(n, int) and scale.shape != (n,):
                raise ValueError(f"scale has shape {scale.shape} but there are {n} examples; pass one per example")
            scale = jnp.pad(scale, (0, size - len(scale)))
        return jnp.broadcast_to(scale, (size,))[:, None] * jax.random.normal(key, (size, num_outputs))

    def take(self, rows: np.ndarray) -> "Gaussian":
        """Return the noise of a subset of the examples.

        Args:
            rows: Indices of the examples.

        Returns:
            The noise for those examples.
        """
        return self if np.ndim(self.scale) == 0 else Gaussian(np.asarray(self.scale)[rows])


def _size(n: Count, size: int | None) -> int:
    return int(n) if size is None else size


def _none(key: PRNGKeyArray, n: Count, size: int) -> Array:
    return jnp.ones(size)


def _bootstrap(key: PRNGKeyArray, n: Count, size: int) -> Array:
    return jnp.zeros(size).at[jax.random.randint(key, (size,), 0, n)].add(jnp.where(jnp.arange(size) < n, 1.0, 0.0))


def _poisson(key: PRNGKeyArray, n: Count, size: int) -> Array:
    return jax.random.poisson(key, 1.0, (size,))


def _double_or_nothing(key: PRNGKeyArray, n: Count, size: int) -> Array:
    return 2.0 * jax.random.bernoulli(key, 0.5, (size,))


def _exponential(key: PRNGKeyArray, n: Count, size: int) -> Array:
    return jax.random.exponential(key, (size,))


NOISES: dict[str, Noise] = {
    "none": Resampling(_none),
    "bootstrap": Resampling(_bootstrap, _poisson),
    "poisson": Resampling(_poisson),
    "double_or_nothing": Resampling(_double_or_nothing),
    "exponential": Resampling(_exponential),
}
"""Data noise by name.

- `none`: all weights are one;
- `bootstrap`: Efron's bootstrap, multinomial weights;
- `poisson`: the online bootstrap, Poisson(1) weights;
- `double_or_nothing`: 2 x Bernoulli(1/2), as in the paper's `ensemble_buffer`;
- `exponential`: the Bayesian bootstrap, Exponential(1) weights.
"""


def as_noise(noise: Any) -> Noise:
    """Convert an argument to a data noise.

    Args:
        noise: A noise, or a name from `NOISES`.

    Returns:
        The noise.

    Raises:
        ValueError: If the name is unknown.
    """
    return noise if isinstance(noise, Noise) else NOISES[one_of("noise", noise, NOISES)]


def online(noise: Noise) -> Noise:
    """Return the form of a noise for examples that arrive one at a time, so that their number is unknown.

    Efron's bootstrap needs the number of examples; it is replaced by its limit, an independent Poisson(1) weight for
    each example (Oza and Russell 2001). Noise that is independent between examples is returned unchanged.

    Args:
        noise: Any data noise.

    Returns:
        A noise from which weight and shift of one example at a time can be drawn.

    Raises:
        ValueError: If the noise has a scale for each example of a fixed data set.
    """
    if isinstance(noise, Resampling) and noise.independent is not None:
        return Resampling(noise.independent)
    if isinstance(noise, Gaussian) and np.ndim(noise.scale) > 0:
        raise ValueError(
            f"scale has {np.size(noise.scale)} values, one per example, but examples arrive one at a time; "
            "pass one number for all"
        )
    return noise
