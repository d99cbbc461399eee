"""CSV files as tables: reading the cells, and deciding which columns hold numbers, dates or text.

`read` returns the cells, `typed` a table whose columns have kinds, which `encoding` turns into numbers.
"""

import codecs
import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from priorax.estimators import dates
from priorax.estimators.encoding import Features, Table, Values

MISSING = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "?"))
"""Cells that count as missing, in lower case."""
MISSING_NUMBERS = frozenset(("", "none", "-"))
"""Cells that count as missing in columns of numbers and dates only."""
SMALL_TEXT, MOST_ZIPPED = 10**8, 100
"""A gzip file may unpack to at most this many bytes, or this many times its size, whichever is larger."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Pattern of a number in a cell."""


class Cells(NamedTuple):
    """A table of strings; missing cells are empty."""

    path: str
    """The file."""
    columns: dict[str, list[str]]
    """Cells of each column."""
    lines: list[int]
    """Line number of each row in the file."""
    decimal_comma: bool
    """Whether numbers are written with a decimal comma."""
    unnamed: int
    """Number of columns without a name, which are dropped."""
    encoding: str = "utf-8"
    """Encoding of the file."""
    ids: list[str] | None = None
    """The id column exactly as written, if one was requested and exists: an id may look like a missing cell."""

    def take(self, rows: np.ndarray) -> "Cells":
        """Select rows.

        Args:
            rows: Indices of the rows.

        Returns:
            The table with those rows.
        """
        columns = {name: [cells[i] for i in rows] for name, cells in self.columns.items()}
        ids = None if self.ids is None else [self.ids[i] for i in rows]
        return self._replace(columns=columns, lines=[self.lines[i] for i in rows], ids=ids)

    def numbers(self, name: str) -> np.ndarray:
        """Parse a numeric column.

        Args:
            name: Name of the column.

        Returns:
            The numbers; NaN where missing.

        Raises:
            ValueError: If a cell is not a finite number; the message names its line.
        """
        values = [_number(cell, self.decimal_comma) for cell in self.columns[name]]
        return self._parsed(name, values, "is numeric", "a number", "write a finite number")

    def days(self, name: str, format: str) -> np.ndarray:
        """Parse a column of dates.

        Args:
            name: Name of the column.
            format: One of `dates.FORMATS`.

        Returns:
            Days since 1970-01-01; NaN where missing.

        Raises:
            ValueError: If a cell is not a date in that format; the message names its line.
        """
        values = [_days(cell, format) for cell in self.columns[name]]
        return self._parsed(name, values, "holds dates", "one", f"write it like {dates.as_written(format)}")

    def _parsed(self, name: str, values: Sequence[float | None], what: str, one: str, remedy: str) -> np.ndarray:
        """Check that all cells of a column were parsed."""
        for value, cell, line in zip(values, self.columns[name], self.lines, strict=True):
            if value is None:
                raise ValueError(
                    f"{self.path}, line {line}: column {name!r} {what}, but {cell!r} is not {one}; {remedy} or leave "
                    "the cell empty"
                )
        return np.array(values, dtype=np.float64)


