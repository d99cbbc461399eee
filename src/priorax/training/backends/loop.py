"""The compiled loop (`live`, algorithm 3): one agent in one compiled environment, with replay on the device.

Step t depends only on the run's key and t, so a run can be cut into chunks of any length. Seeds are separate runs
(`analysis/parallel.py`): a vmap over seeds would execute both branches of every condition, and make the results of a
seed depend on the others.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from priorax.agents import Agent, AgentSpec, Settings, agent_spec, build
from priorax.beliefs import Info
from priorax.checks import positive_int
from priorax.envs import Environment, Held, make_environment
from priorax.envs.interface import task_spec_of
from priorax.replay import Buffer, DeviceReplay, Stored, Transition, td_errors


class Live(NamedTuple):
    """State of a run between two steps."""

    agent: Any
    """State of the agent."""
    replay: Any
    """A `Buffer`; empty for an agent that learns without replay."""
    env: PyTree
    """State of the environment."""
    obs: PyTree
    """Current observation."""
    index: PyTree
    """The draw that the agent follows in this episode."""
    episodes: Array
    """Number of finished episodes."""
    step: Array
    """Number of steps so far."""
    due: Array
    """Whether to learn before the next action."""


class Steps(NamedTuple):
    """Results of each step of a chunk."""

    reward: Array
    """Reward."""
    done: Array
    """Whether the episode ended."""
    bad: Array
    """Whether the episode is certainly suboptimal, if the environment tells."""
    solved: Array
    """At the end of an episode: whether the greedy policy of the mean is optimal, if the environment knows its optimal
    path."""
    loss: Array
    """Loss averaged over members; zero without an update."""
    taken: Array
    """Number of environment steps: more than one if actions are repeated."""
    non_finite: Array
    """Sum of the NaN or infinite components of the next observation; zero if all are finite."""


class Loop(eqx.Module):
    """Interaction of an agent with a compiled environment.

    Attributes:
        env: A compiled environment.
        agent: The agent.
        learn_every: Environment steps between updates; 0: at episode ends only, as in the paper's `live`.
        updates: Updates each time.
        learn_after: Transitions in replay before the first update.
        clip_rewards: Whether to learn from rewards clipped to [-1, 1]; logs keep the raw rewards.
    """

    env: Environment = eqx.field(static=True)
    agent: Agent
    learn_every: int = eqx.field(static=True, default=1)
    updates: int = eqx.field(static=True, default=1)
    learn_after: int = eqx.field(static=True, default=1)
    clip_rewards: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        positive_int("learn_after", self.learn_after)
        if not isinstance(self.learn_every, int) or self.learn_every < 0:
            raise ValueError(
                f"learn_every={self.learn_every!r} must be a whole number of at least 0; pass for example 1, or 0 to "
                "learn at episode ends"
            )
        positive_int("updates", self.updates)
        replay = self.agent.replay
        if replay is not None and self.learn_after > replay.capacity:
            raise ValueError(
                f"learn_after={self.learn_after} exceeds capacity={replay.capacity}, so learning would never start; "
                "raise capacity or lower learn_after"
            )
        found = getattr(self.env, "num_actions", None)
        if found != self.agent.num_actions:
            raise ValueError(
                f"the agent has {self.agent.num_actions} actions, but the environment has {found}; build the belief "
                "with num_outputs=env.num_actions"
            )

    @property
    def replay(self) -> DeviceReplay | None:
        """The replay buffer, if the agent learns from one."""
        return None if self.agent.replay is None else DeviceReplay(self.agent.replay)

    def init(self, key: PRNGKeyArray, params: Any) -> Live:
        """Initialise a run.

        Args:
            key: PRNG key.
            params: Parameters of the environment.

        Returns:
            The initial state of the run.
        """
        key_env, key_agent = jax.random.split(jax.random.fold_in(key, 0))
        obs, env = self.env.reset(key_env, params)
        agent = self.agent.init(key_agent, obs)
        index = self.agent.begin(agent, jax.random.split(key_agent)[1])
        zero, no = jnp.zeros((), int), jnp.zeros((), bool)
        replay: Any = ()
        if self.replay is not None:
            action = jax.eval_shape(lambda: self._choose(agent, key, obs, index, zero)[0])
            replay = empty_replay(self.agent, agent, obs, jnp.zeros(action.shape, action.dtype))
        return Live(agent, replay, env, obs, index, zero, zero, no)

    def step(self, key: PRNGKeyArray, params: Any, live: Live) -> tuple[Live, Steps]:
        """Perform the updates that are due, then act, step the environment and store the transition.

        Learning comes first because it reads replay, which storing writes: in this order, and with the write position
        made to depend on the action, every write waits for the reads, and the compiler needs no copy of replay.

        Args:
            key: PRNG key.
            params: Parameters of the environment.
            live: State of the run.

        Returns:
            The new state, and the results of the step.
        """
        t = live.step + 1
        key_act, key_env, key_mask, key_learn, key_draw, key_mean = jax.random.split(jax.random.fold_in(key, t), 6)
        agent, replay, loss = self._learn(live, key_learn)
        action, prior = self._choose(agent, key_act, live.obs, live.index, live.episodes)
        obs, env, reward, terminated, truncated, info = self.env.step(key_env, live.env, action, params)
        done = terminated | truncated
        learned_from = jnp.clip(reward, -1, 1) if self.clip_rewards else reward
        transition = Transition(live.obs, action, learned_from, info["final_observation"], terminated, done)
        if self.replay is not None:
            time = jnp.where(_never(action), 0, replay.time)  # unchanged, but only known once the action is
            replay = replay._replace(time=time)
        agent, replay = remember(self.agent, agent, replay, key_mask, transition, prior)
        index = jax.lax.cond(done, lambda: self.agent.begin(agent, key_draw), lambda: live.index)
        solved = jax.lax.cond(done, lambda: self.solved(agent, key_mean, params), lambda: jnp.zeros((), bool))
        due = done if self.learn_every == 0 else t % self.learn_every == 0
        bad = info.get("bad", jnp.zeros((), bool))
        taken = info.get("steps", jnp.ones((), int))
        after = Live(agent, replay, env, obs, index, live.episodes + done, t, due)
        return after, Steps(reward, done, bad, solved, loss, taken, _sum_non_finite((info["final_observation"], obs)))

    def solved(self, agent: Any, key: PRNGKeyArray, params: Any) -> Array:
        """Check whether the greedy policy of the mean follows the optimal path, if the environment knows one.

        Args:
            agent: State of the agent.
            key: PRNG key.
            params: Parameters of the environment.

        Returns:
            Whether it does.
        """
        if not hasattr(self.env, "optimal_path"):
            return jnp.zeros((), bool)
        obs, actions = self.env.optimal_path(params)
        return jnp.all(jnp.argmax(self.agent.mean_values(agent, key, obs), axis=-1) == actions)

    def _learn(self, live: Live, key: PRNGKeyArray) -> tuple[Any, Any, Array]:
        """Perform the updates that are due; return the agent's state, replay and the loss."""
        if self.replay is None:
            return live.agent, live.replay, jnp.zeros(())
        keys = jax.random.split(key, self.updates) if self.updates > 1 else key[None]

        def once(i: Any, carry: tuple[Any, Buffer, Array]) -> tuple[Any, Buffer, Array]:
            agent, buffer, info = learn_once(self.agent, *carry[:2], keys[i])
            return agent, buffer, jnp.mean(info.loss)

        before = (live.agent, live.replay, jnp.zeros(()))
        if self.learn_every == self.learn_after == self.updates == 1:  # from an empty replay nothing is learned
            return once(0, before)
        due = live.due & (live.replay.time >= self.learn_after)
        # a loop of no turns where nothing is due: the branches of a `cond` would copy all of replay
        return jax.lax.fori_loop(0, jnp.where(due, self.updates, 0), once, before)

    def _choose(self, agent: Any, key: PRNGKeyArray, obs: PyTree, index: PyTree, episodes: Array) -> tuple[Any, Any]:
        """Choose the action in the single lane; return it and the prior values."""
        epsilon = self.agent.epsilon_at(episodes, jnp.zeros(1), 1)
        choice = self.agent.act(agent, key, _one_lane(obs), _one_lane(index), epsilon)
        return choice.action[0], None if choice.prior is None else choice.prior[0]


