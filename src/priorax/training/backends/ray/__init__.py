"""Training over many processes and machines, on Ray (extra `cluster`)."""

from priorax.training.backends.ray.backend import RayBackend, on_ray

__all__ = ["RayBackend", "on_ray"]
