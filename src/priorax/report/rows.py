"""Rows: the results of experiments, from which figures are drawn. CSV files, written atomically."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from priorax.files import write_atomically

Row = Mapping[str, Any]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows to a CSV file with the union of their columns, in order of first appearance.

    Args:
        path: The file to write.
        rows: The rows.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    write_atomically(path, text.getvalue().encode())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read rows from a CSV file.

    Args:
        path: The file.

    Returns:
        The rows; numbers are parsed, and empty cells are left out.
    """
    with path.open(newline="") as file:
        return [{k: _parse(v) for k, v in row.items() if v != ""} for row in csv.DictReader(file)]


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """Select rows by the values of columns.

    Args:
        rows: The rows.
        **values: Columns and their values.

    Returns:
        The rows that have all of these values.
    """
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def column(rows: Iterable[Row], name: str) -> list[Any]:
    """Return the values of one column.

    Args:
        rows: The rows.
        name: Name of the column.

    Returns:
        Its values.
    """
    return [row[name] for row in rows]


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _parse(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
