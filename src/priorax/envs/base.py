"""The interface of compiled environments, that of gymnax 1.x: any object with these members can be used.

    num_actions
    default_params
    reset(key, params)                -> observation, state
    step(key, state, action, params)  -> observation, state, reward, terminated, truncated, info

`step` resets automatically at the end of an episode; the last observation of that episode is
`info["final_observation"]`.

Optional members:

- `num_states`: observations are state indices below it; with `end_state` the one after the last step equals it.
- `action_bound`: actions are arrays of `num_actions` numbers between minus and plus this bound.
- `inputs`: scale and structure of the components of an observation (`Inputs`). (The spaces of gymnax provide these
  three.)
- `horizon`: maximum number of steps of an episode.
- `params(key)`: draws the parameters of the environment.
- `info["steps"]`: environment steps taken, if more than one (see `Held`).
- `info["bad"]` and `tells_regret`, `optimal_path(params)`, `optimal_values(params, discount)`, `optimal_return`: for
  tasks whose optimal policy is known (see `DeepSea`).
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.envs.inputs import UNKNOWN, Inputs


@runtime_checkable
class Environment(Protocol):
    """A compiled environment with the interface of gymnax 1.x."""

    @property
    def num_actions(self) -> int:
        """Number of discrete actions, or dimension of continuous ones."""
        ...

    @property
    def default_params(self) -> Any:
        """Parameters to use if none are drawn."""
        ...

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[PyTree, PyTree]:
        """Start an episode.

        Args:
            key: A PRNG key.
            params: Parameters of the environment.

        Returns:
            The first observation, and the state.
        """
        ...

    def step(
        self, key: PRNGKeyArray, state: PyTree, action: Any, params: Any
    ) -> tuple[PyTree, PyTree, Array, Array, Array, dict[str, Any]]:
        """Take one step, and start the next episode if this one ends.

        Args:
            key: A PRNG key.
            state: The state, from `reset` or `step`.
            action: The action.
            params: Parameters of the environment.

        Returns:
            The next observation, the next state, the reward, whether the episode terminated, whether it was truncated,
            and a dictionary with at least "final_observation": the observation before an automatic reset.
        """
        ...


def action_bound(env: Any) -> float | None:
    """Return the bound of continuous actions.

    Args:
        env: A compiled environment.

    Returns:
        The bound; None if actions are discrete.
    """
    if hasattr(env, "action_bound"):
        return env.action_bound
    space = _space(env, "action_space")
    return None if space is None or hasattr(space, "n") else float(space.high)


def num_states(env: Any) -> int | None:
    """Return the number of discrete states.

    Args:
        env: A compiled environment.

    Returns:
        The number of states, if observations are state indices; None if they are arrays.
    """
    if hasattr(env, "num_states"):
        return env.num_states
    count = getattr(_space(env, "observation_space"), "n", None)
    return None if count is None else int(count)


def inputs_of(env: Any) -> Inputs:
    """Return what an environment says about the components of its observations.

    Args:
        env: A compiled environment.

    Returns:
        Its `inputs`, or what its observation space says; unknown fields are empty.
    """
    if hasattr(env, "inputs"):
        return env.inputs
    space = _space(env, "observation_space")
    if not hasattr(space, "low") or len(space.shape) != 1:
        return UNKNOWN
    return Inputs.from_bounds(*(np.broadcast_to(bound, space.shape) for bound in (space.low, space.high)))


def _space(env: Any, name: str) -> Any:
    """Get a space of a gymnax environment, if it has one."""
    return getattr(env, name)(env.default_params) if hasattr(env, name) else None
