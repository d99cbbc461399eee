"""`priorax fit` and `priorax predict`: fit a model to a CSV file and predict the rows of another.

The files of a model are described in `priorax.model_folder`.
"""

import csv
import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from priorax.checks import one_of, positive_int
from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor, tables
from priorax.estimators.tables import Cells
from priorax.files import write_atomically
from priorax.model_folder import Model, load_model, refuse_folder, write_model
from priorax.report import calibration as calibrations
from priorax.report.calibration import Calibration

MIN_ROWS, MAX_CLASSES = 20, 50
"""Minimum number of rows with a target, and maximum number of classes."""
FEW_NUMBERS = 10
"""A numeric target with at most this many distinct values may be classes; the message reports their number."""

Say = Callable[[str], None]
"""Function that receives a message for the user."""
Ask = Callable[[str], bool]
"""Function that asks the user a yes-or-no question."""


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


class Target(NamedTuple):
    """The column to predict: a number for each row, or the index of its class."""

    values: np.ndarray
    classes: list[str] | None
    """Names of the classes; None if the target is a number."""

    def take(self, rows: np.ndarray) -> "Target":
        """Select rows.

        Args:
            rows: Indices of rows.

        Returns:
            The target of these rows.
        """
        return self._replace(values=self.values[rows])

    @property
    def kind(self) -> str:
        """`number` or `class`."""
        return "class" if self.classes else "number"

    def split(self, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Choose rows at random to hold out, stratified by class; every class keeps at least one training row.

        Args:
            share: Fraction of rows to hold out.
            seed: Random seed.

        Returns:
            Indices of the training rows and of the held-out rows, each in ascending order.
        """
        order = np.random.default_rng(seed).permutation(len(self.values))
        if self.classes:
            order = order[np.argsort(self.values[order], kind="stable")]
        steps = np.floor(np.arange(len(order) + 1) * share + 1e-9)
        out = np.diff(steps) > 0
        for number in range(len(self.classes or ())):
            of_class = self.values[order] == number
            if out[of_class].all():
                out[of_class] = False
        return np.sort(order[~out]), np.sort(order[out])


def fit_table(
    path: Path | str,
    target: str,
    out: Path | str,
    *,
    kind: str = "auto",
    id: str | None = None,
    drop: Sequence[str] = (),
    held_out: float = 0.2,
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
        held_out: Fraction of rows held out to measure calibration, at most 0.5; 0 skips the measurement.
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
    out, cells = Path(out), tables.read(path, encoding=encoding)
    _check(held_out, seed)
    refuse_folder(out, overwrite)
    one_of("target", target, cells.columns)
    others = [column for column in cells.columns if column != target]
    for name in drop:
        one_of("drop", name, others)
    if id is not None:
        one_of("id", id, others)
    _say_encoding(cells, encoding, report)
    cells, truth, missing = read_target(cells, target, kind, report, ask)
    if missing:
        report(f"rows without a {target!r} are left out: {missing}")
    if cells.unnamed:
        report(f"columns without a name are left out: {cells.unnamed}")
    train, held = truth.split(held_out, seed)
    names = [name for name in others if name not in (*drop, id)]
    features, left_out = tables.learn(cells.take(train), tables.kinds(cells, names))
    for name, why in left_out.items():
        report(f"column {name!r} {why}; it is left out")
    x = features.transform(cells)
    settings: dict[str, Any] = {"num_members": num_members, "random_state": seed, "verbose": bar}
    if prior_scale is not None:
        settings["prior_scale"] = prior_scale
    learned = truth.take(train)
    if steps is not None:
        settings |= {"steps": positive_int("steps", steps), "out_of_bag": False}
    model = _fitted(settings, x[train], learned).set_params(verbose=False)
    if steps is None:
        report(f"training steps: {model.best_step_} (lowest out-of-bag loss)")
    measured = _measure(model, x[held], truth.take(held), learned) if len(held) else None
    classes = None if truth.classes is None else tuple(truth.classes)
    paths = write_model(out, Model(model, features, target, classes, id), measured)
    return FitReport(
        target=target,
        kind=truth.kind,
        rows=len(train),
        held_out_rows=len(held),
        rows_without_target=missing,
        columns=tuple(column.name for column in features.columns),
        left_out=left_out,
        steps=model.best_step_,
        calibration=measured,
        paths=paths,
    )


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
    _say_encoding(cells, encoding, report)
    x = found.features.transform(cells)
    for name, words in found.features.unknown(cells).items():
        report(f"column {name!r} has categories not seen in training: {', '.join(words[:5])}; encoded as all zeros")
    with np.errstate(over="ignore", invalid="ignore"):
        seen = ((x - found.estimator.x_mean_) / found.estimator.x_scale_).astype(np.float32)
        _refuse_rows(cells, ~np.all(np.isfinite(seen), axis=1))
        said = found.estimator.predict_uncertainty(x)
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


def _say_encoding(cells: Cells, requested: str | None, report: Say) -> None:
    if requested is None and cells.encoding != "utf-8":
        report(
            f"{cells.path} is not UTF-8; it is read as {ENCODINGS[cells.encoding]}. If characters are wrong, "
            'pass the encoding, for example encoding="mac-roman"'
        )


ENCODINGS = {"cp1252": "Windows-1252 (Latin-1)", "utf-16": "UTF-16"}
"""Readable names of encodings."""


def read_target(cells: Cells, name: str, kind: str, report: Say, ask: Ask | None = None) -> tuple[Cells, Target, int]:
    """Determine the kind of the target, and drop rows without a target.

    Args:
        cells: The table.
        name: Name of the column to predict.
        kind: `number`, `class` or `auto` (see `fit_table`).
        report: Called with messages for the user.
        ask: Called with a yes-or-no question for the user; None raises an error instead.

    Returns:
        The rows with a target, the target, and the number of rows without one.

    Raises:
        ValueError: If there are too few rows, too many classes, or only one value, or the kind is ambiguous and `ask`
            is None.
    """
    auto, all_cells = kind == "auto", cells
    if auto:
        kind = {"number": "number", "text": "class"}[tables.kinds(cells, [name], 'pass kind="class"')[name]]
    values = cells.numbers(name) if kind == "number" else np.array(cells.columns[name])
    have = np.flatnonzero(~np.isnan(values) if kind == "number" else values != "")
    missing, cells, values = len(values) - len(have), cells.take(have), values[have]
    if len(have) < MIN_ROWS:
        raise ValueError(f"{cells.path} has {len(have)} rows with a {name!r}, at least {MIN_ROWS} are needed; add rows")
    different, numbers = np.unique(values, return_inverse=True)
    if len(different) < 2:
        raise ValueError(f"target={name!r} is {different[0]!s} in every row; choose a column that varies")
    if kind == "number":
        if auto and _are_classes(name, different, report, ask):
            return read_target(all_cells, name, "class", report)
        return cells, Target(values, None), missing
    if len(different) > MAX_CLASSES:
        raise ValueError(
            f"target={name!r} has {len(different)} distinct classes, at most {MAX_CLASSES} are possible; group them, "
            'or pass kind="number" if they are numbers'
        )
    if auto:
        report(f"{name!r} holds text and is predicted as one of {len(different)} classes")
    return cells, Target(numbers, different.tolist()), missing


def _are_classes(name: str, different: np.ndarray, report: Say, ask: Ask | None) -> bool:
    """Check whether numbers are class labels: ask if there are only two, else report that they are numbers."""
    if len(different) == 2:
        words = f"holds only the numbers {different[0]:g} and {different[1]:g}"
        if ask is not None:
            return ask(f"{name!r} {words}. Are they class labels?")
        raise ValueError(
            f'target={name!r} {words}; pass kind="class" if they are class labels, kind="number" for a regression'
        )
    count = f" ({len(different)} distinct ones)" if len(different) <= FEW_NUMBERS else ""
    report(f'{name!r} holds numbers{count} and is predicted as a number; pass kind="class" if they are class labels')
    return False


def _fitted(settings: dict[str, Any], x: np.ndarray, truth: Target) -> Any:
    if truth.classes is None:
        return PriorEnsembleRegressor(**settings).fit(x, truth.values)
    return PriorEnsembleClassifier(**settings).fit(x, np.array(truth.classes)[truth.values])


def _measure(model: Any, x: np.ndarray, truth: Target, learned: Target) -> Calibration:
    """Measure the calibration on held-out rows."""
    said = model.predict_uncertainty(x)
    if truth.classes is None:
        return calibrations.of_numbers(truth.values, said.mean, said.total, float(learned.values.mean()))
    commonest = int(np.argmax(np.bincount(learned.values)))
    return calibrations.of_classes(truth.values, said.mean, commonest, truth.classes)


def _check(held_out: float, seed: int) -> None:
    if not 0 <= held_out <= 0.5:
        raise ValueError(f"held_out={held_out!r} must be at least 0 and at most 0.5; pass for example held_out=0.2")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r} must be at least 0 and below 2**32; pass for example seed=0")


def _digits(values: Any) -> Iterator[str]:
    return (f"{value:.9g}" for value in values)
