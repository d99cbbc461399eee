"""Ratios against a peer, in one run on the same work: best of interleaved repeats."""

import time
from collections.abc import Callable
from typing import NamedTuple


class Bench(NamedTuple):
    """One measured promise."""

    name: str
    measured: float
    target: float
    at_least: bool
    """Whether more is better."""
    note: str = ""

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.at_least else self.measured <= self.target


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_interleaved(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least time of each work, taking turns, so that a busy moment of the machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: min(values) for name, values in times.items()}
