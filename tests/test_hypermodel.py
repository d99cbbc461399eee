"""A hypermodel is one network with a random index: its formula, its indices, its targets, its sparse rows."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conftest import forward, init, update
from priorax import fit
from priorax.agents import build, settings
from priorax.agents.bandit import belief_sampler
from priorax.beliefs import L2, Adam, Batch, Hypermodel, method, plain_batch
from priorax.envs.interface import TaskSpec
from priorax.envs.jax.bandits import LinearBandit
from priorax.heads import C51, Classes, Scalar
from priorax.networks import MLP, Table
from priorax.priors import Linear, Tabulated, UnitRows
from priorax.training.bandits import cumulative_regret

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
functions = eqx.filter_jit(lambda belief, *rest: belief.functions(*rest))
PLAIN = Hypermodel(
    3, 8, network=MLP((5, 4)), prior=UnitRows(MLP((5,)), 4, 3), prior_scale=2.0, num_outputs=2, optimizer=Adam(0.01)
)


def changed(belief, **changes):
    return dataclasses.replace(belief, **changes)


def hidden(layers, x):
    for weight, bias in layers:
        x = np.maximum(x @ np.asarray(weight) + np.asarray(bias), 0)
    return x


def test_it_is_the_published_formula():
    """Q(s, a, xi) = <W xi + b, phi(s)> + prior_scale * <P xi, phi_prior(s)>."""
    state = init(PLAIN, KEY, X[0])
    xi = np.asarray(PLAIN.draw(state, KEY))
    phi, phi_prior = hidden(state.params[:-1], X[0]), hidden(state.frozen.prior.features, X[0])
    last = np.asarray(state.params[-1].weight).reshape(4, 2, 4)
    b, w = last[..., 0], 3**0.5 * last[..., 1:]
    p = np.asarray(state.frozen.prior.weight).reshape(4, 2, 3)
    expected = phi @ (w @ xi + b) + 2.0 * phi_prior @ (p @ xi)
    np.testing.assert_allclose(PLAIN.value(state, jnp.asarray(xi), X[0]), expected, rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(p, axis=-1), 1.0, rtol=1e-5)
    assert np.linalg.norm(xi) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("dim", [1, 4])
def test_the_indices_of_an_update_have_the_moments_of_the_sphere(dim):
    belief = Hypermodel(dim, 4 * dim)
    found = np.asarray(belief.update_indices(KEY))
    assert found.shape == (4 * dim, dim)
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.T @ found / len(found), np.eye(dim) / dim, atol=1e-5)
    assert Hypermodel(dim, 3).update_indices(KEY).shape == (3, dim)
    many = np.asarray(jax.vmap(belief.update_indices)(jax.random.split(KEY, 4000)))[:, 0]
    np.testing.assert_allclose(many.mean(axis=0), 0.0, atol=0.05)  # each of them is uniform on its own


def test_a_target_at_the_same_index_is_the_function_that_the_update_trains():
    belief = changed(PLAIN, target_index="same")
    assert (belief.num_streams, belief.pairs_targets, PLAIN.num_streams, PLAIN.pairs_targets) == (8, True, 1, False)
    state = init(belief, KEY, X[0])
    out = np.asarray(forward(belief, state, X, KEY))
    assert out.shape == (8, 16, 2, 1)
    index = belief.update_indices(KEY)
    own = jax.vmap(lambda i: jax.vmap(lambda x: belief.value(state, i, x))(X))(index)
    np.testing.assert_allclose(out[..., 0], own, rtol=1e-4, atol=1e-5)
    batch = Batch(X, jnp.asarray(out[..., 0]), jnp.ones((8, 16)), jnp.ones(8), shared=True)
    _, info = update(belief, state, batch, KEY)
    np.testing.assert_allclose(info.loss, 0.0, atol=1e-8)
    assert np.all(np.asarray(update(belief, state, batch, jax.random.key(1))[1].loss) > 1e-3)


def test_a_fresh_target_has_an_index_of_its_own_for_each_example():
    state = init(PLAIN, KEY, X[0])
    same = np.broadcast_to(X[0], X.shape)
    out = np.asarray(forward(PLAIN, state, same, KEY))
    assert out.shape == (1, 16, 2, 1)
    assert len(np.unique(out[0, :, 0, 0])) == 16


def test_indices_are_averaged_whatever_their_targets_are():
    """Where all indices have the same target, both kinds of target give the same update, and the same gradient."""
    target = jax.random.normal(KEY, (1, 16))
    action = jnp.arange(16) % 2
    after = []
    for belief in (PLAIN, changed(PLAIN, target_index="same")):
        belief = changed(belief, optimizer=optax.sgd(0.1))
        streams = belief.num_streams
        shape = (streams, 16)
        batch = Batch(
            X, jnp.broadcast_to(target, shape), jnp.ones(shape), jnp.ones(streams), action=action, shared=True
        )
        state, info = update(belief, init(belief, KEY, X[0]), batch, KEY)
        assert info.loss.shape == (streams,) and info.examples.shape == shape
        after.append((state.params, jnp.mean(info.loss), jnp.mean(info.examples, axis=0)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *after)


def test_known_prior_values_change_nothing_and_training_never_touches_the_prior():
    state = init(PLAIN, KEY, X[0])
    known = PLAIN.prior_values(state, X)
    assert PLAIN.stores_prior and known.shape == (1, 16, 2, 3)
    np.testing.assert_allclose(
        PLAIN.forward(state, KEY, X, known, shared=True), PLAIN.forward(state, KEY, X, shared=True), rtol=1e-5
    )
    after, _ = update(PLAIN, state, plain_batch(X, X[:, :2]), KEY)
    jax.tree.map(np.testing.assert_array_equal, state.frozen, after.frozen)
    draws = jax.vmap(lambda k: PLAIN.draw(state, k))(jax.random.split(KEY, 4000))
    prior = 2.0 * np.asarray(known)[0] @ np.asarray(draws).T
    np.testing.assert_allclose(PLAIN.prior_spread(state, X), prior.std(axis=-1), rtol=0.05)


@pytest.mark.parametrize("target_index", ["fresh", "same"])
def test_sparse_rows_learn_as_dense_ones(target_index):
    dense = Hypermodel(
        3,
        6,
        network=Table(12, (5, 4)),
        prior=Tabulated(UnitRows(Table(12, (5,)), 4, 3), 12),
        num_outputs=2,
        target_index=target_index,
        optimizer=Adam(0.01),
    )
    sparse = changed(dense, sparse_rows=True)
    states = [init(belief, KEY, jnp.asarray(0)) for belief in (dense, sparse)]
    start = np.asarray(functions(dense, states[0], KEY, jnp.arange(12)))
    streams = dense.num_streams
    for i in range(60):
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
    np.testing.assert_allclose(found[1], found[0], atol=0.02)


def test_it_fits_data_and_doubts_elsewhere():
    x = np.linspace(-1, 1, 30, dtype=np.float32)[:, None]
    belief, noise = method("hypermodel", network=MLP((30, 30)), prior_scale=3.0, optimizer=Adam(0.01))
    assert belief.num_members is None and belief.num_outputs == 1
    state = fit(belief, (x, np.sin(3 * x[:, 0])), key=KEY, noise=noise, steps=1500).state
    near = np.asarray(functions(belief, state, KEY, x))[:, :, 0]
    far = np.asarray(functions(belief, state, KEY, np.array([[4.0], [-4.0]], np.float32)))[:, :, 0]
    np.testing.assert_allclose(near.mean(axis=0), np.sin(3 * x[:, 0]), atol=0.15)
    assert np.all(far.std(axis=0) > 4 * near.std(axis=0).mean())


def test_in_a_linear_model_each_component_is_a_member_of_lemma_3():
    """The function at the k-th unit vector minimises equation (5) for the k-th copy of the data and the k-th prior."""
    steps, weight = 800, 0.3
    belief = Hypermodel(
        4,
        8,
        network=MLP((), use_bias=False),
        prior=Linear(),
        prior_scale=2.0,
        perturbed=True,
        l2=L2(weight, to="zero"),
        optimizer=optax.adam(optax.cosine_decay_schedule(0.05, steps)),
    )
    copies = np.random.default_rng(1).standard_normal((4, 16, 1)).astype(np.float32)
    batch = Batch(X, jnp.asarray(copies), jnp.ones((4, 16)), jnp.full(4, 16.0), shared=True)
    state = init(belief, KEY, X[0])
    for i in range(steps):
        state, _ = update(belief, state, batch, jax.random.key(i))
    prior = 2.0 * np.asarray(state.frozen.prior[0].weight)
    solved = np.linalg.solve(X.T @ X + weight * np.eye(3), X.T @ (copies[..., 0].T - X @ prior)) + prior
    found = jax.vmap(lambda index: jax.vmap(lambda x: belief.value(state, index, x)[0])(X))(jnp.eye(4))
    np.testing.assert_allclose(found, (X @ solved).T, atol=0.01)
    np.testing.assert_allclose(forward(belief, state, X, KEY)[..., 0, 0], found, rtol=1e-4, atol=1e-5)


def test_distributions_and_classes_are_learned_too():
    labels = (X[:, 0] > 0).astype(np.int32)
    for head, y in ((Classes(2), labels), (C51(-3.0, 3.0, 21), X[:, 0])):
        belief, noise = method("hypermodel", network=MLP((16,)), head=head, optimizer=Adam(0.02))
        state = fit(belief, (X, y), key=KEY, noise=noise, steps=400).state
        found = np.asarray(functions(belief, state, KEY, X))[:, :, 0].mean(axis=0)
        np.testing.assert_allclose(found, y, atol=0.45)


def test_it_plays_a_bandit():
    network = MLP((), use_bias=False)
    chosen = method("hypermodel", network=network, prior=Linear(), index_dim=8, noise_std=1.0, optimizer=Adam(0.05))
    regret = np.asarray(
        cumulative_regret(LinearBandit(6, 3), belief_sampler(chosen, 200, batch_size=16), steps=200, seeds=20)
    )
    early, late = regret[:, 49], regret[:, -1] - regret[:, -51]
    assert late.mean() < 0.5 * early.mean()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hypermodel(0), "index_dim=0 must be a whole number of at least 1"),
        (lambda: Hypermodel(num_indices=0), "num_indices=0"),
        (lambda: Hypermodel(target_index="frsh"), "did you mean 'fresh'"),
        (lambda: Hypermodel(perturbed=True, target_index="same"), "use perturbed=False"),
        (lambda: Hypermodel(perturbed=True, head=Classes(2)), "use perturbed=False"),
        (lambda: Hypermodel(sparse_rows=True), "leave sparse_rows=False"),
        (lambda: UnitRows(MLP((3,)), 4, 3).init(KEY, X[0], 4), "index_dim=3 does not divide the 4 outputs"),
        (lambda: settings("hypermodel", target_index="none"), "target_index='none' is unknown"),
        (
            lambda: build("hypermodel", settings("hypermodel", shared_batch=False), TaskSpec(2, 9)),
            "use shared_batch=True or target_index='fresh'",
        ),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_agents_parts_follow_its_settings_and_the_environment():
    table = build("hypermodel", settings("hypermodel", prior_scale=2.0), TaskSpec(2, 1600)).belief
    assert table.sparse_rows and isinstance(table.network, Table) and table.prior_scale == 4.0
    lagged = build("hypermodel", settings("hypermodel", "gymnasium"), TaskSpec(2, None)).belief
    assert not lagged.sparse_rows and lagged.network == MLP((50, 50)) and lagged.head == Scalar()
    dueling = build("hypermodel", settings("hypermodel", "gymnasium", dueling=True), TaskSpec(3, None)).belief
    state = init(dueling, KEY, X[0])
    values = dueling.value(state, dueling.draw(state, KEY), X[0])
    assert values.shape == (3,) and len(np.unique(values)) == 3
    assert build("hypermodel", settings("hypermodel", prior_scale=0.0), TaskSpec(2, 9)).belief.prior is None
