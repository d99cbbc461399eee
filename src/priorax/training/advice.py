"""Whether a prior's scale suits a run: what is left of the priors where data has spoken, and how far members differ."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from priorax.agents import QLearner
from priorax.beliefs import ENSEMBLES, BeliefState, belief_values
from priorax.heads import Scalar

LEAST_UPDATES = 2000
"""Before so many, nothing is said."""
ROWS = 256
"""Transitions that are looked at."""


class Doubt(NamedTuple):
    """At transitions drawn from replay."""

    left: float
    """How much of the priors is still in the values of the actions taken: the slope of what members differ by in value
    on what they differ by in prior. 1: as at the start; 0: the data has replaced them."""
    explained: float
    """The share of the variance between members that this explains."""
    differ: float
    """How far members differ in what they hope for, the value of their best action: a standard deviation."""
    kept: float
    """The same as a share of how far they differed at the start."""


def measure(agent: QLearner, belief: BeliefState, obs: Any, action: Any) -> Doubt | None:
    """At a batch of transitions; nothing where there is no ensemble with prior functions and plain values."""
    owner = agent.belief
    if not isinstance(owner, ENSEMBLES) or owner.prior is None or owner.num_members == 1:
        return None
    return Doubt(*map(float, _measure(agent, belief, obs, action))) if isinstance(owner.head, Scalar) else None


@eqx.filter_jit
def _measure(agent: QLearner, belief: BeliefState, obs: Any, action: Any) -> tuple[Array, Array, Array, Array]:
    owner: Any = agent.belief
    values = belief_values(owner, belief, jax.random.key(0), obs)
    prior = owner.prior_scale * owner.prior_values(belief, obs)[..., 0]
    rows = jnp.arange(values.shape[1])
    q, p = (part[:, rows, action] for part in (values, prior))
    q, p = q - q.mean(axis=0), p - p.mean(axis=0)
    both, own, whole = jnp.sum(q * p), jnp.sum(p * p), jnp.sum(q * q)
    fresh = owner.init(jax.random.key(0), jax.tree.map(lambda leaf: leaf[0], obs))  # as good as what it began with
    now, then = (_hopes(part) for part in (values, belief_values(owner, fresh, jax.random.key(0), obs)))
    return both / (own + 1e-12), both**2 / (own * whole + 1e-12), now, now / (then + 1e-12)


def _hopes(values: Array) -> Array:
    """How far members differ in the value of their best action."""
    return jnp.sqrt(jnp.mean(jnp.var(jnp.max(values, axis=-1), axis=0)))


class Adviser:
    """Looks at a run now and then, and says each thing once."""

    def __init__(self, prior_scale: float) -> None:
        self.prior_scale = prior_scale
        self.cells = 0
        self.said: set[str] = set()

    def look(
        self, found: Doubt | None, updates: int, cells: int | None, returns: list[float], learned: bool
    ) -> str | None:
        """What there is to say. `cells`: distinct states seen, if they are counted; `learned`: whether anything was.

        Too large: values are still the priors' where data has spoken, or members hope for much more than was ever seen
        though nothing new is left to be seen. Too small: they all hope for much the same, nothing new is seen any more,
        and yet nothing was learned.
        """
        new, self.cells = cells is None or cells > 1.02 * self.cells, cells or 0
        if found is None or updates < LEAST_UPDATES:
            return None
        if found.left > 0.5 and found.explained > 0.5:
            return self._once(
                "large", f"after {updates:,} updates {found.left:.0%} of it is in what was tried", "a third"
            )
        if new or learned:
            return None
        size = max(1.0, float(np.sqrt(np.mean(np.square(returns))))) if returns else 1.0
        seen = f"nothing new is seen ({cells:,} states) and little was learned"
        if found.differ > 3 * size:
            why = f"members differ by {found.differ:.2g} in what they hope for, returns are about {size:.2g}"
            return self._once("large", f"{why}, {seen}", "a third")
        if found.kept < 0.1 and found.differ < size / 10:
            why = f"members differ by only {found.kept:.0%} of what they did at first"
            return self._once("small", f"{why}, {seen}", "three times")
        return None

    def _once(self, kind: str, why: str, remedy: str) -> str | None:
        if kind in self.said:
            return None
        self.said.add(kind)
        return f"prior_scale={self.prior_scale:g} looks too {kind}: {why}; try {remedy} that"


def better(returns: list[float]) -> bool:
    """Whether the last twenty are better than the first, beyond half of their spread; unknown counts as so."""
    if len(returns) < 40:
        return True
    first, last = np.asarray(returns[:20]), np.asarray(returns[-20:])
    return bool(last.mean() > first.mean() + first.std() / 2 + 1e-9)
