"""Observation and action spaces of an environment, serialisable as JSON.

They suffice to build an agent's networks, and to query the agent for actions without the environment.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from priorax.convnets import SMALL_NET, least_side
from priorax.envs.base import action_bound, inputs_of, num_states
from priorax.envs.inputs import UNKNOWN, Inputs

SMALLEST_PICTURE = least_side(SMALL_NET)
"""Minimum height and width in pixels for convolutions. Smaller byte arrays, such as MiniGrid's, are treated as vectors.
"""


@dataclass(frozen=True)
class Sight:
    """The conversion of an environment's observations, single or batched, to the form that networks see.

    That form is a state index from 0, an array of numbers, or an image with channels first. Observations in parts
    (dictionaries, tuples) are flattened to one vector, as by `gymnasium.spaces.flatten`; a batch of them is a list, or
    has a batch axis in every part.
    """

    shape: tuple[int, ...]
    """Shape of one observation, as the environment returns it."""
    frame_shape: tuple[int, ...]
    """Shape of one observation, as the networks see it."""
    dtype: str
    """Type of observations, as the networks see them."""
    first_state: int = 0
    """Index that the environment uses for state 0."""
    one_hot: bool = False
    """Whether observations are one-hot arrays, which are converted to their index."""
    channels_last: bool = False
    """Whether images have their channels last, and are transposed."""
    parts: Any = None
    """The structure of observations in parts (see `parts_of`); None if they are single arrays."""

    def __call__(self, obs: Any) -> np.ndarray:
        """Convert observations. The result is a copy: some environments overwrite the arrays they return.

        Args:
            obs: One observation, or a batch.

        Returns:
            The observations as the networks see them.

        Raises:
            ValueError: If the shape is wrong.
        """
        if self.parts is not None:
            return _flat(self.parts, obs)
        try:
            found = np.asarray(obs)
        except ValueError as error:  # NumPy's words are about arrays, not about observations
            raise ValueError(
                f"obs has parts of different shapes, but the environment has observations of shape {self.shape}; pass "
                "one observation or a batch"
            ) from error
        batch = found.shape[: max(found.ndim - len(self.shape), 0)]
        if len(batch) > 1 or found.shape[len(batch) :] != self.shape:
            raise ValueError(
                f"obs has shape {found.shape}, but the environment has observations of shape {self.shape}; pass one "
                "observation or a batch"
            )
        if self.one_hot:
            return np.asarray(np.argmax(found.reshape(*batch, -1), axis=-1), self.dtype)
        if self.first_state:
            found = found - self.first_state
        found = np.moveaxis(found, -1, -3) if self.channels_last else found.reshape((*batch, *self.frame_shape))
        return np.array(found, self.dtype)


@dataclass(frozen=True)
class TaskSpec:
    """Specification for building an agent: the part of an `Interface` that networks and planners depend on."""

    num_actions: int
    """Number of discrete actions, or dimension of continuous ones."""
    num_states: int | None = None
    """Number of states, if observations are state indices; None if they are arrays."""
    inputs: Inputs = UNKNOWN
    """Scale and structure of the components of an observation."""
    bound: float | None = None
    """Bound of continuous actions; None if actions are discrete."""
    horizon: int | None = None
    """Maximum number of steps of an episode, if known."""
    shape: tuple[int, ...] | None = None
    """Shape of one observation, as the networks see it; None if observations are pytrees, or the shape is unknown."""
    optimal_values: Any = dataclasses.field(default=None, compare=False)
    """Optimal values [state, action], if the environment provides them and the agent's settings require them."""


