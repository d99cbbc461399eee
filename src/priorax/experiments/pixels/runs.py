"""Tasks, rows and curves of the experiments from pixels (figure 6 and `pixels`)."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from priorax.analysis.parallel import Task
from priorax.report.rows import Row, column, where
from priorax.training.records import Episode, Result

BLOCKS = 20
"""Rows per run."""
WINDOW = 100


def host_task(name: str, agent: str, env: str, seed: int, steps: int, size: int = 1, **more: Any) -> Task:
    """Define one run on the host.

    Args:
        name: Name of the run's group in the rows.
        agent: Name of the agent.
        env: Name of the environment.
        seed: Random seed.
        steps: Environment steps, over all lanes.
        size: Size of the environment.
        **more: `game`, `stop`, and changes to the preset `small`.

    Returns:
        The task.
    """
    own: dict[str, Any] = {key: more.pop(key) for key in ("game", "stop") if key in more}
    arguments = {"agent": agent, "env": env, "size": size, "seed": seed, "steps": steps, "changes": more}
    return Task(name, {**arguments, "preset": "small", **own})


def found_treasure(history: Sequence[Episode]) -> bool:
    """Check whether half of the last 100 episodes ended at the treasure.

    Args:
        history: The episodes of a run.
    """
    last = history[-WINDOW:]
    return len(last) == WINDOW and sum(row.total_return > 0.5 for row in last) >= WINDOW / 2


def outcome(result: Result) -> list[dict[str, Any]]:
    """Make one row for each twentieth of a run: the mean return of its episodes, and the distinct states so far.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    rows = []
    edges = np.linspace(0, result.steps, BLOCKS + 1)
    for begin, end in itertools.pairwise(edges):
        until = [row for row in result.history if row.step <= end]
        returns = [row.total_return for row in until if row.step > begin]
        rows.append(
            {
                "step": round(end),
                "episodes": len(until),
                "mean_return": round(float(np.mean(returns)), 3) if returns else None,
                "best": round(max((row.total_return for row in until), default=0.0), 3),
                "cells": until[-1].cells if until else 0,
            }
        )
    rows[-1]["cells"] = result.cells
    return rows


def curves(axis: Axes, rows: list[Row], what: str, looks: dict[str, tuple[str, str]]) -> None:
    """Plot one line for each seed of each agent against environment steps.

    Args:
        axis: The axes to draw on.
        rows: Rows of the experiment.
        what: The column to plot.
        looks: Label and colour by name.
    """
    for name, (label, color) in looks.items():
        for i, seed in enumerate(sorted({row["seed"] for row in where(rows, name=name)})):
            mine = [row for row in where(rows, name=name, seed=seed) if row.get(what) is not None]
            words = label if i == 0 else None
            axis.plot(column(mine, "step"), column(mine, what), color=color, lw=1.4, alpha=0.85, label=words)
    axis.set_xlabel("actions (each four frames), all lanes")


def last(rows: list[Row], name: str, what: str) -> dict[int, Any]:
    """Return the final value of a column for each seed.

    Args:
        rows: Rows of the experiment.
        name: Name of the agent.
        what: The column.

    Returns:
        The value by seed.
    """
    seeds = sorted({row["seed"] for row in where(rows, name=name)})
    found = {seed: [row.get(what) for row in where(rows, name=name, seed=seed)] for seed in seeds}
    return {seed: next((x for x in reversed(numbers) if x is not None), None) for seed, numbers in found.items()}


def words(numbers: dict[int, Any]) -> str:
    """Format numbers of several seeds.

    Args:
        numbers: A number for each seed.

    Returns:
        The text.
    """
    return ", ".join("none" if number is None else f"{number:g}" for number in numbers.values())
