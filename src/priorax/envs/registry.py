"""Environments by name: built-in, of libraries (gymnax:, gymnasium:, bsuite:), registered, and of plug-ins.

A plug-in adds an environment by an entry point of the group `priorax.environments`, whose value is an
`EnvironmentSpec`, or a function from the size to a compiled environment with the interface of gymnax, an environment of
Gymnasium or dm_env, or a `VectorWorld`.
"""

import contextlib
import dataclasses
import functools
import importlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple

import jax
import numpy as np

from priorax import names
from priorax.checks import one_of, positive_int
from priorax.envs.base import Environment, action_bound, num_states
from priorax.envs.host.atari import Atari
from priorax.envs.host.dm import bsuite_world
from priorax.envs.host.objects import lanes_of
from priorax.envs.host.vector import CompiledWorld, GymnasiumWorld, VectorWorld
from priorax.envs.interface import interface_of_environment, is_picture
from priorax.envs.jax.bandits import BernoulliBandit, GaussianProcessBandit, LinearBandit
from priorax.envs.jax.bsuite_cartpole import BsuiteCartpole
from priorax.envs.jax.cartpole import CartpoleSwingup
from priorax.envs.jax.deep_sea import DeepSea
from priorax.envs.jax.held import Held
from priorax.envs.jax.pixels import PixelDeepSea
from priorax.envs.jax.two_step import TwoStep

GYMNAX = "gymnax:"
"""Prefix of gymnax environments, as in gymnax:CartPole-v1."""
GYMNASIUM = "gymnasium:"
"""Prefix of Gymnasium environments, as in gymnasium:CartPole-v1."""
BSUITE = "bsuite:"
"""Prefix of bsuite environments, as in bsuite:deep_sea/3."""
USUAL_SIZE = 10
"""Size of environments that are created for inspection only."""


@dataclass(frozen=True)
class EnvironmentSpec:
    """A named environment: how it is created, and how agents are trained in it."""

    name: str
    """Name, as in `priorax train --env NAME`."""
    make: Callable[[int], Any]
    """Function from the size to a compiled environment with the interface of gymnax, an environment of Gymnasium or
    dm_env, or a `VectorWorld`."""
    summary: str = ""
    """One-line description."""
    preset: str | None = None
    """Default preset of hyperparameters; None: chosen by the type of observations."""
    compiled: bool | None = None
    """Whether `make` returns a compiled environment; None: determined by creating one."""
    host: bool = False
    """Whether to train on the host although the environment is compiled, as for images, which replay stores once."""
    sized: bool = True
    """Whether the environment has a size."""
    holds: bool | None = None
    """Whether actions can be repeated (`hold`); None: if it is compiled and not trained on the host."""
    continuous: Callable[[int], Environment] | None = None
    """Function from the size to a version with continuous actions, if it differs from `make`."""
    lanes: Callable[[int, int], VectorWorld] | None = None
    """Function from the number of lanes and of action repeats to a vector of environments, if more efficient than
    `make` for each."""

    @functools.cached_property
    def is_compiled(self) -> bool:
        """Whether it is a compiled environment."""
        if self.compiled is not None:
            return self.compiled
        found = self.make(USUAL_SIZE)
        if not isinstance(found, Environment) and hasattr(found, "close"):
            found.close()
        return isinstance(found, Environment)

    @property
    def on_host(self) -> bool:
        """Whether agents are trained on the host, not in the compiled loop."""
        return self.host or not self.is_compiled

    @property
    def can_hold(self) -> bool:
        """Whether actions can be repeated."""
        return not self.on_host if self.holds is None else self.holds


def _ours(name: str, make: Callable[[int], Any], preset: str = "tuned", **more: Any) -> EnvironmentSpec:
    return EnvironmentSpec(name, make, names.ENVIRONMENTS[name], preset, **{"compiled": True, **more})


def _cartpole(name: str, **settings: Any) -> EnvironmentSpec:
    return _ours(
        name,
        lambda size: CartpoleSwingup(**settings),
        "swingup",
        sized=False,
        continuous=lambda size: CartpoleSwingup(**settings, pushes=()),
    )


def _without_game(size: int) -> Any:
    raise ValueError("game=None: env='atari' needs the name of a game; pass for example game='Freeway'")


