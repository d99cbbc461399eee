"""NaN and infinite rewards and observations end a run, and are named."""

from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import Explorer, train
from priorax.agents import settings
from priorax.checks import NonFinite
from priorax.fitting import NonFiniteLoss
from priorax.training.backends.loop import prepare
from priorax.training.backends.scan import live

SMALL = {"num_members": 2, "widths": (4,), "batch_size": 4, "capacity": 500, "learn_after": 4}


class Broken(gymnasium.Env):
    """Gives something odd in its fifth step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reward=0.0, seen=0.0):
        self.reward, self.seen, self.time = reward, seen, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.time += 1
        odd = self.time == 5
        obs = np.array([0, self.seen if odd else 0, 0], np.float32)
        return obs, self.reward if odd else 0.5, False, False, {}


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"reward": np.nan}, "the reward nan at step 10 in lane 1"),
        ({"reward": -np.inf}, "the reward -inf at step 10 in lane 1"),
        ({"seen": np.nan}, r"the observation nan \(component 1\) at step 10 in lane 1"),
        ({"seen": np.inf}, r"the observation inf \(component 1\) at step 10 in lane 1"),
    ],
)
def test_on_the_host_it_is_refused_at_once(odd, words):
    envs = gymnasium.vector.SyncVectorEnv([Broken, lambda: Broken(**odd)])
    agent = Explorer(envs, **SMALL)
    with pytest.raises(NonFinite, match=words):
        agent.learn(100)
    assert agent.steps == 8


def test_of_a_planner_too():
    class Odd(gymnasium.Wrapper):
        def step(self, action):
            obs, _, *rest = self.env.step(action)
            return obs, np.nan, *rest

    with pytest.raises(NonFinite, match="the reward nan at step 1 in lane 0"):
        Explorer(Odd(gymnasium.make("FrozenLake-v1")), "psrl").learn(10)


class Params(NamedTuple):
    """What is paid and seen in the 27th step."""

    reward: jax.Array
    seen: jax.Array


@dataclass(frozen=True)
class Counted:
    """Episodes of five steps."""

    num_actions: int = 2

    @property
    def default_params(self):
        return Params(jnp.nan, jnp.zeros(()))

    def reset(self, key, params):
        return jnp.zeros(2), jnp.zeros((), int)

    def step(self, key, state, action, params):
        time = state + 1
        odd, done = time == 27, time % 5 == 0
        obs = jnp.where(odd, params.seen, 0.1) * jnp.ones(2)
        never = jnp.zeros((), bool)
        seen = {"final_observation": obs}
        return jnp.where(done, 0.0, obs), time, jnp.where(odd, params.reward, 0.0), done, never, seen


def test_compiled_it_is_refused_at_the_end_of_the_chunk():
    loop, key, _ = prepare("bsp", settings("bsp", **SMALL), Counted(), 1, 0)

    def run(reward=0.0, seen=0.0):
        return list(live(loop, key, Params(jnp.asarray(reward), jnp.asarray(seen)), episodes=12, chunk=20))

    assert len(run()) == 12
    for odd, words in (
        ({"reward": jnp.nan}, "the reward nan at step 27 "),
        ({"reward": jnp.inf}, "the reward inf at step 27 "),
        ({"seen": jnp.nan}, "the observation nan at step 27 "),
        ({"seen": -jnp.inf}, "the observation -inf at step 27 "),
    ):
        with pytest.raises(NonFinite, match=words):
            run(**odd)
    with pytest.raises(NonFiniteLoss, match=r"the loss became (inf|nan) at step \d+; lower the learning rate"):
        run(reward=1e30)


@pytest.mark.slow
def test_a_run_by_name_ends_with_it():
    with pytest.raises(NonFinite, match="the reward nan at step 27 in lane 0; fix the environment"):
        train(env=Counted(), episodes=40, preset="tuned", changes=SMALL)


def test_a_loss_that_is_no_number_any_more_ends_a_run_on_the_host():
    with pytest.raises(NonFiniteLoss, match=r"the loss became .* lower the learning rate"):
        Explorer("gymnasium:CartPole-v1", **SMALL, learning_rate=1e30).learn(2000)
