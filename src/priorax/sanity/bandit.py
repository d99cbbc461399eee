"""The two-armed Bernoulli bandit of appendix C.1: arms pay Ber(1/2) and Ber(1/2 + epsilon).

Three Thompson samplers in closed form, each a pair of functions over the arms' sums, compiled over many seeds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


class Sampler(NamedTuple):
    """init(key) -> state; values(state, key) -> [arm]; update(state, key, arm, reward) -> state."""

    init: Callable[[PRNGKeyArray], PyTree]
    values: Callable[[PyTree, PRNGKeyArray], Float[Array, " arm"]]
    update: Callable[[PyTree, PRNGKeyArray, Any, Any], PyTree]


def beta_sampler() -> Sampler:
    """Exact Bayes: Beta(1, 1) prior on each arm."""

    def update(counts: Array, key: PRNGKeyArray, arm: Any, reward: Any) -> Array:
        return counts.at[arm, 0].add(reward).at[arm, 1].add(1 - reward)

    return Sampler(
        lambda key: jnp.ones((2, 2)),
        lambda counts, key: jax.random.beta(key, counts[:, 0], counts[:, 1]),
        update,
    )


def dropout_sampler(num_units: int, p: float, penalty: float) -> Sampler:
    """Appendix C.1: each arm's mean by a linear network of d units under dropout, at the exact optimum of its
    expected loss, theta bar = y bar / (1 + p (d-1) + lambda/p)."""

    def values(sums: Array, key: PRNGKeyArray) -> Array:
        mean = sums[:, 0] / jnp.maximum(sums[:, 1], 1.0)
        theta = mean / (1 + p * (num_units - 1) + penalty / p)
        return jax.random.binomial(key, num_units, p, (2,)) * theta

    return Sampler(lambda key: jnp.zeros((2, 2)), values, _add)


def ensemble_sampler(num_members: int, noise_std: float = 0.5, prior_std: float = 0.5) -> Sampler:
    """Ensemble sampling (Lu & Van Roy 2017): K tabular members with Gaussian target noise and prior draws, lemma 3 in
    closed form: each member is the mean of its prior draw and its own perturbed rewards."""
    strength = (noise_std / prior_std) ** 2

    def init(key: PRNGKeyArray) -> Array:
        prior = 0.5 + prior_std * jax.random.normal(key, (2, num_members))
        return jnp.stack([strength * prior, jnp.full((2, num_members), strength)], axis=-1)

    def values(sums: Array, key: PRNGKeyArray) -> Array:
        member = jax.random.randint(key, (), 0, num_members)
        return sums[:, member, 0] / sums[:, member, 1]

    def update(sums: Array, key: PRNGKeyArray, arm: Any, reward: Any) -> Array:
        perturbed = reward + noise_std * jax.random.normal(key, (num_members,))
        return sums.at[arm].add(jnp.stack([perturbed, jnp.ones(num_members)], axis=-1))

    return Sampler(init, values, update)


def _add(sums: Array, key: PRNGKeyArray, arm: Any, reward: Any) -> Array:
    return sums.at[arm].add(jnp.stack([reward, 1.0]))


def mean_regret(sampler: Sampler, epsilon: float, steps: int, seeds: int) -> Float[Array, " step"]:
    """Cumulative regret after each step, averaged over seeds. Ties are broken at random."""
    paid = jnp.array([0.5, 0.5 + epsilon])

    def step(state: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        key_value, key_tie, key_reward, key_update = jax.random.split(key, 4)
        values = sampler.values(state, key_value)
        tie = jax.random.bernoulli(key_tie)
        arm = jnp.where(values[0] == values[1], tie, values[1] > values[0]).astype(int)
        reward = jax.random.bernoulli(key_reward, paid[arm]).astype(float)
        return sampler.update(state, key_update, arm, reward), epsilon * (arm == 0)

    def run(key: PRNGKeyArray) -> Array:
        key_init, key_run = jax.random.split(key)
        return jnp.cumsum(jax.lax.scan(step, sampler.init(key_init), jax.random.split(key_run, steps))[1])

    return jnp.mean(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(4), seeds)), axis=0)
