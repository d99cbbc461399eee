"""Members over eight devices, which this machine pretends to have."""

import os
import subprocess
import sys

import jax
import pytest

from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec
from priorax.training.sharding import spread_members

SCRIPT = """
import jax, numpy as np
from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec
from priorax.training.sharding import spread_members
from priorax.training.backends.host import learn
from priorax.replay import Sampled

assert len(jax.devices()) == 8
rng = np.random.default_rng(0)
for shared in (True, False):
    chosen = settings("bsp", "small", num_members=8, features=16, batch_size=8, target_period=2, shared_torso=shared)
    agent = build("bsp", chosen, TaskSpec(3))
    state = agent.init(jax.random.key(0), np.zeros((4, 44, 44), np.uint8))
    pictures = rng.integers(0, 256, (2, 8, 4, 44, 44), dtype=np.uint8)
    sampled = Sampled(
        pictures[0], rng.integers(0, 3, 8), rng.random(8, np.float32), np.full(8, 0.9, np.float32), pictures[1],
        (rng.random((8, 8)) < 0.5).astype(np.float32), np.full(8, 8),
    )
    one, spread = state, spread_members(agent, state)
    for _ in range(3):
        one, error_one, _ = learn(agent, one, sampled, np.asarray(8), jax.random.key(1))
        spread, error_spread, _ = learn(agent, spread, sampled, np.asarray(8), jax.random.key(1))
    np.testing.assert_allclose(error_one, error_spread, rtol=1e-4)
    members = spread.belief.params.members if shared else spread.belief.params
    for leaf in jax.tree.leaves(members):
        assert len(leaf.sharding.device_set) == 8 and leaf.addressable_shards[0].data.shape[0] == 1, leaf.sharding
    for a, b in zip(jax.tree.leaves(one.belief.params), jax.tree.leaves(spread.belief.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
print("agree")
"""


@pytest.mark.slow
def test_members_on_eight_devices_learn_what_they_learn_on_one():
    """Each device holds one member, before and after; a shared torso is everywhere the same."""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "agree" in done.stdout


def test_members_that_do_not_divide_are_refused(key):
    agent = build("bsp", settings("bsp", num_members=3), TaskSpec(2, 4))
    state = agent.init(key, jax.numpy.zeros((), int))
    with pytest.raises(ValueError, match="num_members=3 is not a multiple of the number of devices, 2"):
        spread_members(agent, state, [jax.devices()[0]] * 2)
