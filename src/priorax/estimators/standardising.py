"""Units: tables of any scale, dense or sparse, as float32 numbers of about one; in blocks of rows, to save memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

BLOCK = 65_536
"""Rows that are in float64 at once."""

TINY = float(np.finfo(np.float64).tiny)
CONSTANT = 1e-12
"""A column whose standard deviation is this share of its largest number, or less, is constant: the rest is rounding."""


def moments(name: str, columns: Any, standardize: bool, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column; rows of weight zero are not looked at.

    Units do not matter: multiplying a column multiplies both. The scale of a constant column is its own size, that of
    zeros is 1.

    Args:
        name: what the columns are called in messages.
        columns: [n, column], dense or sparse.
        standardize: if False, the answer is 0 and 1.
        weight: [n] of mean about one, or None.

    Returns:
        Mean and scale, one number per column each.

    Raises:
        ValueError: if float64 does not carry them.
    """
    if not standardize:
        return np.zeros(columns.shape[1]), np.ones(columns.shape[1])
    largest = np.max([np.abs(block).max(axis=0, initial=0.0) for block, _ in _blocks(columns, weight)], axis=0)
    for j in np.flatnonzero((largest > 0) & (largest < TINY)):
        raise ValueError(
            f"{name} holds no number above {largest[j]:.3g} in column {j}; float64 carries numbers in full from "
            f"{TINY:.3g} on: multiply {name} by a constant"
        )
    unit = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))))  # a power of two: dividing by it is exact
    total = sum(share.sum() for _, share in _blocks(columns, weight))
    mean = sum(share @ (block / unit) for block, share in _blocks(columns, weight)) / total
    variance = sum(share @ (block / unit - mean) ** 2 for block, share in _blocks(columns, weight)) / total
    spread = np.sqrt(variance)
    constant = np.where(mean != 0, np.abs(mean), 1 / unit)
    return mean * unit, np.where(spread > CONSTANT, spread, constant) * unit


def standardised(name: str, columns: Any, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(columns - mean) / scale as float32, dense.

    Args:
        name: what the columns are called in messages.
        columns: [n, column], dense or sparse.
        mean: one number per column.
        scale: one number per column.

    Returns:
        [n, column].

    Raises:
        ValueError: if float32 does not carry a result.
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
            f"{name} holds {columns[row, j]:.3g} in row {row}, column {j}, over {np.finfo(np.float32).max:.2g} times "
            f"the scale there ({scale[j]:.3g}), which float32 does not carry; remove the row, divide {name} by a "
            "constant, or fit with standardize=True"
        )
    return result


def as_given(columns: Any) -> np.ndarray:
    """X as a user's own prior sees it: dense, in float32, whose range it must not leave."""
    ones = np.ones(columns.shape[1])
    return standardised("X", columns, 0 * ones, ones)


def refuse_vanishing(columns: Any) -> None:
    """A column of X that is all zero in float32, as a user's own prior sees it, though it is not: a ValueError."""
    largest = np.max([np.abs(block).max(axis=0) for block, _ in _blocks(columns, None)], axis=0)
    for j in np.flatnonzero((largest > 0) & (largest < np.finfo(np.float32).tiny)):
        raise ValueError(
            f"X holds no number above {largest[j]:.3g} in column {j}: zero in float32, as your own prior sees X; "
            "multiply X by a constant"
        )


def _blocks(columns: Any, weight: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Dense blocks of rows in float64 and their weights, without the rows of weight zero."""
    for start in range(0, columns.shape[0], BLOCK):
        block = columns[start : start + BLOCK]
        block = block.toarray() if sparse.issparse(block) else block
        if weight is None:
            yield block, np.ones(len(block))
        else:
            share = weight[start : start + BLOCK]
            yield block[share > 0], share[share > 0]
