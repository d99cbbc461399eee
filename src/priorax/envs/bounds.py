"""From the bounds of what is seen to its scale."""

from typing import Any

import numpy as np


def scale_of_bounds(low: Any, high: Any) -> tuple[float, ...]:
    """What brings each number to about one, as far as its bounds say; else 1."""
    size = np.maximum(np.abs(np.asarray(low, float)), np.abs(np.asarray(high, float)))
    known = (size > 0) & (size < 1e6)
    return tuple(np.where(known, 1 / np.where(known, size, 1.0), 1.0).tolist())
