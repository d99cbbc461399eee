"""Replay on the host, for many environments at once: each frame is kept once.

Each environment is a *lane* with a ring of its frames, in the order in which it showed them. Observations (stacks of
the newest frames) and returns over n steps are put together when they are drawn, so that a million Atari transitions
need the bytes of a million frames. With `stack=1` a frame is an observation, of any shape.

A transition can be drawn as soon as its return is complete, and until a frame of its stack is overwritten: exactly then
is its priority above zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from priorax.checks import non_negative, positive_int
from priorax.replay import sum_tree
from priorax.replay.returns import Window, n_step_return


class LaneStep(NamedTuple):
    """One moment of every lane: what was seen, what was done, what came of it."""

    frame: np.ndarray
    """[lane, *frame]: the newest."""
    first: np.ndarray
    """Whether it is an episode's first: nothing before it is in its stack."""
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    """Nothing is to be gained after this action, as far as learning goes."""
    ended: np.ndarray
    """The episode is over after this action, terminated or not: one more frame of it is still to come."""
    acted: np.ndarray
    """False for the last frame of an episode: there was nothing to do any more, and no transition begins here."""
    mask: np.ndarray
    """[lane, stream]: to whom the transition belongs."""
    prior: np.ndarray | None = None
    """[lane, stream, output, prior]: the prior functions there, where there are any."""


class Drawn(NamedTuple):
    """A minibatch: transitions over n steps, or fewer where an episode ended."""

    obs: Any
    action: Any
    reward: Any
    discount: Any
    """What is left for the bootstrap: zero after a termination."""
    next_obs: Any
    weight: Any
    """By importance, the largest one."""
    mask: Any
    """[stream, batch]: whose transitions these are."""
    prior: Any
    next_prior: Any
    """[stream, batch, output, prior]."""
    place: Any
    """Where they are kept, and since when: a place that was overwritten meanwhile is not given a new priority."""
    path: Any = None
    """[step, batch, ...]: what was seen before each of the n steps, where draws have `paths`."""
    path_weight: Any = None
    """[step, batch]: what a reward there counts for, its discount; zero beyond an episode's end."""


