from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.agents.d4pg import D4PG
from priorax.beliefs import Adam
from priorax.heads import C51
from priorax.networks import MLP
from priorax.replay import Replay
from priorax.training.backends.loop import Loop, run_chunk, start


@dataclass(frozen=True)
class Aim:
    """Two steps. The second pays 1 - (action - obs)²; so the policy must follow the observation, and the first step's
    value is the discounted best."""

    num_actions: int = 1

    @property
    def default_params(self):
        return ()

    def reset(self, key, params):
        state = jnp.stack([jax.random.uniform(key, minval=-1.0, maxval=1.0), jnp.zeros(())])
        return state, state

    def step(self, key, state, action, params):
        second = state[1] > 0
        reward = jnp.where(second, 1 - (action[0] - state[0]) ** 2, 0.0)
        first, _ = self.reset(key, params)
        after = state.at[1].set(1.0)
        obs = jnp.where(second, first, after)
        return obs, obs, reward, second, jnp.zeros((), bool), {"final_observation": after}


@pytest.mark.slow
def test_it_learns_an_action_for_every_observation_and_its_value():
    agent = D4PG(
        1,
        C51(-4.0, 1.5, 101),
        Replay(5000, batch_size=64, discount=0.9, n_step=1),  # over more, returns would be those of noisy actions
        bound=2.0,
        network=MLP((32, 32)),
        actor_optimizer=Adam(2e-3),
        critic_optimizer=Adam(3e-3),
        target_period=20,
        action_noise=0.5,
    )
    env = Aim()
    loop, key = Loop(env, agent), jax.random.key(0)
    live, _ = run_chunk(loop, key, (), start(loop, key, ()), 5000)
    aims = jnp.linspace(-0.8, 0.8, 5)
    second, first = (jnp.stack([aims, jnp.full(5, late)], axis=1) for late in (1.0, 0.0))
    actions = jax.vmap(lambda obs: agent.policy(live.agent.nets.actor, obs))(second)[:, 0]
    np.testing.assert_allclose(actions, aims, atol=0.25)
    np.testing.assert_allclose(agent.mean_values(live.agent, key, second)[:, 0], 1.0, atol=0.15)
    np.testing.assert_allclose(agent.mean_values(live.agent, key, first)[:, 0], 0.9, atol=0.2)


def test_actions_stay_in_bounds_and_noise_is_off_at_zero():
    agent, still = (D4PG(2, C51(), Replay(10, batch_size=4), bound=0.5, action_noise=noise) for noise in (5.0, 0.0))
    state = agent.init(jax.random.key(0), jnp.zeros(3))
    obs, epsilon = jnp.ones((100, 3)), agent.epsilon_at(0, jnp.arange(100), 100)
    actions, quiet = (each.act(state, jax.random.key(1), obs, (), epsilon).action for each in (agent, still))
    assert float(jnp.max(jnp.abs(actions))) == pytest.approx(0.5)
    best = still.policy(state.nets.actor, obs[0])
    np.testing.assert_allclose(quiet, jnp.broadcast_to(best, quiet.shape), rtol=1e-6)
    np.testing.assert_array_equal(agent.exploit(state, jax.random.key(1), obs[0]), best)


def test_it_replays_one_stream():
    with pytest.raises(ValueError, match="one stream"):
        D4PG(1, C51(), Replay(10, 5, 4, mask_prob=0.5))
