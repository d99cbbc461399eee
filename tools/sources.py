"""What the texts say, computed from the rows in results/: one small function for each kind of statement."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from priorax.experiments import experiment, rows_of
from priorax.report.intervals import median_interval
from priorax.report.learning_times import seeds_of
from priorax.report.rows import Row, where

ROOT = Path(__file__).parent.parent
SOURCES: dict[str, Callable[..., str]] = {}


def source(name: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a source.

    Args:
        name: Its name in texts.

    Returns:
        A decorator.
    """

    def register(function: Callable[..., str]) -> Callable[..., str]:
        SOURCES[name] = function
        return function

    return register


@functools.cache
def rows(name: str, budget: str = "full") -> list[Row]:
    """Read the rows of an experiment once.

    Args:
        name: Name of the experiment.
        budget: Size of the experiment.

    Returns:
        The rows.
    """
    return rows_of(name, budget, ROOT / "results")


def table(lines: list[tuple[str, ...]]) -> str:
    """Format a table as Markdown.

    Args:
        lines: A header, then rows.

    Returns:
        The Markdown text.
    """
    header, *body = [tuple(cell.replace("|", "/") for cell in line) for line in lines]
    parts = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(line)} |" for line in body)]
    return "\n".join(parts)


@source("summary")
def summary(name: str, budget: str = "full") -> str:
    """The table that `priorax reproduce` prints."""
    return table(experiment(name).summary(rows(name, budget)))


@source("tabular")
def tabular(kind: str, budget: str = "full") -> str:
    """The table of `priorax benchmark tabular`: of regressions (`number`) or classifications (`class`)."""
    return table(experiment("tabular").summary(rows("tabular", budget), kind))


@source("time")
def time(name: str, method: str, N: str, budget: str = "full") -> str:
    """The median time to learn DeepSea, with its interval."""
    return median_interval(seeds_of(rows(name, budget), name=method.replace("_", " "), size=int(N))).words()


@source("median")
def median(name: str, method: str, N: str, budget: str = "full") -> str:
    """The median time to learn DeepSea."""
    return f"{median_interval(seeds_of(rows(name, budget), name=method.replace('_', ' '), size=int(N))).value:,.0f}"


@source("learned")
def learned(name: str, method: str, N: str, budget: str = "full") -> str:
    """How many runs learned DeepSea."""
    found = seeds_of(rows(name, budget), name=method.replace("_", " "), size=int(N))
    return f"{int(np.sum(np.isfinite(found)))} of {len(found)}"


@source("largest")
def largest(name: str, method: str, share: str = "all", budget: str = "full") -> str:
    """The largest DeepSea that all, most or any runs of a method learned."""
    mine = where(rows(name, budget), name=method.replace("_", " "))
    least = {"all": 1.0, "most": 0.500001, "any": 1e-9}[share]
    sizes = sorted({row["size"] for row in mine})
    good = [size for size in sizes if np.mean(np.isfinite(seeds_of(mine, size=size))) >= least]
    return str(max(good, default=0))


@source("exponent")
def exponent(method: str = "bsp", least: str = "0", unit: str = "episodes_to_learn", budget: str = "full") -> str:
    """The exponent of N in the time to learn, with its interval."""
    return experiment("figure8").slope(rows("figure3", budget), int(least), method.replace("_", " "), unit).words(".2f")


@source("deep_sea")
def deep_sea(budget: str = "full") -> str:
    """A table of the median times of BSP with their intervals, by size."""
    mine = where(rows("figure3", budget), name="bsp")
    sizes = sorted({row["size"] for row in mine})
    estimates = [median_interval(seeds_of(mine, size=size)) for size in sizes]
    lines = [("N", *map(str, sizes)), ("median episodes", *(f"{found.value:,.0f}" for found in estimates))]
    return table([*lines, ("95% interval", *(f"{found.low:,.0f} to {found.high:,.0f}" for found in estimates))])


@source("benchmark")
def benchmark(name: str, part: str = "measured", form: str = ".1f") -> str:
    """A number of benchmarks/results.json; underscores in names stand for spaces."""
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    return format(found[name.replace("_", " ")][part], form)