def empty_replay(agent: Agent, state: Any, obs: PyTree, action: Any) -> Buffer:
    """Create an empty replay buffer for an agent.

    Args:
        agent: The agent.
        state: State of the agent.
        obs: One example observation.
        action: One example action.

    Returns:
        The buffer.
    """
    assert agent.replay is not None
    no = jnp.zeros((), bool)
    prior = _prior_at(agent, state, obs)
    example = Stored(Transition(obs, action, jnp.zeros(()), obs, no, no), prior, prior)
    return DeviceReplay(agent.replay).init(example)


def remember(
    agent: Agent, state: Any, buffer: Any, key: PRNGKeyArray, transition: Transition, prior: Array | None = None
) -> tuple[Any, Any]:
    """Show ONE transition to an agent, and store it in replay.

    Args:
        agent: The agent.
        state: State of the agent.
        buffer: Its replay; empty for an agent without one.
        key: PRNG key of the bootstrap masks.
        transition: The transition.
        prior: Prior values at its observation, if already known.

    Returns:
        The new state of the agent, and its replay.
    """
    state, bonus = agent.observe(state, _one_lane(transition), jnp.ones(1))
    if agent.replay is None:
        return state, buffer
    if bonus is not None:
        transition = transition._replace(reward=transition.reward + bonus[0])
    prior = _prior_at(agent, state, transition.obs) if prior is None else prior
    after = None if prior is None else _prior_at(agent, state, transition.next_obs)
    return state, DeviceReplay(agent.replay).add(buffer, Stored(transition, prior, after), key)


