"""The folder of a model: written by `priorax fit`, read by `priorax predict` and `priorax inspect`.

- `model.safetensors`: the estimator, as its `save` method writes it.
- `calibration.json`: the calibration measured on held-out rows; `calibration.png` plots it, and `report.html` shows it
  with residuals and the most doubtful rows.
- `table.json`: the target, the id column and the classes. It is written last and marks a complete model.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from priorax.checks import one_of
from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.estimators.files import MODEL_FILE
from priorax.files import BadFile, parse_json, reading, write_atomically
from priorax.report.calibration import Calibration
from priorax.report.plots import save_figure
from priorax.report.table_page import TablePage, write_table_page
from priorax.version import __version__

VERSION = 3
"""Version of the folder format."""
FILES = (MODEL_FILE, "calibration.json", "calibration.png", "report.html", "table.json")
"""Files of a model."""


@dataclass(frozen=True)
class Model:
    """A fitted estimator with the names of its target and ids."""

    estimator: Any
    """The fitted estimator, which encodes columns itself (`encode=True`)."""
    target: str
    """The column that is predicted."""
    classes: tuple[str, ...] | None
    """Names of the classes; None for a regression."""
    id: str | None = None
    """The column that identifies rows, if any."""
    written_by: str = __version__
    """The version of priorax that wrote the model."""

    @property
    def kind(self) -> str:
        """`number` (regression) or `class` (classification)."""
        return "number" if self.classes is None else "class"


def holds_model(folder: Path | str) -> bool:
    """Return whether a folder contains a complete model.

    Args:
        folder: The folder.

    Returns:
        Whether `priorax fit` has finished writing to it.
    """
    return (Path(folder) / "table.json").is_file()


def refuse_folder(out: Path, overwrite: bool) -> None:
    """Check that a model can be written to a folder.

    Args:
        out: The folder.
        overwrite: Whether an existing model may be replaced.

    Raises:
        ValueError: If it is a file, or contains a model that may not be replaced.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={str(out)!r} is a file; pass a folder")
    if not overwrite and any((out / name).exists() for name in FILES):
        raise ValueError(f"out={str(out)!r} already contains a model; pass --overwrite to replace it or another folder")


def write_model(
    out: Path, model: Model, measured: Calibration | None, page: TablePage | None = None
) -> tuple[Path, ...]:
    """Write a model to a folder.

    Args:
        out: The folder; it is created.
        model: The model.
        measured: Its calibration, if it was measured.
        page: Content of the report page, if there is one.

    Returns:
        The files written.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in reversed(FILES[1:]):
        (out / name).unlink(missing_ok=True)
    model.estimator.save(out / MODEL_FILE)
    if measured is not None:
        write_atomically(out / "calibration.json", _json(measured.as_json()))
        save_figure(measured.plot(), out, "calibration", ("png",))
    if page is not None:
        write_table_page(page, out / "report.html")
    description = {
        "version": VERSION,
        "priorax": __version__,
        "target": model.target,
        "id": model.id,
        "kind": model.kind,
        "classes": model.classes,
        "model_sha256": hashlib.sha256((out / MODEL_FILE).read_bytes()).hexdigest(),
    }
    write_atomically(out / "table.json", _json(description))
    return tuple(out / name for name in FILES if (out / name).exists())


def load_model(folder: Path | str) -> Model:
    """Load a model and verify that its files belong together.

    Args:
        folder: The folder.

    Returns:
        The model.

    Raises:
        BadFile: If a file is damaged, has another format version, or does not belong to the others.
        FileNotFoundError: If there is no model.
    """
    path = Path(folder) / "table.json"
    if not holds_model(folder):
        raise FileNotFoundError(f"{folder} contains no model (there is no {path}); create one with priorax fit")
    description = parse_json(path, path.read_bytes())
    with reading(path):
        if description["version"] != VERSION:
            found = description["version"]
            raise BadFile(
                f"{path} has format version {found!r:.100}, but this version of priorax reads {VERSION}; use the "
                "version that wrote it"
            )
        numbers = one_of("kind", description["kind"], ("number", "class")) == "number"
        classes = None if numbers else tuple(description["classes"])
        target, id_, written_by = (description.get(name) for name in ("target", "id", "priorax"))
        words = (target, written_by, *(() if id_ is None else (id_,)), *(classes or ()))
        if not all(isinstance(word, str) for word in words):
            raise BadFile(f"{path} has names that are not strings; fit the model again")
        checksum = description["model_sha256"]
    file = path.parent / MODEL_FILE
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != checksum:
        raise BadFile(f"{file} is missing or does not belong to {path.name}; fit the model again")
    estimator = (PriorEnsembleRegressor if numbers else PriorEnsembleClassifier).load(file)
    known = None if numbers else tuple(estimator.classes_)
    if not estimator.flat_y_ or not hasattr(estimator, "encoding_") or known != classes:
        raise BadFile(f"{path} describes columns or classes other than those of {file.name}; fit the model again")
    return Model(estimator, target, classes, id_, written_by)


def inspect_model(folder: Path | str) -> list[tuple[str, str]]:
    """Describe a model.

    Args:
        folder: The folder.

    Returns:
        Name and value of each fact.

    Raises:
        BadFile: If a file is damaged, has another format version, or does not belong to the others.
        FileNotFoundError: If there is no model.
    """
    model = load_model(folder)
    estimator = model.estimator
    what = "a number" if model.classes is None else f"one of {len(model.classes)} classes: {', '.join(model.classes)}"
    facts = [
        ("model", f"of {model.target!r}, {what}"),
        ("written by", f"priorax {model.written_by}"),
        ("fitted to", f"{estimator.n_seen_:,} rows, in {estimator.n_iter_:,} steps"),
        ("ensemble", f"{estimator.num_members} members, prior_scale {estimator.prior_scale_:g}"),
        ("columns", ", ".join(f"{column.name} ({column.kind})" for column in estimator.encoding_.columns)),
        ("id", "none" if model.id is None else model.id),
    ]
    path = Path(folder) / "calibration.json"
    if not path.is_file():
        return [*facts, ("calibration", "not measured: no rows were held out"), ("checksums", "all valid")]
    description = parse_json(path, path.read_bytes())
    with reading(path):
        measured = Calibration.from_json(description)
        facts += [
            (name, f"{value}; reference: {compare}" if compare else value)
            for name, value, compare in measured.summary()[1:]
        ]
    return [*facts, ("measured on", f"{measured.rows:,} held-out rows"), ("checksums", "all valid")]


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()
