"""scikit-learn estimators that implement algorithm 1: `PriorEnsembleRegressor` and `PriorEnsembleClassifier`."""

from priorax.estimators.base import Uncertainty
from priorax.estimators.classifier import PriorEnsembleClassifier
from priorax.estimators.evaluating import SIZES
from priorax.estimators.explaining import Cause, Explanation
from priorax.estimators.regressor import PriorEnsembleRegressor

__all__ = ["SIZES", "Cause", "Explanation", "PriorEnsembleClassifier", "PriorEnsembleRegressor", "Uncertainty"]
