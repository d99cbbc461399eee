"""Environments: compiled ones in the shape of gymnax 1.x (`base`), and many at once on the host (`host.vector`)."""

from priorax.envs.base import Environment, action_bound, input_scale, num_states
from priorax.envs.jax.held import Held
from priorax.envs.registry import BSUITE, ENVIRONMENTS, GYMNASIUM, GYMNAX, make_environment, make_world

__all__ = [
    "BSUITE",
    "ENVIRONMENTS",
    "GYMNASIUM",
    "GYMNAX",
    "Environment",
    "Held",
    "action_bound",
    "input_scale",
    "make_environment",
    "make_world",
    "num_states",
]
