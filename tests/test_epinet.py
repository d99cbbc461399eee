"""An epinet is a base network beside a small network of a random index: its formula, its indices and what its gradient
does not reach; `test_indexed.py` has the rest."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import init
from priorax.agents import build, settings
from priorax.beliefs import Adam, Epinet, method, plain_batch
from priorax.convnets import Convnet
from priorax.envs.interface import TaskSpec
from priorax.networks import MLP, Dueling, FourierCode, Pair, Table
from priorax.priors import Independent

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
PLAIN = Epinet(
    3,
    6,
    network=MLP((5, 4)),
    prior=Independent(MLP((5,)), 3),
    prior_scale=2.0,
    num_outputs=2,
    optimizer=Adam(0.01),
    epinet=MLP((7,)),
)


def through(layers, x):
    """The outputs of layers with ReLUs between them."""
    for i, (weight, bias) in enumerate(layers):
        x = x @ np.asarray(weight) + np.asarray(bias)
        x = np.maximum(x, 0) if i + 1 < len(layers) else x
    return x


def brute_force(belief, state, z, x):
    """mu(x) + sigma([phi(x), z]) z + prior_scale * sum_k z_k p_k(x), term by term."""
    z = np.asarray(z)
    phi = np.maximum(through(state.params.base[:-1], x), 0)
    if belief.input_features:
        phi = np.concatenate([phi, x])
    seen = np.concatenate([phi, z]) if belief.sees_index else phi
    sigma = through(state.params.epinet, seen).reshape(2, 3)
    priors = [jax.tree.map(lambda leaf, k=k: leaf[k], state.frozen.prior) for k in range(3)]
    prior = sum(z[k] * through(priors[k], x) for k in range(3))
    return through(state.params.base, x) + sigma @ z + 2.0 * prior


@pytest.mark.parametrize(
    "changes",
    [{}, {"input_features": True}, pytest.param({"sees_index": False}, marks=pytest.mark.slow)],
    ids=str,
)
def test_it_is_the_published_formula(changes):
    belief = dataclasses.replace(PLAIN, **changes)

    @jax.jit
    def start(key):
        state = belief.init(key, X[0])
        z = belief.draw(state, key)
        return state, z, belief.value(state, z, X[0])

    state, z, found = start(KEY)
    np.testing.assert_allclose(found, brute_force(belief, state, z, X[0]), rtol=1e-4, atol=1e-5)


def test_the_index_is_standard_normal_in_draws_and_in_updates():
    @jax.jit
    def draw(key):
        keys = jax.random.split(key, 4000)
        state = PLAIN.init(key, X[0])
        return jax.vmap(lambda k: PLAIN.draw(state, k))(keys), jax.vmap(PLAIN.update_indices)(keys)

    drawn, updated = map(np.asarray, draw(KEY))
    assert updated.shape == (4000, 6, 3)
    np.testing.assert_allclose(np.sum(updated[:, 0] * updated[:, 1], axis=1), 0.0, atol=1e-4)
    np.testing.assert_allclose(np.cross(updated[:, 0], updated[:, 3]), 0.0, atol=1e-4)
    for found in (drawn, updated[:, 0], updated[:, 5]):
        np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=0.06)
        np.testing.assert_allclose(np.cov(found.T), np.eye(3), atol=0.1)
        np.testing.assert_allclose(np.mean(np.sum(found**2, axis=1) ** 2), 15.0, rtol=0.1)  # E|z|^4 = d(d+2)


def test_no_gradient_reaches_the_base_network_through_the_epinet():
    """With the index the base network's gradient changes only by its own output: below it, that of mu alone remains."""
    batch = plain_batch(X, X[:, :2])

    def loss(base, epinet, frozen_features, prior, z):
        def one(index, x):
            mu = PLAIN.network.apply(base, x)
            phi = PLAIN.network.features(frozen_features, x)
            sigma = PLAIN.epinet.apply(epinet, jnp.concatenate([phi, index])).reshape(2, 3)
            return mu + sigma @ index + 2.0 * PLAIN.prior.apply(prior, x).reshape(2, 3) @ index

        out = jax.vmap(lambda index: jax.vmap(lambda x: one(index, x))(X))(z)
        return jnp.mean(jnp.sum((out - X[:, :2]) ** 2, axis=-1))

    @jax.jit
    def gradients(key):
        state, z = PLAIN.init(key, X[0]), PLAIN.update_indices(key)
        base, epinet = state.params
        expected = jax.grad(loss, argnums=(0, 1, 2))(base, epinet, base, state.frozen.prior, z)
        found = jax.grad(lambda params: jnp.sum(PLAIN.losses(state._replace(params=params), batch, key)))(state.params)
        return found, expected

    found, (*expected, leaked) = gradients(KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), tuple(found), tuple(expected))
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(leaked)) > 1e-3, "there is something to stop"


