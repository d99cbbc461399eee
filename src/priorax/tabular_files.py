"""From a CSV file to a model, and from a model to predictions, without a line of code; `model_folder` has the files."""

import csv
import gzip
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from priorax.checks import one_of, positive_int
from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor, tables
from priorax.estimators.tables import Cells
from priorax.model_folder import Model, load_model, refuse_folder, write_model
from priorax.report import calibration as calibrations
from priorax.report.calibration import Calibration
from priorax.storage import write_atomically

MIN_ROWS, MAX_CLASSES = 20, 50
FEW_NUMBERS = 10
"""A target with so many different numbers may well stand for classes."""
STEPS = (100, 200, 500, 1000, 2000)
"""How long to train, where nobody says: as long as it helps on a fifth of the training rows."""

Say = Callable[[str], None]
Ask = Callable[[str], bool]


@dataclass(frozen=True)
class FitReport:
    """What came of a fit."""

    target: str
    kind: str
    """number or class."""
    rows: int
    """That were learned from."""
    held_out_rows: int
    rows_without_target: int
    columns: tuple[str, ...]
    left_out: dict[str, str]
    """Columns that were not learned from, and why."""
    steps: int
    calibration: Calibration | None
    """None if nothing was held out."""
    paths: tuple[Path, ...]


