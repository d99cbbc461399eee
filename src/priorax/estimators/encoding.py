"""Tables with text, dates and missing cells, encoded as numbers: by the estimators, and so by the CSV commands.

A `Table` has typed columns; `frames` makes one from a data frame or an array, `tables` from a CSV file. `learn`
determines medians and categories (`Features`), with which any table with those columns can be encoded. They are plain
values, stored as JSON; the transformers of scikit-learn are always built from them, so that encodings are the same
after saving and loading.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from priorax.checks import one_of
from priorax.estimators import dates

Kind = Literal["number", "text", "date"]
"""Kind of a column."""

MAX_CATEGORIES = 50
"""Maximum number of categories of a text column; it may also have at most half as many as there are rows."""
ID_WORDS = frozenset(("id", "ids", "key", "uuid", "guid", "index", "nr"))
"""Words in the name of a column that identifies rows."""


class Values(NamedTuple):
    """The values of one column."""

    kind: Kind
    """Whether they are numbers, text or dates."""
    values: np.ndarray
    """Numbers, or days since 1970-01-01, in float64, NaN where missing; or text as objects, empty where missing."""
    format: str = ""
    """For dates that were text: their format (`dates.FORMATS`). For text: `dates.AMBIGUOUS` if it could be dates."""


class Table(NamedTuple):
    """A table with typed columns."""

    source: str
    """What it was made from, for messages: a file or an argument."""
    columns: dict[str, Values]
    """The columns by name."""
    lines: Sequence[int] | None = None
    """Line of each row in the file, if it is from one."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())).values) if self.columns else 0

    def take(self, rows: np.ndarray) -> "Table":
        """Select rows.

        Args:
            rows: Indices of the rows.

        Returns:
            The table with those rows.
        """
        columns = {name: column._replace(values=column.values[rows]) for name, column in self.columns.items()}
        return self._replace(columns=columns, lines=None if self.lines is None else [self.lines[i] for i in rows])

    def row(self, number: int) -> dict[str, Any]:
        """Get the values of one row.

        Args:
            number: Index of the row.

        Returns:
            A number, text or date (in ISO 8601) for each column; None where missing.
        """
        return {name: plain(column.kind, column.values[number]) for name, column in self.columns.items()}


@dataclass(frozen=True)
class Column:
    """The encoding of one column."""

    name: str
    """Name of the column."""
    kind: Kind
    """Whether it holds numbers, text or dates."""
    median: float = 0.0
    """For numbers and dates: the median, which replaces missing cells."""
    has_missing: bool = False
    """For numbers and dates: whether cells were missing; if so, an indicator of missing cells is a further feature."""
    categories: tuple[str, ...] = ()
    """For text: the categories; the empty string stands for missing cells."""
    format: str = ""
    """For dates that were text: their format."""
    cycles: tuple[str, ...] = ()
    """For dates: the cycles whose positions are further features."""

    @property
    def size(self) -> int:
        """Number of features."""
        return len(self.categories) if self.kind == "text" else 1 + self.has_missing + 2 * len(self.cycles)


