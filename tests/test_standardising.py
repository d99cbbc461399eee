"""Estimators do not depend on units, nor on how X is stored."""

import numpy as np
import pytest
from scipy import sparse

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.priors import Function

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (120, 2))
Y = 100 + 30 * np.sin(3 * X[:, 0]) + 3 * RANDOM.standard_normal(120)
SMALL = {"num_members": 5, "hidden_widths": (20,), "steps": 300, "learning_rate": 1e-2, "random_state": 0}


@pytest.fixture(scope="module")
def plain():
    return PriorEnsembleRegressor(**SMALL).fit(X, Y).predict(X, return_std=True)


@pytest.mark.parametrize(("x_factor", "y_factor"), [(1e-13, 1.0), (1.0, 1e-15), (1.0, 1e160), (1e160, 1e-160)])
def test_tiny_and_huge_units_give_the_same_model(plain, x_factor, y_factor):
    model = PriorEnsembleRegressor(**SMALL).fit(X * x_factor, Y * y_factor)
    mean, std = model.predict(X * x_factor, return_std=True)
    np.testing.assert_allclose(mean / y_factor, plain[0], rtol=1e-3)
    np.testing.assert_allclose(std / y_factor, plain[1], rtol=0.1, atol=0.1)


def test_targets_that_float_cannot_carry_are_refused():
    with pytest.raises(ValueError, match=r"y has 1e\+160 .*exceeds the range of float32"):
        PriorEnsembleRegressor(**SMALL, standardize=False).fit(X, np.full(120, 1e160))
    with pytest.raises(ValueError, match=r"y has no absolute value above 1e-310 .*multiply y by a constant"):
        PriorEnsembleRegressor(**SMALL).fit(X, np.full(120, 1e-310))


def test_a_covariance_that_float_cannot_carry_is_refused():
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 1}).fit(X, Y * 1e160)
    with pytest.raises(ValueError, match=r"return_cov=True, but the square .* is outside the range of float64"):
        model.predict(X, return_cov=True)


def test_inputs_that_float_cannot_carry_are_refused_with_their_place():
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 1}).fit(X, Y)
    far = X.copy()
    far[7, 1] = 1e200
    with pytest.raises(ValueError, match=r"X has 1e\+200 in row 7, column 1"):
        model.predict(far)


@pytest.mark.parametrize(("factor", "message"), [(1e160, "exceeds the range of float32"), (1e-160, "zero in float32")])
def test_a_users_own_prior_never_sees_infinities_or_vanished_columns(factor, message):
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 1}, prior=Function(lambda x: x[:1]))
    with pytest.raises(ValueError, match=message):
        model.fit(X * factor, Y)


@pytest.mark.parametrize("constant", [1e-6, 5.0, -3e8])
def test_a_constant_target_is_predicted_to_a_share_of_its_own_size(constant):
    mean, std = PriorEnsembleRegressor(**SMALL).fit(X, np.full(120, constant)).predict(X, return_std=True)
    np.testing.assert_allclose(mean, constant, rtol=0.2)
    assert np.all(std < 0.5 * abs(constant))


@pytest.mark.parametrize("weight", [1e-8, 1e300])
def test_only_ratios_of_sample_weights_matter(plain, weight):
    model = PriorEnsembleRegressor(**SMALL).fit(X, Y, sample_weight=np.full(120, weight))
    np.testing.assert_allclose(model.predict(X), plain[0], rtol=1e-4)


def test_weights_of_later_calls_of_partial_fit_are_in_the_units_of_the_first():
    def fitted(unit):
        model = PriorEnsembleRegressor(**SMALL).partial_fit(X[:60], Y[:60], sample_weight=np.full(60, unit))
        return model.partial_fit(X[60:], Y[60:], sample_weight=np.full(60, 1e-6 * unit)).predict(X)

    once = PriorEnsembleRegressor(**SMALL).partial_fit(X[:60], Y[:60])
    np.testing.assert_allclose(fitted(1e-8), fitted(1.0), rtol=1e-4)
    again = PriorEnsembleRegressor(**SMALL).partial_fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:])
    assert again.score(X[60:], Y[60:]) > once.score(X[60:], Y[60:])


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_x_gives_what_dense_x_gives(form):
    dense = np.where(RANDOM.random((150, 6)) < 0.3, RANDOM.standard_normal((150, 6)), 0.0)
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 50})
    expected = model.fit(dense, dense[:, 0]).predict(dense)
    np.testing.assert_array_equal(model.predict(form(dense)), expected)
    np.testing.assert_array_equal(model.fit(form(dense), dense[:, 0]).predict(dense), expected)


def test_a_classifier_takes_sparse_x():
    labels = X[:, 0] > 0
    model = PriorEnsembleClassifier(**SMALL).fit(sparse.csr_array(X), labels)
    assert model.score(sparse.csr_array(X), labels) > 0.9
