"""Backend for environments that are not compiled: many at once (*lanes*), each follows its own sample per episode.

An `Actor` steps all lanes with one evaluation of the networks; a `Learner` learns from minibatches. Acting uses weights
that are one round old, so that learning proceeds while environments step. All randomness derives from the seed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.agents import Agent, AgentSpec, Settings, build, check_members_differ, nearby
from priorax.agents.deploy import best, deploy, values
from priorax.envs.host.vector import VectorWorld
from priorax.envs.interface import Interface, interface_of
from priorax.fitting import NonFiniteLoss
from priorax.replay import FrameLayout, FrameReplay, Sampled, Transition, check_holds, td_errors
from priorax.storage import restore_tree, tree_arrays
from priorax.training.backends.acting import Actor
from priorax.training.backends.lanes import seed_for
from priorax.training.checkpoint import Checkpoints
from priorax.training.distinct import Cells
from priorax.training.records import Arrays, Ended, Inserted, ReplayFacts, Snapshot
from priorax.training.sharding import devices_for, spread_members


@eqx.filter_jit
def learn(
    agent: Agent, state: Any, sampled: Sampled, count: Any, key: PRNGKeyArray
) -> tuple[Any, Float[Array, " batch"], Float[Array, ""]]:
    """Perform one update on a minibatch.

    Args:
        agent: The agent.
        state: State of the agent.
        sampled: A minibatch that all members share.
        count: Number of the update, from which its random numbers derive.
        key: PRNG key of the run.

    Returns:
        The new state, the error of each transition for its priority, and the mean loss.
    """
    state, info = agent.learn(state, sampled, jax.random.fold_in(key, count))
    none = jnp.zeros(sampled.weight.shape[1])  # sparse rows have no TD errors and sample uniformly
    found = none if info.examples is None else td_errors(jnp, info.examples, sampled.weight > 0)
    return state, found, jnp.mean(info.loss)


_init = eqx.filter_jit(lambda agent, key, obs: agent.init(key, obs))
_observe = eqx.filter_jit(lambda agent, state, transition, weight: agent.observe(state, transition, weight))


class Learner:
    """An agent that learns from minibatches of any origin.

    Errors are returned one update late, so that the next update can be prepared while one is running.
    """

    def __init__(self, agent: Agent, obs: Any, seed: int, since: int = 0, devices: int = 1) -> None:
        """Initialise the agent.

        Args:
            agent: The agent.
            obs: One example observation.
            seed: Seed of all randomness.
            since: Number of earlier rounds, so that random numbers are not repeated.
            devices: Number of devices over which members are spread; 0: as many as possible.

        Raises:
            ValueError: If members cannot be spread over that many devices.
        """
        self.agent, self.devices = agent, devices_for(agent, devices)
        self.key = jax.random.key(seed_for(seed, "learning", since))
        start = _init(agent, jax.random.key(seed_for(seed, "start")), np.asarray(obs))
        self.state: Any = spread_members(agent, start, self.devices)
        check_members_differ(agent, self.state, nearby(np.asarray(obs)))
        self.unread: tuple[np.ndarray, Array, Array] | None = None
        self.updates = 0
        """Number of updates started, in all."""
        self.begun = 0
        """Number of updates started in this process."""
        self.loss: float | None = None
        """Loss of the last update whose errors were read."""

    def adopt(self, state: Any) -> None:
        """Continue with a state that was learned before.

        Args:
            state: State of the agent.
        """
        self.state, self.updates = spread_members(self.agent, state, self.devices), int(getattr(state, "updates", 0))

    def observe(self, transition: Transition, weight: np.ndarray) -> np.ndarray | None:
        """Pass transitions to the agent as they happen.

        Args:
            transition: One transition per lane.
            weight: Weights [lane]; zero for lanes without a transition.

        Returns:
            The bonus to add to rewards, or None.
        """
        self.state, bonus = _observe(self.agent, self.state, transition, weight)
        return None if bonus is None else np.asarray(bonus)

    def learn(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray] | None:
        """Start an update.

        Args:
            sampled: A minibatch.

        Returns:
            Replay positions and errors of the previous update, or None.
        """
        self.begun, self.updates = self.begun + 1, self.updates + 1
        count = np.asarray(self.begun)  # a Python number would cause recompilation
        self.state, error, loss = learn(self.agent, self.state, sampled._replace(place=None), count, self.key)
        read = self.read()
        self.unread = (sampled.place, error, loss)
        return read

    def read(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Get replay positions and errors of the last update started, once.

        Returns:
            Positions and errors, or None.

        Raises:
            NonFiniteLoss: If the loss is NaN or infinite.
        """
        if self.unread is None:
            return None
        (place, error, loss), self.unread = self.unread, None
        self.loss = float(loss)
        if not np.isfinite(self.loss):
            raise NonFiniteLoss(f"the loss became {self.loss} after {self.begun} updates; lower the learning rate")
        return place, np.asarray(error)


