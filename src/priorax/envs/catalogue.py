"""Catalogue of environments: built-in, and of libraries (gymnax:, gymnasium:, bsuite:)."""

import functools
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from priorax import names
from priorax.checks import one_of
from priorax.envs.base import Environment
from priorax.envs.host.dm import bsuite_world
from priorax.envs.host.vector import GymnasiumWorld, VectorWorld
from priorax.envs.jax.bandits import BernoulliBandit, GaussianProcessBandit, LinearBandit
from priorax.envs.jax.bsuite_cartpole import BsuiteCartpole
from priorax.envs.jax.cartpole import CartpoleSwingup
from priorax.envs.jax.deep_sea import DeepSea
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


def _gymnasium(name: str, lanes: int) -> VectorWorld:
    try:
        import gymnasium
    except ImportError as error:
        raise ValueError(f'{error}; install it with: pip install "priorax[gymnasium]"') from None
    try:
        return GymnasiumWorld(gymnasium.make_vec(name, num_envs=lanes, vectorization_mode="sync"))
    except gymnasium.error.Error as error:
        raise ValueError(f"env='{GYMNASIUM}{name}' cannot be created: {error}") from None


LIBRARIES = (
    Library(GYMNAX, "gymnax", "registered_envs", _gymnax_spec),
    Library(BSUITE, "bsuite.sweep", "SWEEP", _bsuite_spec),
    Library(GYMNASIUM, "gymnasium", "registry", _gymnasium_spec),
)


def names_in_libraries() -> dict[str, str]:
    """Map plain names of environments of installed libraries, with and without version, to names here (`one_of`)."""
    found: dict[str, str] = {}
    for library in LIBRARIES:
        try:
            known = list(getattr(importlib.import_module(library.module), library.registered))
        except ImportError:
            continue
        # keep the first id of bsuite, the latest version of others
        for name in reversed(known) if library.prefix == BSUITE else known:
            for word in (name, re.sub(r"(-v|/)\d+$", "", name)):
                found["".join(letter for letter in word.lower() if letter.isalnum())] = f"{library.prefix}{name}"
    return found
