"""Bandits: environments with one-step episodes. An observation is an array [arm, feature] of arm and context features.

- `BernoulliBandit` (appendix C.1): arms Ber(1/2) and Ber(1/2 + gap); the seed decides which is better.
- `LinearBandit` (appendix C.4): arms on the unit sphere, reward x'theta + noise.
- `GaussianProcessBandit`: a context and a few arms, whose rewards are smooth random functions of the context. They are
  linear in many cosine features, so that exact Bayes is possible while a small network cannot represent them exactly.

`info["regret"]` is the expected reward of the best arm minus that of the chosen one.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.checks import non_negative, positive, positive_int


@runtime_checkable
class Bandit(Protocol):
    """Interface of a bandit, in addition to that of an environment."""

    @property
    def num_actions(self) -> int:
        """Number of arms."""
        ...

    def params(self, key: PRNGKeyArray) -> Any:
        """Draw a bandit.

        Args:
            key: A PRNG key.

        Returns:
            The parameters of the bandit.
        """
        ...

    def arms(self, key: PRNGKeyArray, params: Any) -> Float[Array, "arm feature"]:
        """Draw the features of one round.

        Args:
            key: A PRNG key.
            params: Parameters of the bandit.

        Returns:
            The features of each arm.
        """
        ...

    def means(self, params: Any, arms: Float[Array, "arm feature"]) -> Float[Array, " arm"]:
        """Return the expected rewards.

        Args:
            params: Parameters of the bandit.
            arms: The features of each arm.

        Returns:
            The expected reward of each arm.
        """
        ...

    def pay(self, key: PRNGKeyArray, mean: Float[Array, ""]) -> Float[Array, ""]:
        """Draw a reward.

        Args:
            key: A PRNG key.
            mean: Expected reward of the chosen arm.

        Returns:
            The reward.
        """
        ...


class OneStep:
    """The environment interface of a bandit: `reset` returns the arms, and `step` returns the reward and ends the
    episode.
    """

    @property
    def default_params(self: Any) -> Any:
        return self.params(jax.random.key(0))

    @property
    def horizon(self) -> int:
        return 1

    @property
    def tells_regret(self) -> bool:
        return True

    def reset(self: Any, key: PRNGKeyArray, params: Any) -> tuple[Array, Array]:
        """Start a round.

        Args:
            key: A PRNG key.
            params: Parameters of the bandit.

        Returns:
            The features of each arm, as observation and as state.
        """
        arms = self.arms(key, params)
        return arms, arms

    def step(
        self: Any, key: PRNGKeyArray, state: Array, action: Any, params: Any
    ) -> tuple[Array, Array, Array, Array, Array, dict[str, Any]]:
        """Pull one arm.

        Args:
            key: A PRNG key.
            state: The features of each arm.
            action: Index of the arm.
            params: Parameters of the bandit.

        Returns:
            As `Environment.step`; `info["regret"]` is the expected regret.
        """
        key_pay, key_reset = jax.random.split(key)
        means = self.means(params, state)
        regret = jnp.max(means) - means[action]
        reward = self.pay(key_pay, means[action])
        obs, following = self.reset(key_reset, params)
        info = {"final_observation": state, "regret": regret, "bad": regret > 0}
        return obs, following, reward, jnp.ones((), bool), jnp.zeros((), bool), info


@dataclass(frozen=True)
class BernoulliBandit(OneStep):
    """A bandit with two Bernoulli arms."""

    gap: float = 0.1
    """Difference between the success probabilities of the arms (epsilon)."""

    def __post_init__(self) -> None:
        if not 0 < self.gap <= 0.5:
            raise ValueError(f"gap={self.gap} must be above 0 and at most 0.5; pass for example 0.1")

    @property
    def num_actions(self) -> int:
        return 2

    def params(self, key: PRNGKeyArray) -> Float[Array, " arm"]:
        """Draw a bandit.

        Args:
            key: A PRNG key.

        Returns:
            Expected rewards of the arms.
        """
        return 0.5 + self.gap * jax.nn.one_hot(jax.random.randint(key, (), 0, 2), 2)

    def arms(self, key: PRNGKeyArray, params: Array) -> Float[Array, "arm feature"]:
        return jnp.eye(2)

    def means(self, params: Array, arms: Array) -> Float[Array, " arm"]:
        return params

    def pay(self, key: PRNGKeyArray, mean: Array) -> Float[Array, ""]:
        return jax.random.bernoulli(key, mean).astype(float)


class LinearParams(NamedTuple):
    """Parameters of a linear bandit."""

    arms: Float[Array, "arm feature"]
    theta: Float[Array, " feature"]


@dataclass(frozen=True)
class LinearBandit(OneStep):
    """A linear bandit: r = x'theta + noise, theta ~ N(0, I), arms uniform on the unit sphere and the same in every
    round.
    """

    num_arms: int = 30
    """Number of arms."""
    dim: int = 5
    """Number of features."""
    noise_std: float = 1.0
    """Standard deviation of the reward."""

    def __post_init__(self) -> None:
        positive_int("num_arms", self.num_arms)
        positive_int("dim", self.dim)
        non_negative("noise_std", self.noise_std)

    @property
    def num_actions(self) -> int:
        return self.num_arms

    def params(self, key: PRNGKeyArray) -> LinearParams:
        key_arms, key_theta = jax.random.split(key)
        arms = jax.random.normal(key_arms, (self.num_arms, self.dim))
        arms = arms / jnp.linalg.norm(arms, axis=1, keepdims=True)
        return LinearParams(arms, jax.random.normal(key_theta, (self.dim,)))

    def arms(self, key: PRNGKeyArray, params: LinearParams) -> Float[Array, "arm feature"]:
        return params.arms

    def means(self, params: LinearParams, arms: Array) -> Float[Array, " arm"]:
        return arms @ params.theta

    def pay(self, key: PRNGKeyArray, mean: Array) -> Float[Array, ""]:
        return mean + self.noise_std * jax.random.normal(key)


@dataclass(frozen=True)
class GaussianProcessBandit(OneStep):
    """A contextual bandit: the reward of arm a is f_a(context) + noise.

    f_a is drawn from a Gaussian process with a squared exponential kernel, approximated by random cosine features. The
    features of an arm are the context, uniform in [-1, 1]², and the arm's one-hot encoding.
    """

    num_arms: int = 4
    """Number of arms."""
    noise_std: float = 0.3
    """Standard deviation of the reward."""
    length: float = 0.7
    """Length scale of the kernel."""
    num_cosines: int = 24
    """Number of cosine features of each arm."""

    def __post_init__(self) -> None:
        positive_int("num_arms", self.num_arms)
        positive_int("num_cosines", self.num_cosines)
        positive("length", self.length)
        non_negative("noise_std", self.noise_std)

    @property
    def num_actions(self) -> int:
        return self.num_arms

    def params(self, key: PRNGKeyArray) -> Float[Array, " cosine"]:
        """Draw a bandit.

        Args:
            key: A PRNG key.

        Returns:
            Weights of the cosine features of all arms.
        """
        return jax.random.normal(key, (self.num_arms * self.num_cosines,))

    def arms(self, key: PRNGKeyArray, params: Array) -> Float[Array, "arm feature"]:
        context = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return jnp.concatenate([jnp.broadcast_to(context, (self.num_arms, 2)), jnp.eye(self.num_arms)], axis=1)

    def features(self, x: Float[Array, " feature"]) -> Float[Array, " cosine"]:
        """Return the features in which the reward is linear, for exact Bayes; the same for every bandit of this size.

        Args:
            x: Features of an arm.

        Returns:
            Its cosine features.
        """
        random = np.random.default_rng(0)
        frequency = jnp.asarray(random.standard_normal((self.num_cosines, 2)) / self.length, jnp.float32)
        phase = jnp.asarray(random.uniform(0, 2 * np.pi, self.num_cosines), jnp.float32)
        cosines = jnp.sqrt(2 / self.num_cosines) * jnp.cos(frequency @ x[:2] + phase)
        return jnp.ravel(x[2:, None] * cosines)

    def means(self, params: Array, arms: Array) -> Float[Array, " arm"]:
        return jax.vmap(self.features)(arms) @ params

    def pay(self, key: PRNGKeyArray, mean: Array) -> Float[Array, ""]:
        return mean + self.noise_std * jax.random.normal(key)
