"""Scores of a model on rows with a known target, and the report page."""

import warnings
from typing import Any, NamedTuple

import numpy as np

from priorax.checks import short_number
from priorax.estimators import Uncertainty
from priorax.estimators.encoding import Column, Table
from priorax.estimators.explaining import MAX_COLUMNS
from priorax.estimators.out_of_bag import rows_for
from priorax.report import calibration as calibrations
from priorax.report.calibration import Calibration
from priorax.report.evaluating import plain_mean
from priorax.report.table_page import DoubtfulRow, TablePage
from priorax.tabular.folder import Model
from priorax.tabular.target import Target

MOST_DOUBTFUL = 10
"""Number of doubtful rows that a report shows."""


class Interval(NamedTuple):
    """Prediction intervals of rows."""

    level: float
    """Nominal coverage."""
    low: np.ndarray
    """Lower bounds."""
    high: np.ndarray
    """Upper bounds."""


def intervals(estimator: Any, table: Table, level: float, method: str = "scaled") -> Interval:
    """Predict intervals.

    Args:
        estimator: The fitted regressor.
        table: The rows.
        level: Nominal coverage.
        method: How they are made, one of `INTERVAL_METHODS`.

    Returns:
        The intervals.

    Raises:
        ValueError: If the model was fitted to too few rows for the level.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*intervals are infinite", category=UserWarning)  # refused below
        low, high = estimator.predict_interval(table, coverage=level, method=method)
    if not np.all(np.isfinite(low)):
        refuse_level(level, 0)
    return Interval(level, low, high)


def refuse_level(level: float, rows: int) -> None:
    """Check that there are enough training rows for intervals.

    Args:
        level: Nominal coverage.
        rows: Number of training rows.

    Raises:
        ValueError: If there are too few.
    """
    needed = rows_for(level)
    if rows < needed:
        raise ValueError(
            f"interval={level:g} needs at least {needed} training rows that some members did not see; pass a lower "
            "level, or fit to more rows"
        )


def measure(model: Model, said: Uncertainty, truth: Target, interval: Interval | None) -> Calibration:
    """Measure the calibration and the scores of predictions.

    Args:
        model: The model.
        said: The predictions.
        truth: The true values of the same rows.
        interval: Intervals of the same rows, if there are any.

    Returns:
        The calibration.
    """
    if model.classes is None:
        plain = plain_mean(model.estimator)
        return calibrations.of_numbers(truth.values, said.mean, said.total, plain, interval and [interval])
    commonest = int(np.argmax(model.estimator.class_totals_[0]))
    return calibrations.of_classes(truth.values, said.mean, commonest, model.classes)


def doubtful_rows(
    model: Model, table: Table, said: Uncertainty, truth: np.ndarray | None, ids: list[str] | None
) -> tuple[DoubtfulRow, ...]:
    """Find the most doubtful rows and explain them.

    Args:
        model: The model.
        table: The rows.
        said: Their predictions.
        truth: Their true values or classes as text, empty where unknown; None if none is known.
        ids: Their ids, if they have any.

    Returns:
        At most `MOST_DOUBTFUL` rows, the most doubtful one first.
    """
    chosen = np.argsort(-said.epistemic, kind="stable")[:MOST_DOUBTFUL]
    found = []
    for row, why in zip(chosen, model.estimator.explain(table.take(chosen)), strict=True):
        line = f"line {table.lines[row]}" if table.lines is not None else f"row {row}"
        if model.classes is None:
            predicted = f"{short_number(said.mean[row])} ± {short_number(said.total[row], 2)}"
        else:
            best = int(np.argmax(said.mean[row]))
            predicted = f"{model.classes[best]} ({said.mean[row][best]:.0%})"
        found.append(
            DoubtfulRow(
                place=line if ids is None else f"{ids[row]} ({line})",
                predicted=predicted,
                truth="" if truth is None else str(truth[row]),
                doubt=why.doubt,
                usual=f"above {why.more_than:.0%} of training rows",
                causes=tuple(why.words(cause) for cause in why.main_causes()),
            )
        )
    return tuple(found)


def page_of(
    model: Model,
    table: Table,
    said: Uncertainty,
    calibration: Calibration | None,
    known: np.ndarray,
    truth: Target | None,
    ids: list[str] | None,
    *,
    source: str,
    rows_are: str,
    notes: tuple[str, ...] = (),
) -> TablePage:
    """Put a report together.

    Args:
        model: The model.
        table: The rows.
        said: Their predictions.
        calibration: Scores on the rows whose target is known, if there are any.
        known: Indices of these rows.
        truth: The targets of these rows.
        ids: Ids of all rows, if they have any.
        source: The file.
        rows_are: What the rows are, for the text.
        notes: What else was noticed.

    Returns:
        The content of the page.
    """
    estimator = model.estimator
    few = len(estimator.encoding_.columns) <= MAX_COLUMNS
    words: np.ndarray | None = None
    predictions = None
    if truth is not None and len(known):
        words = np.full(table.num_rows, "", dtype=object)
        names = truth.values if truth.classes is None else np.array(truth.classes)[truth.values]
        words[known] = [short_number(name) if truth.classes is None else str(name) for name in names]
        if truth.classes is None:
            predictions = (truth.values, said.mean[known], said.total[known])
    what = "a number" if model.classes is None else f"one of {len(model.classes)} classes"
    summary = (
        f"The model predicts {model.target!r}, {what}, from {len(estimator.encoding_.columns)} columns. It was fitted "
        f"to {estimator.n_seen_:,} rows."
    )
    if calibration is not None:
        summary += f" On {rows_are} it is {calibration.verdict}."
    return TablePage(
        title=f"{model.target}, from {source}",
        summary=summary,
        calibration=calibration,
        measured_on=f"{len(known):,} of the {rows_are}" if len(known) < table.num_rows else rows_are,
        predictions=predictions,
        doubtful=doubtful_rows(model, table, said, words, ids) if few else (),
        doubtful_of=rows_are,
        columns=tuple((column.name, how_used(column)) for column in estimator.encoding_.columns),
        left_out=estimator.left_out_,
        notes=notes if few else (*notes, f"doubtful rows are not shown, since there are over {MAX_COLUMNS:,} columns"),
    )


def how_used(column: Column) -> str:
    """Describe the encoding of a column.

    Args:
        column: The encoding.

    Returns:
        A few words.
    """
    if column.kind == "text":
        names = [name or "missing" for name in column.categories]
        rest = f" and {len(names) - 5} others" if len(names) > 5 else ""
        return f"text with {len(names)} categories: {', '.join(names[:5])}{rest}"
    missing = "; missing cells become the median and are flagged" if column.has_missing else ""
    cycles = f", with the position in the {' and the '.join(column.cycles)}" if column.cycles else ""
    return f"{column.kind}{cycles}{missing}"
