"""Diagnostics of the prior scale of a run: the remaining influence of the priors, and the diversity of members."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from priorax.beliefs import Belief, BeliefState, values_of

LEAST_UPDATES = 2000
"""Number of updates before any advice is given."""
ROWS = 256
"""Number of transitions that are examined."""


class Doubt(NamedTuple):
    """Epistemic uncertainty at transitions sampled from replay."""

    left: float
    """Remaining influence of the priors on the values of the actions taken: the slope of the regression of members'
    deviations in value on their deviations in prior. 1: as initially; 0: the data has replaced the priors."""
    explained: float
    """Fraction of the variance between members that this regression explains (R²)."""
    differ: float
    """Standard deviation over members of the value of the greedy action."""
    kept: float
    """The same as a fraction of its initial value."""


def measure(owner: Belief, belief: BeliefState, obs: Any, action: Any) -> Doubt | None:
    """Measure the remaining influence of the priors at a batch of transitions.

    Args:
        owner: The belief.
        belief: State of the belief.
        obs: A batch of observations.
        action: The actions taken there.

    Returns:
        The measurements; None unless the belief is an ensemble with prior functions in units of reward.
    """
    if owner.num_members in (None, 1) or not owner.has_prior or not owner.head.in_reward_units:
        return None
    return Doubt(*map(float, _measure(owner, belief, obs, action)))


@eqx.filter_jit
def _measure(owner: Belief, belief: BeliefState, obs: Any, action: Any) -> tuple[Array, Array, Array, Array]:
    values = _members(owner, belief, obs)
    raw = owner.prior_values(belief, obs)
    assert raw is not None
    prior = owner.prior_scale * raw[..., 0]
    rows = jnp.arange(values.shape[1])
    q, p = (part[:, rows, action] for part in (values, prior))
    q, p = q - q.mean(axis=0), p - p.mean(axis=0)
    both, own, whole = jnp.sum(q * p), jnp.sum(p * p), jnp.sum(q * q)
    fresh = owner.init(jax.random.key(0), jax.tree.map(lambda leaf: leaf[0], obs))  # a new initial state
    now, then = (_hopes(part) for part in (values, _members(owner, fresh, obs)))
    return both / (own + 1e-12), both**2 / (own * whole + 1e-12), now, now / (then + 1e-12)


def _members(owner: Belief, belief: BeliefState, obs: Any) -> Array:
    """Compute the values of all members."""
    return values_of(owner.head, owner.forward(belief, jax.random.key(0), obs, shared=True))


def _hopes(values: Array) -> Array:
    """Compute the standard deviation over members of the value of the greedy action."""
    return jnp.sqrt(jnp.mean(jnp.var(jnp.max(values, axis=-1), axis=0)))


class Adviser:
    """Gives advice on the prior scale during a run, each piece of advice once."""

    def __init__(self, prior_scale: float) -> None:
        self.prior_scale = prior_scale
        self.cells = 0
        self.said: set[str] = set()

    def look(
        self, found: Doubt | None, updates: int, cells: int | None, returns: list[float], learned: bool
    ) -> str | None:
        """Check whether the prior scale is too large or too small.

        Too large: values at visited states are still dominated by the priors, or members are far more optimistic than
        any return seen although no new states are found. Too small: members agree and no new states are found, although
        nothing was learned.

        Args:
            found: Measurements at transitions from replay.
            updates: Number of updates so far.
            cells: Number of distinct states seen, if they are counted.
            returns: Returns of episodes so far.
            learned: Whether returns have improved.

        Returns:
            The advice, or None.
        """
        new, self.cells = cells is None or cells > 1.02 * self.cells, cells or 0
        if found is None or updates < LEAST_UPDATES:
            return None
        if found.left > 0.5 and found.explained > 0.5:
            return self._once(
                "large",
                f"after {updates:,} updates {found.left:.0%} of the prior remains in the values of actions taken",
                "a third of this value",
            )
        if new or learned:
            return None
        size = max(1.0, float(np.sqrt(np.mean(np.square(returns))))) if returns else 1.0
        seen = f"no new states are found ({cells:,} so far) and returns do not improve"
        if found.differ > 3 * size:
            why = f"greedy values differ by {found.differ:.2g} between members, returns are about {size:.2g}"
            return self._once("large", f"{why}, {seen}", "a third of this value")
        if found.kept < 0.1 and found.differ < size / 10:
            why = f"members differ by only {found.kept:.0%} of the initial amount"
            return self._once("small", f"{why}, {seen}", "three times this value")
        return None

    def _once(self, kind: str, why: str, remedy: str) -> str | None:
        if kind in self.said:
            return None
        self.said.add(kind)
        return f"prior_scale={self.prior_scale:g} looks too {kind}: {why}; try {remedy}"


def better(returns: list[float]) -> bool:
    """Check whether the mean of the last 20 returns exceeds that of the first 20 by half their standard deviation.

    Args:
        returns: Returns of episodes, in order.

    Returns:
        True if they are, or if there are too few episodes to tell.
    """
    if len(returns) < 40:
        return True
    first, last = np.asarray(returns[:20]), np.asarray(returns[-20:])
    return bool(last.mean() > first.mean() + first.std() / 2 + 1e-9)
