"""Regret of bandit algorithms: a scan over steps, vmapped over seeds, with a separate bandit for each seed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.agents.bandit import Sampler
from priorax.checks import positive_int
from priorax.envs.jax.bandits import Bandit
from priorax.heads import greedy


def cumulative_regret(
    bandit: Bandit, sampler: Sampler, *, steps: int, seeds: int, seed: int = 0
) -> Float[Array, "seed step"]:
    """Compute the cumulative regret of each seed after each step, breaking ties at random.

    Args:
        bandit: The bandit.
        sampler: The algorithm.
        steps: Number of steps.
        seeds: Number of independent runs.
        seed: Base seed of bandits and algorithms.

    Returns:
        Cumulative regret.

    Raises:
        ValueError: If the sampler cannot learn from that many rewards.
    """
    positive_int("seeds", seeds)
    return compiled_regret(bandit, sampler, steps)(jax.random.split(jax.random.key(seed), seeds))


def compiled_regret(bandit: Bandit, sampler: Sampler, steps: int) -> Callable[[PRNGKeyArray], Array]:
    """Create a jitted function from PRNG keys [seed] to the cumulative regret.

    Args:
        bandit: The bandit.
        sampler: The algorithm.
        steps: Number of steps.

    Returns:
        The function.

    Raises:
        ValueError: If the sampler cannot learn from that many rewards.
    """
    positive_int("steps", steps)
    if sampler.steps is not None and steps > sampler.steps:
        raise ValueError(
            f"steps={steps} exceeds the capacity of the sampler ({sampler.steps} steps); create the sampler with "
            f"steps={steps}, or pass at most {sampler.steps}"
        )
    env: Any = bandit

    def run(key: PRNGKeyArray) -> Array:
        key_params, key_reset, key_init, key_run = jax.random.split(key, 4)
        params = env.params(key_params)
        obs, state = env.reset(key_reset, params)

        def step(carry: Any, key: PRNGKeyArray) -> tuple[Any, Array]:
            obs, state, learner = carry
            key_value, key_tie, key_env, key_update = jax.random.split(key, 4)
            arm = greedy(key_tie, sampler.values(learner, key_value, obs))
            following, state, reward, _, _, info = env.step(key_env, state, arm, params)
            learner = sampler.update(learner, key_update, obs, arm, reward)
            return (following, state, learner), info["regret"]

        start = (obs, state, sampler.init(key_init, obs))
        return jnp.cumsum(jax.lax.scan(step, start, jax.random.split(key_run, steps))[1])

    return jax.jit(jax.vmap(run))
