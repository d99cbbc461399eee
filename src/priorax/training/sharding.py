"""An ensemble over several devices: members are spread, what they share is everywhere.

The same compiled update as on one device: the compiler sees where each member is, computes it there, and sums what the
members' gradients mean for a shared torso over the devices.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import GetAttrKey

from priorax.agents import AgentState, QLearner
from priorax.beliefs import ENSEMBLES, Ensemble


def spread_members(agent: QLearner, state: AgentState, devices: Any = None) -> AgentState:
    """The same state with its members spread evenly over the devices (all, unless told)."""
    devices = jax.devices() if devices is None else devices
    belief = agent.belief
    if not isinstance(belief, ENSEMBLES):
        raise ValueError(f"belief={type(belief).__name__} has no members to spread over devices; use an ensemble")
    if belief.num_members % len(devices):
        raise ValueError(
            f"num_members={belief.num_members} do not divide over {len(devices)} devices; "
            f"use a multiple of {len(devices)}, or fewer devices"
        )
    mesh = Mesh(np.asarray(devices), ("member",))
    apart, everywhere = NamedSharding(mesh, PartitionSpec("member")), NamedSharding(mesh, PartitionSpec())

    def place(path: Any, leaf: Any) -> Any:
        if isinstance(belief, Ensemble):
            own = np.ndim(leaf) > 0 and np.shape(leaf)[0] == belief.num_members
        else:
            own = GetAttrKey("members") in path
        return jax.device_put(leaf, apart if own else everywhere)

    spread = jax.tree_util.tree_map_with_path(place, (state.belief, state.target))
    return jax.device_put(state, everywhere)._replace(belief=spread[0], target=spread[1])
