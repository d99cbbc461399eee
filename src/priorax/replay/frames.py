"""Replay on the host, for many environments at once: each frame is stored once.

Each environment is a *lane* with a ring buffer of its frames, in order. Observations (stacks of the newest frames) and
n-step returns are assembled when they are sampled, so that a million Atari transitions need the memory of a million
frames. With `stack=1` a frame is an observation, of any shape.

A transition can be sampled from the moment its return is complete until a frame of its stack is overwritten; its
priority is above zero exactly then.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from priorax.checks import positive_int
from priorax.replay import sum_tree
from priorax.replay.base import Path, Replay, Sampled, Window, n_step_return


class LaneStep(NamedTuple):
    """One time step of all lanes: newest frames, actions and their outcomes."""

    frame: np.ndarray
    """Newest frames, [lane, *frame]."""
    first: np.ndarray
    """Whether the frame is the first of an episode: its stack contains no earlier frames."""
    action: np.ndarray
    """Actions."""
    reward: np.ndarray
    """Rewards."""
    terminated: np.ndarray
    """Whether the episode terminated after this action: there is no bootstrap."""
    ended: np.ndarray
    """Whether the episode ended after this action, by termination or truncation: one more frame of it follows."""
    acted: np.ndarray
    """False for the last frame of an episode, at which there is no action and no transition starts."""
    mask: np.ndarray
    """Bootstrap masks: whether the stream owns the transition, [lane, stream]."""
    prior: np.ndarray | None = None
    """Prior values, [lane, stream, output, prior], if there are prior functions."""


class FrameLayout(NamedTuple):
    """Shape of frames, and number of lanes.

    Attributes:
        num_lanes: Number of environments stepped together.
        shape: Shape of one frame.
        dtype: Data type of frames.
        stack: Number of frames in an observation; those before the first of an episode are zero.
        prior: Shape of the prior values at an observation, [stream, output, prior]; None: not stored.
    """

    num_lanes: int
    shape: tuple[int, ...]
    dtype: Any
    stack: int = 1
    prior: tuple[int, ...] | None = None


def check_holds(settings: Replay, layout: FrameLayout, learn_after: int) -> None:
    """Check that replay can hold the transitions needed to start learning.

    Among the frames of a lane, the newest `n_step` have no complete return yet, the oldest `stack - 1` no complete
    stack, and no transition starts at the last frame of an episode: with episodes of one action, that is half of them.

    Args:
        settings: Replay settings.
        layout: Layout of the frames.
        learn_after: Transitions required before the first update.

    Raises:
        ValueError: If capacity is too small.
    """
    lanes, n_step, stack = layout.num_lanes, settings.n_step, layout.stack
    each = -(-positive_int("learn_after", learn_after) // lanes)
    needed = lanes * (2 * each + n_step + stack - 1)
    if settings.capacity < needed:
        raise ValueError(
            f"capacity={settings.capacity} may never hold learn_after={learn_after} transitions (num_lanes="
            f"{lanes}, n_step={n_step}, stack={stack}; none starts at the last frame of an episode); "
            f"raise capacity to {needed}, or lower learn_after"
        )


class FrameReplay:
    """Replay buffer of frames. `place` = lane * length + slot."""

    def __init__(self, settings: Replay, layout: FrameLayout, seed: int = 0) -> None:
        """Allocate an empty buffer.

        Args:
            settings: Replay settings. Capacity counts frames, over all lanes.
            layout: Layout of the frames.
            seed: Seed of the sampling.

        Raises:
            ValueError: If a lane is too short for a complete transition, or `shared_batch` is False.
        """
        self.settings, self.layout = settings, layout
        for name in ("num_lanes", "stack"):
            positive_int(name, getattr(layout, name))
        if not settings.shared_batch:
            raise ValueError("shared_batch=False is only for compiled environments; pass shared_batch=True on the host")
        self.length = settings.capacity // layout.num_lanes
        """Number of frames per lane."""
        if self.length <= layout.stack + settings.n_step:
            raise ValueError(
                f"capacity={settings.capacity} leaves {self.length} frames to each of num_lanes={layout.num_lanes}; "
                f"raise it above {layout.num_lanes * (layout.stack + settings.n_step)}"
            )
        self.rng = np.random.default_rng(seed)
        shape = (layout.num_lanes, self.length)
        self.frames = np.zeros((*shape, *layout.shape), layout.dtype)
        self.prior = None if layout.prior is None else np.zeros((*shape, *layout.prior), np.float32)
        self.action = np.zeros(shape, np.int32)
        self.reward = np.zeros(shape, np.float32)
        self.first, self.terminated, self.ended, self.acted = (np.zeros(shape, bool) for _ in range(4))
        self.mask = np.zeros((*shape, settings.num_streams), bool)
        self.added = np.zeros(layout.num_lanes, np.int64)
        """Number of frames added to each lane so far."""
        self.run = np.zeros(layout.num_lanes, np.int64)
        """Number of frames of the current episode of each lane."""
        self.pending = np.zeros((layout.num_lanes, self.length), np.float32)
        """Priorities of transitions whose returns are not complete yet."""
        self.priorities = sum_tree.empty(np, layout.num_lanes * self.length)
        """Sum tree of priorities, by place."""
        self.size = 0
        """Number of transitions that can be sampled."""
        self.owned = np.zeros(settings.num_streams, np.int64)
        """Number of these that each stream owns."""
        self.highest = 1.0

    @property
    def nbytes(self) -> int:
        """Memory of all arrays, in bytes."""
        arrays = [part for part in vars(self).values() if isinstance(part, np.ndarray)]
        return sum(part.nbytes for part in arrays) + sum(level.nbytes for level in self.priorities)

    def add(self, step: LaneStep, errors: np.ndarray | None = None, lanes: np.ndarray | None = None) -> None:
        """Append a frame to every lane.

        Args:
            step: Frames, actions and outcomes of each lane.
            errors: TD errors of these transitions [lane], if known; by default they get the highest priority so far.
            lanes: Indices of the lanes of these frames; by default all.
        """
        lanes = np.arange(self.layout.num_lanes) if lanes is None else np.asarray(lanes)
        slot = self.added[lanes] % self.length
        self._overwrite(lanes, slot)
        self.run[lanes] = np.where(step.first, 1, self.run[lanes] + 1)
        for ring, part in zip(
            self._rings().values(), step, strict=False
        ):  # the last part, the prior values, is optional
            ring[lanes, slot] = part
        new = np.full(len(lanes), self.highest) if errors is None else self.settings.priorities(np.asarray(errors))
        self.highest = max(self.highest, float(new.max()))
        self.pending[lanes, slot] = np.where(step.acted, new, 0.0)
        self.added[lanes] += 1
        self._complete(lanes, slot)

    def sample(self, rng: np.random.Generator | None = None, size: int | None = None) -> Sampled:
        """Sample a minibatch.

        Args:
            rng: Generator to use instead of the replay's own, so that inspecting replay does not change a run.
            size: Minibatch size, instead of the settings'.

        Returns:
            The minibatch.

        Raises:
            ValueError: If there are no transitions yet.
        """
        settings = self.settings
        if self.size == 0:
            raise ValueError("there are no transitions to sample yet; add transitions first")
        place, share = sum_tree.draw(np, self.priorities, (rng or self.rng).random(size or settings.batch_size))
        lane, slot = np.divmod(place, self.length)

        def at(j: Any) -> tuple[np.ndarray, np.ndarray]:
            return lane, (slot + j) % self.length

        found = n_step_return(
            np,
            settings.n_step,
            settings.discount,
            lambda j: Window(self.reward[at(j)], self.terminated[at(j)], self.ended[at(j)]),
        )
        after = at(found.last + 1)[1]
        weight = (self.size * np.maximum(share, 1e-30)) ** -settings.importance
        priors = [None if self.prior is None else np.moveaxis(self.prior[lane, at], 1, 0) for at in (slot, after)]
        return Sampled(
            self.stacked(lane, slot),
            self.action[lane, slot],
            found.reward.astype(np.float32),
            found.discount.astype(np.float32),
            self.stacked(lane, after),
            (weight / weight.max() * self.mask[lane, slot].T / settings.mask_prob).astype(np.float32),
            self.owned.copy(),
            priors[0],
            priors[1],
            self._path(at, found.last) if settings.paths else None,
            np.stack([place, self.added[lane]]),
        )

    def _path(self, at: Callable[[Any], tuple[np.ndarray, np.ndarray]], last: np.ndarray) -> Path:
        steps = range(self.settings.n_step)
        weight = np.stack([self.settings.discount**j * (j <= last) for j in steps])
        return Path(np.stack([self.stacked(*at(j)) for j in steps]), weight.astype(np.float32))

    def prioritise(self, place: np.ndarray, error: np.ndarray) -> None:
        """Update the priorities of transitions by their latest errors, unless they have been overwritten.

        Args:
            place: Positions of the transitions (`Sampled.place`).
            error: Their TD errors.
        """
        where, since = place
        lane, slot = np.divmod(where, self.length)
        length = self.length
        age = (since - 1 - slot) % length  # age when sampled
        kept = (self.added[lane] - since + age < length) & (sum_tree.read(self.priorities, where) > 0)
        new = self.settings.priorities(np.asarray(error))
        self.highest = max(self.highest, float(new.max()))
        self._set(where[kept], new[kept])

    @property
    def time(self) -> int:
        """Number of frames added to each lane so far, if it is the same for all lanes."""
        return int(self.added[0])

    def inserted(self, first: int, end: int) -> dict[str, np.ndarray]:
        """Get the frames added to every lane in [first, end), with all data that belongs to them, for a file.

        Args:
            first: Time of the first frame.
            end: Time after the last frame.

        Returns:
            Arrays by name.
        """
        slots = np.arange(first, end) % self.length
        return {name: ring[:, slots] for name, ring in self._rings().items()}

    def counters(self) -> dict[str, np.ndarray]:
        """Get the rest of the state, for a file.

        Returns:
            Arrays by name.
        """
        return {
            "added": self.added,
            "run": self.run,
            "pending": self.pending,
            "priorities": sum_tree.read(self.priorities, np.arange(self.pending.size)),
            "highest": np.asarray(self.highest),
        }

    def refill(self, counters: Mapping[str, np.ndarray], parts: Iterable[tuple[int, int, Mapping[str, Any]]]) -> None:
        """Restore the contents from files.

        Args:
            counters: The result of `counters`.
            parts: First and end times, with the result of `inserted` between them.
        """
        for first, end, arrays in parts:
            slots = np.arange(first, end) % self.length
            for name, ring in self._rings().items():
                ring[:, slots] = arrays[name]
        for name in ("added", "run", "pending"):
            getattr(self, name)[...] = counters[name]
        self.highest = float(counters["highest"])
        priorities = counters["priorities"]
        places = np.flatnonzero(priorities)
        self._set(places, priorities[places])

    def _rings(self) -> dict[str, np.ndarray]:
        """Get the arrays of per-frame data."""
        rings = {
            "frames": self.frames,
            "first": self.first,
            "action": self.action,
            "reward": self.reward,
            "terminated": self.terminated,
            "ended": self.ended,
            "acted": self.acted,
            "mask": self.mask,
        }
        return rings if self.prior is None else {**rings, "prior": self.prior}

    def stacked(self, lane: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """Assemble the observations whose newest frames are given.

        Args:
            lane: Indices of lanes.
            slot: Indices of slots.

        Returns:
            Observations, the newest frame last.
        """
        if self.layout.stack == 1:
            return self.frames[lane, slot]
        parts, on = [], np.ones(len(slot), bool)
        for j in range(self.layout.stack):
            here = (slot - j) % self.length
            parts.append(np.where(on.reshape(-1, *[1] * (self.frames.ndim - 2)), self.frames[lane, here], 0))
            on = on & ~self.first[lane, here]
        return np.stack(parts[::-1], axis=1)

    def _set(self, place: np.ndarray, priority: np.ndarray) -> None:
        """Set priorities; with zero, a transition cannot be sampled."""
        if len(place) == 0:
            return
        each = np.unique(place)
        before = sum_tree.read(self.priorities, each) > 0
        sum_tree.write(np, self.priorities, place, priority)
        more = (sum_tree.read(self.priorities, each) > 0).astype(int) - before
        self.size += int(more.sum())
        self.owned += more @ self.mask[np.divmod(each, self.length)]

    def _overwrite(self, lanes: np.ndarray, slot: np.ndarray) -> None:
        """Exclude transitions that start at these frames, or have one in their stack, from sampling."""
        ahead = np.arange(self.layout.stack)
        gone = lanes[:, None] * self.length + (slot[:, None] + ahead) % self.length
        self._set(gone.ravel(), np.zeros(gone.size))

    def _complete(self, lanes: np.ndarray, slot: np.ndarray) -> None:
        """Include transitions whose return is complete with these frames."""
        length, n = self.length, self.settings.n_step
        cut = np.zeros(len(lanes), bool)  # whether an episode ended in between
        for j in range(1, n + 1):
            there = (slot - j) % length
            cut |= self.terminated[lanes, there] | self.ended[lanes, there]
            whole = (cut | (j == n)) & (self.run[lanes] > j) & (self.added[lanes] > j)
            ready = whole & (self.pending[lanes, there] > 0)
            self._set(lanes[ready] * length + there[ready], self.pending[lanes[ready], there[ready]])
            self.pending[lanes[ready], there[ready]] = 0.0
