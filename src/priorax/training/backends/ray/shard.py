"""A replay shard: a process with the transitions of some of the rollout actors."""

import os
from typing import NamedTuple

import jax
import numpy as np

from priorax.replay import FrameLayout, FrameReplay, LaneStep, Replay, Sampled


class Chunk(NamedTuple):
    """Several steps of one actor's lanes, in order."""

    steps: LaneStep
    """The steps, each array with a leading step axis."""
    errors: np.ndarray | None
    """TD errors [step, lane], if known."""


class ShardPlan(NamedTuple):
    """Plan of a shard."""

    settings: Replay
    """Replay settings."""
    layout: FrameLayout
    """Layout of the frames."""


class Shard:
    """A replay buffer in a separate process."""

    def __init__(self, plan: ShardPlan, lanes: int, seed: int) -> None:
        """Allocate an empty buffer.

        Args:
            plan: Plan of the shard.
            lanes: Number of lanes of one actor.
            seed: Seed of the sampling.
        """
        self.buffer, self.lanes = FrameReplay(plan.settings, plan.layout, seed), lanes
        self.newest = np.zeros(plan.layout.num_lanes // lanes, int)
        """Latest incarnation of each actor."""
        self.seen = np.zeros(plan.layout.num_lanes, int)
        """Number of consecutive frames of each lane, up to the size of a stack."""

    def pid(self) -> int:
        """Get the process id.

        Returns:
            The process id.
        """
        return os.getpid()

    def size(self) -> int:
        """Get the number of transitions that can be sampled.

        Returns:
            The number of transitions.
        """
        return self.buffer.size

    def add(self, place: int, incarnation: int, chunk: Chunk) -> int:
        """Store the steps of an actor. Steps of an incarnation that has been replaced are ignored.

        Args:
            place: Index of the actor among those of this shard.
            incarnation: Number of its incarnation.
            chunk: The steps.

        Returns:
            The size of the shard.
        """
        if incarnation >= self.newest[place]:
            self.newest[place] = incarnation
            lanes = place * self.lanes + np.arange(self.lanes)
            for i in range(len(chunk.steps.action)):
                step = jax.tree.map(lambda part, i=i: part[i], chunk.steps)
                self._add(step, None if chunk.errors is None else chunk.errors[i], lanes)
        return self.buffer.size

    def draw(self, least: int) -> tuple[int, Sampled | None]:
        """Sample a minibatch.

        Args:
            least: Number of transitions required.

        Returns:
            The size of the shard, and a minibatch, or None if there are too few transitions.
        """
        return self.buffer.size, self.buffer.sample() if self.buffer.size >= least else None

    def prioritise(self, place: np.ndarray, error: np.ndarray) -> None:
        """Update the priorities of transitions by their latest errors.

        Args:
            place: Positions of the transitions (`Sampled.place`).
            error: Their TD errors.
        """
        self.buffer.prioritise(place, error)

    def _add(self, step: LaneStep, errors: np.ndarray | None, lanes: np.ndarray) -> None:
        """Store one step. A restarted shard may start within an episode: transitions are valid once a complete stack of
        frames has been seen.
        """
        stack = self.buffer.layout.stack
        self.seen[lanes] = np.where(step.first, stack, np.minimum(self.seen[lanes] + 1, stack))
        self.buffer.add(step._replace(acted=step.acted & (self.seen[lanes] == stack)), errors, lanes)