@dataclass(frozen=True)
class Features:
    """The encoding of a table as numbers.

    Missing numbers become the median and are flagged; text is one-hot encoded; dates are days, with the sine and cosine
    of their position in the year, the week and the day.
    """

    columns: tuple[Column, ...]
    """The encoding of each column."""

    def of_kind(self, *kinds: Kind) -> list[Column]:
        """Select the columns of some kinds.

        Args:
            *kinds: `number`, `text` or `date`.

        Returns:
            The columns, in order.
        """
        return [column for column in self.columns if column.kind in kinds]

    def transform(self, table: Table) -> np.ndarray:
        """Encode a table.

        Args:
            table: The table; columns are found by name.

        Returns:
            Features [row, feature]: numbers and dates, missing indicators, one-hot categories, then positions in
            cycles. Unknown categories are all zeros.

        Raises:
            ValueError: If a column is missing or of another kind.
        """
        for column in self.columns:
            self._refuse(table, column)
        parts = []
        numbers, words = self.of_kind("number", "date"), self.of_kind("text")
        if numbers:
            medians = np.array([column.median for column in numbers])
            gaps = np.where([column.has_missing for column in numbers], np.nan, medians)
            imputer = SimpleImputer(strategy="median", add_indicator=True).fit(np.stack([medians, gaps]))
            parts.append(imputer.transform(np.stack([table.columns[c.name].values for c in numbers], axis=1)))
        if words:
            known = [np.array(column.categories, dtype=object) for column in words]
            encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
            encoder.fit(np.array([[categories[0] for categories in known]], dtype=object))
            parts.append(encoder.transform(np.stack([table.columns[c.name].values for c in words], axis=1)))
        for column in numbers:
            moments = table.columns[column.name].values
            parts += [dates.positions(moments, cycle) for cycle in column.cycles]
        return np.concatenate(parts, axis=1)

    def _refuse(self, table: Table, column: Column) -> None:
        """Check that a table has a column, and that it is of the right kind."""
        found = table.columns.get(column.name)
        if found is None:
            raise ValueError(
                f"{table.source} has no column {column.name!r}, which the model uses; add it (cells may be "
                f"empty). Columns: {', '.join(table.columns)}"
            )
        if found.kind != column.kind:
            raise ValueError(
                f"{table.source} has the kind {found.kind!r} in column {column.name!r}, but the fit had "
                f"{column.kind!r}; convert the column"
            )

    @property
    def size(self) -> int:
        """Number of features."""
        return sum(column.size for column in self.columns)

    def groups(self) -> dict[str, np.ndarray]:
        """Find the features of each column.

        Returns:
            The indices of the features, by column.
        """
        places: dict[str, list[int]] = {column.name: [] for column in self.columns}
        numbers = self.of_kind("number", "date")
        order = [column.name for column in numbers]
        order += [column.name for column in numbers if column.has_missing]
        order += [column.name for column in self.of_kind("text") for _ in column.categories]
        order += [column.name for column in numbers for _ in range(2 * len(column.cycles))]
        for place, name in enumerate(order):
            places[name].append(place)
        return {name: np.array(found) for name, found in places.items()}

    def decode(self, features: np.ndarray) -> dict[str, Any]:
        """Recover the values of a row, as far as its features have them.

        Args:
            features: The features of the row [feature], perhaps rounded.

        Returns:
            A number, text or date for each column; None where the cell was missing or its category is unknown.
        """
        places, row = self.groups(), dict[str, Any]()
        for column in self.columns:
            of_column = features[places[column.name]]
            if column.kind == "text":
                found = column.categories[int(np.argmax(of_column))] if of_column.max() > 0.5 else ""
                row[column.name] = found or None
            else:
                gone = column.has_missing and of_column[1] > 0.5
                row[column.name] = None if gone else plain(column.kind, float(of_column[0]))
        return row

    def unknown(self, table: Table) -> dict[str, list[str]]:
        """Find categories that were not in the training data.

        Args:
            table: The table.

        Returns:
            The unknown categories, by column.
        """
        found = {c.name: sorted({*table.columns[c.name].values} - {*c.categories, ""}) for c in self.of_kind("text")}
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
            kind: Any = one_of("kind", part["kind"], ("number", "text", "date"))
            median, categories, cycles = float(part["median"]), tuple(part["categories"]), tuple(part["cycles"])
            format, gaps = part["format"], part["has_missing"]
            words = (part["name"], *categories)
            whole = len({*categories}) == len(categories) and bool(categories) == (kind == "text")
            timed = kind == "date" or (not cycles and not format)
            known = {*cycles} <= {*dates.CYCLES} and len({*cycles}) == len(cycles) and format in ("", *dates.FORMATS)
            if not all(isinstance(word, str) for word in words) or not math.isfinite(median):
                raise ValueError(f"column {part['name']!r:.100} has an invalid description")
            if not whole or not timed or not known or type(gaps) is not bool or (gaps and kind == "text"):
                raise ValueError(f"column {part['name']!r:.100} has an invalid description")
            columns.append(Column(part["name"], kind, median, gaps, categories, format, cycles))
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("columns are empty, or not unique")
        return cls(tuple(columns))


class Learned(NamedTuple):
    """What was learned about the columns of a table."""

    features: Features
    """The encoding."""
    left_out: dict[str, str]
    """Columns that are not used, and the reason."""
    ids: tuple[str, ...]
    """Those of them that look like ids."""
    remarks: dict[str, str]
    """Columns that are used, but look as if they should not be, and the reason."""


