"""Replay settings, transitions, minibatches and n-step returns: the interface between agents and every replay
implementation.

`n_step_return` is the only implementation of n-step returns, which stop at the end of an episode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from priorax.checks import non_negative, positive_int


class Transition(NamedTuple):
    """A transition (s, a, r, s') of the paper. Only termination, not truncation, cuts the bootstrap."""

    obs: PyTree
    """Observation before the action."""
    action: Any
    """The action."""
    reward: Any
    """The reward."""
    next_obs: PyTree
    """The true next observation, before any reset."""
    terminated: Any
    """Whether the episode terminated: there is no bootstrap."""
    ended: Any = None
    """Whether the episode ended here, by termination or truncation."""


class Path(NamedTuple):
    """All steps of the n-step windows of a minibatch, for bonuses that are computed at learning time."""

    obs: PyTree
    """Observations before each step, [step, *stream, batch, ...]."""
    weight: Any
    """Discount of a reward at each step, [step, *stream, batch]; zero beyond the end of the episode."""


class Sampled(NamedTuple):
    """A minibatch of n-step transitions from `obs` to `next_obs`, where the return is bootstrapped.

    If all streams share a minibatch (`Replay.shared_batch`), shared arrays have no stream axis.
    """

    obs: PyTree
    """Observations at the start of the n-step windows."""
    action: Any
    """Actions [*stream, batch], or [batch, dim] if continuous."""
    reward: Any
    """Discounted sums of rewards within the window, [*stream, batch]."""
    discount: Any
    """Factor of the bootstrap value, [*stream, batch]; zero after a termination."""
    next_obs: PyTree
    """Observations at the end of the n-step windows."""
    weight: Any
    """Importance weight times bootstrap mask, [stream, batch]; zero if the stream does not own the transition."""
    counts: Any
    """Total number of transitions that each stream owns, [stream]."""
    prior: Any = None
    """Prior values at `obs`, [stream, batch, output, prior], if they are stored."""
    next_prior: Any = None
    """Prior values at `next_obs`, [stream, batch, output, prior], if they are stored."""
    path: Path | None = None
    """All steps of the windows, if the replay keeps `paths`."""
    place: Any = None
    """Positions of the transitions in replay, for `prioritise`."""


@dataclass(frozen=True)
class Replay:
    """Settings of replay, common to all implementations.

    Attributes:
        capacity: Maximum number of transitions.
        num_streams: Number K of bootstrapped data streams: one for each member of an ensemble.
        batch_size: Minibatch size, of each stream.
        shared_batch: Whether all streams share one minibatch, with their masks as weights; else each draws its own.
        mask_prob: Probability that a transition belongs to a stream; 1: no bootstrap.
        n_step: Number of rewards in n-step returns.
        discount: Discount factor gamma.
        priority: Priority exponent alpha (Schaul et al. 2016); 0: uniform sampling.
        importance: Importance-sampling exponent beta.
        paths: Whether minibatches include all steps of their n-step windows (`Sampled.path`).
    """

    capacity: int
    num_streams: int = 1
    batch_size: int = 128
    shared_batch: bool = True
    mask_prob: float = 1.0
    n_step: int = 1
    discount: float = 0.99
    priority: float = 0.0
    importance: float = 0.4
    paths: bool = False

    def __post_init__(self) -> None:
        for name in ("capacity", "num_streams", "batch_size", "n_step"):
            positive_int(name, getattr(self, name))
        if not 0 < self.mask_prob <= 1:
            raise ValueError(f"mask_prob={self.mask_prob} must be above 0 and at most 1; pass 0.5, or 1 (no bootstrap)")
        non_negative("priority", self.priority)
        non_negative("importance", self.importance)
        if self.batch_size > self.capacity:
            raise ValueError(
                f"batch_size={self.batch_size} exceeds capacity={self.capacity}; raise capacity or lower batch_size"
            )
        if self.priority > 0 and not self.shared_batch:
            raise ValueError(f"priority={self.priority} needs one minibatch for all members; pass shared_batch=True")

    @property
    def bootstraps(self) -> bool:
        """Whether streams own different transitions."""
        return self.mask_prob < 1

    def priorities(self, errors: Any) -> Any:
        """Compute the unnormalised sampling probabilities of transitions: (|error| + 0.001)^alpha.

        Args:
            errors: TD errors of the transitions.

        Returns:
            The priorities.
        """
        return (abs(errors) + 1e-3) ** self.priority


def owned_mean(xp: Any, size: Any, owned: Any) -> Any:
    """Average over the streams (first axis) that own a transition; over all streams if none does.

    Args:
        xp: `numpy` or `jax.numpy`.
        size: Values [stream, batch], such as absolute errors.
        owned: Whether the stream owns the transition, [stream, batch].

    Returns:
        Means [batch].
    """
    weight = xp.where(xp.sum(owned, axis=0) > 0, owned, True).astype(size.dtype)
    return xp.sum(weight * size, axis=0) / xp.sum(weight, axis=0)


def td_errors(xp: Any, losses: Any, owned: Any) -> Any:
    """Compute the absolute TD errors of transitions from their losses, averaged over the streams that own them.

    Args:
        xp: `numpy` or `jax.numpy`.
        losses: Losses [stream, batch], as in `Info.examples`: squared errors, for a scalar head.
        owned: Whether the stream owns the transition, [stream, batch].

    Returns:
        Errors [batch], for priorities.
    """
    return owned_mean(xp, xp.sqrt(xp.maximum(losses, 0.0)), owned)


class Window(NamedTuple):
    """Step j of the windows that start at a batch of transitions."""

    reward: Any
    """Rewards."""
    terminated: Any
    """Whether the episode terminates at this step: there is no bootstrap."""
    ended: Any
    """Whether the episode ends at this step, by termination or truncation: the window stops here."""


class Return(NamedTuple):
    """N-step returns of a batch of transitions."""

    reward: Any
    """Discounted sum of the rewards in the window."""
    discount: Any
    """Factor of the bootstrap value at the end of the window; zero after a termination."""
    last: Any
    """Index, from 0, of the last step in the window."""


def n_step_return(
    xp: Any, n: int, discount: Any, window: Callable[[int], Window], going: Callable[[int], Any] | None = None
) -> Return:
    """Compute n-step returns, over fewer steps if an episode ends.

    Args:
        xp: `numpy` or `jax.numpy`.
        n: Number of steps, at least 1.
        discount: Discount factor gamma.
        window: Function that returns step j of each window, for j in 0..n-1.
        going: Function that returns, for j >= 1, which windows may include step j, for example because it is already
            stored; by default all.

    Returns:
        Sums of rewards, discounts of the bootstrap value, and the last step of each window.
    """
    step = window(0)
    on = xp.ones(step.reward.shape, bool)
    reward, left, last = step.reward, discount * (1.0 - step.terminated), xp.zeros(step.reward.shape, np.int32)
    for j in range(1, n):
        on = on & ~step.ended & ~step.terminated
        if going is not None:
            on = on & going(j)
        step = window(j)
        reward = reward + xp.where(on, discount**j * step.reward, 0.0)
        left = xp.where(on, discount ** (j + 1) * (1.0 - step.terminated), left)
        last = xp.where(on, j, last)
    return Return(reward, left, last)
