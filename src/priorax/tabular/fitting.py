"""`priorax fit`: fit a model to a CSV file and measure it on held-out rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from priorax.checks import fraction, one_of, positive_int
from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor, tables
from priorax.estimators.encoding import Learned, Table, learn
from priorax.estimators.out_of_bag import INTERVAL_METHODS
from priorax.report.calibration import Calibration
from priorax.tabular.folder import Model, refuse_folder, write_model
from priorax.tabular.measuring import intervals, measure, page_of, refuse_level
from priorax.tabular.target import Ask, Say, Target, read_target, say_encoding

LEVEL = 0.9
"""Nominal coverage of the intervals that are measured unless another one is requested."""


@dataclass(frozen=True)
class FitReport:
    """Summary of a fit."""

    target: str
    """The column that is predicted."""
    kind: str
    """`number` (regression) or `class` (classification)."""
    rows: int
    """Number of training rows."""
    held_out_rows: int
    """Number of rows held out for calibration."""
    rows_without_target: int
    """Number of rows without a target, which were dropped."""
    columns: tuple[str, ...]
    """Columns used as features."""
    left_out: dict[str, str]
    """Columns that were not used as features, and the reason."""
    steps: int
    """Number of training steps."""
    calibration: Calibration | None
    """Calibration on the held-out rows; None if there are none."""
    paths: tuple[Path, ...]
    """Files written."""


def fit_table(
    path: Path | str,
    target: str,
    out: Path | str,
    *,
    kind: str = "auto",
    id: str | None = None,
    drop: Sequence[str] = (),
    held_out: float = 0.2,
    interval: float | None = None,
    interval_method: str = "scaled",
    seed: int = 0,
    prior_scale: float | None = None,
    num_members: int = 20,
    steps: int | None = None,
    encoding: str | None = None,
    overwrite: bool = False,
    bar: bool = False,
    report: Say = lambda words: None,
    ask: Ask | None = None,
) -> FitReport:
    """Fit a model to a CSV file, measure its calibration on held-out rows, and write both to a folder.

    Args:
        path: The CSV file, with column names in the first line; it may be gzipped.
        target: Name of the column to predict.
        out: Folder to write the model to.
        kind: Kind of target: `number` (regression), `class` (classification), or `auto`: class for text, number for
            numbers, and for a target with two distinct numbers `ask` decides.
        id: Name of a column that identifies rows: not used as a feature, and copied to predictions.
        drop: Columns not to use as features.
        held_out: Fraction of rows held out to measure calibration, at most 0.5; 0 skips the measurement and the
            report page.
        interval: Nominal coverage of the prediction intervals that are measured, for numbers; None measures 0.9.
        interval_method: How intervals are made: `scaled`, wider where the ensemble doubts, or `jackknife`
            (jackknife+-after-bootstrap), see `PriorEnsembleRegressor.predict_interval`.
        seed: Random seed.
        prior_scale: Scale of the prior functions; None uses the estimator's default.
        num_members: Number of ensemble members.
        steps: Number of training steps; None selects it by the out-of-bag loss.
        encoding: Encoding of the file, by its Python name; None detects it (see `tables.read`).
        overwrite: Whether to replace an existing model.
        bar: Whether to show progress bars.
        report: Called with messages for the user.
        ask: Called with a yes-or-no question for the user; None raises an error instead.

    Returns:
        A summary of the fit.

    Raises:
        ValueError: If the table or a setting is invalid, or the kind of target is ambiguous and `ask` is None.
        FileNotFoundError: If there is no such file.
    """
    kind = one_of("kind", kind, ("auto", "number", "class"))
    out, cells = Path(out), tables.read(path, id=id, encoding=encoding)
    _check(held_out, seed)
    if interval is not None:
        fraction("interval", interval, example=0.9)
    one_of("interval_method", interval_method, INTERVAL_METHODS)
    refuse_folder(out, overwrite)
    one_of("target", target, cells.columns)
    others = [column for column in cells.columns if column != target]
    for name in drop:
        one_of("drop", name, others)
    if id is not None:
        one_of("id", id, others)
    say_encoding(cells, encoding, report)
    cells, truth, missing = read_target(cells, target, kind, report, ask)
    if missing:
        report(f"rows without a {target!r} are left out: {missing}")
    if cells.unnamed:
        report(f"columns without a name are left out: {cells.unnamed}")
    train, held = truth.split(held_out, seed)
    _check_interval(interval, truth, len(train), len(held))
    names = [name for name in others if name not in (*drop, id)]
    table = tables.typed(cells, names)
    learned = learn(table.take(train))
    notes = _notes(learned)
    for words in (*_left_out(learned), *notes):
        report(words)
    settings: dict[str, Any] = {"num_members": num_members, "random_state": seed, "verbose": bar, "encode": True}
    if prior_scale is not None:
        settings["prior_scale"] = prior_scale
    if steps is not None:
        settings |= {"steps": positive_int("steps", steps), "out_of_bag": False}
    model = _fitted(settings, table.take(train), truth.take(train)).set_params(verbose=False)
    if steps is None:
        report(f"training steps: {model.best_step_} (lowest out-of-bag loss)")
    classes = None if truth.classes is None else tuple(truth.classes)
    found = Model(model, target, classes, id)
    measured, page = None, None
    if len(held):
        rows, known = table.take(held), truth.take(held)
        said = model.predict_uncertainty(rows)
        bounds = None
        if classes is None:
            try:
                bounds = intervals(model, rows, interval or LEVEL, interval_method)
            except ValueError as error:  # with few members: known only now, and no reason to lose the fit
                report(f"intervals are not measured: {error}")
        measured = measure(found, said, known, bounds)
        ids = None if cells.ids is None else [cells.ids[i] for i in held]
        page = page_of(
            found,
            rows,
            said,
            measured,
            np.arange(len(held)),
            known,
            ids,
            source=Path(path).name,
            rows_are=f"{len(held):,} held-out rows",
            notes=tuple(notes),
        )
    paths = write_model(out, found, measured, page)
    return FitReport(
        target=target,
        kind=truth.kind,
        rows=len(train),
        held_out_rows=len(held),
        rows_without_target=missing,
        columns=tuple(column.name for column in learned.features.columns),
        left_out=learned.left_out,
        steps=model.best_step_,
        calibration=measured,
        paths=paths,
    )


def _left_out(learned: Learned) -> list[str]:
    """Describe the columns that are left out."""
    copied = {name: f"; pass id={name!r} to copy it to the predictions" for name in learned.ids}
    return [f"column {name!r} {why}; it is left out{copied.get(name, '')}" for name, why in learned.left_out.items()]


def _notes(learned: Learned) -> list[str]:
    """Describe the columns that perhaps should be left out."""
    return [
        f"column {name!r} {why}; if it is one, pass id={name!r} or drop={name!r}"
        for name, why in learned.remarks.items()
    ]


def _fitted(settings: dict[str, Any], x: Table, truth: Target) -> Any:
    if truth.classes is None:
        return PriorEnsembleRegressor(**settings).fit(x, truth.values)
    return PriorEnsembleClassifier(**settings).fit(x, np.array(truth.classes)[truth.values])


def _check_interval(interval: float | None, truth: Target, rows: int, held: int) -> None:
    """Check before training that the requested intervals can be measured."""
    if interval is None:
        return
    if truth.classes is not None:
        raise ValueError(
            f"interval={interval:g} is for numbers, but the target is predicted as one of {len(truth.classes)} "
            "classes; leave it out, since predictions have probabilities"
        )
    if not held:
        raise ValueError(f"interval={interval:g} cannot be measured without held-out rows; pass held_out=0.2")
    refuse_level(interval, rows)


def _check(held_out: float, seed: int) -> None:
    if not 0 <= held_out <= 0.5:
        raise ValueError(f"held_out={held_out!r} must be at least 0 and at most 0.5; pass for example held_out=0.2")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r} must be at least 0 and below 2**32; pass for example seed=0")
