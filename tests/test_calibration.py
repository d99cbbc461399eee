"""Whether predictions are as sure as they should be: measured where it is known."""

import numpy as np
import pytest
import uncertainty_toolbox as uct
from scipy.stats import norm
from sklearn import metrics
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor, evaluate
from priorax.report import calibration

SMALL = {"num_members": 5, "hidden_widths": (16,), "steps": 300, "learning_rate": 1e-2, "random_state": 0}


def test_calibration_of_numbers_tells_right_from_too_sure():
    random = np.random.default_rng(1)
    mean, std = random.normal(size=4000), random.uniform(0.5, 2, size=4000)
    truth = mean + std * random.normal(size=4000)
    right = calibration.of_numbers(truth, mean, std, 0.0)
    assert right.error < 0.015
    assert right.error <= right.by_chance
    assert "well calibrated" in right.verdict
    sure, unsure = (calibration.of_numbers(truth, mean, std * factor, 0.0) for factor in (0.4, 2.5))
    assert (sure.verdict, unsure.verdict) == ("overconfident", "underconfident")
    assert sure.error > 0.15
    assert unsure.error > 0.15
    assert right.log_loss < min(sure.log_loss, unsure.log_loss)
    width = dict(zip(right.promised, right.weight, strict=True))[0.95]
    assert width == pytest.approx(2 * 1.959964 * std.mean(), rel=1e-6)
    assert right.score == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))


def test_calibration_of_classes_tells_right_from_too_sure():
    random = np.random.default_rng(2)
    proba = random.dirichlet(np.ones(3), size=4000)
    truth = np.array([random.choice(3, p=row) for row in proba])
    right = calibration.of_classes(truth, proba, 0)
    assert right.error < 0.03
    assert "well calibrated" in right.verdict
    sharp = proba**4 / np.sum(proba**4, axis=1, keepdims=True)
    assert calibration.of_classes(truth, sharp, 0).verdict == "overconfident"
    flat = proba**0.25 / np.sum(proba**0.25, axis=1, keepdims=True)
    assert calibration.of_classes(truth, flat, 0).verdict == "underconfident"
    assert sum(right.weight) == pytest.approx(1)
    assert right.error == pytest.approx(
        sum(w * abs(p - k) for w, p, k in zip(right.weight, right.promised, right.kept, strict=True))
    )


def test_few_rows_are_not_held_against_a_prediction():
    """How often perfect predictions on 30 rows are called otherwise: once in 20."""
    random = np.random.default_rng(3)
    runs = [calibration.of_numbers(random.normal(size=30), np.zeros(30), np.ones(30), 0.0) for _ in range(200)]
    assert np.mean([run.error > run.by_chance for run in runs]) < 0.12


def test_calibration_refuses_what_it_cannot_measure():
    ones = np.ones(3)
    for std in (np.zeros(3), np.ones(2), np.full(3, np.nan)):
        with pytest.raises(ValueError, match="standard deviation"):
            calibration.of_numbers(ones, ones, std, 0.0)
    with pytest.raises(ValueError, match="at least one row"):
        calibration.of_numbers(ones[:0], ones[:0], ones[:0], 0.0)
    with pytest.raises(ValueError, match="sum to one"):
        calibration.of_classes(np.zeros(3, int), np.ones((3, 2)), 0)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(4)
    x = random.uniform(-2, 2, (400, 2))
    return x, np.sin(x[:, 0]) + (0.1 + 0.1 * np.abs(x[:, 1])) * random.standard_normal(400)


def test_scores_of_numbers_are_those_of_the_uncertainty_toolbox_and_scikit_learn():
    random = np.random.default_rng(5)
    mean, std = random.normal(size=300), random.uniform(0.3, 2, size=300)
    truth = mean + 1.4 * std * random.standard_t(4, size=300)
    found = calibration.of_numbers(truth, mean, std, levels=(0.5, 0.9)).metrics
    assert found == pytest.approx(
        {
            "rmse": metrics.root_mean_squared_error(truth, mean),
            "mae": metrics.mean_absolute_error(truth, mean),
            "r2": metrics.r2_score(truth, mean),
            "nll": uct.nll_gaussian(mean, std, truth),
            "crps": uct.crps_gaussian(mean, std, truth),
            "calibration_error": uct.mean_absolute_calibration_error(mean, std, truth),
            "sharpness": uct.sharpness(std),
            "coverage_0.5": uct.get_proportion_in_interval(mean, std, truth, 0.5),
            "width_0.5": 2 * norm.ppf(0.75) * std.mean(),
            "coverage_0.9": uct.get_proportion_in_interval(mean, std, truth, 0.9),
            "width_0.9": 2 * norm.ppf(0.95) * std.mean(),
        }
    )
    assert found["calibration_error"] > 0.05, "the case is not trivial"


def test_the_crps_is_the_integral_of_its_definition():
    grid = np.linspace(-40, 40, 400_001)
    squares = (norm.cdf(grid, 1.0, 2.0) - (grid >= -1.5)) ** 2
    found = calibration.of_numbers(np.array([-1.5]), np.array([1.0]), np.array([2.0]))
    assert found.crps == pytest.approx(np.trapezoid(squares, grid), abs=1e-4)
    assert found.r2 is None, "there is no variance to explain"


