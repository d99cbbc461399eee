"""A rollout actor: a process that acts in several environments (lanes) with the weights that it receives."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from priorax.agents import AgentState, Settings
from priorax.beliefs import BeliefState
from priorax.caching import enable_compilation_cache
from priorax.envs.registry import make_world
from priorax.replay import LaneStep
from priorax.training.backends.acting import Actor
from priorax.training.backends.host import build_for
from priorax.training.backends.lanes import Played, seed_for
from priorax.training.backends.ray.shard import Chunk
from priorax.training.distinct import measure
from priorax.training.run_files import PRIOR_FILE


class RolloutPlan(NamedTuple):
    """Plan of a rollout actor."""

    agent: str
    """Name of the agent."""
    settings: Settings
    """Hyperparameters."""
    env: str
    """Name of the environment."""
    game: str | None
    """Name of the game, for Atari."""
    size: int
    """Size of the environment."""
    seed: int
    """Seed of the run."""
    number: int
    """Index of this actor."""
    actors: int
    """Number of actors."""
    place: int
    """Index of this actor among those of its shard."""
    since: int
    """Number of rounds played before this run was resumed."""
    timeout: float
    """Seconds in which its shard must take what it sends."""
    prior: bytes | None = None
    """The file of a learned prior, which the actor's machine may not have."""


class Weights(NamedTuple):
    """The part of the agent's state that changes with learning."""

    updates: int
    """Number of updates so far."""
    params: PyTree
    """Trainable parameters."""
    aux: PyTree
    """Auxiliary state of the belief."""


class Answer(NamedTuple):
    """Result of some rounds."""

    rounds: int
    """Number of rounds."""
    actions: int
    """Number of actions in them: a lane in which an episode starts takes none."""
    ended: list[tuple[int, Played]]
    """Finished episodes, each with the number of actions taken by its end; lanes are numbered over all actors."""
    cells: set[bytes]
    """Cells visited in these rounds."""
    updates: int
    """Number of updates in the weights used."""
    size: int | None
    """Size of the shard after everything was sent; None if it is dead or does not answer."""


class Rollout:
    """A rollout actor."""

    def __init__(self, plan: RolloutPlan, incarnation: int) -> None:
        self.plan, self.incarnation = plan, incarnation
        self.actor: Actor | None = None
        self.unsent: Chunk | None = None
        """Steps that a dead or hung shard did not receive, to be sent to its successor."""
        self.frozen: PyTree = None
        self.state: AgentState | None = None
        self.updates = -1

    def pid(self) -> int:
        """Get the process id.

        Returns:
            The process id.
        """
        return os.getpid()

    def play(self, weights: Weights, frozen: PyTree, shard: Any, rounds: int, episodes: int = 0) -> Answer:
        """Play some rounds and send the transitions to a shard, so that at most one chunk is ever pending.

        Args:
            weights: Weights to act with.
            frozen: The part of the belief state that never changes.
            shard: The shard.
            rounds: Number of rounds.
            episodes: Number of finished episodes of all actors; determines epsilon.

        Returns:
            The result of the rounds.
        """
        actor = self._begun()
        self._load(weights, frozen)
        actor.episodes = max(actor.episodes, episodes)
        assert self.state is not None
        if self.unsent is not None and self._send(shard) is None:
            return Answer(0, 0, [], set(), self.updates, None)
        cells: set[bytes] = set()
        told_apart = measure(actor.world)
        ended: list[tuple[int, Played]] = []
        steps, errors, actions = [], [], 0
        first_lane = self.plan.number * self.plan.settings.lanes
        for _ in range(rounds):
            acted = actor.advance(self.state)
            actions += acted.actions
            ended.extend((actions, each._replace(lane=first_lane + each.lane)) for each in acted.played)
            if acted.step is not None:
                cells.update(told_apart(acted.step.frame))
                steps.append(acted.step)
                errors.append(acted.errors)
        self.unsent = _chunk(steps, errors)
        return Answer(rounds, actions, ended, cells, self.updates, self._send(shard))

    def _begun(self) -> Actor:
        if self.actor is None:
            with contextlib.suppress(OSError):
                enable_compilation_cache()
            plan = self.plan
            chosen = plan.settings
            world = make_world(
                plan.env, chosen.lanes, size=plan.size, game=plan.game, seed=plan.seed, num_threads=1, hold=chosen.hold
            )  # seed of the run: all actors have the same environment
            with with_prior(chosen, plan.prior) as here:
                agent = build_for(plan.agent, here, world)
            self.actor = Actor(
                agent,
                world,
                actor_seed(plan, self.incarnation),
                first_lane=plan.number * chosen.lanes,
                all_lanes=plan.actors * chosen.lanes,
                clip_rewards=chosen.clip_rewards,
            )
        return self.actor

    def _load(self, weights: Weights, frozen: PyTree) -> None:
        if self.frozen is None:
            self.frozen = jax.tree.map(jnp.asarray, frozen)
        if self.updates != weights.updates:
            params, aux = jax.tree.map(jnp.asarray, (weights.params, weights.aux))
            belief = BeliefState(params, self.frozen, (), aux)
            self.state, self.updates = AgentState(belief, (), jnp.asarray(weights.updates)), weights.updates

    def _send(self, shard: Any) -> int | None:
        """Send pending steps; get the size of the shard, or None if it is dead or does not answer."""
        import ray

        try:
            if self.unsent is None:
                return ray.get(shard.size.remote(), timeout=self.plan.timeout)
            size = ray.get(shard.add.remote(self.plan.place, self.incarnation, self.unsent), timeout=self.plan.timeout)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            return None
        self.unsent = None
        return size


@contextlib.contextmanager
def with_prior(chosen: Settings, content: bytes | None) -> Iterator[Settings]:
    """Write the file of a learned prior on this machine, for as long as an agent is built.

    Args:
        chosen: Hyperparameters.
        content: The file; None if there is none.

    Returns:
        A context manager that gives the hyperparameters, in which `prior_file` is the file here.
    """
    if content is None:
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="priorax-") as folder:
        path = Path(folder) / PRIOR_FILE
        path.write_bytes(content)
        here: dict[str, Any] = {"prior_file": str(path)}
        yield dataclasses.replace(chosen, **here)


def actor_seed(plan: RolloutPlan, incarnation: int) -> int:
    """Derive the seed of an actor, different for each actor, incarnation and resumed run.

    Args:
        plan: Plan of the actor.
        incarnation: Number of its incarnation.

    Returns:
        The seed.
    """
    return seed_for(plan.seed, "actor", plan.since, plan.number, incarnation)


def _chunk(steps: list[LaneStep], errors: list[Any]) -> Chunk | None:
    if not steps:
        return None
    stacked = jax.tree.map(lambda *parts: np.stack(parts), *steps)
    return Chunk(stacked, None if errors[0] is None else np.stack(errors))
