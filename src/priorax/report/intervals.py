"""Medians of learning times with bootstrap intervals; runs that did not learn count as infinitely long."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

LEVEL = 0.95
"""Level of all intervals."""
RESAMPLES = 9999
_NEVER = 1e15
"""Stands for infinity, so that quantiles can be interpolated."""


class Estimate(NamedTuple):
    """An estimate with its interval."""

    value: float
    """The estimate; infinite if most runs did not learn."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval; may be infinite."""

    def words(self, form: str = ",.0f") -> str:
        """Format as `value [low, high]`.

        Args:
            form: Format of numbers.

        Returns:
            The text; ∞ stands for runs that did not learn.
        """
        value, low, high = ("∞" if math.isinf(number) else format(number, form) for number in self)
        return f"{value} [{low}, {high}]"


def median_interval(values: Sequence[float]) -> Estimate:
    """Estimate a median, with the percentile bootstrap interval of its runs.

    Args:
        values: One number per run; infinite if the run did not learn.

    Returns:
        The median with its 95% interval; for a single run the interval is the run itself.

    Raises:
        ValueError: If there are no values.
    """
    return _interval(values, np.median)


def mean_interval(values: Sequence[float]) -> Estimate:
    """Estimate a mean, with the percentile bootstrap interval of its runs.

    Args:
        values: One finite number per run.

    Returns:
        The mean with its 95% interval; for a single run the interval is the run itself.

    Raises:
        ValueError: If there are no values.
    """
    return _interval(values, np.mean)


def _interval(values: Sequence[float], statistic: Callable[..., Any]) -> Estimate:
    if len(values) == 0:
        raise ValueError("values=[] has no runs; pass at least one")
    finite = np.minimum(np.asarray(values, float), _NEVER)
    value = float(statistic(finite))
    if len(finite) == 1 or np.ptp(finite) == 0:
        return Estimate(*(_back(value),) * 3)
    found = stats.bootstrap(
        (finite,), statistic, n_resamples=RESAMPLES, confidence_level=LEVEL, method="percentile", rng=0
    ).confidence_interval
    return Estimate(_back(value), _back(float(found.low)), _back(float(found.high)))


def _back(number: float) -> float:
    return math.inf if number > _NEVER / 1000 else number
