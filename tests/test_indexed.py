"""What hypermodels and epinets share: several indices per update, their targets and priors, sparse rows, agents.

Where a case is long, the cheaper belief has the fast one.
"""

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
from priorax.beliefs import L2, Adam, Batch, Epinet, Hypermodel, method, plain_batch
from priorax.envs.interface import TaskSpec
from priorax.envs.jax.bandits import LinearBandit
from priorax.heads import C51, Classes, Scalar
from priorax.networks import MLP, Table
from priorax.priors import Independent, Linear, Tabulated, UnitRows
from priorax.training.bandits import cumulative_regret

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
NAMES = ["hypermodel", "epinet"]
HYPERMODEL_FIRST = ["hypermodel", pytest.param("epinet", marks=pytest.mark.slow)]
LINEAR = MLP((), use_bias=False)
CLASSES = {"hypermodel": Hypermodel, "epinet": Epinet}
COMMON = {"network": MLP((5, 4)), "prior_scale": 2.0, "num_outputs": 2, "optimizer": Adam(0.01)}
PLAIN = {
    "hypermodel": Hypermodel(3, 6, prior=UnitRows(MLP((5,)), 4, 3), **COMMON),
    "epinet": Epinet(3, 6, prior=Independent(MLP((5,)), 3), epinet=MLP((7,)), **COMMON),
}
functions = eqx.filter_jit(lambda belief, *rest: belief.functions(*rest))
values = eqx.filter_jit(
    lambda belief, state, indices: jax.vmap(lambda i: jax.vmap(lambda x: belief.value(state, i, x))(X))(indices)
)


@eqx.filter_jit
def gradients(belief, state, batch, key):
    """The losses of the streams, and the gradient of their sum."""

    def total(params):
        losses = belief.losses(state._replace(params=params), batch, key)
        return jnp.sum(losses), losses

    found, losses = jax.grad(total, has_aux=True)(state.params)
    return losses, found


def same_index(belief):
    return dataclasses.replace(belief, target_index="same")


def close(found, expected, rtol=1e-3, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, expected)


@pytest.fixture(scope="module", params=NAMES)
def plain(request):
    """A belief and its first state, which does not depend on where the targets are."""
    belief = PLAIN[request.param]
    return belief, init(belief, KEY, X[0])


def batch_of(belief, target, action=None):
    streams = belief.num_streams
    target = jnp.broadcast_to(target, (streams, *target.shape[1:]))
    return Batch(X, target, jnp.ones((streams, 16)), jnp.ones(streams), action=action, shared=True)


def test_a_target_at_the_same_index_is_the_function_that_the_update_trains(plain):
    belief, state = same_index(plain[0]), plain[1]
    assert (belief.num_streams, belief.pairs_targets) == (6, True)
    assert (plain[0].num_streams, plain[0].pairs_targets) == (1, False)
    out = forward(belief, state, X, KEY)
    assert out.shape == (6, 16, 2, 1)
    index = jax.jit(belief.update_indices)(KEY)
    np.testing.assert_allclose(out[..., 0], values(belief, state, index), rtol=1e-4, atol=1e-5)
    batch = batch_of(belief, out[..., 0])
    np.testing.assert_allclose(gradients(belief, state, batch, KEY)[0], 0.0, atol=1e-8)
    assert np.all(np.asarray(gradients(belief, state, batch, jax.random.key(1))[0]) > 1e-3)


