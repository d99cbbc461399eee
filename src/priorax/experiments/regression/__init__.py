"""Posteriors of regression on small data: figures 1, 2, 12 and 13."""
