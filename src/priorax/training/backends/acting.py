"""Acting on the host: lanes of an environment, one evaluation of the networks for all of them."""

from collections import deque
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.agents import QLearner
from priorax.agents.q_learner import owned_mean
from priorax.beliefs import ENSEMBLES, BeliefState, Counts, plain_batch, values_of
from priorax.envs.host.vector import VectorWorld
from priorax.replay import LaneStep
from priorax.replay.returns import Window, n_step_return
from priorax.training.backends.lanes import Lanes, Played, seed_for


class Choice(NamedTuple):
    """What the networks say about every lane's observation."""

    action: Array
    values: Array | None
    """[member, lane, action], where there are members."""
    prior: Array | None
    """[lane, member, action, prior], where there are priors."""
    index: PyTree
    """What each lane follows now."""
    bonus: Array | None = None
    """[lane]: what a belief that counts pays there, by the visits before this one."""
    aux: PyTree = None
    """Its counts with this visit."""


class Actor:
    """Lanes of an environment, and what each follows for an episode."""

    def __init__(
        self,
        agent: QLearner,
        world: VectorWorld,
        seed: int,
        *,
        first_lane: int = 0,
        all_lanes: int | None = None,
        clip_rewards: bool = False,
        since: int = 0,
    ) -> None:
        """Begin in every lane of the world.

        Args:
            agent: what acts.
            world: the environments.
            seed: everything random here follows from it.
            first_lane: the number of the first lane among those of all actors.
            all_lanes: how many all actors have; these are all unless told. Epsilon may differ between them.
            clip_rewards: clip what is learned from to [-1, 1].
            since: rounds that were played before, so that other random numbers follow.
        """
        self.agent, self.world, self.clip_rewards = agent, world, clip_rewards
        self.key = jax.random.key(seed_for(seed, "acting", since))
        self.rng = np.random.default_rng(seed_for(seed, "masks", since))
        self.seeds = np.random.default_rng(seed_for(seed, "resets", since))
        lanes = world.num_envs
        self.exponent = epsilon_exponents(agent.epsilon_ladder, first_lane, lanes, all_lanes or lanes)
        self.index: PyTree = None
        self.steps = 0
        """Rounds of all lanes so far."""
        self.episodes = 0
        """That ended, over the lanes of all actors as far as known here: epsilon's schedule follows it."""
        self.aux: PyTree = None
        """Of a belief that counts: its counts up to now, of which learners learn."""
        self.late: deque[tuple[LaneStep, np.ndarray | None]] = deque()
        """Moments whose errors are not known yet, with the members' values there."""
        self.lanes = Lanes(world, self._reset_seed(), since=since, first_lane=first_lane)

    def begin_anew(self) -> None:
        """New episodes in all lanes; those under way are left as they are."""
        self.lanes.begin(self._reset_seed())
        self.late.clear()

    def _reset_seed(self) -> int:
        return int(self.seeds.integers(2**30))

    def advance(self, belief: BeliefState) -> tuple[LaneStep | None, np.ndarray | None, list[Played]]:
        """One action in every lane. Gives the moment n steps ago, whose errors are known now (the mean |TD| of the
        members that own it; none where there are no members), and the episodes that ended."""
        self.steps += 1
        obs, first, acted = self.lanes.obs, self.lanes.first, ~self.lanes.over
        if self.aux is not None:
            belief = belief._replace(aux=self.aux)
        time, episodes = np.asarray(self.steps), np.asarray(self.episodes)  # plain numbers would compile anew
        choice = choose(self.agent, belief, self.key, time, obs, self.index, first, acted, episodes, self.exponent)
        self.index, self.aux = choice.index, choice.aux
        action = np.asarray(choice.action)
        turn, played = self.lanes.step(action)
        self.episodes += len(played)
        reward = np.clip(turn.reward, -1, 1) if self.clip_rewards else turn.reward
        if choice.bonus is not None and self.agent.bonus_at == "insertion":
            reward = reward + np.where(acted, np.asarray(choice.bonus), 0.0)
        moment = LaneStep(
            obs[:, -1] if self.world.stack > 1 else obs,
            first,
            action,
            reward,
            turn.terminated | turn.life_lost,
            turn.terminated | turn.truncated,
            acted,
            self.rng.random((len(action), self.agent.belief.num_streams)) < self.agent.buffer.mask_prob,
            None if choice.prior is None else np.asarray(choice.prior),
        )
        self.late.append((moment, None if choice.values is None else np.asarray(choice.values)))
        if len(self.late) <= self.agent.n_step:
            return None, None, played
        error = self._error()
        return self.late.popleft()[0], error, played

    def _error(self) -> np.ndarray | None:
        """Of the oldest late moment."""
        moments, values = zip(*self.late, strict=True)
        start = moments[0]
        if values[0] is None:
            return None
        found = n_step_return(
            np,
            self.agent.n_step,
            float(self.agent.discount),
            lambda j: Window(moments[j].reward, moments[j].terminated, moments[j].ended),
            lambda j: ~moments[j].first,
        )
        lanes = np.arange(len(start.action))
        best = np.stack([each.max(axis=2) for each in values[1:]])[found.last, :, lanes].T
        size = np.abs(found.reward + found.discount * best - values[0][:, lanes, start.action])
        return owned_mean(np, size, start.mask.T)


