"""Environments by name: built-in, of libraries (gymnax:, gymnasium:, bsuite:), registered, and of plug-ins.

A plug-in adds an environment by an entry point of the group `priorax.environments`, whose value is an
`EnvironmentSpec`, or a function from the size to a compiled environment with the interface of gymnax, an environment of
Gymnasium or dm_env, or a `VectorWorld`.
"""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import jax
import numpy as np

from priorax import names
from priorax.checks import one_of, positive_int
from priorax.envs.base import Environment, action_bound, num_states
from priorax.envs.catalogue import LIBRARIES, OURS, USUAL_SIZE, EnvironmentSpec, names_in_libraries
from priorax.envs.host.atari import Atari
from priorax.envs.host.objects import lanes_of
from priorax.envs.host.vector import CompiledWorld, VectorWorld
from priorax.envs.interface import interface_of_environment, is_picture
from priorax.envs.jax.held import Held

_registered: dict[str, EnvironmentSpec] = {}


def register_environment(name: str, make: Callable[[int], Any], **more: Any) -> EnvironmentSpec:
    """Register an environment, for this process.

    Args:
        name: Name, as in `train(env=name)`.
        make: Function from the size to an environment; see `EnvironmentSpec.make`.
        more: Other fields of an `EnvironmentSpec`.

    Returns:
        The spec.

    Raises:
        ValueError: If the name is taken, or contains a colon, which is reserved for libraries.
    """
    if ":" in name:
        raise ValueError(f"env={name!r} contains a colon, which is reserved for libraries; choose a name without one")
    if name in _registered or name in names.environment_names():
        raise ValueError(f"env={name!r} is taken; register it under another name")
    _registered[name] = EnvironmentSpec(name, make, **more)
    return _registered[name]


def environments() -> dict[str, EnvironmentSpec]:
    """List built-in environments, plug-ins and registered environments, without those of libraries.

    A plug-in that cannot be loaded, or whose name is taken, is skipped with a warning.

    Returns:
        Specs by name.
    """
    found = dict(OURS)
    for point in names.plugins(names.ENVIRONMENT_PLUGINS):
        try:
            found[point.name] = _plugin(point)
        except ValueError as error:
            warnings.warn(str(error), stacklevel=2)
    return found | _registered


def known_environment(name: str) -> EnvironmentSpec | None:
    """Look up an environment.

    Args:
        name: The name.

    Returns:
        The spec; None if there is no such environment.

    Raises:
        ValueError: If it belongs to a plug-in that cannot be loaded.
    """
    for library in LIBRARIES:
        if name.startswith(library.prefix):
            return library.spec(name.removeprefix(library.prefix))
    if name in _registered or name in OURS:
        return _registered.get(name) or OURS[name]
    for point in names.plugins(names.ENVIRONMENT_PLUGINS):
        if point.name == name:
            return _plugin(point)
    return None


def usable_environment(name: str) -> EnvironmentSpec | None:
    """Look up an environment that may not be installed.

    Args:
        name: The name.

    Returns:
        The spec; None if there is no such environment, or its plug-in cannot be loaded.
    """
    try:
        return known_environment(name)
    except ValueError:
        return None


def environment_spec(name: str) -> EnvironmentSpec:
    """Look up an environment.

    Args:
        name: One of `environments`, or that of a library with its prefix.

    Returns:
        The spec.

    Raises:
        ValueError: If it is unknown, or belongs to a plug-in that cannot be loaded.
    """
    found = known_environment(name)
    if found is None:
        one_of("env", name, [*names.environment_names(), *_registered], names_in_libraries())
        raise AssertionError("one_of raises for unknown names")
    return found


@functools.cache
def _plugin(point: EntryPoint) -> EnvironmentSpec:
    """Load the environment of a plug-in.

    Raises:
        ValueError: If it cannot be loaded.
    """
    whose = f"the plug-in {names.distribution(point)!r} ({point.group}: {point.name} = {point.value})"
    same = [each for each in names.plugins(point.group) if each.name == point.name]
    if point.name in OURS or same[0] != point:
        raise ValueError(f"{whose} has an environment whose name is taken; rename or uninstall it")
    try:
        found = point.load()
    except Exception as error:  # third-party code may raise anything
        raise ValueError(f"{whose} cannot be loaded: {error!r}; fix or uninstall it") from error
    if isinstance(found, EnvironmentSpec):
        return dataclasses.replace(found, name=point.name)
    if not callable(found):
        raise ValueError(f"{whose} is {found!r}; it must be an EnvironmentSpec, or a function of the size")
    return EnvironmentSpec(point.name, found)


