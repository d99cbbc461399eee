"""A part of replay, in a process of its own: the transitions of some of the rollout actors."""

import os
from typing import NamedTuple

import jax
import numpy as np

from priorax.replay import Drawn, LaneStep
from priorax.training.backends.host import BufferPlan


class Chunk(NamedTuple):
    """Several moments of one actor's lanes, in order."""

    moments: LaneStep
    """Each part with a first axis for them."""
    errors: np.ndarray | None
    """[moment, lane], where they are known."""


class Shard:
    """A replay buffer that others send to and draw from."""

    def __init__(self, plan: BufferPlan, lanes: int, seed: int) -> None:
        """`lanes`: those of one actor."""
        self.buffer, self.lanes = plan.make(seed), lanes
        self.newest = np.zeros(plan.settings.num_lanes // lanes, int)
        """The last incarnation seen of each actor."""
        self.seen = np.zeros(plan.settings.num_lanes, int)
        """Frames in a row of each lane, until there are enough for an observation."""

    def pid(self) -> int:
        """Of the process."""
        return os.getpid()

    def size(self) -> int:
        """How many transitions can be drawn."""
        return self.buffer.size

    def add(self, place: int, incarnation: int, chunk: Chunk) -> int:
        """Keep what the actor with this place among the shard's own has seen; gives the size. Of an actor that was
        given up for dead and made anew, nothing more is taken."""
        if incarnation >= self.newest[place]:
            self.newest[place] = incarnation
            lanes = place * self.lanes + np.arange(self.lanes)
            for i in range(len(chunk.moments.action)):
                moment = jax.tree.map(lambda part, i=i: part[i], chunk.moments)
                self._add(moment, None if chunk.errors is None else chunk.errors[i], lanes)
        return self.buffer.size

    def draw(self, batch: int, least: int) -> tuple[int, Drawn | None]:
        """The size, and a minibatch once that is at least so much."""
        return self.buffer.size, self.buffer.draw(batch) if self.buffer.size >= least else None

    def prioritise(self, place: np.ndarray, error: np.ndarray) -> None:
        """Of transitions that were learned from."""
        self.buffer.prioritise(place, error)

    def _add(self, moment: LaneStep, error: np.ndarray | None, lanes: np.ndarray) -> None:
        """A shard made anew joins in the middle of episodes: nothing begins there until a whole stack was seen."""
        stack = self.buffer.settings.stack
        self.seen[lanes] = np.where(moment.first, stack, np.minimum(self.seen[lanes] + 1, stack))
        self.buffer.add(moment._replace(acted=moment.acted & (self.seen[lanes] == stack)), error, lanes)
