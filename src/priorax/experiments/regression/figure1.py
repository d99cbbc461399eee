"""Figure 1: the posterior and the 'distributional' estimate of a coin after n heads and n tails.

The Beta posterior of p (uniform prior) concentrates at 1/2; C51, trained on the flips, tends to mass at 0 and 1.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from priorax.beliefs import Ensemble
from priorax.experiments import Report
from priorax.fitting import fit
from priorax.heads import C51
from priorax.networks import MLP
from priorax.report.plots import panels
from priorax.report.rows import Row, column, where

COUNTS = (1, 10, 100)
HEAD = C51(0.0, 1.0, 51)
BELIEF = Ensemble(num_members=1, network=MLP((20,)), head=HEAD)
STEPS_PER_FLIP = {"quick": 20, "full": 20}
GRID = np.linspace(0, 1, 201)
COLOURS = ("#9ecae1", "#4292c6", "#08306b")


def run(budget: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield one row per (estimate, n, p). C51 trains for steps in proportion to the flips, as an online learner would.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        report: Called with the fraction of work done and a word on the current work.

    Yields:
        The rows.
    """
    for done, n in enumerate(COUNTS):
        for p in GRID:
            yield {"estimate": "posterior", "n": n, "p": float(p), "height": float(stats.beta.pdf(p, 1 + n, 1 + n))}
        flips = np.arange(2 * n) % 2
        steps = STEPS_PER_FLIP[budget] * 2 * n
        state = fit(
            BELIEF, (np.ones((2 * n, 1)), flips.astype(np.float32)), key=jax.random.key(1), steps=steps, batch_size=None
        ).state
        mass = jax.nn.softmax(BELIEF.forward(state, jax.random.key(0), np.ones((1, 1)), shared=True)[0, 0, 0])
        for atom, height in zip(np.asarray(HEAD.atoms), np.asarray(mass), strict=True):
            yield {"estimate": "distributional", "n": n, "p": float(atom), "height": float(height)}
        report((done + 1) / len(COUNTS), f"n = {n}")


def figure(rows: list[Row]) -> Figure:
    """Plot the densities of the posterior (left) and the masses of C51 (right).

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=4.4, height=3.0, share=False)
    left, right = axes[0]
    for n, colour in zip(COUNTS, COLOURS, strict=True):
        own = where(rows, estimate="posterior", n=n)
        left.plot(column(own, "p"), column(own, "height"), color=colour, lw=2, label=f"n = {n}")
        own = where(rows, estimate="distributional", n=n)
        right.plot(column(own, "p"), column(own, "height"), color=colour, lw=1.5, marker=".", label=f"n = {n}")
    left.set(title="posterior of p: concentrates at 1/2", xlabel="p", ylabel="density")
    right.set(title="'distributional' (C51): mass at 0 and 1", xlabel="outcome", ylabel="mass")
    left.legend(frameon=False)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the standard deviations of both.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("flips", "posterior std of p", "C51 std", "C51 mass at 0 and 1")]
    for n in COUNTS:
        own = where(rows, estimate="distributional", n=n)
        p, mass = np.array(column(own, "p")), np.array(column(own, "height"))
        std = np.sqrt(mass @ p**2 - (mass @ p) ** 2)
        beta = stats.beta(1 + n, 1 + n).std()
        table.append((f"{n} heads, {n} tails", f"{beta:.3f}", f"{std:.3f}", f"{mass[0] + mass[-1]:.3f}"))
    return table
