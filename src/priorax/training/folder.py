"""A run's folder.

run.json          what was asked for, and by which version
episodes.csv      one row per episode
tensorboard/      the same as events
evaluations.csv   what was deployed, in episodes of its own, where that was asked for
checkpoint/       see commits.py
result.json       what came out, once it is done
"""

import contextlib
import csv
import dataclasses
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from jaxtyping import PRNGKeyArray
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from priorax.agents import Settings
from priorax.storage import BadFile, write_atomically
from priorax.training.backends.scan import Episode, Loop, Snapshot
from priorax.version import __version__

FORMAT = 2
"""Of the files in a run's folder; a run of another format cannot be resumed."""
FILES = ("run.json", "episodes.csv", "evaluations.csv", "result.json", "checkpoint", "tensorboard")
"""What a run writes."""
LOCK = ".lock"
LENGTHS = ("episodes", "steps", "evaluate_every", "evaluation_episodes", "deploy")
"""Keys that may change on resume."""
EVENTS = ("total_return", "length", "average_regret", "solved", "loss", "cells")


class RunFolder:
    """A run's files, open for adding."""

    def __init__(
        self,
        path: Path,
        checkpoints: Callable[[Path], Any],
        config: dict[str, Any],
        until: Mapping[str, Any],
        resume: bool = False,
        overwrite: bool = False,
        columns: Sequence[str] = Episode._fields,
        force: bool = False,
    ) -> None:
        """Open a new run's folder, or that of one to go on with.

        Args:
            path: The folder, locked for other processes until `close`.
            checkpoints: Makes the checkpoints of a folder.
            config: What the run was asked for.
            until: How long the run is to be, which may be more when it goes on.
            resume: Go on with the run in the folder; else the folder must hold none.
            overwrite: Remove the run in the folder first.
            columns: Names of a row's columns.
            force: Resume a run of another version of priorax, if its files have the same format.

        Raises:
            ValueError: If the folder is in use, holds a run, or holds one that was asked for differently.
            BadFile: If files are damaged.
        """
        self.path = path
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
                self.checkpoints = checkpoints(path / "checkpoint")
                self.config, self.until = config, until
                if self.checkpoints.last is None:
                    self._begin()
                    (path / "episodes.csv").write_text(",".join(columns) + "\n")
                self.rows = (path / "episodes.csv").open("ab")
        except BaseException:
            self.lock.release()
            raise
        self.saved_at = time.monotonic()
        self.events: Any = None

    def close(self) -> None:
        """Let go of the files."""
        for file in (self.rows, self.events):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()
        self.lock.release()

    def _begin(self) -> None:
        """Say what the run is; it is under way now."""
        write_atomically(self.path / "run.json", json.dumps({**self.config, **self.until}, indent=2).encode())
        (self.path / "result.json").unlink(missing_ok=True)

    def restore(self, loop: Loop, key: PRNGKeyArray, params: Any) -> tuple[Snapshot, list[Episode]]:
        """The last checkpoint and the rows that belong to it; later rows are cut off."""
        snapshot = self.checkpoints.restore(loop, key, params)

        def steps(rows: list[Episode]) -> tuple[int, int]:
            taken = sum(row.length for row in rows)
            return taken, taken - (rows[-1].length if rows else 0) + 1  # the last episode passed the mark

        return snapshot, self.rewind(snapshot.tally.finished, _episode, steps)

    def rewind(
        self, finished: int, parse: Callable[[Mapping[str, str]], Any], steps: Callable[[list[Any]], tuple[int, int]]
    ) -> list[Any]:
        """Go back to the last checkpoint: rows after it are cut off.

        Args:
            finished: Episodes that the checkpoint counts.
            parse: Makes a row of what is written, by column.
            steps: How many steps such rows have, and the least number that leads to just these.

        Returns:
            The rows that belong to the checkpoint.

        Raises:
            BadFile: If the rows are damaged.
            ValueError: If the run is longer than what it is to be.
        """
        try:
            history = read_rows(self.path, parse, self.checkpoints.last.rows_bytes, finished)
        except BadFile as error:
            raise BadFile(f"{error}; {self.checkpoints.remedy(lambda older: self._rows_serve(older, parse))}") from None
        for name, (has, least) in {"episodes": (finished, finished), "steps": steps(history)}.items():
            wanted = self.until.get(name)
            if wanted is not None and wanted < least:
                raise ValueError(
                    f"{name}={wanted} is less than the {has} {name} of the run in {str(self.path)!r}; pass at least "
                    f"{has} to go on with it, or start another run"
                )
        with self._disk():
            self._begin()
            self.rows.truncate(self.checkpoints.last.rows_bytes)
            self._write_events(history)
        return history

    def _rows_serve(self, commit: Any, parse: Callable[[Mapping[str, str]], Any]) -> bool:
        """Whether the rows that a checkpoint counts are there."""
        try:
            read_rows(self.path, parse, commit.rows_bytes, commit.tally.finished)
        except BadFile:
            return False
        return True

    def append(self, new: Sequence[Any]) -> None:
        """Add finished episodes to the rows and events."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [int(v) if isinstance(v, bool) else v for v in row] for row in new
        )
        with self._disk():
            self.rows.write(text.getvalue().encode())
            self.rows.flush()
            self._write_events(new)

    def checkpoint(self, snapshot: Any, unless_younger_than: float = 0.0) -> None:
        """Rows to disk first, then the commit that counts them."""
        if time.monotonic() - self.saved_at < unless_younger_than:
            return
        with self._disk():
            os.fsync(self.rows.fileno())
            self.checkpoints.save(snapshot, self._bytes(snapshot.tally.finished))
        self.saved_at = time.monotonic()

    def finish(self, snapshot: Any, summary: dict[str, Any]) -> None:
        """Say what came out; a last checkpoint lets the run be made longer."""
        self.checkpoint(snapshot)
        with self._disk():
            write_atomically(self.path / "result.json", json.dumps(summary, indent=2).encode())

    def _bytes(self, episodes: int) -> int:
        """The length of the rows' file with so many episodes in it."""
        with (self.path / "episodes.csv").open("rb") as file:
            for _ in range(episodes + 1):
                file.readline()
            return file.tell()

    def _write_events(self, new: Sequence[Any]) -> None:
        if self.events is None:  # events are made from rows: after a resume, from the beginning
            folder = self.path / "tensorboard"
            folder.mkdir(exist_ok=True)
            for old in folder.glob("events*"):  # evaluations have their own, in a folder of it
                old.unlink()
            # not SummaryWriter: its thread dies of a full disk, and its queue then waits for ever
            self.events = EventsWriter(str(folder / "events"))
        for row in new:
            event = Event(wall_time=time.time(), step=row.episode)
            for name in (name for name in EVENTS if hasattr(row, name)):
                event.summary.MergeFrom(scalar(name, float(getattr(row, name))))
            self.events.write_event(event)
        self.events.flush()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """A full disk costs nothing but what is newer than the last checkpoint."""
        try:
            yield
        except OSError as error:
            last = self.checkpoints.last if hasattr(self, "checkpoints") else None
            kept = f"the checkpoint of step {last.step} is still there" if last else "nothing was saved yet"
            raise OSError(
                f"cannot write to {self.path} ({error.strerror or error}); {kept}; make room, then pass --resume"
            ) from error


