"""What an environment says about the components of its observations, for networks that see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Inputs:
    """Scale and structure of the components of an observation; a field is empty if it is unknown."""

    scale: tuple[float, ...] = ()
    """Factors that scale each component to about one; a single factor applies to all."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Components that belong together, by index, for Fourier features that depend on one group alone."""
    knees: tuple[float, ...] = ()
    """Magnitude of each component above which differences matter less, 0 for none, for inputs that are squashed."""

    @classmethod
    def from_bounds(cls, low: Any, high: Any) -> "Inputs":
        """Scale values within bounds to about one.

        Args:
            low: Lower bound of each component.
            high: Upper bound of each component.

        Returns:
            One factor per component; 1 if the bounds are infinite, very large or zero.
        """
        size = np.maximum(np.abs(np.asarray(low, float)), np.abs(np.asarray(high, float)))
        known = (size > 0) & (size < 1e6)
        return cls(tuple(np.where(known, 1 / np.where(known, size, 1.0), 1.0).tolist()))

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Inputs":
        """Build from JSON, which has lists where there are tuples.

        Args:
            found: The fields.

        Returns:
            The same, with tuples.

        Raises:
            TypeError: If a field is unknown.
            KeyError: If a field is missing.
        """
        groups = tuple(tuple(group) for group in found["groups"])
        return cls(**{**found, "scale": tuple(found["scale"]), "groups": groups, "knees": tuple(found["knees"])})


UNKNOWN = Inputs()
"""Of an environment that says nothing."""
