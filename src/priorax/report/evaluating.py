"""Scores and calibration of a fitted estimator on rows with a known target, in one call."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from priorax.checks import fraction
from priorax.report.calibration import Calibration, of_classes, of_numbers


def evaluate(model: Any, X: Any, y: Any, levels: Sequence[float] = (0.9,)) -> Calibration:
    """Measure the scores and the calibration of a fitted estimator on rows that it was not fitted to.

    `print(evaluate(model, X, y))` is a table, `.metrics` a dictionary and `.plot()` the reliability diagram. For
    predictions of any other model there are `priorax.report.calibration.of_numbers(y, mean, std)` and
    `of_classes(y, proba)`.

    Args:
        model: A fitted `PriorEnsembleRegressor` or `PriorEnsembleClassifier` with one output, or an estimator of
            scikit-learn with `predict_proba(X)`, or with `predict(X, return_std=True)`, whose standard deviations are
            taken to include the noise; or a pipeline that ends with one of them.
        X: Inputs [n, features].
        y: Targets or labels [n].
        levels: For numbers, the levels of the intervals whose coverage and width are measured: those of
            `predict_interval`, or of normal distributions for estimators without it.

    Returns:
        For numbers RMSE, MAE, R², negative log likelihood, CRPS, calibration error, sharpness, coverage and width; for
        classes accuracy, balanced accuracy, log loss, Brier score, ECE and the area under the ROC curve.

    Raises:
        ValueError: If there are several outputs, y does not fit X, or has a class that the model does not know.
        TypeError: If the model predicts no uncertainty.
    """
    model, X = _last_step(model, X)
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or getattr(model, "n_outputs_", 1) != 1:
        raise ValueError(
            f"y has shape {y.shape}, but one target per row is needed; for each of several outputs call "
            "priorax.report.calibration.of_numbers(y[:, j], mean[:, j], std[:, j])"
        )
    return _classes(model, X, y) if is_classifier(model) else _numbers(model, X, y, levels)


def _last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """Take the last estimator of a pipeline, or the best of a search, and what it gets of X: these hide its noise."""
    while isinstance(model, Pipeline) or hasattr(model, "best_estimator_"):
        if isinstance(model, Pipeline):
            X, model = (model[:-1].transform(X) if len(model) > 1 else X), model[-1]
        else:
            model = model.best_estimator_
    if isinstance(model, TransformedTargetRegressor):
        raise TypeError(
            "model=TransformedTargetRegressor predicts in units that its estimator does not know; evaluate "
            "model.regressor_ on the transformed targets"
        )
    return model, X


def plain_mean(model: Any) -> float | None:
    """Return what a baseline without features predicts.

    Args:
        model: A fitted regressor of this library.

    Returns:
        The mean of the training targets; None if it is not known, since they were not standardised.
    """
    return float(model.y_mean_[0]) if model.standardize else None


def _numbers(model: Any, X: Any, y: np.ndarray, levels: Sequence[float]) -> Calibration:
    for level in levels:
        fraction("levels", level, example=0.9)
    if not hasattr(model, "predict_uncertainty"):
        try:
            mean, std = model.predict(X, return_std=True)
        except TypeError as error:
            raise TypeError(
                f"model={type(model).__name__} predicts no standard deviation; pass one whose predict(X, "
                "return_std=True) does, or call priorax.report.calibration.of_numbers(y, mean, std)"
            ) from error
        return of_numbers(y, mean, std, levels=levels)
    said = model.predict_uncertainty(X)
    bounds = []
    for level in levels:
        low, high = model.predict_interval(X, level)
        bounds.append((level, np.asarray(low), np.asarray(high)))
    return of_numbers(y, said.mean, said.total, plain_mean(model), bounds)


def _classes(model: Any, X: Any, y: np.ndarray) -> Calibration:
    known = np.asarray(model.classes_)
    unknown = np.setdiff1d(y, known)
    if len(unknown):
        raise ValueError(f"y has labels {unknown[:5]} that the model does not know; leave those rows out")
    totals = getattr(model, "class_totals_", None)
    commonest = None if totals is None else int(np.argmax(totals[0]))
    return of_classes(np.searchsorted(known, y), model.predict_proba(X), commonest, [str(label) for label in known])
