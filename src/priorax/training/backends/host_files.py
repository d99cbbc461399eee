"""The files of a run on the host, in this process or on a cluster: rows (`run_folder.py`) and checkpoints
(`commits.py`).

A checkpoint holds the agent, how far the run was, and replay where it is here. It does not hold where the games were:
they begin anew when it goes on, as after a lost actor.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from priorax.replay import SequenceBuffer
from priorax.storage import restore_tree, tree_arrays
from priorax.training.checkpoint import Commits
from priorax.training.distinct import Distinct
from priorax.training.folder import RunFolder
from priorax.training.interrupt import interruptible


class HostEpisode(NamedTuple):
    """One finished episode, in the order in which they ended."""

    episode: int
    """From 1."""
    step: int
    """Actions so far, over all lanes."""
    lane: int
    total_return: float
    """As the environment pays."""
    length: int
    loss: float
    """Of the last update, mean over members."""
    cells: int
    """Distinct states seen since the run began (`cells.py`); beyond 100,000 an estimate, with a standard error of
    0.8%."""


class HostTally(NamedTuple):
    """How far a run is."""

    rounds: int = 0
    """Actions in each lane."""
    finished: int = 0


class HostSnapshot(NamedTuple):
    """What a checkpoint holds."""

    state: Any
    """The agent's."""
    tally: HostTally
    cells: Distinct
    """What was seen."""
    buffer: SequenceBuffer | None = None


class HostCheckpoints(Commits):
    """The checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, HostTally)

    def save(self, snapshot: HostSnapshot, rows_bytes: int) -> None:
        """Write what is new since the last one, then commit."""
        arrays, rounds, buffer = tree_arrays(snapshot.state), snapshot.tally.rounds, snapshot.buffer
        arrays |= {f"cells.{name}": array for name, array in snapshot.cells.arrays().items()}
        if buffer is None:
            self.add(rounds, arrays, snapshot.tally, rows_bytes)
            return
        arrays |= {f"replay.{name}": array for name, array in buffer.counters().items()}
        self.add(rounds, arrays, snapshot.tally, rows_bytes, buffer.time, buffer.settings.length, buffer.inserted)

    def restore(self, like: Any, cells: Distinct, buffer: SequenceBuffer | None = None) -> Any:
        """An agent of that shape, as it was; what was seen, and that buffer, both empty so far, filled as they were."""
        shape = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)
        with self.explained():
            arrays = self.state()
            cells.restore(_below("cells.", arrays))
            counters = _below("replay.", arrays)
            if buffer is not None and counters:
                buffer.refill(counters, self.replay())
            return restore_tree(shape, arrays)


def _below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def record(
    rounds: Iterable[Sequence[HostEpisode]],
    folder: RunFolder | None,
    snapshot: Callable[[], HostSnapshot],
    checkpoint_seconds: float,
    tell: Callable[[], None],
) -> None:
    """Rows and checkpoints while a run goes on, and word of it twice a second. Ctrl-C and SIGTERM leave a checkpoint.

    Rows are written before anything else sees them, so that no checkpoint counts more than there are."""
    told = 0.0
    with interruptible() as interrupt:
        for new in rounds:
            if folder is not None:
                if new:
                    folder.append(new)
                folder.checkpoint(snapshot(), unless_younger_than=checkpoint_seconds)
            if time.perf_counter() - told > 0.5:
                told = time.perf_counter()
                tell()
            if interrupt.came:
                if folder is not None:
                    folder.checkpoint(snapshot())
                interrupt.stop()


def rewound(folder: RunFolder, lanes: int) -> list[HostEpisode]:
    """The rows of the last checkpoint in a folder, where each round plays so many lanes; later rows are cut off."""
    tally = folder.checkpoints.last.tally
    steps = tally.rounds * lanes
    return folder.rewind(tally.finished, parse_row, lambda rows: (steps, steps - lanes + 1))


class Pace:
    """Actions per second since it was made."""

    def __init__(self, steps: int) -> None:
        self.first, self.begun = steps, time.perf_counter()

    def __call__(self, steps: int) -> float:
        return (steps - self.first) / max(time.perf_counter() - self.begun, 1e-9)


def mean_of_last(returns: list[float]) -> float | None:
    """Of the last 100."""
    return float(np.mean(returns[-100:])) if returns else None


def parse_row(row: Mapping[str, str]) -> HostEpisode:
    """A row of episodes.csv."""
    kinds = (int, int, int, float, int, float, int)
    return HostEpisode(*(kind(row[name]) for kind, name in zip(kinds, HostEpisode._fields, strict=True)))
