"""Counting distinct states seen, a measure of exploration."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from priorax.envs.host.atari import Atari, cells
from priorax.envs.inputs import UNKNOWN

STEPS = 8
"""Number of cells per continuous component between zero and its bound."""
EXACT = 100_000
"""Number of distinct cells that are counted exactly; beyond it the count is approximate."""
REGISTER_BITS = 14
"""2^14 one-byte registers: a standard error of 0.8%."""


class Distinct:
    """Number of distinct byte strings seen, in bounded memory: exact up to `exact`, then by HyperLogLog (Flajolet et
    al. 2007; standard error 0.8%). The count never decreases.
    """

    def __init__(self, exact: int = EXACT) -> None:
        self.exact = exact
        self._seen: set[bytes] | None = set()
        self._registers = np.zeros(0, np.uint8)

    def update(self, found: Iterable[bytes]) -> None:
        """Add byte strings.

        Args:
            found: The byte strings.
        """
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
        """Export the state, for a file.

        Returns:
            Arrays by name.
        """
        if self._seen is None:
            return {"registers": self._registers}
        found = sorted(self._seen)
        return {
            "bytes": np.frombuffer(b"".join(found), np.uint8),
            "lengths": np.array([len(each) for each in found], np.uint8),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state.

        Args:
            arrays: The result of `arrays`.
        """
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
        rank = 65 - REGISTER_BITS - np.frexp(rest.astype(np.float64))[1]  # float64 is exact up to 2^53
        np.maximum.at(self._registers, (numbers % 2**REGISTER_BITS).astype(int), rank.astype(np.uint8))


class Cells:
    """Number of distinct cells visited in an environment. Beyond `EXACT` cells the count is approximate."""

    def __init__(self, world: Any) -> None:
        self.distinct, self._cells = Distinct(), measure(world)

    def __call__(self, frames: np.ndarray) -> None:
        """Count the cells of a batch of frames.

        Args:
            frames: The frames.
        """
        self.distinct.update(self._cells(frames))

    def __len__(self) -> int:
        return len(self.distinct)


def measure(world: Any) -> Callable[[np.ndarray], list[bytes]]:
    """Choose the discretisation of frames into cells.

    Atari screens: the cells of Go-Explore (11 x 8 pixels with 8 grey levels); indices: themselves; vectors of a few
    numbers: boxes of an eighth of their bounds; anything else: exact equality.

    Args:
        world: The environments.

    Returns:
        A function from a batch of frames to byte strings.
    """
    if isinstance(world, Atari):
        return cells
    scale = getattr(world, "inputs", UNKNOWN).scale
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
