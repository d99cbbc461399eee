"""An epinet is a base network beside a small network of a random index: its formula, gradients, indices and targets."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conftest import forward, init, update
from priorax import fit, storage
from priorax.agents import build, settings
from priorax.agents.bandit import belief_sampler
from priorax.beliefs import L2, Adam, Batch, Epinet, Hypermodel, method, plain_batch
from priorax.convnets import Convnet
from priorax.envs.interface import TaskSpec
from priorax.envs.jax.bandits import LinearBandit
from priorax.heads import C51, Classes
from priorax.networks import MLP, Dueling, FourierCode, Pair, Table
from priorax.priors import Independent, Linear, Tabulated
from priorax.training.bandits import cumulative_regret

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
functions = eqx.filter_jit(lambda belief, *rest: belief.functions(*rest))
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


def changed(belief, **changes):
    return dataclasses.replace(belief, **changes)


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


@pytest.mark.parametrize("changes", [{}, {"input_features": True}, {"sees_index": False}], ids=str)
def test_it_is_the_published_formula(changes):
    belief = changed(PLAIN, **changes)
    state = init(belief, KEY, X[0])
    z = belief.draw(state, KEY)
    found = belief.value(state, z, X[0])
    np.testing.assert_allclose(found, brute_force(belief, state, z, X[0]), rtol=1e-4, atol=1e-5)


def test_the_index_is_standard_normal_in_draws_and_in_updates():
    state = init(PLAIN, KEY, X[0])
    keys = jax.random.split(KEY, 4000)
    drawn = np.asarray(jax.vmap(lambda k: PLAIN.draw(state, k))(keys))
    updated = np.asarray(jax.vmap(PLAIN.update_indices)(keys))
    assert updated.shape == (4000, 6, 3)
    np.testing.assert_allclose(np.sum(updated[:, 0] * updated[:, 1], axis=1), 0.0, atol=1e-4)
    np.testing.assert_allclose(np.cross(updated[:, 0], updated[:, 3]), 0.0, atol=1e-4)
    for found in (drawn, updated[:, 0], updated[:, 5]):
        np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=0.06)
        np.testing.assert_allclose(np.cov(found.T), np.eye(3), atol=0.1)
        np.testing.assert_allclose(np.mean(np.sum(found**2, axis=1) ** 2), 15.0, rtol=0.1)  # E|z|^4 = d(d+2)


def gradients(belief, state, batch):
    return jax.grad(lambda params: jnp.sum(belief.losses(state._replace(params=params), batch, KEY)))(state.params)


def test_no_gradient_reaches_the_base_network_through_the_epinet():
    """With the index the base network's gradient changes only by its own output: below it, that of mu alone remains."""
    state = init(PLAIN, KEY, X[0])
    params = state.params
    z = PLAIN.update_indices(KEY)

    def loss(base, epinet, frozen_features):
        def one(index, x):
            mu = PLAIN.network.apply(base, x)
            phi = PLAIN.network.features(frozen_features, x)
            sigma = PLAIN.epinet.apply(epinet, jnp.concatenate([phi, index])).reshape(2, 3)
            prior = PLAIN.prior.apply(state.frozen.prior, x).reshape(2, 3)
            return mu + sigma @ index + 2.0 * prior @ index

        out = jax.vmap(lambda index: jax.vmap(lambda x: one(index, x))(X))(z)
        return jnp.mean(jnp.sum((out - X[:, :2]) ** 2, axis=-1))

    found = gradients(PLAIN, state, plain_batch(X, X[:, :2]))
    by_base, by_epinet, leaked = jax.grad(loss, argnums=(0, 1, 2))(params.base, params.epinet, params.base)
    expected = (by_base, by_epinet)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), tuple(found), expected)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(leaked)) > 1e-3, "there is something to stop"


