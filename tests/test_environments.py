"""Environments by name: where each is trained, with which preset; those that others add."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import names, train
from priorax.envs import environments, make_environment, make_world, register_environment, registry
from priorax.envs.catalogue import EnvironmentSpec
from priorax.envs.host.vector import CompiledWorld
from priorax.envs.registry import known_environment, preset_for
from priorax.training.setup import choose_backend

KNOWN = {
    "deep_sea": (False, "tuned"),
    "deep_sea_stochastic": (False, "tuned"),
    "deep_sea_no_reward": (False, "tuned"),
    "bsuite_deep_sea": (False, "tuned"),
    "bsuite_deep_sea_stochastic": (False, "tuned"),
    "pixel_deep_sea": (True, "small"),
    "bernoulli_bandit": (False, "tuned"),
    "linear_bandit": (False, "tuned"),
    "gp_bandit": (False, "tuned"),
    "cartpole_swingup": (False, "swingup"),
    "cartpole_swingup_wide": (False, "swingup"),
    "cartpole_swingup_smooth": (False, "swingup"),
    "cartpole_balance": (False, "swingup"),
    "bsuite_cartpole_swingup": (False, "swingup"),
    "two_step": (False, "tuned"),
    "atari": (True, "small"),
}
OTHERS = {
    "gymnax:CartPole-v1": (False, "gymnasium"),
    "gymnax:FourRooms-misc": (False, "gymnasium"),
    "gymnax:Pendulum-v1": (False, "gymnasium"),
    "gymnasium:CartPole-v1": (True, "gymnasium"),
    "gymnasium:Taxi-v4": (True, "finite"),
    "bsuite:deep_sea/3": (True, "tuned"),
    "bsuite:catch/0": (True, "gymnasium"),
    "Probes": (False, "tuned"),
    "CartpoleSwingup": (False, "swingup"),
    "OwnCartPole": (False, "gymnasium"),
}
"""Of libraries; and classes of objects, which have no name."""


def test_every_name_of_ours_is_in_the_table():
    assert list(environments()) == list(KNOWN)
    assert all(spec.summary for spec in environments().values())


@pytest.mark.parametrize("name", [*KNOWN, *OTHERS])
def test_where_it_is_trained_and_with_which_preset(name):
    assert (choose_backend(name) == "host", preset_for(name)) == {**KNOWN, **OTHERS}[name]


@dataclass(frozen=True)
class Lamp:
    """One state; action 1 pays."""

    size: int = 1
    num_actions: int = 2
    num_states: int = 1
    default_params: Any = None

    def reset(self, key, params):
        return jnp.zeros((), int), jnp.zeros((), int)

    def step(self, key, state, action, params):
        zero, yes = jnp.zeros((), int), jnp.ones((), bool)
        return zero, zero, action * 1.0, yes, ~yes, {"final_observation": zero}


class Switch(gymnasium.Env):
    """The same for Gymnasium."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size):
        self.size, self.time = size, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.ones(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.ones(2, np.float32), float(action), self.time == self.size, False, {}


def vector(size):
    return CompiledWorld(Lamp(size), 3)


BROKEN = 3


@pytest.fixture
def plugged(monkeypatch):
    """Entry points as if packages that have them were installed."""

    def plug(**values):
        points = tuple(EntryPoint(name, value, names.ENVIRONMENT_PLUGINS) for name, value in values.items())
        monkeypatch.setattr(names, "plugins", lambda group: points if group == names.ENVIRONMENT_PLUGINS else ())

    return plug


TINY = {"num_members": 2, "batch_size": 4, "learn_after": 4, "widths": (4,), "capacity": 100}


def test_plug_ins_train_on_the_backend_that_is_theirs(plugged):
    plugged(lamp="test_environments:Lamp", switch="test_environments:Switch", several="test_environments:vector")
    assert {name: (choose_backend(name) == "host", preset_for(name)) for name in ("lamp", "switch", "several")} == {
        "lamp": (False, "finite"),
        "switch": (True, "gymnasium"),
        "several": (True, "finite"),
    }
    assert train("bsp", "lamp", episodes=30, changes=TINY).backend == "scan"
    found = train("bsp", "switch", size=5, steps=60, changes={**TINY, "lanes": 2})
    assert found.backend == "host" and found.history[0].length == 5, "of the size asked for"
    assert make_world("switch", 4).num_envs == 4 and make_world("several", 4).num_envs == 3
    assert make_environment("lamp", 7).size == 7
    with pytest.raises(ValueError, match="env='switch' is not a compiled environment"):
        make_environment("switch", 7)
    with pytest.raises(ValueError, match="hold=2 is not supported for env='switch'"):
        make_world("switch", 1, hold=2)
    with pytest.raises(ValueError, match="env='lamp' has no version with continuous actions"):
        make_environment("lamp", 7, continuous=True)
    with pytest.raises(ValueError, match="env='swich' is unknown; did you mean 'switch'"):
        make_world("swich", 1)


def test_a_broken_plug_in_is_named_and_the_others_work(plugged):
    plugged(
        lamp="test_environments:Lamp", gone="no_such_module:make", odd="test_environments:BROKEN", atari="json:dumps"
    )
    with pytest.warns(UserWarning) as warned:
        assert list(environments()) == [*KNOWN, "lamp"]
    words = [str(each.message) for each in warned]
    assert "cannot be loaded" in words[0] and "must be an EnvironmentSpec" in words[1] and "is taken" in words[2]
    with pytest.raises(ValueError, match=r"plug-in 'no_such_module' .*cannot be loaded: ModuleNotFoundError"):
        make_world("gone", 1)
    assert known_environment("lamp") is not None and known_environment("atari") is registry.OURS["atari"]


def test_one_can_be_registered_for_this_process(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    spec = register_environment("lamp", Lamp, preset="tuned", sized=False)
    assert isinstance(spec, EnvironmentSpec) and preset_for("lamp") == "tuned" and choose_backend("lamp") == "scan"
    assert "lamp" in environments() and make_environment("lamp", 3) == Lamp(3)
    for name, words in (("lamp", "is taken"), ("deep_sea", "is taken"), ("my:lamp", "contains a colon")):
        with pytest.raises(ValueError, match=words):
            register_environment(name, Lamp)
