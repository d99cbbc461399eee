"""`live` (algorithm 3) for compiled environments: a run is one scan, cut into chunks of steps.

Step t depends on the run's key and t only, so chunks can be cut anywhere; metrics, bars and early stops live between
them. Seeds are separate runs: a vmap over seeds would turn every condition into both of its branches.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.agents import AgentState, QLearner
from priorax.checks import positive_int
from priorax.envs import Environment
from priorax.replay import Transition


class Live(NamedTuple):
    """A run between two steps."""

    agent: AgentState
    env: PyTree
    obs: PyTree
    step: Array


class Steps(NamedTuple):
    """What each step of a chunk gave."""

    reward: Array
    done: Array
    bad: Array
    """The environment's own word that this episode cannot be optimal, where it says so."""


class Episode(NamedTuple):
    """One finished episode."""

    episode: int
    total_return: float
    length: int
    bad: bool


class Loop(eqx.Module):
    """How an agent lives in an environment."""

    env: Environment = eqx.field(static=True)
    agent: QLearner
    learn_every: int = eqx.field(static=True, default=1)
    """Environment steps per update; 0 learns at episode ends only, as the paper's `live` has it."""

    def init(self, key: PRNGKeyArray, params: Any) -> Live:
        """The run's start."""
        key_env, key_agent = jax.random.split(jax.random.fold_in(key, 0))
        obs, state = self.env.reset(key_env, params)
        return Live(self.agent.init(key_agent, obs), state, obs, jnp.zeros((), int))

    def step(self, key: PRNGKeyArray, params: Any, live: Live) -> tuple[Live, Steps]:
        """Act, step, remember, learn."""
        t = live.step + 1
        key_act, key_env, key_mask, key_learn, key_draw = jax.random.split(jax.random.fold_in(key, t), 5)
        action = self.agent.act(live.agent, key_act, live.obs)
        obs, env, reward, terminated, truncated, info = self.env.step(key_env, live.env, action, params)
        transition = Transition(live.obs, action, reward, info["final_observation"], terminated)
        agent = self.agent.update_buffer(live.agent, key_mask, transition)
        done = terminated | truncated

        def learn(state: AgentState) -> AgentState:
            return self.agent.learn_from_buffer(state, key_learn)[0]

        if self.learn_every == 1:
            agent = learn(agent)
        else:
            due = done if self.learn_every == 0 else t % self.learn_every == 0
            agent = jax.lax.cond(due, learn, lambda state: state, agent)
        drawn = self.agent.start_episode(agent, key_draw).index
        index = jax.tree.map(lambda new, old: jnp.where(done, new, old), drawn, agent.index)
        bad = info.get("bad", jnp.zeros((), bool))
        return Live(agent._replace(index=index), env, obs, t), Steps(reward, done, bad)


@eqx.filter_jit
def _chunk(loop: Loop, key: PRNGKeyArray, params: Any, live: Live, length: int) -> tuple[Live, Steps]:
    return jax.lax.scan(lambda carry, _: loop.step(key, params, carry), live, length=length)


def live(loop: Loop, key: PRNGKeyArray, params: Any, *, episodes: int, chunk: int = 1000) -> Iterator[Episode]:
    """Run for a number of episodes, one at a time as they finish. A generator: logging and stopping are the caller's.

    `chunk`: environment steps per compiled call.
    """
    positive_int("episodes", episodes)
    state = jax.jit(loop.init)(key, params)
    finished, total, length = 0, 0.0, 0
    while True:
        state, steps = _chunk(loop, key, params, state, positive_int("chunk", chunk))
        for reward, done, bad in zip(*(np.asarray(part) for part in steps), strict=True):
            total, length = total + float(reward), length + 1
            if done:
                finished += 1
                yield Episode(finished, total, length, bool(bad))
                total, length = 0.0, 0
                if finished == episodes:
                    return


def episodes_to_learn(bad: Any) -> int | None:
    """The paper's measure: the first episode at which the average regret per episode is below 0.9, on DeepSea the share
    of bad episodes so far (as bsuite); None if it never is."""
    share = np.cumsum(np.asarray(bad, dtype=float)) / np.arange(1, len(bad) + 1)
    below = np.flatnonzero(share < 0.9)
    return int(below[0]) + 1 if len(below) else None
