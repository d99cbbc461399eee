"""Deployment of trained agents, without exploration: Q-values at observations, and greedy actions."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from priorax.agents.base import Agent
from priorax.checks import one_of

DEPLOY = ("mean", "vote", "member")
"""How to choose an action. mean: greedy with respect to the mean over functions, the most reliable; vote: the greedy
action of most functions, ties decided by the mean, robust to a single outlier; member: greedy with respect to one
function drawn at random, as in exploration."""


class Values(NamedTuple):
    """Q-values of an agent, with their epistemic uncertainty."""

    mean: Any
    """Mean over functions, [..., action]; for a planner, the plan in the expected model."""
    spread: Any
    """Standard deviation over functions, [..., action]: the epistemic uncertainty."""
    members: Any
    """Values of each member, or of drawn functions if there is no ensemble, [function, ..., action]."""


def values(agent: Agent, deployed: Any, obs: np.ndarray) -> Values:
    """Evaluate an agent's Q-values on a batch of observations.

    Args:
        agent: The agent.
        deployed: The result of `deploy`.
        obs: A batch of observations.

    Returns:
        Mean, standard deviation and all functions. Draws are the same at each call.
    """
    count = len(obs)
    padded = np.concatenate([obs, np.repeat(obs[-1:], (1 << (count - 1).bit_length()) - count, axis=0)])
    mean, functions = _evaluate(agent, deployed, padded)  # few sizes: each is compiled once
    members = np.asarray(functions)[:, :count]
    return Values(np.asarray(mean)[:count], members.std(axis=0), members)


@eqx.filter_jit
def deploy(agent: Agent, state: Any) -> Any:
    """Extract from an agent's state what deployment needs.

    Args:
        agent: The agent.
        state: Its state.

    Returns:
        A pytree for `values`.
    """
    return agent.deployed(state, jax.random.key(0))


@eqx.filter_jit
def _evaluate(agent: Agent, deployed: Any, obs: Any) -> tuple[Array, Array]:
    return agent.values(deployed, jax.random.key(0), obs)


def best(found: Values, deploy: str = "mean", member: Any = 0) -> Any:
    """Choose actions for a batch of Q-values; of equal values, the first action.

    Args:
        found: The Q-values.
        deploy: One of `DEPLOY`.
        member: For deploy="member": the function's index, for each observation or for all.

    Returns:
        Indices of the actions: a NumPy or JAX array, like the values.

    Raises:
        ValueError: If `deploy` is unknown.
    """
    one_of("deploy", deploy, DEPLOY)
    xp = jnp if isinstance(found.mean, jax.Array) else np
    if deploy == "mean":
        return found.mean.argmax(axis=-1)
    if deploy == "member":
        return found.members[member, xp.arange(len(found.mean))].argmax(axis=-1)
    count = found.mean.shape[-1]
    votes = (found.members.argmax(axis=-1)[..., None] == xp.arange(count)).sum(axis=0)
    return xp.where(votes == votes.max(axis=-1, keepdims=True), found.mean, -np.inf).argmax(axis=-1)
