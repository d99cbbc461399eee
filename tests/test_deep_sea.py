import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bsuite.environments.deep_sea import DeepSea as BsuiteDeepSea

from priorax.envs import Environment
from priorax.envs.jax.deep_sea import DeepSea, Params


def rollout(env, params, actions, key):
    """Many steps under one scan: observations before, then what each step gave."""

    def step(carry, inputs):
        obs, state = carry
        action, k = inputs
        after, state, reward, terminated, truncated, info = env.step(k, state, action, params)
        return (after, state), (obs, reward, terminated, truncated, info)

    first = env.reset(key, params)
    return jax.lax.scan(step, first, (actions, jax.random.split(key, len(actions))))[1]


@pytest.mark.parametrize("size", [1, 2, 5, 20, 50])
def test_it_equals_bsuite_step_by_step(size):
    peer = BsuiteDeepSea(size, mapping_seed=7)
    params = Params(jnp.asarray(np.random.RandomState(7).binomial(1, 0.5, [size, size])))
    random = np.random.default_rng(0)
    episodes = 6
    actions = random.integers(0, 2, (episodes, size))
    best = np.asarray(params.right)[np.arange(size), np.arange(size)]
    actions[1] = best
    actions[3] = np.where(random.random(size) < 0.9, best, 1 - best)
    env = DeepSea(size, observation="one_hot")
    obs, reward, terminated, truncated, info = rollout(env, params, jnp.asarray(actions.ravel()), jax.random.key(0))
    t, bad = 0, 0
    for episode in range(episodes):
        step = peer.reset()
        for action in actions[episode]:
            np.testing.assert_array_equal(obs[t], step.observation)
            step = peer.step(int(action))
            assert float(reward[t]) == pytest.approx(step.reward, abs=1e-6)
            assert bool(terminated[t]) == step.last()
            np.testing.assert_array_equal(info["final_observation"][t], step.observation)
            t += 1
        bad += int(info["bad"][t - 1])
        assert bad == peer.bsuite_info()["total_bad_episodes"]
    assert not np.any(truncated)
    assert float(reward[size : 2 * size].sum()) == pytest.approx(peer._optimal_return, abs=1e-5)


def test_the_index_is_the_one_hot_vectors_place():
    params = DeepSea(5).params(jax.random.key(3))
    actions = jax.random.randint(jax.random.key(1), (40,), 0, 2)
    key = jax.random.key(0)
    one_hot = rollout(DeepSea(5, observation="one_hot"), params, actions, key)
    index = rollout(DeepSea(5), params, actions, key)
    np.testing.assert_array_equal(jax.nn.one_hot(index[0], 25), one_hot[0].reshape(40, 25))
    np.testing.assert_array_equal(
        jax.nn.one_hot(index[4]["final_observation"], 25), one_hot[4]["final_observation"].reshape(40, 25)
    )
    assert int(index[4]["final_observation"].max()) == 25


@pytest.mark.parametrize("windy", [False, True])
def test_q_star_is_what_its_greedy_policy_earns(windy):
    env = DeepSea(6, windy=windy)
    params = env.params(jax.random.key(5))
    q = env.optimal_values(params)
    assert q[0, 0].max() == pytest.approx(env.optimal_return, abs=0.01)
    policy = jnp.asarray(q.argmax(axis=2).ravel())

    def step(carry, key):
        obs, state = carry
        obs, state, reward, *_ = env.step(key, state, policy[obs], params)
        return (obs, state), reward

    steps = 6 * (4000 if windy else 1)
    keys = jax.random.split(jax.random.key(0), steps)
    reward = jax.lax.scan(step, env.reset(jax.random.key(0), params), keys)[1]
    assert float(reward.sum()) * 6 / steps == pytest.approx(q[0, 0].max(), abs=0.05 if windy else 1e-5)


def test_wind_blows_one_time_in_n_and_noise_sits_at_the_ends():
    env = DeepSea(4, windy=True, observation="one_hot")
    params = Params(jnp.ones((4, 4), dtype=int))
    obs, reward, *_ = rollout(env, params, jnp.ones(8000, dtype=int), jax.random.key(0))
    second_row = np.asarray(obs)[1::4, 1]
    assert second_row[:, 0].mean() == pytest.approx(1 / 4, abs=0.03)
    last = np.asarray(obs)[3::4, 3]
    at_end = last[:, [0, 3]].sum(axis=1) == 1
    final = np.asarray(reward)[3::4]
    assert final[at_end].std() > 0.8
    assert final[~at_end].std() < 1e-6


def test_masks_differ_by_key_and_it_has_gymnaxs_shape():
    env = DeepSea(8)
    masks = {np.asarray(env.params(jax.random.key(s)).right).tobytes() for s in range(5)}
    assert len(masks) == 5
    assert isinstance(env, Environment)


def test_bad_sizes_are_refused():
    for size in (0, -3):
        with pytest.raises(ValueError, match=f"size={size} must be a whole number of at least 1"):
            DeepSea(size)
    with pytest.raises(ValueError, match="did you mean 'one_hot'"):
        DeepSea(3, observation="onehot")


def test_the_mask_can_be_bsuites_own():
    peer = BsuiteDeepSea(9, mapping_seed=42)
    params = DeepSea(9, mapping_seed=42).params(jax.random.key(5))
    np.testing.assert_array_equal(params.right, peer._action_mapping)


def test_the_optimal_path_leads_to_the_treasure():
    env = DeepSea(6)
    params = env.params(jax.random.key(2))
    seen, actions = env.optimal_path(params)
    obs, reward, terminated, _, info = rollout(env, params, actions, jax.random.key(0))
    np.testing.assert_array_equal(obs, seen)
    assert bool(terminated[-1])
    assert not bool(info["bad"][-1])
    assert float(reward.sum()) == pytest.approx(env.optimal_return, abs=1e-6)
