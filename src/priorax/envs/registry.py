"""Environments by name: compiled ones, those of libraries, and any of them as lanes on the host."""

import dataclasses
import importlib
import re
from collections.abc import Callable
from typing import Any

import jax

from priorax.checks import one_of, positive_int
from priorax.envs.base import Environment
from priorax.envs.host.atari import Atari
from priorax.envs.host.dm import bsuite_world
from priorax.envs.host.vector import CompiledWorld, GymnasiumWorld, VectorWorld
from priorax.envs.jax.bandits import BernoulliBandit, GaussianProcessBandit, LinearBandit
from priorax.envs.jax.bsuite_cartpole import BsuiteCartpole
from priorax.envs.jax.cartpole import CartpoleSwingup
from priorax.envs.jax.deep_sea import DeepSea
from priorax.envs.jax.held import Held
from priorax.envs.jax.pixels import PixelDeepSea

ENVIRONMENTS: dict[str, Callable[[int], Environment]] = {
    "deep_sea": lambda size: DeepSea(size),
    "deep_sea_stochastic": lambda size: DeepSea(size, windy=True),
    "deep_sea_no_reward": lambda size: DeepSea(size, move_cost=0.0, treasure=0.0),
    "bsuite_deep_sea": lambda size: DeepSea(size, mapping_seed=42),
    "bsuite_deep_sea_stochastic": lambda size: DeepSea(size, windy=True, mapping_seed=42),
    "pixel_deep_sea": lambda size: PixelDeepSea(size),
    "bernoulli_bandit": lambda size: BernoulliBandit(),
    "linear_bandit": lambda size: LinearBandit(dim=size),
    "gp_bandit": lambda size: GaussianProcessBandit(num_arms=size),
    "cartpole_swingup": lambda size: CartpoleSwingup(),
    "cartpole_swingup_wide": lambda size: CartpoleSwingup(height=0.8, reach=0.5),
    "cartpole_swingup_smooth": lambda size: CartpoleSwingup(smooth=True),
    "cartpole_balance": lambda size: CartpoleSwingup(smooth=True, upright=True),
    "bsuite_cartpole_swingup": lambda size: BsuiteCartpole(size - 1),
}
"""By name; each takes a size: of the grid, the dimension of a linear bandit, the arms of a GP bandit, bsuite's
difficulty plus one (the other cartpoles have none, and ignore it). Without reward, novelty is the only drive; `bsuite_`
DeepSeas have the mask of bsuite."""


GYMNAX = "gymnax:"
"""What begins the name of an environment of gymnax, as in gymnax:CartPole-v1."""
GYMNASIUM = "gymnasium:"
"""What begins the name of a Gymnasium environment, as in gymnasium:CartPole-v1."""
BSUITE = "bsuite:"
"""What begins the name of an environment of bsuite, as in bsuite:deep_sea/3."""


def make_environment(name: str, size: int, continuous: bool = False) -> Environment:
    """The environment of that name and size; with continuous actions, where it has them."""
    if name.startswith(GYMNAX):
        return _gymnax(name.removeprefix(GYMNAX))
    if name == "atari" or name.startswith((GYMNASIUM, BSUITE)):
        raise ValueError(
            f"env={name!r} is not compiled, and runs on the host; pass it to priorax.train, priorax.Explorer or "
            "`priorax train`"
        )
    env = ENVIRONMENTS[one_of("env", name, ENVIRONMENTS, {} if name in ENVIRONMENTS else _of_others())](size)
    if continuous:
        if not isinstance(env, CartpoleSwingup):
            known = [name for name in ENVIRONMENTS if name.startswith("cartpole")]
            raise ValueError(f"env={name!r} has no form with continuous actions; these have one: {', '.join(known)}")
        return dataclasses.replace(env, pushes=())
    return env


def _of_others() -> dict[str, str]:
    """Environments of the libraries that are installed, by their own names, with and without version, as `one_of` wants
    them."""
    found: dict[str, str] = {}
    for prefix, module, registered in (
        (GYMNAX, "gymnax", "registered_envs"),
        (BSUITE, "bsuite.sweep", "SWEEP"),
        (GYMNASIUM, "gymnasium", "registry"),
    ):
        try:
            names = list(getattr(importlib.import_module(module), registered))
        except ImportError:
            continue
        for name in reversed(names) if prefix == BSUITE else names:  # the first of bsuite's ids, the last version
            for word in (name, re.sub(r"(-v|/)\d+$", "", name)):
                found["".join(letter for letter in word.lower() if letter.isalnum())] = f"{prefix}{name}"
    return found


def _gymnax(name: str) -> Environment:
    try:
        import gymnax
    except ImportError as error:
        raise ValueError(f'{error}; install what it needs with: pip install "priorax[gymnax]"') from None
    one_of("env", name, gymnax.registered_envs)
    try:
        return gymnax.make(name)[0]
    except OSError as error:
        raise ValueError(
            f"env={GYMNAX + name!r} cannot be made: it fetches its data ({error}); choose another"
        ) from None


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
