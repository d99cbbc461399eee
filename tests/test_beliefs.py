import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conftest import init, observe, update
from priorax import beliefs
from priorax.beliefs import (
    L2,
    METHODS,
    Adam,
    Batch,
    Dropout,
    Ensemble,
    ExactBayes,
    Outcomes,
    bayes_by_backprop,
    method,
    noisy,
    plain_batch,
)
from priorax.heads import C51
from priorax.networks import MLP, Layer

KEY = jax.random.key(0)
draw_values = eqx.filter_jit(beliefs.draw_values)
X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
Y = X[:, :2] ** 2
NETWORK = MLP((6, 5))


def own_batch(num_members):
    """Each member's own inputs, targets and weights."""
    random = np.random.default_rng(1)
    return Batch(
        jnp.asarray(random.standard_normal((num_members, 8, 3))),
        jnp.asarray(random.standard_normal((num_members, 8, 2))),
        jnp.asarray(random.exponential(size=(num_members, 8))),
        jnp.arange(1.0, num_members + 1),
    )


@pytest.mark.parametrize(
    "settings",
    [{}, {"prior": MLP((4,)), "prior_scale": 3.0}, {"l2": L2(0.5)}, {"l2": L2(0.5, to="prior", reading="coefficient")}],
    ids=["bs", "bsp", "bsr", "bsr-anchor"],
)
def test_an_ensemble_is_k_networks_trained_apart(settings):
    """Vmapped equals looped, to rounding: member k of K is a one-member ensemble with its state and stream."""
    belief = Ensemble(num_members=3, network=NETWORK, num_outputs=2, **settings)
    single = Ensemble(num_members=1, network=NETWORK, num_outputs=2, **settings)
    state, batch = jax.tree.map(np.asarray, (init(belief, KEY, X[0]), own_batch(3)))
    after, info = state, None
    for _ in range(5):
        after, info = update(belief, after, batch, KEY)
    for k in range(3):
        alone, own = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], (state, batch))
        for _ in range(5):
            alone, one = update(single, alone, own, KEY)
        np.testing.assert_allclose(np.asarray(one.loss)[0], np.asarray(info.loss)[k], rtol=1e-5)
        alone, after = jax.tree.map(np.asarray, (alone, after))
        jax.tree.map(lambda a, b, k=k: np.testing.assert_allclose(a[0], b[k], atol=1e-6), alone.params, after.params)


def test_a_gradient_clip_does_not_couple_members():
    """One member with enormous targets leaves the others' steps alone."""
    belief = Ensemble(
        num_members=3,
        network=NETWORK,
        num_outputs=2,
        optimizer=optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(1.0)),
    )
    batch = own_batch(3)
    wild = Batch(batch.x, batch.target.at[0].mul(1e6), batch.weight, batch.count)
    state = init(belief, KEY, X[0])
    calm, shaken = (update(belief, state, b, KEY)[0].params for b in (batch, wild))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1:], b[1:], rtol=1e-6), calm, shaken)


def test_a_masked_out_example_gives_no_gradient():
    belief = Ensemble(num_members=2, network=NETWORK, num_outputs=2, optimizer=optax.sgd(1.0))
    batch = own_batch(2)
    masked = Batch(batch.x, batch.target, batch.weight.at[1].set(0.0), batch.count)
    state = init(belief, KEY, X[0])
    after = update(belief, state, masked, KEY)[0]
    np.testing.assert_array_equal(after.params[0].weight[1], state.params[0].weight[1])
    assert not np.array_equal(after.params[0].weight[0], state.params[0].weight[0])


def test_an_action_trains_its_own_output_only():
    belief = Ensemble(num_members=1, network=MLP(()), num_outputs=2, optimizer=optax.sgd(0.1))
    state = init(belief, KEY, X[0])
    batch = Batch(
        jnp.asarray(X), jnp.ones((1, 16)), jnp.ones((1, 16)), jnp.ones(1), jnp.ones(16, dtype=int), shared=True
    )
    after = update(belief, state, batch, KEY)[0].params[0].weight
    np.testing.assert_array_equal(after[0, :, 0], state.params[0].weight[0, :, 0])
    assert not np.any(np.asarray(after[0, :, 1]) == np.asarray(state.params[0].weight[0, :, 1]))


def test_l2_offers_both_readings_of_its_weight():
    """sigma²/lambda over the member's own n, or the bare coefficient."""
    params, anchor = (jnp.array([3.0, 0.0]),), (jnp.array([1.0, 1.0]),)
    assert float(L2(0.1, reading="posterior").penalty(params, anchor, jnp.asarray(20.0))) == pytest.approx(0.1 / 20 * 5)
    assert float(L2(0.1, reading="coefficient").penalty(params, anchor, jnp.asarray(20.0))) == pytest.approx(0.1 * 5)


