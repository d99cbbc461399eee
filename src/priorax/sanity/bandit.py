"""Closed-form Thompson samplers for the two-armed bandit of appendix C.1."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.agents.bandit import Sampler
from priorax.envs.jax.bandits import BernoulliBandit
from priorax.training.bandits import cumulative_regret


def beta_sampler() -> Sampler:
    """Return exact Thompson sampling with a Beta(1, 1) prior on each arm."""

    def update(counts: Array, key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> Array:
        return counts.at[arm, 0].add(reward).at[arm, 1].add(1 - reward)

    return Sampler(
        lambda key, arms: jnp.ones((2, 2)),
        lambda counts, key, arms: jax.random.beta(key, counts[:, 0], counts[:, 1]),
        update,
    )


def dropout_sampler(num_units: int, p: float, penalty: float) -> Sampler:
    """Return Thompson sampling with dropout as the posterior (appendix C.1).

    The mean of each arm is estimated by a linear network of d units under dropout, at the exact optimum of its
    expected loss, theta bar = y bar / (1 + p (d-1) + lambda/p).

    Args:
        num_units: Number of units, d.
        p: Probability of keeping a unit.
        penalty: L2 coefficient, lambda.

    Returns:
        The sampler.
    """

    def values(sums: Array, key: PRNGKeyArray, arms: Array) -> Array:
        mean = sums[:, 0] / jnp.maximum(sums[:, 1], 1.0)
        theta = mean / (1 + p * (num_units - 1) + penalty / p)
        return jax.random.binomial(key, num_units, p, (2,)) * theta

    return Sampler(lambda key, arms: jnp.zeros((2, 2)), values, _add)


def _add(sums: Array, key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> Array:
    return sums.at[arm].add(jnp.stack([reward, jnp.ones(())]))


def mean_regret(sampler: Sampler, gap: float, steps: int, seeds: int) -> Float[Array, " step"]:
    """Return the cumulative regret on the Bernoulli bandit, averaged over seeds.

    Args:
        sampler: The Thompson sampler.
        gap: Difference between the success probabilities of the arms.
        steps: Number of rounds.
        seeds: Number of seeds.

    Returns:
        The mean cumulative regret after each round.
    """
    return jnp.mean(cumulative_regret(BernoulliBandit(gap), sampler, steps=steps, seeds=seeds, seed=4), axis=0)