class _Target(NamedTuple):
    """The target: numbers, or the number of each class."""

    values: np.ndarray
    classes: list[str] | None

    def take(self, rows: np.ndarray) -> "_Target":
        return self._replace(values=self.values[rows])

    @property
    def kind(self) -> str:
        return "class" if self.classes else "number"


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
    """Fit a model to a CSV file, measure its calibration on rows held out, and write both to the folder `out`.

    Args:
        path: The file, its first line names the columns; one that gzip made is unpacked.
        target: The column to predict.
        out: The folder to write to.
        kind: What the target is: number (regression) or class; auto: words are classes, numbers are numbers, and two
            different numbers are asked about.
        id: A column that tells rows apart: it is not learned from, and kept in predictions.
        drop: Columns to leave out.
        held_out: The share of rows that is not learned from; 0 measures nothing.
        seed: Everything random follows from it.
        prior_scale: Size of the prior functions; None is the estimators' own.
        num_members: How many members.
        steps: Of training; None finds out.
        encoding: Of the file's text, by Python's name; None finds out (`tables.read`).
        overwrite: Replace a model that is in the folder already.
        bar: Show progress bars.
        report: Called with a sentence on whatever a reader should know.
        ask: Called with a question, True is yes; None: there is nobody to ask, and what would be asked is an error.

    Raises:
        ValueError: If the table or a setting makes no sense, or what the target is must be said.
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
    cells, truth, missing = _target(cells, target, kind, report, ask)
    if missing:
        report(f"rows without a {target!r} are left out: {missing}")
    if cells.unnamed:
        report(f"columns without a name are left out: {cells.unnamed}")
    train, held = _split(truth, held_out, seed)
    names = [name for name in others if name not in (*drop, id)]
    features, left_out = tables.learn(cells.take(train), tables.kinds(cells, names))
    for name, why in left_out.items():
        report(f"column {name!r} {why}; it is left out")
    x = features.transform(cells)
    settings: dict[str, Any] = {"num_members": num_members, "random_state": seed, "verbose": bar}
    if prior_scale is not None:
        settings["prior_scale"] = prior_scale
    learned = truth.take(train)
    best = _find_steps(settings, x[train], learned, seed) if steps is None else positive_int("steps", steps)
    if steps is None:
        report(f"steps of training: {best}, the best of those tried on a fifth of the training rows")
    model = _fitted({**settings, "steps": best}, x[train], learned).set_params(verbose=False)
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
        steps=best,
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
    """Predict every row of a CSV file, in order, into another.

    Numbers: `mean`, `epistemic_std` (what more data would remove) and `total_std` (with the noise of single values).
    Classes: `class`, `probability_NAME` of each, and in nats `epistemic` (what more data would remove) and `total`.
    Before them stands the id of each row, as it is written, under its own name; a prediction that would have the same
    name is called `predicted_NAME`.

    Args:
        model: The folder of a model.
        path: The file to predict; columns are found by name, others are ignored.
        out: The file to write; one that ends in .gz is packed.
        report: Called with a sentence on whatever a reader should know.
        id: The column that tells rows apart; None is the one that was named at the fit.
        encoding: Of the file's text, by Python's name; None finds out (`tables.read`).

    Returns:
        How many rows there were.

    Raises:
        ValueError: If the file does not suit the model, or has no such id.
    """
    path, out = Path(path), Path(out)
    found = load_model(model)
    cells = tables.read(path, id=id or found.id, encoding=encoding)
    if out.exists() and out.samefile(path):
        raise ValueError(f"out={str(out)!r} is the file to predict and would be lost; pass another")
    if id is not None:
        one_of("id", id, cells.columns)
    elif found.id is not None and cells.ids is None:
        report(f"{path} has no column {found.id!r}, which told rows apart at the fit; predictions have none")
    _say_encoding(cells, encoding, report)
    x = found.features.transform(cells)
    for name, words in found.features.unknown(cells).items():
        report(f"column {name!r} holds what was not there at the fit: {', '.join(words[:5])}; taken for none of those")
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
    """Numbers so large that float carries neither them nor what is said of them."""
    if np.any(bad):
        raise ValueError(
            f"{cells.path}, line {cells.lines[np.argmax(bad)]}: no finite prediction; its numbers are too far from "
            "those of the fit: correct them or leave the row out"
        )


def _with_ids(id: str, ids: list[str], columns: dict[str, Iterator[str]], report: Say) -> dict[str, Iterator[str]]:
    """Ids before predictions, none of which takes their name."""
    named = {f"predicted_{name}" if name == id else name: values for name, values in columns.items()}
    if id in columns:
        report(f"the id column is called {id!r}, as a prediction is; the prediction is called 'predicted_{id}'")
    return {id: iter(ids), **named}


def _say_encoding(cells: Cells, asked: str | None, report: Say) -> None:
    if asked is None and cells.encoding != "utf-8":
        report(
            f"{cells.path} is not text in UTF-8; it is read as {ENCODINGS[cells.encoding]}. If letters come out wrong, "
            'pass another, as encoding="mac-roman"'
        )


ENCODINGS = {"cp1252": "Windows-1252 (Latin-1)", "utf-16": "UTF-16"}


def _target(cells: Cells, name: str, kind: str, report: Say, ask: Ask | None = None) -> tuple[Cells, _Target, int]:
    """The rows that have a target, that target, and how many rows have none."""
    auto, all_cells = kind == "auto", cells
    if auto:
        kind = {"number": "number", "text": "class"}[tables.kinds(cells, [name], 'pass kind="class"')[name]]
    values = cells.numbers(name) if kind == "number" else np.array(cells.columns[name])
    have = np.flatnonzero(~np.isnan(values) if kind == "number" else values != "")
    missing, cells, values = len(values) - len(have), cells.take(have), values[have]
    if len(have) < MIN_ROWS:
        raise ValueError(f"{cells.path} has {len(have)} rows with a {name!r}; add rows: {MIN_ROWS} are the least")
    different, numbers = np.unique(values, return_inverse=True)
    if len(different) < 2:
        raise ValueError(f"target={name!r} is {different[0]!s} in every row; choose a column that differs")
    if kind == "number":
        if auto and _are_classes(name, different, report, ask):
            return _target(all_cells, name, "class", report)
        return cells, _Target(values, None), missing
    if len(different) > MAX_CLASSES:
        raise ValueError(
            f"target={name!r} has {len(different)} different classes, at most {MAX_CLASSES} are possible; group them, "
            'or pass kind="number" if they are numbers'
        )
    if auto:
        report(f"{name!r} holds words and is predicted as one of {len(different)} classes")
    return cells, _Target(numbers, different.tolist()), missing


def _are_classes(name: str, different: np.ndarray, report: Say, ask: Ask | None) -> bool:
    """Whether numbers stand for classes: two of them may, and that is asked; of others it is said what they are taken
    for."""
    if len(different) == 2:
        words = f"holds only the numbers {different[0]:g} and {different[1]:g}"
        if ask is not None:
            return ask(f"{name!r} {words}. Do they stand for classes?")
        raise ValueError(
            f'target={name!r} {words}; pass kind="class" if they stand for classes, kind="number" for a regression'
        )
    count = f" ({len(different)} different ones)" if len(different) <= FEW_NUMBERS else ""
    report(f'{name!r} holds numbers{count} and is predicted as a number; pass kind="class" if they stand for classes')
    return False


def _split(truth: _Target, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and rows held out, in random order; every class has its share, and is learned."""
    order = np.random.default_rng(seed).permutation(len(truth.values))
    if truth.classes:
        order = order[np.argsort(truth.values[order], kind="stable")]
    steps = np.floor(np.arange(len(order) + 1) * share + 1e-9)
    out = np.diff(steps) > 0
    for number in range(len(truth.classes or ())):
        of_class = truth.values[order] == number
        if out[of_class].all():
            out[of_class] = False
    return np.sort(order[~out]), np.sort(order[out])


def _fitted(settings: dict[str, Any], x: np.ndarray, truth: _Target) -> Any:
    if truth.classes is None:
        return PriorEnsembleRegressor(heteroscedastic=True, **settings).fit(x, truth.values)
    return PriorEnsembleClassifier(**settings).fit(x, np.array(truth.classes)[truth.values])


def _find_steps(settings: dict[str, Any], x: np.ndarray, truth: _Target, seed: int) -> int:
    """The number of steps after which more no longer helps, by the log loss on a fifth of the training rows."""
    part, rest = _split(truth, 0.2, seed)
    best, best_loss = STEPS[0], math.inf
    for steps in STEPS:
        model = _fitted({**settings, "steps": steps}, x[part], truth.take(part))
        loss = _measure(model, x[rest], truth.take(rest), truth.take(part)).log_loss
        if loss >= best_loss:
            break
        best, best_loss = steps, loss
    return best


def _measure(model: Any, x: np.ndarray, truth: _Target, learned: _Target) -> Calibration:
    """Calibration on rows that were not learned from."""
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
