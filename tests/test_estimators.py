import pickle
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from priorax import PriorEnsembleRegressor
from priorax.beliefs import L2
from priorax.networks import MLP
from priorax.noise import Gaussian
from priorax.priors import Function, RandomSize, UnitSize

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (120, 2))
Y = 100 + 30 * np.sin(3 * X[:, 0]) + 3 * RANDOM.standard_normal(120)
SMALL = {"num_members": 5, "hidden_widths": (20,), "steps": 500, "learning_rate": 1e-2, "random_state": 0}


@pytest.fixture(scope="module")
def regressor():
    return PriorEnsembleRegressor(**SMALL).fit(X, Y)


def test_it_predicts_well_and_is_less_sure_away_from_data(regressor):
    assert regressor.score(X, Y) > 0.9
    _, near = regressor.predict(X, return_std=True)
    _, far = regressor.predict(X + 10, return_std=True)
    assert far.mean() > 5 * near.mean()


@pytest.mark.parametrize("prior", [UnitSize(MLP((20,))), RandomSize(UnitSize(MLP((20,))), 1.0)])
def test_priors_of_unit_size_have_it_at_the_data_in_any_units(prior):
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 1}, prior=prior).fit(1000 + 50 * X, Y)
    inputs = model._inputs(1000 + 50 * X)
    values = np.asarray(model.belief_.prior_values(model.state_, inputs))[..., 0]
    np.testing.assert_allclose(np.sqrt(np.mean(values**2, axis=1)), 1, atol=0.5)


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
    with pytest.raises(ValueError, match="pass only one of them"):
        regressor.predict(X, return_std=True, return_cov=True)


def test_random_state_reproduces_to_the_bit_and_matters():
    a, b, c = (PriorEnsembleRegressor(**{**SMALL, "random_state": s}).fit(X, Y).predict(X) for s in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert not np.any(a == c)


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


@pytest.mark.slow
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


def test_learned_noise_stays_within_what_was_seen():
    x = RANDOM.uniform(-1, 1, (400, 1))
    y = np.exp(x[:, 0]) * RANDOM.standard_normal(400)
    model = PriorEnsembleRegressor(**{**SMALL, "heteroscedastic": True, "steps": 1000}).fit(x, y)
    seen = model.predict_uncertainty(x).aleatoric
    for far in (20.0, -20.0, 1e6):
        noise = model.predict_uncertainty([[far]]).aleatoric
        assert seen.min() * 0.999 <= noise[0] <= seen.max() * 1.001
    assert seen.max() < 5 * y.std()


@pytest.mark.parametrize("heteroscedastic", [False, True])
@pytest.mark.slow
def test_a_validation_split_costs_little_on_friedman_1(heteroscedastic):
    x, y = make_friedman1(700, noise=1.0, random_state=0)
    settings = {"num_members": 10, "steps": 1500, "random_state": 0, "heteroscedastic": heteroscedastic}

    def error(**more):
        predicted = PriorEnsembleRegressor(**settings, **more).fit(x[:400], y[:400]).predict(x[400:])
        return np.sqrt(np.mean((predicted - y[400:]) ** 2))

    assert error(validation_fraction=0.2) < 1.15 * error()


def test_parameters_set_after_a_fit_change_nothing_before_the_next(tmp_path):
    settings = {**SMALL, "steps": 20, "heteroscedastic": True}
    model = PriorEnsembleRegressor(**settings).fit(X, Y)

    def everything(model):
        cov = model.predict(X[:9], return_cov=True)[1]
        return cov, model.sample(X[:9], 20, random_state=0), *model.predict_uncertainty(X[:9])

    before = everything(model)
    model.set_params(num_members=50, heteroscedastic=False, standardize=False, prior=Function(lambda x: x[:1]))
    model.set_params(network=(lambda key, x: (), lambda params, x: x), hidden_widths=(3,), prior_scale=9.0)
    for a, b in zip(before, everything(model), strict=True):
        np.testing.assert_array_equal(a, b)
    model.save(tmp_path / "model")
    for a, b in zip(before, everything(PriorEnsembleRegressor.load(tmp_path / "model")), strict=True):
        np.testing.assert_array_equal(a, b)
    model.partial_fit(X[:50], Y[:50])
    assert model.belief_.num_members == 5
    assert everything(model)[1].shape == (20, 9)


@pytest.mark.parametrize(
    "own",
    [
        Function,
        pytest.param(lambda function: (lambda key, x: (), lambda params, x: function(x)), marks=pytest.mark.slow),
        pytest.param(lambda function: OwnClass(function), marks=pytest.mark.slow),
    ],
    ids=["function", "pair", "class"],
)
def test_a_users_own_prior_sees_raw_x_and_ours_see_standardised_x(own):
    seen = []

    def spy(x):
        jax.debug.callback(lambda value: seen.append(np.asarray(value)), x)
        return jnp.zeros(1)

    raw = 1000 + X[:30]
    PriorEnsembleRegressor(**{**SMALL, "steps": 1}, prior=own(spy)).fit(raw, Y[:30])
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


@pytest.mark.parametrize(
    "prior",
    ["network", "fourier", *(pytest.param(prior, marks=pytest.mark.slow) for prior in (None, "linear", "constant"))],
)
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
        ({"learning_rate": "x"}, r"learning_rate='x' must be .* pass for example learning_rate=0.001"),
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


def test_a_plain_function_as_prior_gets_an_error_about_the_prior():
    with pytest.raises(TypeError, match=r"^prior=<function .* or priorax.priors.Function\(f\) for a plain function"):
        PriorEnsembleRegressor(**SMALL, prior=lambda x: x).fit(X, Y)


def test_weights_that_are_zero_everywhere_are_refused():
    with pytest.raises(ValueError, match="at least one non-zero number"):
        PriorEnsembleRegressor(**SMALL).fit(X, Y, sample_weight=np.zeros(120))
