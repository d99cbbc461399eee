"""bsuite's `cartpole_swingup`, compiled. Its physics differ from those of the DeepMind control suite.

Explicit Euler steps of 0.01 s, no damping, no rail: the episode terminates when |x| exceeds 3, or after 10 s, and the
time is observed. The reward is +1 where cos theta, |theta'| and |x| pass the thresholds of the difficulty, minus 0.1
for pushing. Tested against bsuite step by step.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from priorax.envs.inputs import Inputs

CART, POLE, LENGTH, GRAVITY, FORCE = 1.0, 0.1, 0.5, 9.8, 10.0
STEP, STEPS = 0.01, 1001
"""Seconds per step, and the step at which the summed time exceeds 10 s."""
EDGE, MOVE_COST = 3.0, 0.1
NUM_DIFFICULTIES = 20


class BsuiteCartpoleState(NamedTuple):
    """The state, as in bsuite; theta = 0 is upright."""

    x: Float[Array, ""]
    x_dot: Float[Array, ""]
    theta: Float[Array, ""]
    theta_dot: Float[Array, ""]
    time: Int[Array, ""]


@dataclass(frozen=True)
class BsuiteCartpole:
    """bsuite's `cartpole_swingup/{difficulty}`; a higher difficulty has a smaller rewarded region."""

    difficulty: int = 0
    """Difficulty, from 0 to 19."""

    def __post_init__(self) -> None:
        if not 0 <= self.difficulty < NUM_DIFFICULTIES:
            raise ValueError(
                f"difficulty={self.difficulty} must be between 0 and {NUM_DIFFICULTIES - 1}; pass for example 0"
            )

    @property
    def num_actions(self) -> int:
        return 3

    @property
    def inputs(self) -> Inputs:
        """Cart and pole; scales and knees are those of `CartpoleSwingup` in metres and seconds."""
        return Inputs(
            scale=(3.0, 1.2, 1.0, 1.0, 0.2, 1.0, 1.0, 1.0),
            groups=((0, 1, 6), (2, 3, 4, 7)),
            knees=(0.3 / EDGE, 1 / EDGE, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
        )

    @property
    def horizon(self) -> int:
        return STEPS

    @property
    def default_params(self) -> tuple[()]:
        return ()

    @property
    def height(self) -> float:
        """The reward requires cos theta above this."""
        return self.difficulty / NUM_DIFFICULTIES

    @property
    def reach(self) -> float:
        """The reward requires |x| below this."""
        return 1 - self.difficulty / NUM_DIFFICULTIES

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Array, BsuiteCartpoleState]:
        """Start an episode with the pole hanging down, nearly at rest.

        Args:
            key: A PRNG key.
            params: Not used.

        Returns:
            The first observation, and the state.
        """
        x, x_dot, theta, theta_dot = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        state = BsuiteCartpoleState(x, x_dot, np.pi + theta, theta_dot, jnp.zeros((), int))
        return self.observe(state), state

    def observe(self, state: BsuiteCartpoleState) -> Float[Array, "8"]:
        def inside(flag: Array) -> Array:
            return jnp.where(flag, 1.0, -1.0)

        return jnp.stack(
            [
                state.x / EDGE,
                state.x_dot / EDGE,
                jnp.sin(state.theta),
                jnp.cos(state.theta),
                state.theta_dot,
                state.time * STEP / 10.0,
                inside(jnp.abs(state.x) < self.reach),
                inside(jnp.abs(state.theta_dot) < 1),
            ]
        )

    def step(
        self, key: PRNGKeyArray, state: BsuiteCartpoleState, action: Any, params: Any
    ) -> tuple[Array, BsuiteCartpoleState, Array, Array, Array, dict[str, Any]]:
        after = advance(state, action)
        up = (jnp.cos(after.theta) > self.height) & (jnp.abs(after.theta_dot) < 1) & (jnp.abs(after.x) < self.reach)
        reward = jnp.where(up, 1.0, 0.0) - MOVE_COST * jnp.abs(action - 1)
        terminated = (after.time >= STEPS) | (jnp.abs(after.x) > EDGE)
        first, start = self.reset(key, params)
        final = self.observe(after)
        following = jax.tree.map(lambda a, b: jnp.where(terminated, a, b), start, after)
        obs = jnp.where(terminated, first, final)
        return obs, following, reward, terminated, jnp.zeros((), bool), {"final_observation": final}


def advance(state: BsuiteCartpoleState, action: Any) -> BsuiteCartpoleState:
    """Take one Euler step.

    Args:
        state: The state.
        action: 0, 1 or 2: push left, none, right.

    Returns:
        The next state.
    """
    cos, sin = jnp.cos(state.theta), jnp.sin(state.theta)
    total = CART + POLE
    push = (FORCE * (action - 1) + POLE * LENGTH * state.theta_dot**2 * sin) / total
    theta_acc = (GRAVITY * sin - cos * push) / (LENGTH * (4 / 3 - POLE * cos**2 / total))
    x_acc = push - POLE * LENGTH * theta_acc * cos / total
    return BsuiteCartpoleState(
        state.x + STEP * state.x_dot,
        state.x_dot + STEP * x_acc,
        jnp.remainder(state.theta + STEP * state.theta_dot, 2 * np.pi),
        state.theta_dot + STEP * theta_acc,
        state.time + 1,
    )
