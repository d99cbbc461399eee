"""A model of the throughput of a distributed run, and what a run costs by it or by measured rates."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from priorax.report.rows import Row

ACTIONS = 50_000_000
"""Actions of a run of 200 million frames, of which an action sees four."""
DOLLARS = 0.34 / 8
"""Assumed price of a virtual core for an hour, of the order of what clouds ask on demand."""
CORES = 2
"""Cores of the machine of benchmarks/results.json."""
RATIOS = (4, 640)
"""Actions per update of the preset `small`, and of Ape-X."""


class Model(NamedTuple):
    """Actions per second: actors act in proportion to their number, up to a limit."""

    one_actor: float
    """Actions per second of one actor."""
    limit: float
    """Actions per second that the learner, or the cores of a machine, can keep up with."""

    def rate(self, actors: int) -> float:
        """Compute the throughput.

        Args:
            actors: Number of actors.

        Returns:
            Actions per second.
        """
        return min(actors * self.one_actor, self.limit)

    def error(self, actors: Sequence[int], rates: Sequence[float]) -> float:
        """Compute the distance to measured rates.

        Args:
            actors: Numbers of actors.
            rates: Measured actions per second.

        Returns:
            The sum of squared differences of logarithms.
        """
        return sum((math.log(self.rate(n)) - math.log(rate)) ** 2 for n, rate in zip(actors, rates, strict=True))


def fitted(actors: Sequence[int], rates: Sequence[float]) -> Model:
    """Fit the model to measured rates.

    Args:
        actors: Numbers of actors, in increasing order.
        rates: Measured actions per second.

    Returns:
        Of the models whose limit begins after one of these numbers, the nearest; its limit is infinite if no number of
        actors reaches it.
    """
    logs = [math.log(rate) for rate in rates]
    slopes = [log - math.log(n) for log, n in zip(logs, actors, strict=True)]

    def begun_after(k: int) -> Model:
        limit = math.exp(sum(logs[k:]) / len(logs[k:])) if logs[k:] else math.inf
        return Model(math.exp(sum(slopes[:k]) / k), limit)

    return min(map(begun_after, range(len(logs), 0, -1)), key=lambda model: round(model.error(actors, rates), 9))


def measured_beside_model(rows: Sequence[Row], one_actor: float, update: float) -> list[tuple[str, ...]]:
    """Compare measured rates with the model, fitted to them and of unit costs.

    Args:
        rows: Rows of `python -m benchmarks.actors`.
        one_actor: Actions per second of an actor that has the machine to itself.
        update: Seconds of an update of a learner that has the machine to itself.

    Returns:
        A header, then rows of a table.
    """
    lines: list[tuple[str, ...]] = [
        ("actions per update", "actors", "actions per second", "fitted model", "model of unit costs")
    ]
    for every in sorted({int(row["learn_every"]) for row in rows}):
        mine = sorted((row for row in rows if row["learn_every"] == every), key=lambda row: int(row["actors"]))
        numbers = [int(row["actors"]) for row in mine]
        rates = [float(row["actions_per_second"]) for row in mine]
        models = (fitted(numbers, rates), Model(one_actor, every / update))
        for count, rate in zip(numbers, rates, strict=True):
            lines.append(
                (f"{every}", f"{count}", *(f"{each:,.0f}" for each in (rate, *(m.rate(count) for m in models))))
            )
    return lines


def costs_by_rate(rows: Sequence[Row], one_actor: float, update: float) -> list[tuple[str, ...]]:
    """Compute what `ACTIONS` actions cost: by the model, if nobody waits for anybody, and by the fastest measured rate.

    In the model an action takes the time of acting and its share of an update; several machines take the same in all.

    Args:
        rows: Rows of `python -m benchmarks.actors`.
        one_actor: Actions per second of an actor that has a machine with two cores to itself.
        update: Seconds of an update of a learner that has such a machine to itself.

    Returns:
        A header, then rows of a table.
    """
    lines: list[tuple[str, ...]] = [("rate", "actions per update", "actions per second", "machine hours", "dollars")]

    def add(source: str, every: int, rate: float, cores: int) -> None:
        hours = ACTIONS / rate / 3600
        lines.append((source, f"{every}", f"{rate:,.0f}", f"{hours:,.0f}", f"{hours * cores * DOLLARS:,.2f}"))

    for every in RATIOS:
        add("model of unit costs", every, 1 / (1 / one_actor + update / every), CORES)
    fastest = {int(row["learn_every"]): row for row in sorted(rows, key=lambda row: float(row["actions_per_second"]))}
    for every, row in sorted(fastest.items()):
        add(f"measured, {row['actors']} actors", every, float(row["actions_per_second"]), int(row["cores"]))
    return lines
