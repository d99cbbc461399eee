"""Ctrl-C and SIGTERM as flags that a training loop checks when its files are consistent."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupt:
    """The signal received, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def came(self) -> bool:
        """Whether the loop should save and stop."""
        return self.signal is not None

    def stop(self) -> None:
        """Raise the exception of the signal.

        Raises:
            KeyboardInterrupt: After Ctrl-C.
            SystemExit: After SIGTERM, with the exit code of shells for it, 143.
        """
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise SystemExit(128 + self.signal)


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Turn the first SIGINT or SIGTERM within the block into a flag; a second one takes effect immediately.

    An exception from a signal handler can occur between any two lines, and inside callbacks that suppress it; a flag is
    checked between chunks of steps. Signals that the process ignores remain ignored. Signals only reach the main
    thread: in other threads the flag is never set.

    Returns:
        A context manager that gives the flag.
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
