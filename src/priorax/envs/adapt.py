"""Adapt a name or an object to a VectorWorld."""

from typing import Any, NamedTuple

from priorax.envs import Environment
from priorax.envs.host.objects import as_lanes, lanes_of
from priorax.envs.host.vector import VectorWorld
from priorax.envs.registry import compiled_world, make_world

World = Any
"""Supported types: a name; a Gymnasium or dm_env environment, or a function that creates one; a Gymnasium vector
environment; a compiled environment; or a `VectorWorld`.
"""


class AdaptedWorld(NamedTuple):
    """A vector of environments."""

    world: VectorWorld
    """The environments."""
    shared: bool
    """Whether no further copies can be created, because an object was passed."""


def as_world(
    env: World, lanes: int, *, size: int = 10, game: str | None = None, seed: int = 0, hold: int = 1
) -> AdaptedWorld:
    """Adapt a name or an object to a vector of environments.

    Args:
        env: A name or an object (see `World`).
        lanes: Number of environments. A single object always has one lane, a vector its own number.
        size: The size, for names (see `make_world`).
        game: The game, for `atari`.
        seed: Seed of the environment's parameters.
        hold: Steps for which each action is repeated (frame skip).

    Returns:
        The environments, and whether no further copies can be created.

    Raises:
        ValueError: If the name or object is unknown, or an option does not apply to it.
    """
    if isinstance(env, str):
        return AdaptedWorld(make_world(env, lanes, size=size, game=game, seed=seed, hold=hold), False)
    if isinstance(env, VectorWorld):
        return AdaptedWorld(env, True)
    if isinstance(env, Environment):  # gymnax interface
        return AdaptedWorld(compiled_world(env, lanes, seed, hold), False)
    if hold > 1:
        raise ValueError(f"hold={hold} is not supported for env={env!r}; use hold=1, or wrap the environment")
    found = as_lanes(env)
    if found is not None:
        return AdaptedWorld(found, True)
    if callable(env):
        return AdaptedWorld(lanes_of(env, lanes), False)
    raise ValueError(
        f"env={env!r} is not a supported environment; pass a name, an environment of Gymnasium, dm_env or gymnax, a "
        "function that creates one, or a VectorWorld"
    )
