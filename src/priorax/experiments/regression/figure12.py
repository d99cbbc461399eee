"""Figure 12: the spread of dropout does not shrink with more data; that of the bootstrap does (appendix C.1).

(20,20)-MLPs on y = x + sin(4x) + N(0, 0.5²), x uniform on [-1, 1], with 10x more data in each column. The picture shows
one draw of the data; the statement is measured on all draws, each with its own data, initialisation and noise.
"""

from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.beliefs import method as make_method
from priorax.fitting import fit
from priorax.networks import MLP
from priorax.report.intervals import Estimate, median_interval
from priorax.report.plots import legend_below, panels, posterior
from priorax.report.rows import Row, where

NETWORK = MLP((20, 20))
METHODS = {"dropout": "dropout, p = 0.5", "bs": "bootstrap"}
SETTINGS: dict[str, dict[str, Any]] = {"dropout": {"p_keep": 0.5}, "bs": {"num_members": 20}}
COUNTS = (20, 200, 2000)
STEPS = {"quick": 5000, "full": 20000}
DRAWS = {"quick": 1, "full": 20}
NOISE_STD = 0.5
GRID = np.linspace(-2, 2, 121)
SHOWN = 1.0
"""Largest |x| in the picture, that of the data; beyond it some members extrapolate so far that nothing else is seen."""


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the largest data set; smaller ones are its beginning.

    Args:
        seed: Random seed.

    Returns:
        Inputs and targets.
    """
    random = np.random.default_rng(12 + seed)
    x = random.uniform(-1, 1, max(COUNTS))
    return x, x + np.sin(4 * x) + NOISE_STD * random.standard_normal(len(x))


def spread(method: str, n: int, seed: int, steps: int) -> list[dict[str, Any]]:
    """Fit a method to n examples and measure its predictions.

    Args:
        method: Name of the method.
        n: Number of examples.
        seed: Seed of the data, the initialisation and the noise.
        steps: Number of optimiser steps.

    Returns:
        One row with the mean spread at the data; for the first seed also one for each x, for the picture.
    """
    belief, noise = make_method(method, network=NETWORK, **SETTINGS[method])
    key_fit, key_values = jax.random.split(jax.random.key(1000 * seed + n))
    x, y = data(seed)
    state = fit(belief, (x[:n, None].astype(np.float32), y[:n]), key=key_fit, noise=noise, steps=steps).state
    values = np.asarray(belief.functions(state, key_values, GRID[:, None].astype(np.float32), num_draws=200))[:, :, 0]
    stds = values.std(axis=0)
    found = [{"kind": "spread", "std": float(stds[np.abs(GRID) <= 1].mean())}]
    if seed == 0:
        for i, at in enumerate(GRID):
            shown = {"x": float(at), "mean": float(values[:, i].mean()), "std": float(stds[i])}
            found.append({"kind": "curve", **shown, "sample": float(values[0, i])})
    return found


def ladders(budget: str) -> list[Any]:
    """List every fit separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [[Task(method, {"method": method, "n": n, "seed": seed, "steps": STEPS[budget]}, spread)]]
        for seed in range(DRAWS[budget])
        for method in METHODS
        for n in COUNTS
    ]


def figure(rows: list[Row]) -> Figure:
    """Plot methods in rows, with more data to the right.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(len(METHODS), len(COUNTS))
    x, y = data(0)
    for line, (name, title) in zip(axes, METHODS.items(), strict=True):
        for axis, n in zip(line, COUNTS, strict=True):
            own = [row for row in where(rows, method=name, n=n, kind="curve") if abs(row["x"]) <= SHOWN]
            posterior(axis, own, [{"x": a, "mean": b} for a, b in zip(x[:n], y[:n], strict=True)])
            axis.set(title=f"{title}, n = {n:,}")
        line[0].set_ylabel("y")
    for axis in axes[-1]:
        axis.set_xlabel("x")
    legend_below(drawing, axes[0, 0])
    return drawing


def spread_at_data(rows: list[Row], name: str, n: int) -> Estimate:
    """Estimate the spread at the data: the median over draws of the data.

    Args:
        rows: Rows of the experiment.
        name: Name of the method.
        n: Number of examples.

    Returns:
        The median and its 95% interval.
    """
    return median_interval([row["std"] for row in where(rows, method=name, n=n, kind="spread")])


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the spread at the data for growing n.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("method", *(f"std at the data, n = {n:,}" for n in COUNTS))]
    for name, title in METHODS.items():
        table.append((title, *(spread_at_data(rows, name, n).words(".3f") for n in COUNTS)))
    return table