@pytest.mark.parametrize(
    "chosen", [pytest.param(False, marks=pytest.mark.slow), True], ids=["all outputs", "chosen outputs"]
)
def test_the_gradient_is_the_mean_over_the_indices_of_the_update(plain, chosen):
    """The gradient of several indices, each with its own target, is the mean of the gradients of one index."""
    belief, state = same_index(plain[0]), plain[1]
    action = jnp.arange(16) % 2 if chosen else None
    target = np.random.default_rng(1).standard_normal((6, 16) if chosen else (6, 16, 2)).astype(np.float32)

    def loss(params, index, target):
        out = jax.vmap(lambda x: belief.value(state._replace(params=params), index, x))(X)
        if chosen:
            return jnp.mean(jax.vmap(belief.head.loss)(out[jnp.arange(16), action][:, None], target))
        return jnp.mean(jnp.sum(jax.vmap(jax.vmap(belief.head.loss))(out[..., None], target), axis=-1))

    @jax.jit
    def one_by_one(params, target):
        index = belief.update_indices(KEY)
        losses, each = jax.vmap(jax.value_and_grad(loss), (None, 0, 0))(params, index, target)
        return losses, jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)

    found = gradients(belief, state, batch_of(belief, target, action), KEY)
    close(found, one_by_one(state.params, target))