@pytest.mark.parametrize(
    ("belief", "factor"),
    [(Dropout(network=NETWORK, l2=L2(0.1, to="zero")), 1.0), (Ensemble(1, NETWORK, l2=L2(0.1, to="zero")), 1 / 16)],
    ids=["dropout", "ensemble"],
)
def test_each_belief_reads_an_l2_as_its_own_equation_does(belief, factor):
    """Dropout's R stands beside the mean loss (equation 1); an ensemble's sigma²/lambda beside the sum (equation 4)."""
    bare = eqx.tree_at(lambda b: b.l2.weight, belief, 0.0)
    state, batch = init(belief, KEY, X[0]), plain_batch(X, Y[:, :1])
    with_it, without = (float(update(b, state, batch, KEY)[1].loss[0]) for b in (belief, bare))
    size = sum(np.sum(np.asarray(leaf) ** 2) for leaf in jax.tree.leaves(state.params))
    assert with_it - without == pytest.approx(0.1 * factor * size, rel=1e-3)


def test_l2_anchors_are_the_start_a_separate_draw_or_zero():
    starts = {
        to: init(Ensemble(num_members=2, network=NETWORK, l2=L2(to=to)), KEY, X[0])
        for to in ("initial", "prior", "zero")
    }
    weight = {to: (state.params[0].weight, state.frozen.anchor[0].weight) for to, state in starts.items()}
    np.testing.assert_array_equal(*weight["initial"])
    assert not np.any(np.asarray(weight["prior"][0]) == np.asarray(weight["prior"][1]))
    assert np.all(np.asarray(weight["zero"][1]) == 0)


def test_a_dropout_draw_is_one_mask_and_draws_differ():
    belief = Dropout(p_keep=0.5, network=MLP((50,)))
    state = init(belief, KEY, X[0])
    masks = jax.jit(belief.draw)(state, KEY)
    assert set(np.unique(masks[0])) == {0.0, 2.0}
    value = jax.jit(belief.value)
    np.testing.assert_array_equal(value(state, masks, X[0]), value(state, masks, X[0]))
    assert len(np.unique(draw_values(belief, state, KEY, X[:1], 20))) > 15


def test_dropout_keeps_the_mean_of_a_linear_layer():
    belief = Dropout(p_keep=0.3, network=MLP((200,)))
    state = init(belief, KEY, X[0])
    mean = np.mean(draw_values(belief, state, KEY, X[:3], 4000), axis=0)
    whole = jax.jit(jax.vmap(lambda x: belief.network.apply(state.params, x)))(X[:3])
    np.testing.assert_allclose(mean, whole, atol=0.08)


def test_dropout_needs_hidden_units():
    with pytest.raises(ValueError, match="no hidden layer"):
        Dropout(network=MLP(())).init(KEY, X[0])


def test_factorised_noise_is_an_outer_product_shared_with_the_bias():
    belief = noisy("factorised", network=NETWORK)
    layer = jax.jit(lambda key: belief.draw(belief.init(key, X[0]), key)[0])(KEY)
    assert isinstance(layer, Layer)
    assert np.linalg.matrix_rank(np.asarray(layer.weight)) == 1
    ratio = np.asarray(layer.weight) / np.asarray(layer.bias)
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones_like(ratio), rtol=1e-4)


def test_noisy_networks_start_with_their_authors_spread():
    factorised = init(noisy("factorised", network=NETWORK), KEY, X[0]).params.spread[0]
    np.testing.assert_allclose(factorised.weight, 0.5 / np.sqrt(3), rtol=1e-6)
    independent = noisy("independent", network=NETWORK)
    state = init(independent, KEY, X[0])
    np.testing.assert_allclose(state.params.spread[1].weight, 0.017, rtol=1e-6)
    noise = np.asarray(jax.jit(independent.draw)(state, KEY)[1].weight)
    assert np.linalg.matrix_rank(noise) == min(noise.shape)


@pytest.mark.parametrize(("noise", "square"), [("factorised", 1), ("independent", 3)])
def test_noisy_networks_start_with_their_authors_means(noise, square):
    """Uniform in ±1/sqrt(fan_in), ±sqrt(3/fan_in) for independent noise: weights and biases; or the network's own."""
    network = MLP((200, 100))
    layers = init(noisy(noise, network=network), KEY, X[0]).params.mean
    for layer, fan_in in zip(layers, (3, 200, 100), strict=True):
        limit = (square / fan_in) ** 0.5
        both = np.concatenate([np.ravel(layer.weight), np.ravel(layer.bias)])
        assert 0.9 * limit < np.abs(both).max() <= limit
        assert np.abs(layer.bias).max() > 0
        np.testing.assert_allclose(both.std(), limit / 3**0.5, rtol=0.1)
    own = init(noisy(noise, network=network, means="network"), KEY, X[0]).params.mean
    jax.tree.map(np.testing.assert_array_equal, own, jax.jit(lambda key: network.init(key, X[0], 1))(KEY))


