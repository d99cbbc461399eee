"""Bandits: episodes of one step. An observation holds one row of features per arm: what the arm is, and the context.

    BernoulliBandit   appendix C.1: Ber(1/2) and Ber(1/2 + gap), which is which drawn by the seed
    LinearBandit      appendix C.4: arms on a sphere, reward x'theta + noise
    GaussianProcessBandit   a context and a few arms, each arm's reward a smooth random function of the context, linear
                      in many cosines: beyond a small network's reach to know exactly, yet exact Bayes exists

`info["regret"]` is what the best arm would have paid more, in expectation.
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
    """What a bandit adds to an environment."""

    @property
    def num_actions(self) -> int: ...
    def params(self, key: PRNGKeyArray) -> Any: ...
    def arms(self, key: PRNGKeyArray, params: Any) -> Float[Array, "arm feature"]: ...
    def means(self, params: Any, arms: Float[Array, "arm feature"]) -> Float[Array, " arm"]: ...
    def pay(self, key: PRNGKeyArray, mean: Float[Array, ""]) -> Float[Array, ""]: ...


class OneStep:
    """The shape of an environment, for bandits: reset shows the arms, a step pays and ends the episode."""

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
        arms = self.arms(key, params)
        return arms, arms

    def step(
        self: Any, key: PRNGKeyArray, state: Array, action: Any, params: Any
    ) -> tuple[Array, Array, Array, Array, Array, dict[str, Any]]:
        key_pay, key_reset = jax.random.split(key)
        means = self.means(params, state)
        regret = jnp.max(means) - means[action]
        reward = self.pay(key_pay, means[action])
        obs, following = self.reset(key_reset, params)
        info = {"final_observation": state, "regret": regret, "bad": regret > 0}
        return obs, following, reward, jnp.ones((), bool), jnp.zeros((), bool), info


@dataclass(frozen=True)
class BernoulliBandit(OneStep):
    """Two arms."""

    gap: float = 0.1
    """epsilon: how much better the better one is."""

    def __post_init__(self) -> None:
        if not 0 < self.gap <= 0.5:
            raise ValueError(f"gap={self.gap} must be above 0 and at most 0.5; pass for example 0.1")

    @property
    def num_actions(self) -> int:
        return 2

    def params(self, key: PRNGKeyArray) -> Float[Array, " arm"]:
        """The arms' means."""
        return 0.5 + self.gap * jax.nn.one_hot(jax.random.randint(key, (), 0, 2), 2)

    def arms(self, key: PRNGKeyArray, params: Array) -> Float[Array, "arm feature"]:
        return jnp.eye(2)

    def means(self, params: Array, arms: Array) -> Float[Array, " arm"]:
        return params

    def pay(self, key: PRNGKeyArray, mean: Array) -> Float[Array, ""]:
        return jax.random.bernoulli(key, mean).astype(float)


class LinearParams(NamedTuple):
    """A linear bandit."""

    arms: Float[Array, "arm feature"]
    theta: Float[Array, " feature"]


@dataclass(frozen=True)
class LinearBandit(OneStep):
    """r = x'theta + noise, theta ~ N(0, I), arms uniform on the unit sphere: the same in every round."""

    num_arms: int = 30
    dim: int = 5
    noise_std: float = 1.0

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
    """Arm a pays f_a(context) + noise; f_a is a draw of a Gaussian process with a squared exponential kernel, by random
    cosines. Features of an arm: the context (uniform in a square), and which arm it is."""

    num_arms: int = 4
    noise_std: float = 0.3
    length: float = 0.7
    """Of the kernel; contexts are in [-1, 1]²."""
    num_cosines: int = 24

    def __post_init__(self) -> None:
        positive_int("num_arms", self.num_arms)
        positive_int("num_cosines", self.num_cosines)
        positive("length", self.length)
        non_negative("noise_std", self.noise_std)

    @property
    def num_actions(self) -> int:
        return self.num_arms

    def params(self, key: PRNGKeyArray) -> Float[Array, " cosine"]:
        """The weights of all cosines of all arms."""
        return jax.random.normal(key, (self.num_arms * self.num_cosines,))

    def arms(self, key: PRNGKeyArray, params: Array) -> Float[Array, "arm feature"]:
        context = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return jnp.concatenate([jnp.broadcast_to(context, (self.num_arms, 2)), jnp.eye(self.num_arms)], axis=1)

    def features(self, x: Float[Array, " feature"]) -> Float[Array, " cosine"]:
        """What the reward is linear in, for exact Bayes; the same cosines in every bandit of this size."""
        random = np.random.default_rng(0)
        frequency = jnp.asarray(random.standard_normal((self.num_cosines, 2)) / self.length, jnp.float32)
        phase = jnp.asarray(random.uniform(0, 2 * np.pi, self.num_cosines), jnp.float32)
        cosines = jnp.sqrt(2 / self.num_cosines) * jnp.cos(frequency @ x[:2] + phase)
        return jnp.ravel(x[2:, None] * cosines)

    def means(self, params: Array, arms: Array) -> Float[Array, " arm"]:
        return jax.vmap(self.features)(arms) @ params

    def pay(self, key: PRNGKeyArray, mean: Array) -> Float[Array, ""]:
        return mean + self.noise_std * jax.random.normal(key)
