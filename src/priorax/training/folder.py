"""Files of a run.

run.json          the arguments of the run, and the version that wrote it
episodes.csv      one row per episode
tensorboard/      the same data as TensorBoard events
evaluations.csv   evaluations of the deployed policy, if requested
checkpoint/       see checkpoint.py
prior.safetensors the learned prior, if the agent has one
result.json       the result, once the run is finished
"""

import contextlib
import csv
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from priorax.files import BadFile, write_atomically
from priorax.training.checkpoint import Checkpoints, Commit
from priorax.training.records import Episode, Snapshot
from priorax.training.run_files import PRIOR_FILE, keep_prior, read_config, read_episodes, with_digest
from priorax.version import __version__

FILES = ("run.json", "episodes.csv", "evaluations.csv", "result.json", "checkpoint", "tensorboard", PRIOR_FILE)
"""Files that a run writes."""
LOCK = ".lock"
LENGTHS = ("episodes", "steps", "evaluate_every", "evaluation_episodes", "deploy")
"""Arguments that may change on resume."""
FREE_SETTINGS = ("devices", "prior_file")
"""Settings that may change on resume: a learned prior is known by its digest."""
EVENTS = ("total_return", "length", "average_regret", "solved", "loss", "cells")


class RunFolder:
    """The folder of a run, open for writing."""

    def __init__(
        self,
        path: Path,
        config: dict[str, Any],
        until: Mapping[str, Any],
        prior: bytes | None = None,
        resume: bool = False,
        overwrite: bool = False,
        force: bool = False,
    ) -> None:
        """Open the folder of a new run, or of a run to resume.

        Args:
            path: The folder; it is locked for other processes until `close`.
            config: Configuration of the run.
            until: Length of the run; it may be longer on resume.
            prior: The file of its learned prior; None if it has none.
            resume: Resume the run in the folder; otherwise the folder must not contain a run.
            overwrite: Remove the run in the folder first.
            force: Resume a run of another version of priorax, if its files have the same format.

        Raises:
            ValueError: If the folder is in use, contains a run, or contains a run of another configuration.
            BadFile: If files are damaged.
        """
        self.path = path
        self.prior = prior
        config = with_digest(config, prior)
        if resume:
            found = read_config(path)  # before the lock, which needs the folder
        with self._disk():
            path.mkdir(parents=True, exist_ok=True)
        self.lock = locked(path)
        try:
            if resume:
                config = _agreed(path, found, config, force)
            else:
                _make_room(path, overwrite)
            with self._disk():
                self.checkpoints = Checkpoints(path / "checkpoint")
                self.config, self.until = config, until
                if self.checkpoints.last is None:
                    self._begin()
                    (path / "episodes.csv").write_text(",".join(Episode._fields) + "\n")
                self.rows = (path / "episodes.csv").open("ab")
        except BaseException:
            self.lock.release()
            raise
        self.saved_at = time.monotonic()
        self.events: Any = None

    def close(self) -> None:
        """Close the files and release the lock."""
        for file in (self.rows, self.events):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()
        self.lock.release()

    def _begin(self) -> None:
        """Write run.json; the run is now in progress."""
        config = {**keep_prior(self.path, self.config, self.prior), **self.until}
        write_atomically(self.path / "run.json", json.dumps(config, indent=2).encode())
        (self.path / "result.json").unlink(missing_ok=True)

    def rewind(self) -> list[Episode]:
        """Return to the last checkpoint: later rows are removed.

        Returns:
            The rows up to the checkpoint.

        Raises:
            BadFile: If the rows are damaged.
            ValueError: If the run is already longer than requested.
        """
        last = self.checkpoints.last
        assert last is not None
        try:
            history = read_episodes(self.path, last.rows_bytes, last.episodes)
        except BadFile as error:
            raise BadFile(f"{error}; {self.checkpoints.remedy(self._rows_serve)}") from None
        for name, has in (("episodes", last.episodes), ("steps", last.step)):
            wanted = self.until.get(name)
            if wanted is not None and wanted < has:
                raise ValueError(
                    f"{name}={wanted} is less than the {has} {name} of the run in {str(self.path)!r}; pass at least "
                    f"{has} to continue it, or start another run"
                )
        with self._disk():
            self._begin()
            self.rows.truncate(last.rows_bytes)
            self._write_events(history)
        return history

    def _rows_serve(self, commit: Commit) -> bool:
        """Check that the rows that a checkpoint counts exist."""
        try:
            read_episodes(self.path, commit.rows_bytes, commit.episodes)
        except BadFile:
            return False
        return True

    def append(self, new: Sequence[Any]) -> None:
        """Append finished episodes to the rows and events.

        Args:
            new: The episodes.
        """
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [int(v) if isinstance(v, bool) else v for v in row] for row in new
        )
        with self._disk():
            self.rows.write(text.getvalue().encode())
            self.rows.flush()
            self._write_events(new)

    def checkpoint(self, snapshot: Callable[[], Snapshot], episodes: int, unless_younger_than: float = 0.0) -> None:
        """Flush the rows to disk, then write a checkpoint.

        Args:
            snapshot: Function that gives the state of the run.
            episodes: Number of finished episodes.
            unless_younger_than: Minimum number of seconds since the last checkpoint; otherwise nothing is written.
        """
        if time.monotonic() - self.saved_at < unless_younger_than:
            return
        with self._disk():
            os.fsync(self.rows.fileno())
            self.checkpoints.save(snapshot(), episodes, self._bytes(episodes))
        self.saved_at = time.monotonic()

    def finish(self, snapshot: Callable[[], Snapshot], episodes: int, summary: dict[str, Any]) -> None:
        """Write the result, and a last checkpoint, from which the run can be extended.

        Args:
            snapshot: Function that gives the state of the run.
            episodes: Number of finished episodes.
            summary: The result, for JSON.
        """
        self.checkpoint(snapshot, episodes)
        with self._disk():
            write_atomically(self.path / "result.json", json.dumps(summary, indent=2).encode())

    def _bytes(self, episodes: int) -> int:
        """Get the length of episodes.csv with that many episodes."""
        with (self.path / "episodes.csv").open("rb") as file:
            for _ in range(episodes + 1):
                file.readline()
            return file.tell()

    def _write_events(self, new: Sequence[Any]) -> None:
        if self.events is None:  # after a resume, all events are rewritten from the rows
            folder = self.path / "tensorboard"
            folder.mkdir(exist_ok=True)
            for old in folder.glob("events*"):  # not those of evaluations, in a subfolder
                old.unlink()
            # not SummaryWriter: on a full disk its thread dies and its queue blocks forever
            self.events = EventsWriter(str(folder / "events"))
        for row in new:
            event = Event(wall_time=time.time(), step=row.episode)
            for name in (name for name in EVENTS if getattr(row, name) is not None):
                event.summary.MergeFrom(scalar(name, float(getattr(row, name))))
            self.events.write_event(event)
        self.events.flush()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Add the remedy to write errors: only data newer than the last checkpoint is lost."""
        try:
            yield
        except OSError as error:
            last = self.checkpoints.last if hasattr(self, "checkpoints") else None
            kept = f"the checkpoint of step {last.step} is intact" if last else "no checkpoint was written yet"
            raise OSError(
                f"cannot write to {self.path} ({error.strerror or error}); {kept}; free disk space, then pass --resume"
            ) from error


def locked(path: Path) -> FileLock:
    """Lock a folder for one writer; the lock ends with the process.

    Args:
        path: The folder.

    Returns:
        The lock.

    Raises:
        ValueError: If another process holds it.
    """
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"the run in {str(path)!r} is in use by another process; wait until it exits, or choose another folder"
        ) from None
    return lock


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Provide a temporary folder for a run that then replaces the run at `path` atomically; other files remain.

    Args:
        path: The folder to replace.

    Returns:
        A context manager that gives the temporary folder.

    Raises:
        ValueError: If `path` contains files but no run.
    """
    if path.exists() and not (path / "run.json").is_file() and any(each.name != LOCK for each in path.iterdir()):
        raise ValueError(f"{str(path)!r} contains files that are not a run; choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (path.with_name(f".{path.name}.{word}") for word in ("new", "old"))
    if old.exists() and not path.exists():  # killed between the two moves below
        old.rename(path)
    lock = locked(path) if path.is_dir() else None  # refused while a run writes there
    try:
        for left_over in (fresh, old):
            shutil.rmtree(left_over, ignore_errors=True)
        yield fresh
        if path.exists():
            path.rename(old)
        fresh.rename(path)
        for other in old.glob("*"):
            if not (path / other.name).exists():
                other.rename(path / other.name)
    finally:
        if not path.exists() and old.exists():
            old.rename(path)
        for left_over in (fresh, old):
            shutil.rmtree(left_over, ignore_errors=True)
        if lock is not None:
            lock.release()


def _agreed(path: Path, found: dict[str, Any], requested: dict[str, Any], force: bool) -> dict[str, Any]:
    """Get the contents of run.json for a resumed run; settings must agree, the version may differ with `force`."""
    if found.get("format") != requested["format"]:
        raise BadFile(
            f"the run in {str(path)!r} has file format {found.get('format')}, but priorax {__version__} reads format "
            f"{requested['format']}; resume with priorax {found.get('version')}, or start the run again with "
            "--overwrite"
        )
    old, new = _flat(found), _flat(requested)
    if force:  # settings new since the old version have defaults that keep its behaviour
        old = {**{name: new[name] for name in new if name not in old}, **old, "version": new["version"]}
    both = dict.fromkeys([*old, *new])
    differing = {name for name in both if name not in old or name not in new or old[name] != new[name]}
    told = differing - {"interface"} or differing  # the interface follows from the other arguments
    words = [f"{name} was {old.get(name)!r}, is {new.get(name)!r}" for name in both if name in told]
    if not differing:
        versions = [*found.get("earlier_versions", []), found["version"]]
        return requested if found["version"] == requested["version"] else {**requested, "earlier_versions": versions}
    if "version" in differing and differing <= {"version", *(new.keys() - old.keys())}:
        raise ValueError(
            f"the run in {str(path)!r} was written by another version of priorax: {'; '.join(words)}; the file format "
            "is the same, but results may differ from those of the old version; pass --force to resume"
        )
    raise ValueError(
        f"the run in {str(path)!r} had another configuration: {'; '.join(words)}; "
        "resume it without these arguments, or choose another --out"
    )


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Flatten a configuration, without what may change on resume."""
    flat = {**config, **config.get("settings", {})}
    free = ("settings", "earlier_versions", *LENGTHS, *FREE_SETTINGS)
    return {name: value for name, value in flat.items() if name not in free}


def _make_room(path: Path, overwrite: bool) -> None:
    """Refuse a folder that contains files of a run, or remove these files and no others."""
    left = [name for name in FILES if (path / name).exists()]
    if left and not overwrite:
        whole = "a run" if "run.json" in left else f"parts of a run ({', '.join(left)})"
        resume = "pass --resume to continue it or " if "run.json" in left else "pass "
        raise ValueError(f"out={str(path)!r} already contains {whole}; {resume}--overwrite to replace it")
    for name in left:
        try:
            if (path / name).is_dir():
                shutil.rmtree(path / name)
            else:
                (path / name).unlink()
        except OSError as error:
            raise OSError(
                f"cannot remove {path / name} of the old run ({error.strerror or error}); remove it manually, or "
                "choose another --out"
            ) from error