def test_scores_of_classes_are_those_of_scikit_learn():
    random = np.random.default_rng(6)
    proba = random.dirichlet(np.ones(3), size=500)
    truth = np.array([random.choice(3, p=row) for row in proba])
    found = calibration.of_classes(truth, proba).metrics
    confidence, right = proba.max(axis=1), proba.argmax(axis=1) == truth
    place = np.minimum(np.floor(10 * confidence), 9)
    parts = [np.mean(place == b) * abs(np.mean((right - confidence)[place == b])) for b in np.unique(place)]
    assert found == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(truth, proba.argmax(axis=1)),
            "balanced_accuracy": metrics.balanced_accuracy_score(truth, proba.argmax(axis=1)),
            "log_loss": metrics.log_loss(truth, proba),
            "brier": np.mean(np.sum((proba - np.eye(3)[truth]) ** 2, axis=1)),
            "ece": np.sum(parts),
            "auroc": metrics.roc_auc_score(truth, proba, multi_class="ovr"),
        }
    )


def test_a_regressor_is_evaluated_in_one_call(table):
    x, y = table
    model = PriorEnsembleRegressor(**SMALL).fit(x[:200], y[:200])
    found = evaluate(model, x[200:], y[200:], levels=(0.8, 0.9))
    said = model.predict_uncertainty(x[200:])
    assert found.metrics["crps"] == pytest.approx(uct.crps_gaussian(said.mean, said.total, y[200:]))
    for level in (0.8, 0.9):
        low, high = model.predict_interval(x[200:], level)
        assert found.metrics[f"coverage_{level}"] == np.mean((low <= y[200:]) & (y[200:] <= high))
        assert found.metrics[f"width_{level}"] == pytest.approx(np.mean(high - low))
    assert "coverage of 0.8 intervals" in str(found) and "R²" in str(found)
    left, _ = found.plot().axes
    assert left.get_xlabel() == "nominal coverage"
    with pytest.raises(ValueError, match=r"levels=90\.0 .* pass 0\.9"):
        evaluate(model, x, y, levels=(90.0,))
    with pytest.raises(ValueError, match=r"y has shape \(400, 2\), but one target per row is needed"):
        evaluate(model, x, np.stack([y, y], axis=1))


def test_a_pipeline_is_evaluated_with_the_noise_and_the_intervals_of_its_last_step(table):
    x, y = table
    pipeline = make_pipeline(StandardScaler(), PriorEnsembleRegressor(**SMALL)).fit(x[:200], y[:200])
    found = evaluate(pipeline, x[200:], y[200:]).metrics
    inner = evaluate(pipeline[-1], pipeline[:-1].transform(x[200:]), y[200:]).metrics
    assert found == inner and "coverage_0.9" in found
    alone = make_pipeline(PriorEnsembleRegressor(**SMALL)).fit(x[:200], y[:200])
    assert evaluate(alone, x[200:], y[200:]).metrics == evaluate(alone[-1], x[200:], y[200:]).metrics


def test_the_best_of_a_search_is_evaluated_and_targets_in_other_units_are_refused(table):
    x, y = table
    search = GridSearchCV(PriorEnsembleRegressor(**SMALL), {"prior_scale": [1.0]}, cv=2).fit(x[:200], y[:200])
    assert evaluate(search, x[200:], y[200:]).metrics == evaluate(search.best_estimator_, x[200:], y[200:]).metrics
    other = TransformedTargetRegressor(PriorEnsembleRegressor(**SMALL), func=np.arcsinh, inverse_func=np.sinh)
    with pytest.raises(TypeError, match=r"evaluate model\.regressor_ on the transformed targets"):
        evaluate(other.fit(x[:200], y[:200]), x[200:], y[200:])


def test_the_baseline_of_a_model_without_standardisation_is_the_mean_of_the_targets(table):
    x, y = table
    model = PriorEnsembleRegressor(**SMALL, standardize=False).fit(x[:200], 100 + y[:200])
    assert evaluate(model, x[200:], 100 + y[200:]).plain_score == pytest.approx(np.std(y[200:]), rel=1e-5)


def test_estimators_of_others_are_evaluated_alike(table):
    x, y = table
    process = GaussianProcessRegressor(RBF(1.0) + WhiteKernel(0.1), optimizer=None).fit(x[:200], y[:200])
    found = evaluate(process, x[200:], y[200:]).metrics
    mean, std = process.predict(x[200:], return_std=True)
    assert found == calibration.of_numbers(y[200:], mean, std).metrics
    with pytest.raises(TypeError, match="LinearRegression predicts no standard deviation"):
        evaluate(LinearRegression().fit(x, y), x, y)
    labels = np.where(y > 0, "up", "down")
    plain = LogisticRegression().fit(x[:200], labels[:200])
    assert evaluate(plain, x[200:], labels[200:]).score == plain.score(x[200:], labels[200:])


def test_a_classifier_is_evaluated_in_one_call(table):
    x, y = table
    labels = np.where(y > 0.5, "up", "down")
    model = PriorEnsembleClassifier(**SMALL).fit(x[:200], labels[:200])
    found = evaluate(model, x[200:], labels[200:])
    proba = model.predict_proba(x[200:])
    assert found.metrics["log_loss"] == pytest.approx(metrics.log_loss(labels[200:], proba))
    assert found.metrics["auroc"] == pytest.approx(metrics.roc_auc_score(labels[200:], proba[:, 1]))
    assert found.plain_score == np.mean(labels[200:] == "down")
    assert found.plot().axes[0].get_xlabel() == "confidence"
    with pytest.raises(ValueError, match="'sideways'"):
        evaluate(model, x[:1], ["sideways"])
