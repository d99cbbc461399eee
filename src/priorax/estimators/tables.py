"""Tables of people: CSV files with words, gaps and odd columns, made into numbers that the estimators take.

`read` gives the cells, `kinds` says which columns hold numbers, `learn` takes from them what is needed to make numbers
of any table with those columns: medians and categories (`Features`). These are plain values, written as JSON; the
transformers of scikit-learn are always made from them, at the fit as after reading, so that both give the same bits.
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

MISSING = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "?"))
"""Cells that say nothing, in capitals or not."""
MISSING_NUMBERS = frozenset(("", "none", "-"))
"""The same in columns of numbers; among words, "none" is a word."""
MAX_CATEGORIES = 50
"""A column of words may have so many different ones, and half as many as there are rows."""
SMALL_TEXT, MOST_ZIPPED = 10**8, 100
"""A gzip file may be so many bytes of text, or so many times as much as it is itself."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Cells(NamedTuple):
    """A table as it was written: the cells of each column, missing ones empty."""

    path: str
    columns: dict[str, list[str]]
    lines: list[int]
    """Where each row is in the file."""
    decimal_comma: bool
    unnamed: int
    """How many columns had no name; they are left out."""
    encoding: str = "utf-8"
    """How the text was written."""
    ids: list[str] | None = None
    """The column of ids as it was written, if one was asked for and is there: an id may look like a missing cell."""

    def take(self, rows: np.ndarray) -> "Cells":
        """Some of the rows."""
        columns = {name: [cells[i] for i in rows] for name, cells in self.columns.items()}
        ids = None if self.ids is None else [self.ids[i] for i in rows]
        return self._replace(columns=columns, lines=[self.lines[i] for i in rows], ids=ids)

    def numbers(self, name: str) -> np.ndarray:
        """A column of numbers, NaN where it says nothing; an error that names the first cell that is none."""
        values = np.array([_number(cell, self.decimal_comma) for cell in self.columns[name]], dtype=object)
        for i, value in enumerate(values):
            if value is None:
                cell, line = self.columns[name][i], self.lines[i]
                raise ValueError(
                    f"{self.path}, line {line}: column {name!r} holds numbers, but here {cell!r}; "
                    "write a finite number or leave the cell empty"
                )
        return values.astype(np.float64)


@dataclass(frozen=True)
class Column:
    """What was learned of one column."""

    name: str
    kind: Kind
    median: float = 0.0
    """Of numbers: what stands in for a missing one."""
    has_missing: bool = False
    """Of numbers: whether some were missing, which is then a feature."""
    categories: tuple[str, ...] = ()
    """Of words: those seen; the empty word is a missing one."""


@dataclass(frozen=True)
class Features:
    """From cells to numbers: missing ones become the median, words become zeros and ones."""

    columns: tuple[Column, ...]

    def of_kind(self, kind: Kind) -> list[Column]:
        """The columns of one kind, in order."""
        return [column for column in self.columns if column.kind == kind]

    def transform(self, cells: Cells) -> np.ndarray:
        """[row, feature]: numbers, whether each was missing, then the categories. Unknown words are all zeros."""
        for column in self.columns:
            if column.name not in cells.columns:
                raise ValueError(
                    f"{cells.path} has no column {column.name!r}, which the model was fitted to; add it (cells may be "
                    f"empty). It has: {', '.join(cells.columns)}"
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
        """How many numbers `transform` makes of a row."""
        return sum(1 + c.has_missing if c.kind == "number" else len(c.categories) for c in self.columns)

    def unknown(self, cells: Cells) -> dict[str, list[str]]:
        """The words that were not there at the fit, by column."""
        found = {c.name: sorted(set(cells.columns[c.name]) - {*c.categories, ""}) for c in self.of_kind("text")}
        return {name: strange for name, strange in found.items() if strange}

    def as_json(self) -> list[dict[str, Any]]:
        """What `from_json` takes."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, description: Sequence[Mapping[str, Any]]) -> "Features":
        """What `as_json` gave; every value is looked at, none is run."""
        columns = []
        for part in description:
            kind: Any = one_of("kind", part["kind"], ("number", "text"))
            median, categories = float(part["median"]), tuple(part["categories"])
            words = (part["name"], *categories)
            whole = len(set(categories)) == len(categories) and bool(categories) == (kind == "text")
            if not all(isinstance(word, str) for word in words) or not math.isfinite(median) or not whole:
                raise ValueError(f"column {part['name']!r:.100} is described in a way that no fit writes")
            columns.append(Column(part["name"], kind, median, bool(part["has_missing"]), categories))
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("no column is described, or one of them twice")
        return cls(tuple(columns))


def read(path: Path | str, id: str | None = None, encoding: str | None = None) -> Cells:
    """The cells of a CSV file whose first line names the columns; commas, semicolons or tabs part them.

    Args:
        path: The file; one that gzip made is unpacked.
        id: A column to keep as it was written, too.
        encoding: How its text is written, by Python's name for it. None: UTF-8, or UTF-16 where the file says so, and
            what is neither is taken for Windows-1252, which holds Latin-1; `Cells.encoding` says which it was.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is no table; the error names the line.
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
                "line (a cell that holds the separator needs quotes, an empty line must go)"
            )
    columns = {name: [_blank(row[i]) for row, _ in rows] for i, name in enumerate(names) if name}
    ids = [row[names.index(id)] for row, _ in rows] if id in columns else None
    return Cells(str(path), columns, [line for _, line in rows], mark == ";", names.count(""), encoding, ids)


