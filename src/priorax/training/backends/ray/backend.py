"""Ape-X (Horgan et al. 2018) on Ray, for any agent that learns Q from shared minibatches.

The learner runs in this process; rollout actors and replay shards run in other processes, on this machine or a
cluster. Workers that die, hang or lose their machine are restarted where there is a free CPU, and the run continues: an
actor loses its unsent data, a shard its contents. If this process dies, everything since the last checkpoint is lost,
and replay, which is refilled on resume.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from priorax.agents import Agent, QLearner, Settings, settings
from priorax.checks import positive, positive_int
from priorax.envs.host.vector import VectorWorld
from priorax.envs.interface import Interface, interface_of
from priorax.envs.registry import make_world, preset_for
from priorax.replay import check_holds
from priorax.storage import tree_arrays
from priorax.training.backends.host import Learner, below, build_for, frame_layout, play, restore_state
from priorax.training.backends.ray.cluster import import_ray, session
from priorax.training.backends.ray.driver import Driver, Plans, Since, least_in_shard
from priorax.training.backends.ray.rollout import RolloutPlan
from priorax.training.backends.ray.shard import ShardPlan
from priorax.training.checkpoint import Checkpoints
from priorax.training.distinct import Distinct
from priorax.training.prior_scale import with_proposal, without_auto
from priorax.training.records import Cluster, Ended, Snapshot
from priorax.training.run_files import read_prior

if TYPE_CHECKING:
    from priorax.training.setup import Setup, Workers


class RayBackend:
    """An agent whose environments and replay are in other processes. Workers are started by the first `advance`."""

    name = "ray"
    tells_regret = False
    tells_solved = False

    def __init__(
        self, agent: QLearner, world: VectorWorld, chosen: Settings, names: Mapping[str, Any], workers: "Workers"
    ) -> None:
        """Prepare the learner, and connect to or start Ray.

        Args:
            agent: The agent.
            world: One lane of the environment, for the shape of observations and for evaluation.
            chosen: Hyperparameters.
            names: env, game, size and seed, from which workers create their environments.
            workers: Number of processes, and the cluster.

        Raises:
            ValueError: If replay can never hold enough to learn from, or Ray has too few CPUs for the workers.
        """
        self.agent: Agent = agent
        self.world, self.chosen, self.names, self.workers = world, chosen, names, workers
        self.interface: Interface | None = interface_of(world)
        self.learner = Learner(agent, world.reset(0)[0], names["seed"], devices=chosen.devices)
        self.seen, self.since = Distinct(), Since()
        self.driver: Driver | None = None
        self.prior = read_prior(dataclasses.asdict(chosen))  # once: workers have the learner's, whatever becomes of it
        self.plans = self._plans()
        self._stack = contextlib.ExitStack()
        self._stack.callback(world.close)
        self._stack.enter_context(session(workers.address, workers.actors + workers.shards))

    def _plans(self) -> Plans:
        chosen, names, (actors, shards, _, timeout) = self.chosen, self.names, self.workers
        env, game, size, seed = (names[each] for each in ("env", "game", "size", "seed"))
        since, half = self.since.rounds, timeout / 2  # an actor can still tell in time that its shard does not answer
        rollouts = [
            RolloutPlan(names["agent"], chosen, env, game, size, seed, i, actors, i // shards, since, half, self.prior)
            for i in range(actors)
        ]
        assert self.agent.replay is not None
        replay = dataclasses.replace(self.agent.replay, capacity=self.agent.replay.capacity // shards)
        plans = []
        for shard in range(shards):
            lanes = len(range(shard, actors, shards)) * chosen.lanes
            plan = ShardPlan(replay, frame_layout(self.agent, self.learner.state, self.world, lanes))
            check_holds(plan.settings, plan.layout, least_in_shard(chosen, shards))
            plans.append(plan)
        return Plans(rollouts, plans)

    @property
    def state(self) -> Any:
        return self.learner.state

    @property
    def steps(self) -> int:
        return self.since.steps if self.driver is None else self.driver.steps

    @property
    def updates(self) -> int:
        return self.learner.updates

    @property
    def cells(self) -> int:
        return len(self.seen)

    @property
    def variety(self) -> int:
        return self.cells

    @property
    def cluster(self) -> Cluster | None:
        actors, shards, *_ = self.workers
        if self.driver is None:
            return Cluster(actors, shards, 0, 0.0, 0.0, [], {})
        driver = self.driver
        processes = {worker.name: worker.pid for worker in driver.workers if worker.pid is not None}
        return Cluster(actors, shards, driver.calls.restarts, *driver.shares, driver.acted_on, processes)

    def advance(self, limit: int | None, last: Callable[[Ended], bool]) -> list[Ended]:
        """Schedule work, learn once if an update is due, and collect finished episodes.

        Args:
            limit: Maximum number of actions.
            last: Function that returns whether the run ends with an episode.

        Returns:
            The episodes that finished.
        """
        if self.driver is None:
            self.plans = self._plans()
            seed, timeout = self.names["seed"], self.workers.timeout
            self.driver = Driver(self.learner, self.plans, self.chosen, seed, self.seen, self.since, timeout)
            self._stack.callback(self.driver.close)
        return self.driver.turn(limit)

    def snapshot(self) -> Snapshot:
        """Get the state of the run, without replay, which is refilled on resume.

        Returns:
            The snapshot.
        """
        driver = self.driver
        since = self.since if driver is None else Since(driver.rounds, driver.steps, driver.episodes)
        arrays = tree_arrays(self.state)
        arrays |= {f"cells.{name}": array for name, array in self.seen.arrays().items()}
        arrays |= {f"run.{name}": np.asarray(count) for name, count in since._asdict().items()}
        return Snapshot(since.steps, arrays)

    def restore(self, checkpoints: Checkpoints) -> None:
        with checkpoints.explained():
            arrays = checkpoints.state()
            self.seen.restore(below("cells.", arrays))
            self.learner.adopt(restore_state(self.state, arrays))
            self.learner.begun = self.learner.updates  # random numbers are not repeated
            self.since = Since(**{name: int(count) for name, count in below("run.", arrays).items()})

    def resume(self, state: Any, steps: int) -> None:
        if self.driver is not None:
            raise ValueError("the workers have already started; call resume before the first advance")
        self.learner.adopt(state)
        self.since = self.since._replace(steps=steps)

    def evaluate(self, episodes: int, deploy: str, seed: int) -> list[float]:
        """Evaluate the deployed policy in this process, in one lane, while actors wait.

        Args:
            episodes: Number of episodes.
            deploy: How actions are chosen, as in `Policy.predict`.
            seed: Seed of these episodes.

        Returns:
            The returns.
        """
        return play(self.agent, self.state, self.world, episodes, deploy, seed)

    def recent(self, count: int) -> tuple[Any, Any] | None:
        """Get transitions of the last minibatch, as replay is in other processes.

        Args:
            count: Number of transitions, at most.
        """
        if self.driver is None or self.driver.newest is None:
            return None
        drawn = self.driver.newest
        return drawn.obs[:count], drawn.action[:count]

    def replay_facts(self) -> None:
        """Return None, as replay is in other processes."""

    def close(self) -> None:
        self._stack.close()


def on_ray(
    agent: Any,
    env: str,
    names: dict[str, Any],
    preset: str | None,
    changes: Mapping[str, Any],
    workers: "Workers",
) -> "Setup":
    """Prepare a run on Ray.

    Args:
        agent: Name of the agent.
        env: Name of the environment.
        names: Arguments that identify the run.
        preset: Preset of hyperparameters; None: that of the environment.
        changes: New values of hyperparameters.
        workers: Number of processes, and the cluster.

    Returns:
        The prepared run.

    Raises:
        ValueError: If the agent cannot run on Ray, or an argument is invalid.
    """
    from priorax.training.setup import Setup  # imported late: circular

    import_ray()
    if not isinstance(agent, str):
        raise ValueError(
            f"agent={type(agent).__name__} must be a name, since agents on Ray are built in other processes; pass the "
            "name of an agent"
        )
    preset = preset or preset_for(env)
    chosen = settings(agent, preset, **without_auto(changes)).settled()
    _check_workers(workers)
    world = make_world(
        env, 1, size=names["size"], game=names["game"], seed=names["seed"], num_threads=1, hold=chosen.hold
    )
    try:
        chosen = with_proposal(agent, chosen, changes, lambda: world, names["seed"])
        built = build_for(agent, chosen, world)
        if not isinstance(built, QLearner):
            raise ValueError(
                f"agent={agent!r} does not learn Q-values from replay, so it cannot run on Ray; use `priorax train`, "
                "or an agent that does, such as 'bsp'"
            )
        if built.observes:
            raise ValueError(
                f"agent={agent!r} learns from each visit once, which actors on Ray do not share; use `priorax "
                "train`, or set bonus_scale=0"
            )
        _check_settings(chosen)
        backend = RayBackend(built, world, chosen, names, workers)
    except BaseException:
        world.close()
        raise
    return Setup({**names, "preset": preset}, chosen, backend, workers)


def _check_workers(workers: "Workers") -> None:
    actors, shards, _, timeout = workers
    positive("timeout", timeout)
    for name, count in (("actors", actors), ("shards", shards)):
        positive_int(name, count)
    if shards > actors:
        raise ValueError(f"shards={shards} must be at most actors={actors}, or some stay empty; pass shards={actors}")


def _check_settings(chosen: Settings) -> None:
    for name in ("lanes", "learn_every", "updates", "learn_after"):
        positive_int(name, getattr(chosen, name))
    if not getattr(chosen, "shared_batch", True):
        raise ValueError("shared_batch=False is only for compiled environments; pass shared_batch=True on Ray")
