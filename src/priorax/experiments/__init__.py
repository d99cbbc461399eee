"""One file per figure or table of the paper: settings -> rows -> figure.

An experiment is data first. `run(preset, report)` gives rows, `figure(rows)` draws them and never trains,
`summary(rows)` says in a few lines what they show. Experiments of many runs have `ladders(preset)` instead of `run`
(see sweep.py): they can be stopped and go on.
"""

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from priorax.checks import one_of
from priorax.experiments.sweep import hours, run_sweep, time_to_learn
from priorax.report.plots import save_figure
from priorax.report.rows import Row, read_rows, write_rows
from priorax.version import __version__

PRESETS = ("quick", "paper")
NAMES = (
    "figure1",
    "figure2",
    "figure3",
    "figure4",
    "figure5",
    "figure6",
    "figure8",
    "figure9",
    "figure10",
    "figure11",
    "figure12",
    "figure13",
    "table1",
    "curves",
    "novelty",
    "ablation",
    "bsuite",
    "bsuite_swingup",
    "bandits",
    "pixels",
    "gymnasium",
)
FILES = {"gymnasium": "gymnasium_tasks"}
"""Where the file has another name, so as not to be taken for a package it uses."""

Report = Callable[[float, str], None]
"""Called with the share of the work done and a word on what is being done."""


class Result(NamedTuple):
    """What an experiment left behind."""

    rows: Sequence[Row]
    paths: list[Path]
    summary: list[tuple[str, ...]]
    """A small table: the first row is its header."""


def reproduce(
    name: str,
    preset: str,
    out: Path,
    report: Report = lambda share, what: None,
    announce: Callable[[str], None] = lambda words: None,
    draw_only: bool = False,
) -> Result:
    """Run one experiment and write its rows and pictures into a folder.

    One of many runs keeps its rows as it goes, in a file of its own for each preset; else nothing is written before it
    is done. `draw_only` draws what rows are there.
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
        announce(f"at most about {most:.1f} hours on two cores; stop it when you like, it goes on from {path}")
        outcome = getattr(module, "outcome", time_to_learn)
        run_sweep(name, preset, module.ladders(preset), path, report, outcome=outcome)
    else:
        stamp = {"experiment": name, "preset": preset, "version": __version__}
        write_rows(path, [{**stamp, **row} for row in module.run(preset, report)])
    rows = read_rows(path)  # what is drawn is what is in the file
    paths = [path, *save_figure(module.figure(rows), out, stem)]
    return Result(rows, paths, module.summary(rows))


def prepare_folder(out: Path) -> None:
    """Make the folder, or say why results cannot be written there, before any work is done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"out={str(out)!r} cannot be made ({error.strerror}); choose another folder") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise PermissionError(f"out={str(out)!r} cannot be written; choose another folder or change its rights")
