"""The scikit-learn face of algorithm 1.

PriorEnsembleRegressor().fit(X, y).predict(X, return_std=True)
"""

from priorax.estimators.base import SIZES, Uncertainty
from priorax.estimators.classifier import PriorEnsembleClassifier
from priorax.estimators.regressor import PriorEnsembleRegressor

__all__ = ["SIZES", "PriorEnsembleClassifier", "PriorEnsembleRegressor", "Uncertainty"]