def epsilon_exponents(ladder: float, first_lane: int, lanes: int, all_lanes: int) -> np.ndarray:
    """Ape-X's, with a ladder of 7: in lane i of N epsilon is taken to the power 1 + 7 i/(N-1), so that some explore and
    some are nearly greedy."""
    i = first_lane + np.arange(lanes)
    return (1 + ladder * i / max(all_lanes - 1, 1)).astype(np.float32)


@eqx.filter_jit
def choose(
    agent: QLearner,
    belief: BeliefState,
    key: PRNGKeyArray,
    time: Any,
    obs: Any,
    index: PyTree,
    first: Any,
    acted: Any,
    episodes: Any,
    exponent: Any,
) -> Choice:
    """Greedy on each lane's own function, drawn anew where an episode begins; dithering where epsilon says so. A belief
    that counts, counts what is seen in the lanes that act."""
    lanes = jnp.shape(first)[0]
    key_draw, key_tie, key_dither, key_random, key_value = jax.random.split(jax.random.fold_in(key, time), 5)
    drawn = jax.vmap(lambda k: agent.belief.draw(belief, k))(jax.random.split(key_draw, lanes))
    if index is not None and not agent.draw_each_step:
        pick = lambda new, old: jnp.where(first.reshape(-1, *[1] * (new.ndim - 1)), new, old)  # noqa: E731
        drawn = jax.tree.map(pick, drawn, index)
    prior = values = None
    if isinstance(agent.belief, ENSEMBLES):
        raw = agent.belief.prior_values(belief, obs)
        values = values_of(agent.belief.head, agent.belief.forward(belief, key_value, obs, raw, shared=True))
        followed = values[drawn, jnp.arange(lanes)]
        prior = None if raw is None else jnp.moveaxis(raw, 1, 0)
    else:
        followed = jax.vmap(lambda i, x: agent.belief.value(belief, i, x))(drawn, obs)
    best = followed == jnp.max(followed, axis=1, keepdims=True)
    action = jnp.argmax(jnp.where(best, jax.random.uniform(key_tie, followed.shape), -1.0), axis=1)
    other = jax.random.randint(key_random, (lanes,), 0, agent.num_actions)
    epsilon = agent.epsilon_after(episodes) ** exponent
    action = jnp.where(jax.random.uniform(key_dither, (lanes,)) < epsilon, other, action)
    if not isinstance(agent.belief, Counts):
        return Choice(action, values, prior, drawn)
    batch = plain_batch(obs, jnp.zeros((lanes, agent.num_actions)), agent.belief.num_streams)
    batch = eqx.tree_at(lambda batch: batch.weight, batch, batch.weight * acted)
    return Choice(action, values, prior, drawn, agent.bonus(belief, obs), agent.belief.observe(belief, batch).aux)
