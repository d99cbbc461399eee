"""Figure 13: posterior predictive distributions of four ensembles on eleven points (appendix C.5).

x_i = (i - 5)/5 for i = 0..10, y_i = 5 * 1{i = 10}, (20,20)-MLPs. Expected: the plain ensemble is certain at the data
and to its left; the bootstrap is uncertain to the right only, since on the left every resampled target is zero; l2
towards random weights (BSR) and the additive prior (BSP) are uncertain on both sides.

The paper does not state the scales. Without random biases a Glorot network is linear on each half-line and so is
determined by the data on it: a prior without biases shows almost no uncertainty on the left, nor does l2 towards Glorot
weights. So the prior here has random biases, and BSR starts from (and is regularised towards) wider Gaussian weights.

The picture shows one seed; the statements are measured on all seeds, each with its own members and bootstrap.
"""

from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.beliefs import L2
from priorax.beliefs import method as make_method
from priorax.fitting import fit
from priorax.networks import MLP
from priorax.report.intervals import Estimate, median_interval
from priorax.report.plots import legend_below, panels, posterior
from priorax.report.rows import Row, where

METHODS = {
    "ensemble": "ensemble",
    "bs": "bootstrap (BS)",
    "bsr": "bootstrap + l2 (BSR)",
    "bsp": "bootstrap + prior (BSP)",
}
NETWORK = MLP((20, 20))
SETTINGS: dict[str, dict[str, Any]] = {
    "ensemble": {"network": NETWORK},
    "bs": {"network": NETWORK},
    "bsr": {"network": MLP((20, 20), weight_std=0.7, bias_scale=0.7), "l2": L2(weight=0.1, reading="coefficient")},
    "bsp": {"network": NETWORK, "prior": MLP((20, 20), bias_scale=1.0), "prior_scale": 5.0},
}
SIZES = {"quick": {"num_members": 20, "steps": 5000}, "full": {"num_members": 20, "steps": 20000}}
SEEDS = {"quick": 1, "full": 20}
PLACES = {"std at x = -2": (-2, -2), "std at the data": (-1, 1), "std at x = 2": (2, 2)}
"""Where the spread is measured: from, to."""
X = (np.arange(11) - 5) / 5
Y = 5.0 * (np.arange(11) == 10)
GRID = np.linspace(-2, 2, 121)


def predictions(method: str, seed: int, num_members: int, steps: int) -> list[dict[str, Any]]:
    """Fit a method to the eleven points and measure its predictions.

    Args:
        method: Name of the method.
        seed: Seed of the members and the bootstrap.
        num_members: Number of members.
        steps: Number of optimiser steps.

    Returns:
        One row for each x.
    """
    belief, noise = make_method(method, num_members=num_members, **SETTINGS[method])
    key_fit, key_values = jax.random.split(jax.random.key(13 + seed))
    state = fit(belief, (X[:, None], Y), key=key_fit, noise=noise, steps=steps, batch_size=None).state
    values = np.asarray(belief.functions(state, key_values, GRID[:, None].astype(np.float32)))[:, :, 0]
    mean, std = values.mean(axis=0), values.std(axis=0)
    return [
        {"x": float(x), "mean": float(mean[i]), "std": float(std[i]), "sample": float(values[0, i])}
        for i, x in enumerate(GRID)
    ]


def ladders(budget: str) -> list[Any]:
    """List every fit separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [[Task(method, {"method": method, "seed": seed, **SIZES[budget]}, predictions)]]
        for seed in range(SEEDS[budget])
        for method in METHODS
    ]


def figure(rows: list[Row]) -> Figure:
    """Plot four panels, one per method.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 4)
    data = [{"x": float(x), "mean": float(y)} for x, y in zip(X, Y, strict=True)]
    for axis, (name, title) in zip(axes[0], METHODS.items(), strict=True):
        posterior(axis, where(rows, method=name, seed=0), data)
        axis.set(title=title, xlabel="x")
    axes[0, 0].set_ylabel("y")
    legend_below(drawing, axes[0, 0])
    return drawing


def spread(rows: list[Row], name: str, place: str) -> Estimate:
    """Estimate the spread of a method at a place: the median over seeds.

    Args:
        rows: Rows of the experiment.
        name: Name of the method.
        place: One of `PLACES`.

    Returns:
        The median and its 95% interval.
    """
    low, high = PLACES[place]
    mine = where(rows, method=name)
    seeds = sorted({row["seed"] for row in mine})
    stds = [[row["std"] for row in where(mine, seed=seed) if low <= row["x"] <= high] for seed in seeds]
    return median_interval([float(np.mean(part)) for part in stds])


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the uncertainty of each method left of, within and right of the data.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("method", *PLACES)]
    for name, title in METHODS.items():
        table.append((title, *(spread(rows, name, place).words(".2f") for place in PLACES)))
    return table
