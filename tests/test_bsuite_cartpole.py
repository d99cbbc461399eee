"""The compiled port of bsuite's cartpole_swingup, step by step against bsuite, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bsuite.environments.cartpole import CartpoleState
from bsuite.experiments.cartpole_swingup import cartpole_swingup, sweep

from priorax.envs.jax.bsuite_cartpole import NUM_DIFFICULTIES, BsuiteCartpole, BsuiteCartpoleState


def _ours(task, start, actions):
    @jax.jit
    def roll(state, actions):
        def step(state, action):
            _, after, reward, terminated, _, info = task.step(jax.random.key(0), state, action, ())
            return after, (info["final_observation"], reward, terminated)

        return jax.lax.scan(step, state, actions)[1]

    state = BsuiteCartpoleState(*(jnp.asarray(value) for value in start), jnp.zeros((), int))
    return [np.asarray(part) for part in roll(state, jnp.asarray(actions))]


def _theirs(settings, start, actions):
    env = cartpole_swingup.CartpoleSwingup(**settings)
    env.reset()
    env._state = CartpoleState(*start, 0.0)
    steps = []
    for action in actions:
        step = env.step(int(action))
        steps.append((step.observation[0], step.reward, step.last()))
        if step.last():
            break
    return [np.array(part) for part in zip(*steps, strict=True)]


@pytest.mark.parametrize("difficulty", [0, 10, 19])
@pytest.mark.parametrize("start", ["hanging", "upright", "at the edge"])
def test_steps_are_bsuites(difficulty, start):
    random = np.random.default_rng(difficulty)
    actions = random.integers(0, 3, 1001)
    where = {
        "hanging": (0.01, -0.02, np.pi + 0.03, 0.04),
        "upright": (0.001, 0.002, 0.01, -0.02),
        "at the edge": (2.9, 1.0, np.pi, 0.0),
    }[start]
    with jax.enable_x64(True):
        ours = _ours(BsuiteCartpole(difficulty), where, actions)
    theirs = _theirs(sweep.SETTINGS[difficulty], where, actions)
    length = len(theirs[1])
    assert start != "at the edge" or length < 100
    for mine, yours in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine[:length], yours, atol=1e-5)
    if start == "upright":
        assert theirs[1].max() > 0.5, "the reward is met"
    assert theirs[2][-1], "the last step is an end for both"


def test_there_are_as_many_difficulties_as_bsuite_has():
    assert len(sweep.SETTINGS) == NUM_DIFFICULTIES
    with pytest.raises(ValueError, match="difficulty=20 must be between 0 and 19"):
        BsuiteCartpole(20)


def test_a_start_hangs_down():
    obs, _ = BsuiteCartpole().reset(jax.random.key(0), ())
    assert float(obs[3]) < -0.99
    assert float(obs[5]) == 0
