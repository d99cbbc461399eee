"""What an environment shows and takes, as JSON can hold it: enough to build an agent's networks, and to ask it for
actions where the environment is not."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from priorax.networks import SMALL_NET, least_side

SMALLEST_PICTURE = least_side(SMALL_NET)
"""Pixels each way. What is smaller is no picture for convolutions: a grid of codes (MiniGrid), or a few numbers."""


@dataclass(frozen=True)
class Sight:
    """From an environment's own observation, or a batch of them, to what the networks see.

    An index from 0, numbers, or a picture with its channels first. Observations in parts (dictionaries, tuples) become
    one row of numbers, as `gymnasium.spaces.flatten` has it; a batch of them is a list, or has a batch in every part.
    """

    shape: tuple[int, ...]
    """Of one observation, as the environment gives it."""
    frame_shape: tuple[int, ...]
    """Of one observation, as the networks see it."""
    dtype: str
    """As the networks see it."""
    first_state: int = 0
    """What the environment calls state 0."""
    one_hot: bool = False
    """A picture with a single one in it, which is seen as its index."""
    channels_last: bool = False
    """A picture that is turned."""
    parts: Any = None
    """A tree of parts (`parts_of`)."""

    def __call__(self, obs: Any) -> np.ndarray:
        """Those observations, copied: some environments write into the array they handed out.

        Raises:
            ValueError: If they have another shape.
        """
        if self.parts is not None:
            return _flat(self.parts, obs)
        found = np.asarray(obs)
        batch = found.shape[: max(found.ndim - len(self.shape), 0)]
        if len(batch) > 1 or found.shape[len(batch) :] != self.shape:
            raise ValueError(
                f"obs has shape {found.shape}, and the environment gives {self.shape}; pass one observation, or a "
                "batch of them"
            )
        if self.one_hot:
            return np.asarray(np.argmax(found.reshape(*batch, -1), axis=-1), self.dtype)
        if self.first_state:
            found = found - self.first_state
        found = np.moveaxis(found, -1, -3) if self.channels_last else found.reshape((*batch, *self.frame_shape))
        return np.array(found, self.dtype)


@dataclass(frozen=True)
class Interface:
    """What an agent has to know of an environment."""

    sight: Sight
    num_actions: int
    """How many there are; of continuous ones, their dimensions."""
    first_action: int = 0
    """What the environment calls action 0."""
    bound: float | None = None
    """Of continuous actions; None: they are finitely many."""
    num_states: int | None = None
    """Where what is seen is an index: below it."""
    input_scale: tuple[float, ...] = ()
    """What brings each number that is seen to about one."""
    horizon: int | None = None
    """Steps of an episode at most, where that is known."""

    def batch(self, obs: Any) -> tuple[np.ndarray, bool]:
        """Observations as the networks see them, and whether it was a single one.

        Raises:
            ValueError: If they have another shape than the environment's, or hold NaN or infinity.
        """
        found = self.sight(obs)
        if np.issubdtype(found.dtype, np.inexact) and not np.isfinite(found).all():
            raise ValueError("obs holds NaN or infinity; pass finite numbers, as the environment gives them")
        return (found[None], True) if found.shape == self.sight.frame_shape else (found, False)

    def as_json(self) -> dict[str, Any]:
        """For run.json."""
        return _listed(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Interface":
        """What `as_json` wrote.

        Raises:
            TypeError: If it is something else.
        """
        sight = {**found["sight"], **{name: tuple(found["sight"][name]) for name in ("shape", "frame_shape")}}
        return cls(**{**found, "sight": Sight(**sight), "input_scale": tuple(found["input_scale"])})


def interface_of(world: Any) -> Interface:
    """Of a `VectorWorld`."""
    shape = (*((world.stack,) if world.stack > 1 else ()), *world.frame_shape)
    return Interface(
        getattr(world, "sight", None) or Sight(shape, shape, np.dtype(world.frame_dtype).name),
        int(world.num_actions),
        getattr(world, "first_action", 0),
        num_states=getattr(world, "num_states", None),
        input_scale=tuple(getattr(world, "input_scale", ())),
    )


def interface_of_environment(env: Any, params: Any) -> Interface | None:
    """Of a compiled environment; None where what is seen is not one array."""
    from priorax.envs import action_bound, input_scale, num_states

    seen = jax.eval_shape(env.reset, jax.random.key(0), params)[0]
    if not isinstance(seen, jax.ShapeDtypeStruct):
        return None
    return Interface(
        Sight(tuple(seen.shape), tuple(seen.shape), np.dtype(seen.dtype).name),
        int(env.num_actions),
        bound=action_bound(env),
        num_states=num_states(env),
        input_scale=tuple(input_scale(env)),
        horizon=getattr(env, "horizon", None),
    )


def is_picture(shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether what is seen, channels first, is for convolutions: bytes, and enough of them each way."""
    return dtype == np.uint8 and len(shape) >= 2 and min(shape[-2:]) >= SMALLEST_PICTURE


def parts_of(space: Any, where: str = "the observation space") -> Any:
    """A tree of the parts of one of Gymnasium's spaces, as JSON can hold it.

    Raises:
        ValueError: If one of them has no form as numbers.
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
        f"env is seen as {space} in {where}, which has no form as an array; wrap it in one that has, such as "
        "gymnasium.wrappers.FilterObservation or TransformObservation"
    )


def _flat(part: Mapping[str, Any], obs: Any) -> np.ndarray:
    """One row for one observation, or one for each of a batch."""
    ((kind, inside),) = part.items()
    if kind in ("dict", "tuple"):
        if isinstance(obs, list) or (isinstance(obs, np.ndarray) and obs.dtype == object):
            return np.stack([_flat(part, each) for each in obs])
        pairs = inside.items() if kind == "dict" else enumerate(inside)
        rows = [_flat(each, obs[key]) for key, each in pairs]
        if len({row.shape[:-1] for row in rows}) > 1:
            raise ValueError(f"obs has parts for {[row.shape[:-1] for row in rows]} observations; pass as many of each")
        return np.concatenate(rows, axis=-1)
    shape = tuple(inside if kind == "numbers" else inside[2])
    found = np.asarray(obs)
    batch = found.shape[: max(found.ndim - len(shape), 0)]
    if len(batch) > 1 or found.shape[len(batch) :] != shape:
        raise ValueError(f"obs has a part of shape {found.shape}, and the environment gives {shape}; pass it so")
    found = found.reshape(*batch, -1)
    if kind == "numbers":
        return np.array(found, np.float32)
    counts, starts, _ = inside
    each = [found[..., i : i + 1] - starts[i] == np.arange(count) for i, count in enumerate(counts)]
    return np.concatenate(each, axis=-1).astype(np.float32)


def _listed(tree: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(tree, dict):
        return {name: _listed(part) for name, part in tree.items()}
    return [_listed(part) for part in tree] if isinstance(tree, (list, tuple)) else tree