OURS: dict[str, EnvironmentSpec] = {
    spec.name: spec
    for spec in (
        _ours("deep_sea", lambda size: DeepSea(size)),
        _ours("deep_sea_stochastic", lambda size: DeepSea(size, windy=True)),
        _ours("deep_sea_no_reward", lambda size: DeepSea(size, move_cost=0.0, treasure=0.0)),
        _ours("bsuite_deep_sea", lambda size: DeepSea(size, mapping_seed=42)),
        _ours("bsuite_deep_sea_stochastic", lambda size: DeepSea(size, windy=True, mapping_seed=42)),
        _ours("pixel_deep_sea", lambda size: PixelDeepSea(size), "small", host=True),
        _ours("bernoulli_bandit", lambda size: BernoulliBandit(), sized=False),
        _ours("linear_bandit", lambda size: LinearBandit(dim=size)),
        _ours("gp_bandit", lambda size: GaussianProcessBandit(num_arms=size)),
        _cartpole("cartpole_swingup"),
        _cartpole("cartpole_swingup_wide", height=0.8, reach=0.5),
        _cartpole("cartpole_swingup_smooth", smooth=True),
        _cartpole("cartpole_balance", smooth=True, upright=True),
        _ours("bsuite_cartpole_swingup", lambda size: BsuiteCartpole(size - 1), "swingup"),
        _ours(
            "two_step",
            lambda size: TwoStep(),
            sized=False,
            continuous=lambda size: TwoStep(continuous=True),
        ),
        _ours("atari", _without_game, "small", compiled=False, sized=False),
    )
}
"""Built-in environments by name. The size is that of the grid, the dimension of a linear bandit, the number of arms of
a GP bandit, or bsuite's difficulty plus one."""


class Library(NamedTuple):
    """A library of environments, whose names have a prefix."""

    prefix: str
    module: str
    registered: str
    """Attribute of the module that lists the names."""
    spec: Callable[[str], EnvironmentSpec]
    """Function from the name without the prefix to the spec."""


def _gymnax_spec(name: str) -> EnvironmentSpec:
    return EnvironmentSpec(GYMNAX + name, lambda size: _gymnax(name), compiled=True, sized=False)


def _gymnasium_spec(name: str) -> EnvironmentSpec:
    return EnvironmentSpec(
        GYMNASIUM + name,
        lambda size: _gymnasium(name, 1),
        compiled=False,
        sized=False,
        lanes=lambda lanes, hold: _gymnasium(name, lanes),
    )


def _bsuite_spec(name: str) -> EnvironmentSpec:
    return EnvironmentSpec(
        BSUITE + name,
        lambda size: bsuite_world(name),
        preset="tuned" if name.startswith("deep_sea") else "gymnasium",
        compiled=False,
        sized=False,
        holds=True,
        lanes=lambda lanes, hold: bsuite_world(name, lanes=lanes, hold=hold),
    )


LIBRARIES = (
    Library(GYMNAX, "gymnax", "registered_envs", _gymnax_spec),
    Library(BSUITE, "bsuite.sweep", "SWEEP", _bsuite_spec),
    Library(GYMNASIUM, "gymnasium", "registry", _gymnasium_spec),
)

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
        one_of("env", name, [*names.environment_names(), *_registered], _of_others())
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


def lives_on_host(env: str) -> bool:
    """Check whether agents are trained on the host in the environment of that name.

    Args:
        env: The name.

    Returns:
        Whether they are; False for an unknown name.
    """
    spec = known_environment(env)
    return spec is not None and spec.on_host


def preset_for(env: str) -> str:
    """Get the default preset of hyperparameters for an environment.

    Args:
        env: Name of the environment, or of the class of a custom compiled environment.

    Returns:
        The preset of its spec, or one chosen by the type of observations.
    """
    spec = known_environment(env)
    if spec is None:
        return "swingup" if "cartpole" in env.lower() else "tuned"
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


def _of_others() -> dict[str, str]:
    """Map plain names of environments of installed libraries, with and without version, to names here (`one_of`)."""
    found: dict[str, str] = {}
    for library in LIBRARIES:
        try:
            known = list(getattr(importlib.import_module(library.module), library.registered))
        except ImportError:
            continue
        for name in (
            reversed(known) if library.prefix == BSUITE else known
        ):  # keep the first id of bsuite, the latest version of others
            for word in (name, re.sub(r"(-v|/)\d+$", "", name)):
                found["".join(letter for letter in word.lower() if letter.isalnum())] = f"{library.prefix}{name}"
    return found


def _gymnax(name: str) -> Environment:
    try:
        import gymnax
    except ImportError as error:
        raise ValueError(f'{error}; install it with: pip install "priorax[gymnax]"') from None
    one_of("env", name, gymnax.registered_envs)
    try:
        return gymnax.make(name)[0]
    except OSError as error:
        raise ValueError(
            f"env={GYMNAX + name!r} cannot be created, as it downloads data ({error}); choose another"
        ) from None


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


def _gymnasium(name: str, lanes: int) -> VectorWorld:
    try:
        import gymnasium
    except ImportError as error:
        raise ValueError(f'{error}; install it with: pip install "priorax[gymnasium]"') from None
    try:
        return GymnasiumWorld(gymnasium.make_vec(name, num_envs=lanes, vectorization_mode="sync"))
    except gymnasium.error.Error as error:
        raise ValueError(f"env='{GYMNASIUM}{name}' cannot be created: {error}") from None
