"""The compiled cartpole against MuJoCo's, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_control import suite
from gymnasium.utils.env_checker import check_env

from priorax.envs import Held
from priorax.envs.host.control import ControlCartpole
from priorax.envs.jax.cartpole import CartpoleState, CartpoleSwingup


@pytest.fixture(scope="module")
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def roll(double):
    """The port under a sequence of actions: states and rewards."""
    task = CartpoleSwingup()

    @jax.jit
    def run(start, actions):
        def step(state, action):
            _, after, reward, _, _, _ = task.step(jax.random.key(0), state, action, ())
            return after, (jnp.stack(after[:4]), reward)

        return jax.lax.scan(step, start, actions)[1]

    return lambda start, actions: [np.asarray(part) for part in run(_state(start), jnp.asarray(actions))]


def _state(values):
    return CartpoleState(*(jnp.asarray(float(value)) for value in values), jnp.zeros((), int))


def _theirs(env, start, actions):
    env.reset(seed=0, options={"state": start})
    states, rewards = [], []
    for action in actions:
        _, reward, _, _, _ = env.step(action)
        states.append(env.state())
        rewards.append(reward)
    return np.array(states), np.array(rewards)


@pytest.mark.parametrize("hold", [1, 20, 50])
def test_a_thousand_steps_that_hit_the_rail_are_mujocos(hold, roll):
    actions = np.repeat(np.random.default_rng(hold).integers(0, 3, 1000 // hold), hold)[:999]
    start = (0.01, np.pi - 0.02, 0.0, 0.01) if hold > 1 else (1.6, np.pi, 0.5, 0.0)
    env = ControlCartpole()
    theirs, paid = _theirs(env, start, actions)
    ours, mine = roll(start, actions)
    assert np.abs(theirs[:, 0]).max() > 1.8, "the rail is hit"
    np.testing.assert_allclose(mine, paid, atol=1e-6)
    if hold < 50:  # with 50 MuJoCo's own early stop at the rail grows to 0.01: the pole turns over, which is chaos
        assert np.abs(ours - theirs).max() < 1e-4
    env.physics.model.opt.tolerance = 0  # its solver run to the end: then nothing differs
    assert np.abs(ours - _theirs(env, start, actions)[0]).max() < 1e-8


def test_near_the_top_the_reward_and_its_thresholds_are_the_same(roll):
    """Many starts around the rewarded region: each condition is met in some and missed in others."""
    random = np.random.default_rng(1)
    env = ControlCartpole()
    rewards = []
    for _ in range(30):
        start = random.uniform(-1, 1, 4) * [0.2, 0.5, 1.5, 1.5]
        actions = random.integers(0, 3, 40)
        theirs, paid = _theirs(env, start, actions)
        ours, mine = roll(start, actions)
        assert np.abs(ours - theirs).max() < 1e-6
        np.testing.assert_allclose(mine, paid, atol=1e-6)
        rewards.append(paid)
    bonus = np.concatenate(rewards) > 0.5
    assert 0.05 < bonus.mean() < 0.95


def test_the_reward_is_the_papers():
    task = CartpoleSwingup()
    up = {"x": 0.0, "theta": 0.0, "x_dot": 0.0, "theta_dot": 0.0}
    paid = {
        "up": up,
        "tilted": {**up, "theta": 0.32},
        "aside": {**up, "x": 0.11},
        "turning": {**up, "theta_dot": 1.1},
        "moving": {**up, "x_dot": -1.1},
        "a turn later": {**up, "theta": 2 * np.pi},
    }
    found = {name: float(task.reward(_state(values.values()), jnp.zeros(()))) for name, values in paid.items()}
    assert found == {"up": 1, "tilted": 0, "aside": 0, "turning": 0, "moving": 0, "a turn later": 1}
    assert float(task.reward(_state(up.values()), jnp.asarray(-1.0))) == pytest.approx(0.9)


def test_an_episode_is_truncated_after_its_steps_and_starts_again_hanging():
    task = CartpoleSwingup(steps=3)
    obs, state = task.reset(jax.random.key(1), ())
    assert float(obs[0]) == pytest.approx(-1, abs=1e-3)
    for i in range(3):
        obs, state, _, terminated, truncated, info = task.step(jax.random.key(2), state, 2, ())
        assert not bool(terminated)
        assert bool(truncated) == (i == 2)
    assert int(state.time) == 0
    assert not np.array_equal(obs, info["final_observation"])


def test_continuous_pushes_are_clipped():
    task = CartpoleSwingup(pushes=())
    assert task.num_actions == 1
    assert task.action_bound == 1.0
    assert float(task.push(jnp.array([3.0]))) == 1.0


def test_the_smooth_reward_is_the_control_suites():
    task = CartpoleSwingup(smooth=True, pushes=())
    env = ControlCartpole(task)
    suites = suite.load("cartpole", "swingup").task
    random = np.random.default_rng(0)
    for _ in range(20):
        env.reset(options={"state": random.uniform(-1, 1, 4) * [1.7, 4, 3, 8]})
        _, paid, _, _, _ = env.step([random.uniform(-1, 1)])
        assert paid == pytest.approx(suites.get_reward(env.physics), abs=1e-5)


def test_balancing_starts_with_the_pole_up():
    obs, _ = CartpoleSwingup(smooth=True, upright=True).reset(jax.random.key(3), ())
    assert float(obs[0]) > 0.999


def test_a_held_action_is_so_many_steps_of_it_and_its_rewards_are_summed():
    task = CartpoleSwingup(steps=10)
    held, key = Held(task, 4), jax.random.key(0)
    _, state = task.reset(key, ())
    both, lengths = (state, state), []
    for action in (2, 0, 1):
        single, paid = both[0], 0.0
        for _ in range(4):
            _, single, reward, _, ended, _ = task.step(key, single, action, ())
            paid += float(reward)
            if ended:
                break
        _, together, reward, terminated, truncated, info = held.step(key, both[1], action, ())
        lengths.append(int(info["steps"]))
        assert float(reward) == pytest.approx(paid, abs=1e-6)
        assert not terminated
        assert bool(truncated) == bool(ended)
        both = (single, together)
    assert lengths == [4, 4, 2], "the episode's end ends it"
    assert int(both[1].time) == 0, "and begins the next"
    assert held.horizon == 10, "the rest shows through"


def test_the_gymnasium_form_passes_gymnasiums_own_check():
    for pushes in ((-1.0, 0.0, 1.0), ()):
        check_env(ControlCartpole(CartpoleSwingup(pushes=pushes)), skip_render_check=True)
