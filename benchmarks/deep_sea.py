"""Steps in DeepSea: against bsuite's JAX boot_dqn, against our own matrix products, by size, and on two cores."""

import concurrent.futures
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.base import Bench, best_interleaved
from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec
from priorax.envs.jax.deep_sea import DeepSea
from priorax.replay import DeviceReplay, Replay, Stored, Transition
from priorax.training.backends.loop import Loop, run_chunk, start

STEPS = 1000


def stepper(size: int, steps: int = STEPS, agent: str = "bsp", **changes: Any) -> Callable[[], object]:
    """A run of an agent, compiled and under way: each call goes on by so many steps."""
    env = DeepSea(size)
    chosen = settings(agent, **changes)
    loop = Loop(env, build(agent, chosen, TaskSpec(2, size * size)), chosen.learn_every)
    key = jax.random.key(0)
    params = env.params(key)
    box = [start(loop, key, params)]

    def go() -> object:
        box[0], _ = run_chunk(loop, key, params, box[0], steps)
        return jax.block_until_ready(box[0])

    go()
    return go


def peer(size: int, steps: int) -> Callable[[], object]:
    """bsuite's boot_dqn with the same members, nets, batch, and an update each step, on bsuite's DeepSea."""
    import haiku as hk
    import optax
    from bsuite.baselines.jax.boot_dqn import agent as boot_dqn
    from bsuite.environments.deep_sea import DeepSea as BsuiteDeepSea

    env = BsuiteDeepSea(size, mapping_seed=42)

    def network(inputs: Any) -> Any:
        net = hk.nets.MLP([50, 50, 2])
        prior = hk.nets.MLP([50, 50, 2])
        x = hk.Flatten()(inputs)
        return net(x) + 5.0 * jax.lax.stop_gradient(prior(x))

    learner = boot_dqn.BootstrappedDqn(
        obs_spec=env.observation_spec(),
        action_spec=env.action_spec(),
        network=network,
        num_ensemble=20,
        batch_size=128,
        discount=0.99,
        replay_capacity=10_000,
        min_replay_size=128,
        sgd_period=1,
        target_update_period=4,
        optimizer=optax.adam(1e-3),
        mask_prob=1.0,
        noise_scale=0.0,
        epsilon_fn=lambda t: 0.0,
        seed=0,
    )
    box = [env.reset()]

    def go(count: int = steps) -> None:
        for _ in range(count):
            timestep = box[0]
            if timestep.last():
                timestep = env.reset()
            action = learner.select_action(timestep)
            following = env.step(action)
            learner.update(timestep, action, following)
            box[0] = following

    go(200)  # fills replay and compiles
    return go


def products(batch: int, width: int = 20, members: int = 20) -> Callable[[], object]:
    """Only the matrix products of an update: two layers forward for s and s', and back."""

    def step(carry: Any, _: None) -> tuple[Any, None]:
        h, w2, w3 = carry
        first = jnp.einsum("kbh,khj->kbj", h, w2)
        again = jnp.einsum("kbh,khj->kbj", h + 1e-6, w2)
        out = jnp.einsum("kbh,kha->kba", first, w3)
        following = jnp.einsum("kbh,kha->kba", again, w3)
        error = out - following
        by_w3 = jnp.einsum("kbh,kba->kha", first, error)
        by_first = jnp.einsum("kba,kha->kbh", error, w3)
        by_w2 = jnp.einsum("kbh,kbj->khj", h, by_first)
        by_h = jnp.einsum("kbj,khj->kbh", by_first, w2)
        return (h + 1e-9 * by_h, w2 - 1e-9 * by_w2, w3 - 1e-9 * by_w3), None

    key = jax.random.key(0)
    carry = (
        jax.random.normal(key, (members, batch, width)),
        jax.random.normal(key, (members, width, width)),
        jax.random.normal(key, (members, width, 2)),
    )
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, length=STEPS)[0])
    jax.block_until_ready(run(carry))
    return lambda: jax.block_until_ready(run(carry))


def _speed(seed: int) -> float:
    """Steps per second of one process with one thread."""
    code = f"from priorax import train;print(train(size=20, seed={seed}, episodes=700).steps_per_second)"
    environment = {**os.environ, "NPROC": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def run() -> Iterator[Bench]:
    wide = {"widths": (50, 50), "batch_size": 128}
    for size, steps, target in ((10, 100, 6.0), (50, 30, 25.0)):
        works = {"peer": peer(size, steps), "ours": stepper(size, **wide)}
        times = best_interleaved(works, repeats=4)
        ours, theirs = times["ours"] / STEPS, times["peer"] / steps
        note = f"{1e3 * ours:.2f} ms against {1e3 * theirs:.1f} ms per step; K=20, (50,50), batch 128, update each step"
        yield Bench(f"DeepSea {size}: times faster than bsuite's boot_dqn", theirs / ours, target, True, note)

    works = {"small": stepper(10), "large": stepper(100), "products": products(settings("bsp").batch_size)}
    times = best_interleaved(works, repeats=5)
    milliseconds = {name: 1e3 * value / STEPS for name, value in times.items()}
    note = f"{milliseconds['large']:.2f} ms against {milliseconds['small']:.2f} ms; the tuned preset"
    yield Bench("a step at N=100 over one at N=10", times["large"] / times["small"], 1.5, False, note)
    note = f"{milliseconds['small']:.2f} ms against {milliseconds['products']:.2f} ms; the tuned preset at N=10"
    yield Bench("a step over its matrix products", times["small"] / times["products"], 2.5, False, note)

    for size in (20, 50):
        times = best_interleaved({"bsp": stepper(size), "hypermodel": stepper(size, agent="hypermodel")}, repeats=7)
        ours, bsp = (1e3 * times[name] / STEPS for name in ("hypermodel", "bsp"))
        note = f"{ours:.2f} ms against {bsp:.2f} ms; both tuned, BSP with K=20"
        yield Bench(f"DeepSea {size}: a step of hypermodel over BSP's", ours / bsp, 1 / 3, False, note)

    alone = max(_speed(0), _speed(1))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = sum(pool.map(_speed, (0, 1)))
    note = f"{both:,.0f} against {alone:,.0f} steps/s; one thread each"
    yield Bench("two seeds at once: times the throughput of one", both / alone, 1.7, True, note)

    index = jnp.zeros((), jnp.int32)
    example = Stored(Transition(index, index, jnp.zeros(()), index, jnp.zeros((), bool)))
    buffer = jax.block_until_ready(DeviceReplay(Replay(1_000_000, 20, mask_prob=0.5)).init(example))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(buffer)) / 1e9
    yield Bench("GB of a replay of 1,000,000 transitions, K=20", size, 1.0, False, "indices as observations, masks 0.5")
