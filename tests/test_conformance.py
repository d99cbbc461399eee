"""Every agent by name lives through the same table of checks, on one environment made of five probes."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import train
from priorax.agents import QLearner, agent_spec, settings
from priorax.agents.setting_values import hints
from priorax.agents.settings import EnsembleSettings
from priorax.names import AGENTS
from priorax.replay import DeviceReplay, Stored, Transition
from priorax.training.backends.loop import prepare, run_chunk, start
from priorax.training.backends.scan import CHUNK
from priorax.training.run_files import read_episodes

DISCOUNT = 0.9
ONE, FIRST, SECOND, GOOD, BAD, CHOICE = range(6)
VALUES = {ONE: (1, 1), FIRST: (DISCOUNT, DISCOUNT), SECOND: (1, 1), GOOD: (1, 1), BAD: (-1, -1), CHOICE: (-1, 1)}
"""The probes' true Q: one step; two steps and a discount; a reward that depends on the state; one that depends on the
action."""
CHANGES = {
    "dropout": {"p_keep": 0.9},  # at 0.1 its mean is pulled to zero: that is dropout
    "c51": {"lowest": -2.0, "highest": 2.0},
    "ucb": {"bonus_scale": 0.001},
    "rnd": {"bonus_scale": 0.001},
    "d4pg": {"lowest": -2.0, "highest": 2.0, "action_noise": 1.0, "actor_rate": 1e-3, "target_period": 10},
}
ALL = {"discount": DISCOUNT, "batch_size": 32, "capacity": 4000, "num_members": 5, "epsilon": 1.0}
"""Acting at random: both actions must be tried for both values to be known."""


class Scale(NamedTuple):
    reward: jax.Array


@dataclass(frozen=True)
class Probes:
    """An episode is one probe, drawn at reset."""

    num_actions: int = 2
    num_states: int = 6
    horizon: int = 2

    @property
    def default_params(self):
        return Scale(jnp.ones(()))

    def reset(self, key, params):
        state = jnp.array([ONE, FIRST, GOOD, BAD, CHOICE])[jax.random.randint(key, (), 0, 5)]
        return state, state

    def step(self, key, state, action, params):
        reward = jnp.select(
            [state == FIRST, state == BAD, state == CHOICE], [0.0, -1.0, jnp.where(action == 1, 1.0, -1.0)], 1.0
        )
        terminated = state != FIRST
        first, _ = self.reset(key, params)
        final = jnp.where(terminated, self.num_states, SECOND)
        obs = jnp.where(terminated, first, SECOND)
        return obs, obs, params.reward * reward, terminated, jnp.zeros((), bool), {"final_observation": final}


@dataclass(frozen=True)
class ContinuousProbes(Probes):
    """The same: an action is a number, of which only the sign counts, and states are seen as one-hot vectors."""

    num_actions: int = 1
    num_states: None = None
    action_bound: float = 1.0

    def reset(self, key, params):
        state, _ = Probes().reset(key, params)
        return jax.nn.one_hot(state, 6), state

    def step(self, key, state, action, params):
        obs, state, *rest, info = Probes().step(key, state, (action[0] > 0).astype(int), params)
        seen = {"final_observation": jax.nn.one_hot(info["final_observation"], 6)}
        return jax.nn.one_hot(obs, 6), state, *rest, seen


def probes(agent):
    return ContinuousProbes() if agent == "d4pg" else Probes()


@functools.cache
def prepared(agent):
    known = hints(agent_spec(agent).settings)
    changes = {**{name: value for name, value in ALL.items() if name in known}, **CHANGES.get(agent, {})}
    if agent_spec(agent).changes.get("num_members") == 1:
        del changes["num_members"]
    return changes, prepare(agent, settings(agent, **changes), probes(agent), 1, 0)


@functools.cache
def lived(agent, seed=0, scale=1.0, chunks=2):
    """The agent's state, its values of all states, and the rewards of its first chunk."""
    _, (loop, _, params) = prepared(agent)
    key, params = jax.random.key(seed), Scale(params.reward * scale)
    live = start(loop, key, params)
    rewards = []
    for _ in range(chunks):
        live, steps = run_chunk(loop, key, params, live, CHUNK)
        rewards.append(np.asarray(steps.reward))
    seen = jnp.eye(6) if agent == "d4pg" else jnp.arange(6)
    values = eqx.filter_jit(lambda agent, state: agent.mean_values(state, key, seen))(loop.agent, live.agent)
    return live, np.asarray(values), rewards


