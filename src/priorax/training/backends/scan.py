"""Backend for compiled environments: agent and environment in one scan (`live`, algorithm 3), in chunks of steps.

Step t depends only on the run's key and t, so chunks can have any length; the trainer acts between them. Seeds are
separate runs (`analysis/parallel.py`): a vmap over seeds would execute both branches of every condition, and make the
results of a seed depend on the others.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from priorax.agents import Agent, AgentSpec, Settings, agent_spec, build, check_members_differ, nearby
from priorax.agents.base import errors
from priorax.agents.deploy import Values, best
from priorax.beliefs import Info
from priorax.checks import NonFinite, positive_int
from priorax.envs import Environment, Held, make_environment, num_states
from priorax.envs.interface import Interface, interface_of_environment, task_of_environment
from priorax.fitting import NonFiniteLoss
from priorax.replay import Buffer, DeviceReplay, Stored, Transition, sum_tree
from priorax.storage import restore_tree, tree_arrays
from priorax.training.checkpoint import Checkpoints
from priorax.training.records import Arrays, Ended, Inserted, ReplayFacts, Snapshot

CHUNK = 1000
"""Actions in one compiled call."""
LONGEST = 10_000
"""Maximum length of an evaluation episode in actions, if the environment declares none."""


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
    odd: Array
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
            raise ValueError(f"learn_every={self.learn_every!r} must be a whole number; pass 1, or 0 for episode ends")
        positive_int("updates", self.updates)
        replay = self.agent.replay
        if replay is not None and self.learn_after > replay.capacity:
            raise ValueError(
                f"learn_after={self.learn_after} exceeds capacity={replay.capacity}, so nothing would ever "
                "be learned; raise capacity or lower learn_after"
            )
        found = getattr(self.env, "num_actions", None)
        if found != self.agent.num_actions:
            raise ValueError(
                f"the agent has {self.agent.num_actions} actions, the environment {found}; "
                "give the belief num_outputs=env.num_actions"
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
            place = jnp.where(_never(action), 0, replay.time)  # always its time, but not known before the action is
            replay = replay._replace(time=place)
        agent, replay = remember(self.agent, agent, replay, key_mask, transition, prior)
        index = jax.lax.cond(done, lambda: self.agent.begin(agent, key_draw), lambda: live.index)
        solved = jax.lax.cond(done, lambda: self.solved(agent, key_mean, params), lambda: jnp.zeros((), bool))
        due = done if self.learn_every == 0 else t % self.learn_every == 0
        bad = info.get("bad", jnp.zeros((), bool))
        taken = info.get("steps", jnp.ones((), int))
        after = Live(agent, replay, env, obs, index, live.episodes + done, t, due)
        return after, Steps(reward, done, bad, solved, loss, taken, _odd((info["final_observation"], obs)))

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
        """Perform the updates that are due; get the agent's state, replay and the loss."""
        if self.replay is None:
            return live.agent, live.replay, jnp.zeros(())
        before = (live.agent, live.replay)

        def once(carry: tuple[Any, Buffer], key: PRNGKeyArray) -> tuple[tuple[Any, Buffer], Array]:
            agent, buffer, info = learn_once(self.agent, *carry, key)
            return (agent, buffer), jnp.mean(info.loss)

        def learn(carry: tuple[Any, Buffer]) -> tuple[tuple[Any, Buffer], Array]:
            if self.updates == 1:
                return once(carry, key)
            carry, losses = jax.lax.scan(once, carry, jax.random.split(key, self.updates))
            return carry, losses[-1]

        if self.learn_every == self.learn_after == 1:  # before the first step there is nothing, and nothing is learned
            (agent, buffer), loss = learn(before)
        else:
            due = live.due & (live.replay.time >= self.learn_after)
            (agent, buffer), loss = jax.lax.cond(due, learn, lambda carry: (carry, jnp.zeros(())), before)
        return agent, buffer, loss

    def _choose(self, agent: Any, key: PRNGKeyArray, obs: PyTree, index: PyTree, episodes: Array) -> tuple[Any, Any]:
        """Choose the action in the single lane; get it and the prior values."""
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
        buffer = replay.prioritise(buffer, sampled.place, errors(info, sampled.weight > 0))
    return state, buffer, info


def _prior_at(agent: Agent, state: Any, obs: PyTree) -> Array | None:
    prior = agent.prior_at(state, _one_lane(obs))
    return None if prior is None else prior[0]


def _one_lane(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)


