"""Randomized prior functions in JAX: ensembles with uncertainty estimates, and agents that explore with them."""

import importlib
from typing import TYPE_CHECKING, Any

from priorax.version import __version__

if TYPE_CHECKING:
    from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor
    from priorax.fitting import fit
    from priorax.learned_prior import learn_prior
    from priorax.report.evaluating import evaluate
    from priorax.storage import load_prior, save, save_prior
    from priorax.training.distil import distil
    from priorax.training.explorer import Explorer
    from priorax.training.policy import load
    from priorax.training.trainer import train

__all__ = [
    "Explorer",
    "PriorEnsembleClassifier",
    "PriorEnsembleRegressor",
    "__version__",
    "distil",
    "evaluate",
    "fit",
    "learn_prior",
    "load",
    "load_prior",
    "save",
    "save_prior",
    "train",
]

_HOMES = {
    "Explorer": "training.explorer",
    "PriorEnsembleClassifier": "estimators",
    "PriorEnsembleRegressor": "estimators",
    "distil": "training.distil",
    "evaluate": "report.evaluating",
    "fit": "fitting",
    "learn_prior": "learned_prior",
    "load": "training.policy",
    "load_prior": "storage",
    "save": "storage",
    "save_prior": "storage",
    "train": "training.trainer",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `priorax --help` does not wait for JAX.

    Args:
        name: The name.

    Returns:
        The object.

    Raises:
        AttributeError: If there is no such name.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'priorax' has no attribute {name!r}")
    return getattr(importlib.import_module(f"priorax.{_HOMES[name]}"), name)
