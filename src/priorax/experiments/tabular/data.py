"""Data sets of the benchmark of estimators: UCI sets with their published splits, scikit-learn's, and Friedman's."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

from priorax.checks import one_of

UCI = Path("benchmarks/uci")
"""Folder of the UCI sets, relative to the root of the repository."""
PUBLISHED = {"concrete": "concrete", "energy": "energy", "power": "power-plant", "wine": "wine-quality-red"}
"""Files of the UCI sets."""
FRIEDMAN = {"friedman1": 1.0, "friedman2": 125.0, "friedman3": 0.1}
"""Standard deviation of the noise of Friedman's functions."""
REGRESSION = (*PUBLISHED, "diabetes", *FRIEDMAN)
CLASSES = ("digits", "breast_cancer", "wine_cultivars", "iris")
TRAIN_ROWS, TEST_ROWS = 300, 500
"""Rows of Friedman's sets."""


class Split(NamedTuple):
    """A data set, divided into training and test rows."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    @property
    def is_regression(self) -> bool:
        """Whether y has numbers, not classes."""
        return bool(np.issubdtype(self.y.dtype, np.floating))


def published_test_rows(rows: int, split: int) -> np.ndarray:
    """Compute the test rows of a published split: a tenth of the rows, the end of a permutation by NumPy's seed 1.

    Args:
        rows: Number of rows of the set.
        split: Number of the split, from 0 to 19.

    Returns:
        Indices of the test rows.
    """
    random = np.random.RandomState(1)
    for _ in range(split + 1):
        order = random.choice(rows, rows, replace=False)
    return order[round(rows * 0.9) :]


def load(name: str, split: int) -> Split:
    """Load a data set.

    Args:
        name: One of `REGRESSION` and `CLASSES`.
        split: Number of the split: of a published one, or a random seed.

    Returns:
        The data.

    Raises:
        ValueError: If the name is unknown.
        FileNotFoundError: If the UCI sets are not there.
    """
    one_of("name", name, (*REGRESSION, *CLASSES))
    if name in PUBLISHED:
        path = UCI / f"{PUBLISHED[name]}.csv.gz"
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}; run the benchmark in the root of the source repository")
        table = np.loadtxt(path, delimiter=",", skiprows=1)
        test = published_test_rows(len(table), split)
        train = np.setdiff1d(np.arange(len(table)), test)
        return Split(table[train, :-1], table[train, -1], table[test, :-1], table[test, -1])
    if name in FRIEDMAN:
        make = getattr(datasets, f"make_{name}")
        x, y = make(TRAIN_ROWS + TEST_ROWS, noise=FRIEDMAN[name], random_state=split)
        return Split(x[:TRAIN_ROWS], y[:TRAIN_ROWS], x[TRAIN_ROWS:], y[TRAIN_ROWS:])
    source = {"wine_cultivars": "wine"}.get(name, name)
    x, y = getattr(datasets, f"load_{source}")(return_X_y=True)
    classes = y if name in CLASSES else None
    x, test_x, y, test_y = train_test_split(x, y, test_size=0.2, random_state=split, stratify=classes)
    return Split(x, y, test_x, test_y)


def without_slab(data: Split) -> tuple[Split, np.ndarray]:
    """Remove a slab from the training rows: the middle fifth along the first principal component.

    Args:
        data: A data set.

    Returns:
        The data without the slab, and whether each test row lies in it.
    """
    mean, scale = data.x.mean(axis=0), data.x.std(axis=0) + 1e-12
    axis = np.linalg.svd((data.x - mean) / scale, full_matrices=False)[2][0]
    place, test_place = (((x - mean) / scale) @ axis for x in (data.x, data.test_x))
    low, high = np.quantile(place, [0.4, 0.6])
    kept = (place < low) | (place > high)
    return data._replace(x=data.x[kept], y=data.y[kept]), (test_place >= low) & (test_place <= high)
