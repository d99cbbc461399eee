"""`live` (algorithm 3) for environments that are not compiled: many at once, each a *lane* with a function of its own.

An `Actor` steps all lanes with one evaluation of the networks; a `Learner` draws from replay and learns. Acting uses
weights that are one round old, so that learning goes on while the environments step. Everything follows from the seed.
Agents that plan instead of learning from replay have a `PlannerHost`; both offer the same to what drives them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.agents import Agent, AgentState, QLearner, Settings, Tabular, build, check_members_differ, nearby
from priorax.agents.q_learner import Sampled, errors
from priorax.beliefs import ENSEMBLES, BeliefState, Counts
from priorax.checks import positive_int
from priorax.envs.host.vector import VectorWorld
from priorax.fitting import NonFiniteLoss
from priorax.replay import Drawn, SequenceBuffer, SequenceSettings
from priorax.training.backends.acting import Actor
from priorax.training.backends.lanes import Played, seed_for
from priorax.training.backends.planner_host import PlannerHost


@eqx.filter_jit
def learn(
    agent: QLearner, state: AgentState, drawn: Drawn, count: Any, key: PRNGKeyArray
) -> tuple[AgentState, Float[Array, " batch"], Float[Array, ""]]:
    """One update on a minibatch that all members share, each transition's error for replay, and the mean loss."""
    key_target, key_online = jax.random.split(jax.random.fold_in(key, state.updates))
    mask = drawn.mask
    streams = agent.belief.num_streams
    reward = drawn.reward
    if drawn.path is not None:
        reward = reward + jnp.sum(drawn.path_weight * agent.bonus(state.belief, drawn.path, axes=2), axis=0)
    sampled = Sampled(
        drawn.obs,
        drawn.action,
        reward,
        drawn.discount,
        drawn.next_obs,
        drawn.weight * mask / agent.buffer.mask_prob,
        jnp.broadcast_to(count, (streams,)),
        drawn.prior,
        drawn.next_prior,
    )
    state, info = agent.learn(state, sampled, key_target, key_online)
    none = jnp.zeros(mask.shape[1])  # sparse rows tell no errors, and draw uniformly
    return state, none if info.examples is None else errors(info, mask), jnp.mean(info.loss)


_init = eqx.filter_jit(lambda agent, key, obs: agent.init_without_buffer(key, obs))