def build_for(agent: str | AgentSpec, chosen: Settings, world: VectorWorld) -> Agent:
    """Build an agent for an environment.

    Args:
        agent: Name of the agent, or its spec.
        chosen: Hyperparameters.
        world: The environments.

    Returns:
        The agent.
    """
    return build(agent, chosen, interface_of(world))


def frame_layout(agent: Agent, state: Any, world: VectorWorld, lanes: int) -> FrameLayout:
    """Determine the layout of frames in replay.

    Args:
        agent: The agent.
        state: State of the agent.
        world: The environments.
        lanes: Number of lanes.

    Returns:
        The layout.
    """
    obs = jax.ShapeDtypeStruct((1, *([world.stack] * (world.stack > 1)), *world.frame_shape), world.frame_dtype)
    prior = eqx.filter_eval_shape(agent.prior_at, state, obs)
    shape = None if prior is None else tuple(prior.shape[1:])
    return FrameLayout(lanes, world.frame_shape, world.frame_dtype, world.stack, shape)


class HostBackend:
    """Agent and environments in one process, with many lanes."""

    name = "host"
    cluster = None
    tells_regret = False
    tells_solved = False

    def __init__(
        self,
        agent: Agent,
        world: VectorWorld,
        seed: int,
        chosen: Settings,
        apart: Callable[[], VectorWorld] | None = None,
    ) -> None:
        """Start an episode in every lane.

        Args:
            agent: The agent.
            world: The environments.
            seed: Seed of all randomness, except that of the environments themselves.
            chosen: Hyperparameters of the training loop.
            apart: Function that creates separate environments for evaluation; None: evaluate in these.

        Raises:
            ValueError: If replay can never hold `learn_after` transitions.
        """
        self.agent, self.world, self.seed, self.chosen, self.make = agent, world, seed, chosen, apart
        self.interface: Interface | None = interface_of(world)
        self._apart: VectorWorld | None = None
        self.seen = Cells(world)
        self.steps = 0
        self._start(0)

    def _start(self, since: int) -> None:
        """Start the run, or continue it after earlier rounds."""
        self.rounds = since
        clip = self.chosen.clip_rewards
        self.actor = Actor(self.agent, self.world, self.seed, clip_rewards=clip, since=since, observe=self._observe)
        self.learner = Learner(self.agent, self.actor.lanes.obs[0], self.seed, since, self.chosen.devices)
        self.replay: FrameReplay | None = None
        if self.agent.replay is not None:
            layout = frame_layout(self.agent, self.learner.state, self.world, self.world.num_envs)
            check_holds(self.agent.replay, layout, self.chosen.learn_after)
            self.replay = FrameReplay(self.agent.replay, layout, seed_for(self.seed, "replay", since))
        self.acting = self.state
        self.owed = 0.0

    @property
    def state(self) -> Any:
        return self.learner.state

    @property
    def updates(self) -> int:
        return self.learner.updates

    @property
    def cells(self) -> int:
        return len(self.seen)

    @property
    def variety(self) -> int:
        return self.cells

    def advance(self, limit: int | None, last: Callable[[Ended], bool]) -> list[Ended]:
        """Run one round: act in every lane, store transitions, and perform the updates that are due.

        Args:
            limit: Maximum number of actions.
            last: Function that returns whether the run ends with an episode.

        Returns:
            The episodes that finished.

        Raises:
            NonFinite: If a reward, an observation or the loss is NaN or infinite.
        """
        acting, self.acting = self.acting, self.state
        if self.agent.replay is None:  # planners learn from all observations so far
            acting = self.state
        acted = self.actor.advance(acting)
        self.rounds += 1
        self.steps += acted.actions
        self.seen(acted.obs[:, -1] if self.world.stack > 1 else acted.obs)
        if self.replay is not None:
            self._learn(self.replay, acted.step, acted.errors, acted.actions, len(acted.played))
        loss = self.learner.loss
        return [Ended(self.steps, each.lane, each.total_return, each.length, loss) for each in acted.played]

    def _learn(self, replay: FrameReplay, step: Any, known: Any, actions: int, ended: int) -> None:
        if step is not None:
            replay.add(step, known)
        if replay.size >= self.chosen.learn_after:
            every = self.chosen.learn_every
            self.owed += self.chosen.updates * (ended if every == 0 else actions / every)
        while self.owed >= 1:
            self.owed -= 1
            read = self.learner.learn(replay.sample())
            if read is not None:
                replay.prioritise(*read)

    def _observe(self, transition: Transition, weight: np.ndarray) -> np.ndarray | None:
        return self.learner.observe(transition, weight)

    def snapshot(self) -> Snapshot:
        arrays = tree_arrays(self.state)
        arrays |= {f"cells.{name}": array for name, array in self.seen.distinct.arrays().items()}
        counters = {"rounds": self.rounds, "steps": self.steps, "episodes": self.actor.episodes}
        arrays |= {f"run.{name}": np.asarray(count) for name, count in counters.items()}
        if self.replay is None:
            return Snapshot(self.steps, arrays)
        arrays |= {f"replay.{name}": array for name, array in self.replay.counters().items()}
        return Snapshot(self.steps, arrays, Inserted(self.replay.time, self.replay.length, self.replay.inserted))

    def restore(self, checkpoints: Checkpoints) -> None:
        """Continue from the last checkpoint, in new episodes: environments are not saved.

        Args:
            checkpoints: The checkpoints of the run.
        """
        with checkpoints.explained():
            arrays = checkpoints.state()
            run = below("run.", arrays)
            self._start(int(run["rounds"]))
            self.seen.distinct.restore(below("cells.", arrays))
            counters = below("replay.", arrays)
            if self.replay is not None and counters:
                self.replay.refill(counters, checkpoints.replay())
            self.learner.adopt(restore_state(self.state, arrays))
        self.acting, self.steps = self.state, int(run["steps"])
        self.actor.episodes = int(run["episodes"])

    def resume(self, state: Any, steps: int) -> None:
        self.learner.adopt(state)
        self.acting, self.steps = self.state, steps

    def evaluate(self, episodes: int, deploy: str, seed: int) -> list[float]:
        """Evaluate the deployed policy in separate environments, if available; otherwise in those of training, where
        exploration then starts new episodes.

        Args:
            episodes: Number of episodes.
            deploy: How actions are chosen, as in `Policy.predict`.
            seed: Seed of these episodes.

        Returns:
            The returns.
        """
        if self.make is None:
            returns = play(self.agent, self.state, self.world, episodes, deploy, seed)
            self.actor.begin_anew()
            return returns
        if self._apart is None:
            self._apart = self.make()
        return play(self.agent, self.state, self._apart, episodes, deploy, seed)

    def recent(self, count: int) -> tuple[Any, Any] | None:
        if self.replay is None or self.replay.size == 0:
            return None
        drawn = self.replay.sample(np.random.default_rng(self.learner.begun), count)
        return drawn.obs, drawn.action

    def replay_facts(self) -> ReplayFacts | None:
        if self.replay is None:
            return None
        priorities = self.replay.counters()["priorities"]
        return ReplayFacts(self.replay.size, self.replay.owned.copy(), priorities[priorities > 0])

    def close(self) -> None:
        self.world.close()
        if self._apart is not None:
            self._apart.close()