def test_equal_targets_give_the_same_gradient_whatever_their_indices(plain):
    fresh, state = plain
    target = X[None, :, :2]
    (losses, found), (each, expected) = (
        gradients(belief, state, batch_of(belief, target), KEY) for belief in (fresh, same_index(fresh))
    )
    assert losses.shape == (1,) and each.shape == (6,)
    close((np.mean(losses), found), (np.mean(each), expected), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_equal_targets_give_the_same_update_and_examples_whatever_their_indices(name):
    after = []
    for belief in (PLAIN[name], same_index(PLAIN[name])):
        belief = dataclasses.replace(belief, optimizer=optax.sgd(0.1))
        batch = batch_of(belief, X[None, :, 0], jnp.arange(16) % 2)
        state, info = update(belief, init(belief, KEY, X[0]), batch, KEY)
        assert info.loss.shape == (belief.num_streams,) and info.examples.shape == (belief.num_streams, 16)
        after.append((state.params, jnp.mean(info.loss), jnp.mean(info.examples, axis=0)))
    close(*after, rtol=1e-4, atol=1e-6)


def test_a_fresh_target_has_an_index_of_its_own_for_each_example_and_its_prior_may_be_known(plain):
    belief, state = plain
    same = np.broadcast_to(X[0], X.shape)
    found = np.asarray(forward(belief, state, same, KEY))
    assert found.shape == (1, 16, 2, 1) and len(np.unique(found[0, :, 0, 0])) == 16

    @eqx.filter_jit
    def with_known(belief, state):
        known = belief.prior_values(state, X)
        draws = jax.vmap(lambda k: belief.draw(state, k))(jax.random.split(KEY, 4000))
        return known, belief.forward(state, KEY, X, known, shared=True), draws, belief.prior_spread(state, X)

    known, after, draws, spread = with_known(belief, state)
    assert belief.stores_prior and known.shape == (1, 16, 2, 3)
    np.testing.assert_allclose(after, forward(belief, state, X, KEY), rtol=1e-4)
    np.testing.assert_allclose(spread, (2.0 * known[0] @ draws.T).std(axis=-1), rtol=0.06)


def test_training_changes_all_weights_and_never_the_prior(plain):
    belief, state = plain
    after, info = update(belief, state, plain_batch(X, X[:, :2]), KEY)
    assert info.loss.shape == (1,) and info.examples.shape == (1, 16)
    jax.tree.map(np.testing.assert_array_equal, state.frozen, after.frozen)
    assert not any(jax.tree.leaves(jax.tree.map(np.array_equal, state.params, after.params)))


@pytest.mark.parametrize(
    ("name", "target_index", "changes"),
    [
        ("epinet", "same", {"input_features": True}),  # has the most of its own
        pytest.param("epinet", "same", {}, marks=pytest.mark.slow),
        pytest.param("epinet", "fresh", {}, marks=pytest.mark.slow),
        pytest.param("hypermodel", "same", {}, marks=pytest.mark.slow),
        pytest.param("hypermodel", "fresh", {}, marks=pytest.mark.slow),
    ],
)
def test_sparse_rows_learn_as_dense_ones(name, target_index, changes):
    prior = {"hypermodel": UnitRows(Table(12, (5,)), 4, 3), "epinet": Independent(Table(12, (5,)), 3)}[name]
    own = {"epinet": MLP((7,)), **changes} if name == "epinet" else {}
    dense = CLASSES[name](
        3,
        6,
        network=Table(12, (5, 4)),
        prior=Tabulated(prior, 12),
        num_outputs=2,
        target_index=target_index,
        optimizer=Adam(0.01),
        **own,
    )

    @eqx.filter_jit
    def before_and_after(belief):
        def step(state, seen):
            x, key = seen
            shape = (belief.num_streams, 4)
            target = jnp.broadcast_to(jnp.sin(x.astype(float)), shape)
            batch = Batch(x, target, jnp.ones(shape), jnp.ones(shape[0]), action=x % 2, shared=True)
            return belief.update(state, batch, key)[0], None

        start = belief.init(KEY, jnp.asarray(0))
        rows = jax.random.randint(KEY, (50, 4), 0, 12)
        state, _ = jax.lax.scan(step, start, (rows, jax.random.split(KEY, 50)))
        both = jax.tree.map(lambda *leaves: jnp.stack(leaves), start, state)
        return jax.vmap(lambda state: belief.functions(state, KEY, jnp.arange(12), 50))(both)

    start, learned = before_and_after(dense)
    start_sparse, learned_sparse = before_and_after(dataclasses.replace(dense, sparse_rows=True))
    np.testing.assert_allclose(start_sparse, start, atol=1e-5)
    assert np.abs(learned - start).max() > 0.2
    np.testing.assert_allclose(learned_sparse, learned, atol=0.03)


@pytest.mark.parametrize("name", HYPERMODEL_FIRST)
def test_it_fits_data_and_doubts_elsewhere(name):
    x = np.linspace(-1, 1, 30, dtype=np.float32)[:, None]
    own = {"hypermodel": {"prior_scale": 3.0}, "epinet": {"num_indices": 16}}[name]
    belief, noise = method(name, network=MLP((30, 30)), optimizer=Adam(0.01), **own)
    assert belief.num_members is None and belief.num_outputs == 1
    state = fit(belief, (x, np.sin(3 * x[:, 0])), key=KEY, noise=noise, steps=1500).state
    found = np.asarray(functions(belief, state, KEY, np.concatenate([x, [[4.0], [-4.0]]], dtype=np.float32)))[:, :, 0]
    near, far = found[:, :30], found[:, 30:]
    np.testing.assert_allclose(near.mean(axis=0), np.sin(3 * x[:, 0]), atol=0.15)
    assert np.all(far.std(axis=0) > 4 * near.std(axis=0).mean())


@pytest.mark.parametrize("name", NAMES)
def test_in_a_linear_model_each_component_is_a_member_of_lemma_3(name):
    """The function at the k-th unit vector, times the radius, minimises equation (5) for the k-th copy of the data and
    the k-th prior. So a linear epinet is a linear hypermodel at another scale of the index."""
    steps, weight, dim = 800, 0.3, 4
    own = {"epinet": LINEAR, "sees_index": False} if name == "epinet" else {}
    belief = CLASSES[name](
        dim,
        8,
        network=LINEAR,
        prior=Linear(),
        perturbed=True,
        l2=L2(weight, to="zero"),
        optimizer=optax.adam(optax.cosine_decay_schedule(0.05, steps)),
        **own,
    )
    belief = dataclasses.replace(belief, prior_scale=2.0 / belief.radius)
    copies = np.random.default_rng(1).standard_normal((dim, 16, 1)).astype(np.float32)

    @jax.jit
    def train():
        batch = Batch(X, jnp.asarray(copies), jnp.ones((dim, 16)), jnp.full(dim, 16.0), shared=True)
        keys = jax.random.split(KEY, steps)
        state, _ = jax.lax.scan(lambda s, k: (belief.update(s, batch, k)[0], None), belief.init(KEY, X[0]), keys)
        return state, belief.forward(state, KEY, X, shared=True)[..., 0, 0]

    state, found = train()
    prior = 2.0 * np.asarray(state.frozen.prior[0].weight)
    solved = np.linalg.solve(X.T @ X + weight * np.eye(3), X.T @ (copies[..., 0].T - X @ prior)) + prior
    np.testing.assert_allclose(found, (X @ solved).T, atol=0.02)
    at_units = values(belief, state, belief.radius * jnp.eye(dim))[..., 0]
    np.testing.assert_allclose(found, at_units, rtol=1e-4, atol=1e-5)


HEADS = {"classes": (Classes(2), (X[:, 0] > 0).astype(np.int32)), "distributions": (C51(-3.0, 3.0, 21), X[:, 0])}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hypermodel", "distributions"),
        ("epinet", "classes"),
        pytest.param("hypermodel", "classes", marks=pytest.mark.slow),
        pytest.param("epinet", "distributions", marks=pytest.mark.slow),
    ],
)
def test_distributions_and_classes_are_learned_too(name, kind):
    head, y = HEADS[kind]
    scale = {"hypermodel": 1.0, "epinet": 0.3}[name]
    belief, noise = method(name, network=MLP((16,)), head=head, prior_scale=scale, optimizer=Adam(0.02))
    state = fit(belief, (X, y), key=KEY, noise=noise, steps=400).state
    found = np.asarray(functions(belief, state, KEY, X))[:, :, 0].mean(axis=0)
    np.testing.assert_allclose(found, y, atol=0.45)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_plays_a_bandit(name):
    own = {
        "hypermodel": {"index_dim": 8},
        "epinet": {"prior_scale": 8**-0.5, "epinet": LINEAR, "sees_index": False},
    }[name]
    chosen = method(name, network=LINEAR, prior=Linear(), noise_std=1.0, optimizer=Adam(0.05), **own)
    regret = np.asarray(
        cumulative_regret(LinearBandit(6, 3), belief_sampler(chosen, 200, batch_size=16), steps=200, seeds=20)
    )
    early, late = regret[:, 49], regret[:, -1] - regret[:, -51]
    assert late.mean() < 0.5 * early.mean()


