"""Checkpoints in a folder, of the compiled loop and of the host alike: killed at any moment, a run has its last one.

    state-<step>.safetensors            everything but replay
    replay-<first>-<end>.safetensors    what was inserted in [first, end): each is written once
    commit-<step>.json                  which of these files make a checkpoint, and how long the rows' file was then

The commit comes last and at once: a checkpoint is there or it is not, and rows beyond its length are cut off when
the run goes on. The last two are kept, and only files that they name. Every file carries a checksum of itself.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
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
        sealed = {**described, "sha256": _digest(described)}
        write_atomically(self.folder / f"commit-{step}.json", json.dumps(sealed).encode())
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
        """Say of a damaged file which checkpoint it was of, and which one is whole.

        Raises:
            BadFile: If the block met a file that is damaged or missing.
        """
        try:
            yield
        except (BadFile, FileNotFoundError) as error:
            assert self.last is not None
            raise BadFile(f"the checkpoint of step {self.last.step} is damaged: {error}; {self.remedy()}") from None

    def remedy(self, serves: Callable[[Commit], bool] = lambda commit: True) -> str:
        """How to go on from the newest checkpoint that is whole, but for the last; `serves` says what else it needs."""
        newer: list[Path] = []
        for path in sorted(self.folder.glob("commit-*.json"), key=_step, reverse=True):
            if newer and self._whole(path, serves):
                return f"delete {', '.join(map(str, newer))} to go on from step {_step(path)}"
            newer.append(path)
        return "no older checkpoint is whole: start the run again with --overwrite"

    def _whole(self, path: Path, serves: Callable[[Commit], bool]) -> bool:
        """Whether a commit, and all files that it names, are as they were written, and it serves."""
        try:
            commit = self._read(path)
            for name in (commit.state, *map(_replay, commit.segments)):
                read(self.folder / name)
        except (BadFile, FileNotFoundError):
            return False
        return serves(commit)

    def _newest(self) -> Commit | None:
        paths = sorted(self.folder.glob("commit-*.json"), key=_step)
        if not paths:
            return None
        try:
            return self._read(paths[-1])
        except BadFile as error:
            raise BadFile(f"{error}; {self.remedy()}") from None

    def _read(self, path: Path) -> Commit:
        try:
            found = json.loads(path.read_text())
            if found.pop("sha256") != _digest(found):
                raise BadFile(f"{path} was altered or damaged since it was written (its checksum differs)")
            segments = [(int(first), int(end)) for first, end in found.pop("segments")]
            return Commit(segments=segments, tally=self.tally(**found.pop("tally")), **found)
        except BadFile:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadFile(f"{path} is damaged ({error!r})") from None

    def _clean(self) -> None:
        """Keep the last commits and what they name; a commit that cannot be read names nothing, and goes."""
        kept, named = 0, set()
        for path in sorted(self.folder.glob("commit-*.json"), key=_step, reverse=True):
            try:
                commit = self._read(path) if kept < KEPT else None
            except BadFile:
                commit = None
            if commit is None:
                path.unlink()
                continue
            kept += 1
            named |= {commit.state, *map(_replay, commit.segments)}
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob(".*")]:  # the latter: of a killed write
            if path.name not in named:
                path.unlink()


def _digest(described: Mapping[str, Any]) -> str:
    """A checksum of a commit as JSON has it."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _replay(part: Any) -> str:
    first, end = part
    return f"replay-{first}-{end}.safetensors"


def _step(path: Path) -> int:
    """The step in a commit's name; of a file that only looks like one, -1."""
    number = path.stem.removeprefix("commit-")
    return int(number) if number.isascii() and number.isdigit() else -1
