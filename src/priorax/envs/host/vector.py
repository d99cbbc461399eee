"""Vectors of environments on the host: the interface of training loops that are not compiled.

It is Gymnasium's vector interface with NEXT_STEP autoreset: the step that ends an episode returns its true final
observation; the next step ignores the action and returns reward 0 and the first observation of the next episode. A
transition is therefore valid unless the previous step ended an episode.
"""

import typing
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, PRNGKeyArray, PyTree

from priorax.checks import checked_seed, positive_int
from priorax.envs.inputs import UNKNOWN, Inputs
from priorax.envs.interface import Sight, is_picture, parts_of


class VectorStep(NamedTuple):
    """The results of one step, one row per environment."""

    obs: np.ndarray
    """Observations, in the form of `reset`; at the end of an episode its final observation."""
    reward: Float32[np.ndarray, " num_envs"]
    """Rewards, not clipped."""
    terminated: Bool[np.ndarray, " num_envs"]
    """Whether the episode reached a terminal state."""
    truncated: Bool[np.ndarray, " num_envs"]
    """Whether the episode was truncated, for example by a time limit."""
    life_lost: Bool[np.ndarray, " num_envs"]
    """Whether a life was lost though the game continues; False in games without lives."""


@runtime_checkable
class VectorWorld(Protocol):
    """A vector of environments with discrete actions."""

    num_envs: int
    """Number of environments."""
    num_actions: int
    """Number of actions."""
    frame_shape: tuple[int, ...]
    """Shape of one frame; () for a state index."""
    frame_dtype: np.dtype
    """Type of a frame."""
    stack: int
    """Frames per observation, oldest first: observations are [num_envs, stack, *frame_shape], or [num_envs,
    *frame_shape] if `stack` is 1.
    """

    def reset(self, seed: int) -> np.ndarray:
        """Start a new episode in every environment.

        Args:
            seed: Random seed; the same seed gives the same results.

        Returns:
            The first observations.
        """
        ...

    def step(self, actions: np.ndarray) -> VectorStep:
        """Take one action in each environment.

        Args:
            actions: One action index per environment.

        Returns:
            Observations, rewards and ends of episodes.
        """
        ...

    def close(self) -> None:
        """Release threads and memory."""
        ...


class _Progress(NamedTuple):
    """Progress of one compiled environment."""

    state: PyTree
    """State of the environment; after the end of an episode, the initial state of the next one."""
    first: Array
    """Observation of that state."""
    over: Array
    """Whether an episode has just ended, so that the next step starts another."""


