"""A hypermodel is one network with a random index: its formula and its indices; `test_indexed.py` has the rest."""

import jax
import numpy as np
import pytest

from priorax.beliefs import Adam, Hypermodel
from priorax.networks import MLP
from priorax.priors import UnitRows

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
PLAIN = Hypermodel(
    3, 8, network=MLP((5, 4)), prior=UnitRows(MLP((5,)), 4, 3), prior_scale=2.0, num_outputs=2, optimizer=Adam(0.01)
)


def hidden(layers, x):
    for weight, bias in layers:
        x = np.maximum(x @ np.asarray(weight) + np.asarray(bias), 0)
    return x


def test_it_is_the_published_formula():
    """Q(s, a, xi) = <W xi + b, phi(s)> + prior_scale * <P xi, phi_prior(s)>."""

    @jax.jit
    def start(key):
        state = PLAIN.init(key, X[0])
        xi = PLAIN.draw(state, key)
        return state, xi, PLAIN.value(state, xi, X[0])

    state, xi, found = start(KEY)
    xi = np.asarray(xi)
    phi, phi_prior = hidden(state.params[:-1], X[0]), hidden(state.frozen.prior.features, X[0])
    last = np.asarray(state.params[-1].weight).reshape(4, 2, 4)
    b, w = last[..., 0], 3**0.5 * last[..., 1:]
    p = np.asarray(state.frozen.prior.weight).reshape(4, 2, 3)
    expected = phi @ (w @ xi + b) + 2.0 * phi_prior @ (p @ xi)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(p, axis=-1), 1.0, rtol=1e-5)
    assert np.linalg.norm(xi) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("dim", [1, 4])
def test_the_indices_of_an_update_have_the_moments_of_the_sphere(dim):
    belief = Hypermodel(dim, 4 * dim)
    many = np.asarray(jax.jit(lambda key: jax.vmap(belief.update_indices)(jax.random.split(key, 4000)))(KEY))
    found = many[0]
    assert found.shape == (4 * dim, dim)
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.T @ found / len(found), np.eye(dim) / dim, atol=1e-5)
    assert jax.eval_shape(Hypermodel(dim, 3).update_indices, KEY).shape == (3, dim)
    np.testing.assert_allclose(many[:, 0].mean(axis=0), 0.0, atol=0.05)  # each of them is uniform on its own


def test_a_prior_whose_outputs_the_index_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="index_dim=3 does not divide the 4 outputs"):
        jax.eval_shape(lambda key: UnitRows(MLP((3,)), 4, 3).init(key, X[0], 4), KEY)