@pytest.mark.parametrize("action", [None, jnp.arange(16) % 2], ids=["all outputs", "chosen outputs"])
def test_the_gradient_is_the_mean_over_the_indices_of_the_update(action):
    """The gradient of several indices, each with its own target, is the mean of the gradients of one index."""
    belief = changed(PLAIN, target_index="same")
    assert (belief.num_streams, belief.pairs_targets, PLAIN.num_streams, PLAIN.pairs_targets) == (6, True, 1, False)
    state = init(belief, KEY, X[0])
    shape = (6, 16, 2) if action is None else (6, 16)
    target = jax.random.normal(KEY, shape)
    batch = Batch(X, target, jnp.ones((6, 16)), jnp.ones(6), action=action, shared=True)
    index = belief.update_indices(KEY)

    def loss(params, k):
        new = state._replace(params=params)
        out = jax.vmap(lambda x: belief.value(new, index[k], x))(X)
        if action is not None:
            return jnp.mean(jax.vmap(belief.head.loss)(out[jnp.arange(16), action][:, None], target[k]))
        return jnp.mean(jnp.sum(jax.vmap(jax.vmap(belief.head.loss))(out[..., None], target[k]), axis=-1))

    values, each = zip(*(jax.value_and_grad(loss)(state.params, k) for k in range(6)), strict=True)
    found = gradients(belief, state, batch)
    expected = jax.tree.map(lambda *leaves: sum(leaves) / 6, *each)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), found, expected)
    np.testing.assert_allclose(belief.losses(state, batch, KEY), values, rtol=1e-4)


