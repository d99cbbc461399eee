"""Progress bars: one look for all long work."""

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

console = Console()


def say(words: str, to: Console = console) -> None:
    """One line, as it is."""
    to.print(words, soft_wrap=True, highlight=False, markup=False)


@contextmanager
def _shown(bar: Progress) -> Iterator[Progress]:
    """A bar that is taken away again where an error ends it: the error says more. Ctrl-C leaves it."""
    bar.start()
    try:
        yield bar
    except Exception:
        bar.live.transient = True
        bar.live.stop()  # not the bar's own, which ends with an empty line
        raise
    except BaseException:
        bar.stop()
        raise
    bar.stop()


@contextmanager
def count_bar(total: int, name: str, to: Console = console) -> Iterator[Callable[[int, str], None]]:
    """A bar over things done, out of a total, with a note beside it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with _shown(Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[note]}"), console=to)) as bar:
        task = bar.add_task(name, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)


@contextmanager
def steps_bar(show: bool, total: int, name: str) -> Iterator[Callable[[int, float], None] | None]:
    """A bar over training steps with the loss beside it, as a callback for `fit`; None when not shown."""
    if not show:
        yield None
        return
    with count_bar(total, name) as update:
        yield lambda done, loss: update(done, f"loss {loss:.4g}")


@contextmanager
def share_bar(name: str) -> Iterator[Callable[[float, str], None]]:
    """A bar over the share of work done, with a word on what is being done."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with _shown(Progress(*columns, TextColumn("{task.fields[what]}"), console=console)) as bar:
        task = bar.add_task(name, total=1.0, what="")
        yield lambda share, what: bar.update(task, completed=share, what=what)
