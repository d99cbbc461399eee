"""Returns over n steps: the one place where rewards are summed and an episode's end cuts the sum."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Window(NamedTuple):
    """Step j of the windows that begin at a batch of transitions."""

    reward: Any
    terminated: Any
    """Nothing can be gained after this step: there is no bootstrap."""
    ended: Any
    """The episode is over after this step, by termination or truncation: the window goes no further."""


class Return(NamedTuple):
    """An n-step return, for each of a batch of transitions."""

    reward: Any
    """Discounted sum of the rewards in the window."""
    discount: Any
    """Factor of the bootstrap value at the window's end; zero after a termination."""
    last: Any
    """The number, from 0, of the last step in the window."""


def n_step_return(
    xp: Any, n: int, discount: Any, window: Callable[[int], Window], going: Callable[[int], Any] | None = None
) -> Return:
    """Sum rewards over n steps, or fewer where an episode ends.

    Args:
        xp: `numpy` or `jax.numpy`.
        n: The number of steps, at least 1.
        discount: gamma.
        window: Gives step j of each window, for j in 0..n-1.
        going: Says for j >= 1 which windows may take step j at all, for example because it was stored already; all of
            them unless given.

    Returns:
        The rewards, the discount that is left for the bootstrap, and the last step of each window.
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