def _never(action: Array) -> Array:
    """Return False in a way that depends on the action, as the compiler sees it."""
    first = jnp.ravel(action)[0]
    return first < 0 if jnp.issubdtype(first.dtype, jnp.integer) else jnp.isnan(first)


def _odd(obs: PyTree) -> Array:
    """Sum the NaN or infinite components; indices and images never are."""
    numbers = [leaf for leaf in jax.tree.leaves(obs) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return sum((jnp.sum(jnp.where(jnp.isfinite(leaf), 0.0, leaf)) for leaf in numbers), jnp.zeros(()))


@eqx.filter_jit
def run_chunk(
    loop: Loop, key: PRNGKeyArray, params: Any, live: Live, size: int, length: Int[Array, ""] | None = None
) -> tuple[Live, Steps]:
    """Run a number of steps in one compiled call.

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
    shapes = jax.eval_shape(lambda live: loop.step(key, params, live)[1], live)
    room = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def body(i: Array, carry: tuple[Live, Steps]) -> tuple[Live, Steps]:
        live, steps = carry
        live, step = loop.step(key, params, live)
        return live, jax.tree.map(lambda ring, value: ring.at[i].set(value), steps, step)

    return jax.lax.fori_loop(0, size if length is None else length, body, (live, room))


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
            f"lanes={chosen.lanes} is for environments on the host, and the compiled scan has one; pass lanes=1, or "
            "backend='host'"
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
    built: Any = agent if spec is None else build(spec, chosen, task_of_environment(world, params, values))
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


class ScanBackend:
    """A run in one compiled scan. Resumed from a checkpoint, it gives bit-identical results."""

    name = "scan"
    cluster = None

    def __init__(self, loop: Loop, key: PRNGKeyArray, params: Any, chunk: int | None = None) -> None:
        """Initialise the run.

        Args:
            loop: Agent and environment.
            key: PRNG key of the run.
            params: Parameters of the environment.
            chunk: Actions in one compiled call, by default `CHUNK`; results do not depend on it.

        Raises:
            ValueError: If all members of the agent's ensemble, or all their priors, are the same function.
        """
        self.loop, self.key, self.params = loop, key, params
        self.chunk = positive_int("chunk", CHUNK if chunk is None else chunk)
        self.agent = loop.agent
        self.interface: Interface | None = interface_of_environment(loop.env, params)
        self.live = start(loop, key, params)
        self.steps = 0
        self.total, self.length = 0.0, 0
        """Return and environment steps of the episode under way."""
        self.loss: float | None = None
        check_members_differ(self.agent, self.live.agent, nearby(self.live.obs))

    @property
    def state(self) -> Any:
        return self.live.agent

    @property
    def updates(self) -> int:
        return int(getattr(self.live.agent, "updates", 0))

    @property
    def cells(self) -> int | None:
        return None

    @property
    def variety(self) -> int | None:
        """Of environments with finite states, those in replay."""
        replay = self.loop.replay
        if replay is None or num_states(self.loop.env) is None:
            return None
        kept = int(replay.size(self.live.replay))
        return len(np.unique(np.asarray(self.live.replay.data.transition.obs)[:kept]))

    @property
    def tells_regret(self) -> bool:
        return bool(getattr(self.loop.env, "tells_regret", False))

    @property
    def tells_solved(self) -> bool:
        return hasattr(self.loop.env, "optimal_path")

    def advance(self, limit: int | None, last: Callable[[Ended], bool]) -> list[Ended]:
        """Run one chunk, or up to the episode with which the run ends.

        Args:
            limit: Maximum number of actions.
            last: Function that tells whether the run ends with an episode.

        Returns:
            The episodes that finished.

        Raises:
            NonFinite: If a reward, an observation or the loss is NaN or infinite.
        """
        length = self.chunk if limit is None else min(limit, self.chunk)
        live, steps = self._run(length)
        ended, rest = self._ended(steps, length)
        for i, episode in enumerate(ended):
            if last(episode):
                if episode.step < self.steps + length:  # the agent as it was at this episode's end
                    live, rest = self._run(episode.step - self.steps)[0], (0.0, 0)
                    length = episode.step - self.steps
                ended = ended[: i + 1]
                break
        self.loss = self._last_losses(steps, length)[-1]
        self.live, self.steps, (self.total, self.length) = live, self.steps + length, rest
        return ended

    def _run(self, length: int) -> tuple[Live, Steps]:
        live, steps = run_chunk(self.loop, self.key, self.params, self.live, self.chunk, jnp.asarray(length))
        steps = jax.tree.map(np.asarray, steps)
        self._refuse_non_finite(steps)
        return live, steps

    def _ended(self, steps: Steps, length: int) -> tuple[list[Ended], tuple[float, int]]:
        """Collect the finished episodes, and return and length of the one in progress."""
        places = np.flatnonzero(steps.done[:length])
        paid = np.split(steps.reward[:length].astype(float), places + 1)
        taken = np.split(steps.taken[:length].astype(int), places + 1)
        totals, lengths = [float(part.sum()) for part in paid], [int(part.sum()) for part in taken]
        totals[0], lengths[0] = totals[0] + self.total, lengths[0] + self.length
        losses = self._last_losses(steps, length)
        ended = [
            Ended(
                self.steps + int(t) + 1,
                0,
                totals[i],
                lengths[i],
                losses[t],
                bool(steps.bad[t]) if self.tells_regret else None,
                bool(steps.solved[t]) if self.tells_solved else None,
            )
            for i, t in enumerate(places)
        ]
        return ended, (totals[-1], lengths[-1])

    def _last_losses(self, steps: Steps, length: int) -> list[float | None]:
        """Find the loss of the last update, at each step of a chunk; a step without an update has a loss of zero."""
        last = np.maximum.accumulate(np.where(steps.loss[:length] != 0, np.arange(length), -1))
        return [float(steps.loss[t]) if t >= 0 else self.loss for t in last]

    def _refuse_non_finite(self, steps: Steps) -> None:
        """Raise for the first NaN or infinite reward, observation or loss of a chunk."""
        found = {"reward": steps.reward, "observation": steps.odd, "loss": steps.loss}
        wrong = {what: np.flatnonzero(~np.isfinite(part)) for what, part in found.items()}
        at = {what: int(places[0]) for what, places in wrong.items() if len(places)}
        if not at:
            return
        what = min(at, key=at.__getitem__)
        value, step = found[what][at[what]], self.steps + 1 + at[what]
        if what == "loss":
            raise NonFiniteLoss(f"the loss became {value} at step {step}; lower the learning rate")
        raise NonFinite(
            f"the environment gave the {what} {value} at step {step} in lane 0; fix the environment, or wrap it so "
            "that rewards and observations are finite"
        )

    def snapshot(self) -> Snapshot:
        state = tree_arrays(_light(self.live))
        under_way = {"total": self.total, "length": self.length, "loss": np.nan if self.loss is None else self.loss}
        state |= {f"run.{name}": np.asarray(number) for name, number in under_way.items()}
        if self.loop.replay is None:
            return Snapshot(self.steps, state)
        settings = self.loop.replay.settings
        return Snapshot(self.steps, state, Inserted(int(self.live.replay.time), settings.capacity, self._inserted))

    def restore(self, checkpoints: Checkpoints) -> None:
        shape = jax.eval_shape(lambda key, params: self.loop.init(key, params), self.key, self.params)
        with checkpoints.explained():
            arrays = checkpoints.state()
            self.total, self.length = float(arrays.pop("run.total")), int(arrays.pop("run.length"))
            loss = float(arrays.pop("run.loss"))
            self.loss = None if np.isnan(loss) else loss
            live: Live = restore_tree(_light(shape), arrays)
            if self.loop.replay is not None:
                live = live._replace(replay=self._refill(shape.replay, live.replay, checkpoints))
        self.live, self.steps = live, int(live.step)

    def resume(self, state: Any, steps: int) -> None:
        self.live = self.live._replace(agent=state)

    def evaluate(self, episodes: int, deploy: str, seed: int) -> list[float]:
        """Evaluate the deployed policy in all episodes at once, with at most `LONGEST` actions each.

        Args:
            episodes: Number of episodes.
            deploy: How actions are chosen, as in `Policy.predict`.
            seed: Seed of these episodes.

        Returns:
            The returns.
        """
        limit = getattr(self.loop.env, "horizon", None) or getattr(self.params, "max_steps_in_episode", None) or LONGEST
        key = jax.random.fold_in(jax.random.key(seed), self.steps)
        return np.asarray(_returns(self.loop, self.params, self.state, key, episodes, deploy, int(limit))).tolist()

    def recent(self, count: int) -> tuple[Any, Any] | None:
        replay = self.loop.replay
        kept = 0 if replay is None else int(replay.size(self.live.replay))
        if replay is None or kept == 0:
            return None
        step = replay.get(self.live.replay, jax.random.randint(jax.random.key(0), (count,), 0, kept)).transition
        return step.obs, step.action

    def replay_facts(self) -> ReplayFacts | None:
        replay = self.loop.replay
        if replay is None:
            return None
        buffer, size = self.live.replay, int(replay.size(self.live.replay))
        slots = np.arange(size)
        priorities = np.asarray(sum_tree.read(buffer.priority, slots)) if buffer.priority else np.ones(size)
        return ReplayFacts(size, np.asarray(replay.counts(buffer)), priorities)

    def close(self) -> None:
        """Do nothing: there are no open resources."""

    def _inserted(self, first: int, end: int) -> Arrays:
        assert self.loop.replay is not None
        settings, buffer = self.loop.replay.settings, self.live.replay
        slots = np.arange(first, end) % settings.capacity
        kept = (buffer.data, buffer.mask if settings.bootstraps else None)
        return tree_arrays(jax.tree.map(lambda ring: np.asarray(ring)[slots], kept))

    def _refill(self, whole: Buffer, light: Buffer, checkpoints: Checkpoints) -> Buffer:
        """Restore replay from the files of a checkpoint."""
        assert self.loop.replay is not None
        settings = self.loop.replay.settings
        data, mask = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), (whole.data, whole.mask))
        rings = (data, mask if settings.bootstraps else None)
        for first, end, arrays in checkpoints.replay():
            part = jax.tree.map(
                lambda ring, n=end - first: jax.ShapeDtypeStruct((n, *ring.shape[1:]), ring.dtype), rings
            )
            slots = np.arange(first, end) % settings.capacity
            for ring, rows in zip(jax.tree.leaves(rings), jax.tree.leaves(restore_tree(part, arrays)), strict=True):
                ring[slots] = np.asarray(rows)
        own = np.zeros(whole.own.shape, whole.own.dtype)
        if settings.bootstraps:
            times = np.arange(max(0, int(light.time) - settings.capacity), int(light.time))
            for k, inserted in enumerate(np.asarray(light.own_inserted)):
                mine = times[mask[times % settings.capacity, k]]
                own[k, np.arange(inserted - len(mine), inserted) % settings.capacity] = mine
        filled = jax.tree.map(jnp.asarray, (data, mask, own))
        return light._replace(data=filled[0], mask=filled[1], own=filled[2])


def _light(live: Any) -> Any:
    """Remove the large arrays of replay from the state of a run."""
    return live if live.replay == () else live._replace(replay=live.replay._replace(data=(), mask=(), own=()))


@eqx.filter_jit
def _returns(loop: Loop, params: Any, state: Any, key: PRNGKeyArray, episodes: int, deploy: str, limit: int) -> Array:
    agent, env = loop.agent, loop.env
    key_start, key_member, key_steps = jax.random.split(key, 3)
    obs, inside = jax.vmap(lambda key: env.reset(key, params))(jax.random.split(key_start, episodes))
    deployed = agent.deployed(state, jax.random.key(0))

    def actions(obs: Any) -> Array:
        if deploy == "mean":
            return jax.vmap(lambda one: agent.exploit(deployed, jax.random.key(0), one))(obs)
        mean, functions = agent.values(deployed, jax.random.key(0), obs)
        drawn = jax.random.randint(key_member, (episodes,), 0, len(functions))
        return best(Values(mean, functions.std(axis=0), functions), deploy, drawn)

    def going(carry: Any) -> Array:
        t, *_, over = carry
        return (t < limit) & ~jnp.all(over)

    def step(carry: Any) -> Any:
        t, obs, inside, total, over = carry
        keys = jax.random.split(jax.random.fold_in(key_steps, t), episodes)
        after = jax.vmap(env.step, (0, 0, 0, None))(keys, inside, actions(obs), params)
        obs, inside, reward, terminated, truncated, _ = after
        total = total + jnp.where(over, 0.0, reward)
        return t + 1, obs, inside, total, over | terminated | truncated

    first = (jnp.zeros((), int), obs, inside, jnp.zeros(episodes), jnp.zeros(episodes, bool))
    return jax.lax.while_loop(going, step, first)[3]


def live(loop: Loop, key: PRNGKeyArray, params: Any, *, episodes: int, chunk: int = CHUNK) -> Iterator[Ended]:
    """Run a number of episodes, as a generator; logging and stopping are up to the caller.

    Args:
        loop: Agent and environment.
        key: PRNG key of the run.
        params: Parameters of the environment.
        episodes: Number of episodes.
        chunk: Actions per compiled call; results do not depend on it.

    Returns:
        An iterator of finished episodes.
    """
    positive_int("episodes", episodes)
    backend, done = ScanBackend(loop, key, params, chunk), 0
    while done < episodes:
        for ended in backend.advance(None, lambda _: False)[: episodes - done]:
            done += 1
            yield ended