@dataclass(frozen=True)
class SequenceSettings:
    """How a `SequenceBuffer` keeps and draws."""

    capacity: int
    """Frames in all."""
    num_lanes: int
    stack: int = 1
    """Frames that make an observation; those before an episode's first are zero."""
    n_step: int = 1
    discount: float = 0.99
    num_streams: int = 1
    priority: float = 0.0
    """The power of its error that a transition is drawn in proportion to; 0: uniformly."""
    importance: float = 0.4
    """How far weights undo that."""
    paths: bool = False
    """Whether draws tell what was seen at all of their steps, for a bonus that is paid when learning."""

    def __post_init__(self) -> None:
        for name in ("capacity", "num_lanes", "stack", "n_step", "num_streams"):
            positive_int(name, getattr(self, name))
        non_negative("priority", self.priority)
        non_negative("importance", self.importance)
        if self.length <= self.stack + self.n_step:
            raise ValueError(
                f"capacity={self.capacity} leaves {self.length} frames to each of num_lanes={self.num_lanes}; "
                f"raise it above {self.num_lanes * (self.stack + self.n_step)}"
            )

    @property
    def length(self) -> int:
        """Frames of one lane."""
        return self.capacity // self.num_lanes

    def check_holds(self, learn_after: int) -> None:
        """Refuse a buffer in which so many transitions may never be at once: nothing would ever be learned.

        Of a lane's frames the newest `n_step` have no whole return yet, the oldest `stack - 1` no whole stack, and an
        episode's last frame begins nothing: where episodes are of one action, half of them are such.
        """
        each = -(-positive_int("learn_after", learn_after) // self.num_lanes)
        needed = self.num_lanes * (2 * each + self.n_step + self.stack - 1)
        if self.capacity < needed:
            raise ValueError(
                f"capacity={self.capacity} may never hold learn_after={learn_after} transitions (num_lanes="
                f"{self.num_lanes}, n_step={self.n_step}, stack={self.stack}; an episode's last frame begins none); "
                f"raise capacity to {needed}, or lower learn_after"
            )


class SequenceBuffer:
    """See the module's docstring. `place` = lane * length + slot."""

    def __init__(
        self,
        settings: SequenceSettings,
        frame_shape: tuple[int, ...],
        frame_dtype: np.dtype,
        prior_shape: tuple[int, ...] | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = settings
        self.rng = np.random.default_rng(seed)
        shape = (settings.num_lanes, settings.length)
        self.frames = np.zeros((*shape, *frame_shape), frame_dtype)
        self.prior = None if prior_shape is None else np.zeros((*shape, *prior_shape), np.float32)
        self.action = np.zeros(shape, np.int32)
        self.reward = np.zeros(shape, np.float32)
        self.first, self.terminated, self.ended, self.acted = (np.zeros(shape, bool) for _ in range(4))
        self.mask = np.zeros((*shape, settings.num_streams), bool)
        self.added = np.zeros(settings.num_lanes, np.int64)
        """Frames ever added to each lane."""
        self.run = np.zeros(settings.num_lanes, np.int64)
        """Frames of the episode under way."""
        self.pending = np.zeros((settings.num_lanes, settings.length), np.float32)
        """Priorities of transitions whose returns are not complete yet."""
        self.priorities = sum_tree.empty(np, settings.num_lanes * settings.length)
        """By place."""
        self.size = 0
        """How many transitions can be drawn."""
        self.highest = 1.0

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        arrays = [part for part in vars(self).values() if isinstance(part, np.ndarray)]
        return sum(part.nbytes for part in arrays) + sum(level.nbytes for level in self.priorities)

    def add(self, moment: LaneStep, error: np.ndarray | None = None, lanes: np.ndarray | None = None) -> None:
        """One more frame on every lane, or on those; `error`: what is known already of these transitions' errors, else
        they are looked at soon."""
        settings = self.settings
        lanes = np.arange(settings.num_lanes) if lanes is None else np.asarray(lanes)
        slot = self.added[lanes] % settings.length
        self.run[lanes] = np.where(moment.first, 1, self.run[lanes] + 1)
        for ring, part in zip(self._rings().values(), moment, strict=False):  # the last, a prior, may not be there
            ring[lanes, slot] = part
        new = np.full(len(lanes), self.highest) if error is None else self._power(np.asarray(error))
        self.highest = max(self.highest, float(new.max()))
        self.pending[lanes, slot] = np.where(moment.acted, new, 0.0)
        self.added[lanes] += 1
        self._overwritten(lanes, slot)
        self._complete(lanes, slot)

    def draw(self, size: int, rng: np.random.Generator | None = None) -> Drawn:
        """A minibatch; there must be something to draw. With another `rng` to look, what is learned from stays the
        same."""
        settings = self.settings
        if self.size == 0:
            raise ValueError("there is nothing to draw yet; add transitions first")
        place, share = sum_tree.draw(np, self.priorities, (rng or self.rng).random(size))
        lane, slot = np.divmod(place, settings.length)

        def at(j: Any) -> tuple[np.ndarray, np.ndarray]:
            return lane, (slot + j) % settings.length

        found = n_step_return(
            np,
            settings.n_step,
            settings.discount,
            lambda j: Window(self.reward[at(j)], self.terminated[at(j)], self.ended[at(j)]),
        )
        steps = range(settings.n_step) if settings.paths else ()
        path = [self.stacked(*at(j)) for j in steps]
        path_weight = [settings.discount**j * (j <= found.last) for j in steps]
        after = at(found.last + 1)[1]
        weight = (self.size * np.maximum(share, 1e-30)) ** -settings.importance
        priors = [None if self.prior is None else np.moveaxis(self.prior[lane, at], 1, 0) for at in (slot, after)]
        return Drawn(
            self.stacked(lane, slot),
            self.action[lane, slot],
            found.reward.astype(np.float32),
            found.discount.astype(np.float32),
            self.stacked(lane, after),
            (weight / weight.max()).astype(np.float32),
            self.mask[lane, slot].T,
            priors[0],
            priors[1],
            np.stack([place, self.added[lane]]),
            np.stack(path) if path else None,
            np.stack(path_weight).astype(np.float32) if path else None,
        )

    def prioritise(self, place: np.ndarray, error: np.ndarray) -> None:
        """Learn from errors just seen how soon to look at those transitions again."""
        where, since = place
        lane, slot = np.divmod(where, self.settings.length)
        length = self.settings.length
        age = (since - 1 - slot) % length  # when it was drawn; it is gone when that many frames are left to it
        kept = (self.added[lane] - since + age < length) & (sum_tree.read(self.priorities, where) > 0)
        new = self._power(np.asarray(error))
        self.highest = max(self.highest, float(new.max()))
        self._set(where[kept], new[kept])

    @property
    def time(self) -> int:
        """Frames ever added to a lane, where all lanes got as many."""
        return int(self.added[0])

    def inserted(self, first: int, end: int) -> dict[str, np.ndarray]:
        """The frames added to every lane in [first, end), with all that belongs to them, for a file."""
        slots = np.arange(first, end) % self.settings.length
        return {name: ring[:, slots] for name, ring in self._rings().items()}

    def counters(self) -> dict[str, np.ndarray]:
        """All else that a file needs, so that replay goes on where it was."""
        return {
            "added": self.added,
            "run": self.run,
            "pending": self.pending,
            "priorities": sum_tree.read(self.priorities, np.arange(self.pending.size)),
            "highest": np.asarray(self.highest),
        }

    def refill(self, counters: Mapping[str, np.ndarray], parts: Iterable[tuple[int, int, Mapping[str, Any]]]) -> None:
        """As it was when `counters` were taken, from what was `inserted`: from when, to when, and what."""
        for first, end, arrays in parts:
            slots = np.arange(first, end) % self.settings.length
            for name, ring in self._rings().items():
                ring[:, slots] = arrays[name]
        for name in ("added", "run", "pending"):
            getattr(self, name)[...] = counters[name]
        self.highest = float(counters["highest"])
        priorities = counters["priorities"]
        places = np.flatnonzero(priorities)
        self._set(places, priorities[places])

    def _rings(self) -> dict[str, np.ndarray]:
        """What is kept of each frame."""
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
        """The observations that ended in those frames, the newest last."""
        if self.settings.stack == 1:
            return self.frames[lane, slot]
        parts, on = [], np.ones(len(slot), bool)
        for j in range(self.settings.stack):
            here = (slot - j) % self.settings.length
            parts.append(np.where(on.reshape(-1, *[1] * (self.frames.ndim - 2)), self.frames[lane, here], 0))
            on = on & ~self.first[lane, here]
        return np.stack(parts[::-1], axis=1)

    def _set(self, place: np.ndarray, priority: np.ndarray) -> None:
        """Other priorities in some places; zero: what is there cannot be drawn."""
        if len(place) == 0:
            return
        each = np.unique(place)
        before = np.count_nonzero(sum_tree.read(self.priorities, each))
        sum_tree.write(np, self.priorities, place, priority)
        self.size += int(np.count_nonzero(sum_tree.read(self.priorities, each)) - before)

    def _power(self, error: np.ndarray) -> np.ndarray:
        return (np.abs(error) + 1e-3) ** self.settings.priority

    def _overwritten(self, lanes: np.ndarray, slot: np.ndarray) -> None:
        """What began in the frame that was there, or had it in its stack, cannot be drawn any more."""
        ahead = np.arange(self.settings.stack)
        gone = lanes[:, None] * self.settings.length + (slot[:, None] + ahead) % self.settings.length
        self._set(gone.ravel(), np.zeros(gone.size))

    def _complete(self, lanes: np.ndarray, slot: np.ndarray) -> None:
        """Which transitions have their whole return, now that these frames came."""
        length, n = self.settings.length, self.settings.n_step
        cut = np.zeros(len(lanes), bool)  # whether an end lies between
        for j in range(1, n + 1):
            there = (slot - j) % length
            cut |= self.terminated[lanes, there] | self.ended[lanes, there]
            whole = (cut | (j == n)) & (self.run[lanes] > j) & (self.added[lanes] > j)
            ready = whole & (self.pending[lanes, there] > 0)
            self._set(lanes[ready] * length + there[ready], self.pending[lanes[ready], there[ready]])
            self.pending[lanes[ready], there[ready]] = 0.0
