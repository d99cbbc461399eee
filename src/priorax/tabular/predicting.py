"""`priorax predict`: predict the rows of a CSV file with a model that `priorax fit` wrote."""

import contextlib
import csv
import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from priorax.checks import fraction, one_of
from priorax.estimators import Uncertainty, dates, tables
from priorax.estimators.encoding import Table, constant
from priorax.estimators.out_of_bag import INTERVAL_METHODS
from priorax.estimators.tables import Cells
from priorax.files import write_atomically
from priorax.report.calibration import Calibration
from priorax.report.table_page import write_table_page
from priorax.tabular.folder import Model, load_model
from priorax.tabular.measuring import Interval, intervals, measure, page_of
from priorax.tabular.target import Say, Target, say_encoding


@dataclass(frozen=True)
class PredictReport:
    """Summary of predictions."""

    rows: int
    """Number of rows."""
    scored_rows: int
    """Number of rows whose target is in the file."""
    calibration: Calibration | None
    """Calibration and scores on these rows; None if there are none."""
    paths: tuple[Path, ...]
    """Files written."""


def predict_table(
    model: Path | str,
    path: Path | str,
    out: Path | str,
    report: Say = lambda words: None,
    *,
    id: str | None = None,
    interval: float | None = None,
    interval_method: str = "scaled",
    page: Path | str | None = None,
    encoding: str | None = None,
) -> PredictReport:
    """Predict every row of a CSV file and write the predictions to another.

    For a regression the columns are `mean`, `epistemic_std` (reducible by more data) and `total_std` (including the
    noise of single values), with `interval` also `low` and `high`. For a classification they are `class`,
    `probability_NAME` for each class, and, in nats, `epistemic` and `total`. If there is an id column, it comes first;
    a prediction that would have the same name is called `predicted_NAME`. If the file has the target column,
    predictions are scored on the rows in which it is not empty.

    Args:
        model: Folder of the model.
        path: The CSV file to predict; columns are matched by name, others are ignored.
        out: The CSV file to write; gzipped if its name ends in .gz.
        report: Called with messages for the user.
        id: Name of a column that identifies rows; None uses the one named at the fit.
        interval: Nominal coverage of prediction intervals, for numbers; None writes none.
        interval_method: How intervals are made: `scaled`, wider where the ensemble doubts, or `jackknife`
            (jackknife+-after-bootstrap), see `PriorEnsembleRegressor.predict_interval`.
        page: An HTML file to write with the most doubtful rows and, if the file has the target column, calibration and
            residuals; None writes none.
        encoding: Encoding of the file, by its Python name; None detects it (see `tables.read`).

    Returns:
        A summary.

    Raises:
        ValueError: If the file does not match the model, has no such id column, or an argument is invalid.
        FileNotFoundError: If there is no such file or model.
    """
    path, out = Path(path), Path(out)
    found = load_model(model)
    if one_of("interval_method", interval_method, INTERVAL_METHODS) != "scaled" and interval is None:
        raise ValueError(
            f"interval_method={interval_method!r} has no effect without intervals; pass interval=0.9, or leave it out"
        )
    if interval is not None:
        fraction("interval", interval, example=0.9)
        if found.classes is not None:
            raise ValueError(
                f"interval={interval:g} is for numbers, but the model predicts one of {len(found.classes)} classes; "
                "leave it out, since predictions have probabilities"
            )
    cells = tables.read(path, id=id or found.id, encoding=encoding)
    for written in (out, *([] if page is None else [Path(page)])):
        if written.exists() and written.samefile(path):
            raise ValueError(f"out={str(written)!r} is the input file and would be overwritten; pass another file")
    if id is not None:
        one_of("id", id, cells.columns)
        if any(column.name == id for column in found.estimator.encoding_.columns):
            report(f"the model also uses the id column {id!r} as a feature; if it should not, fit again with id={id!r}")
    elif found.id is not None and cells.ids is None:
        report(f"{path} has no column {found.id!r}, the id column of the fit; predictions have no ids")
    say_encoding(cells, encoding, report)
    _say_changed(cells, found.estimator.left_out_, report)
    table = tables.as_fitted(cells, found.estimator.encoding_)
    said = _predicted(found.estimator, cells, table, report)
    bounds = None if interval is None else intervals(found.estimator, table, interval, interval_method)
    known, truth = _known_target(cells, found, report)
    some = Interval(bounds.level, bounds.low[known], bounds.high[known]) if bounds is not None else None
    scored = None if truth is None else measure(found, Uncertainty(*(part[known] for part in said)), truth, some)
    columns = _columns(found, said, bounds)
    if cells.ids is not None:
        columns = _with_ids(id or str(found.id), cells.ids, columns, report)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    content = text.getvalue().encode()
    write_atomically(out, gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    if page is not None:
        rows_are = f"{table.num_rows:,} rows of {path.name}"
        shown = page_of(found, table, said, scored, known, truth, cells.ids, source=path.name, rows_are=rows_are)
        write_table_page(shown, page)
    paths = (out,) if page is None else (out, Path(page))
    return PredictReport(table.num_rows, len(known), scored, paths)


def _predicted(estimator: Any, cells: Cells, table: Table, report: Say) -> Uncertainty:
    """Predict the rows; refuse those without a finite prediction."""
    features = estimator.encoding_
    x = features.transform(table)
    for name, words in features.unknown(table).items():
        report(f"column {name!r} has categories not seen in training: {', '.join(words[:5])}; encoded as all zeros")
    with np.errstate(over="ignore", invalid="ignore"):
        seen = ((x - estimator.x_mean_) / estimator.x_scale_).astype(np.float32)
        _refuse_rows(cells, ~np.all(np.isfinite(seen), axis=1))
        said = estimator.predict_uncertainty(table)
        _refuse_rows(cells, ~np.isfinite(said.total))
    return said


def _say_changed(cells: Cells, left_out: dict[str, str], report: Say) -> None:
    """Report columns that had one value in all training rows, and have others now."""
    for name, why in left_out.items():
        if not why.endswith(" in every row") or name not in cells.columns:
            continue
        words = {cell for cell in cells.columns[name] if cell}
        others = sorted(word for word in words if why not in _constants(cells, word))
        if others:
            shown = ", ".join(others[:5])
            report(f"column {name!r} {why} of the fit, but here also {shown}; this is not taken into account")


def _constants(cells: Cells, word: str) -> set[str]:
    """Say why a column with one value is left out, for each kind that a cell may be."""
    only = cells._replace(columns={"": [word]}, lines=[0])
    found = {constant("text", word)}
    for format in ("", *dates.FORMATS):
        with contextlib.suppress(ValueError):
            values = only.days("", format) if format else only.numbers("")
            found.add(constant("date" if format else "number", values[0]))
    return found


def _columns(found: Model, said: Uncertainty, bounds: Interval | None) -> dict[str, Iterator[str]]:
    """Create the columns of the predictions."""
    if found.classes is None:
        parts = {"mean": said.mean, "epistemic_std": said.epistemic, "total_std": said.total}
        parts |= {} if bounds is None else {"low": bounds.low, "high": bounds.high}
        return {name: _digits(values) for name, values in parts.items()}
    columns: dict[str, Iterator[str]] = {"class": iter(np.array(found.classes)[np.argmax(said.mean, axis=1)])}
    columns |= {f"probability_{name}": _digits(proba) for name, proba in zip(found.classes, said.mean.T, strict=True)}
    return columns | {"epistemic": _digits(said.epistemic), "total": _digits(said.total)}


def _known_target(cells: Cells, found: Model, report: Say) -> tuple[np.ndarray, Target | None]:
    """Find the rows whose target is in the file, and their targets."""
    none = np.zeros(0, dtype=int), None
    if found.target not in cells.columns:
        return none
    words = np.array(cells.columns[found.target])
    if found.classes is None:
        try:
            values = cells.numbers(found.target)
        except ValueError as error:
            report(f"predictions are not scored: {error}")
            return none
        known = np.flatnonzero(~np.isnan(values))
        return (known, Target(values[known], None)) if len(known) else none
    strange = sorted({*words.tolist()} - {*found.classes, ""})
    if strange:
        report(f"rows whose {found.target!r} was not among the classes are not scored: {', '.join(strange[:5])}")
    known = np.flatnonzero(np.isin(words, found.classes))
    numbers = np.searchsorted(np.array(found.classes), words[known])
    return (known, Target(numbers, list(found.classes))) if len(known) else none


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
