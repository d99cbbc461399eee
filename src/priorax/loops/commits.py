"""Checkpoints in a folder, of the compiled loop and of the host alike: killed at any moment, a run has its last one.

    state-<step>.safetensors            everything but replay
    replay-<first>-<end>.safetensors    what was inserted in [first, end): each is written once
    commit-<step>.json                  which of these files make a checkpoint, and how long the rows' file was then

The commit comes last and at once: a checkpoint is there or it is not, and rows beyond its length are cut off when
the run goes on. The last two are kept, and only files that they name.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from priorax.storage import BadFile, Content, read, write, write_atomically

KEPT = 2

Arrays = dict[str, np.ndarray]


class Commit(NamedTuple):
    """What makes a checkpoint."""

    step: int
    state: str
    segments: list[tuple[int, int]]
    """What was inserted into replay in [first, end), a file each, oldest first."""
    rows_bytes: int
    tally: Any


class Commits:
    """The checkpoints in a folder."""

    def __init__(self, folder: Path, tally: Callable[..., Any]) -> None:
        """`tally`: what a run counts, a named tuple."""
        self.folder, self.tally = folder, tally
        self.last = self._newest()

    def add(
        self,
        step: int,
        state: Arrays,
        tally: Any,
        rows_bytes: int,
        time: int = 0,
        capacity: int = 0,
        inserted: Callable[[int, int], Arrays] = lambda first, end: {},
    ) -> None:
        """Write what is new since the last one, then commit. `time`: insertions into replay so far, of which it keeps
        `capacity`; `inserted(first, end)` are some of them."""
        self.folder.mkdir(exist_ok=True)
        segments = list(self.last.segments) if self.last else []
        first = max(segments[-1][1] if segments else 0, time - capacity)
        if first < time:
            write(self.folder / _replay((first, time)), Content("replay", {}, inserted(first, time)))
            segments.append((first, time))
        segments = [part for part in segments if part[1] > time - capacity]
        name = f"state-{step}.safetensors"
        write(self.folder / name, Content("run", {}, state))
        commit = Commit(step, name, segments, rows_bytes, tally)
        described = {**commit._asdict(), "tally": tally._asdict()}
        write_atomically(self.folder / f"commit-{step}.json", json.dumps(described).encode())
        self.last = commit
        self._clean()

    def state(self) -> Arrays:
        """Everything but replay."""
        assert self.last is not None
        return read(self.folder / self.last.state).arrays

    def replay(self) -> Iterator[tuple[int, int, Arrays]]:
        """What was inserted, oldest first: from when, to when, and what."""
        assert self.last is not None
        for first, end in self.last.segments:
            yield first, end, read(self.folder / _replay((first, end))).arrays

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Say of a damaged file which checkpoint it was of, and what to do."""
        try:
            yield
        except (BadFile, FileNotFoundError) as error:
            assert self.last is not None
            step = self.last.step
            older = sorted(_step(path) for path in self.folder.glob("commit-*.json") if _step(path) < step)
            path = self.folder / f"commit-{step}.json"
            remedy = f"delete {path} to go on from step {older[-1]}" if older else "start the run again"
            raise BadFile(f"the checkpoint of step {step} is damaged: {error}; {remedy}") from None

    def _newest(self) -> Commit | None:
        paths = sorted(self.folder.glob("commit-*.json"), key=_step)
        if not paths:
            return None
        try:
            found = json.loads(paths[-1].read_text())
            segments = [(int(first), int(end)) for first, end in found.pop("segments")]
            return Commit(segments=segments, tally=self.tally(**found.pop("tally")), **found)
        except (ValueError, TypeError, KeyError) as error:
            raise BadFile(f"{paths[-1]} is damaged ({error}); delete it to go on from the checkpoint before") from None

    def _clean(self) -> None:
        """Keep the last commits and what they name."""
        commits = sorted(self.folder.glob("commit-*.json"), key=_step)
        for old in commits[:-KEPT]:
            old.unlink()
        named = set()
        for path in commits[-KEPT:]:
            found = json.loads(path.read_text())
            named |= {found["state"], *(_replay(part) for part in found["segments"])}
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob(".*")]:  # the latter: of a killed write
            if path.name not in named:
                path.unlink()


def _replay(part: Any) -> str:
    first, end = part
    return f"replay-{first}-{end}.safetensors"


def _step(path: Path) -> int:
    return int(path.stem.split("-")[1])
