import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import train
from priorax.agents.bandit import belief_sampler, ensemble_sampler
from priorax.beliefs import Ensemble, Method, method
from priorax.envs.jax.bandits import Bandit, BernoulliBandit, GaussianProcessBandit, LinearBandit
from priorax.experiments.bandits import growth, measurements
from priorax.networks import MLP
from priorax.noise import NOISES
from priorax.training.bandits import cumulative_regret

BANDITS = [BernoulliBandit(0.2), LinearBandit(6, 3), GaussianProcessBandit(3, num_cosines=8)]
SMALL = MLP((), use_bias=False)


@pytest.mark.parametrize("bandit", BANDITS, ids=lambda bandit: type(bandit).__name__)
def test_a_bandit_pays_its_means_and_says_the_regret(bandit):
    assert isinstance(bandit, Bandit)
    params = bandit.params(jax.random.key(1))
    arms, state = bandit.reset(jax.random.key(2), params)
    means = np.asarray(bandit.means(params, arms))

    def paid(key, arm):
        _, _, reward, terminated, truncated, info = bandit.step(key, state, arm, params)
        return reward, info["regret"], terminated & ~truncated

    keys = jax.random.split(jax.random.key(3), 4000)
    for arm in range(bandit.num_actions):
        reward, regret, ended = jax.vmap(lambda key, arm=arm: paid(key, arm))(keys)
        assert float(reward.mean()) == pytest.approx(means[arm], abs=0.06)
        np.testing.assert_allclose(regret, means.max() - means[arm], atol=1e-5)
        assert bool(ended.all())


def test_seeds_make_different_bandits():
    draws = {float(LinearBandit().params(jax.random.key(seed)).theta[0]) for seed in range(5)}
    assert len(draws) == 5


@pytest.mark.slow
def test_exact_thompson_sampling_has_logarithmic_regret_and_greed_has_linear():
    bandit = LinearBandit(10, 3)
    exact = method("exact", noise_std=1.0)
    one = Method(Ensemble(1, SMALL), NOISES["none"])
    curves = {
        name: np.asarray(cumulative_regret(bandit, belief_sampler(made, 300), steps=300, seeds=40)).mean(0)
        for name, made in {"exact": exact, "greedy": one}.items()
    }
    assert growth(curves["exact"])[0] == "logarithmic"
    assert curves["exact"][-1] < 0.5 * curves["greedy"][-1]


@pytest.mark.slow
def test_more_members_of_ensemble_sampling_come_closer_to_exact():
    bandit = LinearBandit(20, 5)
    few, many = (
        float(cumulative_regret(bandit, ensemble_sampler(k, 1.0, 1.0, 0.0), steps=300, seeds=60)[:, -1].mean())
        for k in (2, 64)
    )
    exact = belief_sampler(method("exact", noise_std=1.0), 300)
    best = float(cumulative_regret(bandit, exact, steps=300, seeds=60)[:, -1].mean())
    assert many < 0.7 * few
    assert many < 1.4 * best


def test_a_belief_sees_every_reward_with_noise_that_stays():
    """Streams get weights of their own, drawn once at insertion: the store holds them."""
    state = rewarded(belief_sampler(Method(Ensemble(4, SMALL), NOISES["double_or_nothing"]), 50, 8), 20)
    seen = state.seen
    np.testing.assert_array_equal(seen.target[:20, 0], np.arange(20.0))
    assert set(np.unique(seen.weight[:20])) == {0.0, 2.0}
    assert not np.array_equal(seen.weight[:, 0], seen.weight[:, 1])
    assert int(state.time) == 20


def rewarded(sampler, count):
    """The sampler after so many rewards 0, 1, 2, ... from two arms in turn."""
    arms, update = jnp.eye(2), jax.jit(sampler.update)
    state = sampler.init(jax.random.key(0), arms)
    for i in range(count):
        state = update(state, jax.random.key(i), arms, jnp.asarray(i % 2), jnp.asarray(float(i)))
    return state


