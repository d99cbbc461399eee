import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.agents import build, settings
from priorax.beliefs import Ensemble
from priorax.envs.interface import Interface, Sight
from priorax.experiments.priors import study as priors
from priorax.fitting import fit
from priorax.networks import MLP, Table
from priorax.priors import Constant, Function, Linear, RandomFourier, RandomSize, UnitSize
from priorax.training.backends.loop import prepare

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


@pytest.mark.parametrize("prior", [MLP((20,), bias_scale=2.0), Linear(5.0), RandomFourier(0.3)])
def test_unit_size_gives_every_prior_function_a_root_mean_square_of_one(prior):
    x = np.random.default_rng(1).normal(size=(2000, 2)).astype(np.float32) * [1.0, 3.0]
    values = member_priors(UnitSize(prior, input_scale=(1.0, 3.0)), num_members=5, x=x)
    np.testing.assert_allclose(np.sqrt(np.mean(values**2, axis=1)), 1, atol=0.2)


def test_unit_size_of_priors_over_states_is_exact():
    prior = UnitSize(Table(30, (10,)), num_rows=30)
    params = prior.init(jax.random.key(0), jnp.zeros((), int), 3)
    values = jax.vmap(lambda row: prior.apply(params, row))(jnp.arange(30))
    assert np.mean(np.asarray(values) ** 2) == pytest.approx(1, abs=1e-5)


def test_unit_size_leaves_a_prior_function_that_is_zero_everywhere():
    values = member_priors(UnitSize(MLP((2, 2)), input_scale=(1.0,)), num_members=300)
    sizes = np.sqrt(np.mean(np.asarray(values) ** 2, axis=1))
    assert np.isfinite(sizes).all() and (sizes == 0).any()


def test_a_hypermodel_refuses_a_prior_without_features():
    with pytest.raises(ValueError, match=r"prior_widths=\(\) leaves the prior of a hypermodel without features"):
        prepare("hypermodel", settings("hypermodel", "tuned", prior_widths=()), "deep_sea", 4, 0)


def test_random_size_multiplies_prior_functions_by_log_uniform_factors():
    sizes = np.abs(member_priors(RandomSize(Function(jnp.ones_like), 10.0), num_members=4000)[:, 0])
    quantiles = np.quantile(np.log10(sizes), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(quantiles, [-1, -0.5, 0, 0.5, 1], atol=0.05)
    with pytest.raises(ValueError, match=r"ratio=0.5 must be at least 1; pass for example 10"):
        RandomSize(Linear(), 0.5)


def test_with_prior_ratio_members_have_priors_of_different_sizes():
    sizes = np.sqrt(np.mean(prior_of(prior_unit=True, prior_scale=2.0, prior_ratio=10.0) ** 2, axis=(1, 2)))
    assert sizes.min() >= 0.2 and sizes.max() <= 20 and np.ptp(np.log(sizes)) > 0.1


def prior_of(size=8, **changes):
    chosen = settings("bsp", "tuned", num_members=3, **changes)
    belief = prepare("bsp", chosen, "deep_sea", size, 0)[0].agent.belief
    state = belief.init(jax.random.key(0), jnp.zeros((), int))
    return belief.prior_scale * np.asarray(state.frozen.prior)[:, :-1]


@pytest.mark.parametrize("size", [5, 12])
@pytest.mark.parametrize("changes", [{}, {"prior": "linear"}, {"prior": "constant"}, {"prior_widths": (7, 7, 7)}])
def test_with_prior_unit_the_scale_is_the_size_of_priors_of_any_form_in_any_environment(changes, size):
    values = prior_of(size, prior_unit=True, prior_scale=0.5, **changes)
    np.testing.assert_allclose(np.mean(values**2, axis=(1, 2)), 0.25, rtol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"dueling": True}])
@pytest.mark.parametrize("agent", ["bsp", "hypermodel", "epinet"])
def test_with_prior_unit_the_scale_is_the_spread_of_functions_whatever_draws_them(agent, changes):
    many = {"num_members": 400} if agent == "bsp" else {}
    chosen = settings(agent, "gymnasium", prior_unit=True, prior_scale=0.5, **many, **changes)
    belief = build(agent, chosen, Interface(Sight((4,), (4,), "float32"), 2)).belief
    x = np.random.default_rng(1).normal(size=(500, 4)).astype(np.float32)
    spread = belief.prior_spread(belief.init(jax.random.key(0), x[0]), x)
    assert np.sqrt(np.mean(np.square(spread))) == pytest.approx(0.5, rel=0.15)


def test_constant_priors_differ_between_members_and_actions_and_not_between_states():
    values = prior_of(prior="constant")
    assert np.ptp(values, axis=1).max() == 0
    assert np.ptp(values, axis=0).min() > 0
    assert np.ptp(values, axis=2).min() > 0


@pytest.mark.parametrize("changes", [{"prior_widths": (5,)}, {"prior_activation": "tanh"}, {"prior_bias": 1.0}])
def test_the_form_of_the_prior_network_can_differ_from_that_of_members(changes):
    assert not np.allclose(prior_of(**changes), prior_of())


def test_images_refuse_settings_of_priors_on_states_and_vectors():
    with pytest.raises(ValueError, match=r"prior_widths=\(5,\).*torso='small' sees images; pass none and False"):
        build(
            "bsp", settings("bsp", "small", prior_widths=(5,)), Interface(Sight((4, 84, 84), (4, 84, 84), "uint8"), 4)
        )


def test_the_study_of_priors_is_drawn_and_tabulated_from_its_rows():
    rows = [
        {"name": item.name, "env": "deep_sea", "most_episodes": 1500, "episodes_to_learn": 80, **item.arguments}
        for ladder in priors.ladders("quick")
        for level in ladder
        for item in level
        if item.measure is None
    ]
    del rows[0]["episodes_to_learn"]
    rows += [
        {"name": "regression", "prior": prior, "seed": seed, "place": place, "relative": -0.5, "exact": 1.0}
        for prior in priors.REGRESSION
        for seed in range(2)
        for place in priors.PLACES
    ]
    assert len(priors.figure(rows).axes) == 2
    header, *body = priors.summary(rows)
    assert header == ("prior", "DeepSea 10", *priors.PLACES)
    assert len(body) == 1 + len(priors.SEA_PRIORS) + len(priors.REGRESSION)
    assert body[1][1] == "∞ [80, ∞], 1 of 2"


@pytest.mark.slow
def test_outside_the_data_a_prior_with_the_right_lengthscale_is_nearer_to_exact_bayes_than_none():
    with_prior = {row["place"]: row["relative"] for row in priors.regress(priors.FITTED, 0)}
    without = {row["place"]: row["relative"] for row in priors.regress(priors.NO_PRIOR, 0)}
    assert without["outside"] < with_prior["outside"] - 1
    assert with_prior["outside"] > -0.5
