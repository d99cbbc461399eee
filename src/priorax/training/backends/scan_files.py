"""Checkpoints of compiled runs (`commits.py`): killed at any moment, one goes on from the last to the bit."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from priorax.replay import Buffer, EnsembleBuffer
from priorax.storage import restore_tree, tree_arrays
from priorax.training.backends.scan import Live, Loop, Snapshot, Tally
from priorax.training.checkpoint import Arrays, Commits


class Checkpoints(Commits):
    """The checkpoints in a folder."""

    def __init__(self, folder: Path, buffer: EnsembleBuffer) -> None:
        super().__init__(folder, Tally)
        self.buffer = buffer

    def save(self, snapshot: Snapshot, rows_bytes: int) -> None:
        """Write what is new since the last one, then commit."""
        live = snapshot.live
        self.add(
            int(live.step),
            tree_arrays(_light(live)),
            snapshot.tally,
            rows_bytes,
            int(live.agent.buffer.time),
            self.buffer.capacity,
            lambda first, end: self._inserted(live.agent.buffer, first, end),
        )

    def restore(self, loop: Loop, key: PRNGKeyArray, params: Any) -> Snapshot:
        """The last checkpoint."""
        assert self.last is not None
        shape = jax.eval_shape(lambda key, params: loop.init(key, params), key, params)
        with self.explained():
            live: Live = restore_tree(_light(shape), self.state())
            live = live._replace(agent=live.agent._replace(buffer=self._refill(shape, live.agent.buffer)))
        return Snapshot(live, self.last.tally)

    def _inserted(self, buffer: Buffer, first: int, end: int) -> Arrays:
        slots = np.arange(first, end) % self.buffer.capacity
        mask = None if self.buffer.shared else buffer.mask
        return tree_arrays(jax.tree.map(lambda ring: np.asarray(ring)[slots], (buffer.data, mask)))

    def _refill(self, shape: Live, light: Buffer) -> Buffer:
        """Replay as it was, from the transitions in its files."""
        whole: Buffer = shape.agent.buffer
        data, mask = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), (whole.data, whole.mask))
        rings = (data, None if self.buffer.shared else mask)
        for first, end, arrays in self.replay():
            part = jax.tree.map(
                lambda ring, n=end - first: jax.ShapeDtypeStruct((n, *ring.shape[1:]), ring.dtype), rings
            )
            slots = np.arange(first, end) % self.buffer.capacity
            for ring, rows in zip(jax.tree.leaves(rings), jax.tree.leaves(restore_tree(part, arrays)), strict=True):
                ring[slots] = np.asarray(rows)
        own = np.zeros(whole.own.shape, whole.own.dtype)
        if not self.buffer.shared:
            times = np.arange(max(0, int(light.time) - self.buffer.capacity), int(light.time))
            for k, inserted in enumerate(np.asarray(light.own_inserted)):
                mine = times[mask[times % self.buffer.capacity, k]]
                own[k, np.arange(inserted - len(mine), inserted) % self.buffer.capacity] = mine
        filled = jax.tree.map(jnp.asarray, (data, mask, own))
        return light._replace(data=filled[0], mask=filled[1], own=filled[2])


def _light(live: Any) -> Any:
    """A run without the big arrays of its replay."""
    buffer = live.agent.buffer._replace(data=(), mask=(), own=())
    return live._replace(agent=live.agent._replace(buffer=buffer))
