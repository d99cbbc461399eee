"""Rivals' steps in DeepSea 20 against BSP's, each with a BSP of the same total number of parameters (trained ones and
priors), and all beliefs' bandit sweep."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.base import Bench, best_interleaved, seconds
from benchmarks.deep_sea import STEPS, stepper
from priorax.agents import QLearner, build, settings
from priorax.agents.bandit import belief_sampler
from priorax.envs.interface import TaskSpec
from priorax.experiments.bandits import BANDITS, BATCH, METHODS, UPDATES, make
from priorax.training.bandits import compiled_regret

SIZE = 20
RIVALS = ("dropout", "noisy", "bbb", "c51", "qr", "ucb", "ensemble")
PAYS_FOR = {
    "noisy": "three noise samples of 20 x 400 weights' factors per step, and a dense Adam over mean and spread",
    "bbb": "three noise samples of every weight per step, and a dense Adam over mean and spread",
    "dropout": "a mask per example and use, and a dense Adam where BSP updates only the rows touched",
    "c51": "51 outputs per action, and a projection of 51 atoms per transition",
    "qr": "21 outputs per action, and 441 pairs of quantiles per transition",
}


def parameters(name: str, **changes: Any) -> int:
    """Numbers that a belief holds: weights, and priors' weights."""
    agent = build(name, settings(name, **changes), TaskSpec(2, SIZE * SIZE))
    assert isinstance(agent, QLearner)
    belief = jax.eval_shape(lambda key: agent.belief.init(key, jax.numpy.zeros((), int)), jax.random.key(0))
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves((belief.params, belief.frozen)))


def run() -> Iterator[Bench]:
    per_member = parameters("bs", num_members=1, clip=1.0)  # with a clip, rows are not sparse: weights and nothing else
    for name in RIVALS:
        members = max(1, round(parameters(name) / per_member))
        works = {"rival": stepper(SIZE, agent=name), "bsp": stepper(SIZE, num_members=members)}
        times = best_interleaved(works, repeats=4)
        ours, bsp = (1e3 * times[which] / STEPS for which in ("rival", "bsp"))
        note = f"{ours:.2f} ms against {bsp:.2f} ms (BSP with K={members})"
        if ours > 1.3 * bsp:
            note += f"; pays for {PAYS_FOR.get(name, 'nothing that we know')}"
        yield Bench(f"DeepSea {SIZE}: a step of {name} over BSP's", ours / bsp, 1.3, False, note)

    keys = jax.random.split(jax.random.key(0), 100)
    sweep = {
        name: compiled_regret(
            BANDITS["linear"], belief_sampler(make(name, "linear"), 1000, BATCH, UPDATES["linear"]), 1000
        )
        for name in METHODS
    }
    for one in sweep.values():
        jax.block_until_ready(one(keys))  # compiles
    taken = seconds(lambda: [jax.block_until_ready(one(keys)) for one in sweep.values()])
    note = f"{len(sweep)} beliefs, 1,000 steps, 100 seeds each"
    yield Bench("seconds of the linear bandit's sweep of all beliefs", taken, 120.0, False, note)
