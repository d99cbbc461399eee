"""Settings that mean the same in the compiled loop and on the host, or are refused."""

import gymnasium
import numpy as np
import pytest

from priorax import Explorer, train
from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec


class Told(gymnasium.Env):
    """One thing to see, ten steps; what was done is written down."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.episodes = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes.append([])
        return np.ones(2, np.float32), {}

    def step(self, action):
        self.episodes[-1].append(int(action))
        return np.ones(2, np.float32), 0.0, False, len(self.episodes[-1]) == 10, {}


SMALL = {"widths": (4,), "batch_size": 4, "capacity": 500, "learn_after": 4, "learning_rate": 1e-9}


@pytest.mark.parametrize("episodes", [6, 0])
def test_epsilon_is_a_schedule_over_episodes_on_the_host(episodes, tmp_path):
    env = Told()
    agent = Explorer(env, "eps_greedy", epsilon=1.0, epsilon_episodes=episodes, **SMALL).learn(140)
    first, last = np.concatenate(env.episodes[:3]), np.concatenate(env.episodes[6:])
    assert 0 < first.mean() < 1
    assert (last.mean() in (0, 1)) == (episodes == 6)
    agent.save(tmp_path)
    again = Told()
    Explorer.load(tmp_path, again).learn(40)  # it goes on where it was
    assert (np.mean(np.concatenate(again.episodes)) in (0, 1)) == (episodes == 6)


def test_epsilon_may_stay_in_the_compiled_loop_too():
    agent = build("eps_greedy", settings("eps_greedy", epsilon=0.3, epsilon_episodes=0), TaskSpec(2, 4))
    assert float(agent.epsilon_at(10**6, np.zeros(1), 1)[0]) == pytest.approx(0.3)
    agent = build(
        "eps_greedy", settings("eps_greedy", epsilon=0.3, epsilon_episodes=10, epsilon_ladder=7), TaskSpec(2, 4)
    )
    found = [float(agent.epsilon_at(episodes, np.zeros(1), 1)[0]) for episodes in (0, 5, 10, 20)]
    np.testing.assert_allclose(found, [0.3, 0.15, 0, 0], atol=1e-6)


def test_exponents_of_epsilon_rise_over_the_lanes():
    agent = build(
        "eps_greedy", settings("eps_greedy", epsilon=0.3, epsilon_episodes=0, epsilon_ladder=7), TaskSpec(2, 4)
    )
    np.testing.assert_allclose(agent.epsilon_at(0, np.arange(3), 3), 0.3 ** np.array([1, 4.5, 8]), rtol=1e-5)


def test_lanes_are_refused_where_there_is_one():
    with pytest.raises(ValueError, match=r"lanes=4 must be 1 in a compiled scan.*pass lanes=1, or backend='host'"):
        train("bsp", size=4, episodes=2, changes={"lanes": 4})


def test_a_preset_of_the_host_may_be_used_in_the_compiled_loop():
    """Its lanes are the host's; what it says of learning holds."""
    changes = {"num_members": 2, "batch_size": 4, "learn_after": 30, "learn_every": 1}
    result = train("bsp", "deep_sea", size=4, episodes=20, preset="finite", changes=changes)
    losses = [row.loss for row in result.history]
    assert losses[:6] == [None] * 6 and all(loss > 0 for loss in losses[10:])


@pytest.mark.parametrize("name, value", [("epsilon_episodes", -1), ("epsilon_ladder", -1.0), ("learn_after", 0)])
def test_what_cannot_be_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}={value}"):
        train("eps_greedy", size=4, episodes=2, changes={name: value})
