"""What a checkpoint is, in words."""

import pytest

from priorax import Explorer, train
from priorax.analysis.inspect import inspect
from priorax.files import BadFile

FEW = {"num_members": 4, "lanes": 2, "batch_size": 8, "learn_after": 8, "widths": (8,), "capacity": 500}


def test_a_run_on_the_host_is_described(tmp_path):
    agent = Explorer("gymnasium:CartPole-v1", seed=3, **FEW).learn(100)
    agent.save(tmp_path)
    facts = dict(inspect(tmp_path))
    assert "agent bsp, env gymnasium:CartPole-v1" in facts["run"] and "seed 3" in facts["run"]
    assert facts["settings"].startswith("preset gymnasium with ")
    assert "num_members=4" in facts["settings"] and "widths=[8]" in facts["settings"]
    assert facts["checkpoint"] == f"{agent.steps} steps, {len(agent.history)} episodes finished"
    # one hidden layer of 8 on 4 inputs, 2 actions, 4 members: 4 x (4*8 + 8 + 8*2 + 2)
    assert facts["trained weights"] == "232 numbers in 4 arrays" == facts["prior functions and anchors"]
    inserted = agent.trainer.backend.rounds - 3  # the last steps wait for their returns
    assert facts["replay"].startswith(f"insertions 0 to {inserted},") and facts["checksums"] == "all valid"


def test_a_compiled_run_and_single_files_are_described(tmp_path):
    train("bsp", size=4, episodes=300, out=tmp_path, changes={"num_members": 3})
    facts = dict(inspect(tmp_path))
    assert "agent bsp, env deep_sea, size 4" in facts["run"] and facts["settings"] == "preset tuned with num_members=3"
    assert facts["length"] == "300 episodes requested; finished"
    state = next(tmp_path.glob("checkpoint/state-*.safetensors"))
    assert dict(inspect(state))["kind"] == "run"


def test_damage_is_found_and_said(tmp_path):
    Explorer("gymnasium:CartPole-v1", **FEW).learn(40).save(tmp_path)
    path = next(tmp_path.glob("checkpoint/replay-*.safetensors"))
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(BadFile, match=r"checkpoint of step 40 is damaged.*checksum"):
        inspect(tmp_path)
    with pytest.raises(ValueError, match="contains no run"):
        inspect(tmp_path / "checkpoint")
