"""The paper's cartpole swing-up on MuJoCo through `dm_control`, as a Gymnasium environment (extra `control`).

Task, actions and observations are those of the compiled `CartpoleSwingup`; MuJoCo computes the physics.
"""

import os
from typing import Any

import jax
import numpy as np

from priorax.envs.jax.cartpole import CartpoleState, CartpoleSwingup

try:
    os.environ.setdefault("MUJOCO_GL", "egl")  # headless rendering; read when dm_control is imported
    import gymnasium
    from dm_control import suite
except ImportError as error:
    raise ImportError(f"{error}; install it with: pip install 'priorax[control]'") from None


class ControlCartpole(gymnasium.Env[np.ndarray, Any]):
    """Cartpole swing-up on MuJoCo.

    Args:
        task: Reward, actions and episode length; by default those of the paper.
        render_mode: "rgb_array" or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 100}  # noqa: RUF012

    def __init__(self, task: CartpoleSwingup | None = None, render_mode: str | None = None) -> None:
        self.task = task or CartpoleSwingup()
        self.render_mode = render_mode
        self.simulation = suite.load("cartpole", "swingup_sparse")
        self.physics = self.simulation.physics
        self.time = 0
        self._paid = jax.jit(self.task.reward)
        most = np.array([1.0, 1.0, 1e3, 10.0, 1e3])
        self.observation_space = gymnasium.spaces.Box(-most, most, dtype=np.float64)
        if self.task.pushes:
            self.action_space: Any = gymnasium.spaces.Discrete(len(self.task.pushes))
        else:
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode with the pole hanging down.

        Args:
            seed: Seed of the initial state.
            options: `{"state": (x, theta, x', theta')}` sets the initial state.

        Returns:
            The first observation, and an empty dictionary.
        """
        super().reset(seed=seed)
        start = 0.01 * self.np_random.standard_normal(4) + np.array([0.0, np.pi, 0.0, 0.0])
        if options and "state" in options:
            start = np.asarray(options["state"], float)
        self.simulation.reset()
        with self.physics.reset_context():
            self.physics.data.qpos[:], self.physics.data.qvel[:] = start[:2], start[2:]
        self.time = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step of 0.01 s.

        Args:
            action: Index of the push, or the push itself.

        Returns:
            Observation, reward, terminated, truncated, and an empty dictionary.
        """
        u = self.task.pushes[int(action)] if self.task.pushes else float(np.clip(np.reshape(action, ()), -1, 1))
        self.physics.set_control([u])
        self.physics.step()
        self.time += 1
        return self._observation(), self._reward(u), False, self.time >= self.task.steps, {}

    def render(self) -> np.ndarray:
        """Render an image.

        Returns:
            The image [240, 320, 3].

        Raises:
            OSError: If no headless renderer is available.
        """
        try:
            return self.physics.render(240, 320, camera_id=0)
        except Exception as error:  # graphics libraries raise various errors
            raise OSError(
                f"MuJoCo cannot render on this machine ({error}); install EGL, or OSMesa and set MUJOCO_GL=osmesa"
            ) from error

    def state(self) -> np.ndarray:
        """Return x, theta, x', theta'."""
        return np.concatenate([self.physics.data.qpos, self.physics.data.qvel])

    def _observation(self) -> np.ndarray:
        x, theta, x_dot, theta_dot = self.state()
        return np.array([np.cos(theta), np.sin(theta), theta_dot, x, x_dot])

    def _reward(self, u: float) -> float:
        now: Any = [np.asarray(part) for part in (*self.state(), self.time)]
        return float(self._paid(CartpoleState(*now), np.asarray(u)))
