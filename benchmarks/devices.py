"""`python -m benchmarks.devices`: time of an update by ensemble size and number of devices, into results/devices.csv.

Devices are parts of this machine's cores (`--xla_force_host_platform_device_count`), with a process for each number of
them. Kinds: `vectors` (the networks of the preset `swingup`) and `pictures` (the preset `small`, each member with its
own convnet). A measurement that has a row is not repeated, so that an interrupted run can be continued. Run it on idle
cores.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.base import seconds
from priorax.agents import QLearner, build, settings
from priorax.analysis.parallel import usable_cores
from priorax.envs.inputs import Inputs
from priorax.envs.interface import TaskSpec
from priorax.replay import Sampled
from priorax.report.rows import read_rows, write_rows
from priorax.training.backends.host import learn
from priorax.training.sharding import devices_for, spread_members

PATH = Path(__file__).parent.parent / "results" / "devices.csv"
ACTIONS = 3
KINDS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], Any]] = {
    "vectors": ("swingup", {"fourier_grouped": 0.0, "squash_inputs": False}, (8,), np.float32),
    "pictures": ("small", {"shared_torso": False}, (4, 84, 84), np.uint8),
}
"""Preset, changes to it, shape and type of an observation."""


def minibatch(agent: QLearner, shape: tuple[int, ...], dtype: Any) -> Sampled:
    rng = np.random.default_rng(0)
    members, size = agent.belief.num_streams, agent.replay.batch_size
    ones = np.ones(size, np.float32)
    prior = rng.normal(size=(members, size, ACTIONS, 1)).astype(np.float32)
    obs, after = (100 * rng.random((2, size, *shape))).astype(dtype)
    weight, counts = np.ones((members, size), np.float32), np.full(members, size)
    return Sampled(obs, rng.integers(0, ACTIONS, size), ones, ones, after, weight, counts, prior, prior)


def measure(kind: str, members: int, devices: int, updates: int, repeats: int, **changes: Any) -> dict[str, Any]:
    """The least time of an update, of several rounds of updates."""
    preset, own, shape, dtype = KINDS[kind]
    chosen = settings("bsp", preset, num_members=members, **{**own, **changes})
    agent = build("bsp", chosen, TaskSpec(ACTIONS, inputs=Inputs((1.0,) * shape[0] if len(shape) == 1 else ())))
    assert isinstance(agent, QLearner)
    state = spread_members(agent, agent.init(jax.random.key(0), np.zeros(shape, dtype)), devices_for(agent, devices))
    sampled, key, count = minibatch(agent, shape, dtype), jax.random.key(1), np.asarray(1)

    def rounds() -> None:
        now = state
        for _ in range(updates):
            now, *_ = learn(agent, now, sampled, count, key)
        jax.block_until_ready(now)

    rounds()
    least = min(seconds(rounds) for _ in range(repeats)) / updates
    run = {"kind": kind, "members": members, "devices": devices, "cores": usable_cores()}
    return {**run, "milliseconds": 1e3 * least, "milliseconds_per_member": 1e3 * least / members}


def elsewhere(devices: int, kind: str, members: int, words: list[str]) -> dict[str, Any]:
    """Measure in a process with that many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}".strip()
    run = ["--here", "--devices", str(devices), "--kinds", kind, "--members", str(members), *words]
    command = [sys.executable, "-m", "benchmarks.devices", *run]
    done = subprocess.run(
        command, env={**os.environ, "XLA_FLAGS": flags}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The rows as text, with the ratio to one device."""
    alone = {(row["kind"], row["members"]): row["milliseconds"] for row in rows if row["devices"] == 1}
    for row in rows:
        one = alone.get((row["kind"], row["members"]))
        ratio = "" if one is None else f", {row['milliseconds'] / one:.2f} times that of one device"
        yield f"{row['kind']}, K={row['members']}, devices={row['devices']}: {row['milliseconds']:.2f} ms{ratio}"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", default="8,16,32,64", help="ensemble sizes")
    parser.add_argument("--devices", default="1,2", help="numbers of devices")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--updates", type=int, default=50, help="updates of a round")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, of which the fastest counts")
    parser.add_argument("--out", type=Path, default=PATH)
    parser.add_argument("--here", action="store_true", help="measure once in this process, and print the row")
    given = parser.parse_args(words)
    many = [
        (kind, int(k), int(n))
        for kind in given.kinds.split(",")
        for k in given.members.split(",")
        for n in given.devices.split(",")
    ]
    if given.here:
        ((kind, members, devices),) = many
        print(json.dumps(measure(kind, members, devices, given.updates, given.repeats)))
        return
    rows = read_rows(given.out) if given.out.exists() else []
    for kind, members, devices in many:
        if not any({"kind": kind, "members": members, "devices": devices}.items() <= row.items() for row in rows):
            size = ["--updates", str(given.updates), "--repeats", str(given.repeats)]
            rows.append(elsewhere(devices, kind, members, size))
            write_rows(given.out, rows)
    print("\n".join(lines(rows)))


if __name__ == "__main__":
    main()