def learn_once(agent: Agent, state: Any, buffer: Buffer, key: PRNGKeyArray) -> tuple[Any, Buffer, Info]:
    """Perform one update on a minibatch from replay.

    Args:
        agent: The agent.
        state: State of the agent.
        buffer: Its replay.
        key: PRNG key.

    Returns:
        The new state, replay with updated priorities, and diagnostics.
    """
    assert agent.replay is not None
    replay = DeviceReplay(agent.replay)
    key_sample, key_learn = jax.random.split(key)
    sampled = replay.sample(buffer, key_sample)
    state, info = agent.learn(state, sampled, key_learn)
    if replay.settings.priority > 0 and info.examples is not None:
        buffer = replay.prioritise(buffer, sampled.place, td_errors(jnp, info.examples, sampled.weight > 0))
    return state, buffer, info


def run_chunk(
    loop: Loop, key: PRNGKeyArray, params: Any, live: Live, size: int, length: Int[Array, ""] | None = None
) -> tuple[Live, Steps]:
    """Run a number of steps in one compiled call. The transitions in replay are changed in place: those of `live` must
    not be used afterwards.

    Args:
        loop: Agent and environment.
        key: PRNG key of the run.
        params: Parameters of the environment.
        live: State of the run.
        size: Maximum number of steps; each value compiles a new program.
        length: Number of steps, at most `size`; changing it needs no recompilation; by default `size`.

    Returns:
        The new state of the run, and the results of each step; entries beyond `length` are zero.
    """
    light, transitions = without_transitions(live)
    return compiled_chunk((loop, key, params, light, length), transitions, size)


@eqx.filter_jit(donate="all-except-first")
def compiled_chunk(kept: tuple[Any, ...], transitions: PyTree, size: int) -> tuple[Live, Steps]:
    """Run a number of steps; `run_chunk` has the arguments by name.

    Args:
        kept: Agent and environment, PRNG key, parameters, the state of the run without transitions, number of steps.
        transitions: The transitions in replay, whose memory is used for the result.
        size: Maximum number of steps.

    Returns:
        The new state of the run, and the results of each step.
    """
    loop, key, params, light, length = kept
    live = with_transitions(light, transitions)
    shapes = jax.eval_shape(lambda live: loop.step(key, params, live)[1], live)
    room = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def body(i: Array, carry: tuple[Live, Steps]) -> tuple[Live, Steps]:
        live, steps = carry
        live, step = loop.step(key, params, live)
        return live, jax.tree.map(lambda ring, value: ring.at[i].set(value), steps, step)

    return jax.lax.fori_loop(0, size if length is None else length, body, (live, room))