@pytest.mark.parametrize("name", NAMES)
def test_the_agents_parts_follow_its_settings_and_the_environment(name):
    table = build(name, settings(name, prior_scale=2.0), TaskSpec(2, 1600)).belief
    assert table.sparse_rows and isinstance(table.network, Table) and table.prior_scale == 4.0
    lagged = build(name, settings(name, "gymnasium"), TaskSpec(2, None)).belief
    assert not lagged.sparse_rows and lagged.network == MLP((50, 50)) and lagged.head == Scalar()
    assert build(name, settings(name, prior_scale=0.0), TaskSpec(2, 9)).belief.prior is None
    dueling = build(name, settings(name, "gymnasium", dueling=True), TaskSpec(3, None)).belief

    @jax.jit
    def first_values(key):
        state = dueling.init(key, X[0])
        return dueling.value(state, dueling.draw(state, key), X[0])

    found = first_values(KEY)
    assert found.shape == (3,) and len(np.unique(found)) == 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda name: CLASSES[name](0), "index_dim=0 must be a whole number of at least 1"),
        (lambda name: CLASSES[name](num_indices=0), "num_indices=0"),
        (lambda name: CLASSES[name](target_index="frsh"), "did you mean 'fresh'"),
        (lambda name: CLASSES[name](perturbed=True, target_index="same"), "use perturbed=False"),
        (lambda name: CLASSES[name](perturbed=True, head=Classes(2)), "use perturbed=False"),
        (lambda name: CLASSES[name](sparse_rows=True), "leave sparse_rows=False"),
        (lambda name: settings(name, target_index="none"), "target_index='none' is unknown"),
        (
            lambda name: build(name, settings(name, shared_batch=False), TaskSpec(2, 9)),
            "use shared_batch=True or target_index='fresh'",
        ),
    ],
)
def test_bad_settings_are_refused(name, make, message):
    with pytest.raises(ValueError, match=message):
        make(name)
