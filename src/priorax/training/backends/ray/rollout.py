"""A rollout actor: lanes of an environment in a process of its own, played with weights that are sent to it."""

import contextlib
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from priorax.agents import Settings
from priorax.beliefs import BeliefState
from priorax.caching import enable_compilation_cache
from priorax.envs.registry import make_world
from priorax.replay import LaneStep
from priorax.training.backends.acting import Actor
from priorax.training.backends.host import build_for
from priorax.training.backends.lanes import Played, seed_for
from priorax.training.backends.ray.shard import Chunk
from priorax.training.distinct import measure


class RolloutPlan(NamedTuple):
    """What a rollout actor is to play."""

    settings: Settings
    env: str
    game: str | None
    size: int
    seed: int
    """Of the run."""
    number: int
    """Of this actor."""
    actors: int
    """How many there are."""
    place: int
    """Of this one, among those of its shard."""
    since: int
    """Rounds that were played before this run was resumed."""


class Weights(NamedTuple):
    """What changes as the learner learns."""

    updates: int
    """After so many of them."""
    params: PyTree
    aux: PyTree
    episodes: int = 0
    """That have ended, of all actors: epsilon's schedule follows them."""


class Answer(NamedTuple):
    """What came of some rounds."""

    rounds: int
    ended: list[tuple[int, Played]]
    """Episodes, each with the round in which it ended, from 1; lanes count over all actors."""
    cells: set[bytes]
    """In which these rounds were."""
    updates: int
    """Of the weights played with."""
    size: int | None
    """Of the shard after it got all there was; None where it is dead."""


class Rollout:
    """See the module's docstring."""

    def __init__(self, plan: RolloutPlan, incarnation: int) -> None:
        self.plan, self.incarnation = plan, incarnation
        self.actor: Actor | None = None
        self.unsent: Chunk | None = None
        """What a dead shard did not take; the next one gets it."""
        self.frozen: PyTree = None
        self.belief: BeliefState | None = None
        self.updates = -1

    def pid(self) -> int:
        """Of the process."""
        return os.getpid()

    def play(self, weights: Weights, frozen: PyTree, shard: Any, rounds: int) -> Answer:
        """So many rounds with these weights. What was seen is in the shard when this ends: an actor never has more to
        send than one chunk."""
        actor = self._begun()
        self._load(weights, frozen)
        actor.episodes = max(actor.episodes, weights.episodes)
        assert self.belief is not None
        if self.unsent is not None and self._send(shard) is None:
            return Answer(0, [], set(), self.updates, None)
        cells: set[bytes] = set()
        told_apart = measure(actor.world)
        ended: list[tuple[int, Played]] = []
        moments, errors = [], []
        first_lane = self.plan.number * self.plan.settings.lanes
        for i in range(1, rounds + 1):
            moment, error, played = actor.advance(self.belief)
            ended.extend((i, each._replace(lane=first_lane + each.lane)) for each in played)
            if moment is not None:
                cells.update(told_apart(moment.frame))
                moments.append(moment)
                errors.append(error)
        self.unsent = _chunk(moments, errors)
        return Answer(rounds, ended, cells, self.updates, self._send(shard))

    def _begun(self) -> Actor:
        if self.actor is None:
            with contextlib.suppress(OSError):
                enable_compilation_cache()
            plan = self.plan
            chosen = plan.settings
            world = make_world(
                plan.env, chosen.lanes, size=plan.size, game=plan.game, seed=plan.seed, num_threads=1, hold=chosen.hold
            )  # of the run's seed: all actors play the same game
            self.actor = Actor(
                build_for(chosen, world),
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
            self.belief, self.updates = BeliefState(params, self.frozen, (), aux), weights.updates

    def _send(self, shard: Any) -> int | None:
        """What is unsent; the shard's size, or None where it is dead."""
        import ray

        try:
            if self.unsent is None:
                return ray.get(shard.size.remote())
            size = ray.get(shard.add.remote(self.plan.place, self.incarnation, self.unsent))
        except ray.exceptions.RayActorError:
            return None
        self.unsent = None
        return size


def actor_seed(plan: RolloutPlan, incarnation: int) -> int:
    """Every actor's own, and another when it is made anew or the run goes on."""
    return seed_for(plan.seed, "actor", plan.since, plan.number, incarnation)


def _chunk(moments: list[LaneStep], errors: list[Any]) -> Chunk | None:
    if not moments:
        return None
    stacked = jax.tree.map(lambda *parts: np.stack(parts), *moments)
    return Chunk(stacked, None if errors[0] is None else np.stack(errors))
