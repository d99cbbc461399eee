"""Heads: how the raw outputs of a network are interpreted.

A network returns `num_outputs` (targets of a regression, actions of a Q function) times `head.size` numbers.
A head reads the `size` numbers of one output. Methods:

    value(out)                  the mean prediction
    quantile(out, u)            the u-quantile of the predicted distribution of outcomes (lemma 5)
    noise(out)                  the standard deviation of outcomes (aleatoric); 0 if the head does not model it
    encode(y)                   a number (or class) as a training target
    loss(out, target)           the loss of one example
    mixture_loss(outs, target)  the loss of several draws as ONE prediction: their mean, or the mixture of their
                                distributions; used for validation
    backup(next_out, reward, discount)   the training target r + discount * (value of the next output)
    add_prior(out, prior)       adds a prior function, which has `prior_size` numbers per output

A custom head subclasses `Head`, and overrides these properties if they are not False:

    in_reward_units             values and priors are in units of return, not logits: a prior scale can be proposed
    takes_classes               targets are classes 0 ... size-1, not numbers
    knows_noise                 `noise` is learned from data, not always zero

`values_of`, `greedy` and `greedy_backup` act on all outputs together: their values, the best one, and its backup.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray

from priorax.checks import positive, positive_int

Out = Float[Array, " size"]
"""The `size` numbers of one output."""
Outs = Float[Array, "draw size"]
"""The `size` numbers of one output, from each of several draws."""
Number = Float[Array, ""]
"""A scalar."""


@runtime_checkable
class Head(Protocol):
    """The interpretation of one output of a network.

    All methods work on one output of one example, and can be jitted and vmapped.
    """

    @property
    def size(self) -> int:
        """Numbers per output."""
        ...

    @property
    def prior_size(self) -> int: ...

    @property
    def in_reward_units(self) -> bool:
        """Whether values and priors are in units of return."""
        return False

    @property
    def takes_classes(self) -> bool:
        """Whether targets are classes, numbered from 0, rather than numbers."""
        return False

    @property
    def knows_noise(self) -> bool:
        """Whether `noise` is learned from data."""
        return False

    def value(self, out: Out) -> Number: ...
    def quantile(self, out: Out, u: Number) -> Number: ...
    def noise(self, out: Out) -> Number: ...
    def encode(self, y: Any) -> Array: ...
    def loss(self, out: Out, target: Array) -> Number: ...
    def mixture_loss(self, outs: Outs, target: Array) -> Number: ...
    def backup(self, next_out: Out, reward: Number, discount: Number) -> Array: ...
    def add_prior(self, out: Out, prior: Array) -> Out: ...


@dataclass(frozen=True)
class Scalar(Head):
    """One number, squared error: equation (6) of the paper and all of section 3."""

    size: int = 1
    prior_size: int = 1

    @property
    def in_reward_units(self) -> bool:
        return True

    def value(self, out: Out) -> Number:
        return out[0]

    def quantile(self, out: Out, u: Number) -> Number:
        return out[0]

    def noise(self, out: Out) -> Number:
        return jnp.zeros_like(out[0])

    def encode(self, y: Num[Array, ""]) -> Number:
        return y.astype(float)

    def loss(self, out: Out, target: Number) -> Number:
        return (out[0] - target) ** 2

    def mixture_loss(self, outs: Outs, target: Number) -> Number:
        return self.loss(jnp.mean(outs, axis=0), target)

    def backup(self, next_out: Out, reward: Number, discount: Number) -> Number:
        return reward + discount * next_out[0]

    def add_prior(self, out: Out, prior: Float[Array, "1"]) -> Out:
        return out + prior


@dataclass(frozen=True)
class Gaussian(Head):
    """Mean and log standard deviation, negative log likelihood: heteroscedastic noise is learned."""

    size: int = 2
    prior_size: int = 1
    min_log_std: float = -7.0
    """Lower bound of the log standard deviation, in units of the target."""
    beta: float = 0.0
    """Weight of an example in the loss: its predicted variance to this power (beta-NLL, Seitzer et al. 2022). 0 is the
    likelihood, under which examples with small predicted noise dominate; 1 fits the mean as the squared error does."""

    @property
    def in_reward_units(self) -> bool:
        return True

    @property
    def knows_noise(self) -> bool:
        return True

    def value(self, out: Out) -> Number:
        return out[0]

    def log_std(self, out: Out) -> Number:
        """Return the log standard deviation, smoothly bounded below so that a perfect fit has a finite loss.

        Args:
            out: The numbers of one output.

        Returns:
            The log standard deviation, above `min_log_std`.
        """
        return self.min_log_std + jax.nn.softplus(out[1] - self.min_log_std)

    def quantile(self, out: Out, u: Number) -> Number:
        return out[0] + self.noise(out) * jax.scipy.special.ndtri(u)

    def noise(self, out: Out) -> Number:
        return jnp.exp(self.log_std(out))

    def encode(self, y: Num[Array, ""]) -> Number:
        return y.astype(float)

    def loss(self, out: Out, target: Number) -> Number:
        log_std = self.log_std(out)
        weight = jax.lax.stop_gradient(jnp.exp(2 * self.beta * log_std)) if self.beta else 1.0
        return weight * (log_std + 0.5 * ((out[0] - target) * jnp.exp(-log_std)) ** 2)

    def mixture_loss(self, outs: Outs, target: Number) -> Number:
        """Return the negative log likelihood of the normal distribution with the mean and variance of the mixture.

        Predictions are reported in the same way, and a single overconfident draw counts no more than any other.

        Args:
            outs: The numbers of one output, one row for each draw.
            target: The target.

        Returns:
            The loss.
        """
        values, noise = jax.vmap(self.value)(outs), jax.vmap(self.noise)(outs)
        disagreement = jnp.sum((values - jnp.mean(values)) ** 2) / max(outs.shape[0] - 1, 1)
        variance = jnp.mean(noise**2) + disagreement
        return 0.5 * (jnp.log(variance) + (jnp.mean(values) - target) ** 2 / variance)

    def backup(self, next_out: Out, reward: Number, discount: Number) -> Number:
        return reward + discount * next_out[0]

    def add_prior(self, out: Out, prior: Float[Array, "1"]) -> Out:
        return out.at[0].add(prior[0])


@dataclass(frozen=True)
class Classes(Head):
    """Class logits, cross-entropy. The value of an output is its expected class; softmax gives probabilities."""

    size: int = 2
    """Number of classes."""

    def __post_init__(self) -> None:
        positive_int("size", self.size)

    @property
    def takes_classes(self) -> bool:
        return True

    @property
    def knows_noise(self) -> bool:
        return True

    @property
    def prior_size(self) -> int:
        return self.size

    def value(self, out: Out) -> Number:
        return jnp.dot(jax.nn.softmax(out), jnp.arange(self.size, dtype=float))

    def quantile(self, out: Out, u: Number) -> Number:
        cdf = jnp.cumsum(jax.nn.softmax(out))
        return jnp.minimum(jnp.sum(cdf < u), self.size - 1).astype(float)

    def noise(self, out: Out) -> Number:
        return _spread(jax.nn.softmax(out), jnp.arange(self.size, dtype=float))

    def encode(self, y: Num[Array, ""]) -> Array:
        return y.astype(int)

    def loss(self, out: Out, target: Array) -> Number:
        return -jax.nn.log_softmax(out)[target]

    def mixture_loss(self, outs: Outs, target: Array) -> Number:
        return self.loss(jax.nn.logsumexp(jax.nn.log_softmax(outs), axis=0), target)

    def backup(self, next_out: Out, reward: Number, discount: Number) -> Array:
        raise TypeError("a Classes head has no Bellman backup; use Scalar, C51 or Quantiles for Q-learning")

    def add_prior(self, out: Out, prior: Out) -> Out:
        return out + prior


@dataclass(frozen=True)
class C51(Head):
    """A categorical distribution on fixed atoms ('distributional RL', Bellemare et al. 2017)."""

    low: float = 0.0
    """The lowest atom; choose it below every return of the task."""
    high: float = 1.0
    """The highest atom; choose it above every return of the task."""
    num_atoms: int = 51
    """Number of atoms, evenly spaced from `low` to `high`."""

    def __post_init__(self) -> None:
        positive_int("num_atoms", self.num_atoms)
        if not self.low < self.high or self.num_atoms < 2:
            raise ValueError(
                f"C51 needs low < high and at least 2 atoms, got low={self.low}, high={self.high}, "
                f"num_atoms={self.num_atoms}; choose low and high to cover the task's returns"
            )

    @property
    def knows_noise(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return self.num_atoms

    @property
    def prior_size(self) -> int:
        return self.num_atoms

    @property
    def atoms(self) -> Float[Array, " atom"]:
        """Positions of the atoms."""
        return jnp.linspace(self.low, self.high, self.num_atoms)

    def value(self, out: Out) -> Number:
        return jnp.dot(jax.nn.softmax(out), self.atoms)

    def quantile(self, out: Out, u: Number) -> Number:
        cdf = jnp.cumsum(jax.nn.softmax(out))
        return self.atoms[jnp.minimum(jnp.sum(cdf < u), self.num_atoms - 1)]

    def noise(self, out: Out) -> Number:
        return _spread(jax.nn.softmax(out), self.atoms)

    def encode(self, y: Num[Array, ""]) -> Out:
        return self.project(jnp.reshape(y, (1,)).astype(float), jnp.ones(1))

    def project(self, points: Float[Array, " point"], mass: Float[Array, " point"]) -> Out:
        """Project probability mass at arbitrary points onto the atoms, preserving the mean.

        Args:
            points: Positions of the mass; clipped to the range of the atoms.
            mass: Mass at each point.

        Returns:
            Mass at each atom: that of a point is divided between its two neighbouring atoms.
        """
        step = (self.high - self.low) / (self.num_atoms - 1)
        position = (jnp.clip(points, self.low, self.high) - self.low) / step
        nearness = jnp.clip(1 - jnp.abs(position[:, None] - jnp.arange(self.num_atoms)), 0, 1)
        return mass @ nearness

    def loss(self, out: Out, target: Out) -> Number:
        return -jnp.dot(target, jax.nn.log_softmax(out))

    def mixture_loss(self, outs: Outs, target: Out) -> Number:
        return self.loss(jax.nn.logsumexp(jax.nn.log_softmax(outs), axis=0), target)

    def backup(self, next_out: Out, reward: Number, discount: Number) -> Out:
        return self.project(reward + discount * self.atoms, jax.nn.softmax(next_out))

    def add_prior(self, out: Out, prior: Out) -> Out:
        return out + prior


@dataclass(frozen=True)
class Quantiles(Head):
    """Quantiles at the middle of equal shares, quantile Huber loss (Dabney et al. 2018)."""

    num_quantiles: int = 51
    """Number of quantiles, at the midpoints of equal shares of probability."""
    huber: float = 1.0
    """Error at which the Huber loss changes from quadratic to linear."""
    prior_size: int = 1

    def __post_init__(self) -> None:
        positive_int("num_quantiles", self.num_quantiles)
        positive("huber", self.huber)

    @property
    def in_reward_units(self) -> bool:
        return True

    @property
    def knows_noise(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return self.num_quantiles

    def value(self, out: Out) -> Number:
        return jnp.mean(out)

    def quantile(self, out: Out, u: Number) -> Number:
        row = jnp.floor(u * self.num_quantiles).astype(int)
        return jnp.sort(out)[jnp.clip(row, 0, self.num_quantiles - 1)]

    def noise(self, out: Out) -> Number:
        return jnp.std(out)

    def encode(self, y: Num[Array, ""]) -> Out:
        return jnp.broadcast_to(y.astype(float), (self.num_quantiles,))

    def loss(self, out: Out, target: Out) -> Number:
        share = (jnp.arange(self.num_quantiles) + 0.5) / self.num_quantiles
        gap = target[None, :] - out[:, None]
        small = jnp.minimum(jnp.abs(gap), self.huber)
        huber = (0.5 * small**2 + self.huber * (jnp.abs(gap) - small)) / self.huber
        return jnp.sum(jnp.mean(jnp.abs(share[:, None] - (gap < 0)) * huber, axis=1))

    def mixture_loss(self, outs: Outs, target: Out) -> Number:
        return self.loss(jnp.mean(outs, axis=0), target)

    def backup(self, next_out: Out, reward: Number, discount: Number) -> Out:
        return reward + discount * next_out

    def add_prior(self, out: Out, prior: Float[Array, "1"]) -> Out:
        return out + prior


def values_of(head: Head, out: Float[Array, "*batch output size"]) -> Float[Array, "*batch output"]:
    """Compute the values of outputs, with any leading axes.

    Args:
        head: The interpretation of outputs.
        out: Outputs [..., output, size].

    Returns:
        Values [..., output].
    """
    flat = out.reshape(-1, out.shape[-1])
    return jax.vmap(head.value)(flat).reshape(out.shape[:-1])


def greedy(key: PRNGKeyArray, values: Float[Array, "*batch action"]) -> Int[Array, "*batch"]:
    """Choose the greedy action, breaking ties at random.

    Args:
        key: PRNG key.
        values: Q-values [..., action].

    Returns:
        Indices of the actions.
    """
    best = values == jnp.max(values, axis=-1, keepdims=True)
    return jnp.argmax(jnp.where(best, jax.random.uniform(key, values.shape), -1.0), axis=-1)


def greedy_backup(
    head: Head,
    next_out: Float[Array, "output size"],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    selector: Float[Array, " output"] | None = None,
) -> Array:
    """Compute the target of equation (6) for ONE transition: reward + discount * the best next output.

    Args:
        head: The interpretation of outputs.
        next_out: Outputs at the next observation.
        reward: The reward.
        discount: Discount factor; zero after termination.
        selector: Values that select the next output instead (double Q-learning: the online network's).

    Returns:
        The target, as `head.loss` takes it.
    """
    best = jnp.argmax(values_of(head, next_out) if selector is None else selector)
    return head.backup(next_out[best], reward, discount)


def _spread(mass: Out, points: Out) -> Number:
    mean = jnp.dot(mass, points)
    return jnp.sqrt(jnp.maximum(jnp.dot(mass, points**2) - mean**2, 0.0))