def locked(path: Path) -> FileLock:
    """A lock on a folder, for one writer; it ends with the process that holds it.

    Raises:
        ValueError: If another run holds it.
    """
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"the run in {str(path)!r} is in use by another process; wait until that ends, or choose another folder"
        ) from None
    return lock


def describe_run(asked: Mapping[str, Any], chosen: Settings) -> dict[str, Any]:
    """What run.json says."""
    return {**asked, "settings": as_json(chosen), "version": __version__, "format": FORMAT}


def as_json(chosen: Settings) -> dict[str, Any]:
    """Settings as run.json has them."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(chosen)))
    return found


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A folder to write a run into, which then takes the place of the run at `path`, if there is one: whatever happens
    meanwhile, one of them is whole. What else was in that folder stays."""
    if path.exists() and not (path / "run.json").is_file() and any(each.name != LOCK for each in path.iterdir()):
        raise ValueError(f"{str(path)!r} holds something else than a run; choose another folder")
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


def read_config(path: Path) -> dict[str, Any]:
    """What the run in this folder was asked for."""
    if not (path / "run.json").is_file():
        raise ValueError(f"{str(path)!r} holds no run to resume; start one with --out {path}")
    try:
        found = json.loads((path / "run.json").read_text())
    except ValueError as error:
        raise BadFile(f"{path / 'run.json'} is damaged ({error}); start the run again with --overwrite") from None
    if not isinstance(found, dict):
        raise BadFile(f"{path / 'run.json'} is damaged (no object); start the run again with --overwrite")
    return found


