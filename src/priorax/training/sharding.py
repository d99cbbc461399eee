"""An ensemble on several devices: members are sharded, shared parameters are replicated.

The compiled update is the same as on one device: the compiler computes each member on its device, and sums the members'
gradients of a shared torso over devices.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import GetAttrKey

from priorax.agents import AgentState, QLearner


def spread_members(agent: QLearner, state: AgentState, devices: Any = None) -> AgentState:
    """Shard the members of an agent's ensemble evenly over devices.

    Args:
        agent: The agent.
        state: State of the agent.
        devices: The devices; by default all.

    Returns:
        The same state, sharded.

    Raises:
        ValueError: If the agent has no ensemble, or the number of members is not a multiple of the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    belief = agent.belief
    if belief.num_members is None:
        raise ValueError(f"belief={type(belief).__name__} has no members to shard over devices; use an ensemble")
    if belief.num_members % len(devices):
        raise ValueError(
            f"num_members={belief.num_members} is not a multiple of the number of devices, {len(devices)}; "
            f"use a multiple of {len(devices)}, or fewer devices"
        )
    mesh = Mesh(np.asarray(devices), ("member",))
    apart, everywhere = NamedSharding(mesh, PartitionSpec("member")), NamedSharding(mesh, PartitionSpec())

    learned = (state.belief, state.target)
    members = GetAttrKey("members")  # beliefs with both members and shared parameters
    named = any(members in path for path, _ in jax.tree_util.tree_leaves_with_path(learned))

    def place(path: Any, leaf: Any) -> Any:
        own = members in path if named else np.ndim(leaf) > 0 and np.shape(leaf)[0] == belief.num_members
        return jax.device_put(leaf, apart if own else everywhere)

    spread = jax.tree_util.tree_map_with_path(place, learned)
    return jax.device_put(state, everywhere)._replace(belief=spread[0], target=spread[1])
