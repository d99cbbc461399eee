"""What the estimators take and return: arrays, or data frames with text, dates and missing cells."""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from priorax.checks import one_of
from priorax.estimators.encoding import Features, Table, learn
from priorax.estimators.frames import FRAMES, is_frame, names_of, table_of

REMEDY = "pass encode=True to the estimator, which encodes text, dates and missing cells, or convert X to numbers"


class TableInputs(BaseEstimator):
    """Validation and encoding of X, and predictions as series and data frames."""

    encode: Any
    encoding_: Features
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.encode
        for name in ("allow_nan", "string", "categorical"):
            setattr(tags.input_tags, name, bool(self.encode))
        tags.target_tags.multi_output = True
        return tags

    def set_output(self, *, transform: str | None = None) -> Any:
        """Choose the container of predictions, as `set_output` of scikit-learn's transformers does.

        With "pandas" or "polars", the results of `predict`, `predict_proba`, `predict_uncertainty` and
        `predict_interval` are series or data frames, named after y or the classes; those of pandas have the index of
        X. Covariances, samples and members stay
        arrays. The choice is copied by `clone`, and not saved in files.

        Args:
            transform: "default" for arrays, "pandas", "polars", or None to change nothing; the argument has its name
                from scikit-learn.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If `transform` is unknown.
            ImportError: If the library is not installed.
        """
        if transform in FRAMES and importlib.util.find_spec(transform) is None:
            raise ImportError(
                f'transform="{transform}" needs {transform}, which is not installed; run pip install {transform}'
            )
        if transform is not None:
            self._sklearn_output_config = {"transform": one_of("transform", transform, ("default", *FRAMES))}
        return self

    def _said(self, X: Any, values: np.ndarray, columns: Any) -> Any:
        """Convert predictions of the rows of X to the container that was chosen."""
        chosen = getattr(self, "_sklearn_output_config", {}).get("transform")
        return FRAMES[chosen](values, X, columns) if chosen in FRAMES else values

    def _output_names(self, num_outputs: int) -> list[str]:
        """Get the names of the targets: those of y, or y, or y0, y1, ..."""
        plain = ["y"] if num_outputs == 1 else [f"y{i}" for i in range(num_outputs)]
        return list(getattr(self, "output_names_", plain))

    def _validated(self, X: Any, y: Any, sample_weight: Any, fresh: bool, **y_checks: Any) -> tuple[Any, Any, Any]:
        """Validate X, y and weights; weights are scaled to mean one over the first call of `fit` or `partial_fit`."""
        if not isinstance(self.encode, bool | np.bool_):
            raise ValueError(f"encode={self.encode!r} must be True or False; pass for example encode=True")
        names = names_of(y)
        numeric = bool(y_checks.get("y_numeric"))
        with _remedies(X, y if numeric else None):
            if self.encode if fresh else hasattr(self, "encoding_"):
                X, y = check_X_y(self._encoded(X, fresh), y, dtype=np.float64, estimator=self, **y_checks)
            else:
                X, y = validate_data(self, X, y, reset=fresh, dtype=np.float64, accept_sparse="csr", **y_checks)
            y = y.astype(np.float64) if numeric and y.dtype.kind in "US" else y
        if fresh:
            self.weight_unit_ = 1.0
            for old in ("output_names_", *(() if self.encode else ("encoding_", "left_out_"))):
                self.__dict__.pop(old, None)
            if names is not None:
                self.output_names_ = np.array(names, dtype=object)
        if sample_weight is None:
            return X, y, None
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if fresh:
            largest = weight.max()
            if largest == 0:
                raise ValueError("sample_weight is 0 everywhere; pass at least one non-zero number")
            self.weight_unit_ = float(largest * np.mean(weight / largest))
        return X, y, weight / self.weight_unit_

    def _asked(self, X: Any) -> Any:
        """Validate the inputs of a prediction."""
        check_is_fitted(self, "state_")
        if hasattr(self, "encoding_"):
            return self._encoded(X, False)
        with _remedies(X):
            return validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")

    def _encoded(self, X: Any, fresh: bool) -> np.ndarray:
        """Encode X as numbers; with `fresh`, learn how. Of a `Table`, columns are found by name, and others ignored."""
        table = self._table(X, fresh)
        if fresh:
            learned = learn(table)
            self.encoding_, self.left_out_ = learned.features, learned.left_out
            if table is not X:
                for name, why in learned.left_out.items():
                    warnings.warn(f"column {name!r} of X {why}; it is left out", UserWarning, stacklevel=4)
        elif table is not X:
            for name, words in self.encoding_.unknown(table).items():
                shown = ", ".join(words[:5])
                warnings.warn(
                    f"column {name!r} of X has categories that were not in the training data: {shown}", stacklevel=4
                )
        return self.encoding_.transform(table)

    def _table(self, X: Any, fresh: bool) -> Table:
        """Convert X to a table, and check or set the names of its columns."""
        if isinstance(X, Table):
            if fresh:
                self.n_features_in_ = len(X.columns)
                self.feature_names_in_ = np.array(list(X.columns), dtype=object)
            return X
        if not is_frame(X) and not sparse.issparse(X):  # errors about shapes come first
            X = X if hasattr(X, "dtype") else np.asarray(X, dtype=object)
            X = check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
        table = table_of(X) if fresh else None
        validate_data(self, X, "no_validation", reset=fresh, skip_check_array=True)
        names = getattr(self, "feature_names_in_", None)
        return table or table_of(X, None if names is None else list(names), self.encoding_)

    def _groups(self) -> dict[str, np.ndarray]:
        """Get the indices of the features of each column."""
        if hasattr(self, "encoding_"):
            return self.encoding_.groups()
        return {name: np.array([place]) for place, name in enumerate(self._column_names())}

    def _column_names(self) -> list[str]:
        plain = [f"x{i}" for i in range(self.n_features_in_)]
        return [str(name) for name in getattr(self, "feature_names_in_", plain)]

    def _text_columns(self) -> set[str]:
        columns = self.encoding_.of_kind("text") if hasattr(self, "encoding_") else []
        return {column.name for column in columns}

    def _decoded(self, features: np.ndarray) -> dict[str, Any]:
        """Get the values of a row from its features."""
        if hasattr(self, "encoding_"):
            return self.encoding_.decode(features)
        return {name: float(value) for name, value in zip(self._column_names(), features, strict=True)}

    def _with_values(self, X: Any) -> tuple[np.ndarray, list[dict[str, Any]]]:
        """Validate the inputs of a prediction; get their features, dense, and the values of each row by column."""
        features = self._asked(X)
        features = features.toarray() if sparse.issparse(features) else features
        if not hasattr(self, "encoding_"):
            return features, [self._decoded(row) for row in features]
        table = self._table(X, False)
        return features, [table.row(number) for number in range(len(features))]

    @property
    def _width(self) -> int:
        """Number of features that networks see."""
        return self.encoding_.size if hasattr(self, "encoding_") else self.n_features_in_


@contextlib.contextmanager
def _remedies(X: Any, y: Any = None) -> Iterator[None]:
    """Add the remedy to scikit-learn's errors about text or missing cells, in X or in a numeric y."""
    try:
        yield
    except (TypeError, ValueError) as error:
        words = str(error)
        text = "could not convert string to float" in words
        if text and y is not None and _is_text(y):
            raise ValueError(f"{words}: y has text; use PriorEnsembleClassifier, or convert y to numbers") from error
        if not text and "NAType" not in words and not words.startswith("Input X contains NaN"):
            raise
        kinds = {name: getattr(X[name].dtype, "kind", "O") for name in X.columns} if is_frame(X) else {}
        odd = [str(name) for name, kind in kinds.items() if kind not in "biuf"]
        where = f" (columns that are not numbers: {', '.join(odd[:5])})" if odd else ""
        raise ValueError(f"{words}{where}; {REMEDY}") from error


def _is_text(y: Any) -> bool:
    try:
        np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        return True
    return False