def restore_state(like: Any, arrays: Arrays) -> Any:
    """Restore the state of an agent from a snapshot.

    Args:
        like: A state of the same structure.
        arrays: Arrays of the snapshot.

    Returns:
        The state.
    """
    return restore_tree(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like), arrays)


def below(prefix: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Select the arrays whose names have a prefix, and remove the prefix.

    Args:
        prefix: The prefix.
        arrays: Arrays by name.

    Returns:
        The selected arrays.
    """
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def play(agent: Agent, state: Any, world: VectorWorld, episodes: int, how: str, seed: int) -> list[float]:
    """Play episodes with a deployed policy. Each lane plays its share of episodes, so that short episodes are not
    overrepresented.

    Args:
        agent: An agent with discrete actions.
        state: State of the agent.
        world: The environments.
        episodes: Number of episodes.
        how: How actions are chosen (`agents.deploy.DEPLOY`).
        seed: Seed of all randomness.

    Returns:
        The returns.
    """
    rng, deployed = np.random.default_rng(seed), deploy(agent, state)
    lanes = world.num_envs
    wanted = np.array([len(range(i, episodes, lanes)) for i in range(lanes)])
    obs, total, over = world.reset(seed % 2**32), np.zeros(lanes), np.zeros(lanes, bool)
    returns: list[list[float]] = [[] for _ in range(lanes)]
    functions = len(values(agent, deployed, obs).members)
    member = rng.integers(0, functions, lanes)
    while any(len(mine) < count for mine, count in zip(returns, wanted, strict=True)):
        after = world.step(best(values(agent, deployed, obs), how, member))
        total = np.where(over, 0.0, total + after.reward)  # the step after an end only resets
        over = after.terminated | after.truncated
        for i in np.flatnonzero(over):
            returns[i].append(float(total[i]))
        member = np.where(over, rng.integers(0, functions, lanes), member)
        obs = after.obs
    return [total for mine, count in zip(returns, wanted, strict=True) for total in mine[:count]]
