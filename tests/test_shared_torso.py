"""Members on one torso: what is shared, what is not, and what never changes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conftest import forward, init, update
from priorax.beliefs import Adam, Batch, Ensemble, SharedTorso
from priorax.convnets import NATURE, Convnet
from priorax.networks import MLP, Dueling

TORSO = Convnet(((4, 4, 2), (8, 3, 1)))
BELIEF = SharedTorso(Ensemble(3, MLP((8,)), MLP((8,)), 2.0, num_outputs=2), TORSO, 16, Adam(1e-2))


def pictures(key, count, side=12):
    return jax.random.randint(key, (count, 2, side, side), 0, 256).astype(jnp.uint8)


def batch_of(x, weight, belief=BELIEF, shared=True):
    size = x.shape[0 if shared else 1]
    target = jnp.ones((belief.num_streams, size))
    return Batch(x, target, weight, jnp.full(belief.num_streams, float(size)), jnp.zeros(size, int), shared=shared)


def test_a_convnet_is_what_its_definition_says(key):
    """Against a loop over places: cross-correlation, stride, bias, relu, then the perceptron."""
    net = Convnet(((3, 4, 2),), (5,), bias_scale=0.5)
    x = pictures(key, 1)[0]
    params = net.init(key, x, 2)
    weight, bias = params.filters[0]
    shown = np.asarray(x) / 255
    places = (12 - 4) // 2 + 1
    out = np.zeros((3, places, places))
    for i in range(places):
        for j in range(places):
            patch = shown[:, 2 * i : 2 * i + 4, 2 * j : 2 * j + 4]
            out[:, i, j] = np.tensordot(np.asarray(weight), patch, 3) + np.asarray(bias)
    hidden = np.maximum(np.maximum(out, 0).ravel() @ params.rest[0].weight + params.rest[0].bias, 0)
    expected = hidden @ params.rest[1].weight + params.rest[1].bias
    np.testing.assert_allclose(net.apply(params, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_half_precision_is_near_and_its_weights_stay_whole(key):
    x = pictures(key, 1)[0]
    params = TORSO.init(key, x, 4)
    half = dataclasses.replace(TORSO, precision="bfloat16")
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(half.init(key, x, 4)))
    near, whole = half.apply(params, x), TORSO.apply(params, x)
    assert near.dtype == jnp.float32
    np.testing.assert_allclose(near, whole, rtol=0.05, atol=0.03)
    assert np.any(near != whole)


def test_filters_that_leave_nothing_are_refused(key):
    with pytest.raises(ValueError, match="need images of at least 36 x 36 pixels"):
        Convnet(NATURE).init(key, jnp.zeros((10, 10)), 1)


@pytest.mark.slow
def test_one_step_is_that_of_torso_and_heads_written_out(key):
    """The members' gradients as they are, the torso's as their mean; priors on their own torso, untouched."""
    belief = eqx.tree_at(lambda b: b.base.prior_scale, BELIEF, 1.5)
    belief = dataclasses.replace(belief, optimizer=optax.sgd(0.1))
    x = pictures(key, 5)
    state = init(belief, key, x[0])
    weight = jax.random.bernoulli(key, 0.5, (3, 5)).astype(float)
    after, info = update(belief, state, batch_of(x, weight), key)

    def seen_by(torso):
        rows = jax.nn.relu(jax.vmap(lambda row: TORSO.apply(torso, row))(x))
        return rows / jnp.sqrt(jnp.mean(rows**2, axis=1, keepdims=True) + 1e-8)

    def loss(k, torso, member):
        features, behind = seen_by(torso), seen_by(state.frozen.torso)
        prior = jax.tree.map(lambda leaf: leaf[k], state.frozen.members.prior)
        q = jax.vmap(lambda f, p: MLP((8,)).apply(member, f) + 1.5 * MLP((8,)).apply(prior, p))(features, behind)
        return jnp.mean(weight[k] * (q[:, 0] - 1) ** 2)

    pull = jax.tree.map(jnp.zeros_like, state.params.torso)
    for k in range(3):
        member = jax.tree.map(lambda leaf, k=k: leaf[k], state.params.members)
        by_torso, by_member = jax.grad(loss, argnums=(1, 2))(k, state.params.torso, member)
        pull = jax.tree.map(lambda total, own: total + own / 3, pull, by_torso)
        expected = jax.tree.map(lambda leaf, by: leaf - 0.1 * by, member, by_member)
        found = jax.tree.map(lambda leaf, k=k: leaf[k], after.params.members)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
        np.testing.assert_allclose(info.loss[k], loss(k, state.params.torso, member), rtol=1e-5)
    expected = jax.tree.map(lambda leaf, by: leaf - 0.1 * by, state.params.torso, pull)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), after.params.torso, expected)
    jax.tree.map(np.testing.assert_array_equal, after.frozen, state.frozen)


def test_prior_values_handed_in_change_nothing(key):
    x = pictures(key, 4)
    state = init(BELIEF, key, x[0])
    known = BELIEF.prior_values(state, x)
    given = BELIEF.forward(state, key, x, known, shared=True)
    np.testing.assert_allclose(given, forward(BELIEF, state, x, key), atol=1e-5)


@pytest.mark.slow
def test_own_inputs_are_each_members_own(key):
    x = pictures(key, 6).reshape(3, 2, 2, 12, 12)
    state = init(BELIEF, key, x[0, 0])
    apart = BELIEF.forward(state, key, x)
    for k in range(3):
        np.testing.assert_allclose(apart[k], forward(BELIEF, state, x[k], key)[k], atol=1e-5)
    values = BELIEF.functions(state, key, x[0])
    np.testing.assert_allclose(BELIEF.value(state, jnp.array(2), x[0, 1]), values[2, 1], atol=1e-5)


def test_who_owns_nothing_of_a_batch_learns_nothing_from_it(key):
    x = pictures(key, 4)
    state = init(BELIEF, key, x[0])
    weight = jnp.ones((3, 4)).at[1].set(0.0)
    after, _ = update(BELIEF, state, batch_of(x, weight), key)
    changed = jax.tree.map(
        lambda a, b: np.any(np.asarray(a) != np.asarray(b), axis=tuple(range(1, a.ndim))),
        after.params.members,
        state.params.members,
    )
    for leaf in jax.tree.leaves(changed):
        assert not leaf[1]
    assert any(leaf[0] for leaf in jax.tree.leaves(changed))


@pytest.mark.slow
def test_all_members_learn_a_picture_task(key):
    belief = dataclasses.replace(
        BELIEF, base=Ensemble(3, Dueling(MLP((8,))), Dueling(MLP((8,))), 1.0, num_outputs=2), optimizer=Adam(3e-3)
    )
    x = pictures(key, 8)
    state = init(belief, key, x[0])
    batch = dataclasses.replace(batch_of(x, jnp.ones((3, 8)), belief), action=jnp.arange(8) % 2)
    for _ in range(150):
        state, info = update(belief, state, batch, key)
    assert np.all(info.loss < 0.05)