class Learner:
    """An agent that learns from minibatches, wherever they come from; errors come back one update later, so that the
    next can be prepared while this one runs."""

    def __init__(self, agent: QLearner, obs: Any, seed: int) -> None:
        """`obs`: one example observation."""
        if not agent.shared_batch:
            raise ValueError("shared_batch=False would need a torso for every member's batch; use shared_batch=True")
        self.key = jax.random.key(seed_for(seed, "learning"))
        self.agent = agent
        self.state: AgentState = _init(agent, jax.random.key(seed_for(seed, "start")), np.asarray(obs))
        check_members_differ(agent, self.state.belief, nearby(np.asarray(obs)))
        self.unread: tuple[np.ndarray, Array, Array] | None = None
        self.loss = 0.0
        """Of the last update whose errors were read."""
        self.episodes = 0
        """Those in `state`, without waiting for it."""

    @property
    def updates(self) -> int:
        return int(self.state.updates)

    def note(self, episodes: int, aux: PyTree = None) -> None:
        """What actors counted: episodes that ended, and of a belief that counts, its counts, by which it is paid."""
        if episodes != self.episodes:
            self.episodes = episodes
            self.state = self.state._replace(episodes=jnp.asarray(episodes, self.state.episodes.dtype))
        if aux is not None:
            self.state = self.state._replace(belief=self.state.belief._replace(aux=aux))

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
        if not np.isfinite(self.loss):
            raise NonFiniteLoss(f"the loss became {self.loss} after {self.updates} updates; lower the learning rate")
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
        isinstance(agent.belief, Counts) and agent.bonus_at == "learning",
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
        """Begin in every lane of the world.

        Args:
            agent: what acts and learns.
            world: the environments.
            seed: everything random follows from it, but for what the environments draw by themselves.
            learn_every: actions, over all lanes, between two times of learning.
            updates: each time.
            learn_after: transitions in replay before the first.
            clip_rewards: clip what is learned from to [-1, 1].
            look: sees every moment's newest frames.
            since: rounds that were played before (after a resume, so that other random numbers follow).

        Raises:
            ValueError: replay may never hold `learn_after` transitions.
        """
        positive_int("learn_every", learn_every)
        self.agent, self.world = agent, world
        self.learn_every, self.per_time, self.learn_after, self.look = learn_every, updates, learn_after, look
        self.buffer = buffer_for(agent, world, world.num_envs, seed_for(seed, "replay", since))
        self.buffer.settings.check_holds(learn_after)
        self.actor = Actor(agent, world, seed, clip_rewards=clip_rewards, since=since)
        self.learner = Learner(agent, self.actor.lanes.obs[0], seed)
        self.acting = self.learner.state.belief
        self.owed = 0.0
        self.rounds = since
        self.begun = 0
        """Updates in this process. Not `updates`, which waits for the one under way."""

    @property
    def steps(self) -> int:
        """Actions so far, over all lanes."""
        return self.rounds * self.world.num_envs

    @property
    def state(self) -> AgentState:
        """All that the agent has learned, for a checkpoint."""
        return self.learner.state

    @property
    def belief(self) -> BeliefState:
        """What is deployed."""
        return self.state.belief

    @property
    def updates(self) -> int:
        """In all."""
        return self.learner.updates

    @property
    def loss(self) -> float:
        """Of the last update that was read."""
        return self.learner.loss

    def resume(self, state: AgentState) -> None:
        """Go on with what was learned before; replay is filled apart."""
        self.learner.state = state._replace(buffer=())
        self.acting = self.belief
        self.actor.episodes = int(state.episodes)
        self.actor.aux = state.belief.aux if isinstance(self.agent.belief, Counts) else None

    def begin_anew(self) -> None:
        """New episodes in all lanes; those under way are left as they are."""
        self.actor.begin_anew()

    def round(self) -> list[Played]:
        """Act in every lane, remember, learn as often as is due; the episodes that ended."""
        acting, self.acting = self.acting, self.belief
        moment, error, played = self.actor.advance(acting)
        self.rounds += 1
        self.learner.note(self.actor.episodes, self.actor.aux)
        if moment is not None:
            self.look(moment.frame)
            self.buffer.add(moment, error)
        if self.buffer.size >= self.learn_after:
            self.owed += self.world.num_envs * self.per_time / self.learn_every
        while self.owed >= 1:
            self.owed -= 1
            self.begun += 1
            read = self.learner.learn(self.buffer.draw(self.agent.batch_size), self.buffer.size)
            if read is not None:
                self.buffer.prioritise(*read)
        return played


def build_for(chosen: Settings, world: VectorWorld) -> QLearner:
    """The agent with those settings, for that world; it learns Q by gradient."""
    agent = build_any(chosen, world)
    if not isinstance(agent, QLearner):
        raise ValueError(
            f"belief={chosen.belief!r} plans and has no replay, so it cannot be used here; use an agent that learns Q "
            "by gradient, such as 'bsp'"
        )
    return agent


def build_any(chosen: Settings, world: VectorWorld) -> Agent:
    """The agent with those settings, for that world."""
    return build(
        chosen,
        world.num_actions,
        num_states=getattr(world, "num_states", None),
        input_scale=getattr(world, "input_scale", ()),
    )


def host_for(chosen: Settings, world: VectorWorld, seed: int, **more: Any) -> Host | PlannerHost:
    """The agent with those settings, living in that world. Holding actions is the world's.

    Args:
        chosen: hyperparameters of agent and loop.
        world: the environments.
        seed: everything random follows from it.
        more: `look` and `since`, as `Host` has them.
    """
    agent = build_any(chosen, world)
    if isinstance(agent, Tabular):
        return PlannerHost(agent, world, seed, clip_rewards=chosen.clip_rewards, **more)
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