def read_episodes(path: Path) -> list[Episode]:
    """The rows of a run's folder."""
    return read_rows(path, _episode)


def read_rows(
    path: Path,
    parse: Callable[[Mapping[str, str]], Any],
    until: int | None = None,
    finished: int | None = None,
) -> list[Any]:
    """Read the rows of a run's folder.

    Args:
        path: The folder.
        parse: Makes a row of what is written there, by column.
        until: Read the first bytes only, so many.
        finished: How many rows there must be.

    Raises:
        BadFile: If the file is shorter than that, cannot be parsed, does not number episodes from 1 on, or has another
            number of them.
    """
    file = path / "episodes.csv"
    try:
        content = file.read_bytes()[:until]
        if until is not None and len(content) < until:
            raise BadFile(f"{file} was cut short: it has {len(content)} bytes, its checkpoint {until}")
        rows = [parse(row) for row in csv.DictReader(io.StringIO(content.decode(), newline=""))]
    except BadFile:
        raise
    except FileNotFoundError:
        raise BadFile(f"{file} is missing") from None
    except (KeyError, ValueError, TypeError) as error:
        raise BadFile(f"{file} is damaged ({error!r})") from None
    for number, row in enumerate(rows, start=1):
        if row.episode != number:
            raise BadFile(f"{file} is damaged: its row {number} is episode {row.episode}")
    if finished is not None and len(rows) != finished:
        raise BadFile(f"{file} has {len(rows)} episodes, its checkpoint {finished}: it was changed since")
    return rows


def _episode(row: Mapping[str, str]) -> Episode:
    return Episode(
        int(row["episode"]),
        float(row["total_return"]),
        int(row["length"]),
        row["bad"] == "1",
        row["solved"] == "1",
        float(row["loss"]),
        float(row["average_regret"]),
    )


def _agreed(path: Path, found: dict[str, Any], asked: dict[str, Any], force: bool) -> dict[str, Any]:
    """What run.json is to say of a run that goes on; settings must be the same, the version may differ by `force`."""
    if found.get("format") != asked["format"]:
        raise BadFile(
            f"the run in {str(path)!r} has files of format {found.get('format')}, this priorax ({__version__}) reads "
            f"{asked['format']}; go on with priorax {found.get('version')}, or start the run again with --overwrite"
        )
    old, new = _flat(found), _flat(asked)
    if force:  # settings that the old version did not have yet are as it behaved
        old = {**{name: new[name] for name in new if name not in old}, **old, "version": new["version"]}
    both = dict.fromkeys([*old, *new])
    differing = {name for name in both if name not in old or name not in new or old[name] != new[name]}
    words = [f"{name} was {old.get(name)!r}, is {new.get(name)!r}" for name in both if name in differing]
    if not differing:
        versions = [*found.get("earlier_versions", []), found["version"]]
        return asked if found["version"] == asked["version"] else {**asked, "earlier_versions": versions}
    if "version" in differing and differing <= {"version", *(new.keys() - old.keys())}:
        raise ValueError(
            f"the run in {str(path)!r} is of another version of priorax: {'; '.join(words)}; its files can be read, "
            "but what follows may differ from what would have followed then; pass --force to go on"
        )
    raise ValueError(
        f"the run in {str(path)!r} had another configuration: {'; '.join(words)}; "
        "resume it without these arguments, or choose another --out"
    )


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration, without its length, settings beside the rest."""
    outer = {name: value for name, value in config.items() if name not in ("settings", "earlier_versions", *LENGTHS)}
    return {**outer, **config.get("settings", {})}


def _make_room(path: Path, overwrite: bool) -> None:
    """Refuse a folder with files of a run, or remove these and nothing else that may be there."""
    left = [name for name in FILES if (path / name).exists()]
    if left and not overwrite:
        whole = "a run" if "run.json" in left else f"parts of a run ({', '.join(left)})"
        resume = "pass --resume to go on or " if "run.json" in left else "pass "
        raise ValueError(f"out={str(path)!r} already holds {whole}; {resume}--overwrite to replace it")
    for name in left:
        try:
            if (path / name).is_dir():
                shutil.rmtree(path / name)
            else:
                (path / name).unlink()
        except OSError as error:
            raise OSError(
                f"cannot remove {path / name} of the old run ({error.strerror or error}); remove it by hand, or choose "
                "another --out"
            ) from error
