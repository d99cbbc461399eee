"""Lemma 5: Thompson sampling from a 'distributional' value function has linear regret."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from priorax.heads import C51
from priorax.sanity.check import Check

STEPS = 200_000
EPSILONS = (0.1, 0.25, 0.4)


def lemma_5() -> Iterator[Check]:
    """Compare the regret with its exact value under full information: action 1 has reward Ber(1/2), action 2 has 1 -
    epsilon.

    Yields:
        The checks.
    """
    for epsilon in EPSILONS:
        wrong, right = regret(epsilon)
        theory = 0.5 * (0.5 - epsilon) * STEPS
        error = (0.5 - epsilon) * np.sqrt(STEPS) / 2
        claim = f"regret at T={STEPS}, ε={epsilon}, outcomes as posterior"
        passed = bool(abs(wrong - theory) < 4 * error)
        yield Check("lemma 5", claim, wrong, f"= {theory:.0f} ± {4 * error:.0f} (4 standard errors)", passed)
        yield Check("lemma 5", f"regret at T={STEPS}, ε={epsilon}, greedy on the mean", right, "= 0", right == 0)


def regret(epsilon: float) -> tuple[float, float]:
    """Return the regrets of acting on exact return distributions in a C51 head.

    Args:
        epsilon: Action 2 has reward 1 - epsilon.

    Returns:
        The regret of sampling outcomes, and that of acting greedily on means.
    """
    head = C51(0.0, 1.0, 101)
    log = jnp.log(
        jnp.stack([head.project(jnp.array([0.0, 1.0]), jnp.array([0.5, 0.5])), head.encode(jnp.asarray(1 - epsilon))])
    )
    level = jax.random.uniform(jax.random.key(5), (STEPS, 2))
    outcomes = jax.vmap(jax.vmap(head.quantile), in_axes=(None, 0))(log, level)
    chosen = jnp.argmax(outcomes, axis=1)
    gap = 0.5 - epsilon
    greedy = jnp.argmax(jax.vmap(head.value)(log))
    return float(jnp.sum(chosen == 0)) * gap, float(greedy == 0) * gap * STEPS
