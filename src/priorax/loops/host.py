"""`live` (algorithm 3) for environments that are not compiled: many at once, each a *lane* with a function of its own.

An `Actor` steps all lanes with one evaluation of the networks; a `Learner` draws from replay and learns. Acting uses
weights that are one round old, so that learning goes on while the environments step. Everything follows from the seed.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.agents import AgentState, QLearner, Settings, build
from priorax.agents.q_learner import Sampled
from priorax.beliefs import ENSEMBLES, State, values_of
from priorax.checks import positive_int
from priorax.envs.vector import VectorWorld
from priorax.replay import Drawn, Moment, SequenceBuffer, SequenceSettings


class Played(NamedTuple):
    """One finished episode."""

    lane: int
    total_return: float
    """Unclipped."""
    length: int
    """Actions."""


class Choice(NamedTuple):
    """What the networks say about every lane's observation."""

    action: Array
    values: Array | None
    """[member, lane, action], where there are members."""
    prior: Array | None
    """[lane, member, action, prior], where there are priors."""
    index: PyTree
    """What each lane follows now."""


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
    ) -> None:
        """`first_lane` of `all_lanes`: where these are among those of all actors, for their epsilons."""
        self.agent, self.world, self.clip_rewards = agent, world, clip_rewards
        key_world, self.key = jax.random.split(jax.random.key(seed))
        self.rng = np.random.default_rng(seed)
        self.epsilon = epsilons(agent.epsilon, first_lane, world.num_envs, all_lanes or world.num_envs)
        self.index: PyTree = None
        self.steps = 0
        """Rounds of all lanes so far."""
        self.late: deque[tuple[Moment, np.ndarray | None]] = deque()
        """Moments whose errors are not known yet, with the members' values there."""
        self._begin(int(jax.random.randint(key_world, (), 0, 2**30)))

    def begin_anew(self) -> None:
        """New episodes in all lanes; those under way are left as they are."""
        self._begin(int(self.rng.integers(2**30)))

    def _begin(self, seed: int) -> None:
        lanes = self.world.num_envs
        self.obs = self.world.reset(seed)
        self.first, self.over = np.ones(lanes, bool), np.zeros(lanes, bool)
        self.total, self.length = np.zeros(lanes), np.zeros(lanes, int)
        self.late.clear()

    def advance(self, belief: State) -> tuple[Moment | None, np.ndarray | None, list[Played]]:
        """One action in every lane. Gives the moment n steps ago, whose errors are known now (the mean |TD| of the
        members that own it; none where there are no members), and the episodes that ended."""
        self.steps += 1
        time = np.asarray(self.steps)  # a plain number would compile anew
        choice = choose(self.agent, belief, self.key, time, self.obs, self.index, self.first, self.epsilon)
        self.index = choice.index
        action = np.asarray(choice.action)
        turn = self.world.step(action)
        acted, ended = ~self.over, turn.terminated | turn.truncated
        streams = self.agent.belief.num_streams
        moment = Moment(
            self.obs[:, -1] if self.world.stack > 1 else self.obs,
            self.first,
            action,
            np.clip(turn.reward, -1, 1) if self.clip_rewards else turn.reward,
            turn.terminated | turn.life_lost,
            ended,
            acted,
            self.rng.random((len(action), streams)) < self.agent.buffer.mask_prob,
            None if choice.prior is None else np.asarray(choice.prior),
        )
        self.total += turn.reward
        self.length += acted
        played = [Played(int(i), float(self.total[i]), int(self.length[i])) for i in np.flatnonzero(ended)]
        self.total[ended], self.length[ended] = 0.0, 0
        self.obs, self.first, self.over = turn.obs, self.over, ended
        self.late.append((moment, None if choice.values is None else np.asarray(choice.values)))
        if len(self.late) <= self.agent.n_step:
            return None, None, played
        error = self._error()
        return self.late.popleft()[0], error, played

    def _error(self) -> np.ndarray | None:
        """Of the oldest late moment."""
        (start, values), *following = self.late
        if values is None:
            return None
        lanes = np.arange(len(start.action))
        discount = float(self.agent.discount)
        reward, left, on = np.zeros(len(lanes)), np.ones(len(lanes)), np.ones(len(lanes), bool)
        best = np.zeros(values.shape[:2])
        for j, (after, next_values) in enumerate(following):
            here = self.late[j][0]
            assert next_values is not None
            reward = reward + np.where(on, discount**j * here.reward, 0.0)
            left = np.where(on, discount ** (j + 1) * ~here.terminated, left)
            best = np.where(on, next_values.max(axis=2), best)
            on = on & ~(here.terminated | here.ended) & ~after.first
        size = np.abs(reward + left * best - values[:, lanes, start.action])
        return owned_mean(np, size, start.mask.T)


