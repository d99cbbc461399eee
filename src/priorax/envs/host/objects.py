"""Lanes from environment objects of Gymnasium and dm_env, or from functions that make them."""

import sys
from collections.abc import Callable
from typing import Any

from priorax.envs.host.dm import DmEnvWorld
from priorax.envs.host.vector import GymnasiumWorld, VectorWorld


def as_lanes(env: Any) -> VectorWorld | None:
    """An environment object as it is: one lane, or a vector's own number of lanes.

    Args:
        env: An environment of Gymnasium or dm_env, a vector of Gymnasium's, or a `VectorWorld`.

    Returns:
        The lanes; None where it is no such object.
    """
    if isinstance(env, VectorWorld):
        return env
    if _is(env, "gymnasium.vector", "VectorEnv"):
        return GymnasiumWorld(env)
    if _is(env, "gymnasium", "Env"):
        return _gymnasium([lambda: env])
    return DmEnvWorld([env]) if _is(env, "dm_env", "Environment") else None


def lanes_of(make: Callable[[], Any], lanes: int) -> VectorWorld:
    """So many lanes, each with an environment of its own.

    Args:
        make: Makes an environment of Gymnasium or dm_env; or a vector of them or a `VectorWorld`, which has its own
            number of lanes.
        lanes: How many.

    Raises:
        ValueError: If it makes something else.
    """
    first = make()
    if _is(first, "dm_env", "Environment"):
        return DmEnvWorld([first, *(make() for _ in range(lanes - 1))])
    if _is(first, "gymnasium", "Env"):
        return _gymnasium([lambda: first, *[make] * (lanes - 1)])
    found = as_lanes(first)
    if found is None:
        raise ValueError(f"env is a function that gives {first!r}; let it give an environment of Gymnasium or dm_env")
    return found


def _gymnasium(makers: list[Callable[[], Any]]) -> VectorWorld:
    from gymnasium.vector import SyncVectorEnv

    return GymnasiumWorld(SyncVectorEnv(makers))


def _is(thing: Any, module: str, name: str) -> bool:
    """Whether it is one of that class, whose package need not be installed."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)
