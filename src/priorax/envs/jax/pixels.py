"""DeepSea with image observations of the size of Atari frames."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from priorax.checks import positive_int
from priorax.envs.jax.deep_sea import DeepSea, DeepSeaState, Params


@dataclass(frozen=True)
class PixelDeepSea:
    """DeepSea observed as a grey image: the agent's cell is white, all else black; the final observation is black."""

    size: int = 10
    """Size of the grid, N."""
    side: int = 84
    """Height and width of the image in pixels; at least N, so that every cell is visible."""
    windy: bool = False
    """Whether transitions are stochastic, as in `DeepSea`."""

    def __post_init__(self) -> None:
        positive_int("size", self.size)
        if positive_int("side", self.side) < self.size:
            raise ValueError(
                f"side={self.side} must be at least size={self.size}, or cells are invisible; pass side={self.size}"
            )

    @property
    def sea(self) -> DeepSea:
        """The DeepSea that the images show."""
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
        """Expected return of the optimal policy."""
        return self.sea.optimal_return

    def params(self, key: PRNGKeyArray) -> Params:
        """Draw an action mask.

        Args:
            key: A PRNG key.

        Returns:
            The action mask.
        """
        return self.sea.params(key)

    def picture(self, index: Int[Array, ""]) -> UInt8[Array, "side side"]:
        """Render an observation of DeepSea.

        Args:
            index: Index of the cell, or N*N at the end of an episode.

        Returns:
            The image.
        """
        cell = jnp.arange(self.side) * self.size // self.side  # row or column of the grid at each pixel
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
        """Return the path to the treasure.

        Args:
            params: The action mask.

        Returns:
            The images on the path, and the actions.
        """
        indices, actions = self.sea.optimal_path(params)
        return jax.vmap(self.picture)(indices), actions
