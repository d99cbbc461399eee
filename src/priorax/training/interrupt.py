"""Ctrl-C and SIGTERM as flags that a training loop reads where its files agree with each other."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupt:
    """Which signal has come, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def came(self) -> bool:
        """Whether the loop should save and stop."""
        return self.signal is not None

    def stop(self) -> None:
        """Raise what the signal means.

        Raises:
            KeyboardInterrupt: After Ctrl-C.
            SystemExit: After SIGTERM, with the exit code that shells give it, 143.
        """
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise SystemExit(128 + self.signal)


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """While the block runs, the first SIGINT or SIGTERM only sets a flag; a second one acts at once, as without it.

    An exception raised by a signal handler can come between any two lines, and inside callbacks that swallow it. A flag
    is read between two chunks of steps. Signals that the process ignores stay ignored, and only the main thread hears
    any: elsewhere the flag is never set.
    """
    found = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    before = {each: handler for each, handler in before.items() if handler not in (signal.SIG_IGN, None)}

    def hear(number: int, frame: Any) -> None:
        found.signal = number
        for each, handler in before.items():
            signal.signal(each, handler)

    for each in before:
        signal.signal(each, hear)
    try:
        yield found
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
