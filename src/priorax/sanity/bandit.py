"""Thompson samplers in closed form for the two-armed bandit of appendix C.1, over the arms' sums."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.agents.bandit import Sampler
from priorax.envs.jax.bandits import BernoulliBandit
from priorax.training.bandits import cumulative_regret


def beta_sampler() -> Sampler:
    """Exact Bayes: Beta(1, 1) prior on each arm."""

    def update(counts: Array, key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> Array:
        return counts.at[arm, 0].add(reward).at[arm, 1].add(1 - reward)

    return Sampler(
        lambda key, arms: jnp.ones((2, 2)),
        lambda counts, key, arms: jax.random.beta(key, counts[:, 0], counts[:, 1]),
        update,
    )


def dropout_sampler(num_units: int, p: float, penalty: float) -> Sampler:
    """Appendix C.1: each arm's mean by a linear network of d units under dropout, at the exact optimum of its
    expected loss, theta bar = y bar / (1 + p (d-1) + lambda/p)."""

    def values(sums: Array, key: PRNGKeyArray, arms: Array) -> Array:
        mean = sums[:, 0] / jnp.maximum(sums[:, 1], 1.0)
        theta = mean / (1 + p * (num_units - 1) + penalty / p)
        return jax.random.binomial(key, num_units, p, (2,)) * theta

    return Sampler(lambda key, arms: jnp.zeros((2, 2)), values, _add)


def _add(sums: Array, key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> Array:
    return sums.at[arm].add(jnp.stack([reward, jnp.ones(())]))


def mean_regret(sampler: Sampler, gap: float, steps: int, seeds: int) -> Float[Array, " step"]:
    """Cumulative regret after each step, averaged over seeds."""
    return jnp.mean(cumulative_regret(BernoulliBandit(gap), sampler, steps=steps, seeds=seeds, seed=4), axis=0)
