"""An ensemble on several devices: members are sharded, everything that they share is on each device.

The compiled update is the same as on one device: the compiler computes each member on its device, and sums the members'
gradients of a shared torso over devices.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from priorax.agents import Agent, QLearner
from priorax.beliefs import SHARED


def devices_for(agent: Agent, devices: int) -> list[jax.Device]:
    """Choose the devices over which the members of an agent's ensemble are spread.

    Args:
        agent: The agent.
        devices: Number of devices; 0: as many of those that JAX sees as divide the number of members.

    Returns:
        The devices.

    Raises:
        ValueError: If JAX does not see that many, the agent has no ensemble, or the number of its members is not a
            multiple of the number of devices.
    """
    seen = jax.devices()
    belief = getattr(agent, "belief", agent)
    members: int = getattr(belief, "num_members", None) or 0
    if devices == 0:
        return seen[: max(n for n in range(1, len(seen) + 1) if max(members, 1) % n == 0)]
    if devices > 1 and members == 0:
        raise ValueError(
            f"devices={devices} spreads the members of an ensemble, and {type(belief).__name__} has none; pass "
            "devices=1, or use an ensemble such as 'bsp'"
        )
    if devices > 1 and members % devices:
        raise ValueError(
            f"num_members={members} must be a multiple of devices={devices}; pass num_members="
            f"{-(-members // devices) * devices}, or devices=0 for as many as divide it"
        )
    if devices > len(seen):
        raise ValueError(
            f"devices={devices} must be at most {len(seen)}, the number of devices that JAX sees (platform "
            f"{seen[0].platform!r}); pass devices={len(seen)}, or, to divide the cores of a host, set the environment "
            f"variable XLA_FLAGS=--xla_force_host_platform_device_count={devices}"
        )
    return seen[:devices]


def spread_members(agent: Agent, state: Any, devices: Sequence[jax.Device]) -> Any:
    """Shard the members of an agent's ensemble evenly over devices.

    Args:
        agent: The agent.
        state: State of the agent.
        devices: The devices, of `devices_for`.

    Returns:
        The same state; if there are several devices, sharded.
    """
    if len(devices) == 1:
        return state
    assert isinstance(agent, QLearner)  # others have no members

    def put(leaf: jax.Array, axis: int) -> jax.Array:
        return jax.device_put(leaf, _sharding(devices, axis if leaf.size else SHARED))  # as the compiler has it

    axes = agent.belief.member_axes(state.belief)
    target = jax.tree.map(put, state.target, axes.params) if agent.lagged else ()
    shared = on_each(state._replace(belief=(), target=()), devices)
    return shared._replace(belief=jax.tree.map(put, state.belief, axes), target=target)


def on_each(tree: Any, devices: Sequence[jax.Device]) -> Any:
    """Copy arrays to each device.

    Args:
        tree: A tree of arrays.
        devices: The devices, of `devices_for`.

    Returns:
        The same arrays; if there are several devices, on each of them.
    """
    return tree if len(devices) == 1 else jax.device_put(tree, _sharding(devices))


def _sharding(devices: Sequence[jax.Device], axis: int = SHARED) -> NamedSharding:
    """Shard along an axis, or copy what all members share."""
    spec = PartitionSpec() if axis == SHARED else PartitionSpec(*[None] * axis, "member")
    return NamedSharding(Mesh(np.asarray(devices), ("member",)), spec)
