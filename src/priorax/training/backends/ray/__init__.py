"""Training over many processes and machines, on Ray (extra `cluster`)."""

from priorax.training.backends.ray.apex import ApexProgress, ApexResult, run_apex

__all__ = ["ApexProgress", "ApexResult", "run_apex"]
