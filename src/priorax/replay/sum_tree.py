"""Numbers by slot, drawn in proportion to them: a tree of sums, 64 branches at each node.

`xp` is `numpy`, which changes the tree in place, or `jax.numpy`, which gives a changed one.
"""

from typing import Any

BRANCHES = 64
"""Of a node."""

Levels = tuple[Any, ...]
"""[node, branch]: the numbers, slot after slot; then the sums of these nodes, in nodes themselves, up to one."""


def empty(xp: Any, slots: int) -> Levels:
    """A tree of zeros."""
    levels: list[Any] = []
    nodes = slots
    while nodes > 1 or not levels:
        nodes = -(-nodes // BRANCHES)
        levels.append(xp.zeros((nodes, BRANCHES)))
    return tuple(levels)


def write(xp: Any, levels: Levels, slots: Any, values: Any) -> Levels:
    """Other numbers in some slots, and all sums above them. Of a slot that occurs twice, one of its values."""
    changed = []
    for level in levels:
        level = _put(level, slots // BRANCHES, slots % BRANCHES, values)
        changed.append(level)
        slots = slots // BRANCHES
        values = xp.sum(level[slots], axis=1)
    return tuple(changed)


def draw(xp: Any, levels: Levels, uniform: Any) -> tuple[Any, Any]:
    """Slots in proportion to their numbers.

    Args:
        xp: `numpy` or `jax.numpy`.
        levels: The tree.
        uniform: [draw], random numbers in [0, 1).

    Returns:
        The slots, and the share that each has of the sum of all numbers.
    """
    total = xp.sum(levels[-1])
    point, node = uniform * total, xp.zeros(uniform.shape, int)
    for level in reversed(levels):
        row = level[node]
        below = xp.cumsum(row, axis=1)
        point = xp.minimum(point, xp.nextafter(below[:, -1], xp.zeros_like(point)))  # rounding must not lead beyond
        branch = xp.minimum(xp.sum(below <= point[:, None], axis=1), BRANCHES - 1)
        point = point - xp.take_along_axis(below - row, branch[:, None], axis=1)[:, 0]
        node = node * BRANCHES + branch
    return node, read(levels, node) / xp.maximum(total, 1e-30)


def read(levels: Levels, slots: Any) -> Any:
    """The numbers in some slots."""
    return levels[0][slots // BRANCHES, slots % BRANCHES]


def _put(level: Any, node: Any, branch: Any, values: Any) -> Any:
    if hasattr(level, "at"):
        return level.at[node, branch].set(values)
    level[node, branch] = values
    return level
