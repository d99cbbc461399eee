"""Vectors of environments from objects of Gymnasium and dm_env, or from functions that create them."""

import sys
from collections.abc import Callable
from typing import Any

from priorax.envs.host.dm import DmEnvWorld
from priorax.envs.host.vector import GymnasiumWorld, VectorWorld


def as_lanes(env: Any) -> VectorWorld | None:
    """Adapt an environment object: a single environment is one lane, a vector has its own number of lanes.

    Args:
        env: An environment of Gymnasium or dm_env, a Gymnasium vector environment, or a `VectorWorld`.

    Returns:
        The vector; None if it is not such an object.
    """
    if isinstance(env, VectorWorld):
        return env
    if _is(env, "gymnasium.vector", "VectorEnv"):
        return GymnasiumWorld(env)
    if _is(env, "gymnasium", "Env"):
        return _gymnasium([lambda: env])
    return DmEnvWorld([env]) if _is(env, "dm_env", "Environment") else None


def lanes_of(make: Callable[[], Any], lanes: int) -> VectorWorld:
    """Create a vector of environments from a function that creates one.

    Args:
        make: Creates an environment of Gymnasium or dm_env; or a vector of them or a `VectorWorld`, which has its own
            number of lanes.
        lanes: Number of environments.

    Returns:
        The vector.

    Raises:
        ValueError: If the function returns anything else.
    """
    first = make()
    if _is(first, "dm_env", "Environment"):
        return DmEnvWorld([first, *(make() for _ in range(lanes - 1))])
    if _is(first, "gymnasium", "Env"):
        return _gymnasium([lambda: first, *[make] * (lanes - 1)])
    found = as_lanes(first)
    if found is None:
        raise ValueError(
            f"env is a function that returns {first!r}; it must return an environment of Gymnasium or dm_env"
        )
    return found


def _gymnasium(makers: list[Callable[[], Any]]) -> VectorWorld:
    from gymnasium.vector import SyncVectorEnv

    return GymnasiumWorld(SyncVectorEnv(makers))


def _is(thing: Any, module: str, name: str) -> bool:
    """Check for an instance of a class whose package may not be installed."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)
