"""Several environments at once on the host: the one interface of loops that are not compiled.

It is Gymnasium's for vectors of environments, with its NEXT_STEP autoreset: the step that ends an episode gives the
true final observation; the step after it ignores the action, gives reward 0 and the first observation of the next
episode. So a transition is real whenever the step before it ended nothing.
"""

import typing
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, PRNGKeyArray, PyTree

from priorax.checks import checked_seed, positive_int
from priorax.envs.bounds import scale_of_bounds
from priorax.envs.interface import Sight, is_picture, parts_of


class VectorStep(NamedTuple):
    """What one step gave, one row per environment."""

    obs: np.ndarray
    """As `reset` gives them; at an episode's end the last of that episode."""
    reward: Float32[np.ndarray, " num_envs"]
    """As the environment pays it, unclipped."""
    terminated: Bool[np.ndarray, " num_envs"]
    """The episode's true end: nothing follows that could have a value."""
    truncated: Bool[np.ndarray, " num_envs"]
    """The episode was cut short, as by a limit of time."""
    life_lost: Bool[np.ndarray, " num_envs"]
    """A life was lost in this step, though the game goes on; False where there are no lives."""


@runtime_checkable
class VectorWorld(Protocol):
    """See the module's docstring."""

    num_envs: int
    num_actions: int
    frame_shape: tuple[int, ...]
    """Of one frame; () where it is a number, such as an index."""
    frame_dtype: np.dtype
    stack: int
    """Frames that make an observation, oldest first: observations are [num_envs, stack, *frame_shape], or
    [num_envs, *frame_shape] where one frame is enough."""

    def reset(self, seed: int) -> np.ndarray:
        """Begin anew everywhere; the same seed gives the same bits."""
        ...

    def step(self, actions: np.ndarray) -> VectorStep:
        """One action in each."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...


class _Progress(NamedTuple):
    """Where one compiled environment is."""

    state: PyTree
    """Its own; at an episode's end, that of the next one's start."""
    first: Array
    """What is seen in that state."""
    over: Array
    """Whether an episode has just ended, so that the next step is the start of another."""


class CompiledWorld:
    """`num_envs` copies of a compiled environment, which share its `params` and differ in their random numbers.

    Environment i resets with `fold_in(fold_in(key(seed), i), 0)`, and steps for the t-th time, from 1, with t in place
    of that 0: what happens in it depends on neither its companions nor their number.
    """

    stack = 1

    def __init__(self, env: Any, num_envs: int, params: Any = None) -> None:
        from priorax.envs.base import action_bound, input_scale, num_states

        if action_bound(env) is not None:
            raise ValueError(
                f"env={env!r} has continuous actions, and on the host agents choose among finitely many; "
                "use the agent d4pg in the compiled loop (priorax.train('d4pg', ...)), or an environment whose actions "
                "are finitely many"
            )
        self.env = env
        self.num_envs = positive_int("num_envs", num_envs)
        self.num_actions = int(env.num_actions)
        self.params = env.default_params if params is None else params
        seen = jax.eval_shape(env.reset, jax.random.key(0), self.params)[0]
        if not isinstance(seen, jax.ShapeDtypeStruct):
            raise ValueError(
                f"env={env!r} is seen as {type(seen).__name__}, and must be seen as one array; join its parts into one"
            )
        self.frame_shape: tuple[int, ...] = tuple(seen.shape)
        self.frame_dtype = np.dtype(seen.dtype)
        self.num_states: int | None = num_states(env)
        self.input_scale: tuple[float, ...] = input_scale(env)
        self._key: PRNGKeyArray | None = None
        self._places = np.arange(self.num_envs)
        self._time = 0
        self._progress: _Progress | None = None
        self._reset = jax.jit(jax.vmap(self._reset_one, (None, 0)))
        self._step = jax.jit(jax.vmap(self._step_one, (None, 0, None, 0, 0)))

    def reset(self, seed: int) -> np.ndarray:
        self._key, self._time = jax.random.key(checked_seed(seed)), 0
        self._progress = self._reset(self._key, self._places)
        return np.asarray(self._progress.first)

    def step(self, actions: np.ndarray) -> VectorStep:
        chosen = checked_actions(actions, self.num_envs, self.num_actions)
        if self._progress is None:
            raise ValueError(NOT_RESET)
        self._time += 1
        self._progress, *gave = self._step(self._key, self._places, self._time, self._progress, chosen)
        obs, reward, terminated, truncated = (np.asarray(part) for part in gave)
        return VectorStep(obs, reward, terminated, truncated, np.zeros(self.num_envs, bool))

    def close(self) -> None:
        """Forget where the environments are."""
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
    """Any vector of environments of Gymnasium 1.x with finitely many actions. Close it through this class; `env` may be
    made by `gymnasium.make_vec`.

    What is seen becomes an index (Discrete), a picture [channel, height, width] of bytes (a Box of bytes of two or
    three dimensions, its channels first or last), or numbers in 32 bits (any other Box; dictionaries, tuples and
    the like as one row of numbers).
    """

    stack = 1

    def __init__(self, env: Any) -> None:
        try:
            from gymnasium import spaces
            from gymnasium.vector import AutoresetMode, VectorEnv
        except ImportError as error:
            raise ValueError(f'{error}; install what it needs with: pip install "priorax[gymnasium]"') from None
        if not isinstance(env, VectorEnv):
            raise ValueError(f"env={env!r} must be a vector of environments; make one with gymnasium.make_vec")
        mode = env.metadata.get("autoreset_mode")
        if mode != AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"env has autoreset_mode={mode}, and must have AutoresetMode.NEXT_STEP; pass "
                "vector_kwargs={'autoreset_mode': AutoresetMode.NEXT_STEP} to gymnasium.make_vec"
            )
        acts, sees = env.single_action_space, typing.cast(Any, env.single_observation_space)
        if not isinstance(acts, spaces.Discrete):
            raise ValueError(
                f"env has the action space {acts}, and must have a Discrete one; choose a few of its actions and wrap "
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
        """What the environment calls action 0."""
        self.num_states: int | None = None
        """Where what is seen is an index: below it."""
        self.input_scale: tuple[float, ...] = ()
        """What brings each number that is seen to about one, as far as its bounds are known."""
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
            if not is_picture(self.frame_shape, self.frame_dtype):  # codes, mostly far below the 255 of their bounds
                self.input_scale = (1 / max(1, int(np.max(env.reset(seed=0)[0]))),)
        elif not np.issubdtype(sees.dtype, np.number) and sees.dtype != np.bool_:
            raise ValueError(f"env is seen as {sees.dtype}, and must be seen as numbers; wrap it so that it is")
        elif len(self.frame_shape) == 1:
            self.input_scale = scale_of_bounds(sees.low, sees.high)
        self.sight = Sight(
            shape, self.frame_shape, self.frame_dtype.name, first_state, channels_last=channels_last, parts=parts
        )
        self._started = False

    def reset(self, seed: int) -> np.ndarray:
        obs, _ = self.env.reset(seed=first_seed(seed))
        self._started = True
        return self.sight(obs)

    def step(self, actions: np.ndarray) -> VectorStep:
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
        self.env.close()
        self._started = False


def channels_first(shape: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """A picture's shape with its channels first, and whether they were last."""
    last = len(shape) == 3 and shape[2] < min(shape[:2])
    return ((shape[2], *shape[:2]) if last else shape), last


NOT_RESET = "step was called before reset; call reset(seed) first, for example reset(0)"


def checked_actions(actions: np.ndarray, num_envs: int, num_actions: int) -> np.ndarray:
    """One action of each environment, as 64-bit integers, or a ValueError: ALE waits for ever if given an action it
    does not have."""
    found = np.asarray(actions)
    if found.shape != (num_envs,) or not np.issubdtype(found.dtype, np.integer):
        raise ValueError(
            f"actions has shape {found.shape} and type {found.dtype}, and must be {num_envs} whole numbers; "
            "pass one per environment"
        )
    if found.min() < 0 or found.max() >= num_actions:
        raise ValueError(f"actions={found} must be at least 0 and below {num_actions}; pass indices of actions")
    return found.astype(np.int64)


def first_seed(seed: int) -> int:
    """The seed of the first of several environments whose seeds follow each other: far from that of any other `seed`.

    Were it `seed` itself, the second environment of seed 0 would be the first of seed 1.
    """
    return int(np.random.SeedSequence(checked_seed(seed)).generate_state(1)[0] >> 2)