def read(path: Path | str, id: str | None = None, encoding: str | None = None) -> Cells:
    """Read a CSV file with column names in the first line, separated by commas, semicolons or tabs.

    Args:
        path: The file; it may be gzipped.
        id: Name of a column to keep exactly as written as well (`Cells.ids`).
        encoding: Encoding of the file, by its Python name. None detects it: UTF-8, UTF-16 with a byte-order mark, or
            else Windows-1252, a superset of Latin-1.

    Returns:
        The cells.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is not a table; the message names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; pass the path of a CSV file")
    text, encoding = _decoded(path, _unzipped(path, path.read_bytes()), encoding)
    if not text.strip():
        raise ValueError(f"{path} is empty; its first line must name the columns, and rows must follow")
    head = text.lstrip().splitlines()[:1]
    mark = max(",;\t", key=lambda mark: len(next(csv.reader(head, delimiter=mark))))
    reader = csv.reader(io.StringIO(text.rstrip("\r\n"), newline=""), delimiter=mark, skipinitialspace=True)
    try:
        rows = [([cell.strip() for cell in row], reader.line_num) for row in reader]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}; save it as a CSV file again") from None
    names, rows = rows[0][0], rows[1:]
    _refuse_header(path, names)
    if not rows:
        raise ValueError(f"{path} names {len(names)} columns but has no rows; add some")
    for row, line in rows:
        if len(row) != len(names):
            raise ValueError(
                f"{path}, line {line}: {len(row)} cells, but the first line names {len(names)} columns; correct the "
                "line (quote cells that contain the separator, remove empty lines)"
            )
    columns = {name: [_blank(row[i]) for row, _ in rows] for i, name in enumerate(names) if name}
    ids = [row[names.index(id)] for row, _ in rows] if id in columns else None
    return Cells(str(path), columns, [line for _, line in rows], mark == ";", names.count(""), encoding, ids)


def typed(cells: Cells, names: Collection[str], remedy: str = "leave the column out (drop)") -> Table:
    """Decide the kinds of columns: numbers or dates if every cell is one or missing, else text.

    Args:
        cells: The table.
        names: Columns to look at.
        remedy: Remedy for a column with mistakes, for the message.

    Returns:
        The typed columns.

    Raises:
        ValueError: If at least nine tenths of a column, but not all, are numbers or dates; the message names the line
            of the first mistake.
    """
    return Table(cells.path, {name: _typed(cells, name, remedy) for name in names}, cells.lines)


def as_fitted(cells: Cells, features: Features) -> Table:
    """Read the columns of an encoding as it needs them.

    Args:
        cells: The table.
        features: The encoding.

    Returns:
        The typed columns; those that are not in the table are missing.

    Raises:
        ValueError: If a cell cannot be read; the message names its line.
    """
    found = {}
    for column in features.columns:
        if column.name not in cells.columns:
            continue
        if column.kind == "text":
            values = _words(cells, column.name)
        elif column.kind == "date":
            values = cells.days(column.name, column.format or dates.ISO)
        else:
            values = cells.numbers(column.name)
        found[column.name] = Values(column.kind, values, column.format)
    others = {name: Values("text", _words(cells, name)) for name in cells.columns if name not in found}
    return Table(cells.path, {**found, **others} if len(found) < len(features.columns) else found, cells.lines)


def _typed(cells: Cells, name: str, remedy: str) -> Values:
    """Decide the kind of a column."""
    present = [cell for cell in cells.columns[name] if cell.lower() not in MISSING_NUMBERS]
    numbers = sum(_number(cell, cells.decimal_comma) is not None for cell in present)
    try:
        if numbers >= 0.9 * len(present):
            return Values("number", cells.numbers(name))
        format = dates.format_of({*present})
        if format == dates.AMBIGUOUS:
            return Values("text", _words(cells, name), format)
        if format is not None:
            return Values("date", cells.days(name, format), format)
    except ValueError as error:
        raise ValueError(f"{error}, or {remedy}") from None
    return Values("text", _words(cells, name))


def _unzipped(path: Path, raw: bytes) -> bytes:
    """Unpack the bytes of a file if it is gzipped."""
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    limit = max(SMALL_TEXT, MOST_ZIPPED * len(raw))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            text = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged gzip file ({error}); compress it again") from None
    if len(text) > limit:
        raise ValueError(
            f"{path} unpacks to more than {limit:,} bytes, which is unusual for a file of its size; unpack it first"
        )
    return text


def _decoded(path: Path, raw: bytes, encoding: str | None) -> tuple[str, str]:
    """Decode the text of a file; get the text and its encoding."""
    if encoding is not None:
        try:
            chosen = codecs.lookup(encoding).name
            return raw.decode("utf-8-sig" if chosen == "utf-8" else chosen), chosen
        except LookupError:
            raise ValueError(f"encoding={encoding!r} is unknown; pass for example utf-8, latin-1 or cp1252") from None
        except UnicodeDecodeError as error:
            raise ValueError(
                f"encoding={encoding!r} is not the encoding of {path} ({error.reason} at byte {error.start}); pass "
                "another, or None to detect it"
            ) from None
    marked = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for name in ("utf-16",) if marked else ("utf-8", "cp1252"):
        try:
            text = raw.decode("utf-8-sig" if name == "utf-8" else name)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text, name
    raise ValueError(f"{path} is not text in UTF-8, UTF-16 or Latin-1; save it as a CSV file in UTF-8")


def _number(cell: str, decimal_comma: bool) -> float | None:
    """Parse the number in a cell: NaN if it is missing, None if it is not a number."""
    if cell.lower() in MISSING_NUMBERS:
        return math.nan
    text = cell.replace(",", ".") if decimal_comma else cell
    value = float(text) if NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def _blank(cell: str) -> str:
    return "" if cell.lower() in MISSING else cell


def _days(cell: str, format: str) -> float | None:
    """Parse the date in a cell: NaN if it is missing, None if it is not a date."""
    return math.nan if cell.lower() in MISSING_NUMBERS else dates.days(cell, format)


def _words(cells: Cells, name: str) -> np.ndarray:
    return np.array(cells.columns[name], dtype=object)


def _refuse_header(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(f"{path} names {', '.join(map(repr, twice))} more than once; give every column a unique name")
    if not any(names) or all(NUMBER.fullmatch(name) for name in names):
        raise ValueError(f"{path} begins with {','.join(names)!r}; its first line must name the columns")
