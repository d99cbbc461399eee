"""DeepSea (section 4.2.1): an N x N grid descended by one row per step, with one rewarding path out of 2^N.

Equal to bsuite's `DeepSea` step by step. The optimal return is 0.99: as in bsuite, and in the paper's numbers, the last
move right has a cost too; the paper's text would give 0.99 + 0.01/N.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from priorax.checks import one_of, positive_int


class Params(NamedTuple):
    """Parameters of DeepSea: the action that moves right in each cell (the paper's W)."""

    right: Int[Array, "row column"]


class DeepSeaState(NamedTuple):
    """The agent's cell, and whether it has chosen to leave the diagonal in this episode."""

    row: Int[Array, ""]
    column: Int[Array, ""]
    bad: Bool[Array, ""]


@dataclass(frozen=True)
class DeepSea:
    """DeepSea; `params(key)` draws an action mask."""

    size: int = 10
    """Size of the grid, N."""
    windy: bool = False
    """Whether moving right fails with probability 1/N, and rewards of the end cells of the last row have N(0, 1) noise.
    """
    observation: str = "index"
    """Form of observations: `index` (row * N + column, and N*N at the end), or `one_hot` (N x N, all zeros at the end,
    as in bsuite).
    """
    move_cost: float = 0.01
    """Total cost of moving right in every step."""
    treasure: float = 1.0
    """Reward in the last column; with 0, novelty is the only incentive (section 4.1)."""
    mapping_seed: int | None = None
    """Seed of bsuite's action mask; None draws the mask in `params`."""

    def __post_init__(self) -> None:
        positive_int("size", self.size)
        one_of("observation", self.observation, ("index", "one_hot"))

    @property
    def num_actions(self) -> int:
        return 2

    @property
    def end_state(self) -> bool:
        """Whether the observation after the last step is the index N*N."""
        return self.observation == "index"

    @property
    def num_states(self) -> int:
        return self.size * self.size

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return self.size

    @property
    def default_params(self) -> Params:
        return self.params(jax.random.key(0))

    @property
    def tells_regret(self) -> bool:
        return True

    @property
    def optimal_return(self) -> float:
        """Expected return of the optimal policy."""
        reach = (1 - 1 / self.size) ** (self.size - 1) if self.windy else 1.0
        return self.treasure * reach - self.move_cost

    def params(self, key: PRNGKeyArray) -> Params:
        """Draw an action mask, W ~ Ber(1/2)^(N x N).

        Args:
            key: A PRNG key; not used if `mapping_seed` is given.

        Returns:
            The action mask.
        """
        if self.mapping_seed is not None:
            mask = np.random.RandomState(self.mapping_seed).binomial(1, 0.5, [self.size, self.size])
            return Params(jnp.asarray(mask, int))
        return Params(jax.random.bernoulli(key, 0.5, (self.size, self.size)).astype(int))

    def reset(self, key: PRNGKeyArray, params: Params) -> tuple[Array, DeepSeaState]:
        state = DeepSeaState(jnp.zeros((), int), jnp.zeros((), int), jnp.zeros((), bool))
        return self.observe(state), state

    def observe(self, state: DeepSeaState) -> Array:
        """Return the observation of a state.

        Args:
            state: The state.

        Returns:
            The observation.
        """
        if self.observation == "index":
            cell = state.row * self.size + state.column
            return jnp.where(state.row < self.size, cell, self.num_states)
        here = (jnp.arange(self.size)[:, None] == state.row) & (jnp.arange(self.size) == state.column)
        return here.astype(float)

    def step(
        self, key: PRNGKeyArray, state: DeepSeaState, action: Any, params: Params
    ) -> tuple[Array, DeepSeaState, Array, Array, Array, dict[str, Any]]:
        last = self.size - 1
        right = action == params.right[state.row, state.column]
        reward = jnp.where(right & (state.column == last), self.treasure, 0.0) - jnp.where(
            right, self.move_cost / self.size, 0.0
        )
        moves = right
        if self.windy:
            key_wind, key_noise = jax.random.split(key)
            moves = right & (jax.random.uniform(key_wind) > 1 / self.size)
            noisy = (state.row == last) & ((state.column == 0) | (state.column == last))
            reward = reward + jnp.where(noisy, jax.random.normal(key_noise), 0.0)
        step = jnp.where(moves, 1, jnp.where(right, 0, -1))
        after = DeepSeaState(
            state.row + 1,
            jnp.clip(state.column + step, 0, last),
            state.bad | (~right & (state.row == state.column)),
        )
        terminated = after.row == self.size
        first, start = self.reset(key, params)
        final = self.observe(after)
        following = jax.tree.map(lambda a, b: jnp.where(terminated, a, b), start, after)
        info = {"final_observation": final, "bad": after.bad}
        return jnp.where(terminated, first, final), following, reward, terminated, jnp.zeros((), bool), info

    def optimal_path(self, params: Params) -> tuple[Array, Array]:
        """Return the path to the treasure.

        Args:
            params: The action mask.

        Returns:
            The observations on the path, and the actions.
        """
        diagonal = jnp.arange(self.size)
        no = jnp.zeros_like(diagonal, bool)
        return jax.vmap(self.observe)(DeepSeaState(diagonal, diagonal, no)), params.right[diagonal, diagonal]

    def optimal_values(self, params: Params, discount: float = 1.0) -> Float[np.ndarray, "row column action"]:
        """Compute Q* by dynamic programming, in expectation over wind and noise.

        Args:
            params: The action mask.
            discount: Discount factor.

        Returns:
            The values.
        """
        n, right = self.size, np.asarray(params.right)
        q = np.zeros((n, n, 2))
        value = np.zeros(n)
        wind = 1 / n if self.windy else 0.0
        columns = np.arange(n)
        for row in range(n - 1, -1, -1):
            left, stay, on = value[np.maximum(columns - 1, 0)], value, value[np.minimum(columns + 1, n - 1)]
            gain = np.where(columns == n - 1, self.treasure, 0.0) - self.move_cost / n
            go = gain + discount * ((1 - wind) * on + wind * stay)
            q[row, columns, right[row]] = go
            q[row, columns, 1 - right[row]] = discount * left
            value = q[row].max(axis=1)
        return q
