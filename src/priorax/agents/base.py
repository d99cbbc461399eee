"""What an agent is: the three functions of appendix A, and what a run needs beside them. All pure.

    init(key, obs)                        -> state          obs: one example observation
    start_episode(state, key)             -> state          draw what to follow in the coming episode
    act(state, key, obs)                  -> action
    update_buffer(state, key, transition) -> state          remember one step
    learn_from_buffer(state, key)         -> state, Info
    mean_values(state, key, obs)          -> [batch, action]    the mean over what it may follow
    exploit(state, key, obs)              -> action         the best by that mean: what has been learned, no exploring

Its state has `buffer` (`agent.buffer` says how it is kept), `index` (what was drawn) and `episodes` (begun so far).
"""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from priorax.beliefs import Info
from priorax.replay import EnsembleBuffer, Transition


@runtime_checkable
class Agent(Protocol):
    """See the module's docstring."""

    @property
    def buffer(self) -> EnsembleBuffer: ...
    @property
    def num_actions(self) -> int: ...
    def init(self, key: PRNGKeyArray, obs: Any) -> Any: ...
    def start_episode(self, state: Any, key: PRNGKeyArray) -> Any: ...
    def act(self, state: Any, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]: ...
    def update_buffer(self, state: Any, key: PRNGKeyArray, transition: Transition) -> Any: ...
    def learn_from_buffer(self, state: Any, key: PRNGKeyArray) -> tuple[Any, Info]: ...
    def mean_values(self, state: Any, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch action"]: ...
    def exploit(self, state: Any, key: PRNGKeyArray, obs: Any) -> Any: ...


def greedy(key: PRNGKeyArray, values: Float[Array, " action"]) -> Int[Array, ""]:
    """The best action, ties broken at random."""
    best = values == jnp.max(values)
    return jnp.argmax(jnp.where(best, jax.random.uniform(key, values.shape), -1.0))


def best_by_mean(agent: Agent, state: Any, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
    """`exploit` where actions are finitely many."""
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], obs)
    return jnp.argmax(agent.mean_values(state, key, one)[0])
