"""Randomized prior functions: ensembles that know what they do not know."""

from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.fitting import fit
from priorax.storage import load, save

__version__ = "0.1.0"
__all__ = ["PriorEnsembleClassifier", "PriorEnsembleRegressor", "__version__", "fit", "load", "save"]
