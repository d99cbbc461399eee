"""Environments: compiled ones with the interface of gymnax 1.x, and vectors of environments stepped on the host."""

from priorax.envs.base import Environment, action_bound, inputs_of, num_states
from priorax.envs.catalogue import BSUITE, GYMNASIUM, GYMNAX, EnvironmentSpec
from priorax.envs.jax.held import Held
from priorax.envs.registry import environment_spec, environments, make_environment, make_world, register_environment

__all__ = [
    "BSUITE",
    "GYMNASIUM",
    "GYMNAX",
    "Environment",
    "EnvironmentSpec",
    "Held",
    "action_bound",
    "environment_spec",
    "environments",
    "inputs_of",
    "make_environment",
    "make_world",
    "num_states",
    "register_environment",
]
