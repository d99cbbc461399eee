"""Atomic checkpoints in a folder, for every backend: the last checkpoint survives if the process is killed.

    state-<step>.safetensors            everything except replay
    replay-<first>-<end>.safetensors    insertions into replay in [first, end): each file is written once
    commit-<step>.json                  the files of a checkpoint, and the length of episodes.csv at that time

The commit is written last and atomically: a checkpoint exists completely or not at all, and rows beyond its length are
removed when the run is resumed. The last two checkpoints are kept, with the files that they name. Every file has a
checksum.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from priorax.files import BadFile, Content, read, write, write_atomically
from priorax.training.records import Arrays, Snapshot

KEPT = 2


class Commit(NamedTuple):
    """Contents of a commit file."""

    step: int
    """Number of actions taken."""
    state: str
    """Name of the state file."""
    segments: list[tuple[int, int]]
    """Intervals [first, end) of insertions into replay, one file each, oldest first."""
    episodes: int
    """Number of finished episodes."""
    rows_bytes: int
    """Length of episodes.csv with these episodes."""


class Checkpoints:
    """The checkpoints in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last = self._newest()

    def save(self, snapshot: Snapshot, episodes: int, rows_bytes: int) -> None:
        """Write the state and the insertions into replay since the last checkpoint, then the commit.

        Args:
            snapshot: State of the run.
            episodes: Number of finished episodes.
            rows_bytes: Length of episodes.csv with these episodes.
        """
        self.folder.mkdir(exist_ok=True)
        segments = list(self.last.segments) if self.last else []
        if snapshot.replay is not None:
            time, capacity, inserted = snapshot.replay
            first = max(segments[-1][1] if segments else 0, time - capacity)
            if first < time:
                write(self.folder / _replay((first, time)), Content("replay", {}, inserted(first, time)))
                segments.append((first, time))
            segments = [part for part in segments if part[1] > time - capacity]
        name = f"state-{snapshot.step}.safetensors"
        write(self.folder / name, Content("run", {}, snapshot.state))
        commit = Commit(snapshot.step, name, segments, episodes, rows_bytes)
        described = commit._asdict()
        sealed = {**described, "sha256": _digest(described)}
        write_atomically(self.folder / f"commit-{snapshot.step}.json", json.dumps(sealed).encode())
        self.last = commit
        self._clean()

    def state(self) -> Arrays:
        """Load everything except replay from the last checkpoint.

        Returns:
            Arrays by name.
        """
        assert self.last is not None
        return read(self.folder / self.last.state).arrays

    def replay(self) -> Iterator[tuple[int, int, Arrays]]:
        """Load the insertions into replay, oldest first.

        Returns:
            An iterator of first time, end time and arrays.
        """
        assert self.last is not None
        for first, end in self.last.segments:
            yield first, end, read(self.folder / _replay((first, end))).arrays

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Add the remedy to errors about damaged files: the checkpoint they belong to, and the newest intact one.

        Raises:
            BadFile: If the block raised it for a damaged or missing file.
        """
        try:
            yield
        except (BadFile, FileNotFoundError) as error:
            assert self.last is not None
            raise BadFile(f"the checkpoint of step {self.last.step} is damaged: {error}; {self.remedy()}") from None

    def remedy(self, serves: Callable[[Commit], bool] = lambda commit: True) -> str:
        """Describe how to continue from the newest intact checkpoint, other than the last.

        Args:
            serves: Further condition that the checkpoint must satisfy.

        Returns:
            The remedy, for an error message.
        """
        newer: list[Path] = []
        for path in sorted(self.folder.glob("commit-*.json"), key=_step, reverse=True):
            if newer and self._whole(path, serves):
                return f"delete {', '.join(map(str, newer))} to continue from step {_step(path)}"
            newer.append(path)
        return "no older checkpoint is intact: start the run again with --overwrite"

    def _whole(self, path: Path, serves: Callable[[Commit], bool]) -> bool:
        """Check that a commit and all files that it names are intact, and that it satisfies the condition."""
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
            return Commit(segments=segments, **found)
        except BadFile:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadFile(f"{path} is damaged ({error!r})") from None

    def _clean(self) -> None:
        """Delete all but the last commits and the files that they name; unreadable commits are deleted."""
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
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob(".*")]:  # .*: left by an interrupted write
            if path.name not in named:
                path.unlink()


def _digest(described: Mapping[str, Any]) -> str:
    """Compute the checksum of a commit's JSON."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _replay(part: Any) -> str:
    first, end = part
    return f"replay-{first}-{end}.safetensors"


def _step(path: Path) -> int:
    """Parse the step in a commit's file name; -1 if it is not a commit."""
    number = path.stem.removeprefix("commit-")
    return int(number) if number.isascii() and number.isdigit() else -1
