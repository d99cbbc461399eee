"""scikit-learn estimators that implement algorithm 1: `PriorEnsembleRegressor` and `PriorEnsembleClassifier`."""

from priorax.estimators.base import SIZES, Uncertainty
from priorax.estimators.classifier import PriorEnsembleClassifier
from priorax.estimators.regressor import PriorEnsembleRegressor

__all__ = ["SIZES", "PriorEnsembleClassifier", "PriorEnsembleRegressor", "Uncertainty"]