def test_kl_is_that_of_two_gaussians():
    """Against a Monte Carlo estimate of E_q[log q - log p]."""
    belief = bayes_by_backprop(network=MLP((2,)), initial_std=0.4)
    state = init(belief, KEY, X[0])
    mean = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.params.mean)])
    theta = mean + 0.4 * np.random.default_rng(0).standard_normal((200_000, len(mean)))
    log_ratio = -np.log(0.4) - ((theta - mean) / 0.4) ** 2 / 2 + theta**2 / 2
    assert float(jax.jit(belief.kl)(state.params)) == pytest.approx(log_ratio.sum(axis=1).mean(), rel=0.01)


def test_bayes_by_backprop_finds_the_exact_posterior_of_one_weight():
    """Mean-field is exact in one dimension: y = theta x + N(0, 0.5²), theta ~ N(0, 1)."""
    random = np.random.default_rng(0)
    x = random.standard_normal((20, 1)).astype(np.float32)
    y = 0.7 * x + 0.5 * random.standard_normal((20, 1))
    belief = bayes_by_backprop(
        kl_weight=2 * 0.5**2,
        network=MLP((), use_bias=False),
        optimizer=optax.adam(optax.cosine_decay_schedule(0.05, 4000)),
    )
    batch = plain_batch(x, y)

    def step(i, state):
        return belief.update(state, batch, jax.random.fold_in(KEY, i))[0]

    state = jax.lax.fori_loop(0, 4000, step, init(belief, KEY, jnp.zeros(1)))
    exact = ExactBayes(noise_std=0.5)
    mean, cov = jax.jit(exact.posterior)(observe(exact, init(exact, KEY, x[0]), batch))
    assert float(state.params.mean[0].weight[0, 0]) == pytest.approx(float(mean[0, 0]), abs=0.03)
    std = float(jax.nn.softplus(state.params.spread[0].weight[0, 0]))
    assert std == pytest.approx(float(cov[0, 0]) ** 0.5, rel=0.15)


def test_exact_bayes_is_equation_3():
    belief = ExactBayes(prior_variance=0.5, noise_std=2.0, prior_mean=0.3, num_outputs=2)
    state = init(belief, KEY, X[0])
    for part in (slice(0, 5), slice(5, 16)):
        state = observe(belief, state, plain_batch(X[part], Y[part]))
    mean, cov = jax.jit(belief.posterior)(state)
    precision = X.T @ X / 4 + np.eye(3) / 0.5
    np.testing.assert_allclose(cov, np.linalg.inv(precision), rtol=1e-4)
    np.testing.assert_allclose(mean, np.linalg.solve(precision, X.T @ Y / 4 + 0.3 / 0.5), rtol=1e-4)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: belief.draw(state, k)))(jax.random.split(KEY, 3000)))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(draws[:, :, 0].T), cov, atol=0.03)


def test_exact_bayes_holds_where_features_are_large_beside_what_they_differ_by():
    """Features [1, 1000 + u] against float64: mean and spread of predictions, seen at once or one by one."""
    random = np.random.default_rng(3)
    u = random.uniform(0, 1, 200)
    x = np.stack([np.ones(200), 1000 + u], axis=1).astype(np.float32)
    y = 2 * u[:, None] - 1 + 0.1 * random.standard_normal((200, 1))
    belief = ExactBayes(prior_variance=1e4, noise_std=0.1)
    start = init(belief, KEY, x[0])
    at_once = observe(belief, start, plain_batch(x, y))
    one_by_one = jax.lax.fori_loop(
        0,
        200,
        lambda i, state: belief.observe(state, plain_batch(jnp.asarray(x)[i][None], jnp.asarray(y)[i][None])),
        start,
    )
    wide = x.astype(float)
    precision = wide.T @ wide / 0.1**2 + np.eye(2) / 1e4
    grid = np.stack([np.ones(5), 1000 + np.linspace(0, 1, 5)], axis=1)
    mean = grid @ np.linalg.solve(precision, wide.T @ y / 0.1**2)
    std = np.sqrt(np.einsum("ni,ij,nj->n", grid, np.linalg.inv(precision), grid))
    for state in (at_once, one_by_one):
        draws = np.asarray(draw_values(belief, state, KEY, jnp.asarray(grid, jnp.float32), 4000))[:, :, 0]
        np.testing.assert_allclose(draws.mean(axis=0), mean[:, 0], atol=0.02)
        np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.1)