def epsilons(epsilon: Any, first_lane: int, lanes: int, all_lanes: int) -> np.ndarray:
    """Ape-X's: epsilon^(1 + 7 i/(N-1)) for lane i of N, so that some explore and some are nearly greedy."""
    if epsilon is None:
        return np.zeros(lanes, np.float32)
    i = first_lane + np.arange(lanes)
    return (float(epsilon) ** (1 + 7 * i / max(all_lanes - 1, 1))).astype(np.float32)


def owned_mean(xp: Any, size: Any, mask: Any) -> Any:
    """The mean over the members (first axis) whose mask is on; over all where none is."""
    weight = xp.where(xp.sum(mask, axis=0) > 0, mask, True).astype(size.dtype)
    return xp.sum(weight * size, axis=0) / xp.sum(weight, axis=0)


@eqx.filter_jit
def choose(
    agent: QLearner, belief: State, key: PRNGKeyArray, time: Any, obs: Any, index: PyTree, first: Any, epsilon: Any
) -> Choice:
    """Greedy on each lane's own function, drawn anew where an episode begins; dithering where epsilon says so."""
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
    action = jnp.where(jax.random.uniform(key_dither, (lanes,)) < epsilon, other, action)
    return Choice(action, values, prior, drawn)


@eqx.filter_jit
def learn(
    agent: QLearner, state: AgentState, drawn: Drawn, count: Any, key: PRNGKeyArray
) -> tuple[AgentState, Float[Array, " batch"], Float[Array, ""]]:
    """One update on a minibatch that all members share, each transition's error for replay, and the mean loss."""
    key_target, key_online = jax.random.split(jax.random.fold_in(key, state.updates))
    mask = drawn.mask
    streams = agent.belief.num_streams
    sampled = Sampled(
        drawn.obs,
        drawn.action,
        drawn.reward,
        drawn.discount,
        drawn.next_obs,
        drawn.weight * mask / agent.buffer.mask_prob,
        jnp.broadcast_to(count, (streams,)),
        drawn.prior,
        drawn.next_prior,
    )
    state, info = agent.learn(state, sampled, key_target, key_online)
    error = jnp.zeros(mask.shape[1])  # sparse rows tell none, and draw uniformly
    if info.examples is not None:
        error = owned_mean(jnp, jnp.sqrt(jnp.maximum(info.examples, 0.0)), mask)
    return state, error, jnp.mean(info.loss)


_init = eqx.filter_jit(lambda agent, key, obs: agent.init_without_buffer(key, obs))


