"""Distance to the training data, by which a classifier knows that it is far from all of it.

Logits of trained networks grow with the distance from the data, all in the same direction, so that far away a prior on
the logits is not felt: every member is certain. The distance to the nearest of some training rows (anchors), compared
with the distances between anchors, tells how far is far.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from priorax.estimators.evaluating import BLOCK
from priorax.hardware import one_by_one

ANCHORS = 512
"""Maximum number of training rows to compare with, drawn at random."""
MAX_NUMBERS = 2**16
"""Maximum number of numbers in all anchors, for tables with many columns."""
USUAL = 0.99
"""Quantile of the distances between anchors up to which a row is not far."""


class Anchors(NamedTuple):
    """A random sample of the training rows, standardised."""

    rows: Float[np.ndarray, "anchor column"]
    rank: Float[np.ndarray, " anchor"]
    """Random numbers; the rows with the smallest ones of all are kept."""

    def add(self, rows: Any, seed: tuple[int, ...], standardise: Callable[[Any], np.ndarray] = np.asarray) -> "Anchors":
        """Add rows, so that all rows added so far are kept with equal probability.

        Args:
            rows: The rows, dense or sparse.
            seed: Random seed; another one for each call.
            standardise: Standardises the rows that are kept; by default they already are.

        Returns:
            The new sample.
        """
        rank = np.concatenate([self.rank, np.random.default_rng(seed).random(rows.shape[0])])
        most = max(2, min(ANCHORS, MAX_NUMBERS // max(rows.shape[1], 1)))
        kept = np.sort(np.argsort(rank, kind="stable")[:most])
        new = kept[kept >= len(self.rank)] - len(self.rank)
        return Anchors(np.concatenate([self.rows[kept[kept < len(self.rank)]], standardise(rows[new])]), rank[kept])

    def radius(self) -> float:
        """Compute the usual distance of a row to the nearest other one.

        Returns:
            The distance; one, the standard deviation of a column, if all rows are equal or there is only one.
        """
        if len(self.rows) < 2:
            return 1.0
        squared = np.sum(self.rows.astype(np.float64) ** 2, axis=1)
        gaps = squared[:, None] + squared - 2 * self.rows.astype(np.float64) @ self.rows.T.astype(np.float64)
        np.fill_diagonal(gaps, np.inf)
        found = float(np.sqrt(np.quantile(np.maximum(gaps.min(axis=1), 0.0), USUAL)))
        return found if found > 1e-3 else 1.0

    def padded(self) -> Float[np.ndarray, "anchor column"]:
        """Repeat the last row up to a fixed number, so that samples of all sizes share compiled code.

        Returns:
            The rows.
        """
        return np.pad(self.rows, [(0, max(0, ANCHORS - len(self.rows))), (0, 0)], mode="edge")


@jax.jit
def distance(anchors: Float[Array, "anchor column"], x: Any) -> Float[Array, " row"]:
    """Compute the distance of rows to the nearest anchor, in blocks of rows, so that a row does not depend on others.

    Args:
        anchors: The anchors.
        x: Standardised rows [row, column]; the number of rows is a multiple of `BLOCK`.

    Returns:
        The distances.
    """
    squared = jnp.sum(anchors**2, axis=1)

    def block(rows: Array) -> Array:
        gaps = jnp.sum(rows**2, axis=1)[:, None] + squared - 2 * rows @ anchors.T
        return jnp.sqrt(jnp.maximum(jnp.min(gaps, axis=1), 0.0))

    return one_by_one(block, x.reshape(-1, BLOCK, x.shape[1])).ravel()


def nearness(distance: Float[np.ndarray, " row"], radius: float) -> Float[np.ndarray, " row"]:
    """Compute the weight of the ensemble against the base rates.

    Args:
        distance: Distances to the nearest anchor.
        radius: The usual distance.

    Returns:
        One up to the usual distance, 0.37 at twice and 0.02 at three times that distance.
    """
    return np.exp(-(np.maximum(distance / radius - 1, 0.0) ** 2))
