"""Acting on the host: several environments (lanes), with one batched evaluation of the networks."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from priorax.agents import Agent, Choice
from priorax.envs.host.vector import VectorWorld
from priorax.replay import LaneStep, Transition, owned_mean
from priorax.replay.base import Window, n_step_return
from priorax.training.backends.lanes import Lanes, Played, seed_for

Observe = Callable[[Transition, np.ndarray], np.ndarray | None]
"""Function that passes transitions of all lanes to an agent, with their weights; it returns the reward bonus, if any.
"""


class Acted(NamedTuple):
    """Result of one round: one action in every lane."""

    step: LaneStep | None
    """The step n actions ago, whose TD errors are now known, for replay; None at first, and for agents without replay.
    """
    errors: np.ndarray | None
    """Mean |TD error| of that step over the members that own it, [lane]; None if there are no members."""
    played: list[Played]
    """Episodes that finished."""
    actions: int
    """Number of lanes that acted; the others started an episode."""
    obs: np.ndarray
    """Observations before the actions."""


class Actor:
    """Acts in several environments (lanes); each follows one sampled value function per episode."""

    def __init__(
        self,
        agent: Agent,
        world: VectorWorld,
        seed: int,
        *,
        first_lane: int = 0,
        all_lanes: int | None = None,
        clip_rewards: bool = False,
        since: int = 0,
        observe: Observe = lambda transition, weight: None,
    ) -> None:
        """Start an episode in every lane.

        Args:
            agent: The agent.
            world: The environments.
            seed: Seed of all randomness.
            first_lane: Index of the first lane among those of all actors.
            all_lanes: Number of lanes of all actors; by default there are no others. Epsilon may depend on the lane.
            clip_rewards: Whether to learn from rewards clipped to [-1, 1].
            since: Number of earlier rounds, so that random numbers are not repeated.
            observe: Function that receives all transitions as they happen.
        """
        self.agent, self.world, self.clip_rewards, self.observe = agent, world, clip_rewards, observe
        self.key = jax.random.key(seed_for(seed, "acting", since))
        self.rng = np.random.default_rng(seed_for(seed, "masks", since))
        self.seeds = np.random.default_rng(seed_for(seed, "resets", since))
        self.numbers = (first_lane + np.arange(world.num_envs)).astype(np.float32)
        self.all_lanes = all_lanes or world.num_envs
        self.index: PyTree = None
        self.rounds = 0
        self.episodes = 0
        """Number of finished episodes of all actors, as last reported; determines epsilon."""
        self.late: deque[tuple[LaneStep, np.ndarray | None]] = deque()
        """Steps whose TD errors are not known yet, with the members' values."""
        self.lanes = Lanes(world, self._reset_seed(), since=since, first_lane=first_lane)

    def begin_anew(self) -> None:
        """Start new episodes in all lanes; those in progress are abandoned."""
        self.lanes.begin(self._reset_seed())
        self.late.clear()

    def advance(self, state: Any) -> Acted:
        """Take one action in every lane.

        Args:
            state: State of the agent.

        Returns:
            The result of the round.
        """
        self.rounds += 1
        obs, first, acted = self.lanes.obs, self.lanes.first, ~self.lanes.over
        time, episodes = np.asarray(self.rounds), np.asarray(self.episodes)  # Python numbers would cause recompilation
        self._begin(state, time, first)
        choice = _act(self.agent, state, self.key, time, obs, self.index, self.numbers, self.all_lanes, episodes)
        action = np.asarray(choice.action)
        after, played = self.lanes.step(action)
        self.episodes += len(played)
        reward = np.clip(after.reward, -1, 1) if self.clip_rewards else after.reward
        terminated, ended = after.terminated | after.life_lost, after.terminated | after.truncated
        if self.agent.observes:
            weight = acted.astype(np.float32)
            bonus = self.observe(Transition(obs, action, reward, after.obs, after.terminated, ended), weight)
            reward = reward if bonus is None else reward + weight * bonus
        step, errors = None, None
        if self.agent.replay is not None:
            replay = self.agent.replay
            mask = self.rng.random((len(action), replay.num_streams)) < replay.mask_prob
            seen = obs[:, -1] if self.world.stack > 1 else obs
            prior = None if choice.prior is None else np.asarray(choice.prior)
            values = None if choice.values is None else np.asarray(choice.values)
            self.late.append((LaneStep(seen, first, action, reward, terminated, ended, acted, mask, prior), values))
            if len(self.late) > replay.n_step:
                errors = self._errors()
                step = self.late.popleft()[0]
        return Acted(step, errors, played, int(acted.sum()), obs)

    def _begin(self, state: Any, time: np.ndarray, first: np.ndarray) -> None:
        """Sample the value function to follow in lanes where an episode starts."""
        if self.index is None:
            self.index = _begin_all(self.agent, state, self.key, time, len(first))
            return
        for lane in np.flatnonzero(first):
            self.index = _begin_one(self.agent, state, self.key, time, self.index, lane)

    def _errors(self) -> np.ndarray | None:
        """Compute the TD errors of the oldest pending step."""
        steps, values = zip(*self.late, strict=True)
        start, replay = steps[0], self.agent.replay
        if values[0] is None or replay is None:
            return None
        found = n_step_return(
            np,
            replay.n_step,
            replay.discount,
            lambda j: Window(steps[j].reward, steps[j].terminated, steps[j].ended),
            lambda j: ~steps[j].first,
        )
        lanes = np.arange(len(start.action))
        best = np.stack([each.max(axis=2) for each in values[1:]])[found.last, :, lanes].T
        size = np.abs(found.reward + found.discount * best - values[0][:, lanes, start.action])
        return owned_mean(np, size, start.mask.T)

    def _reset_seed(self) -> int:
        return int(self.seeds.integers(2**30))


@eqx.filter_jit
def _act(
    agent: Agent,
    state: Any,
    key: PRNGKeyArray,
    time: Any,
    obs: Any,
    index: PyTree,
    numbers: Any,
    all_lanes: int,
    episodes: Any,
) -> Choice:
    epsilon = agent.epsilon_at(episodes, numbers, all_lanes)
    return agent.act(state, jax.random.fold_in(key, 2 * time), obs, index, epsilon)


@eqx.filter_jit
def _begin_all(agent: Agent, state: Any, key: PRNGKeyArray, time: Any, lanes: int) -> PyTree:
    keys = jax.random.split(jax.random.fold_in(key, 2 * time + 1), lanes)
    return jax.vmap(lambda k: agent.begin(state, k))(keys)


@eqx.filter_jit
def _begin_one(agent: Agent, state: Any, key: PRNGKeyArray, time: Any, index: PyTree, lane: Any) -> PyTree:
    drawn = agent.begin(state, jax.random.fold_in(jax.random.fold_in(key, 2 * time + 1), lane))
    return jax.tree.map(lambda all_, one: all_.at[lane].set(one), index, drawn)
