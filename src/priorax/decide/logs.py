"""Logged decisions, and what a policy would have earned on them (off-policy evaluation).

Three estimates of the value of a policy pi from decisions of another one: the direct method averages a model q of the
rewards over the arms that pi would choose; inverse propensity scoring (IPS) weighs the rewards that were logged by
pi(arm) / propensity; the doubly robust estimate (Dudik et al. 2011) adds the weighted residuals of the model to the
direct method. The last two are unbiased if the propensities are right.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Logs(NamedTuple):
    """Logged decisions."""

    contexts: Float[np.ndarray, "n feature"]
    """Contexts; no columns if there are none."""
    arms: Sequence[Any]
    """Ids of the arms that were chosen."""
    rewards: Float[np.ndarray, " n"]
    """Their rewards."""
    propensities: Float[np.ndarray, " n"] | None = None
    """Probabilities with which the arms were chosen; None if unknown."""


class Estimate(NamedTuple):
    """An estimate with its standard error."""

    value: float
    """The estimate."""
    standard_error: float
    """Its standard error over the logged rows."""


class PolicyValue(NamedTuple):
    """Estimates of the mean reward of a policy."""

    doubly_robust: Estimate
    """Model and weighted residuals: unbiased with the right propensities, and usually the most precise of these."""
    ips: Estimate
    """Inverse propensity scoring: unbiased with the right propensities."""
    direct: Estimate
    """Direct method: as biased as the model; its standard error does not include the error of the model."""
    effective_rows: float
    """Number of equally weighted rows that are as precise as the weights (sum w)² / sum w²; if few, do not trust it."""


def as_logs(logs: Any) -> Logs:
    """Validate logged decisions.

    Args:
        logs: `Logs`, or rows (context, arm, reward) or (context, arm, reward, propensity).

    Returns:
        The logs with arrays.

    Raises:
        ValueError: If there are no rows, their lengths differ, or a number is invalid.
    """
    if not isinstance(logs, Logs):
        rows = list(logs) if isinstance(logs, Iterable) else []
        sizes = {len(row) for row in rows}
        if len(sizes) != 1 or not sizes <= {3, 4}:
            raise ValueError(
                f"logs has rows of {sorted(sizes)} parts, but each must be (context, arm, reward) or (context, arm, "
                "reward, propensity); pass such rows, or Logs(contexts, arms, rewards, propensities)"
            )
        columns = list(zip(*rows, strict=True))
        contexts = np.stack([as_context(context) for context in columns[0]])
        logs = Logs(contexts, columns[1], np.array(columns[2]), np.array(columns[3]) if len(columns) == 4 else None)
    contexts, rewards = np.asarray(logs.contexts, dtype=float), np.asarray(logs.rewards, dtype=float)
    given = None if logs.propensities is None else np.asarray(logs.propensities, dtype=float)
    n = len(rewards)
    if not n or contexts.ndim != 2 or len(contexts) != n or len(logs.arms) != n or rewards.ndim != 1:
        raise ValueError(
            f"logs has contexts of shape {contexts.shape}, {len(logs.arms)} arms and rewards of shape {rewards.shape}; "
            "pass contexts [n, features], and n arms and rewards, n at least 1"
        )
    if not np.all(np.isfinite(rewards)) or not np.all(np.isfinite(contexts)):
        raise ValueError("logs has contexts or rewards that are NaN or infinite; remove those rows")
    if given is not None and (given.shape != (n,) or not np.all((given > 0) & (given <= 1))):
        raise ValueError(
            "logs has propensities that are not n numbers above 0 and at most 1; pass the probabilities with which the "
            "arms were chosen"
        )
    return Logs(contexts, list(logs.arms), rewards, given)


def as_context(context: Any) -> Float[np.ndarray, " feature"]:
    """Validate one context.

    Args:
        context: Numbers [features], one number, or None.

    Returns:
        The numbers; none for None.

    Raises:
        ValueError: If they are not finite numbers in one dimension.
    """
    found = np.zeros(0) if context is None else np.atleast_1d(np.asarray(context, dtype=float))
    if found.ndim != 1 or not np.all(np.isfinite(found)):
        raise ValueError(f"context={context!r:.100} must be a list of finite numbers, or None; pass those")
    return found


def policy_value(
    probabilities: Float[np.ndarray, "n arm"],
    model: Float[np.ndarray, "n arm"],
    arms: Int[np.ndarray, " n"],
    rewards: Float[np.ndarray, " n"],
    propensities: Float[np.ndarray, " n"],
) -> PolicyValue:
    """Estimate the value of a policy from logged decisions of another one.

    Args:
        probabilities: Probability with which the policy chooses each arm in each logged context.
        model: Predicted reward of each arm, by a model that was not trained on the row.
        arms: Numbers of the arms that were logged.
        rewards: Their rewards.
        propensities: Probabilities with which they were chosen.

    Returns:
        The estimates.
    """
    row = np.arange(len(arms))
    weight = probabilities[row, arms] / propensities
    direct = np.sum(probabilities * model, axis=1)
    robust = direct + weight * (rewards - model[row, arms])
    squares = float(np.sum(weight**2))
    effective = float(np.sum(weight)) ** 2 / squares if squares > 0 else 0.0
    return PolicyValue(_estimate(robust), _estimate(weight * rewards), _estimate(direct), effective)


def _estimate(terms: np.ndarray) -> Estimate:
    error = float(np.std(terms, ddof=1) / np.sqrt(len(terms))) if len(terms) > 1 else float("inf")
    return Estimate(float(np.mean(terms)), error)
