"""One module per figure or table of the paper.

`run(budget, report)` yields rows, `figure(rows)` plots them without training, and `summary(rows)` tabulates what they
show. Experiments that consist of many runs have `ladders(budget)` instead of `run` (see `sweep`): they can be
interrupted and continued. An experiment with `SAME_RUNS = "other"` shows the rows of another one. `SEARCHED` lists
the agents whose settings are chosen by the equal search (`search`).
"""

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from priorax.checks import one_of
from priorax.experiments.deep_sea.search import check_choices
from priorax.experiments.sweep import hours, run_sweep, runnable, select, stamp, time_to_learn
from priorax.names import EXPERIMENTS
from priorax.report.plots import save_figure
from priorax.report.rows import Row, read_rows, write_rows

BUDGETS = ("quick", "full")
NAMES = tuple(EXPERIMENTS)

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
    budget: str,
    out: Path,
    report: Report = lambda share, what: None,
    announce: Callable[[str], None] = lambda words: None,
    draw_only: bool = False,
    **part: Any,
) -> Result:
    """Run an experiment and write its rows and figures to a folder.

    Experiments that consist of many runs write rows as runs finish; others write nothing before they are done.

    Args:
        name: Name of the experiment, one of `NAMES`.
        budget: Size of the experiment, `quick` or `full`.
        out: The folder to write to; it is created.
        report: Called with the fraction of work done and a word on the current work.
        announce: Called with messages for the user, such as the expected duration.
        draw_only: Whether to draw existing rows without running anything.
        **part: Further arguments of the experiment's `ladders`, to run and show part of it.

    Returns:
        Rows, files and a summary table.

    Raises:
        ValueError: If the name or the budget is unknown, or if `full` needs settings that the equal search has not
            chosen yet.
        FileNotFoundError: If there are no rows to draw.
        OSError: If the folder cannot be written.
    """
    module = experiment(name)
    one_of("budget", budget, BUDGETS)
    prepare_folder(out)
    path = rows_path(name, budget, out)
    if draw_only:
        if not path.exists():
            raise FileNotFoundError(f"there are no rows in {path} to draw; run the experiment first")
    elif hasattr(module, "ladders"):
        ladders, skipped = runnable(module.ladders(budget, **part))
        for words in skipped:
            announce(words)
        if warning := check_choices(name, getattr(module, "SEARCHED", ()), budget):
            announce(warning)
        if budget == "full" and hasattr(module, "NEEDS"):
            announce(module.NEEDS)
        most = hours(ladders)
        bound = f"at most about {most:.1f} hours on two cores; " if most else ""
        announce(f"{bound}it can be stopped at any time, and continues from {path}")
        outcome = getattr(module, "outcome", time_to_learn)
        run_sweep(getattr(module, "SAME_RUNS", name), budget, ladders, path, report, outcome)
    else:
        made = stamp(name, budget)
        write_rows(path, [{**made, **row} for row in module.run(budget, report)])
    rows = rows_of(name, budget, out, **part)  # what is drawn is what is in the file
    picture = f"{name}_{budget}_part" if part else f"{name}_{budget}"
    paths = [path, *save_figure(module.figure(rows), out, picture)]
    return Result(rows, paths, module.summary(rows))


def experiment(name: str) -> Any:
    """Import the module of an experiment.

    Args:
        name: Name of the experiment, one of `NAMES`.

    Returns:
        The module.

    Raises:
        ValueError: If the name is unknown.
    """
    one_of("name", name, NAMES)
    return importlib.import_module(f"priorax.experiments.{EXPERIMENTS[name]}")


def rows_path(name: str, budget: str, out: Path) -> Path:
    """Name the CSV file of an experiment.

    Args:
        name: Name of the experiment.
        budget: Size of the experiment, `quick` or `full`.
        out: The folder of results.

    Returns:
        The path.
    """
    return out / f"{getattr(experiment(name), 'SAME_RUNS', name)}_{budget}.csv"


def rows_of(name: str, budget: str, out: Path, **part: Any) -> list[Row]:
    """Read the rows of an experiment.

    Args:
        name: Name of the experiment.
        budget: Size of the experiment, `quick` or `full`.
        out: The folder of results.
        **part: Further arguments of the experiment's `ladders`.

    Returns:
        The rows; of an experiment that consists of many runs, those of its own runs.

    Raises:
        FileNotFoundError: If there are none.
    """
    module, path = experiment(name), rows_path(name, budget, out)
    found = select(path, module.ladders(budget, **part)) if hasattr(module, "ladders") else list[Row](read_rows(path))
    if not found:
        raise FileNotFoundError(f"there are no rows of {name} in {path} that this version made; run the experiment")
    return found


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
