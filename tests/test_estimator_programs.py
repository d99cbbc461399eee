"""What estimators compile, and what for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.beliefs import L2
from priorax.estimators import SIZES
from priorax.networks import module
from priorax.noise import Gaussian
from priorax.priors import Function

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (120, 2))
Y = 100 + 30 * np.sin(3 * X[:, 0]) + 3 * RANDOM.standard_normal(120)
LABELS = np.where(X[:, 0] > 0, "right", "left")
SMALL = {"num_members": 3, "hidden_widths": (20,), "steps": 20, "learning_rate": 1e-2, "random_state": 0}


@pytest.mark.parametrize("prior", ["network", pytest.param("fourier", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [PriorEnsembleRegressor, PriorEnsembleClassifier])
def test_a_prediction_does_not_depend_on_what_else_is_asked(kind, prior):
    """To the bit: alone, among few, padded to every size, and in another chunk."""
    model = kind(**SMALL, prior=prior).fit(X, Y if kind is PriorEnsembleRegressor else LABELS)
    predict = model.predict if kind is PriorEnsembleRegressor else model.predict_proba
    many = np.concatenate([X] * 40)
    assert len(many) > SIZES[-1]
    whole = predict(many)
    np.testing.assert_array_equal(whole[-len(X) :], whole[: len(X)])
    for rows in (1, 7, *SIZES):
        np.testing.assert_array_equal(predict(many[:rows]), whole[:rows])
    np.testing.assert_array_equal([predict(X[i : i + 1])[0] for i in (0, 7)], whole[[0, 7]])


@pytest.mark.slow
def test_a_network_of_ones_own_says_the_same_of_a_row_within_the_stated_tolerance():
    own = module(lambda key: eqx.nn.MLP(2, 1, 30, 2, activation=jnp.tanh, key=key))
    model = PriorEnsembleRegressor(**SMALL, network=own).fit(X, Y)
    whole = model.predict(np.concatenate([X] * 40))[: len(X)]
    few = np.concatenate([model.predict(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(few, whole[:20], rtol=0, atol=1e-5 * Y.std())


def test_numbers_and_row_counts_share_one_program(compilations):
    """Another prior scale, learning rate, noise, weight or number of rows compiles nothing within a padded size."""
    settings = {**SMALL, "hidden_widths": (9,)}
    PriorEnsembleRegressor(**settings, noise=Gaussian(0.1), l2=L2(0.1)).fit(X[:90], Y[:90]).predict(X)
    assert compilations
    compilations.clear()
    other = {**settings, "prior_scale": 3.0, "learning_rate": 0.02, "noise": Gaussian(0.3), "l2": L2(0.2)}
    PriorEnsembleRegressor(**other).fit(X[:101], Y[:101], sample_weight=X[:101, 0] ** 2).predict(X[:70])
    assert compilations == []


def test_a_grid_search_over_the_prior_scale_compiles_once(compilations):
    model = PriorEnsembleRegressor(**{**SMALL, "hidden_widths": (10,)})
    search = GridSearchCV(model, {"prior_scale": [0.5]}, cv=3, error_score="raise").fit(X, Y)
    assert compilations
    compilations.clear()
    GridSearchCV(model, {"prior_scale": [0.0, 1.0, 2.0, 4.0]}, cv=3, error_score="raise").fit(X, Y)
    assert compilations == []
    assert search.best_params_ == {"prior_scale": 0.5}


def test_one_row_is_not_computed_as_thousands():
    seen = []

    def spy(x):
        jax.debug.callback(lambda value: seen.append(value), x)
        return jnp.zeros(1)

    model = PriorEnsembleRegressor(**{**SMALL, "steps": 1}, prior=Function(spy)).fit(X, Y)
    jax.effects_barrier()
    seen.clear()
    model.predict(X[:1])
    jax.effects_barrier()
    assert 0 < len(seen) <= SIZES[0] * model.num_members
    assert SIZES[0] <= 128
