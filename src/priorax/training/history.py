"""The episodes of a run, as a sequence in bounded memory."""

import itertools
import math
import tempfile
import typing
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints, overload

import numpy as np

Row = TypeVar("Row")

KEPT = 10_000
"""Minimum number of newest rows in memory; there are at most twice as many."""


class History(Sequence[Row], Generic[Row]):
    """Sequence of episodes. The newest are in memory, older ones in a temporary file (in TMPDIR, a few dozen bytes
    each), which is deleted with the history.
    """

    def __init__(self, kind: type[Row], rows: Iterable[Row] = (), kept: int = KEPT) -> None:
        """Create a history.

        Args:
            kind: NamedTuple class of rows, with fields of type int, float or bool, or None.
            rows: Initial rows.
            kept: Minimum number of newest rows in memory.
        """
        self.kind, self.kept = kind, kept
        self._newest: list[Row] = []
        self._stored = 0
        self._file: Any = None
        self._columns = [_Column.of(hint) for hint in get_type_hints(kind).values()]
        names = get_type_hints(kind)
        self._record = np.dtype([(name, each.dtype) for name, each in zip(names, self._columns, strict=True)])
        self.best: float | None = None
        """The highest `total_return`, where rows have one."""
        self.extend(rows)

    def extend(self, rows: Iterable[Row]) -> None:
        """Append rows.

        Args:
            rows: The rows.
        """
        for row in rows:
            self._newest.append(row)
            total = getattr(row, "total_return", None)
            if total is not None:
                self.best = total if self.best is None else max(self.best, total)
            if len(self._newest) >= 2 * self.kept:
                self._store(self.kept)

    def append(self, row: Row) -> None:
        """Append a row.

        Args:
            row: The row.
        """
        self.extend([row])

    def ends(self, count: int = 1000) -> list[Row]:
        """Get the first and last rows, each once.

        Args:
            count: Number of rows at each end.

        Returns:
            The rows.
        """
        return self[:] if len(self) <= 2 * count else self[:count] + self[-count:]

    def __len__(self) -> int:
        return self._stored + len(self._newest)

    def __iter__(self) -> Iterator[Row]:
        for first in itertools.count(0, self.kept):
            block = self._between(first, min(first + self.kept, len(self)))
            yield from block
            if len(block) < self.kept:
                return

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            places = range(len(self))[index]
            if not places:
                return []
            low, high = min(places), max(places)
            rows = self._between(low, high + 1)
            return [rows[place - low] for place in places]
        place = range(len(self))[index]
        return self._between(place, place + 1)[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (History, list)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # mutable, hence not hashable

    def __repr__(self) -> str:
        return f"History of {len(self)} rows, last row: {self[-1] if len(self) else None}"

    def __reduce__(self) -> Any:
        return History, (self.kind, list(self), self.kept)

    def _store(self, count: int) -> None:
        """Move the oldest rows in memory to the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        old, self._newest = self._newest[:count], self._newest[count:]
        self._file.seek(self._stored * self._record.itemsize)
        plain = [tuple(map(_number, typing.cast(tuple[Any, ...], row))) for row in old]
        self._file.write(np.array(plain, self._record).tobytes())
        self._stored += count

    def _between(self, first: int, end: int) -> list[Row]:
        """Load the rows [first, end)."""
        rows: list[Row] = []
        if first < min(end, self._stored):
            stored = min(end, self._stored)
            self._file.seek(first * self._record.itemsize)
            raw = self._file.read((stored - first) * self._record.itemsize)
            rows = [
                self.kind(*(column.value(number) for column, number in zip(self._columns, row, strict=True)))
                for row in np.frombuffer(raw, self._record).tolist()
            ]
        return rows + self._newest[max(first - self._stored, 0) : max(end - self._stored, 0)]


class _Column(NamedTuple):
    """Numeric representation of a field."""

    dtype: Any
    kind: type
    optional: bool
    """Stored as float64, with a negative NaN for None."""

    @classmethod
    def of(cls, hint: Any) -> "_Column":
        kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
        optional = len(typing.get_args(hint)) > len(kinds)
        plain = {int: np.int64, float: np.float64, bool: np.bool_}[kinds[0]]
        return cls(np.float64 if optional else plain, kinds[0], optional)

    def value(self, number: Any) -> Any:
        if self.optional and math.isnan(number) and math.copysign(1, number) < 0:
            return None
        return self.kind(number)


def _number(value: Any) -> Any:
    return -math.nan if value is None else value
