import pickle
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.beliefs import L2
from priorax.estimators import SIZES
from priorax.noise import Gaussian
from priorax.priors import Function

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (120, 2))
Y = 100 + 30 * np.sin(3 * X[:, 0]) + 3 * RANDOM.standard_normal(120)
LABELS = np.where(X[:, 0] > 0, "right", "left")
SMALL = {"num_members": 5, "hidden_widths": (20,), "steps": 500, "learning_rate": 1e-2, "random_state": 0}


@pytest.fixture(scope="module")
def regressor():
    return PriorEnsembleRegressor(**SMALL).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return PriorEnsembleClassifier(**SMALL).fit(X, LABELS)


def test_it_predicts_well_and_is_less_sure_away_from_data(regressor):
    assert regressor.score(X, Y) > 0.9
    _, near = regressor.predict(X, return_std=True)
    _, far = regressor.predict(X + 10, return_std=True)
    assert far.mean() > 5 * near.mean()


def test_std_cov_and_samples_describe_the_same_members(regressor):
    mean, std = regressor.predict(X[:7], return_std=True)
    same, cov = regressor.predict(X[:7], return_cov=True)
    np.testing.assert_allclose(mean, same, rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-4)
    samples = regressor.sample(X[:7], 2000, random_state=0)
    assert samples.shape == (2000, 7)
    assert len(np.unique(samples[:, 0])) == 5
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=3 * std.max() / np.sqrt(2000) + 1e-3)
    np.testing.assert_array_equal(regressor.sample(X[:2], 9), regressor.sample(X[:2], 9))
    with pytest.raises(ValueError, match="ask for one of them"):
        regressor.predict(X, return_std=True, return_cov=True)


def test_random_state_reproduces_to_the_bit_and_matters():
    a, b, c = (PriorEnsembleRegressor(**{**SMALL, "random_state": s}).fit(X, Y).predict(X) for s in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert not np.any(a == c)


def test_a_prediction_does_not_depend_on_what_else_is_asked(regressor):
    """To the bit: alone, among few, and in another chunk."""
    many = np.concatenate([X] * 40)
    assert len(many) > SIZES[-1]
    whole = regressor.predict(many)
    np.testing.assert_array_equal(whole[: len(X)], regressor.predict(X))
    np.testing.assert_array_equal(whole[-len(X) :], regressor.predict(X))
    np.testing.assert_array_equal([regressor.predict(X[i : i + 1])[0] for i in (0, 7)], whole[[0, 7]])


def test_several_outputs_keep_their_shape():
    both = np.stack([Y, -2 * Y], axis=1)
    model = PriorEnsembleRegressor(**SMALL).fit(X, both)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (120, 2)
    assert model.predict(X[:3], return_cov=True)[1].shape == (3, 3, 2)
    assert model.sample(X[:3], 4).shape == (4, 3, 2)
    np.testing.assert_allclose(mean[:, 1], -2 * mean[:, 0], atol=40)
    assert PriorEnsembleRegressor(**SMALL).fit(X, Y[:, None]).predict(X).shape == (120, 1)


def test_it_works_in_pipelines_and_grid_searches():
    pipeline = make_pipeline(PolynomialFeatures(2), PriorEnsembleRegressor(**SMALL))
    assert pipeline.fit(X, Y).score(X, Y) > 0.9
    search = GridSearchCV(PriorEnsembleRegressor(**SMALL), {"prior_scale": [0.0, 1.0, 100.0]}, cv=2).fit(X, Y)
    assert search.best_params_["prior_scale"] < 100
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_sample_weight_decides_between_contradicting_examples():
    x, y = np.repeat(X[:20], 2, axis=0), np.tile([0.0, 1.0], 20)
    model = PriorEnsembleRegressor(**SMALL).fit(x, y, sample_weight=np.tile([1.0, 0.0], 20))
    assert np.abs(model.predict(x)).mean() < 0.1
    assert np.abs(model.predict(x)).max() < 0.5


def test_an_example_of_weight_zero_does_not_even_move_the_standardisation():
    x, y = np.append(X, [[1e6, 1e6]], axis=0), np.append(Y, 1e9)
    weight = np.append(np.ones(120), 0.0)
    model = PriorEnsembleRegressor(**SMALL).fit(x, y, sample_weight=weight)
    assert model.score(X, Y) > 0.9


def test_a_second_fit_forgets_the_first():
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 5}).fit(pandas.DataFrame(X, columns=["a", "b"]), Y)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert not hasattr(model.fit(X, Y), "feature_names_in_")


