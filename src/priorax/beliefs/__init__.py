"""Beliefs: representations of epistemic uncertainty, one file each. `base` defines the interface.

`method(name, ...)` gives a belief together with the data noise that it is trained with: the rows of the paper's Table 1
by name.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from priorax.beliefs.base import SHARED, Batch, Belief, BeliefState, Info, draw_values, plain_batch
from priorax.beliefs.bonus import Bonus
from priorax.beliefs.counts import Counts, Density, GaussianCount, HashCount, OneHotCount, TableCount
from priorax.beliefs.distillation import Distillation
from priorax.beliefs.dropout import Dropout
from priorax.beliefs.ensemble import Ensemble
from priorax.beliefs.epinet import Epinet
from priorax.beliefs.exact import ExactBayes
from priorax.beliefs.gaussian_weights import GaussianWeights, bayes_by_backprop, noisy
from priorax.beliefs.gradient import Adam, Langevin, RMSProp, gradient_step, stream_losses
from priorax.beliefs.hypermodel import Hypermodel
from priorax.beliefs.indexed import Indexed
from priorax.beliefs.outcomes import Outcomes
from priorax.beliefs.regularization import L2
from priorax.beliefs.shared_torso import SharedTorso
from priorax.beliefs.wrapper import Wrapper
from priorax.checks import one_of
from priorax.heads import C51, Head, Quantiles, greedy_backup, values_of
from priorax.networks import MLP, Network
from priorax.noise import NOISES, Gaussian, Noise
from priorax.priors import Independent, UnitRows

__all__ = [
    "L2",
    "METHODS",
    "SHARED",
    "Adam",
    "Batch",
    "Belief",
    "BeliefState",
    "Bonus",
    "Counts",
    "Density",
    "Distillation",
    "Dropout",
    "Ensemble",
    "Epinet",
    "ExactBayes",
    "GaussianCount",
    "GaussianWeights",
    "HashCount",
    "Hypermodel",
    "Info",
    "Langevin",
    "Method",
    "OneHotCount",
    "Outcomes",
    "RMSProp",
    "SharedTorso",
    "TableCount",
    "Wrapper",
    "bayes_by_backprop",
    "draw_values",
    "gradient_step",
    "greedy_backup",
    "method",
    "noisy",
    "plain_batch",
    "stream_losses",
    "values_of",
]


class Method(NamedTuple):
    """A belief and the data noise that it is trained with."""

    belief: Belief
    """The belief."""
    noise: Noise
    """Its data noise."""


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


def _hypermodel(
    network: Network | None = None,
    prior: Network | None = None,
    index_dim: int = 4,
    noise_std: float = 0.0,
    **settings: Any,
) -> Method:
    network = network or MLP()
    if prior is None and isinstance(network, MLP) and network.widths:
        *hidden, last = network.widths
        prior = UnitRows(dataclasses.replace(network, widths=tuple(hidden)), last, index_dim)
    return _indexed(Hypermodel, index_dim, noise_std, network=network, prior=prior or network, **settings)


def _epinet(
    network: Network | None = None,
    prior: Network | None = None,
    index_dim: int = 8,
    noise_std: float = 0.0,
    **settings: Any,
) -> Method:
    network = network or MLP()
    prior = prior or Independent(network, index_dim)
    return _indexed(Epinet, index_dim, noise_std, network=network, prior=prior, **settings)


def _indexed(kind: type[Indexed], index_dim: int, noise_std: float, **settings: Any) -> Method:
    noise = Gaussian(noise_std) if noise_std > 0 else NOISES["none"]
    return Method(kind(index_dim, perturbed=noise_std > 0, **settings), noise)


METHODS: dict[str, Callable[..., Method]] = {
    "ensemble": lambda **s: Method(Ensemble(**s), NOISES["none"]),
    "bs": lambda **s: Method(Ensemble(**s), NOISES["bootstrap"]),
    "bsr": _bsr,
    "bsp": _bsp,
    "dropout": lambda **s: Method(Dropout(**s), NOISES["none"]),
    "noisy": lambda **s: Method(noisy(**s), NOISES["none"]),
    "bbb": lambda **s: Method(bayes_by_backprop(**s), NOISES["none"]),
    "hypermodel": _hypermodel,
    "epinet": _epinet,
    "c51": functools.partial(_distributional, C51()),
    "qr": functools.partial(_distributional, Quantiles()),
    "count": _count,
    "exact": lambda **s: Method(ExactBayes(**s), NOISES["none"]),
}
"""The methods of Table 1 and others by name: functions from the settings of the belief to a `Method`."""


def method(name: str, **settings: Any) -> Method:
    """Create a method by name: `method("bsp", num_members=20, prior_scale=3.0)`.

    Args:
        name: A name in `METHODS`.
        **settings: Settings of the belief.

    Returns:
        The belief and its data noise.

    Raises:
        ValueError: If the name is unknown, or a setting is invalid.
    """
    return METHODS[one_of("method", name, METHODS)](**settings)
