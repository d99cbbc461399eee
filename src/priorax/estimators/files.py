"""Save and load fitted estimators in the format of `priorax.storage`.

Files may come from untrusted sources, so the parts of a fit are checked against each other before they are used.
"""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.base import is_classifier

from priorax import files, storage
from priorax.estimators.encoding import Features
from priorax.files import BadFile

COUNTS = ("n_features_in_", "n_outputs_", "n_seen_", "n_iter_", "best_step_", "stream_seed_")
"""Integer attributes of every fitted estimator."""
ROWS = ("out_of_bag_rows_", "unseen_", "anchors_", "anchor_rank_")
"""Attributes with a part for each of some training rows; they are saved as arrays, not as JSON."""
PREFIX = "fitted."
"""Prefix of their names in a file."""
MODEL_FILE = "model.safetensors"
"""File of the estimator in a folder that `priorax fit` writes."""


def save(model: Any, path: Path | str) -> None:
    """Save a fitted estimator to one file of arrays and JSON, without pickle.

    Args:
        model: The fitted estimator.
        path: The file to write.
    """
    files.write(path, pack(model))


def pack(model: Any) -> files.Content:
    """Describe a fitted estimator by arrays and JSON.

    Args:
        model: The fitted estimator.

    Returns:
        The content of its file.
    """
    params = {name: storage.describe(value, name) for name, value in model._fit_params.items()}
    if not isinstance(model._fit_params["random_state"], int | None):
        params["random_state"] = None
    fitted = {
        name: storage.describe(value)
        for name, value in sorted(vars(model).items())
        if _is_fitted(type(model), name) and name not in ROWS
    }
    description = {"params": params, "fitted": fitted}
    if hasattr(model, "encoding_"):
        description["encoding"] = {"columns": model.encoding_.as_json()}
    rows = {PREFIX + name: vars(model)[name] for name in ROWS if name in vars(model)}
    arrays = {**storage.state_arrays(model.state_), **rows}
    return files.Content(type(model).__name__, description, arrays)


def load(cls: type, path: Path | str, own: dict[str, Any]) -> Any:
    """Load a fitted estimator.

    Args:
        cls: Class of the estimator; the file must contain one of that class.
        path: The file, written by `save`, or a folder that `priorax fit` wrote.
        own: Parameters that are custom code, by name.

    Returns:
        The fitted estimator.

    Raises:
        BadFile: If the file was not written by priorax, is damaged, or is inconsistent.
        FileNotFoundError: If the file does not exist.
    """
    if Path(path).is_dir():
        if not (Path(path) / MODEL_FILE).is_file():
            raise FileNotFoundError(
                f"{path} is a folder without a {MODEL_FILE}; pass a file that save() wrote, or a folder that priorax "
                "fit wrote (priorax.load loads run folders of agents)"
            )
        path = Path(path) / MODEL_FILE
    return unpack(cls, files.read(path), path, own)


def unpack(cls: type, content: files.Content, path: Path | str, own: dict[str, Any]) -> Any:
    """Build a fitted estimator from arrays and JSON.

    Args:
        cls: Class of the estimator; the content must be one of that class.
        content: The content, as returned by `pack`.
        path: The file that it is from, for messages.
        own: Parameters that are custom code, by name.

    Returns:
        The fitted estimator.

    Raises:
        BadFile: If the content is inconsistent.
    """
    if content.kind != cls.__name__:
        raise BadFile(f"{path} holds a {content.kind:.100}, not a {cls.__name__}; load it with that class")
    with files.reading(path):
        parts = {
            part: {name: storage.rebuild(value, own, content.largest) for name, value in values.items()}
            for part, values in content.description.items()
            if part != "encoding"
        }
        rows = {name.removeprefix(PREFIX): a for name, a in content.arrays.items() if name.startswith(PREFIX)}
        for name, array in rows.items():
            if name not in ROWS or not np.all(np.isfinite(array)):
                raise BadFile(f"{path} holds an unknown array {name!r:.100}, or one that is not finite; save it again")
        for name in parts["fitted"]:
            if not _is_fitted(cls, name):
                raise BadFile(f"{path} holds an attribute {name!r:.100} that no fitted estimator has; save it again")
        for name in ("num_members", "hidden_widths"):
            storage.refuse_size(name, parts["params"].get(name), content.largest)
        model = cls(**parts["params"])
        vars(model).update(parts["fitted"], **rows, _fit_params=parts["params"])
        if "encoding" in content.description:
            model.encoding_ = Features.from_json(content.description["encoding"]["columns"])
        _check(model)
        model.belief_ = model._belief(model.n_outputs_, model._head())
        if not is_classifier(model):
            _check_noise(model)
        rows = model._inputs(np.zeros((1, model._width)))
        example = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)
        state = {name: array for name, array in content.arrays.items() if not name.startswith(PREFIX)}
        model.state_ = storage.restore_state(model.belief_, example, state)
    return model


def _is_fitted(cls: type, name: str) -> bool:
    """Check whether a fitted estimator has an attribute of that name, apart from the state."""
    ours = name.isidentifier() and name.endswith("_") and not name.startswith("_") and not hasattr(cls, name)
    return ours and name not in ("state_", "belief_", "encoding_")


