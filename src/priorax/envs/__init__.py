"""Environments in the shape of gymnax 1.x, by duck typing: any such environment runs in the compiled loop.

    num_actions
    default_params
    reset(key, params)                -> observation, state
    step(key, state, action, params)  -> observation, state, reward, terminated, truncated, info

`step` resets by itself; the observation before that reset is `info["final_observation"]`. An environment may also have
`num_states` (observations are indices below it), `horizon` (steps of an episode, at most), `params(key)` (a draw of
what varies between seeds), `info["bad"]`, `optimal_path(params)`, `optimal_values(params, discount)` and
`optimal_return`: see DeepSea.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.checks import one_of
from priorax.envs.bandits import BernoulliBandit, GaussianProcessBandit, LinearBandit
from priorax.envs.cartpole import CartpoleSwingup
from priorax.envs.deep_sea import DeepSea


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
    "bernoulli_bandit": lambda size: BernoulliBandit(),
    "linear_bandit": lambda size: LinearBandit(dim=size),
    "gp_bandit": lambda size: GaussianProcessBandit(num_arms=size),
    "cartpole_swingup": lambda size: CartpoleSwingup(),
}
"""By name; each takes a size: of the grid, the dimension of a linear bandit, the arms of a GP bandit (cartpole has
none, and ignores it). Without reward, novelty is the only drive; `bsuite_` ones have the mask of bsuite."""


def make_environment(name: str, size: int) -> Environment:
    """The environment of that name and size."""
    return ENVIRONMENTS[one_of("env", name, ENVIRONMENTS)](size)


def check_discrete(env: Any) -> None:
    """Refuse what the Q-learner cannot act in."""
    space = env.action_space(env.default_params) if hasattr(env, "action_space") else None
    if space is not None and not hasattr(space, "n"):
        raise ValueError(
            f"the environment {type(env).__name__} has continuous actions ({type(space).__name__}); "
            "the Q-learner needs a finite set of them: discretise the actions"
        )