class CompiledWorld:
    """`num_envs` copies of a compiled environment, with the same parameters and different random numbers.

    Environment i resets with the key `fold_in(fold_in(key(seed), i), 0)`, and takes step t = 1, 2, ... with t in place
    of 0, so that it does not depend on the others or their number.

    Args:
        env: The environment.
        num_envs: Number of copies.
        params: Parameters of the environment; by default its `default_params`.

    Raises:
        ValueError: If actions are continuous, or observations are not single arrays.
    """

    stack = 1
    """Frames per observation."""

    def __init__(self, env: Any, num_envs: int, params: Any = None) -> None:
        from priorax.envs.base import action_bound, inputs_of, num_states

        if action_bound(env) is not None:
            raise ValueError(
                f"env={env!r} has continuous actions, but agents on the host need discrete ones; use the agent d4pg in "
                "a compiled environment (priorax.train('d4pg', ...)), or an environment with discrete actions"
            )
        self.env = env
        self.num_envs = positive_int("num_envs", num_envs)
        self.num_actions = int(env.num_actions)
        self.params = env.default_params if params is None else params
        seen = jax.eval_shape(env.reset, jax.random.key(0), self.params)[0]
        if not isinstance(seen, jax.ShapeDtypeStruct):
            raise ValueError(
                f"env={env!r} has observations of type {type(seen).__name__}, which must be one array; concatenate "
                "the parts into one"
            )
        self.frame_shape: tuple[int, ...] = tuple(seen.shape)
        self.frame_dtype = np.dtype(seen.dtype)
        self.num_states: int | None = num_states(env)
        self.inputs = inputs_of(env)
        self.end_state = bool(getattr(env, "end_state", False))
        self._key: PRNGKeyArray | None = None
        self._places = np.arange(self.num_envs)
        self._time = 0
        self._progress: _Progress | None = None
        self._reset = jax.jit(jax.vmap(self._reset_one, (None, 0)))
        self._step = jax.jit(jax.vmap(self._step_one, (None, 0, None, 0, 0)))

    def reset(self, seed: int) -> np.ndarray:
        """Start a new episode in every environment.

        Args:
            seed: Random seed; the same seed gives the same results.

        Returns:
            The first observations.
        """
        self._key, self._time = jax.random.key(checked_seed(seed)), 0
        self._progress = self._reset(self._key, self._places)
        return np.asarray(self._progress.first)

    def step(self, actions: np.ndarray) -> VectorStep:
        """Take one action in each environment.

        Args:
            actions: One action index per environment.

        Returns:
            Observations, rewards and ends of episodes.
        """
        chosen = checked_actions(actions, self.num_envs, self.num_actions)
        if self._progress is None:
            raise ValueError(NOT_RESET)
        self._time += 1
        self._progress, *gave = self._step(self._key, self._places, self._time, self._progress, chosen)
        obs, reward, terminated, truncated = (np.asarray(part) for part in gave)
        return VectorStep(obs, reward, terminated, truncated, np.zeros(self.num_envs, bool))

    def close(self) -> None:
        """Release the states."""
        self._progress = None

    def _reset_one(self, key: PRNGKeyArray, i: Array) -> _Progress:
        first, state = self.env.reset(jax.random.fold_in(jax.random.fold_in(key, i), 0), self.params)
        return _Progress(state, first, jnp.zeros((), bool))

    def _step_one(
        self, key: PRNGKeyArray, i: Array, t: Any, before: _Progress, action: Array
    ) -> tuple[_Progress, Array, Array, Array, Array]:
        key = jax.random.fold_in(jax.random.fold_in(key, i), t)
        first, state, reward, terminated, truncated, info = self.env.step(key, before.state, action, self.params)
        going = ~before.over
        obs = jnp.where(going, info["final_observation"], before.first)
        state, first = jax.tree.map(lambda a, b: jnp.where(going, a, b), (state, first), (before.state, before.first))
        terminated, truncated = terminated & going, truncated & going
        reward = jnp.where(going, reward, 0).astype(jnp.float32)
        return _Progress(state, first, terminated | truncated), obs, reward, terminated, truncated


