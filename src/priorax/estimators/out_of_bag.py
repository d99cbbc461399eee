"""Out-of-bag calibration of a regression: noise and residuals from rows that members did not see.

The bootstrap leaves about a third of the rows out of each member's data, so the members that did not see a row predict
it as they would predict a new one. Everything is in units of the standardised target.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

ROWS = 2048
"""Maximum number of rows, evenly spaced, that are used and kept for intervals."""
SCALES = np.exp(np.linspace(np.log(1e-3), np.log(10.0), 185))
"""Noise scales among which the most likely one is chosen, about 5% apart."""
INTERVAL_METHODS = ("scaled", "jackknife")
"""How intervals are made of out-of-bag residuals (`PriorEnsembleRegressor.predict_interval`)."""
LEAST = 1e-6
"""Lower bound of a variance, so that data without noise has a finite likelihood."""


class OutOfBag(NamedTuple):
    """Predictions of rows, for one output, by the members that did not see them."""

    residual: Float[np.ndarray, " row"]
    """Target minus mean prediction."""
    disagreement: Float[np.ndarray, " row"]
    """Variance between members."""
    noise: Float[np.ndarray, " row"]
    """Variance of the noise as the members predict it; one if they do not."""
    weight: Float[np.ndarray, " row"]
    """Sample weights; zero for rows that too few members left out."""


def out_of_bag(
    values: Float[np.ndarray, "member row"],
    noise: Float[np.ndarray, "member row"],
    unseen: Bool[np.ndarray, "row member"],
    target: Float[np.ndarray, " row"],
    weight: Float[np.ndarray, " row"],
) -> OutOfBag:
    """Combine, for each row, the members that did not see it.

    Args:
        values: Mean predictions.
        noise: Predicted standard deviations of the noise.
        unseen: Whether a member did not see a row.
        target: Targets.
        weight: Sample weights.

    Returns:
        The combined predictions.
    """
    share = unseen.T.astype(np.float64)
    count = np.maximum(share.sum(axis=0), 1.0)
    mean = (share * values).sum(axis=0) / count
    spread = (share * (values - mean) ** 2).sum(axis=0) / np.maximum(count - 1, 1)
    enough = share.sum(axis=0) >= min(len(values), 2)
    return OutOfBag(
        target - mean,
        spread,
        (share * noise**2).sum(axis=0) / count,
        np.where(enough, weight, 0.0),
    )


def log_loss(rows: OutOfBag, scale: float) -> Float[np.ndarray, " row"]:
    """Compute the negative log likelihood of each row under a normal distribution.

    Args:
        rows: Out-of-bag predictions.
        scale: Factor of the standard deviation of the noise.

    Returns:
        The losses, without the constant.
    """
    variance = np.maximum(rows.disagreement + scale**2 * rows.noise, LEAST)
    return 0.5 * (np.log(variance) + rows.residual**2 / variance)


def noise_scale(rows: OutOfBag) -> float:
    """Find the factor of the noise under which the residuals are most likely.

    Args:
        rows: Out-of-bag predictions.

    Returns:
        The factor; one if there are no rows.
    """
    if not np.any(rows.weight > 0):
        return 1.0
    losses = [float(rows.weight @ log_loss(rows, scale)) for scale in SCALES]
    return float(SCALES[int(np.argmin(losses))])


def scores(rows: OutOfBag, scale: float) -> Float[np.ndarray, " row"]:
    """Divide absolute residuals by the predicted total standard deviation.

    Args:
        rows: Out-of-bag predictions.
        scale: Factor of the noise.

    Returns:
        The scores; their quantiles are half-widths of intervals in units of the total standard deviation.
    """
    return np.abs(rows.residual) / np.sqrt(np.maximum(rows.disagreement + scale**2 * rows.noise, LEAST))


def conformal_quantile(values: np.ndarray, level: float, weight: np.ndarray | None = None) -> float:
    """Compute the quantile that a new value exceeds with probability at most 1 - level, if values are exchangeable.

    Args:
        values: The values [n].
        level: The level, between 0 and 1.
        weight: Weights [n]; None weighs all equally.

    Returns:
        The ceil((n + 1) level)-th smallest value; infinity if n is too small for the level.
    """
    order = np.argsort(values, kind="stable")
    weight = np.ones(len(values)) if weight is None else weight * np.sum(weight > 0) / max(np.sum(weight), LEAST)
    reached = np.cumsum(weight[order]) >= level * (weight.sum() + 1) - 1e-9
    return float(values[order][np.argmax(reached)]) if np.any(reached) else np.inf


def rows_for(coverage: float) -> int:
    """Compute the number of rows below which `conformal_quantile` is infinite.

    Args:
        coverage: Nominal coverage.

    Returns:
        The number of rows.
    """
    return int(np.ceil(coverage / (1 - coverage) - 1e-9))


def jackknife_after_bootstrap(
    values: Float[np.ndarray, "member row"],
    unseen: Bool[np.ndarray, "train member"],
    residual: Float[np.ndarray, " train"],
    coverage: float,
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Compute intervals by the jackknife+-after-bootstrap (Kim, Xu and Barber 2020).

    For each training row i, the members that did not see it predict the new row; the interval lies between quantiles of
    these predictions minus and plus the absolute residual of i.

    Args:
        values: Mean predictions of the new rows.
        unseen: Whether a member did not see a training row; at least one did not.
        residual: Absolute out-of-bag residuals of the training rows.
        coverage: Nominal coverage, between 0 and 1.

    Returns:
        Lower and upper bounds; infinite if there are too few training rows for the coverage.
    """
    share = unseen / unseen.sum(axis=1, keepdims=True)
    n, rows = len(residual), values.shape[1]
    low, high = np.full(rows, -np.inf), np.full(rows, np.inf)
    above = int(np.ceil(coverage * (n + 1) - 1e-9))
    if above > n:
        return low, high
    for start in range(0, rows, 512):
        part = slice(start, start + 512)
        centre = share @ values[:, part]
        low[part] = np.partition(centre - residual[:, None], n - above, axis=0)[n - above]
        high[part] = np.partition(centre + residual[:, None], above - 1, axis=0)[above - 1]
    return low, high
