"""Estimators of the benchmark, ours and others', each with its predictive distribution.

Estimators without a predictive distribution get the usual one: normal, with the standard deviation of residuals of rows
that they did not see (out-of-bag, or cross-validated), and the disagreement of their members where they have any.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.base import clone
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor

COVERAGE = 0.9
"""Nominal coverage of intervals."""
GP_ROWS, GP_CLASS_ROWS = 2000, 500
"""Maximum number of training rows of Gaussian processes; a random subset of larger sets."""


class Normal(NamedTuple):
    """Normal predictive distributions of new rows, and their intervals."""

    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    doubt: np.ndarray
    """What tells unusual rows from usual ones: the disagreement of members, or the standard deviation."""


class Proba(NamedTuple):
    """Class probabilities of new rows."""

    proba: np.ndarray


Predict = Callable[[np.ndarray], Any]
"""Maps inputs to `Normal` or `Proba`."""
Fit = Callable[[np.ndarray, np.ndarray, int], Predict]
"""Fits a model to inputs and targets, with a seed."""


def _normal(mean: np.ndarray, std: np.ndarray, doubt: np.ndarray | None = None) -> Normal:
    half = norm.ppf(0.5 + COVERAGE / 2) * std
    return Normal(mean, std, mean - half, mean + half, std if doubt is None else doubt)


def _ours(x: np.ndarray, y: np.ndarray, seed: int, **changes: Any) -> Predict:
    model = PriorEnsembleRegressor(random_state=seed, **changes).fit(x, y)

    def predict(x: np.ndarray) -> Normal:
        said = model.predict_uncertainty(x)
        low, high = model.predict_interval(x, COVERAGE)
        return Normal(said.mean, said.total, low, high, said.epistemic)

    return predict


def _ours_classes(x: np.ndarray, y: np.ndarray, seed: int, **changes: Any) -> Predict:
    model = PriorEnsembleClassifier(random_state=seed, **changes).fit(x, y)
    return lambda x: Proba(model.predict_proba(x))


def _forest(x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    model = RandomForestRegressor(300, oob_score=True, random_state=seed).fit(x, y)
    noise = np.sqrt(np.mean((y - model.oob_prediction_) ** 2))

    def predict(x: np.ndarray) -> Normal:
        trees = np.array([tree.predict(x) for tree in model.estimators_])
        return _normal(trees.mean(axis=0), np.full(len(x), noise), trees.std(axis=0))

    return predict


def _boosting(x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    model = HistGradientBoostingRegressor(random_state=seed)
    unseen = cross_val_predict(model, x, y, cv=KFold(5, shuffle=True, random_state=seed))
    noise = np.sqrt(np.mean((y - unseen) ** 2))
    model.fit(x, y)
    return lambda x: _normal(model.predict(x), np.full(len(x), noise))


def _process(x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    rows = np.random.default_rng(seed).permutation(len(x))[:GP_ROWS]
    scaler = StandardScaler().fit(x)
    kernel = 1.0 * RBF(1.0) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    model.fit(scaler.transform(x[rows]), y[rows])
    return lambda x: _normal(*model.predict(scaler.transform(x), return_std=True))


def _bagged(x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    net = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(50, 50), max_iter=300))
    mean, scale = y.mean(), y.std()
    model = BaggingRegressor(net, 20, random_state=seed).fit(x, (y - mean) / scale)
    unseen = np.array([~np.isin(np.arange(len(x)), rows) for rows in model.estimators_samples_])
    members = np.array([net.predict(x) for net in model.estimators_])
    rows = unseen.any(axis=0)  # the bag's own score counts rows that every member saw as predictions of 0
    out_of_bag = np.average(members[:, rows], axis=0, weights=unseen[:, rows])
    noise = np.sqrt(np.mean(((y[rows] - mean) / scale - out_of_bag) ** 2))

    def predict(x: np.ndarray) -> Normal:
        members = np.array([net.predict(x) for net in model.estimators_])
        spread = members.std(axis=0, ddof=1)
        return _normal(members.mean(axis=0) * scale + mean, np.full(len(x), noise) * scale, spread)

    return predict


def _ngboost(x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    from ngboost import NGBRegressor
    from ngboost.learners import default_tree_learner

    tree = clone(default_tree_learner).set_params(random_state=seed)  # otherwise ties are broken at random
    model = NGBRegressor(Base=tree, random_state=seed, verbose=False).fit(x, y)

    def predict(x: np.ndarray) -> Normal:
        said = model.pred_dist(x)
        return _normal(said.loc, said.scale)

    return predict


def _classes(make: Callable[[int], Any]) -> Fit:
    def fit(x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        model = make(seed).fit(x, y)
        return lambda x: Proba(model.predict_proba(x))

    return fit


def _process_classes(x: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    rows = np.random.default_rng(seed).permutation(len(x))[:GP_CLASS_ROWS]
    model = make_pipeline(StandardScaler(), GaussianProcessClassifier(1.0 * RBF(1.0), random_state=seed))
    model.fit(x[rows], y[rows])
    return lambda x: Proba(model.predict_proba(x))


OURS = "priorax"
REGRESSORS: dict[str, Fit] = {
    "random forest": _forest,
    "gradient boosting": _boosting,
    "Gaussian process": _process,
    "bagged MLPs": _bagged,
    "NGBoost": _ngboost,
}
CLASSIFIERS: dict[str, Fit] = {
    "random forest": _classes(lambda seed: RandomForestClassifier(300, random_state=seed)),
    "gradient boosting": _classes(lambda seed: HistGradientBoostingClassifier(random_state=seed)),
    "Gaussian process": _process_classes,
    "bagged MLPs": _classes(
        lambda seed: BaggingClassifier(
            make_pipeline(StandardScaler(), MLPClassifier(hidden_layer_sizes=(50, 50), max_iter=300)),
            20,
            random_state=seed,
        )
    ),
}


def fit(model: str, x: np.ndarray, y: np.ndarray, seed: int, regression: bool, **changes: Any) -> Predict:
    """Fit a model with its default settings.

    Args:
        model: `OURS`, or a name from `REGRESSORS` or `CLASSIFIERS`.
        x: Training inputs.
        y: Training targets.
        seed: Random seed.
        regression: Whether y has numbers, not classes.
        **changes: Changed parameters, of our estimators only.

    Returns:
        Maps inputs to predictive distributions.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if model == OURS:
            return _ours(x, y, seed, **changes) if regression else _ours_classes(x, y, seed, **changes)
        return (REGRESSORS if regression else CLASSIFIERS)[model](x, y, seed)