@pytest.mark.parametrize("name", ["bs", "bsp", "bsr"])
def test_the_bootstrap_of_rewards_that_come_one_by_one_is_poisson(name):
    """One example out of one is always that one; online, a weight is 0, 1, 2, ... with mean and variance one."""
    state = rewarded(belief_sampler(method(name, num_members=100, network=SMALL), 20, 8), 20)
    weight = np.asarray(state.seen.weight)
    assert weight.shape == (20, 100)
    assert weight.mean() == pytest.approx(1, abs=0.1) and weight.var() == pytest.approx(1, abs=0.15)
    assert (weight == 0).mean() == pytest.approx(np.exp(-1), abs=0.05)
    assert len(np.unique(weight, axis=1).T) == 100


def test_bootstrapped_members_differ_where_only_their_data_can_make_them():
    """From the same start, on the same rewards."""
    same = MLP((), use_bias=False, weight_std=0.0)
    sampler = belief_sampler(method("bs", num_members=4, network=same), 30, 8, updates=4)
    members = np.asarray(rewarded(sampler, 30).belief.params[0].weight)[:, :, 0]
    assert len(np.unique(members, axis=0)) == 4


def test_more_rewards_than_a_sampler_can_keep_are_refused():
    sampler = belief_sampler(Method(Ensemble(2, SMALL), NOISES["none"]), 3, 4)
    assert int(rewarded(sampler, 3).time) == 3
    with pytest.raises((RuntimeError, ValueError), match="made for steps=3 rewards"):  # as the program was compiled
        jax.block_until_ready(rewarded(sampler, 4))
    with pytest.raises(ValueError, match=r"steps=4 exceeds the capacity of the sampler \(3 steps\)"):
        cumulative_regret(LinearBandit(5, 2), sampler, steps=4, seeds=1)


def test_exact_bayes_keeps_no_rewards_and_learns_from_any_number():
    sampler = belief_sampler(method("exact", noise_std=1.0), 3)
    mean, _ = method("exact", noise_std=1.0).belief.posterior(rewarded(sampler, 9).belief)
    np.testing.assert_allclose(mean[:, 0], [20 / 6, 16 / 5], rtol=1e-5)
    assert cumulative_regret(LinearBandit(5, 2), sampler, steps=9, seeds=1).shape == (1, 9)


def test_seeds_are_runs_of_their_own():
    """vmapped equals alone: a seed's regret does not depend on how many run beside it."""
    exact = belief_sampler(method("exact", noise_std=1.0), 60)
    both = cumulative_regret(LinearBandit(5, 2), exact, steps=60, seeds=3)
    again = cumulative_regret(LinearBandit(5, 2), exact, steps=60, seeds=3)
    np.testing.assert_array_equal(both, again)
    assert not np.array_equal(both[0], both[1])


def test_counts_need_exponentially_many_measurements_and_the_posterior_few():
    counts, posterior = zip(*(measurements(dim, 5000) for dim in (1, 2, 3)), strict=True)
    assert posterior == (1, 2, 3)
    assert counts[1] > 2 * counts[0] and counts[2] > 2 * counts[1]


def test_a_bandit_is_an_environment_like_any_other():
    result = train("bsp", "bernoulli_bandit", size=1, episodes=900, changes={"num_members": 5, "batch_size": 32})
    late = [row.bad for row in result.history[-200:]]
    assert np.mean(late) < 0.3


@pytest.mark.parametrize("gap", [0.0, -0.1, 0.6])
def test_a_gap_that_cannot_be_is_refused(gap):
    with pytest.raises(ValueError, match="gap="):
        BernoulliBandit(gap)


def test_members_of_ensemble_sampling_are_draws_of_the_posterior():
    """Lemma 3 in closed form: over many members, mean and covariance are those of equation (3)."""
    noise, prior, mean = 0.5, 0.7, 0.2
    sampler = ensemble_sampler(20_000, noise, prior, mean)
    arms = jax.random.normal(jax.random.key(0), (4, 3))
    state = sampler.init(jax.random.key(1), arms)
    rewards = np.array([0.3, -1.0, 0.8])
    for i, reward in enumerate(rewards):
        state = sampler.update(state, jax.random.key(i), arms, jnp.asarray(i), jnp.asarray(reward))
    members = np.asarray(state[1] @ state[0])
    x = np.asarray(arms[:3], float)
    cov = np.linalg.inv(x.T @ x / noise**2 + np.eye(3) / prior**2)
    np.testing.assert_allclose(members.mean(0), cov @ (x.T @ rewards / noise**2 + mean / prior**2), atol=0.02)
    np.testing.assert_allclose(np.cov(members.T), cov, atol=0.01)
