"""`data_noise` of algorithm 1 (line 3): the perturbation that makes D_k from D.

Drawn ONCE per (example, member) and then fixed; drawn again at every step it would average out, and neither
the bootstrap nor lemma 3 would be left. A noise gives each example a weight of mean one, or moves its target.

There are n examples, in arrays of `size` rows (n if not given): with `size` fixed, n may be traced, so that data sets
of like size share compiled code. What the rows past n get is never read.
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


@runtime_checkable
class Noise(Protocol):
    """How one member's copy of n examples differs from the data."""

    def weights(self, key: PRNGKeyArray, n: Count, size: int | None = None) -> Float[Array, " row"]: ...

    def shift(
        self, key: PRNGKeyArray, n: Count, num_outputs: int, size: int | None = None
    ) -> Float[Array, "row output"] | None: ...

    def take(self, rows: np.ndarray) -> "Noise": ...


@dataclass(frozen=True)
class Resampling:
    """Noise on the weights only; `draw(key, n, size)` has mean one. Targets stay as they are."""

    draw: Callable[[PRNGKeyArray, Count, int], Array]
    independent: Callable[[PRNGKeyArray, Count, int], Array] | None = None
    """Where the n weights of `draw` depend on each other: what they come to, apart, as n grows. For `online`."""

    def weights(self, key: PRNGKeyArray, n: Count, size: int | None = None) -> Float[Array, " row"]:
        return self.draw(key, n, _size(n, size)).astype(float)

    def shift(self, key: PRNGKeyArray, n: Count, num_outputs: int, size: int | None = None) -> None:
        return None

    def take(self, rows: np.ndarray) -> "Resampling":
        return self


class Gaussian(eqx.Module):
    """y~_i ~ N(y_i, scale²): the noise of lemma 3."""

    scale: float | np.ndarray | Float[Array, "*example"]
    """One number, or one per example."""

    def __check_init__(self) -> None:
        if np.ndim(self.scale) == 0:
            non_negative("scale", self.scale)
        elif not (np.all(np.isfinite(self.scale)) and np.all(np.asarray(self.scale) >= 0)):
            raise ValueError("scale holds a negative or non-finite number; every scale must be at least 0")

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
        """The noise of some of the examples."""
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
"""Data noise by name: nothing; Efron's bootstrap (multinomial); its online form, Poisson(1); 2 x Bernoulli(1/2),
as the paper's `ensemble_buffer`; Exponential(1), the Bayesian bootstrap."""


def as_noise(noise: Any) -> Noise:
    """A noise as it is, or by name."""
    return noise if isinstance(noise, Noise) else NOISES[one_of("noise", noise, NOISES)]


def online(noise: Noise) -> Noise:
    """The noise for examples that come one at a time, whose number is not known.

    Efron's bootstrap draws n examples out of n, and one out of one is always that one: its limit, a Poisson(1) weight
    for each example, takes its place (Oza and Russell 2001). Weights that are drawn apart stay as they are.

    Args:
        noise: Any data noise.

    Returns:
        The noise to ask for one example's weight and shift at a time.

    Raises:
        ValueError: The noise has a scale for each example of a data set that is known beforehand.
    """
    if isinstance(noise, Resampling) and noise.independent is not None:
        return Resampling(noise.independent)
    if isinstance(noise, Gaussian) and np.ndim(noise.scale) > 0:
        raise ValueError(
            f"scale has {np.size(noise.scale)} numbers, one per example, but examples come one at a time; "
            "pass one number for all"
        )
    return noise
