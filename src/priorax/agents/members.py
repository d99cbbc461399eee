"""Check that the members of an ensemble, and their prior functions, differ."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from priorax.agents.base import Agent
from priorax.beliefs import Belief, BeliefState, values_of


def nearby(obs: Any, count: int = 8) -> Any:
    """Make a batch of probe observations from one: Gaussian noise around numbers, the following indices of an index,
    random images for an image (a dark one would not be informative).

    Args:
        obs: One observation.
        count: Size of the batch.

    Returns:
        The observations, [count, ...].
    """

    def around(leaf: Any) -> Array:
        key, shape = jax.random.key(0), (count, *jnp.shape(leaf))
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf + jax.random.normal(key, shape, leaf.dtype)
        if jnp.ndim(leaf) == 0:
            return leaf + jnp.arange(count, dtype=leaf.dtype)
        return jax.random.randint(key, shape, 0, 256).astype(leaf.dtype)

    return jax.tree.map(around, obs)


def check_members_differ(agent: Agent, state: Any, obs: Any) -> None:
    """Raise if all members of an ensemble, or all their priors, are the same function: it would explore like one
    network.

    Args:
        agent: Any agent; agents without an ensemble pass.
        state: State of the agent.
        obs: A batch of observations at which functions are compared.

    Raises:
        ValueError: If all members, or all priors, agree.
    """
    belief = getattr(agent, "belief", None)
    if belief is None or belief.num_members in (None, 1):
        return
    for what, found in zip(("members", "priors"), _functions(belief, state.belief, obs), strict=True):
        if found is not None and bool(jnp.all(found == found[0])):
            raise ValueError(f"all {what} of the ensemble are the same function; give them different keys or a scale")


@eqx.filter_jit
def _functions(belief: Belief, state: BeliefState, obs: Any) -> tuple[Array, Array | None]:
    values = values_of(belief.head, belief.forward(state, jax.random.key(0), obs, shared=True))
    return values, belief.prior_values(state, obs)
