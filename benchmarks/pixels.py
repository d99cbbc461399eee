"""From pixels: what acting and learning cost beside the bare parts that they are made of."""

from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import numpy as np

from benchmarks.base import Bench, best_interleaved
from priorax.agents import AgentState, QLearner, settings
from priorax.beliefs import values_of
from priorax.envs.host.atari import Atari
from priorax.replay import Sampled
from priorax.training.backends.acting import Actor
from priorax.training.backends.host import Learner, build_for, learn

LANES, ROUNDS, BATCH = 8, 50, 32


def made(agent: str = "bsp", **changes: object) -> tuple[QLearner, AgentState, Atari]:
    world = Atari("Freeway", LANES)
    learner = build_for(agent, settings(agent, "small", **changes), world)
    return learner, Learner(learner, world.reset(0)[0], 0).state, world


def acting() -> dict[str, Callable[[], object]]:
    """Rounds of eight lanes: as the loop plays them, and the emulator and the networks alone."""
    agent, state, world = made()
    actor = Actor(agent, Atari("Freeway", LANES), 0)
    rng = np.random.default_rng(0)
    obs = world.reset(0)
    infer = eqx.filter_jit(
        lambda agent, state, x: values_of(
            agent.belief.head, agent.belief.forward(state.belief, jax.random.key(0), x, shared=True)
        )
    )

    def play() -> None:
        for _ in range(ROUNDS):
            actor.advance(state)

    def emulator() -> None:
        for _ in range(ROUNDS):
            world.step(rng.integers(0, world.num_actions, LANES))

    def networks() -> None:
        for _ in range(ROUNDS):
            np.asarray(infer(agent, state, obs))

    return {"play": play, "emulator": emulator, "networks": networks}


def learning(members: int) -> tuple[Callable[[], object], float]:
    """Updates, and the floating-point operations of one by the compiler's count."""
    name, changes = ("bsp", {"num_members": members}) if members > 1 else ("eps_greedy", {})
    agent, state, world = made(name, **changes)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (2, BATCH, 4, 84, 84), dtype=np.uint8)
    ones = np.ones(BATCH, np.float32)
    prior = None
    if members > 1:
        prior = rng.normal(size=(members, BATCH, world.num_actions, 1)).astype(np.float32)
    sampled = Sampled(
        pictures[0],
        rng.integers(0, world.num_actions, BATCH),
        ones,
        ones,
        pictures[1],
        np.ones((members, BATCH), np.float32),
        np.full(members, BATCH),
        prior,
        prior,
    )
    key, count = jax.random.key(0), np.asarray(BATCH)

    def go() -> object:
        return jax.block_until_ready(learn(agent, state, sampled, count, key))

    go()
    cost = learn.lower(agent, state, sampled, count, key).compile().compiled.cost_analysis()
    return go, float(cost["flops"])


def run() -> Iterator[Bench]:
    works = acting()
    for work in works.values():
        work()
    times = best_interleaved(works, 3)
    bare = times["emulator"] + times["networks"]
    note = (
        f"{LANES * ROUNDS / times['play']:,.0f} actions a second; emulator {times['emulator'] / ROUNDS * 1e3:.1f} ms, "
    )
    note += f"networks {times['networks'] / ROUNDS * 1e3:.1f} ms a round of {LANES}"
    yield Bench("pixels, acting over bare emulator and networks", bare / times["play"], 0.8, True, note)
    (ten, flops_ten), (one, flops_one) = learning(10), learning(1)
    times = best_interleaved({"ten": ten, "one": one}, 10)
    ratio, flops = times["ten"] / times["one"], flops_ten / flops_one
    note = f"{times['ten'] * 1e3:.1f} ms against {times['one'] * 1e3:.1f} ms; {flops:.2f}x the operations"
    yield Bench("pixels, update of ten heads over one, per operation", ratio / flops, 1.3, False, note)
