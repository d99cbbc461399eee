"""Distinct states seen so far: how far an agent has got around."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from priorax.envs.atari import Atari, cells

STEPS = 8
"""Cells of a number that is seen, between zero and its bound."""


class Cells:
    """Of Atari screens those of Go-Explore (a frame of 11 x 8 with 8 greys); of indices each; of a few numbers boxes,
    an eighth of their bounds wide; else what was seen, exactly."""

    def __init__(self, world: Any) -> None:
        self.seen: set[bytes] = set()
        self._cells = _measure(world)

    def __call__(self, frames: np.ndarray) -> None:
        """Look at a batch."""
        self.seen.update(self._cells(frames))

    def __len__(self) -> int:
        return len(self.seen)


def _measure(world: Any) -> Callable[[np.ndarray], list[bytes]]:
    if isinstance(world, Atari):
        return cells
    scale = getattr(world, "input_scale", ())
    if len(world.frame_shape) == 1 and scale:
        steps = STEPS * np.asarray(scale)
        return lambda frames: _digests(np.floor(frames * steps).astype(np.int64))
    return _digests


def _digests(rows: np.ndarray) -> list[bytes]:
    found = []
    for row in rows:
        raw = row.tobytes()
        found.append(raw if len(raw) <= 16 else hashlib.blake2b(raw, digest_size=16).digest())
    return found