def test_each_component_of_the_index_has_a_prior_of_its_own():
    prior, x = Independent(MLP((4,)), 3), jnp.asarray(X[0])

    @jax.jit
    def start(key):
        params = prior.init(key, x, 6)
        each = jax.vmap(lambda own: MLP((4,)).apply(own, x))(params)
        return prior.apply(params, x).reshape(2, 3), each

    found, each = start(KEY)
    np.testing.assert_allclose(found, each.T, rtol=1e-5)
    assert len(np.unique(found)) == 6


@pytest.mark.slow
def test_features_are_the_last_hidden_layer_of_every_network():
    x, image = jnp.asarray(X[0]), jnp.ones((12, 12))
    cases = [
        (MLP((5, 4)), x, 4),
        (MLP((), code=FourierCode(6)), x, 9),
        (Table(7, (5, 4)), jnp.asarray(2), 4),
        (Table(7, ()), jnp.asarray(2), 7),
        (Dueling(MLP((5, 4))), x, 4),
        (Convnet(((4, 4, 2),), (6,)), image, 6),
    ]
    for network, seen, size in cases:
        assert network.features(network.init(KEY, seen, 3), seen).shape == (size,)
        belief = Epinet(2, 2, network=network, num_outputs=3)
        state = init(belief, KEY, seen)
        assert belief.value(state, belief.draw(state, KEY), seen).shape == (3,)
    layers = MLP((5, 4)).init(KEY, x, 3)
    phi = MLP((5, 4)).features(layers, x)
    np.testing.assert_allclose(phi @ layers[-1].weight + layers[-1].bias, MLP((5, 4)).apply(layers, x), rtol=1e-5)


def start(part, x, *sizes):
    """Trace its initialisation, which is where it is checked."""
    return jax.eval_shape(lambda key: part.init(key, x, *sizes), KEY)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Epinet(epinet=MLP((5,), gain=2.0)), "pass MLP.* without them"),
        (lambda: start(Epinet(network=Convnet(), input_features=True), jnp.ones((32, 32))), "no method inputs"),
        (lambda: Epinet(network=Table(4, ()), sparse_rows=True), "leave sparse_rows=False"),
        (lambda: start(Epinet(network=Pair(lambda key, x: (), lambda p, x: x[:1])), X[0]), "no method features"),
        (lambda: start(Independent(MLP((3,)), 3), X[0], 4), "index_dim=3 does not divide the 4 outputs"),
        (lambda: settings("epinet", prior="optimal"), "prior='optimal' is unknown"),
        (lambda: settings("epinet", epinet_widths=(0,)), r"epinet_widths=\(0,\) must be whole numbers"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_agents_epinet_follows_its_settings():
    table = build("epinet", settings("epinet", prior_scale=2.0), TaskSpec(2, 1600)).belief
    assert table.epinet == MLP((50,)) and table.pairs_targets and table.input_features
    linear = build("epinet", settings("epinet", prior="linear", prior_scale=2.0), TaskSpec(2, 1600)).belief
    assert linear.prior_scale == 2.0 and linear.prior.prior.prior == Table(1600, (), weight_std=1.0)
    assert not build("epinet", settings("epinet", widths=()), TaskSpec(2, 9)).belief.sparse_rows
    lagged = build("epinet", settings("epinet", "gymnasium"), TaskSpec(2, None)).belief
    assert isinstance(lagged.prior, Independent)
    assert method("epinet").belief.index_dim == 8