class GymnasiumWorld:
    """A Gymnasium 1.x vector environment with discrete actions.

    Observations become state indices (Discrete), images [channel, height, width] of bytes (a Box of bytes with two or
    three dimensions, channels first or last), or float32 numbers (any other Box; dictionaries, tuples and so on are
    flattened to one vector). Close the environment through this class.

    Args:
        env: A vector environment, for example from `gymnasium.make_vec`.

    Raises:
        ValueError: If it is not a vector environment, does not use NEXT_STEP autoreset, or has spaces that are not
            supported.
    """

    stack = 1
    """Frames per observation."""

    def __init__(self, env: Any) -> None:
        try:
            from gymnasium import spaces
            from gymnasium.vector import AutoresetMode, VectorEnv
        except ImportError as error:
            raise ValueError(f'{error}; install it with: pip install "priorax[gymnasium]"') from None
        if not isinstance(env, VectorEnv):
            raise ValueError(f"env={env!r} must be a vector environment; create one with gymnasium.make_vec")
        mode = env.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"env has autoreset_mode={mode}, but must have AutoresetMode.NEXT_STEP; pass "
                "vector_kwargs={'autoreset_mode': AutoresetMode.NEXT_STEP} to gymnasium.make_vec"
            )
        acts, sees = env.single_action_space, typing.cast(Any, env.single_observation_space)
        if not isinstance(acts, spaces.Discrete):
            raise ValueError(
                f"env has the action space {acts}, but must have a Discrete one; choose a few of its actions and wrap "
                "it: gymnasium.wrappers.TransformAction(env, lambda i: ACTIONS[i], "
                "gymnasium.spaces.Discrete(len(ACTIONS))). The agent for continuous actions, d4pg, runs in compiled "
                "environments only, such as gymnax:Pendulum-v1"
            )
        parts: Any = None
        if not isinstance(sees, (spaces.Box, spaces.Discrete)):
            parts = parts_of(sees)
            sees = spaces.flatten_space(sees)
        self.env = env
        self.num_envs = int(env.num_envs)
        self.num_actions = int(acts.n)
        self.first_action = int(acts.start)
        """Number that the environment uses for action 0."""
        self.num_states: int | None = None
        """Number of states, if observations are state indices."""
        self.inputs = UNKNOWN
        """Scale and structure of the components of an observation; without a scale if its bounds are unknown."""
        first_state, channels_last = 0, False
        shape: tuple[int, ...] = tuple(sees.shape or ())
        self.frame_shape = shape
        self.frame_dtype: np.dtype[Any] = np.dtype(np.float32)
        if isinstance(sees, spaces.Discrete):
            self.num_states, first_state = int(sees.n), int(sees.start)
            self.frame_dtype = np.dtype(np.int32)
        elif sees.dtype == np.uint8 and len(shape) in (2, 3):
            self.frame_dtype = np.dtype(np.uint8)
            self.frame_shape, channels_last = channels_first(shape)
            if not is_picture(self.frame_shape, self.frame_dtype):  # small codes, such as MiniGrid's
                self.inputs = Inputs((1 / max(1, int(np.max(env.reset(seed=0)[0]))),))
        elif not np.issubdtype(sees.dtype, np.number) and sees.dtype != np.bool_:
            raise ValueError(
                f"env has observations of type {sees.dtype}, which must be numeric; wrap it to convert them"
            )
        elif len(self.frame_shape) == 1:
            self.inputs = Inputs.from_bounds(sees.low, sees.high)
        self.sight = Sight(
            shape, self.frame_shape, self.frame_dtype.name, first_state, channels_last=channels_last, parts=parts
        )
        self._started = False

    def reset(self, seed: int) -> np.ndarray:
        """Start a new episode in every environment.

        Args:
            seed: Random seed; the same seed gives the same results.

        Returns:
            The first observations.
        """
        obs, _ = self.env.reset(seed=first_seed(seed))
        self._started = True
        return self.sight(obs)

    def step(self, actions: np.ndarray) -> VectorStep:
        """Take one action in each environment.

        Args:
            actions: One action index per environment.

        Returns:
            Observations, rewards and ends of episodes.
        """
        chosen = checked_actions(actions, self.num_envs, self.num_actions)
        if not self._started:
            raise ValueError(NOT_RESET)
        obs, reward, terminated, truncated, _ = self.env.step(chosen + self.first_action)
        return VectorStep(
            self.sight(obs),
            np.asarray(reward, np.float32),
            np.array(terminated, bool),
            np.array(truncated, bool),
            np.zeros(self.num_envs, bool),
        )

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        self._started = False


def channels_first(shape: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Return the shape of an image with its channels first.

    Args:
        shape: Shape of the image, channels first or last.

    Returns:
        The shape with channels first, and whether they were last.
    """
    last = len(shape) == 3 and shape[2] < min(shape[:2])
    return ((shape[2], *shape[:2]) if last else shape), last


NOT_RESET = "step was called before reset; call reset(seed) first, for example reset(0)"
"""Message for a step before the first reset."""


def checked_actions(actions: np.ndarray, num_envs: int, num_actions: int) -> np.ndarray:
    """Check a vector of actions. (The Arcade Learning Environment hangs on an invalid action.)

    Args:
        actions: One action index per environment.
        num_envs: Number of environments.
        num_actions: Number of actions.

    Returns:
        The actions as 64-bit integers.

    Raises:
        ValueError: If the shape, the type or a value is wrong.
    """
    found = np.asarray(actions)
    if found.shape != (num_envs,) or not np.issubdtype(found.dtype, np.integer):
        raise ValueError(
            f"actions has shape {found.shape} and type {found.dtype}, but must be {num_envs} integers; "
            "pass one per environment"
        )
    if found.min() < 0 or found.max() >= num_actions:
        raise ValueError(f"actions={found} must be at least 0 and below {num_actions}; pass indices of actions")
    return found.astype(np.int64)


def first_seed(seed: int) -> int:
    """Return the seed of the first of several environments that are seeded consecutively.

    Seeds of different vectors are far apart, so that the second environment of seed 0 differs from the first of seed 1.

    Args:
        seed: Seed of the vector.

    Returns:
        Seed of the first environment.
    """
    return int(np.random.SeedSequence(checked_seed(seed)).generate_state(1)[0] >> 2)