def learn(table: Table) -> Learned:
    """Determine medians and categories, and which columns tell nothing.

    Args:
        table: The training rows.

    Returns:
        The encoding, and what was noticed.

    Raises:
        ValueError: If no column is left.
    """
    if table.num_rows == 1:
        raise ValueError(f"{table.source} has 1 sample (row), from which no encoding can be learned; pass at least 2")
    columns, ids = [], []
    left_out, remarks = dict[str, str](), dict[str, str]()
    for name, column in table.columns.items():
        found = _encoding(name, column)
        if isinstance(found, Column):
            columns.append(found)
            if column.kind == "number" and _counts_rows(column.values):
                low, high = column.values.min(), column.values.max()
                remarks[name] = f"holds whole numbers from {low:g} to {high:g}, each at most once, like a row number"
        else:
            left_out[name] = found
            if found == ID:
                ids.append(name)
    if not columns:
        why = "; ".join(f"{name!r} {words}" for name, words in left_out.items()) or "there is none"
        raise ValueError(f"{table.source} has no column to learn from: {why}")
    return Learned(Features(tuple(columns)), left_out, tuple(ids), remarks)


ID = "is different in every row, like an id"
"""Why a column that identifies rows is left out."""


def constant(kind: Kind, value: Any) -> str:
    """Say why a column with one value is left out.

    Args:
        kind: Kind of the column.
        value: The value, as in `Values`.

    Returns:
        The reason.
    """
    return f"is {plain(kind, value)} in every row"


def _encoding(name: str, column: Values) -> Column | str:
    """Determine the encoding of a column, or why it is left out."""
    kind, values = column.kind, column.values
    gone = values == "" if kind == "text" else np.isnan(values)
    seen, has_missing = {*values[~gone].tolist()}, bool(np.any(gone))
    limit = min(MAX_CATEGORIES, len(values) // 2)
    if not seen:
        return "is empty in every row"
    if len(seen) == 1 and not has_missing:
        return constant(kind, next(iter(seen)))
    if kind == "number" and len(seen) > 1 and not (_is_named_id(name) and _is_id(values)):
        return Column(name, "number", _median(values), has_missing)
    if kind == "date" and len(seen) > 1:
        cycles = dates.cycles_of(values[~gone])
        return Column(name, "date", _median(values), has_missing, format=column.format, cycles=cycles)
    if column.format == dates.AMBIGUOUS:
        return f"could be dates with the day or the month first ({next(iter(seen))}); write them as 2024-01-31"
    if len(seen) == len(values) and (kind == "number" or len(seen) > limit):
        return ID
    if kind == "text" and len(seen) > limit:
        return (
            f"has {len(seen)} categories in {len(values)} rows (at most {limit}), like a column of names; group them, "
            "or convert them to numbers"
        )
    if kind == "text":
        return Column(name, "text", categories=tuple(sorted({*values.tolist()})))
    only = next(iter(seen))  # present or missing is all that it tells
    return Column(name, kind, float(only), has_missing, format=column.format)


def _median(values: np.ndarray) -> float:
    return float(SimpleImputer(strategy="median").fit(values[:, None]).statistics_[0])


def _is_named_id(name: str) -> bool:
    """Check whether one of the words of a name, as in `customer_id` or `PassengerId`, says that it is an id."""
    return not ID_WORDS.isdisjoint(re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower().replace("_", " ").split())


def _is_id(values: np.ndarray) -> bool:
    """Check whether numbers are whole, none of them missing, and different in every row."""
    return bool(np.all(values == np.floor(values))) and len(np.unique(values)) == len(values)


def _counts_rows(values: np.ndarray) -> bool:
    return len(values) > 2 and _is_id(values) and bool(values.max() - values.min() < 2 * len(values))


def plain(kind: Kind, value: Any) -> Any:
    """Convert a value of a column for display.

    Args:
        kind: Kind of the column.
        value: The value, as in `Values`.

    Returns:
        A number, text or a date in ISO 8601; None if it is missing.
    """
    if kind == "text":
        return value or None
    number = float(value)
    if math.isnan(number):
        return None
    return dates.as_text(number) if kind == "date" else number
