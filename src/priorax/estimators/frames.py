"""Data frames and arrays as tables, and predictions as data frames.

pandas and polars are imported only if they are asked for.
"""

import datetime
import decimal
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from priorax.estimators import dates
from priorax.estimators.encoding import Features, Kind, Table, Values

MICROSECONDS = 86_400 * 10**6
"""Microseconds of a day."""


def is_frame(X: Any) -> bool:
    """Check whether something is a data frame.

    Args:
        X: Anything.

    Returns:
        Whether it has named columns, as those of pandas and polars have.
    """
    return hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "shape")


def table_of(X: Any, names: Sequence[str] | None = None, features: Features | None = None) -> Table:
    """Convert a data frame or an array to a table with typed columns.

    Numbers and booleans are numbers; strings and pandas' categories are text, or dates if every string is one; dates
    are dates. None, NaN, NaT and NA, and empty strings, are missing.

    Args:
        X: The data frame, or a two-dimensional array or list.
        names: Names of the columns; None takes those of the data frame, or x0, x1, ...
        features: An encoding, whose kinds the columns shall have; None decides them.

    Returns:
        The table.

    Raises:
        TypeError: If X is sparse.
        ValueError: If a column mixes kinds or has another kind than the encoding; the message names the row.
    """
    if sparse.issparse(X):
        raise TypeError("X is sparse, but encode=True was passed; pass encode=False, or X.toarray()")
    arrays: list[tuple[Any, bool]]
    if is_frame(X):
        check_array(np.broadcast_to(0.0, X.shape), input_name="X")  # at least one row and column
        if len(set(X.columns)) < len(X.columns):
            twice = sorted({str(name) for name in X.columns if list(X.columns).count(name) > 1})
            raise ValueError(f"X names {', '.join(map(repr, twice))} more than once; give every column a unique name")
        arrays = [(X[name].to_numpy(), str(X[name].dtype) == "category") for name in X.columns]
    else:
        X = X if hasattr(X, "dtype") else np.asarray(X, dtype=object)
        arrays = [(column, False) for column in check_array(X, dtype=None, ensure_all_finite=False, input_name="X").T]
    if names is None:
        named = is_frame(X) and all(isinstance(name, str) for name in X.columns)
        names = list(X.columns) if named else [f"x{i}" for i in range(len(arrays))]
    kinds = {} if features is None else {column.name: column for column in features.columns}
    columns = {}
    for name, (array, category) in zip(names, arrays, strict=True):
        if features is None:
            columns[name] = _typed(name, array, category)
        elif name in kinds:
            columns[name] = _as_fitted(name, array, kinds[name].kind, kinds[name].format)
    return Table("X", columns)


def _typed(name: str, array: np.ndarray, category: bool) -> Values:
    """Decide the kind of a column."""
    found: Kind = "text" if category else _kind(name, array)
    if found != "text":
        return _as_fitted(name, array, found, "")
    words = _words(array)
    format = None if category else dates.format_of({*words[words != ""]})
    if format in (None, dates.AMBIGUOUS):
        return Values("text", words, format or "")
    return _as_fitted(name, array, "date", format)


def _kind(name: str, array: np.ndarray) -> Kind:
    """Determine the kind of an array; that of objects from all of them."""
    if array.dtype.kind in "mcV":
        remedy = "its seconds (dt.total_seconds())" if array.dtype.kind == "m" else "numbers or text"
        raise ValueError(f"X has the type {array.dtype} in column {name!r}; convert it to {remedy}")
    if array.dtype.kind != "O":
        kinds: dict[str, Kind] = {"U": "text", "S": "text", "M": "date"}
        return kinds.get(array.dtype.kind, "number")
    first: tuple[Kind, int] | None = None
    for row, value in enumerate(array):
        kind = _kind_of(value)
        if kind == "":
            continue
        if kind is None:
            raise ValueError(
                f"X has {value!r:.100} in column {name!r}, row {row}: argument must be a string, a number or a date; "
                "convert or drop the column"
            )
        if first is None:
            first = kind, row
        elif first[0] != kind:
            raise ValueError(
                f"X mixes kinds in column {name!r}: {array[first[1]]!r:.50} in row {first[1]} is a {first[0]}, "
                f"{value!r:.50} in row {row} a {kind}; convert the column to one of them, for example "
                f"X[{name!r}].astype(str)"
            )
    return "number" if first is None else first[0]