def without_transitions(live: Live) -> tuple[Live, Any]:
    """Split the state of a run into a small part and the transitions in replay.

    Args:
        live: State of the run.

    Returns:
        The state without transitions, and the transitions; empty for an agent without replay.
    """
    replay: Any = live.replay
    return (live._replace(replay=replay._replace(data=())), replay.data) if replay else (live, ())


def with_transitions(light: Live, transitions: PyTree) -> Live:
    """Put the transitions back, the inverse of `without_transitions`.

    Args:
        light: The state without transitions.
        transitions: The transitions.

    Returns:
        The state of the run.
    """
    return light._replace(replay=light.replay._replace(data=transitions)) if light.replay else light


@eqx.filter_jit
def start(loop: Loop, key: PRNGKeyArray, params: Any) -> Live:
    """Initialise a run.

    Args:
        loop: Agent and environment.
        key: PRNG key of the run.
        params: Parameters of the environment.

    Returns:
        The initial state of the run.
    """
    return loop.init(key, params)


def prepare(
    agent: str | AgentSpec | Agent, chosen: Settings, env: str | Environment, size: int, seed: int
) -> tuple[Loop, PRNGKeyArray, Any]:
    """Prepare a run.

    Args:
        agent: A name, a spec, or an agent.
        chosen: Its hyperparameters.
        env: A name, or a compiled environment.
        size: Size of environments that have one.
        seed: Seed of the run.

    Returns:
        Agent and environment, the PRNG key of the run, and the environment's parameters for that seed.

    Raises:
        ValueError: If a setting is not possible in a compiled scan.
    """
    if chosen.lanes > 1:
        raise ValueError(
            f"lanes={chosen.lanes} must be 1 in a compiled scan, which has one lane; pass lanes=1, or backend='host'"
        )
    spec = agent_spec(agent) if isinstance(agent, str | AgentSpec) else None
    world: Any = env
    if isinstance(env, str):
        continuous = spec is not None and spec.continuous
        world = make_environment(env, positive_int("size", size), continuous=continuous)
    if chosen.hold > 1:
        world = Held(world, chosen.hold)
    key_params, key = jax.random.split(jax.random.key(seed))
    params = world.params(key_params) if hasattr(world, "params") else world.default_params
    values = None
    if chosen.wants_optimal_values and hasattr(world, "optimal_values"):
        values = np.reshape(world.optimal_values(params, chosen.discount), (-1, world.num_actions))
    built: Any = agent if spec is None else build(spec, chosen, task_spec_of(world, params, values))
    return loop_of(built, world, chosen), key, params


def loop_of(agent: Agent, env: Environment, chosen: Settings) -> Loop:
    """Combine an agent and a compiled environment.

    Args:
        agent: The agent.
        env: The environment.
        chosen: Hyperparameters.

    Returns:
        The loop.
    """
    return Loop(env, agent, chosen.learn_every, chosen.updates, chosen.learn_after, chosen.clip_rewards)


def _prior_at(agent: Agent, state: Any, obs: PyTree) -> Array | None:
    prior = agent.prior_at(state, _one_lane(obs))
    return None if prior is None else prior[0]


def _one_lane(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)


def _never(action: Array) -> Array:
    """Return False in a way that depends on the action, as the compiler sees it."""
    first = jnp.ravel(action)[0]
    return first < 0 if jnp.issubdtype(first.dtype, jnp.integer) else jnp.isnan(first)


def _sum_non_finite(obs: PyTree) -> Array:
    """Sum the NaN or infinite components of all floating-point leaves."""
    numbers = [leaf for leaf in jax.tree.leaves(obs) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return sum((jnp.sum(jnp.where(jnp.isfinite(leaf), 0.0, leaf)) for leaf in numbers), jnp.zeros(()))
