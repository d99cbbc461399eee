"""`priorax fit` and `priorax predict`: from a CSV file to a calibrated model, and to predictions of another."""

from priorax.tabular.fitting import FitReport, fit_table
from priorax.tabular.predicting import PredictReport, predict_table

__all__ = ["FitReport", "PredictReport", "fit_table", "predict_table"]
