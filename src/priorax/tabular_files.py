"""From a CSV file to a model, and from a model to predictions, without a line of code.

A model's folder:

model.safetensors   the estimator, as its own `save` writes it
calibration.json    how far its predictions can be trusted, measured on rows held out; calibration.png draws it
table.json          the columns: medians, categories. Written last: without it there is no model
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from priorax.checks import one_of, positive_int
from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor, tables
from priorax.estimators.tables import Cells, Features
from priorax.report import calibration as calibrations
from priorax.report.calibration import Calibration
from priorax.report.plots import save_figure
from priorax.storage import BadFile, reading, write_atomically
from priorax.version import __version__

VERSION = 1
MIN_ROWS, MAX_CLASSES = 20, 50
STEPS = (100, 200, 500, 1000, 2000)
"""How long to train, where nobody says: as long as it helps on a fifth of the training rows."""
FILES = ("model.safetensors", "calibration.json", "calibration.png", "table.json")

Say = Callable[[str], None]


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
    drop: Sequence[str] = (),
    held_out: float = 0.2,
    seed: int = 0,
    prior_scale: float | None = None,
    num_members: int = 20,
    steps: int | None = None,
    overwrite: bool = False,
    bar: bool = False,
    report: Say = lambda words: None,
) -> FitReport:
    """Fit a model to a CSV file, measure its calibration on rows held out, and write both to the folder `out`.

    kind      auto (words are classes, numbers are numbers), number or class
    drop      columns to leave out
    held_out  the share of rows that is not learned from; 0 measures nothing
    steps     of training; None finds out
    bar       show progress bars; `report` is called with a sentence on whatever a reader should know
    """
    kind = one_of("kind", kind, ("auto", "number", "class"))
    out, cells = Path(out), tables.read(path)
    _check(held_out, seed)
    _refuse_folder(out, overwrite)
    one_of("target", target, cells.columns)
    for name in drop:
        one_of("drop", name, [column for column in cells.columns if column != target])
    cells, truth, missing = _target(cells, target, kind, report)
    if missing:
        report(f"rows without a {target!r} are left out: {missing}")
    if cells.unnamed:
        report(f"columns without a name are left out: {cells.unnamed}")
    train, held = _split(truth, held_out, seed)
    names = [name for name in cells.columns if name != target and name not in drop]
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
    paths = _write(out, model, features, target, truth, measured)
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


def predict_table(model: Path | str, path: Path | str, out: Path | str, report: Say = lambda words: None) -> int:
    """Predict every row of a CSV file, in order, into another; returns how many.

    Numbers: `mean`, `epistemic_std` (what more data would remove) and `total_std` (with the noise of single values).
    Classes: `class`, `probability_NAME` of each, and in nats `epistemic` (what more data would remove) and `total`.
    """
    path, out = Path(path), Path(out)
    cells = tables.read(path)
    if out.exists() and out.samefile(path):
        raise ValueError(f"out={str(out)!r} is the file to predict and would be lost; pass another")
    estimator, features = load_model(model)
    x = features.transform(cells)
    for name, words in features.unknown(cells).items():
        report(f"column {name!r} holds what was not there at the fit: {', '.join(words[:5])}; taken for none of those")
    with np.errstate(over="ignore", invalid="ignore"):
        said = estimator.predict_uncertainty(x)
    bad = np.flatnonzero(~np.isfinite(said.total))
    if len(bad):
        raise ValueError(
            f"{path}, line {cells.lines[bad[0]]}: no finite prediction; its numbers are too far from those of the fit: "
            "correct them or leave the row out"
        )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if isinstance(estimator, PriorEnsembleClassifier):
        writer.writerow(["class", *(f"probability_{name}" for name in estimator.classes_), "epistemic", "total"])
        names = estimator.classes_[np.argmax(said.mean, axis=1)]
        for name, proba, *doubt in zip(names, said.mean, said.epistemic, said.total, strict=True):
            writer.writerow([name, *_digits([*proba, *doubt])])
    else:
        writer.writerow(["mean", "epistemic_std", "total_std"])
        writer.writerows(map(_digits, zip(said.mean, said.epistemic, said.total, strict=True)))
    write_atomically(out, text.getvalue().encode())
    return len(x)


def load_model(folder: Path | str) -> tuple[Any, Features]:
    """The estimator in a folder, and what makes its inputs of a table."""
    path = Path(folder) / "table.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no model (there is no {path}); make one with priorax fit")
    with reading(path):
        description = json.loads(path.read_bytes())
        if description["version"] != VERSION:
            found = description["version"]
            raise BadFile(f"{path} has version {found!r}, this priorax reads {VERSION}; use the release that wrote it")
        features = Features.from_json(description["columns"])
        numbers = one_of("kind", description["kind"], ("number", "class")) == "number"
        checksum = description["model_sha256"]
    file = path.parent / "model.safetensors"
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != checksum:
        raise BadFile(f"{file} is missing or is not the one that {path.name} belongs to; fit the model again")
    return (PriorEnsembleRegressor if numbers else PriorEnsembleClassifier).load(file), features


def _target(cells: Cells, name: str, kind: str, report: Say) -> tuple[Cells, _Target, int]:
    """The rows that have a target, that target, and how many rows have none."""
    asked = kind
    if kind == "auto":
        kind = {"number": "number", "text": "class"}[tables.kinds(cells, [name], "say kind=class")[name]]
    values = cells.numbers(name) if kind == "number" else np.array(cells.columns[name])
    have = np.flatnonzero(~np.isnan(values) if kind == "number" else values != "")
    missing, cells, values = len(values) - len(have), cells.take(have), values[have]
    if len(have) < MIN_ROWS:
        raise ValueError(f"{cells.path} has {len(have)} rows with a {name!r}; add rows: {MIN_ROWS} are the least")
    different, numbers = np.unique(values, return_inverse=True)
    if len(different) < 2:
        raise ValueError(f"target={name!r} is {different[0]!s} in every row; choose a column that differs")
    if kind == "number":
        if asked == "auto" and len(different) <= 10:
            report(f"{name!r} has only {len(different)} different numbers; if they stand for classes, say kind=class")
        return cells, _Target(values, None), missing
    if len(different) > MAX_CLASSES:
        raise ValueError(
            f"target={name!r} has {len(different)} different classes, at most {MAX_CLASSES} are possible; group them, "
            "or say kind=number if they are numbers"
        )
    return cells, _Target(numbers, different.tolist()), missing


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
    return calibrations.of_classes(truth.values, said.mean, int(np.argmax(np.bincount(learned.values))))


def _write(
    out: Path, model: Any, features: Features, target: str, truth: _Target, measured: Calibration | None
) -> tuple[Path, ...]:
    """All files; the one that makes a model of them goes first and comes last."""
    out.mkdir(parents=True, exist_ok=True)
    for name in reversed(FILES[1:]):
        (out / name).unlink(missing_ok=True)
    model.save(out / "model.safetensors")
    if measured is not None:
        write_atomically(out / "calibration.json", _json(measured.as_json()))
        save_figure(calibrations.figure(measured), out, "calibration", ("png",))
    description = {
        "version": VERSION,
        "priorax": __version__,
        "target": target,
        "kind": truth.kind,
        "classes": truth.classes,
        "columns": features.as_json(),
        "model_sha256": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(),
    }
    write_atomically(out / "table.json", _json(description))
    return tuple(out / name for name in FILES if (out / name).exists())


def _check(held_out: float, seed: int) -> None:
    if not 0 <= held_out <= 0.5:
        raise ValueError(f"held_out={held_out!r} must be at least 0 and at most 0.5; pass for example held_out=0.2")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r} must be at least 0 and below 2**32; pass for example seed=0")


def _refuse_folder(out: Path, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={str(out)!r} is a file; pass a folder")
    if not overwrite and any((out / name).exists() for name in FILES):
        raise ValueError(f"out={str(out)!r} already holds a model; pass --overwrite to replace it or another folder")


def _digits(values: Any) -> Iterator[str]:
    return (f"{value:.9g}" for value in values)


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
