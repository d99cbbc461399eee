"""Progress bars."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

console = Console()
"""Standard output."""


def say(words: str, to: Console = console) -> None:
    """Print one line verbatim.

    Args:
        words: The line.
        to: The console to print to.
    """
    to.print(words, soft_wrap=True, highlight=False, markup=False)


@contextmanager
def _shown(bar: Progress) -> Iterator[Progress]:
    """Show a bar, and remove it on errors; after Ctrl-C it remains."""
    bar.start()
    try:
        yield bar
    except Exception:
        bar.live.transient = True
        bar.live.stop()  # Progress.stop would print an empty line
        raise
    except BaseException:
        bar.stop()
        raise
    bar.stop()


@contextmanager
def count_bar(total: int, name: str, to: Console = console) -> Iterator[Callable[[int, str], None]]:
    """Show a progress bar over a number of items.

    Args:
        total: Number of items.
        name: Label of the bar.
        to: The console to draw on.

    Yields:
        A function that takes the number of items done and a note to show beside the bar.
    """
    wide = to.width >= 120
    count = MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=2 * len(str(total)) + 1))
    remaining = TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7))
    columns = (TextColumn("{task.description}"), BarColumn(40 if wide else 6), count)
    more = (TimeElapsedColumn(), remaining) if wide else (remaining,)
    with _shown(Progress(*columns, *more, TextColumn("{task.fields[note]}"), console=to)) as bar:
        task = bar.add_task(name, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


@contextmanager
def steps_bar(show: bool, total: int, name: str) -> Iterator[Callable[[int, float], None] | None]:
    """Show a progress bar over training steps with the loss beside it.

    Args:
        show: Whether to show it.
        total: Number of steps.
        name: Label of the bar.

    Yields:
        A callback for `fit`; None if the bar is not shown.
    """
    if not show:
        yield None
        return
    with count_bar(total, name) as update:
        yield lambda done, loss: update(done, f"loss {loss:.4g}")


@contextmanager
def share_bar(name: str) -> Iterator[Callable[[float, str], None]]:
    """Show a progress bar over a fraction of work done.

    Args:
        name: Label of the bar.

    Yields:
        A function that takes the fraction done and a description of the current work.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with _shown(Progress(*columns, TextColumn("{task.fields[what]}"), console=console)) as bar:
        task = bar.add_task(name, total=1.0, what="")
        yield lambda share, what: bar.update(task, completed=share, what=what)
