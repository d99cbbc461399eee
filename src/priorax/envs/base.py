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

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.envs.bounds import scale_of_bounds


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
