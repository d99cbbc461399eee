"""Evaluation of the deployed policy during training, in separate episodes without learning."""

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from priorax.agents.deploy import DEPLOY
from priorax.checks import one_of, positive_int
from priorax.files import write_atomically

HEAD = "step,episode,total_return"


class Evaluations(NamedTuple):
    """Schedule of evaluations of the deployed policy."""

    evaluate_every: int | None = None
    """Actions between evaluations; None: never."""
    evaluation_episodes: int = 10
    """Episodes of each evaluation."""
    deploy: str = "mean"
    """How actions are chosen, as in `Policy.predict`."""

    def checked(self) -> "Evaluations":
        """Check the values.

        Returns:
            The same schedule.

        Raises:
            ValueError: If a value is not allowed.
        """
        if self.evaluate_every is not None:
            positive_int("evaluate_every", self.evaluate_every)
        positive_int("evaluation_episodes", self.evaluation_episodes)
        one_of("deploy", self.deploy, DEPLOY)
        return self

    def due(self, before: int, now: int) -> bool:
        """Check whether an evaluation is due.

        Args:
            before: Number of actions before the last round.
            now: Number of actions so far.

        Returns:
            Whether one is due between them.
        """
        return self.evaluate_every is not None and now // self.evaluate_every > before // self.evaluate_every

    def until_next(self, now: int) -> int | None:
        """Count the actions until the next evaluation.

        Args:
            now: Number of actions so far.

        Returns:
            The number of actions; None if there are no evaluations.
        """
        return None if self.evaluate_every is None else self.evaluate_every - now % self.evaluate_every


class Scores:
    """Evaluations so far, written to the run's folder, if any, as rows and TensorBoard events."""

    def __init__(self, folder: Path | None, since: int) -> None:
        """Open the files, new or of a resumed run.

        Args:
            folder: Folder of the run, if any.
            since: Number of actions at which the run continues; later rows are removed.
        """
        self.folder = folder
        self.last: float | None = None
        """Mean return of the last evaluation."""
        self._events: Any = None
        if folder is None:
            return
        path = folder / "evaluations.csv"
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]] if path.exists() else []
        kept = [row for row in rows if len(row) == 3 and int(row[0]) <= since]
        if not kept:
            path.unlink(missing_ok=True)
            return
        write_atomically(path, "".join(f"{line}\n" for line in [HEAD, *map(",".join, kept)]).encode())
        for step in dict.fromkeys(row[0] for row in kept):
            self._mark(int(step), [float(row[2]) for row in kept if row[0] == step])

    def add(self, step: int, returns: list[float]) -> None:
        """Add an evaluation.

        Args:
            step: Number of actions so far.
            returns: Returns of the episodes.
        """
        if self.folder is not None:
            path = self.folder / "evaluations.csv"
            before = path.read_text() if path.exists() else f"{HEAD}\n"
            rows = [f"{step},{i},{total}\n" for i, total in enumerate(returns, start=1)]
            write_atomically(path, (before + "".join(rows)).encode())
        self._mark(step, returns)

    def close(self) -> None:
        """Close the files."""
        if self._events is not None:
            with contextlib.suppress(OSError):
                self._events.close()

    def _mark(self, step: int, returns: list[float]) -> None:
        self.last = float(np.mean(returns))
        if self.folder is None:
            return
        if self._events is None:  # rewritten from the rows of the file
            folder = self.folder / "tensorboard" / "deployed"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self._events = EventsWriter(str(folder / "events"))
        event = Event(wall_time=time.time(), step=step)
        event.summary.MergeFrom(scalar("deployed_return", self.last))
        self._events.write_event(event)
        self._events.flush()
