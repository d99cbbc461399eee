"""Standardisation of dense or sparse tables to float32, in blocks of rows to save memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

BLOCK = 65_536
"""Rows converted to float64 at once."""

TINY = float(np.finfo(np.float64).tiny)
"""Smallest float64 with full precision."""
CONSTANT = 1e-12
"""A column is constant if its standard deviation is at most this fraction of its largest absolute value."""


def moments(name: str, columns: Any, standardize: bool, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Compute the weighted mean and standard deviation of each column, ignoring rows of weight zero.

    Units do not matter: multiplying a column multiplies both. The scale of a constant column is its absolute value, or
    1 if that is zero.

    Args:
        name: Name of the table, for messages.
        columns: The table [n, column], dense or sparse.
        standardize: If False, means are 0 and scales 1.
        weight: Weights [n] with mean about one, or None.

    Returns:
        Mean and scale of each column.

    Raises:
        ValueError: If a column is too small for float64.
    """
    if not standardize:
        return np.zeros(columns.shape[1]), np.ones(columns.shape[1])
    largest = np.max([np.abs(block).max(axis=0, initial=0.0) for block, _ in _blocks(columns, weight)], axis=0)
    for j in np.flatnonzero((largest > 0) & (largest < TINY)):
        raise ValueError(
            f"{name} has no absolute value above {largest[j]:.3g} in column {j}, but float64 has full precision only "
            f"from {TINY:.3g}; multiply {name} by a constant"
        )
    unit = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))))  # a power of two: dividing by it is exact
    total = sum(share.sum() for _, share in _blocks(columns, weight))
    mean = sum(share @ (block / unit) for block, share in _blocks(columns, weight)) / total
    variance = sum(share @ (block / unit - mean) ** 2 for block, share in _blocks(columns, weight)) / total
    spread = np.sqrt(variance)
    constant = np.where(mean != 0, np.abs(mean), 1 / unit)
    return mean * unit, np.where(spread > CONSTANT, spread, constant) * unit


def extremes(columns: Any, weight: Any) -> np.ndarray:
    """Find the least and the greatest value of each column, ignoring rows of weight zero.

    Args:
        columns: The table [n, column], dense or sparse.
        weight: Weights [n], or None.

    Returns:
        Least and greatest values [2, column]; infinite if there are no rows.
    """
    low = np.min([block.min(axis=0, initial=np.inf) for block, _ in _blocks(columns, weight)], axis=0)
    high = np.max([block.max(axis=0, initial=-np.inf) for block, _ in _blocks(columns, weight)], axis=0)
    return np.stack([low, high])


def standardised(name: str, columns: Any, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return (columns - mean) / scale as a dense float32 array.

    Args:
        name: Name of the table, for messages.
        columns: The table [n, column], dense or sparse.
        mean: Mean of each column.
        scale: Scale of each column.

    Returns:
        The standardised table [n, column].

    Raises:
        ValueError: If a result exceeds the range of float32.
    """
    result = np.empty(columns.shape, dtype=np.float32)
    start = 0
    with np.errstate(over="ignore"):
        for block, _ in _blocks(columns, None):
            result[start : start + len(block)] = (block - mean) / scale
            start += len(block)
    bad = np.argwhere(~np.isfinite(result))
    if len(bad):
        row, j = bad[0]
        raise ValueError(
            f"{name} has {columns[row, j]:.3g} in row {row}, column {j}, over {np.finfo(np.float32).max:.2g} times "
            f"the column's scale ({scale[j]:.3g}), which exceeds the range of float32; remove the row, divide {name} "
            "by a constant, or fit with standardize=True"
        )
    return result


def as_given(columns: Any) -> np.ndarray:
    """Convert X to a dense float32 array, as a custom prior sees it.

    Args:
        columns: X, dense or sparse.

    Returns:
        The array.

    Raises:
        ValueError: If a number exceeds the range of float32.
    """
    ones = np.ones(columns.shape[1])
    return standardised("X", columns, 0 * ones, ones)


def refuse_vanishing(columns: Any) -> None:
    """Check that no column of X vanishes in float32, as a custom prior sees it.

    Args:
        columns: X, dense or sparse.

    Raises:
        ValueError: If a column that is not zero is zero in float32.
    """
    largest = np.max([np.abs(block).max(axis=0) for block, _ in _blocks(columns, None)], axis=0)
    for j in np.flatnonzero((largest > 0) & (largest < np.finfo(np.float32).tiny)):
        raise ValueError(
            f"X has no absolute value above {largest[j]:.3g} in column {j}, which is zero in float32, as a custom "
            "prior sees it; multiply X by a constant"
        )


def _blocks(columns: Any, weight: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Iterate over dense blocks of rows in float64 and their weights, without rows of weight zero."""
    for start in range(0, columns.shape[0], BLOCK):
        block = columns[start : start + BLOCK]
        block = block.toarray() if sparse.issparse(block) else block
        if weight is None:
            yield block, np.ones(len(block))
        else:
            share = weight[start : start + BLOCK]
            yield block[share > 0], share[share > 0]
