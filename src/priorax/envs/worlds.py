"""Worlds of the host loop by name: Atari games, any Gymnasium environment, bsuite's, compiled environments several at
once."""

from typing import Any

import jax

from priorax.checks import positive_int
from priorax.envs import BSUITE, GYMNASIUM, Environment, Held, make_environment
from priorax.envs.atari import Atari
from priorax.envs.dm import bsuite_world
from priorax.envs.vector import CompiledWorld, GymnasiumWorld, VectorWorld

PICTURES = ("atari", "pixel_deep_sea")
"""Their replay keeps each frame once, on the host."""


def lives_on_host(env: str) -> bool:
    """Whether that environment is trained in on the host."""
    return env in PICTURES or env.startswith((GYMNASIUM, BSUITE))


def make_world(
    env: str, lanes: int, *, size: int = 10, game: str | None = None, seed: int = 0, num_threads: int = 0, hold: int = 1
) -> VectorWorld:
    """So many lanes of the environment of that name; the seed says what varies between runs (DeepSea's mask). `hold`:
    steps for which an action is held, of compiled environments and bsuite's."""
    if hold > 1 and (env in PICTURES or env.startswith(GYMNASIUM)):
        raise ValueError(f"hold={hold} is not for env={env!r}; use hold=1, or wrap the environment")
    if env == "atari":
        if game is None:
            raise ValueError("game=None: env='atari' needs the name of a game; pass for example game='Freeway'")
        return Atari(game, lanes, num_threads=num_threads)
    if game is not None:
        raise ValueError(f"game={game!r} is for env='atari', not {env!r}; leave it out")
    if env.startswith(GYMNASIUM):
        return _gymnasium(env.removeprefix(GYMNASIUM), lanes)
    if env.startswith(BSUITE):
        return bsuite_world(env.removeprefix(BSUITE), lanes=lanes, hold=hold)
    return compiled_world(make_environment(env, positive_int("size", size)), lanes, seed, hold)


def compiled_world(env: Environment, lanes: int, seed: int, hold: int = 1) -> VectorWorld:
    """So many lanes of a compiled environment."""
    world: Any = Held(env, hold) if hold > 1 else env
    key, _ = jax.random.split(jax.random.key(seed))
    params = world.params(key) if hasattr(world, "params") else world.default_params
    return CompiledWorld(world, lanes, params)


def _gymnasium(name: str, lanes: int) -> VectorWorld:
    try:
        import gymnasium
    except ImportError as error:
        raise ValueError(f'{error}; install what it needs with: pip install "priorax[gymnasium]"') from None
    try:
        return GymnasiumWorld(gymnasium.make_vec(name, num_envs=lanes, vectorization_mode="sync"))
    except gymnasium.error.Error as error:
        raise ValueError(f"env='{GYMNASIUM}{name}' cannot be made: {error}") from None