SWINGUP_CLASSES = ("CartpoleSwingup", "BsuiteCartpole")
"""Classes of built-in environments whose objects get the preset `swingup`."""


def preset_for(env: str) -> str:
    """Get the default preset of hyperparameters for an environment.

    Args:
        env: Name of the environment, or of the class of a custom compiled environment.

    Returns:
        The preset of its spec, or one chosen by the type of observations.
    """
    spec = known_environment(env)
    if spec is None:
        if env in SWINGUP_CLASSES:
            return "swingup"
        return "gymnasium" if "cartpole" in env.lower() else "tuned"
    if spec.preset is not None:
        return spec.preset
    if spec.is_compiled:
        return _preset_shown(spec.make(USUAL_SIZE))
    with contextlib.closing(make_world(env, 1)) as world:
        return preset_in(world)


def preset_in(world: VectorWorld) -> str:
    """Choose the preset of hyperparameters for third-party environments by the type of observations.

    Args:
        world: The environments.

    Returns:
        The preset.
    """
    if is_picture(world.frame_shape, world.frame_dtype):
        return "small"
    return "gymnasium" if getattr(world, "num_states", None) is None else "finite"


def _preset_shown(env: Environment) -> str:
    """Choose the preset for a compiled environment by the type of observations."""
    shown = interface_of_environment(env, env.default_params)
    if shown is not None and is_picture(shown.sight.frame_shape, np.dtype(shown.sight.dtype)):
        return "small"
    return "gymnasium" if num_states(env) is None else "finite"


def make_environment(name: str, size: int, continuous: bool = False) -> Environment:
    """Create a compiled environment.

    Args:
        name: Name of the environment.
        size: Size of environments that have one.
        continuous: Whether to use continuous actions.

    Returns:
        The environment.

    Raises:
        ValueError: If it is unknown, not compiled, or has no continuous actions.
    """
    spec = environment_spec(name)
    if not spec.is_compiled:
        raise ValueError(
            f"env={name!r} is not a compiled environment; pass it to priorax.train, priorax.Explorer or `priorax train`"
        )
    if continuous and spec.continuous is not None:
        return spec.continuous(size)
    env: Environment = spec.make(size)
    if continuous and action_bound(env) is None:
        known = [each for each, other in OURS.items() if other.continuous is not None]
        raise ValueError(f"env={name!r} has no version with continuous actions; use one of {', '.join(known)}")
    return env


def make_world(
    env: str,
    lanes: int,
    *,
    size: int = USUAL_SIZE,
    game: str | None = None,
    seed: int = 0,
    num_threads: int = 0,
    hold: int = 1,
) -> VectorWorld:
    """Create a vector of environments on the host.

    Args:
        env: Name of the environment.
        lanes: Number of environments; a plug-in's `VectorWorld` has its own number.
        size: Size of environments that have one.
        game: The game, for `env="atari"`.
        seed: Seed of the environment's parameters, such as DeepSea's action mask.
        num_threads: Number of threads for Atari; 0 uses one per core.
        hold: Steps for which each action is repeated, for compiled and bsuite environments.

    Returns:
        The environments.

    Raises:
        ValueError: If the name is unknown, or an argument does not apply to that environment.
    """
    spec = environment_spec(env)
    if hold > 1 and not spec.can_hold:
        raise ValueError(f"hold={hold} is not supported for env={env!r}; use hold=1, or wrap the environment")
    if game is not None:
        if env != "atari":
            raise ValueError(f"game={game!r} is for env='atari', not {env!r}; leave it out")
        return Atari(game, lanes, num_threads=num_threads)
    if spec.lanes is not None:
        return spec.lanes(lanes, hold)
    positive_int("size", size)
    if spec.is_compiled:
        return compiled_world(spec.make(size), lanes, seed, hold)
    return lanes_of(lambda: spec.make(size), lanes)


def compiled_world(env: Environment, lanes: int, seed: int, hold: int = 1) -> VectorWorld:
    """Create a vector of compiled environments on the host.

    Args:
        env: The environment.
        lanes: Number of environments.
        seed: Seed of the parameters, which all share.
        hold: Steps for which each action is repeated (frame skip).

    Returns:
        The environments.
    """
    world: Any = Held(env, hold) if hold > 1 else env
    key, _ = jax.random.split(jax.random.key(seed))
    params = world.params(key) if hasattr(world, "params") else world.default_params
    return CompiledWorld(world, lanes, params)
