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

from jaxtyping import PRNGKeyArray
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from priorax.agents import Settings
from priorax.loops.compiled import Episode, Loop, Snapshot
from priorax.storage import BadFile, write_atomically
from priorax.version import __version__

LENGTHS = ("episodes", "steps", "evaluate_every", "evaluation_episodes", "deploy")
"""What may be another when a run goes on."""
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
    ) -> None:
        """`checkpoints` are made for a folder; `until`: how long the run is to be, which may be more when it goes on;
        `columns` are those of a row."""
        self.path = path
        if resume:
            _refuse_other_config(path, read_config(path), config)
            (path / "result.json").unlink(missing_ok=True)
        elif (path / "run.json").exists():
            if not overwrite:
                raise ValueError(
                    f"out={str(path)!r} already holds a run; pass --resume to go on or --overwrite to replace it"
                )
            _remove_run(path)
        with self._disk():
            path.mkdir(parents=True, exist_ok=True)
            write_atomically(path / "run.json", json.dumps({**config, **until}, indent=2).encode())
            self.checkpoints = checkpoints(path / "checkpoint")
            if self.checkpoints.last is None:
                (path / "episodes.csv").write_text(",".join(columns) + "\n")
            self.rows = (path / "episodes.csv").open("ab")
        self.saved_at = time.monotonic()
        self.events: Any = None

    def close(self) -> None:
        """Let go of the files."""
        for file in (self.rows, self.events):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def restore(self, loop: Loop, key: PRNGKeyArray, params: Any) -> tuple[Snapshot, list[Episode]]:
        """The last checkpoint and the rows that belong to it; later rows are cut off."""
        snapshot = self.checkpoints.restore(loop, key, params)
        return snapshot, self.rewind(snapshot.tally.finished, _episode)

    def rewind(self, finished: int, parse: Callable[[Mapping[str, str]], Any]) -> list[Any]:
        """The rows that belong to the last checkpoint; later ones are cut off."""
        self.rows.truncate(self.checkpoints.last.rows_bytes)
        history = read_rows(self.path, parse)
        if len(history) != finished:
            raise BadFile(
                f"{self.path / 'episodes.csv'} has {len(history)} episodes, its checkpoint {finished}: "
                "it was changed since; start the run again with --overwrite"
            )
        with self._disk():
            self._write_events(history)
        return history

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


def describe_run(asked: Mapping[str, Any], chosen: Settings) -> dict[str, Any]:
    """What run.json says."""
    return {**asked, "settings": as_json(chosen), "version": __version__}


def as_json(chosen: Settings) -> dict[str, Any]:
    """Settings as run.json has them."""
    found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(chosen)))
    return found


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A folder to write a run into, which then takes the place of the run at `path`, if there is one: whatever happens
    meanwhile, one of them is whole. What else was in that folder stays."""
    if path.exists() and not (path / "run.json").is_file() and any(path.iterdir()):
        raise ValueError(f"{str(path)!r} holds something else than a run; choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (path.with_name(f".{path.name}.{word}") for word in ("new", "old"))
    if old.exists() and not path.exists():  # killed between the two moves below
        old.rename(path)
    for left_over in (fresh, old):
        shutil.rmtree(left_over, ignore_errors=True)
    try:
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


def read_rows(path: Path, parse: Callable[[Mapping[str, str]], Any], until: int | None = None) -> list[Any]:
    """The rows of a run's folder, of that kind; those in its first bytes, if told how many."""
    try:
        text = (path / "episodes.csv").read_bytes()[:until].decode()
        return [parse(row) for row in csv.DictReader(io.StringIO(text, newline=""))]
    except (KeyError, ValueError, TypeError) as error:
        raise BadFile(f"{path / 'episodes.csv'} is damaged ({error!r}); start the run again with --overwrite") from None


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


def _refuse_other_config(path: Path, found: dict[str, Any], asked: dict[str, Any]) -> None:
    def flat(config: dict[str, Any]) -> dict[str, Any]:
        inner = config.get("settings", {})
        return {**{k: v for k, v in config.items() if k not in ("settings", *LENGTHS)}, **inner}

    old, new = flat(found), flat(asked)
    differing = [
        f"{name} was {old.get(name)!r}, is {new.get(name)!r}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise ValueError(
            f"the run in {str(path)!r} had another configuration: {'; '.join(differing)}; "
            "resume it without these arguments, or choose another --out"
        )


def _remove_run(path: Path) -> None:
    """The files of a run, and nothing else that may be in the folder."""
    for name in ("checkpoint", "tensorboard"):
        shutil.rmtree(path / name, ignore_errors=True)
    for name in ("episodes.csv", "evaluations.csv", "result.json", "run.json"):
        (path / name).unlink(missing_ok=True)