def test_partial_fit_learns_from_a_stream():
    model = PriorEnsembleRegressor(**{**SMALL, "partial_steps": 200})
    for part in np.array_split(np.arange(120), 4):
        model.partial_fit(X[part], Y[part])
    assert model.n_seen_ == 120
    assert model.score(X, Y) > 0.7
    again = PriorEnsembleRegressor(**{**SMALL, "partial_steps": 200})
    for part in np.array_split(np.arange(120), 4):
        again.partial_fit(X[part], Y[part])
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_partial_fit_of_a_classifier_needs_all_classes_first():
    model = PriorEnsembleClassifier(**SMALL)
    with pytest.raises(ValueError, match="classes=None on the first call"):
        model.partial_fit(X, LABELS)
    model.partial_fit(X, LABELS, classes=["left", "right", "up"])
    assert model.predict_proba(X).shape == (120, 3)
    with pytest.raises(ValueError, match=r"classes=\['left'\] differ from those of the first call"):
        model.partial_fit(X, LABELS, classes=["left"])
    with pytest.raises(ValueError, match=r"labels .*down.* not in classes"):
        model.partial_fit(X, np.full(120, "down"))


def test_heteroscedastic_noise_is_learned_apart_from_epistemic_doubt():
    x = RANDOM.uniform(-1, 1, (1000, 1))
    y = np.where(x[:, 0] > 0, 1.0, 0.1) * RANDOM.standard_normal(1000)
    model = PriorEnsembleRegressor(**{**SMALL, "heteroscedastic": True, "steps": 2000}).fit(x, y)
    calm, noisy = model.predict_uncertainty([[-0.5], [0.5]]).aleatoric
    assert calm == pytest.approx(0.1, rel=0.5)
    assert noisy == pytest.approx(1.0, rel=0.3)
    far = model.predict_uncertainty([[8.0]])
    assert far.epistemic[0] > 3 * model.predict_uncertainty([[0.5]]).epistemic[0]
    np.testing.assert_allclose(far.total**2, far.epistemic**2 + far.aleatoric**2, rtol=1e-5)


def test_aleatoric_uncertainty_must_be_asked_for_at_the_start(regressor):
    with pytest.raises(ValueError, match="set heteroscedastic=True"):
        regressor.predict_uncertainty(X)


def test_a_classifiers_doubt_is_parted(classifier):
    assert classifier.score(X, LABELS) > 0.95
    np.testing.assert_array_equal(classifier.classes_, ["left", "right"])
    doubt = classifier.predict_uncertainty(np.array([[0.0, 0.0], [0.9, 0.0], [-0.9, 0.0]]))
    np.testing.assert_allclose(doubt.total, doubt.epistemic + doubt.aleatoric, atol=1e-6)
    assert doubt.total[0] > doubt.total[1:].max()
    assert np.all(doubt.epistemic >= 0)
    samples = classifier.sample(X[:3], 6, random_state=1)
    assert samples.shape == (6, 3, 2)
    np.testing.assert_allclose(samples.sum(axis=2), 1, rtol=1e-6)


def test_a_classifier_takes_several_outputs_with_different_classes():
    labels = np.stack([np.digitize(X[:, 0], [-0.3, 0.3]), X[:, 1] > 0], axis=1).astype(int)
    model = PriorEnsembleClassifier(**SMALL).fit(X, labels)
    proba = model.predict_proba(X)
    assert [p.shape for p in proba] == [(120, 3), (120, 2)]
    np.testing.assert_allclose(proba[1].sum(axis=1), 1, rtol=1e-6)
    assert np.mean(model.predict(X) == labels) > 0.9
    assert model.predict_uncertainty(X).total[:, 1].max() <= np.log(2) + 1e-5
    with pytest.raises(ValueError, match="y has 1 outputs, but the first call had 2"):
        model.partial_fit(X, labels[:, :1])


