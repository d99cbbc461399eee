"""Cartpole swing-up with sparse reward (section 4.2.2, appendix B.2), compiled.

The physics are those of the DeepMind control suite's cartpole as MuJoCo integrates it: fourth-order Runge-Kutta steps
of 0.01 s, the masses, inertia, damping and gear of its model, and its soft rail in every stage. Over 1,000 steps that
hit the rail, in float64, the difference to `dm_control` stays within 1e-8 if MuJoCo's solver runs to convergence; by
default it stops early at the rail, with an error of about 1e-7 that the chaotic pole amplifies to between 1e-5 and
1e-2.

The reward is the paper's: +1 where the pole is upright (cos theta > 0.95), the cart central (|x| < 0.1) and both slow
(|theta'| < 1, |x'| < 1), minus 0.1 |u| for pushing. `smooth=True` uses the control suite's smooth reward of at most 1
per step, and `upright=True` starts with the pole up: the suite's tasks `swingup` and `balance`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from priorax.checks import positive, positive_int
from priorax.envs.inputs import Inputs

CART, POLE, CENTRE, INERTIA = 1.0, 0.1, 0.5, 0.0094245927672955976
"""Masses of cart and pole, distance of the pole's centre of mass from the hinge, and its inertia about that centre."""
GRAVITY, SLIDER_DAMPING, HINGE_DAMPING, GEAR = 9.81, 5e-4, 2e-6, 10.0
RAIL = 1.8
STEP = 0.01
_ABOUT_HINGE = INERTIA + POLE * CENTRE**2
UPRIGHT_MOBILITY = _ABOUT_HINGE / ((CART + POLE) * _ABOUT_HINGE - (POLE * CENTRE) ** 2)
"""Acceleration of the cart per unit force with the pole upright; MuJoCo softens the rail by it."""


class CartpoleState(NamedTuple):
    """Positions and velocities of cart and pole (theta = 0 is upright), and the number of steps."""

    x: Float[Array, ""]
    theta: Float[Array, ""]
    x_dot: Float[Array, ""]
    theta_dot: Float[Array, ""]
    time: Int[Array, ""]


@dataclass(frozen=True)
class CartpoleSwingup:
    """Cartpole swing-up with sparse reward; actions are indices into `pushes`, or numbers in [-1, 1] if it is empty."""

    pushes: tuple[float, ...] = (-1.0, 0.0, 1.0)
    """Push of each action; () for continuous actions."""
    height: float = 0.95
    """The reward requires cos theta above this."""
    reach: float = 0.1
    """The reward requires |x| below this."""
    speed: float = 1.0
    """The reward requires |theta'| and |x'| below this."""
    push_cost: float = 0.1
    """Cost of a push, per unit of |u|."""
    smooth: bool = False
    """Whether to use the control suite's smooth reward instead."""
    upright: bool = False
    """Whether to start with the pole up."""
    steps: int = 1000
    """Steps of an episode, which is then truncated."""

    def __post_init__(self) -> None:
        positive_int("steps", self.steps)
        positive("reach", self.reach)
        positive("speed", self.speed)

    @property
    def num_actions(self) -> int:
        """Number of discrete actions, or dimension of continuous ones."""
        return len(self.pushes) or 1

    @property
    def action_bound(self) -> float | None:
        """Bound of continuous actions; None if actions are discrete."""
        return None if self.pushes else 1.0

    @property
    def inputs(self) -> Inputs:
        """Pole and cart; the knees are 1 rad/s, 0.3 m and 1 m/s."""
        return Inputs(scale=(1.0, 1.0, 0.2, 1.0, 0.4), groups=((0, 1, 2), (3, 4)), knees=(0.0, 0.0, 1.0, 0.3, 1.0))

    @property
    def horizon(self) -> int:
        return self.steps

    @property
    def default_params(self) -> tuple[()]:
        return ()

    def reset(self, key: PRNGKeyArray, params: Any) -> tuple[Array, CartpoleState]:
        """Start an episode.

        The pole hangs down, and the state is perturbed by normal noise of standard deviation 0.01. With `upright`, as
        in the control suite, the pole is up within 0.034 and the cart within 0.1.

        Args:
            key: A PRNG key.
            params: Not used.

        Returns:
            The first observation, and the state.
        """
        x, theta, x_dot, theta_dot = 0.01 * jax.random.normal(key, (4,))
        theta = np.pi + theta
        if self.upright:
            x, theta = jnp.array([0.1, 0.034]) * jax.random.uniform(key, (2,), minval=-1.0)
        state = CartpoleState(x, theta, x_dot, theta_dot, jnp.zeros((), int))
        return self.observe(state), state

    def observe(self, state: CartpoleState) -> Float[Array, "5"]:
        """Return the observation of a state.

        Args:
            state: The state.

        Returns:
            cos theta, sin theta, theta', x, x'.
        """
        return jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot, state.x, state.x_dot])

    def push(self, action: Any) -> Float[Array, ""]:
        """Return the push of an action.

        Args:
            action: Index of the push, or the push itself.

        Returns:
            The push u in [-1, 1].
        """
        if self.pushes:
            return jnp.asarray(self.pushes)[action]
        return jnp.clip(jnp.reshape(action, ()), -1.0, 1.0)

    def reward(self, state: CartpoleState, u: Float[Array, ""]) -> Float[Array, ""]:
        """Return the reward of a transition.

        Args:
            state: The state after the step.
            u: The push.

        Returns:
            The reward.
        """
        if self.smooth:
            high, central = (1 + jnp.cos(state.theta)) / 2, (1 + _near(state.x / 2)) / 2
            return high * central * (4 + 1 - u**2) / 5 * (1 + _near(state.theta_dot / 5)) / 2
        up = (jnp.cos(state.theta) > self.height) & (jnp.abs(state.x) < self.reach)
        slow = (jnp.abs(state.theta_dot) < self.speed) & (jnp.abs(state.x_dot) < self.speed)
        return jnp.where(up & slow, 1.0, 0.0) - self.push_cost * jnp.abs(u)

    def step(
        self, key: PRNGKeyArray, state: CartpoleState, action: Any, params: Any
    ) -> tuple[Array, CartpoleState, Array, Array, Array, dict[str, Any]]:
        u = self.push(action)
        after = advance(state, u)
        truncated = after.time >= self.steps
        first, start = self.reset(key, params)
        final = self.observe(after)
        following = jax.tree.map(lambda a, b: jnp.where(truncated, a, b), start, after)
        obs = jnp.where(truncated, first, final)
        return obs, following, self.reward(after, u), jnp.zeros((), bool), truncated, {"final_observation": final}


