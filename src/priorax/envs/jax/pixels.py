"""DeepSea as a picture: what to explore is known to the last cell, what is seen is a frame like Atari's."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from priorax.checks import positive_int
from priorax.envs.jax.deep_sea import DeepSea, DeepSeaState, Params


@dataclass(frozen=True)
class PixelDeepSea:
    """DeepSea, seen as a grey picture: the diver's cell is white, all else black, and all is black at the end."""

    size: int = 10
    """N."""
    side: int = 84
    """Pixels of the picture, each way; at least N, so that every cell shows."""
    windy: bool = False
    """As in DeepSea."""

    def __post_init__(self) -> None:
        positive_int("size", self.size)
        if positive_int("side", self.side) < self.size:
            raise ValueError(
                f"side={self.side} must be at least size={self.size}, or some cells do not show; pass side={self.size}"
            )

    @property
    def sea(self) -> DeepSea:
        """What the picture shows."""
        return DeepSea(self.size, windy=self.windy)

    @property
    def num_actions(self) -> int:
        return self.sea.num_actions

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return self.sea.horizon

    @property
    def default_params(self) -> Params:
        return self.sea.default_params

    @property
    def tells_regret(self) -> bool:
        return self.sea.tells_regret

    @property
    def optimal_return(self) -> float:
        """Of the best policy, in expectation."""
        return self.sea.optimal_return

    def params(self, key: PRNGKeyArray) -> Params:
        """An action mask."""
        return self.sea.params(key)

    def picture(self, index: Int[Array, ""]) -> UInt8[Array, "side side"]:
        """Of DeepSea's observation: the cell's index, or N*N at the end, which is a row below the last."""
        cell = jnp.arange(self.side) * self.size // self.side  # the row, or the column, that each pixel shows
        here = (cell[:, None] == index // self.size) & (cell == index % self.size)
        return jnp.where(here, 255, 0).astype(jnp.uint8)

    def reset(self, key: PRNGKeyArray, params: Params) -> tuple[Array, DeepSeaState]:
        index, state = self.sea.reset(key, params)
        return self.picture(index), state

    def step(
        self, key: PRNGKeyArray, state: DeepSeaState, action: Any, params: Params
    ) -> tuple[Array, DeepSeaState, Array, Array, Array, dict[str, Any]]:
        index, state, reward, terminated, truncated, info = self.sea.step(key, state, action, params)
        info = {**info, "final_observation": self.picture(info["final_observation"])}
        return self.picture(index), state, reward, terminated, truncated, info

    def optimal_path(self, params: Params) -> tuple[Array, Array]:
        """The pictures on the way to the treasure, and the actions that lead there."""
        indices, actions = self.sea.optimal_path(params)
        return jax.vmap(self.picture)(indices), actions
