"""N-step returns, which stop at the end of an episode."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


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
