import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.beliefs import Ensemble
from priorax.fitting import fit
from priorax.networks import MLP
from priorax.priors import Constant, Function, Linear, RandomFourier

X = np.linspace(-2, 2, 9)[:, None].astype(np.float32)
Y = np.sin(X[:, 0])


def member_priors(prior, num_members=2000, x=X):
    belief = Ensemble(num_members=num_members, network=MLP((1,)), prior=prior)
    state = belief.init(jax.random.key(0), jnp.zeros(x.shape[1]))
    return np.asarray(belief.prior_values(state, x))[:, :, 0, 0]


def test_random_fourier_features_draw_from_an_rbf_gaussian_process():
    values = member_priors(RandomFourier(lengthscale=0.7))
    kernel = np.exp(-((X - X.T) ** 2) / (2 * 0.7**2))
    np.testing.assert_allclose(values.T @ values / len(values), kernel, atol=5 * np.sqrt(2 / len(values)))


def test_linear_prior_has_the_covariance_of_lemma_3():
    values = member_priors(Linear(std=0.5))
    np.testing.assert_allclose(values.T @ values / len(values), 0.25 * X @ X.T, atol=0.15)


def test_constant_prior_is_the_same_everywhere_and_differs_by_member():
    values = member_priors(Constant(), 10)
    assert np.all(values == values[:, :1])
    assert len(np.unique(values[:, 0])) == 10


def test_a_users_function_is_every_members_prior():
    values = member_priors(Function(lambda x: jnp.sum(x) ** 2), 3)
    np.testing.assert_allclose(values, np.broadcast_to(X[:, 0] ** 2, (3, 9)), rtol=1e-6)


@pytest.mark.parametrize("prior", [MLP((5, 5)), Linear(), RandomFourier(), MLP((3,), activation="tanh")])
def test_priors_are_drawn_independently_per_member_and_by_seed(prior):
    belief = Ensemble(num_members=4, network=MLP((5,)), prior=prior)
    a, b = (belief.prior_values(belief.init(jax.random.key(s), jnp.zeros(1)), X) for s in (0, 1))
    assert len(np.unique(np.asarray(a)[:, 0], axis=0)) == 4
    assert not np.any(np.asarray(a)[:, 0] == np.asarray(b)[:, 0])


def test_training_never_touches_a_prior():
    """Bit for bit, although the members themselves move."""
    belief = Ensemble(num_members=3, network=MLP((5,)), prior=MLP((5,)))
    key = jax.random.key(0)
    start = belief.init(jax.random.split(key, 4)[0], jnp.zeros(1))
    after = fit(belief, (X, Y), key=key, steps=50).state
    jax.tree.map(np.testing.assert_array_equal, start.frozen, after.frozen)
    assert not np.any(np.asarray(start.params[0].weight) == np.asarray(after.params[0].weight))


def test_prior_scale_zero_equals_no_prior():
    with_zero = Ensemble(num_members=3, network=MLP((5,)), prior=MLP((5,)), prior_scale=0.0)
    without = Ensemble(num_members=3, network=MLP((5,)))
    states = [fit(belief, (X, Y), key=jax.random.key(0), steps=50).state for belief in (with_zero, without)]
    np.testing.assert_array_equal(states[0].params[0].weight, states[1].params[0].weight)


def test_handed_in_prior_values_give_the_same_outputs():
    belief = Ensemble(num_members=3, network=MLP((5,)), prior=MLP((5,)), prior_scale=2.0)
    state = belief.init(jax.random.key(0), jnp.zeros(1))
    computed = belief.forward(state, jax.random.key(0), X, shared=True)
    handed = belief.forward(state, jax.random.key(0), X, belief.prior_values(state, X), shared=True)
    np.testing.assert_array_equal(computed, handed)


def test_members_agree_at_data_and_differ_away_from_it():
    """The point of it all (section 3)."""
    belief = Ensemble(num_members=10, network=MLP((30, 30)), prior=MLP((30, 30), bias_scale=1.0), prior_scale=3.0)
    state = fit(belief, (X[3:6], Y[3:6]), key=jax.random.key(0), steps=3000, batch_size=None).state
    std = np.asarray(belief.forward(state, jax.random.key(0), X, shared=True))[:, :, 0, 0].std(axis=0)
    assert std[3:6].max() < 0.05 * min(std[0], std[-1])


def test_bad_prior_settings_are_refused():
    with pytest.raises(ValueError, match=r"lengthscale=0\.0 must be a finite number above 0"):
        RandomFourier(lengthscale=0.0)
    with pytest.raises(ValueError, match="prior gives 3 numbers per input but the belief needs 1"):
        Ensemble(prior=Function(lambda x: jnp.zeros(3))).init(jax.random.key(0), jnp.zeros(1))
