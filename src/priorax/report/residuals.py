"""Residuals of a regression on rows with a known target."""

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from priorax.report.plots import BAND, MEAN, SAMPLE, panels, plain_ticks

MOST_POINTS = 1000
"""Maximum number of rows that are drawn, evenly spaced."""


def figure(truth: np.ndarray, mean: np.ndarray, std: np.ndarray) -> Figure:
    """Plot predictions against true values, residuals against predictions, and the distribution of residuals.

    Args:
        truth: True values.
        mean: Predicted means.
        std: Predicted total standard deviations.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 3, share=False)
    left, middle, right = axes[0]
    shown = np.unique(np.linspace(0, len(truth) - 1, MOST_POINTS).astype(int))
    x, y, error = mean[shown], truth[shown], std[shown]
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    left.plot(ends, ends, color=BAND, ls="--", lw=1.0)
    left.errorbar(x, y, xerr=error, fmt="o", ms=3, color=MEAN, ecolor=BAND, elinewidth=0.6, alpha=0.7)
    left.set(xlabel="predicted (± 1 total std)", ylabel="true value", title="true against predicted")
    order = np.argsort(x)
    middle.fill_between(x[order], -2 * error[order], 2 * error[order], color=BAND, alpha=0.25, lw=0)
    middle.axhline(0.0, color=BAND, ls="--", lw=1.0)
    middle.plot(x, y - x, "o", ms=3, color=MEAN, alpha=0.7)
    middle.set(xlabel="predicted", ylabel="true − predicted", title="residuals, and ± 2 total std")
    scores = np.clip((truth - mean) / std, -5, 5)
    grid = np.linspace(-5, 5, 200)
    right.hist(scores, bins=np.linspace(-5, 5, 31), density=True, color=MEAN, alpha=0.7)
    right.plot(grid, norm.pdf(grid), color=SAMPLE, lw=1.5)
    right.set(xlabel="residual / total std", ylabel="density", title="residuals in their own unit", xlim=(-5, 5))
    for axis in (left, middle):
        axis.locator_params(axis="x", nbins=4)
        plain_ticks(axis.xaxis)
        plain_ticks(axis.yaxis)
    return drawing
