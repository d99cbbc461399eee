"""Input scales from the bounds of an observation space."""

from typing import Any

import numpy as np


def scale_of_bounds(low: Any, high: Any) -> tuple[float, ...]:
    """Return the factors that scale values within these bounds to about one.

    Args:
        low: Lower bound of each component.
        high: Upper bound of each component.

    Returns:
        One factor per component; 1 if the bounds are infinite, very large or zero.
    """
    size = np.maximum(np.abs(np.asarray(low, float)), np.abs(np.asarray(high, float)))
    known = (size > 0) & (size < 1e6)
    return tuple(np.where(known, 1 / np.where(known, size, 1.0), 1.0).tolist())
