"""Members over several devices, which this machine pretends to have."""

import csv
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from priorax import Explorer, load, train
from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec
from priorax.training.sharding import devices_for

UPDATES = """
import jax, numpy as np
from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec
from priorax.training.sharding import devices_for, spread_members
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
    one, spread = state, spread_members(agent, state, devices_for(agent, 8))
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

BACKENDS = """
import sys
import jax, numpy as np
from priorax import Explorer, train
from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec
from priorax.training.setup import Workers
from priorax.training.sharding import devices_for

def agent(members):
    return build("bsp", settings("bsp", num_members=members), TaskSpec(2, 4))

assert [len(devices_for(agent(k), 0)) for k in (16, 12, 5, 7, 1)] == [8, 6, 5, 7, 1]
assert len(devices_for(build("dropout", settings("dropout"), TaskSpec(2, 4)), 0)) == 1

def held_by_each(state):
    weights = state.belief.params[0].weight
    return {shard.data.shape[0] for shard in weights.addressable_shards}

small = {"num_members": 4, "widths": (8,), "batch_size": 8, "learn_after": 8, "sparse_rows": False}
found = []
for devices in (1, 4):
    explorer = Explorer("two_step", seed=0, preset="tuned", lanes=2, devices=devices, **small).learn(200)
    assert held_by_each(explorer.trainer.backend.state) == {4 // devices}
    found.append([row.total_return for row in explorer.history])
    if devices == 4:
        explorer.save(sys.argv[1])
assert found[0] == found[1] and len(found[0]) > 50

states = []
train("bsp", "two_step", backend="ray", workers=Workers(1, 1), preset="tuned", steps=300,
      changes={**small, "lanes": 2, "devices": 4}, probe=lambda backend: states.append(backend.state) or {})
assert held_by_each(states[-1]) == {1} and int(states[-1].updates) > 50
print("agree")
"""


def in_eight_devices(*words):
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=500, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def rows(path):
    with (path / "episodes.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_members_on_eight_devices_learn_what_they_learn_on_one():
    """Each device holds one member, before and after; a shared torso is everywhere the same."""
    assert "agree" in in_eight_devices("-c", UPDATES)


@pytest.mark.slow
def test_the_host_and_ray_spread_members_as_well_and_their_runs_load_on_one_device(tmp_path):
    assert "agree" in in_eight_devices("-c", BACKENDS, str(tmp_path / "run"))
    with pytest.raises(ValueError, match="devices=4 must be at most 1"):
        Explorer.load(tmp_path / "run")
    again = Explorer.load(tmp_path / "run", devices=1).learn(20)
    assert again.steps == 220 and again.settings.devices == 1


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"sparse_rows": False, "target_period": 2}], ids=["sparse", "dense"])
def test_a_run_on_eight_devices_agrees_with_one_and_resumes_there(tmp_path, changes):
    changes = {"num_members": 8, "widths": (8,), "batch_size": 16, **changes}
    words = [word for name, value in {**changes, "devices": 8}.items() for word in ("--set", f"{name}={value}")]
    words = [text.replace("(8,)", "8") for text in words]
    run = ["-m", "priorax.cli", "train", "--size", "4", "--episodes", "100", "--out", str(tmp_path / "eight"), "--json"]
    assert json.loads(in_eight_devices(*run, *words))["episodes"] == 100
    one = train("bsp", "deep_sea", size=4, episodes=100, changes=changes)
    for eight, row in zip(rows(tmp_path / "eight"), one.history, strict=True):
        assert float(eight["total_return"]) == pytest.approx(row.total_return)
        if row.loss is not None:
            assert float(eight["loss"]) == pytest.approx(row.loss, rel=1e-2, abs=1e-5)
    values = [policy.values(np.arange(16)).members for policy in (load(tmp_path / "eight"), one.policy)]
    np.testing.assert_allclose(*values, rtol=1e-2, atol=1e-3)

    arguments = {"size": 4, "episodes": 120, "out": tmp_path / "eight", "resume": True}
    with pytest.raises(ValueError, match=r"devices=8 must be at most 1.* pass devices=1, .*device_count=8"):
        train("bsp", "deep_sea", changes={**changes, "devices": 8}, **arguments)
    train("bsp", "deep_sea", changes=changes, **arguments)
    assert len(rows(tmp_path / "eight")) == 120
    assert json.loads((tmp_path / "eight" / "run.json").read_text())["settings"]["devices"] == 1


@pytest.mark.parametrize(
    ("agent", "changes", "words"),
    [
        ("bsp", {"num_members": 20, "devices": 2}, r"devices=2 must be at most 1, .*device_count=2"),
        (
            "bsp",
            {"num_members": 20, "devices": 8},
            r"num_members=20 must be a multiple of devices=8; .*=24, or devices=0",
        ),
        ("dropout", {"devices": 2}, r"devices=2 spreads the members .* Dropout has none; pass devices=1, or .*'bsp'"),
        ("psrl", {"devices": 2}, r"devices=2 spreads the members of an ensemble"),
        ("bsp", {"devices": -1}, r"devices=-1 must be at least 0; pass 1, or 0"),
    ],
)
@pytest.mark.parametrize("backend", ["scan", "host"])
def test_devices_that_cannot_be_used_are_refused_with_a_remedy(agent, changes, words, backend):
    with pytest.raises(ValueError, match=words):
        train(agent, "deep_sea", size=3, backend=backend, preset="tuned", episodes=1, changes=changes)


def test_zero_devices_are_as_many_as_can_be_used():
    for name in ("bsp", "dropout", "psrl"):
        agent = build(name, settings(name), TaskSpec(2, 4, horizon=2))
        assert devices_for(agent, 0) == devices_for(agent, 1) == jax.devices()[:1]
