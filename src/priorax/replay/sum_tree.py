"""Sum tree with 64 branches per node, for sampling slots in proportion to their values.

With `xp` = `numpy` trees are changed in place; with `jax.numpy` functions return a changed copy.
"""

from typing import Any

import jax.numpy as jnp

BRANCHES = 64
"""Branches per node."""

Levels = tuple[Any, ...]
"""Levels of the tree, each [node, branch]: the values by slot, then the sums of nodes, up to a single node."""


def empty(xp: Any, slots: int) -> Levels:
    """Create a tree of zeros.

    Args:
        xp: `numpy` or `jax.numpy`.
        slots: Number of slots.

    Returns:
        The tree.
    """
    levels: list[Any] = []
    nodes = slots
    while nodes > 1 or not levels:
        nodes = -(-nodes // BRANCHES)
        levels.append(xp.zeros((nodes, BRANCHES)))
    return tuple(levels)


def write(xp: Any, levels: Levels, slots: Any, values: Any) -> Levels:
    """Set the values of some slots, and update all sums above them. If a slot occurs twice, either value may be used.

    Args:
        xp: `numpy` or `jax.numpy`.
        levels: The tree.
        slots: Slot indices.
        values: Their new values.

    Returns:
        The updated tree.
    """
    changed = []
    for level in levels:
        level = _put(level, slots // BRANCHES, slots % BRANCHES, values)
        changed.append(level)
        slots = slots // BRANCHES
        values = xp.sum(level[slots], axis=1)
    return tuple(changed)


def write_one(levels: Levels, slot: Any, value: Any) -> Levels:
    """Set the value of ONE slot of a JAX tree, and update all sums above it, without a copy in a compiled loop.

    Each level's row is read before it is written, and the position of the write is made to depend on the row's sum, so
    that the compiler can change the level in place.

    Args:
        levels: The tree.
        slot: Index of the slot.
        value: Its new value, not negative.

    Returns:
        The updated tree.
    """
    changed = []
    for level in levels:
        node, branch = slot // BRANCHES, slot % BRANCHES
        row = jnp.where(jnp.arange(BRANCHES) == branch, value, level[node])
        slot, value = node, jnp.sum(row)
        changed.append(level.at[jnp.where(value < 0, 0, node)].set(row))
    return tuple(changed)


def draw(xp: Any, levels: Levels, uniform: Any) -> tuple[Any, Any]:
    """Sample slots in proportion to their values.

    Args:
        xp: `numpy` or `jax.numpy`.
        levels: The tree.
        uniform: Uniform random numbers in [0, 1), [draw].

    Returns:
        Slot indices, and their sampling probabilities.
    """
    total = xp.sum(levels[-1])
    point, node = uniform * total, xp.zeros(uniform.shape, int)
    for level in reversed(levels):
        row = level[node]
        below = xp.cumsum(row, axis=1)
        point = xp.minimum(point, xp.nextafter(below[:, -1], xp.zeros_like(point)))  # guard against rounding
        branch = xp.minimum(xp.sum(below <= point[:, None], axis=1), BRANCHES - 1)
        point = point - xp.take_along_axis(below - row, branch[:, None], axis=1)[:, 0]
        node = node * BRANCHES + branch
    return node, read(levels, node) / xp.maximum(total, 1e-30)


def read(levels: Levels, slots: Any) -> Any:
    """Look up the values of slots.

    Args:
        levels: The tree.
        slots: Slot indices.

    Returns:
        The values.
    """
    return levels[0][slots // BRANCHES, slots % BRANCHES]


def _put(level: Any, node: Any, branch: Any, values: Any) -> Any:
    if hasattr(level, "at"):
        return level.at[node, branch].set(values)
    level[node, branch] = values
    return level
