"""Figure 13: posterior predictive distributions of four ensembles on eleven points (appendix C.5).

x_i = (i - 5)/5 for i = 0..10, y_i = 5 * 1{i = 10}, (20,20)-MLPs. Expected: the plain ensemble is certain at the data
and to its left; the bootstrap is uncertain to the right only, since on the left every resampled target is zero; l2
towards random weights (BSR) and the additive prior (BSP) are uncertain on both sides.

The paper does not state the scales. Without random biases a Glorot network is linear on each half-line and so is
determined by the data on it: a prior without biases shows almost no uncertainty on the left, nor does l2 towards Glorot
weights. So the prior here has random biases, and BSR starts from (and is pulled towards) wider Gaussian weights.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from priorax.beliefs import L2, method
from priorax.experiments import Report
from priorax.fitting import fit
from priorax.networks import MLP
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
SIZES = {"quick": {"num_members": 20, "steps": 5000}, "full": {"num_members": 100, "steps": 20000}}
X = (np.arange(11) - 5) / 5
Y = 5.0 * (np.arange(11) == 10)
GRID = np.linspace(-2, 2, 121)


def run(budget: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield one row per (method, x), and one per data point.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        report: Called with the fraction of work done and a word on the current work.

    Yields:
        The rows.
    """
    size = SIZES[budget]
    for x, y in zip(X, Y, strict=True):
        yield {"method": "data", "x": float(x), "mean": float(y)}
    for done, name in enumerate(METHODS):
        belief, noise = method(name, num_members=size["num_members"], **SETTINGS[name])
        key_fit, key_values = jax.random.split(jax.random.key(13))

        def progress(step: int, loss: float, done: int = done, name: str = name) -> None:
            report((done + step / size["steps"]) / len(METHODS), METHODS[name])

        state = fit(
            belief, (X[:, None], Y), key=key_fit, noise=noise, steps=size["steps"], batch_size=None, progress=progress
        ).state
        values = np.asarray(belief.functions(state, key_values, GRID[:, None].astype(np.float32)))[:, :, 0]
        for i, x in enumerate(GRID):
            mean, std = float(values[:, i].mean()), float(values[:, i].std())
            yield {"method": name, "x": float(x), "mean": mean, "std": std, "sample": float(values[0, i])}


def figure(rows: list[Row]) -> Figure:
    """Plot four panels, one per method.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 4)
    data = where(rows, method="data")
    for axis, (name, title) in zip(axes[0], METHODS.items(), strict=True):
        own = where(rows, method=name)
        posterior(axis, own, data)
        axis.set(title=title, xlabel="x", ylim=(-12, 18))
    axes[0, 0].set_ylabel("y")
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the uncertainty of each method left of, within and right of the data.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("method", "std at x = -2", "std at the data", "std at x = 2")]
    for name, title in METHODS.items():
        own = where(rows, method=name)
        parts = [[row["std"] for row in own if low <= row["x"] <= high] for low, high in ((-2, -2), (-1, 1), (2, 2))]
        table.append((title, *(f"{np.mean(part):.2f}" for part in parts)))
    return table
