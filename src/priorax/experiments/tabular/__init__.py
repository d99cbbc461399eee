"""Estimators on data sets that others publish results on."""