class Learner:
    """An agent that learns from minibatches, wherever they come from; errors come back one update later, so that the
    next can be prepared while this one runs."""

    def __init__(self, agent: QLearner, obs: Any, seed: int) -> None:
        """`obs`: one example observation."""
        if not agent.shared_batch:
            raise ValueError("shared_batch=False would need a torso for every member's batch; use shared_batch=True")
        key, self.key = jax.random.split(jax.random.key(seed))
        self.agent = agent
        self.state: AgentState = _init(agent, key, np.asarray(obs))
        self.unread: tuple[np.ndarray, Array, Array] | None = None
        self.loss = 0.0
        """Of the last update whose errors were read."""

    @property
    def updates(self) -> int:
        return int(self.state.updates)

    def learn(self, drawn: Drawn, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Begin an update; gives places and errors of the one before."""
        batch = drawn._replace(place=np.zeros(0))
        self.state, error, loss = learn(
            self.agent, self.state, batch, np.asarray(count), self.key
        )  # a plain number would compile anew
        read = self.read()
        self.unread = (drawn.place, error, loss)
        return read

    def read(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Places and errors of the last update begun, once."""
        if self.unread is None:
            return None
        (place, error, loss), self.unread = self.unread, None
        self.loss = float(loss)
        return place, np.asarray(error)


class BufferPlan(NamedTuple):
    """What a buffer is made of, without the agent and the world it is for."""

    settings: SequenceSettings
    frame_shape: tuple[int, ...]
    frame_dtype: np.dtype
    prior_shape: tuple[int, ...] | None

    def make(self, seed: int) -> SequenceBuffer:
        """The buffer, empty."""
        return SequenceBuffer(self.settings, self.frame_shape, self.frame_dtype, self.prior_shape, seed)


def buffer_plan(agent: QLearner, world: VectorWorld, lanes: int, capacity: int | None = None) -> BufferPlan:
    """Replay as the agent wants it, for so many lanes of that world."""
    settings = SequenceSettings(
        capacity or agent.buffer.capacity,
        lanes,
        world.stack,
        agent.n_step,
        float(agent.discount),
        agent.belief.num_streams,
        agent.buffer.priority,
        agent.buffer.importance,
    )
    prior = None
    if isinstance(agent.belief, ENSEMBLES) and agent.belief.prior is not None:
        prior = (agent.belief.num_streams, agent.num_actions, agent.belief.head.prior_size)
    return BufferPlan(settings, world.frame_shape, world.frame_dtype, prior)


def buffer_for(
    agent: QLearner, world: VectorWorld, lanes: int, seed: int, capacity: int | None = None
) -> SequenceBuffer:
    """That replay, empty."""
    return buffer_plan(agent, world, lanes, capacity).make(seed)


class Host:
    """An agent living in many lanes of one process."""

    def __init__(
        self,
        agent: QLearner,
        world: VectorWorld,
        seed: int = 0,
        *,
        learn_every: int = 4,
        updates: int = 1,
        learn_after: int = 1000,
        clip_rewards: bool = False,
        look: Callable[[np.ndarray], None] = lambda frames: None,
        since: int = 0,
    ) -> None:
        """`learn_every`: actions, over all lanes, between two times of learning; `learn_after`: transitions in replay
        before the first; `look` sees every moment's newest frames; `since`: rounds that were played before (after a
        resume, so that other random numbers follow)."""
        positive_int("learn_every", learn_every)
        self.agent, self.world = agent, world
        self.learn_every, self.updates, self.learn_after, self.look = learn_every, updates, learn_after, look
        self.actor = Actor(agent, world, seed + 7919 * since, clip_rewards=clip_rewards)
        self.learner = Learner(agent, self.actor.obs[0], seed)
        self.buffer = buffer_for(agent, world, world.num_envs, seed + since)
        self.acting = self.learner.state.belief
        self.owed = 0.0
        self.rounds = since
        self.begun = 0
        """Updates in this process. Not `learner.updates`, which waits for the one under way."""

    @property
    def steps(self) -> int:
        """Actions so far, over all lanes."""
        return self.rounds * self.world.num_envs

    def round(self) -> list[Played]:
        """Act in every lane, remember, learn as often as is due; the episodes that ended."""
        acting, self.acting = self.acting, self.learner.state.belief
        moment, error, played = self.actor.advance(acting)
        self.rounds += 1
        if moment is not None:
            self.look(moment.frame)
            self.buffer.add(moment, error)
        if self.buffer.size >= max(self.learn_after, self.agent.batch_size):
            self.owed += self.world.num_envs * self.updates / self.learn_every
        while self.owed >= 1:
            self.owed -= 1
            self.begun += 1
            read = self.learner.learn(self.buffer.draw(self.agent.batch_size), self.buffer.size)
            if read is not None:
                self.buffer.prioritise(*read)
        return played


def build_for(chosen: Settings, world: VectorWorld) -> QLearner:
    """The agent with those settings, for that world."""
    agent = build(
        chosen,
        world.num_actions,
        num_states=getattr(world, "num_states", None),
        input_scale=getattr(world, "input_scale", ()),
    )
    if not isinstance(agent, QLearner):
        raise ValueError(f"belief={chosen.belief!r} does not run on the host; use an agent that learns Q by gradient")
    return agent


def host_for(chosen: Settings, world: VectorWorld, seed: int, **more: Any) -> Host:
    """The agent with those settings, living in that world; `more` as `Host` has it. Holding actions is the world's."""
    return Host(
        build_for(chosen, world),
        world,
        seed,
        learn_every=chosen.learn_every,
        updates=chosen.updates,
        learn_after=chosen.learn_after,
        clip_rewards=chosen.clip_rewards,
        **more,
    )
