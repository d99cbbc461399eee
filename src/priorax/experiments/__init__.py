"""One file per figure or table of the paper: settings -> rows -> figure.

An experiment is data first. `run(preset, report)` gives rows, `figure(rows)` draws them and never trains,
`summary(rows)` says in a few lines what they show.
"""

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from priorax.checks import one_of
from priorax.report.plots import save_figure
from priorax.report.rows import Row, read_rows, write_rows
from priorax.version import __version__

PRESETS = ("quick", "paper")
NAMES = ("figure1", "figure2", "figure12", "figure13", "table1")

Report = Callable[[float, str], None]
"""Called with the share of the work done and a word on what is being done."""


class Result(NamedTuple):
    """What an experiment left behind."""

    rows: Sequence[Row]
    paths: list[Path]
    summary: list[tuple[str, ...]]
    """A small table: the first row is its header."""


def reproduce(name: str, preset: str, out: Path, report: Report = lambda share, what: None) -> Result:
    """Run one experiment and write its rows and pictures into a folder. Nothing is written before it is done."""
    module: Any = importlib.import_module(f"priorax.experiments.{one_of('name', name, NAMES)}")
    one_of("preset", preset, PRESETS)
    prepare_folder(out)
    stamp = {"experiment": name, "preset": preset, "version": __version__}
    path = out / f"{name}.csv"
    write_rows(path, [{**stamp, **row} for row in module.run(preset, report)])
    rows = read_rows(path)  # what is drawn is what is in the file
    paths = [path, *save_figure(module.figure(rows), out, name)]
    return Result(rows, paths, module.summary(rows))


def prepare_folder(out: Path) -> None:
    """Make the folder, or say why results cannot be written there, before any work is done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"out={str(out)!r} cannot be made ({error.strerror}); choose another folder") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise PermissionError(f"out={str(out)!r} cannot be written; choose another folder or change its rights")
