"""Grids of settings, for searches that choose the best of them."""

import itertools
from collections.abc import Mapping
from typing import Any

Changes = Mapping[str, Any]
"""Changed hyperparameters by name."""


def grid(**axes: tuple[Any, ...]) -> list[Changes]:
    """List all combinations of values.

    Args:
        **axes: Values of each setting.

    Returns:
        The settings.
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def words(changes: Changes) -> str:
    """Name a setting.

    Args:
        changes: Changed hyperparameters.

    Returns:
        A short text.
    """
    return " ".join(f"{name}={value}" for name, value in sorted(changes.items()))