def test_outcomes_read_the_head_as_if_it_were_a_posterior():
    base = Ensemble(num_members=1, network=MLP((4,)), head=C51(0.0, 1.0, 11), num_outputs=2)
    belief = Outcomes(base)
    state = init(belief, KEY, X[0])
    draws = np.asarray(draw_values(belief, state, KEY, X[:1], 500))
    assert set(np.unique(draws.round(5))) <= set(np.asarray(base.head.atoms).round(5))
    np.testing.assert_allclose(draws.mean(axis=0)[0], jax.jit(base.value)(state, 0, X[0]), atol=0.06)
    assert np.abs(np.corrcoef(draws[:, 0].T)[0, 1]) < 0.2


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_table_1_answers_the_protocol(name):
    """By name: it starts, draws whole functions, sees data, learns, and its draws stay finite; same key, same bits."""
    settings = {} if name == "exact" else {"network": NETWORK}
    if name in ("ensemble", "bs", "bsr", "bsp"):
        settings["num_members"] = 3
    belief, _ = method(name, **settings)

    @jax.jit
    def live(key):
        target = jax.vmap(jax.vmap(belief.head.encode))(Y[:, :1])
        batch = plain_batch(X, target, belief.num_streams)
        state = belief.observe(belief.init(key, X[0]), batch)
        state, info = jax.lax.scan(lambda s, k: belief.update(s, batch, k), state, jax.random.split(key, 3))
        return info.loss, belief.forward(state, key, X, shared=True), belief.functions(state, key, X, 7)

    losses, out, a = live(KEY)
    assert losses.shape == (3, belief.num_streams)
    assert out.shape == (belief.num_streams, 16, 1, belief.head.size)
    np.testing.assert_array_equal(a, live(KEY)[2])
    assert np.all(np.isfinite(a))


def test_every_method_of_table_1_says_what_it_can_do():
    said = {name: method(name).belief for name in METHODS}
    members = {"ensemble": 20, "bs": 20, "bsr": 20, "bsp": 20, "c51": 1, "qr": 1, "count": 1}
    assert {name: b.num_members for name, b in said.items() if b.num_members is not None} == members
    assert {name for name, b in said.items() if b.draws_members} == {"ensemble", "bs", "bsr", "bsp", "count"}
    assert {name for name, b in said.items() if b.has_prior} == {"bsp", "hypermodel", "epinet"}
    assert {name for name, b in said.items() if b.stores_prior} == {"bsp", "hypermodel", "epinet"}
    assert {name for name, b in said.items() if b.pays_bonus} == {"count"}
    assert {name for name, b in said.items() if not b.by_gradient} == {"exact"}
    assert {name: b.num_streams for name, b in said.items() if b.num_streams > 1} == dict.fromkeys(
        list(members)[:4], 20
    )
    assert all(b.prior_scale == 1.0 for b in said.values())


def test_an_unknown_method_gives_the_nearest_name():
    with pytest.raises(ValueError, match="method='bps' is unknown; did you mean 'bs"):
        method("bps")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ensemble(num_members=0), "num_members=0 must be a whole number of at least 1"),
        (lambda: Ensemble(prior_scale=-1.0), r"prior_scale=-1\.0 must be a finite number of at least 0"),
        (lambda: L2(-1.0), r"weight=-1\.0"),
        (lambda: L2(to="pror"), "to='pror' is unknown; did you mean 'prior'"),
        (lambda: L2(reading="coeficient"), "did you mean 'coefficient'"),
        (lambda: noisy("factorized"), "did you mean 'factorised'"),
        (lambda: noisy(network=MLP((3,), weight_std=0.5)), r"weight_std=0\.5 of the network.*means='network'"),
        (lambda: Adam(b1=1.0), r"b1=1\.0 must be at least 0 and below 1"),
        (lambda: Dropout(p_keep=0.0), r"p_keep=0\.0"),
        (lambda: ExactBayes(noise_std=0.0), r"noise_std=0\.0"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_plain_pair_is_a_network():
    belief, _ = method("bs", network=(lambda key, x: jax.random.normal(key, (3,)), lambda p, x: x @ p), num_members=2)
    assert init(belief, KEY, X[0]).params.shape == (2, 3)
    assert noisy(initial_std=0.1).initial_std == 0.1


def test_sweeping_a_number_compiles_nothing_anew():
    """prior_scale is a leaf of the belief: one program serves all scales, and a vmap sweeps them."""
    traced = 0

    @jax.jit
    def value(belief, state):
        nonlocal traced
        traced += 1
        return belief.value(state, jnp.asarray(0), jnp.asarray(X[0]))

    def make(scale):
        return Ensemble(num_members=2, network=MLP((4,)), prior=MLP((4,)), prior_scale=scale)

    state = init(make(1.0), KEY, X[0])
    values = [float(value(make(scale), state)[0]) for scale in (0.0, 1.0, 2.0)]
    assert traced == 1
    assert values[2] - values[1] == pytest.approx(values[1] - values[0], rel=1e-4)
