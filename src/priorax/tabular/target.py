"""The column to predict: numbers or classes, and which rows are held out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from priorax.estimators import tables
from priorax.estimators.tables import Cells

MIN_ROWS, MAX_CLASSES = 20, 50
"""Minimum number of rows with a target, and maximum number of classes."""
FEW_NUMBERS = 10
"""A numeric target with at most this many distinct values may be classes; the message reports their number."""

Say = Callable[[str], None]
"""Function that receives a message for the user."""
Ask = Callable[[str], bool]
"""Function that asks the user a yes-or-no question."""


class Target(NamedTuple):
    """The column to predict: a number for each row, or the index of its class."""

    values: np.ndarray
    classes: list[str] | None
    """Names of the classes; None if the target is a number."""

    def take(self, rows: np.ndarray) -> "Target":
        """Select rows.

        Args:
            rows: Indices of rows.

        Returns:
            The target of these rows.
        """
        return self._replace(values=self.values[rows])

    @property
    def kind(self) -> str:
        """`number` or `class`."""
        return "class" if self.classes else "number"

    def split(self, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Choose rows at random to hold out, stratified by class; every class keeps at least one training row.

        Args:
            share: Fraction of rows to hold out.
            seed: Random seed.

        Returns:
            Indices of the training rows and of the held-out rows, each in ascending order.
        """
        order = np.random.default_rng(seed).permutation(len(self.values))
        if self.classes:
            order = order[np.argsort(self.values[order], kind="stable")]
        steps = np.floor(np.arange(len(order) + 1) * share + 1e-9)
        out = np.diff(steps) > 0
        for number in range(len(self.classes or ())):
            of_class = self.values[order] == number
            if out[of_class].all():
                out[of_class] = False
        return np.sort(order[~out]), np.sort(order[out])


def read_target(cells: Cells, name: str, kind: str, report: Say, ask: Ask | None = None) -> tuple[Cells, Target, int]:
    """Determine the kind of the target, and drop rows without a target.

    Args:
        cells: The table.
        name: Name of the column to predict.
        kind: `number`, `class` or `auto` (see `fit_table`).
        report: Called with messages for the user.
        ask: Called with a yes-or-no question for the user; None raises an error instead.

    Returns:
        The rows with a target, the target, and the number of rows without one.

    Raises:
        ValueError: If there are too few rows, too many classes, or only one value, the target holds dates, or the kind
            is ambiguous and `ask` is None.
    """
    auto, all_cells = kind == "auto", cells
    if auto:
        found = tables.typed(cells, [name], 'pass kind="class"').columns[name].kind
        if found == "date":
            raise ValueError(
                f"target={name!r} holds dates, which cannot be predicted; pass a column of numbers, such as days from "
                'a fixed date, or kind="class"'
            )
        kind = "number" if found == "number" else "class"
    values = cells.numbers(name) if kind == "number" else np.array(cells.columns[name])
    have = np.flatnonzero(~np.isnan(values) if kind == "number" else values != "")
    missing, cells, values = len(values) - len(have), cells.take(have), values[have]
    if len(have) < MIN_ROWS:
        raise ValueError(f"{cells.path} has {len(have)} rows with a {name!r}, at least {MIN_ROWS} are needed; add rows")
    different, numbers = np.unique(values, return_inverse=True)
    if len(different) < 2:
        raise ValueError(f"target={name!r} is {different[0]!s} in every row; choose a column that varies")
    if kind == "number":
        if auto and _are_classes(name, different, report, ask):
            return read_target(all_cells, name, "class", report)
        return cells, Target(values, None), missing
    if len(different) > MAX_CLASSES:
        raise ValueError(
            f"target={name!r} has {len(different)} distinct classes, at most {MAX_CLASSES} are possible; group them, "
            'or pass kind="number" if they are numbers'
        )
    if auto:
        report(f"{name!r} holds text and is predicted as one of {len(different)} classes")
    return cells, Target(numbers, different.tolist()), missing


def _are_classes(name: str, different: np.ndarray, report: Say, ask: Ask | None) -> bool:
    """Check whether numbers are class labels: ask if there are only two, else report that they are numbers."""
    if len(different) == 2:
        words = f"holds only the numbers {different[0]:g} and {different[1]:g}"
        if ask is not None:
            return ask(f"{name!r} {words}. Are they class labels?")
        raise ValueError(
            f'target={name!r} {words}; pass kind="class" if they are class labels, kind="number" for a regression'
        )
    count = f" ({len(different)} distinct ones)" if len(different) <= FEW_NUMBERS else ""
    report(f'{name!r} holds numbers{count} and is predicted as a number; pass kind="class" if they are class labels')
    return False


def say_encoding(cells: Cells, requested: str | None, report: Say) -> None:
    """Report the encoding of a file that is not UTF-8.

    Args:
        cells: The table.
        requested: The encoding that was requested; None if it was detected.
        report: Called with the message.
    """
    if requested is None and cells.encoding != "utf-8":
        report(
            f"{cells.path} is not UTF-8; it is read as {ENCODINGS[cells.encoding]}. If characters are wrong, "
            'pass the encoding, for example encoding="mac-roman"'
        )


ENCODINGS = {"cp1252": "Windows-1252 (Latin-1)", "utf-16": "UTF-16"}
"""Readable names of encodings."""
