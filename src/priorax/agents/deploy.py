"""What an agent has learned, without exploring: what its functions say of an observation, and the action to take."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from priorax.agents.base import Agent
from priorax.agents.q_learner import QLearner
from priorax.agents.tabular import Plans
from priorax.beliefs import BeliefState, belief_values
from priorax.checks import one_of

DEPLOY = ("mean", "vote", "member")
"""What to deploy. mean: the best action by the mean of all functions, the surest to be good; vote: the one that most
functions find best, ties decided by the mean, which one wild function cannot sway; member: the best of one function
drawn at random, as in exploration."""


class Values(NamedTuple):
    """Q-values as an agent believes them."""

    mean: Any
    """[..., action]: over functions; of a planner, its plan in what it expects."""
    spread: Any
    """[..., action]: their standard deviation, which is what the agent does not know."""
    members: Any
    """[function, ..., action]: each member's own; of what is no ensemble, draws."""


def values(agent: Agent, belief: BeliefState | Plans, obs: np.ndarray) -> Values:
    """Of a batch of observations, by a Q-learner's belief or a planner's plans. What is drawn is the same each time."""
    if isinstance(belief, Plans):
        drawn = np.asarray(belief.drawn)[:, obs]
        return Values(np.asarray(belief.mean)[obs], drawn.std(axis=0), drawn)
    assert isinstance(agent, QLearner)
    count = len(obs)
    padded = np.concatenate([obs, np.repeat(obs[-1:], (1 << (count - 1).bit_length()) - count, axis=0)])
    members = np.asarray(_members(agent, belief, padded))[:, :count]  # few sizes: each is compiled once
    return Values(members.mean(axis=0), members.std(axis=0), members)


@eqx.filter_jit
def _members(agent: QLearner, belief: BeliefState, obs: Any) -> Array:
    return belief_values(agent.belief, belief, jax.random.key(0), obs)


def best(found: Values, deploy: str = "mean", member: Any = 0) -> Any:
    """The action for each of a batch; `member`, of each or of all, is for `deploy="member"`. Of equal actions, the
    first. An array of NumPy's or of JAX's, as the values are."""
    one_of("deploy", deploy, DEPLOY)
    xp = jnp if isinstance(found.mean, jax.Array) else np
    if deploy == "mean":
        return found.mean.argmax(axis=-1)
    if deploy == "member":
        return found.members[member, xp.arange(len(found.mean))].argmax(axis=-1)
    count = found.mean.shape[-1]
    votes = (found.members.argmax(axis=-1)[..., None] == xp.arange(count)).sum(axis=0)
    return xp.where(votes == votes.max(axis=-1, keepdims=True), found.mean, -np.inf).argmax(axis=-1)
