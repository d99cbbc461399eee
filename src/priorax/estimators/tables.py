"""Real-world CSV tables: encode text columns and missing cells as numbers for the estimators.

`read` returns the cells, `kinds` decides which columns are numeric, and `learn` determines medians and categories
(`Features`), with which any table with those columns can be encoded. They are plain values, stored as JSON; the
transformers of scikit-learn are always built from them, so that encodings are the same after saving and loading.
"""

import codecs
import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from priorax.checks import one_of

Kind = Literal["number", "text"]
"""Kind of a column."""

MISSING = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "?"))
"""Cells that count as missing, in lower case."""
MISSING_NUMBERS = frozenset(("", "none", "-"))
"""Cells that count as missing in numeric columns only."""
MAX_CATEGORIES = 50
"""Maximum number of categories of a text column; it may also have at most half as many as there are rows."""
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
        values = np.array([_number(cell, self.decimal_comma) for cell in self.columns[name]], dtype=object)
        for i, value in enumerate(values):
            if value is None:
                cell, line = self.columns[name][i], self.lines[i]
                raise ValueError(
                    f"{self.path}, line {line}: column {name!r} is numeric, but {cell!r} is not a number; "
                    "write a finite number or leave the cell empty"
                )
        return values.astype(np.float64)


@dataclass(frozen=True)
class Column:
    """The encoding of one column."""

    name: str
    """Name of the column."""
    kind: Kind
    """Whether it is numeric or text."""
    median: float = 0.0
    """For numbers: the median, which replaces missing cells."""
    has_missing: bool = False
    """For numbers: whether cells were missing; if so, an indicator of missing cells is a further feature."""
    categories: tuple[str, ...] = ()
    """For text: the categories; the empty string stands for missing cells."""


