"""Worlds from whatever one has: a name, or an object of any of the kinds that are about."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from priorax.envs import Environment
from priorax.envs.host.dm import DmEnvWorld
from priorax.envs.host.vector import GymnasiumWorld, VectorWorld
from priorax.envs.interface import is_picture
from priorax.envs.registry import compiled_world, make_world

World = Any
"""A name; an environment of Gymnasium, or a function that makes one, or a vector of them; one of dm_env, or a function
that makes one; one in gymnax's shape; a `VectorWorld`."""


class Given(NamedTuple):
    """A world, and whether it is all there is: an object cannot be made a second time."""

    world: VectorWorld
    shared: bool


def as_world(env: World, lanes: int, *, size: int = 10, game: str | None = None, seed: int = 0, hold: int = 1) -> Given:
    """That environment in so many lanes; a single object has one, a vector its own number. See `make_world`."""
    if isinstance(env, str):
        return Given(make_world(env, lanes, size=size, game=game, seed=seed, hold=hold), False)
    if isinstance(env, VectorWorld):
        return Given(env, True)
    if isinstance(env, Environment):  # gymnax's shape
        return Given(compiled_world(env, lanes, seed, hold), False)
    if hold > 1:
        raise ValueError(f"hold={hold} is not for env={env!r}; use hold=1, or wrap the environment")
    if _is(env, "gymnasium.vector", "VectorEnv"):
        return Given(GymnasiumWorld(env), True)
    if _is(env, "gymnasium", "Env"):
        return Given(_gymnasium([lambda: env]), True)
    if _is(env, "dm_env", "Environment"):
        return Given(DmEnvWorld([env]), True)
    if callable(env):
        return Given(_made(env, lanes), False)
    raise ValueError(
        f"env={env!r} is no environment that is known here; pass a name, one of Gymnasium, of dm_env, in gymnax's "
        "shape, a function that makes one, or a VectorWorld"
    )


def shows_pictures(world: VectorWorld) -> bool:
    """Whether what is seen is for convolutions."""
    return is_picture(world.frame_shape, world.frame_dtype)


def _made(make: Callable[[], Any], lanes: int) -> VectorWorld:
    first = make()
    if _is(first, "dm_env", "Environment"):
        return DmEnvWorld([first, *(make() for _ in range(lanes - 1))])
    if not _is(first, "gymnasium", "Env"):
        raise ValueError(f"env is a function that gives {first!r}; let it give an environment of Gymnasium or dm_env")
    return _gymnasium([lambda: first, *[make] * (lanes - 1)])


def _gymnasium(makers: list[Callable[[], Any]]) -> VectorWorld:
    from gymnasium.vector import SyncVectorEnv

    return GymnasiumWorld(SyncVectorEnv(makers))


def _is(thing: Any, module: str, name: str) -> bool:
    """Whether it is one of that class, whose package need not be installed."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)
