"""Figure 12: the spread of dropout does not shrink with more data; that of the bootstrap does (appendix C.1).

(20,20)-MLPs on y = x + sin(4x) + N(0, 0.5²), x uniform on [-1, 1], with 10x more data in each column.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from priorax.beliefs import method
from priorax.experiments import Report
from priorax.fitting import fit
from priorax.networks import MLP
from priorax.report.plots import legend_below, panels, posterior
from priorax.report.rows import Row, where

NETWORK = MLP((20, 20))
METHODS = {"dropout": "dropout, p = 0.5", "bs": "bootstrap"}
SETTINGS: dict[str, dict[str, Any]] = {"dropout": {"p_keep": 0.5}, "bs": {"num_members": 20}}
COUNTS = (20, 200, 2000)
STEPS = {"quick": 5000, "full": 20000}
NOISE_STD = 0.5
GRID = np.linspace(-2, 2, 121)


def run(budget: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield one row per (method, n, x), and one per data point.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        report: Called with the fraction of work done and a word on the current work.

    Yields:
        The rows.
    """
    random = np.random.default_rng(12)
    x = random.uniform(-1, 1, max(COUNTS))
    y = x + np.sin(4 * x) + NOISE_STD * random.standard_normal(len(x))
    for i in range(len(x)):
        yield {"method": "data", "order": i, "x": float(x[i]), "mean": float(y[i])}
    work = [(name, n) for name in METHODS for n in COUNTS]
    for done, (name, n) in enumerate(work):
        belief, noise = method(name, network=NETWORK, **SETTINGS[name])
        key_fit, key_values = jax.random.split(jax.random.key(n))

        def progress(step: int, loss: float, done: int = done, what: str = f"{METHODS[name]}, n = {n}") -> None:
            report((done + step / STEPS[budget]) / len(work), what)

        data = (x[:n, None].astype(np.float32), y[:n])
        state = fit(belief, data, key=key_fit, noise=noise, steps=STEPS[budget], progress=progress).state
        inputs = GRID[:, None].astype(np.float32)
        values = np.asarray(belief.functions(state, key_values, inputs, num_draws=200))[:, :, 0]
        for i, at in enumerate(GRID):
            mean, std = float(values[:, i].mean()), float(values[:, i].std())
            yield {"method": name, "n": n, "x": float(at), "mean": mean, "std": std, "sample": float(values[0, i])}


def figure(rows: list[Row]) -> Figure:
    """Plot methods in rows, with more data to the right.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(len(METHODS), len(COUNTS))
    points = where(rows, method="data")
    for line, (name, title) in zip(axes, METHODS.items(), strict=True):
        for axis, n in zip(line, COUNTS, strict=True):
            own, data = where(rows, method=name, n=n), [row for row in points if row["order"] < n]
            posterior(axis, own, data)
            axis.set(title=f"{title}, n = {n}", ylim=(-5, 5))
        line[0].set_ylabel("y")
    for axis in axes[-1]:
        axis.set_xlabel("x")
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the spread at the data for growing n.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("method", *(f"std at the data, n = {n}" for n in COUNTS))]
    for name, title in METHODS.items():
        stds = []
        for n in COUNTS:
            stds.append(np.mean([row["std"] for row in where(rows, method=name, n=n) if abs(row["x"]) <= 1]))
        table.append((title, *(f"{std:.3f}" for std in stds)))
    return table
