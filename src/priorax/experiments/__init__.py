"""One module per figure or table of the paper.

`run(preset, report)` yields rows, `figure(rows)` plots them without training, and `summary(rows)` tabulates what they
show. Experiments that consist of many runs have `ladders(preset)` instead of `run` (see `sweep`): they can be
interrupted and continued.
"""

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from priorax.checks import one_of
from priorax.experiments.sweep import hours, run_sweep, time_to_learn
from priorax.names import EXPERIMENTS
from priorax.report.plots import save_figure
from priorax.report.rows import Row, read_rows, write_rows
from priorax.version import __version__

PRESETS = ("quick", "paper")
NAMES = EXPERIMENTS
FILES = {"gymnasium": "gymnasium_tasks"}
"""Modules whose name differs from that of the experiment, so as not to shadow a package."""

Report = Callable[[float, str], None]
"""Called with the fraction of work done and a word on the current work."""


class Result(NamedTuple):
    """The results of an experiment."""

    rows: Sequence[Row]
    """The rows."""
    paths: list[Path]
    """Files written."""
    summary: list[tuple[str, ...]]
    """A table: a header, then rows."""


def reproduce(
    name: str,
    preset: str,
    out: Path,
    report: Report = lambda share, what: None,
    announce: Callable[[str], None] = lambda words: None,
    draw_only: bool = False,
) -> Result:
    """Run an experiment and write its rows and figures to a folder.

    Experiments that consist of many runs write rows as runs finish, to one file per preset; others write nothing
    before they are done.

    Args:
        name: Name of the experiment, one of `NAMES`.
        preset: Size of the experiment, `quick` or `paper`.
        out: The folder to write to; it is created.
        report: Called with the fraction of work done and a word on the current work.
        announce: Called with messages for the user, such as the expected duration.
        draw_only: Whether to draw existing rows without running anything.

    Returns:
        Rows, files and a summary table.

    Raises:
        ValueError: If the name or the preset is unknown.
        FileNotFoundError: If there are no rows to draw.
        OSError: If the folder cannot be written.
    """
    one_of("name", name, NAMES)
    module: Any = importlib.import_module(f"priorax.experiments.{FILES.get(name, name)}")
    one_of("preset", preset, PRESETS)
    prepare_folder(out)
    many = hasattr(module, "ladders")
    stem = f"{name}_{preset}" if many else name
    path = out / f"{stem}.csv"
    if draw_only:
        if not path.exists():
            raise FileNotFoundError(f"there are no rows in {path} to draw; run the experiment first")
    elif many:
        if preset == "paper" and hasattr(module, "NEEDS"):
            announce(module.NEEDS)
        most = hours(module.ladders(preset))
        announce(
            f"at most about {most:.1f} hours on two cores; it can be stopped at any time, and continues from {path}"
        )
        outcome = getattr(module, "outcome", time_to_learn)
        run_sweep(name, preset, module.ladders(preset), path, report, outcome=outcome)
    else:
        stamp = {"experiment": name, "preset": preset, "version": __version__}
        write_rows(path, [{**stamp, **row} for row in module.run(preset, report)])
    rows = read_rows(path)  # what is drawn is what is in the file
    paths = [path, *save_figure(module.figure(rows), out, stem)]
    return Result(rows, paths, module.summary(rows))


def prepare_folder(out: Path) -> None:
    """Create the folder for results, or fail before any work is done.

    Args:
        out: The folder.

    Raises:
        OSError: If it cannot be created or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"out={str(out)!r} cannot be created ({error.strerror}); choose another folder") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise PermissionError(f"out={str(out)!r} is not writable; choose another folder or change its permissions")