def _kind_of(value: Any) -> Any:
    """Determine the kind of an object: an empty string if it is missing, None if it is of no kind."""
    if _is_missing(value):
        return ""
    if isinstance(value, str | bytes):
        return "text"
    if isinstance(value, numbers.Real | decimal.Decimal | np.bool_):
        return "number"
    return "date" if isinstance(value, datetime.date | np.datetime64) else None


def _is_missing(value: Any) -> bool:
    """Check for None, NaN, NaT and NA, without importing pandas, and for the empty string."""
    if value is None or (isinstance(value, str) and value == "") or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(isinstance(value, float | np.floating | np.datetime64) and value != value)


def _as_fitted(name: str, array: np.ndarray, kind: Kind, format: str) -> Values:
    """Convert a column to a kind."""
    if kind == "text":
        return Values(kind, _words(array), format)
    if kind == "number" and array.dtype.kind in "biuf":
        return Values(kind, _finite(name, array.astype(np.float64)))
    if kind == "date" and array.dtype.kind == "M":
        moments = array.astype("datetime64[us]")
        counted = moments.astype(np.int64) / MICROSECONDS
        return Values(kind, np.where(np.isnat(moments), np.nan, counted), format)
    found = np.full(len(array), np.nan)
    for row, value in enumerate(array):
        if _is_missing(value):
            continue
        converted = _number(value) if kind == "number" else _days(value, format or dates.ISO)
        if converted is None:
            raise ValueError(
                f"X has {value!r:.100} in column {name!r}, row {row}, which is not a {kind}, as the column is; convert "
                "or remove the row, or leave the cell empty (None)"
            )
        found[row] = converted
    return Values(kind, _finite(name, found), format)


def _number(value: Any) -> float | None:
    return float(value) if _kind_of(value) == "number" else None


def _days(value: Any, format: str) -> float | None:
    if isinstance(value, str):
        return dates.days(value, format)
    if isinstance(value, np.datetime64):
        return float(value.astype("datetime64[us]").astype(np.int64)) / MICROSECONDS
    return dates.days_of(value) if isinstance(value, datetime.date) else None


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    """Refuse infinite numbers, with scikit-learn's words."""
    return check_array(values[:, None], ensure_all_finite="allow-nan", input_name=f"X, column {name!r},")[:, 0]


def _words(array: np.ndarray) -> np.ndarray:
    """Convert values to text: numbers as they are written, whole ones without a point."""
    found = np.empty(len(array), dtype=object)
    found[:] = ["" if _is_missing(value) else _word(value) for value in array.tolist()]
    return found


def _word(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _in_pandas(values: np.ndarray, X: Any, columns: Any) -> Any:
    """Convert predictions [row] or [row, column] for X to a series or a data frame of pandas, with the index of X."""
    import pandas

    index = X.index if isinstance(X, pandas.DataFrame) else None
    if values.ndim == 1:
        return pandas.Series(values, index=index, name=columns[0])
    return pandas.DataFrame(values, index=index, columns=list(columns))


def _in_polars(values: np.ndarray, X: Any, columns: Any) -> Any:
    """Convert predictions [row] or [row, column] to a series or a data frame of polars."""
    import polars

    if values.ndim == 1:
        return polars.Series(str(columns[0]), values)
    return polars.DataFrame({str(name): column for name, column in zip(columns, values.T, strict=True)})


FRAMES = {"pandas": _in_pandas, "polars": _in_polars}
"""Functions that convert predictions to data frames, by library: of values, inputs and names of the columns."""


def names_of(y: Any) -> list[str] | None:
    """Get the names of targets.

    Args:
        y: Targets.

    Returns:
        The name of a series or the columns of a data frame, if they are strings; else None.
    """
    found: list[Any] = list(y.columns) if is_frame(y) else [getattr(y, "name", None)]
    return found if all(isinstance(name, str) for name in found) else None