def test_a_users_own_prior_sees_raw_x_and_ours_see_standardised_x():
    seen = []

    def spy(x):
        jax.debug.callback(lambda value: seen.append(np.asarray(value)), x)
        return jnp.zeros(1)

    raw = 1000 + X[:30]
    for own in (Function(spy), (lambda key, x: (), lambda params, x: spy(x)), OwnClass(spy)):
        seen.clear()
        PriorEnsembleRegressor(**{**SMALL, "steps": 1}, prior=own).fit(raw, Y[:30])
        jax.effects_barrier()
        np.testing.assert_allclose(np.min(seen, axis=0), raw.min(axis=0), rtol=1e-6)


@dataclass(frozen=True)
class OwnClass:
    """A user's prior as a class of their own."""

    function: object

    def init(self, key, x, num_out):
        return ()

    def apply(self, params, x):
        return self.function(x)


def test_standardisation_makes_units_irrelevant():
    a = PriorEnsembleRegressor(**SMALL).fit(X, Y).predict(X, return_std=True)
    b = PriorEnsembleRegressor(**SMALL).fit(X * 1000 + 5, Y * 1e6).predict(X * 1000 + 5, return_std=True)
    np.testing.assert_allclose(b[0] / 1e6, a[0], rtol=1e-2)
    np.testing.assert_allclose(b[1] / 1e6, a[1], rtol=0.1)


@pytest.mark.parametrize("prior", [None, "network", "linear", "fourier", "constant"])
def test_priors_by_name(prior):
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 50}, prior=prior).fit(X, Y)
    assert (model.belief_.prior is None) == (prior is None)


def test_settings_reach_the_belief():
    settings = {**SMALL, "steps": 20}
    model = PriorEnsembleRegressor(**settings, l2=L2(0.5), noise=Gaussian(0.1), batch_size=None, prior_scale=7.0)
    model.fit(X, Y)
    assert model.belief_.l2.weight == 0.5
    assert model.belief_.prior_scale == 7.0
    assert model.n_iter_ == 20


def test_a_validation_split_stops_early():
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 5000}, validation_fraction=0.2, patience=2)
    assert model.fit(X, RANDOM.standard_normal(120)).n_iter_ < 5000


def test_it_survives_pickle_too(regressor):
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(regressor)).predict(X), regressor.predict(X))


def test_an_interrupted_fit_leaves_the_estimator_as_it_was(regressor, monkeypatch):
    before = dict(vars(regressor))

    def interrupt(*args, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("priorax.estimators.base.fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        regressor.fit(X * 7, Y * 7)
    assert vars(regressor) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_members": 0}, "num_members=0 must be a whole number of at least 1"),
        ({"prior_scale": -1.0}, r"prior_scale=-1.0 must be a finite number of at least 0"),
        ({"prior_scale": float("nan")}, "prior_scale=nan"),
        ({"learning_rate": 0.0}, r"learning_rate=0.0 must be a finite number above 0"),
        ({"prior": "netwrk"}, "did you mean 'network'"),
        ({"noise": "bootstap"}, "did you mean 'bootstrap'"),
        ({"steps": 0}, "steps=0"),
        ({"hidden_widths": (10, -1)}, "hidden_widths=-1"),
        ({"hidden_widths": 5}, "hidden_widths=5 must be a tuple"),
    ],
)
def test_bad_settings_get_a_clear_error_at_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        PriorEnsembleRegressor(**{**SMALL, **settings}).fit(X, Y)


def test_noise_on_targets_is_refused_for_classes():
    with pytest.raises(ValueError, match="these targets are classes"):
        PriorEnsembleClassifier(**SMALL, noise=Gaussian(1.0)).fit(X, LABELS)


def test_weights_that_are_zero_everywhere_are_refused():
    with pytest.raises(ValueError, match="at least one non-zero number"):
        PriorEnsembleRegressor(**SMALL).fit(X, Y, sample_weight=np.zeros(120))