def _check(model: Any) -> None:
    """Check that the fitted attributes are consistent: shapes, and divisors above 0."""
    for name in COUNTS:
        value = getattr(model, name)
        if type(value) is not int or value < (name in ("n_features_in_", "n_outputs_")):
            raise BadFile(f"{name}={value!r:.100} is not a valid count; save it again")
    features, outputs = model._width, model.n_outputs_
    if type(model.flat_y_) is not bool or (model.flat_y_ and outputs != 1):
        raise BadFile(f"flat_y_={model.flat_y_!r:.100} contradicts n_outputs_={outputs}; save it again")
    if not isinstance(model.weight_unit_, float) or not 0 < model.weight_unit_ < np.inf:
        raise BadFile(f"weight_unit_={model.weight_unit_!r:.100} must be a number above 0; save it again")
    if not isinstance(model.prior_scale_, float) or not 0 <= model.prior_scale_ < 1e30:
        raise BadFile(f"prior_scale_={model.prior_scale_!r:.100} must be at least 0 and below 1e30; save it again")
    _check_numbers(model, "x_mean_", features)
    _check_numbers(model, "x_scale_", features, positive=True)
    if _shape(model.x_range_) != (2, features) or not np.all(model.x_range_[0] <= model.x_range_[1]):
        raise BadFile(f"x_range_ does not have a range for each of {features} features; save it again")
    _check_names(model)
    _check_anchors(model, features)
    if "loss_curve_" in vars(model):
        _check_numbers(model, "loss_curve_", len(model.loss_curve_))
    if is_classifier(model):
        labels = [model.classes_] if model.flat_y_ else model.classes_
        if not isinstance(labels, list) or len(labels) != outputs:
            raise BadFile(f"classes_ are not those of {outputs} outputs; save it again")
        for known in labels:
            if len(_shape(known)) != 1 or not known.size or not np.array_equal(known, np.unique(known)):
                raise BadFile("classes_ are not sorted distinct labels; save it again")
        _check_far_field(model, outputs, max(len(known) for known in labels))
    else:
        _check_numbers(model, "y_mean_", outputs)
        _check_numbers(model, "y_scale_", outputs, positive=True)


def _check_names(model: Any) -> None:
    """Check the names of columns and outputs, and that the columns of an encoding are among those of X."""
    columns = model.n_features_in_
    for name, count in {"feature_names_in_": columns, "output_names_": model.n_outputs_}.items():
        found = vars(model).get(name)
        if found is not None and (_shape(found) != (count,) or not all(isinstance(each, str) for each in found)):
            raise BadFile(f"{name} are not {count} names; save it again")
    left_out = vars(model).get("left_out_", {})
    if type(left_out) is not dict or not all(isinstance(word, str) for pair in left_out.items() for word in pair):
        raise BadFile(f"left_out_={left_out!r:.100} must give reasons by column; save it again")
    if hasattr(model, "encoding_"):
        used, names = {column.name for column in model.encoding_.columns}, vars(model).get("feature_names_in_")
        plain = all(re.fullmatch(r"x\d{1,9}", name, re.ASCII) and int(name[1:]) < columns for name in used)
        known = plain if names is None else used <= {*names} and len({*names}) == columns
        if not known or used & left_out.keys():
            raise BadFile("encoding_ has columns that X does not have; save it again")


def _check_numbers(model: Any, name: str, length: int, positive: bool = False) -> None:
    """Check the shape of an array; that it is finite was checked on reading."""
    values = getattr(model, name)
    if _shape(values) != (length,) or not np.issubdtype(values.dtype, np.floating):
        raise BadFile(f"{name} has shape {_shape(values)} but ({length},) is needed; save it again")
    if positive and not np.all(values > 0):
        raise BadFile(f"{name} holds a number that is not above 0; save it again")


def _check_noise(model: Any) -> None:
    """Check the noise of each output: its range, its scale and the rows that it was estimated from."""
    outputs, members, values = model.n_outputs_, model.belief_.num_members, model.noise_range_
    if _shape(values) != (2, outputs) or not np.all((values[0] >= 0) & (values[0] <= values[1])):
        raise BadFile(f"noise_range_ does not have a range for each of {outputs} outputs; save it again")
    _check_numbers(model, "noise_scale_", outputs, positive=True)
    kept, unseen = model.out_of_bag_rows_, model.unseen_
    rows = _shape(unseen)[0] if len(_shape(unseen)) == 2 else -1
    if _shape(kept) != (4, rows, outputs) or not np.issubdtype(kept.dtype, np.floating) or np.any(kept[1:] < 0):
        raise BadFile(f"out_of_bag_rows_ are not those of {rows} rows and {outputs} outputs; save it again")
    if _shape(unseen) != (rows, -(-members // 8)) or unseen.dtype != np.uint8:
        raise BadFile(f"unseen_ does not have {members} members for each row; save it again")


def _check_anchors(model: Any, features: int) -> None:
    """Check the sample of the training rows."""
    rows = len(model.anchor_rank_) if len(_shape(model.anchor_rank_)) == 1 else -1
    _check_numbers(model, "anchor_rank_", rows)
    if _shape(model.anchors_) != (rows, features) or rows < 1 or model.anchors_.dtype != np.float32:
        raise BadFile(f"anchors_ are not {rows} rows of {features} columns; save it again")


def _check_far_field(model: Any, outputs: int, classes: int) -> None:
    """Check what a classifier keeps to know what is far from the data."""
    if type(model.to_base_rates_) is not bool:
        raise BadFile(f"to_base_rates_={model.to_base_rates_!r:.100} must be true or false; save it again")
    totals = model.class_totals_
    if _shape(totals) != (outputs, classes) or not np.issubdtype(totals.dtype, np.floating) or np.any(totals < 0):
        raise BadFile(f"class_totals_ are not those of {outputs} outputs with {classes} classes; save it again")
    if not isinstance(model.radius_, float) or not 1e-3 <= model.radius_ < np.inf:
        raise BadFile(f"radius_={model.radius_!r:.100} must be at least 0.001; save it again")


def _shape(value: Any) -> tuple[int, ...]:
    """Get the shape of an array; a value that is not an array has a shape that never matches."""
    return value.shape if isinstance(value, np.ndarray) else ()
