"""Environments in the shape of gymnax 1.x, by duck typing: any such environment runs in the compiled loop.

    num_actions
    default_params
    reset(key, params)                -> observation, state
    step(key, state, action, params)  -> observation, state, reward, terminated, truncated, info

`step` resets by itself; the observation before that reset is `info["final_observation"]`. An environment may also have
`num_states` (observations are indices below it), `action_bound` (actions are arrays of `num_actions` numbers, between
minus and plus this), `input_scale` (what brings each number of an observation to about one; gymnax's spaces say all
three), `horizon` (steps of an episode, at most), `params(key)` (a draw of what varies between seeds),
`info["steps"]` (see `Held`), `info["bad"]` and then `tells_regret`, `optimal_path(params)`,
`optimal_values(params, discount)` and `optimal_return`: see DeepSea.
"""

import dataclasses
import importlib
import re
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.checks import one_of
from priorax.envs.bandits import BernoulliBandit, GaussianProcessBandit, LinearBandit
from priorax.envs.bounds import scale_of_bounds
from priorax.envs.bsuite_cartpole import BsuiteCartpole
from priorax.envs.cartpole import CartpoleSwingup
from priorax.envs.deep_sea import DeepSea
from priorax.envs.held import Held as Held
from priorax.envs.pixels import PixelDeepSea


@runtime_checkable
class Environment(Protocol):
    """See the module's docstring."""

    @property
    def num_actions(self) -> int: ...
    @property
    def default_params(self) -> Any: ...
    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[PyTree, PyTree]: ...
    def step(
        self, key: PRNGKeyArray, state: PyTree, action: Any, params: Any
    ) -> tuple[PyTree, PyTree, Array, Array, Array, dict[str, Any]]: ...


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


def action_bound(env: Any) -> float | None:
    """The bound of continuous actions; None: they are finitely many."""
    if hasattr(env, "action_bound"):
        return env.action_bound
    space = _space(env, "action_space")
    return None if space is None or hasattr(space, "n") else float(space.high)


def num_states(env: Any) -> int | None:
    """Observations are indices below it; None: they are arrays."""
    if hasattr(env, "num_states"):
        return env.num_states
    count = getattr(_space(env, "observation_space"), "n", None)
    return None if count is None else int(count)


def input_scale(env: Any) -> tuple[float, ...]:
    """What brings each number of an observation to about one; nothing where it is not known."""
    if hasattr(env, "input_scale"):
        return env.input_scale
    space = _space(env, "observation_space")
    if not hasattr(space, "low") or len(space.shape) != 1:
        return ()
    return scale_of_bounds(*(np.broadcast_to(bound, space.shape) for bound in (space.low, space.high)))


def _space(env: Any, name: str) -> Any:
    """Gymnax's, where there is one."""
    return getattr(env, name)(env.default_params) if hasattr(env, name) else None