FAST = ("bsp", "noisy", "rlsvi")
"""An ensemble, one network and a planner: what a change of the loop breaks, it breaks for one of them."""


def marks(agent):
    return [pytest.mark.xdist_group(agent), *([] if agent in FAST else [pytest.mark.slow])]


@pytest.mark.parametrize("agent", [pytest.param(name, marks=marks(name)) for name in AGENTS])
class TestEveryAgent:
    def test_knows_the_values_of_the_probes(self, agent):
        _, values, _ = lived(agent)
        true = np.array([VALUES[state] for state in range(6)], float)
        if not isinstance(prepared(agent)[1][0].agent, QLearner):
            values, true = values.max(axis=1), true.max(axis=1)  # a planner need not try what it holds for worse
        np.testing.assert_allclose(values, true, atol=0.15)
        assert values.ndim == 1 or values[CHOICE].argmax() == 1

    def test_is_fixed_by_its_seed(self, agent):
        _, values, rewards = lived(agent, chunks=1)
        lived.cache_clear()
        _, again, same = lived(agent, chunks=1)
        np.testing.assert_array_equal(values, again)
        np.testing.assert_array_equal(rewards, same)
        assert not np.array_equal(lived(agent, seed=1, chunks=1)[2], rewards)

    def test_stays_finite_under_extreme_rewards(self, agent):
        live, values, _ = lived(agent, scale=1e6, chunks=1)
        assert np.all(np.isfinite(values))
        leaves = [
            leaf for leaf in jax.tree.leaves((live.agent, live.replay)) if jnp.issubdtype(leaf.dtype, jnp.floating)
        ]
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)

    def test_is_compiled_once(self, agent, compilations):
        lived(agent, chunks=1)
        compilations.clear()
        lived(agent, seed=2, scale=2.0, chunks=1)
        assert compilations and not [name for name in compilations if "compiled_chunk" in name]

    @pytest.mark.slow
    def test_goes_on_from_a_checkpoint_to_the_bit(self, agent, tmp_path):
        changes, _ = prepared(agent)
        arguments = {"agent": agent, "env": probes(agent), "changes": changes}
        train(**arguments, episodes=1000, out=tmp_path / "whole")
        train(**arguments, episodes=400, out=tmp_path / "parts")
        train(**arguments, episodes=1000, out=tmp_path / "parts", resume=True)
        assert read_episodes(tmp_path / "parts") == read_episodes(tmp_path / "whole")

    def test_has_masks_or_says_that_it_has_none(self, agent):
        changes, _ = prepared(agent)
        if agent_spec(agent).settings is not EnsembleSettings:
            with pytest.raises(ValueError, match=f"setting='mask_prob' does not exist for agent={agent!r}"):
                settings(agent, **{**changes, "mask_prob": 0.5})
            return
        masked = settings(agent, **{**changes, "mask_prob": 0.5})
        replay = DeviceReplay(prepare(agent, masked, Probes(), 1, 0)[0].agent.replay)
        step = Stored(Transition(*[jnp.zeros(())] * 6))
        add = lambda buffer, key: (replay.add(buffer, step, key), None)  # noqa: E731
        buffer, _ = jax.lax.scan(add, replay.init(step), jax.random.split(jax.random.key(0), 60))
        counts = np.asarray(replay.counts(buffer))
        assert np.all((counts > 10) & (counts < 50))