def test_equal_targets_give_the_same_update_whatever_their_indices():
    after = []
    for belief in (PLAIN, changed(PLAIN, target_index="same")):
        belief = changed(belief, optimizer=optax.sgd(0.1))
        batch = plain_batch(X, X[:, :2], belief.num_streams)
        state, info = update(belief, init(belief, KEY, X[0]), batch, KEY)
        after.append((state.params, jnp.mean(info.loss)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *after)


def test_a_target_at_the_same_index_is_the_function_that_the_update_trains():
    belief = changed(PLAIN, target_index="same")
    state = init(belief, KEY, X[0])
    out = forward(belief, state, X, KEY)
    assert out.shape == (6, 16, 2, 1)
    batch = Batch(X, out[..., 0], jnp.ones((6, 16)), jnp.ones(6), shared=True)
    np.testing.assert_allclose(update(belief, state, batch, KEY)[1].loss, 0.0, atol=1e-8)
    assert np.all(np.asarray(update(belief, state, batch, jax.random.key(1))[1].loss) > 1e-3)
    same = np.broadcast_to(X[0], X.shape)
    fresh = np.asarray(forward(PLAIN, state, same, KEY))
    assert fresh.shape == (1, 16, 2, 1) and len(np.unique(fresh[0, :, 0, 0])) == 16


def test_training_never_touches_the_prior_and_its_values_may_be_known():
    state = init(PLAIN, KEY, X[0])
    known = PLAIN.prior_values(state, X)
    assert PLAIN.stores_prior and known.shape == (1, 16, 2, 3)
    np.testing.assert_allclose(
        PLAIN.forward(state, KEY, X, known, shared=True), PLAIN.forward(state, KEY, X, shared=True), rtol=1e-4
    )
    after, _ = update(PLAIN, state, plain_batch(X, X[:, :2]), KEY)
    jax.tree.map(np.testing.assert_array_equal, state.frozen, after.frozen)
    assert not np.array_equal(after.params.epinet[0].weight, state.params.epinet[0].weight)
    draws = jax.vmap(lambda k: PLAIN.draw(state, k))(jax.random.split(KEY, 4000))
    prior = 2.0 * np.asarray(known)[0] @ np.asarray(draws).T
    np.testing.assert_allclose(PLAIN.prior_spread(state, X), prior.std(axis=-1), rtol=0.06)


def test_each_component_of_the_index_has_a_prior_of_its_own():
    prior, x = Independent(MLP((4,)), 3), jnp.asarray(X[0])
    params = prior.init(KEY, x, 6)
    found = prior.apply(params, x).reshape(2, 3)
    for k in range(3):
        own = jax.tree.map(lambda leaf, k=k: leaf[k], params)
        np.testing.assert_allclose(found[:, k], MLP((4,)).apply(own, x), rtol=1e-5)
    assert len(np.unique(found)) == 6


def test_a_saved_epinet_is_the_same_when_loaded(tmp_path):
    state, _ = update(PLAIN, init(PLAIN, KEY, X[0]), plain_batch(X, X[:, :2]), KEY)
    storage.save(tmp_path / "epinet", PLAIN, state, X[0])
    belief, loaded = storage.load(tmp_path / "epinet")
    assert isinstance(belief, Epinet) and belief.epinet == PLAIN.epinet
    np.testing.assert_array_equal(functions(belief, loaded, KEY, X), functions(PLAIN, state, KEY, X))


@pytest.mark.parametrize(("target_index", "input_features"), [("fresh", False), ("same", False), ("same", True)])
def test_sparse_rows_learn_as_dense_ones(target_index, input_features):
    dense = Epinet(
        3,
        6,
        network=Table(12, (5, 4)),
        prior=Tabulated(Independent(Table(12, (5,)), 3), 12),
        num_outputs=2,
        target_index=target_index,
        optimizer=Adam(0.01),
        epinet=MLP((7,)),
        input_features=input_features,
    )
    sparse = changed(dense, sparse_rows=True)
    states = [init(belief, KEY, jnp.asarray(0)) for belief in (dense, sparse)]
    start = np.asarray(functions(dense, states[0], KEY, jnp.arange(12)))
    np.testing.assert_allclose(functions(sparse, states[1], KEY, jnp.arange(12)), start, atol=1e-5)
    streams = dense.num_streams
    for i in range(40):
        x = jax.random.randint(jax.random.fold_in(KEY, i), (4,), 0, 12)
        target = jnp.broadcast_to(jnp.sin(x.astype(float)), (streams, 4))
        batch = Batch(x, target, jnp.ones((streams, 4)), jnp.ones(streams), action=x % 2, shared=True)
        states = [
            update(belief, state, batch, jax.random.key(i))[0]
            for belief, state in zip((dense, sparse), states, strict=True)
        ]
    found = [
        np.asarray(functions(belief, state, KEY, jnp.arange(12)))
        for belief, state in zip((dense, sparse), states, strict=True)
    ]
    assert np.abs(found[0] - start).max() > 0.2
    np.testing.assert_allclose(found[1], found[0], atol=0.03)


def test_it_fits_data_and_doubts_elsewhere():
    x = np.linspace(-1, 1, 30, dtype=np.float32)[:, None]
    belief, noise = method("epinet", network=MLP((30, 30)), optimizer=Adam(0.01), num_indices=16)
    assert belief.num_members is None and belief.num_outputs == 1 and belief.index_dim == 8
    state = fit(belief, (x, np.sin(3 * x[:, 0])), key=KEY, noise=noise, steps=1500).state
    near = np.asarray(functions(belief, state, KEY, x))[:, :, 0]
    far = np.asarray(functions(belief, state, KEY, np.array([[4.0], [-4.0]], np.float32)))[:, :, 0]
    np.testing.assert_allclose(near.mean(axis=0), np.sin(3 * x[:, 0]), atol=0.15)
    assert np.all(far.std(axis=0) > 4 * near.std(axis=0).mean())


def test_a_linear_epinet_is_a_linear_hypermodel_at_another_scale_of_the_index():
    """Both minimise the same loss, so that their functions at z = sqrt(d) e_k and at xi = e_k become the same."""
    steps, weight, dim = 600, 0.3, 4
    shared = {
        "network": MLP((), use_bias=False),
        "prior": Linear(),
        "perturbed": True,
        "l2": L2(weight, to="zero"),
        "optimizer": optax.adam(optax.cosine_decay_schedule(0.05, steps)),
    }
    flat = {"epinet": MLP((), use_bias=False), "sees_index": False}
    found = []
    copies = np.random.default_rng(1).standard_normal((dim, 16, 1)).astype(np.float32)
    batch = Batch(X, jnp.asarray(copies), jnp.ones((dim, 16)), jnp.full(dim, 16.0), shared=True)
    for belief in (
        Epinet(dim, 8, prior_scale=2.0 / dim**0.5, **shared, **flat),
        Hypermodel(dim, 8, prior_scale=2.0, **shared),
    ):
        state = init(belief, KEY, X[0])
        for i in range(steps):
            state, _ = update(belief, state, batch, jax.random.key(i))
        found.append(np.asarray(forward(belief, state, X, KEY))[..., 0, 0])
    assert np.abs(found[0][0] - found[0][1]).max() > 0.1
    np.testing.assert_allclose(found[0], found[1], atol=0.03)


def test_distributions_and_classes_are_learned_too():
    labels = (X[:, 0] > 0).astype(np.int32)
    for head, y in ((Classes(2), labels), (C51(-3.0, 3.0, 21), X[:, 0])):
        belief, noise = method("epinet", network=MLP((16,)), head=head, prior_scale=0.3, optimizer=Adam(0.02))
        state = fit(belief, (X, y), key=KEY, noise=noise, steps=400).state
        found = np.asarray(functions(belief, state, KEY, X))[:, :, 0].mean(axis=0)
        np.testing.assert_allclose(found, y, atol=0.45)


def test_it_plays_a_bandit():
    chosen = method(
        "epinet",
        network=MLP((), use_bias=False),
        prior=Linear(),
        prior_scale=8**-0.5,
        noise_std=1.0,
        epinet=MLP((), use_bias=False),
        sees_index=False,
        optimizer=Adam(0.05),
    )
    regret = np.asarray(
        cumulative_regret(LinearBandit(6, 3), belief_sampler(chosen, 200, batch_size=16), steps=200, seeds=20)
    )
    early, late = regret[:, 49], regret[:, -1] - regret[:, -51]
    assert late.mean() < 0.5 * early.mean()


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Epinet(0), "index_dim=0 must be a whole number of at least 1"),
        (lambda: Epinet(target_index="frsh"), "did you mean 'fresh'"),
        (lambda: Epinet(epinet=MLP((5,), gain=2.0)), "pass MLP.* without them"),
        (lambda: Epinet(network=Convnet(), input_features=True).init(KEY, jnp.ones((32, 32))), "no method inputs"),
        (lambda: Epinet(network=Table(4, ()), sparse_rows=True), "leave sparse_rows=False"),
        (lambda: Epinet(network=Pair(lambda key, x: (), lambda p, x: x[:1])).init(KEY, X[0]), "no method features"),
        (lambda: Independent(MLP((3,)), 3).init(KEY, X[0], 4), "index_dim=3 does not divide the 4 outputs"),
        (lambda: settings("epinet", target_index="none"), "target_index='none' is unknown"),
        (lambda: settings("epinet", prior="optimal"), "prior='optimal' is unknown"),
        (lambda: settings("epinet", epinet_widths=(0,)), r"epinet_widths=\(0,\) must be whole numbers"),
        (
            lambda: build("epinet", settings("epinet", shared_batch=False), TaskSpec(2, 9)),
            "use shared_batch=True or target_index='fresh'",
        ),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_agents_parts_follow_its_settings_and_the_environment():
    table = build("epinet", settings("epinet", prior_scale=2.0), TaskSpec(2, 1600)).belief
    assert table.sparse_rows and isinstance(table.network, Table) and table.prior_scale == 4.0
    assert table.epinet == MLP((50,)) and table.pairs_targets
    linear = build("epinet", settings("epinet", prior="linear", prior_scale=2.0), TaskSpec(2, 1600)).belief
    assert linear.prior_scale == 2.0 and linear.prior.prior.prior == Table(1600, (), weight_std=1.0)
    assert (
        table.input_features and not build("epinet", settings("epinet", widths=()), TaskSpec(2, 9)).belief.sparse_rows
    )
    lagged = build("epinet", settings("epinet", "gymnasium"), TaskSpec(2, None)).belief
    assert not lagged.sparse_rows and lagged.network == MLP((50, 50)) and isinstance(lagged.prior, Independent)
    dueling = build("epinet", settings("epinet", "gymnasium", dueling=True), TaskSpec(3, None)).belief
    state = init(dueling, KEY, X[0])
    values = dueling.value(state, dueling.draw(state, KEY), X[0])
    assert values.shape == (3,) and len(np.unique(values)) == 3
    assert build("epinet", settings("epinet", prior_scale=0.0), TaskSpec(2, 9)).belief.prior is None