@dataclass(frozen=True)
class Features:
    """The encoding of a table as numbers: missing numbers become the median, text is one-hot encoded."""

    columns: tuple[Column, ...]
    """The encoding of each column."""

    def of_kind(self, kind: Kind) -> list[Column]:
        """Select the columns of one kind.

        Args:
            kind: `number` or `text`.

        Returns:
            The columns, in order.
        """
        return [column for column in self.columns if column.kind == kind]

    def transform(self, cells: Cells) -> np.ndarray:
        """Encode a table.

        Args:
            cells: The table; columns are found by name.

        Returns:
            Features [row, feature]: numbers, missing indicators, then one-hot categories. Unknown categories are all
            zeros.

        Raises:
            ValueError: If a column is missing, or a numeric column has a cell that is not a number.
        """
        for column in self.columns:
            if column.name not in cells.columns:
                raise ValueError(
                    f"{cells.path} has no column {column.name!r}, which the model uses; add it (cells may be "
                    f"empty). Columns: {', '.join(cells.columns)}"
                )
        parts = []
        numbers, words = self.of_kind("number"), self.of_kind("text")
        if numbers:
            medians = np.array([column.median for column in numbers])
            gaps = np.where([column.has_missing for column in numbers], np.nan, medians)
            imputer = SimpleImputer(strategy="median", add_indicator=True).fit(np.stack([medians, gaps]))
            parts.append(imputer.transform(np.stack([cells.numbers(column.name) for column in numbers], axis=1)))
        if words:
            known = [np.array(column.categories, dtype=object) for column in words]
            encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
            encoder.fit(np.array([[categories[0] for categories in known]], dtype=object))
            parts.append(encoder.transform(_objects(cells, words)))
        return np.concatenate(parts, axis=1)

    @property
    def size(self) -> int:
        """Number of features."""
        return sum(1 + c.has_missing if c.kind == "number" else len(c.categories) for c in self.columns)

    def unknown(self, cells: Cells) -> dict[str, list[str]]:
        """Find categories that were not in the training data.

        Args:
            cells: The table.

        Returns:
            The unknown categories, by column.
        """
        found = {c.name: sorted(set(cells.columns[c.name]) - {*c.categories, ""}) for c in self.of_kind("text")}
        return {name: strange for name, strange in found.items() if strange}

    def as_json(self) -> list[dict[str, Any]]:
        """Return the encoding as JSON."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, description: Sequence[Mapping[str, Any]]) -> "Features":
        """Build the encoding from JSON.

        Args:
            description: JSON from `as_json`.

        Returns:
            The encoding.

        Raises:
            ValueError: If it is not valid.
        """
        columns = []
        for part in description:
            kind: Any = one_of("kind", part["kind"], ("number", "text"))
            median, categories = float(part["median"]), tuple(part["categories"])
            words = (part["name"], *categories)
            whole = len(set(categories)) == len(categories) and bool(categories) == (kind == "text")
            if not all(isinstance(word, str) for word in words) or not math.isfinite(median) or not whole:
                raise ValueError(f"column {part['name']!r:.100} has an invalid description")
            columns.append(Column(part["name"], kind, median, bool(part["has_missing"]), categories))
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("columns are empty, or not unique")
        return cls(tuple(columns))


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


def kinds(cells: Cells, names: Collection[str], remedy: str = "leave the column out (drop)") -> dict[str, Kind]:
    """Determine whether columns are numeric: those in which every cell is a number or missing.

    Args:
        cells: The table.
        names: Columns to look at.
        remedy: Remedy for a column with mistakes, for the message.

    Returns:
        The kind of each column.

    Raises:
        ValueError: If at least nine tenths of a column, but not all, are numbers; the message names the line of the
            first mistake.
    """
    found: dict[str, Kind] = {}
    for name in names:
        values = [_number(cell, cells.decimal_comma) for cell in cells.columns[name] if cell]
        real = [value for value in values if value is not None]
        if len(real) < len(values) and len(real) >= 0.9 * len(values):
            try:
                cells.numbers(name)
            except ValueError as error:
                raise ValueError(f"{error}, or {remedy}") from None
        found[name] = "number" if len(real) == len(values) else "text"
    return found


def learn(cells: Cells, kinds: Mapping[str, Kind]) -> tuple[Features, dict[str, str]]:
    """Determine medians and categories.

    Args:
        cells: The training rows.
        kinds: Kind of each column to use, from `kinds`.

    Returns:
        The encoding, and the columns that were left out with the reason.

    Raises:
        ValueError: If no column is left.
    """
    columns, left_out = [], {}
    rows, limit = len(cells.lines), min(MAX_CATEGORIES, len(cells.lines) // 2)
    for name, kind in kinds.items():
        different = set(cells.numbers(name) if kind == "number" else cells.columns[name])
        seen = {value for value in different if value == value and value != ""}
        has_missing = len(seen) < len(different)
        if not seen:
            left_out[name] = "is empty in every row"
        elif len(seen) == 1 and not has_missing:
            left_out[name] = f"is {next(iter(seen))} in every row"
        elif kind == "number" and len(seen) > 1:
            imputer = SimpleImputer(strategy="median").fit(cells.numbers(name)[:, None])
            columns.append(Column(name, "number", float(imputer.statistics_[0]), has_missing))
        elif len(seen) > limit:
            left_out[name] = (
                f"has {len(seen)} categories in {rows} rows (at most {limit}), like a column of names, ids or dates; "
                "group them, or convert them to numbers (a year, a month)"
            )
        else:
            columns.append(Column(name, "text", categories=tuple(sorted(set(cells.columns[name])))))
    if not columns:
        why = "; ".join(f"{name!r} {words}" for name, words in left_out.items()) or "the target is the only one"
        raise ValueError(f"{cells.path} has no column to learn from: {why}")
    return Features(tuple(columns)), left_out


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


def _objects(cells: Cells, columns: Sequence[Column]) -> np.ndarray:
    """Get text columns as an object array [row, column], as scikit-learn requires."""
    return np.array([cells.columns[column.name] for column in columns], dtype=object).T


def _refuse_header(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(f"{path} names {', '.join(map(repr, twice))} more than once; give every column a unique name")
    if not any(names) or all(NUMBER.fullmatch(name) for name in names):
        raise ValueError(f"{path} begins with {','.join(names)!r}; its first line must name the columns")