@dataclass(frozen=True)
class Interface:
    """Observation and action spaces of an environment."""

    sight: Sight
    """The conversion of observations."""
    num_actions: int
    """Number of discrete actions, or dimension of continuous ones."""
    first_action: int = 0
    """Number that the environment uses for action 0."""
    bound: float | None = None
    """Bound of continuous actions; None if actions are discrete."""
    num_states: int | None = None
    """Number of states, if observations are state indices."""
    inputs: Inputs = UNKNOWN
    """Scale and structure of the components of an observation."""
    horizon: int | None = None
    """Maximum number of steps of an episode, if known."""
    end_state: bool = False
    """Whether the observation after the last step of an episode is the index `num_states`, as in DeepSea."""

    def batch(self, obs: Any) -> tuple[np.ndarray, bool]:
        """Convert observations to a batch, as the networks see them.

        Args:
            obs: One observation, or a batch.

        Returns:
            The batch, and whether `obs` was a single observation.

        Raises:
            ValueError: If the shape is wrong, or a number is NaN or infinite.
        """
        found = self.sight(obs)
        if np.issubdtype(found.dtype, np.inexact) and not np.isfinite(found).all():
            raise ValueError("obs contains NaN or infinity; pass finite observations")
        if self.num_states is not None and not self.sight.one_hot:
            self._check_states(np.asarray(obs))
            found = np.minimum(found, self.num_states - 1)  # no action matters after the end
        return (found[None], True) if found.shape == self.sight.frame_shape else (found, False)

    def _check_states(self, given: np.ndarray) -> None:
        first = self.sight.first_state
        last = first + (self.num_states or 0) - 1 + self.end_state
        wrong = given[(given != np.floor(given)) | (given < first) | (given > last)]
        if wrong.size:
            raise ValueError(
                f"obs={wrong.flat[0]} is no state of the environment; pass whole numbers from {first} to {last}"
            )

    def task_spec(self, optimal_values: Any = None) -> TaskSpec:
        """Get the specification for building an agent.

        Args:
            optimal_values: Optimal values [state, action], if known.

        Returns:
            The specification.
        """
        shape = tuple(self.sight.frame_shape)
        return TaskSpec(self.num_actions, self.num_states, self.inputs, self.bound, self.horizon, shape, optimal_values)

    def as_json(self) -> dict[str, Any]:
        """Return the interface as JSON, for run.json."""
        return _listed(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Interface":
        """Build an interface from JSON.

        Args:
            found: JSON from `as_json`.

        Returns:
            The interface.

        Raises:
            TypeError: If a field is unknown.
            KeyError: If a field is missing.
        """
        sight = {**found["sight"], **{name: tuple(found["sight"][name]) for name in ("shape", "frame_shape")}}
        return cls(**{**found, "sight": Sight(**sight), "inputs": Inputs.from_json(found["inputs"])})


def interface_of(world: Any) -> Interface:
    """Return the interface of a vector of environments.

    Args:
        world: A `VectorWorld`.

    Returns:
        Its interface.
    """
    shape = (*((world.stack,) if world.stack > 1 else ()), *world.frame_shape)
    return Interface(
        getattr(world, "sight", None) or Sight(shape, shape, np.dtype(world.frame_dtype).name),
        int(world.num_actions),
        getattr(world, "first_action", 0),
        num_states=getattr(world, "num_states", None),
        inputs=getattr(world, "inputs", UNKNOWN),
        end_state=getattr(world, "end_state", False),
    )


def interface_of_environment(env: Any, params: Any) -> Interface | None:
    """Describe a compiled environment.

    Args:
        env: The environment, with the interface of gymnax.
        params: Its parameters.

    Returns:
        Its interface; None if observations are not one array.
    """
    seen = jax.eval_shape(env.reset, jax.random.key(0), params)[0]
    if not isinstance(seen, jax.ShapeDtypeStruct):
        return None
    return Interface(
        Sight(tuple(seen.shape), tuple(seen.shape), np.dtype(seen.dtype).name),
        int(env.num_actions),
        bound=action_bound(env),
        num_states=num_states(env),
        inputs=inputs_of(env),
        horizon=getattr(env, "horizon", None),
        end_state=getattr(env, "end_state", False),
    )


def task_spec_of(env: Any, params: Any, optimal_values: Any = None) -> TaskSpec:
    """Get the specification for building an agent for a compiled environment, with observations of any structure.

    Args:
        env: The environment, with the interface of gymnax.
        params: Its parameters.
        optimal_values: Optimal values [state, action], if known.

    Returns:
        The specification.
    """
    shown = interface_of_environment(env, params)
    if shown is not None:
        return shown.task_spec(optimal_values)
    bound, horizon = action_bound(env), getattr(env, "horizon", None)
    return TaskSpec(int(env.num_actions), num_states(env), inputs_of(env), bound, horizon, None, optimal_values)


def is_picture(shape: tuple[int, ...], dtype: Any) -> bool:
    """Return whether observations are images for convolutions: bytes, and large enough.

    Args:
        shape: Shape of an observation, channels first.
        dtype: Type of an observation.

    Returns:
        Whether they are.
    """
    return dtype == np.uint8 and len(shape) >= 2 and min(shape[-2:]) >= SMALLEST_PICTURE


def parts_of(space: Any, where: str = "the observation space") -> Any:
    """Describe the parts of a Gymnasium space as JSON.

    Args:
        space: The space.
        where: Name of the space, for the message.

    Returns:
        A tree of its parts.

    Raises:
        ValueError: If a part cannot be represented as numbers.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {"dict": {key: parts_of(part, f"{where}[{key!r}]") for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"tuple": [parts_of(part, f"{where}[{i}]") for i, part in enumerate(space.spaces)]}
    if isinstance(space, spaces.Discrete):
        return {"choices": [[int(space.n)], [int(space.start)], []]}
    if isinstance(space, spaces.MultiDiscrete):
        starts = np.broadcast_to(space.start, space.nvec.shape)
        return {"choices": [space.nvec.ravel().tolist(), starts.ravel().tolist(), list(space.nvec.shape)]}
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return {"numbers": list(space.shape)}
    raise ValueError(
        f"env has {space} in {where}, which cannot be converted to an array; wrap the environment, for example in "
        "gymnasium.wrappers.FilterObservation or TransformObservation"
    )


def _flat(part: Mapping[str, Any], obs: Any) -> np.ndarray:
    """Flatten one observation or a batch to one row each."""
    ((kind, inside),) = part.items()
    if kind in ("dict", "tuple"):
        if isinstance(obs, list) or (isinstance(obs, np.ndarray) and obs.dtype == object):
            return np.stack([_flat(part, each) for each in obs])
        pairs = inside.items() if kind == "dict" else enumerate(inside)
        rows = [_flat(each, obs[key]) for key, each in pairs]
        if len({row.shape[:-1] for row in rows}) > 1:
            raise ValueError(
                f"obs has parts with batch shapes {[row.shape[:-1] for row in rows]}, which must be equal; pass as "
                "many of each part"
            )
        return np.concatenate(rows, axis=-1)
    shape = tuple(inside if kind == "numbers" else inside[2])
    found = np.asarray(obs)
    batch = found.shape[: max(found.ndim - len(shape), 0)]
    if len(batch) > 1 or found.shape[len(batch) :] != shape:
        raise ValueError(f"obs has a part of shape {found.shape}, but the environment has {shape}; pass that shape")
    found = found.reshape(*batch, -1)
    if kind == "numbers":
        return np.array(found, np.float32)
    counts, starts, _ = inside
    each = [found[..., i : i + 1] - starts[i] == np.arange(count) for i, count in enumerate(counts)]
    return np.concatenate(each, axis=-1).astype(np.float32)


def _listed(tree: Any) -> Any:
    """Convert tuples to lists, as in JSON."""
    if isinstance(tree, dict):
        return {name: _listed(part) for name, part in tree.items()}
    return [_listed(part) for part in tree] if isinstance(tree, (list, tuple)) else tree
