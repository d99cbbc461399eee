"""Worlds of the host loop by name: Atari games, and compiled environments several at once."""

import jax

from priorax.checks import positive_int
from priorax.envs import make_environment
from priorax.envs.atari import Atari
from priorax.envs.vector import CompiledWorld, VectorWorld

ON_HOST = ("atari", "pixel_deep_sea")
"""What is trained in on the host: pictures, whose replay keeps each frame once."""


def make_world(
    env: str, lanes: int, *, size: int = 10, game: str | None = None, seed: int = 0, num_threads: int = 0
) -> VectorWorld:
    """So many lanes of the environment of that name; the seed says what varies between runs (DeepSea's mask)."""
    if env == "atari":
        if game is None:
            raise ValueError("game=None: env='atari' needs the name of a game; pass for example game='Freeway'")
        return Atari(game, lanes, num_threads=num_threads)
    if game is not None:
        raise ValueError(f"game={game!r} is for env='atari', not {env!r}; leave it out")
    world = make_environment(env, positive_int("size", size))
    key, _ = jax.random.split(jax.random.key(seed))
    params = world.params(key) if hasattr(world, "params") else world.default_params
    return CompiledWorld(world, lanes, params)