def _near(x: Float[Array, ""]) -> Float[Array, ""]:
    """Evaluate the bell curve of the control suite's `tolerance`: 1 at zero, 0.1 at one."""
    return 0.1 ** (x**2)


def advance(state: CartpoleState, u: Float[Array, ""]) -> CartpoleState:
    """Take one Runge-Kutta step of 0.01 s.

    Args:
        state: The state.
        u: The push.

    Returns:
        The next state.
    """
    y = jnp.stack(state[:4])
    k1 = _velocity(y, u)
    k2 = _velocity(y + STEP / 2 * k1, u)
    k3 = _velocity(y + STEP / 2 * k2, u)
    k4 = _velocity(y + STEP * k3, u)
    x, theta, x_dot, theta_dot = y + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return CartpoleState(x, theta, x_dot, theta_dot, state.time + 1)


def _velocity(y: Float[Array, "4"], u: Float[Array, ""]) -> Float[Array, "4"]:
    """Compute the time derivative of (x, theta, x', theta')."""
    x, theta, x_dot, theta_dot = y
    a11, a12, a22 = CART + POLE, POLE * CENTRE * jnp.cos(theta), _ABOUT_HINGE
    push = GEAR * u - SLIDER_DAMPING * x_dot + POLE * CENTRE * jnp.sin(theta) * theta_dot**2
    fall = POLE * GRAVITY * CENTRE * jnp.sin(theta) - HINGE_DAMPING * theta_dot
    det = a11 * a22 - a12**2
    x_acc, theta_acc = (a22 * push - a12 * fall) / det, (a11 * fall - a12 * push) / det
    force = _rail_force(x, x_dot, x_acc, a22 / det)
    side = -jnp.sign(x)
    return jnp.stack([x_dot, theta_dot, x_acc + side * force * a22 / det, theta_acc - side * force * a12 / det])


def _rail_force(x: Array, x_dot: Array, x_acc: Array, mobility: Array) -> Float[Array, ""]:
    """Compute the force of MuJoCo's soft constraint at the rail's ends: impedance by depth, spring and damper."""
    depth = RAIL - jnp.abs(x)
    side = -jnp.sign(x)
    share = jnp.clip(-depth / 0.001, 0.0, 1.0)
    bend = jnp.where(share <= 0.5, 2 * share**2, 1 - 2 * (1 - share) ** 2)
    impedance = 0.9 + 0.05 * bend
    stiffness, damping = 1 / (0.95 * 0.08) ** 2, 2 / (0.95 * 0.08)
    regular = (1 - impedance) / impedance * UPRIGHT_MOBILITY
    wanted = -damping * side * x_dot - stiffness * impedance * depth - side * x_acc
    return jnp.where(depth < 0, jnp.maximum(0.0, wanted / (mobility + regular)), 0.0)
