"""Langevin dynamics: the weights over time are samples of the posterior; the published step; agents that use it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import storage
from priorax.agents import build, settings
from priorax.beliefs import L2, Dropout, Ensemble, Hypermodel, Langevin, plain_batch
from priorax.beliefs.gradient import LangevinState
from priorax.envs.interface import TaskSpec
from priorax.networks import MLP, Table
from priorax.sanity.posterior import exact_posterior, random_problem

KEY = jax.random.key(0)
PROBLEM = random_problem(1, 3, 20, 1.0, 0.5)
BURN_IN, CHAINS, SAMPLES, THINNING = 300, 64, 60, 25


@eqx.filter_jit
def samples(belief, inverse_temperature):
    """Weights of all members over time, [member * time, dim], after they forgot where they began."""
    belief = eqx.tree_at(lambda belief: belief.optimizer.inverse_temperature, belief, inverse_temperature)
    batch = plain_batch(PROBLEM.x, PROBLEM.y[:, None], belief.num_members)

    def step(state, key):
        return belief.update(state, batch, key)[0], None

    def thinned(state, key):
        state, _ = jax.lax.scan(step, state, jax.random.split(key, THINNING))
        return state, state.params[0].weight[:, :, 0]

    key_init, key_burn, key_run = jax.random.split(KEY, 3)
    state, _ = jax.lax.scan(step, belief.init(key_init, PROBLEM.x[0]), jax.random.split(key_burn, BURN_IN))
    _, theta = jax.lax.scan(thinned, state, jax.random.split(key_run, SAMPLES))
    return theta.reshape(-1, PROBLEM.x.shape[1])


def linear(bias_factor=0.0):
    l2 = L2(PROBLEM.noise_std**2 / PROBLEM.prior_variance, to="zero")
    return Ensemble(CHAINS, MLP((), use_bias=False), l2=l2, optimizer=Langevin(0.01, 1.0, bias_factor))


POSTERIOR = len(PROBLEM.y) / (2 * PROBLEM.noise_std**2)
"""The inverse temperature at which the mean squared error is the negative log likelihood."""


def test_weights_over_time_have_the_mean_and_covariance_of_the_exact_posterior():
    mean, cov = exact_posterior(PROBLEM)
    theta = np.asarray(samples(linear(), POSTERIOR))
    std = np.sqrt(np.diagonal(cov))
    np.testing.assert_allclose(theta.mean(axis=0), mean, atol=0.1 * std.min())
    np.testing.assert_allclose(np.cov(theta.T), cov, atol=0.12 * std.max() ** 2)
    wrong = np.cov(np.asarray(samples(linear(), 2 * POSTERIOR)).T)
    assert np.all(np.diagonal(wrong) < 0.65 * np.diagonal(cov)), "the test tells another temperature apart"


def test_chains_of_different_members_are_independent():
    theta = np.asarray(samples(linear(), POSTERIOR)).reshape(SAMPLES, CHAINS, -1)
    deviation = (theta - theta.mean(axis=(0, 1)))[:, :, 0]
    between = np.corrcoef(deviation.T)[np.triu_indices(CHAINS, 1)]
    assert abs(between.mean()) < 0.02 and abs(between).max() < 0.9


def test_a_step_without_noise_is_the_published_one():
    langevin = Langevin(0.1, 1e6, bias_factor=2.0, b1=0.9, b2=0.99, eps=1e-4)
    m, v, w = 0.0, 0.0, 1.0
    params, state = jnp.asarray(w), langevin.init(jnp.asarray(w))
    for gradient in (3.0, -1.0, 0.5):
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        w -= 0.1 * (gradient + 2.0 * m / np.sqrt(v + 1e-4))
        update, state = langevin.update(jnp.asarray(gradient), state, params)
        params = params + update
    assert float(params) == pytest.approx(w, rel=1e-5)
    assert state == LangevinState(pytest.approx(m, rel=1e-5), pytest.approx(v, rel=1e-5))


def test_noise_has_the_variance_of_the_step_and_the_temperature():
    langevin = Langevin(0.02, 25.0)
    noise = langevin.perturbed(KEY, {"a": jnp.zeros((200, 100)), "b": jnp.zeros((200, 100))})
    assert float(jnp.var(noise["a"])) == pytest.approx(2 * 0.02 / 25, rel=0.05)
    assert abs(np.corrcoef(noise["a"].ravel(), noise["b"].ravel())[0, 1]) < 0.03


X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 3)), jnp.float32)
BELIEFS = {"ensemble": Ensemble, "dropout": Dropout, "hypermodel": Hypermodel}


@pytest.mark.parametrize("name", BELIEFS)
def test_any_gradient_belief_takes_the_optimizer_and_is_fixed_by_the_key(name):
    belief = BELIEFS[name](network=MLP((4,)), optimizer=Langevin(1e-3, 10.0))
    state = eqx.filter_jit(belief.init)(KEY, X[0])
    batch = plain_batch(X, jnp.zeros((8, 1)), belief.num_streams)
    update = eqx.filter_jit(lambda key: jax.tree.leaves(belief.update(state, batch, key)[0].params))
    one, same, other = update(KEY), update(KEY), update(jax.random.key(1))
    assert all(bool(jnp.all(a == b)) for a, b in zip(one, same, strict=True))
    assert all(not bool(jnp.any(a == b)) for a, b in zip(one, other, strict=True))


def test_the_agent_follows_its_current_weights_and_every_update_moves_unvisited_states():
    agent = build("lmcdqn", settings("lmcdqn", inverse_temperature=100.0), TaskSpec(2, 6))
    belief = agent.belief
    assert isinstance(belief.optimizer, Langevin) and belief.num_members == 1 and not belief.is_sparse
    state = belief.init(KEY, jnp.asarray(0))
    batch = plain_batch(jnp.array([0, 0]), jnp.zeros((2, 2)))
    after, _ = belief.update(state, batch, KEY)
    far = jnp.asarray(5)
    assert not np.allclose(belief.value(state, jnp.asarray(0), far), belief.value(after, jnp.asarray(0), far))
    np.testing.assert_allclose(
        belief.value(after, belief.draw(after, KEY), far), belief.functions(after, KEY, far[None])[0, 0], rtol=1e-6
    )


def test_a_belief_with_the_optimizer_is_stored(tmp_path):
    belief = Ensemble(2, Table(4, (3,)), optimizer=Langevin(1e-2, 50.0, 0.5, clip=1.0))
    storage.save(tmp_path / "belief", belief, belief.init(KEY, jnp.asarray(0)), jnp.asarray(0))
    loaded, _ = storage.load(tmp_path / "belief")
    assert loaded.optimizer == belief.optimizer


def test_bad_settings_are_refused_by_name():
    with pytest.raises(ValueError, match=r"inverse_temperature=0.*above 0; pass"):
        Langevin(inverse_temperature=0.0)
    with pytest.raises(ValueError, match=r"bias_factor=-1.*at least 0; pass"):
        settings("lmcdqn", bias_factor=-1)
    with pytest.raises(ValueError, match=r"inverse_temperature=0\.0.*above 0; pass"):
        settings("lmcdqn", inverse_temperature=0)
    with pytest.raises(ValueError, match=r"b2=1\.0 must be at least 0 and below 1"):
        Langevin(b2=1.0)
    with pytest.raises(ValueError, match=r"sparse_rows='shared' needs .*Adam"):
        Ensemble(2, Table(4, (3,)), optimizer=Langevin(), sparse_rows="shared")
