"""Beliefs: ways of representing uncertainty, one file each. `base` says what a belief is.

`method(name, ...)` gives a belief together with the data noise that it is meant to be trained with: the rows of
the paper's Table 1 by name.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.beliefs.base import (
    L2,
    Adam,
    Batch,
    Belief,
    BeliefState,
    Info,
    RMSProp,
    draw_values,
    greedy_backup,
    plain_batch,
    values_of,
)
from priorax.beliefs.counts import Counts, Density, GaussianCount, HashCount, OneHotCount, TableCount
from priorax.beliefs.dropout import Dropout
from priorax.beliefs.ensemble import Ensemble
from priorax.beliefs.exact import ExactBayes
from priorax.beliefs.gaussian_weights import GaussianWeights, bayes_by_backprop, noisy
from priorax.beliefs.outcomes import Outcomes
from priorax.beliefs.shared_torso import SharedTorso
from priorax.checks import one_of
from priorax.heads import C51, Head, Quantiles
from priorax.networks import MLP, Network
from priorax.noise import NOISES, Noise

__all__ = [
    "ENSEMBLES",
    "L2",
    "METHODS",
    "Adam",
    "Batch",
    "Belief",
    "BeliefState",
    "Counts",
    "Density",
    "Dropout",
    "Ensemble",
    "ExactBayes",
    "GaussianCount",
    "GaussianWeights",
    "HashCount",
    "Info",
    "Method",
    "OneHotCount",
    "Outcomes",
    "RMSProp",
    "SharedTorso",
    "TableCount",
    "bayes_by_backprop",
    "belief_values",
    "draw_values",
    "ensemble_of",
    "greedy_backup",
    "method",
    "noisy",
    "plain_batch",
    "spread",
    "values_of",
]


ENSEMBLES = (Ensemble, SharedTorso)
"""Beliefs whose draws are K members: all of them can be looked at, and each has its prior."""


def ensemble_of(belief: Belief) -> Ensemble | SharedTorso | None:
    """The members that learn in a belief: itself, or what counts or outcomes are around; None where there are none.

    They share the belief's state: `ensemble_of(belief).prior_values(state, x)`."""
    while isinstance(belief, Counts | Outcomes):
        belief = belief.base
    return belief if isinstance(belief, ENSEMBLES) else None


class Method(NamedTuple):
    """A belief and the data noise that belongs to it."""

    belief: Belief
    noise: Noise


def _bsp(network: Network | None = None, prior: Network | None = None, **settings: Any) -> Method:
    network = network or MLP()
    return Method(Ensemble(network=network, prior=prior or network, **settings), NOISES["bootstrap"])


def _bsr(l2: L2 | None = None, **settings: Any) -> Method:
    return Method(Ensemble(l2=l2 or L2(), **settings), NOISES["bootstrap"])


def _distributional(default: Head, head: Head | None = None, **settings: Any) -> Method:
    return Method(Outcomes(Ensemble(num_members=1, head=head or default, **settings)), NOISES["none"])


def _count(density: Any = None, bonus_scale: float = 0.1, **settings: Any) -> Method:
    base = Ensemble(num_members=1, **settings)
    return Method(Counts(base, density or GaussianCount(), bonus_scale), NOISES["none"])


METHODS: dict[str, Callable[..., Method]] = {
    "ensemble": lambda **s: Method(Ensemble(**s), NOISES["none"]),
    "bs": lambda **s: Method(Ensemble(**s), NOISES["bootstrap"]),
    "bsr": _bsr,
    "bsp": _bsp,
    "dropout": lambda **s: Method(Dropout(**s), NOISES["none"]),
    "noisy": lambda **s: Method(noisy(**s), NOISES["none"]),
    "bbb": lambda **s: Method(bayes_by_backprop(**s), NOISES["none"]),
    "c51": functools.partial(_distributional, C51()),
    "qr": functools.partial(_distributional, Quantiles()),
    "count": _count,
    "exact": lambda **s: Method(ExactBayes(**s), NOISES["none"]),
}
"""Table 1 by name. Settings are those of the belief."""


def method(name: str, **settings: Any) -> Method:
    """The method of that name: `method("bsp", num_members=20, prior_scale=3.0)`."""
    return METHODS[one_of("method", name, METHODS)](**settings)


def spread(
    belief: Belief, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
) -> Float[Array, "batch output"]:
    """How uncertain the belief says it is at a batch of inputs: the standard deviation over draws; for counts, which
    do not draw, the bonus; for an ensemble, over its members, each once."""
    if isinstance(belief, Counts):
        bonus = _bonus(belief, state, x)
        return jnp.broadcast_to(bonus, (len(bonus), belief.num_outputs))
    return jnp.std(belief_values(belief, state, key, x, num_draws), axis=0)


def _bonus(belief: Counts, state: BeliefState, x: Any) -> Float[Array, "batch 1"]:
    return jax.vmap(lambda row: belief.bonus(state, row))(x)[:, None]


def belief_values(belief: Belief, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100) -> Array:
    """Functions of the belief on a batch of inputs: all members of an ensemble, else `num_draws` draws. Where it counts
    they have their bonus."""
    if isinstance(belief, Counts):
        return belief_values(belief.base, state, key, x, num_draws) + _bonus(belief, state, x)
    if isinstance(belief, ENSEMBLES):
        return values_of(belief.head, belief.forward(state, key, x, shared=True))
    return draw_values(belief, state, key, x, num_draws)
