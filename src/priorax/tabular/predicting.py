"""`priorax predict`: predict the rows of a CSV file with a model that `priorax fit` wrote."""

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from priorax.checks import one_of
from priorax.estimators import tables
from priorax.estimators.tables import Cells
from priorax.files import write_atomically
from priorax.tabular.folder import load_model
from priorax.tabular.target import Say, say_encoding


def predict_table(
    model: Path | str,
    path: Path | str,
    out: Path | str,
    report: Say = lambda words: None,
    *,
    id: str | None = None,
    encoding: str | None = None,
) -> int:
    """Predict every row of a CSV file and write the predictions to another.

    For a regression the columns are `mean`, `epistemic_std` (reducible by more data) and `total_std` (including the
    noise of single values). For a classification they are `class`, `probability_NAME` for each class, and, in nats,
    `epistemic` and `total`. If there is an id column, it comes first; a prediction that would have the same name is
    called `predicted_NAME`.

    Args:
        model: Folder of the model.
        path: The CSV file to predict; columns are matched by name, others are ignored.
        out: The CSV file to write; gzipped if its name ends in .gz.
        report: Called with messages for the user.
        id: Name of a column that identifies rows; None uses the one named at the fit.
        encoding: Encoding of the file, by its Python name; None detects it (see `tables.read`).

    Returns:
        The number of rows.

    Raises:
        ValueError: If the file does not match the model, or has no such id column.
        FileNotFoundError: If there is no such file or model.
    """
    path, out = Path(path), Path(out)
    found = load_model(model)
    cells = tables.read(path, id=id or found.id, encoding=encoding)
    if out.exists() and out.samefile(path):
        raise ValueError(f"out={str(out)!r} is the input file and would be overwritten; pass another file")
    if id is not None:
        one_of("id", id, cells.columns)
    elif found.id is not None and cells.ids is None:
        report(f"{path} has no column {found.id!r}, the id column of the fit; predictions have no ids")
    say_encoding(cells, encoding, report)
    features = found.estimator.encoding_
    table = tables.as_fitted(cells, features)
    x = features.transform(table)
    for name, words in features.unknown(table).items():
        report(f"column {name!r} has categories not seen in training: {', '.join(words[:5])}; encoded as all zeros")
    with np.errstate(over="ignore", invalid="ignore"):
        seen = ((x - found.estimator.x_mean_) / found.estimator.x_scale_).astype(np.float32)
        _refuse_rows(cells, ~np.all(np.isfinite(seen), axis=1))
        said = found.estimator.predict_uncertainty(table)
        _refuse_rows(cells, ~np.isfinite(said.total))
    columns: dict[str, Iterator[str]] = {}
    if found.classes is not None:
        columns["class"] = iter(np.array(found.classes)[np.argmax(said.mean, axis=1)])
        columns |= {
            f"probability_{name}": _digits(proba) for name, proba in zip(found.classes, said.mean.T, strict=True)
        }
        columns |= {"epistemic": _digits(said.epistemic), "total": _digits(said.total)}
    else:
        parts = {"mean": said.mean, "epistemic_std": said.epistemic, "total_std": said.total}
        columns = {name: _digits(values) for name, values in parts.items()}
    if cells.ids is not None:
        columns = _with_ids(id or str(found.id), cells.ids, columns, report)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    content = text.getvalue().encode()
    write_atomically(out, gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    return len(x)


def _refuse_rows(cells: Cells, bad: np.ndarray) -> None:
    """Raise if rows have no finite prediction."""
    if np.any(bad):
        raise ValueError(
            f"{cells.path}, line {cells.lines[np.argmax(bad)]}: no finite prediction, because its numbers are too far "
            "from those of the fit; correct them or remove the row"
        )


def _with_ids(id: str, ids: list[str], columns: dict[str, Iterator[str]], report: Say) -> dict[str, Iterator[str]]:
    """Put the id column first; a prediction of the same name is renamed."""
    named = {f"predicted_{name}" if name == id else name: values for name, values in columns.items()}
    if id in columns:
        report(f"the id column {id!r} has the name of a prediction; the prediction is called 'predicted_{id}'")
    return {id: iter(ids), **named}


def _digits(values: Any) -> Iterator[str]:
    return (f"{value:.9g}" for value in values)
