"""Distinct states seen so far: how far an agent has got around."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from priorax.envs.host.atari import Atari, cells

STEPS = 8
"""Cells of a number that is seen, between zero and its bound."""
EXACT = 100_000
"""Distinct cells that are counted exactly; beyond, approximately."""
REGISTER_BITS = 14
"""2^14 registers of a byte: a standard error of 0.8%."""


class Distinct:
    """How many different byte strings were seen, in bounded memory: exactly up to `exact`, beyond that by HyperLogLog
    (Flajolet et al. 2007; standard error 0.8%). The count never falls."""

    def __init__(self, exact: int = EXACT) -> None:
        self.exact = exact
        self._seen: set[bytes] | None = set()
        self._registers = np.zeros(0, np.uint8)

    def update(self, found: Iterable[bytes]) -> None:
        """See some more."""
        if self._seen is not None:
            self._seen.update(found)
            if len(self._seen) <= self.exact:
                return
            found, self._seen = self._seen, None
            self._registers = np.zeros(2**REGISTER_BITS, np.uint8)
        self._register(found)

    def __len__(self) -> int:
        if self._seen is not None:
            return len(self._seen)
        count = len(self._registers)
        empty = int(np.sum(self._registers == 0))
        estimate = 0.7213 / (1 + 1.079 / count) * count**2 / np.sum(np.exp2(-self._registers.astype(float)))
        if estimate <= 2.5 * count and empty:
            estimate = count * math.log(count / empty)
        return max(self.exact + 1, round(float(estimate)))

    def arrays(self) -> dict[str, np.ndarray]:
        """What was seen, for a file."""
        if self._seen is None:
            return {"registers": self._registers}
        found = sorted(self._seen)
        return {
            "bytes": np.frombuffer(b"".join(found), np.uint8),
            "lengths": np.array([len(each) for each in found], np.uint8),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what `arrays` gave."""
        if "registers" in arrays:
            self._seen, self._registers = None, np.array(arrays["registers"])
            return
        ends = np.cumsum(arrays["lengths"], dtype=int)
        raw = arrays["bytes"].tobytes()
        self._seen = {raw[end - length : end] for end, length in zip(ends, arrays["lengths"], strict=True)}

    def _register(self, found: Iterable[bytes]) -> None:
        digests = b"".join(hashlib.blake2b(each, digest_size=8).digest() for each in found)
        numbers = np.frombuffer(digests, np.uint64)
        rest = numbers >> np.uint64(REGISTER_BITS)
        rank = 65 - REGISTER_BITS - np.frexp(rest.astype(np.float64))[1]  # rounding errs by one in 2^53
        np.maximum.at(self._registers, (numbers % 2**REGISTER_BITS).astype(int), rank.astype(np.uint8))


class Cells:
    """How many cells the frames of a world have been in. Beyond `EXACT` of them the count is approximate."""

    def __init__(self, world: Any) -> None:
        self.distinct, self._cells = Distinct(), measure(world)

    def __call__(self, frames: np.ndarray) -> None:
        """Look at a batch."""
        self.distinct.update(self._cells(frames))

    def __len__(self) -> int:
        return len(self.distinct)


def measure(world: Any) -> Callable[[np.ndarray], list[bytes]]:
    """What tells a batch of that world's frames apart: of Atari screens the cells of Go-Explore (a frame of 11 x 8 with
    8 greys); of indices each; of a few numbers boxes, an eighth of their bounds wide; else what was seen, exactly."""
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
