"""Environments in the shape of gymnax 1.x, by duck typing: any such environment runs in the compiled loop.

    num_actions
    default_params
    reset(key, params)                -> observation, state
    step(key, state, action, params)  -> observation, state, reward, terminated, truncated, info

`step` resets by itself; the observation before that reset is `info["final_observation"]`.
"""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, PRNGKeyArray, PyTree


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