def kinds(cells: Cells, names: Collection[str], remedy: str = "leave the column out (drop)") -> dict[str, Kind]:
    """Numbers, if every cell is one or says nothing. Where nine of ten are, the others are taken for mistakes."""
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
    """Medians and categories of these columns, and why the others were left out."""
    columns, left_out = [], {}
    rows, limit = len(cells.lines), min(MAX_CATEGORIES, len(cells.lines) // 2)
    for name, kind in kinds.items():
        different = set(cells.numbers(name) if kind == "number" else cells.columns[name])
        seen = {value for value in different if value == value and value != ""}
        has_missing = len(seen) < len(different)
        if not seen:
            left_out[name] = "says nothing in any row"
        elif len(seen) == 1 and not has_missing:
            left_out[name] = f"is {next(iter(seen))} in every row"
        elif kind == "number" and len(seen) > 1:
            imputer = SimpleImputer(strategy="median").fit(cells.numbers(name)[:, None])
            columns.append(Column(name, "number", float(imputer.statistics_[0]), has_missing))
        elif len(seen) > limit:
            left_out[name] = (
                f"has {len(seen)} different words in {rows} rows (at most {limit}), as names, ids and dates have; "
                "group them, or make numbers of them (a year, a month)"
            )
        else:
            columns.append(Column(name, "text", categories=tuple(sorted(set(cells.columns[name])))))
    if not columns:
        why = "; ".join(f"{name!r} {words}" for name, words in left_out.items()) or "the target is the only one"
        raise ValueError(f"{cells.path} has no column to learn from: {why}")
    return Features(tuple(columns)), left_out


def _unzipped(path: Path, raw: bytes) -> bytes:
    """The bytes of a file, unpacked where gzip made it."""
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    limit = max(SMALL_TEXT, MOST_ZIPPED * len(raw))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            text = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is a damaged gzip file ({error}); write it again") from None
    if len(text) > limit:
        raise ValueError(f"{path} unpacks to more than {limit:,} bytes, as no table of its size does; unpack it first")
    return text


def _decoded(path: Path, raw: bytes, encoding: str | None) -> tuple[str, str]:
    """The text of a file, and how it was written."""
    if encoding is not None:
        try:
            chosen = codecs.lookup(encoding).name
            return raw.decode("utf-8-sig" if chosen == "utf-8" else chosen), chosen
        except LookupError:
            raise ValueError(f"encoding={encoding!r} is unknown; pass for example utf-8, latin-1 or cp1252") from None
        except UnicodeDecodeError as error:
            raise ValueError(
                f"encoding={encoding!r} is not that of {path} ({error.reason}, byte {error.start}); pass another"
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
    """The number in a cell, NaN if it says nothing, None if it is none."""
    if cell.lower() in MISSING_NUMBERS:
        return math.nan
    text = cell.replace(",", ".") if decimal_comma else cell
    value = float(text) if NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def _blank(cell: str) -> str:
    return "" if cell.lower() in MISSING else cell


def _objects(cells: Cells, columns: Sequence[Column]) -> np.ndarray:
    """Words as scikit-learn takes them, [row, column]."""
    return np.array([cells.columns[column.name] for column in columns], dtype=object).T


def _refuse_header(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise ValueError(f"{path} names {', '.join(map(repr, twice))} more than once; give every column its own name")
    if not any(names) or all(NUMBER.fullmatch(name) for name in names):
        raise ValueError(f"{path} begins with {','.join(names)!r}; its first line must name the columns")
