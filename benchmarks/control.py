"""Cartpole swing-up: the compiled loop against the same agent driven from Python over `dm_control`."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.base import Bench, best_interleaved
from priorax.agents import settings
from priorax.envs.host.control import ControlCartpole
from priorax.replay import Transition
from priorax.training.backends.loop import Loop, empty_replay, learn_once, prepare, remember, run_chunk, start

STEPS = 1000
SETTINGS = {"num_members": 20}
"""Of the preset; actions held for 4 steps, an update for each."""


def prepared() -> Loop:
    return prepare("bsp", settings("bsp", "swingup", **SETTINGS), "cartpole_swingup", 1, 0)[0]


def compiled() -> Callable[[], object]:
    """Each call is 1,000 steps of the environment."""
    loop, key = prepared(), jax.random.key(0)
    box = [start(loop, key, ())]

    def go() -> object:
        box[0], _ = run_chunk(loop, key, (), box[0], STEPS // loop.env.times)
        return jax.block_until_ready(box[0])

    go()
    return go


def driven() -> Callable[[], object]:
    """The same agent, functions compiled one by one, an action at a time from Python, MuJoCo stepping between."""
    loop = prepared()
    agent, env, held = loop.agent, ControlCartpole(), loop.env.times
    begin, epsilon = eqx.filter_jit(agent.begin), jnp.zeros(1)
    act = eqx.filter_jit(
        lambda state, key, obs, index: agent.act(state, key, obs[None], index[None], epsilon).action[0]
    )
    add = eqx.filter_jit(lambda run, key, step: remember(agent, *run, key, step), donate="all")
    learn = eqx.filter_jit(lambda run, key: learn_once(agent, *run, key)[:2], donate="all")
    key = jax.random.key(0)
    obs = jnp.asarray(env.reset(seed=0)[0], jnp.float32)
    state = eqx.filter_jit(agent.init)(key, obs)
    index = begin(state, key)
    box = [(state, empty_replay(agent, state, obs, act(state, key, obs, index)))]

    def go() -> object:
        nonlocal obs, key, index
        for _ in range(STEPS // held):
            key, key_act, key_mask, key_learn, key_draw = jax.random.split(key, 5)
            action = act(box[0][0], key_act, obs, index)
            reward, push = 0.0, int(action)
            for _ in range(held):
                seen, paid, terminated, truncated, _ = env.step(push)
                reward += paid
            following = jnp.asarray(seen, jnp.float32)
            flags = (jnp.asarray(terminated), jnp.asarray(truncated))
            step = Transition(obs, action, jnp.asarray(reward, jnp.float32), following, *flags)
            box[0] = learn(add(box[0], key_mask, step), key_learn)
            obs = following
            if truncated:
                obs, index = jnp.asarray(env.reset()[0], jnp.float32), begin(box[0][0], key_draw)
        return jax.block_until_ready(box[0])

    go()
    return go


def physics() -> dict[str, Callable[[], object]]:
    """Environment steps alone, random pushes."""
    env, peer = prepared().env.env, ControlCartpole()
    pushes = np.random.default_rng(0).integers(0, 3, STEPS)

    @jax.jit
    def roll(state: object) -> object:
        return jax.lax.scan(lambda s, a: (env.step(jax.random.key(0), s, a, ())[1], None), state, jnp.asarray(pushes))[
            0
        ]

    _, state = env.reset(jax.random.key(0), ())

    def mujoco() -> None:
        peer.reset(seed=0)
        for push in pushes:
            peer.step(push)

    return {"port": lambda: jax.block_until_ready(roll(state)), "mujoco": mujoco}


def run() -> Iterator[Bench]:
    times = best_interleaved({"compiled": compiled(), "driven": driven()}, 3)
    note = f"{STEPS / times['compiled']:,.0f} and {STEPS / times['driven']:,.0f} environment steps per second"
    yield Bench(
        "cartpole, compiled loop over the same agent from Python", times["driven"] / times["compiled"], 20, True, note
    )
    works = physics()
    works["port"]()
    alone = best_interleaved(works, 3)
    note = f"{alone['port'] / STEPS * 1e6:.2f} us a step against {alone['mujoco'] / STEPS * 1e6:.0f} us"
    yield Bench("cartpole, steps of the port over dm_control's", alone["mujoco"] / alone["port"], 20, True, note)
    code = "from benchmarks.control import compiled, best_interleaved\n"
    code += "print(best_interleaved({'run': compiled()}, 5)['run'])"
    one_core = {**os.environ, "NPROC": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=one_core, check=True, capture_output=True, text=True)
    minutes = float(found.stdout.split()[-1]) * 1000 / 60
    note = "1,000,000 steps, K=20, an update every 4 steps; from 5,000 steps on one core"
    yield Bench("cartpole, minutes for 1,000 episodes of BSP", minutes, 20, False, note)
