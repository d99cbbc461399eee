"""Compiled evaluation of the members, in blocks of fixed size."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from priorax.beliefs import BeliefState, Ensemble
from priorax.hardware import one_by_one

BLOCK = 128
"""Number of rows on which a network is evaluated at once. It is fixed, since the order in which a matrix product sums
depends on its size: so predictions for a row are the same to the bit, whatever other rows there are.
"""
SIZES = (BLOCK, 512, 4096)
"""Rows per compiled call of predict: inputs are padded to the smallest size that holds them, and larger inputs are
split into chunks of the last.
"""

LEAST = 8
"""Least number of rows to which the inputs of `members` are padded."""


@jax.jit
def all_outputs(belief: Ensemble, state: Any, x: Any) -> Float[Array, "member row output size"]:
    """Compute the outputs of all members on few rows.

    Args:
        belief: The ensemble.
        state: Its parameters and frozen parts.
        x: Inputs [row, ...].

    Returns:
        Raw outputs.
    """

    def of(parts: Any) -> Array:
        return jax.vmap(lambda row: belief.output(parts[0], parts[1], row))(x)

    few = jax.tree.leaves(x)[0].shape[0] <= BLOCK
    return jax.vmap(of)(state) if few else one_by_one(of, state)


@jax.jit
def outputs_of(belief: Ensemble, state: Any, x: Any, member: int | Array) -> Float[Array, "row output size"]:
    """Compute the outputs of one member on few rows.

    Args:
        belief: The ensemble.
        state: Its parameters and frozen parts.
        x: Inputs [row, ...].
        member: Number of the member.

    Returns:
        Raw outputs.
    """
    params, frozen = jax.tree.map(lambda leaf: leaf[member], state)
    return jax.vmap(lambda row: belief.output(params, frozen, row))(x)


def mean_of(members: np.ndarray) -> np.ndarray:
    """Average over members, summing in a fixed order for any number of rows.

    Args:
        members: Values [member, row, ...].

    Returns:
        The mean [row, ...].
    """
    return sum(members) / len(members)


def outputs(belief: Ensemble, state: BeliefState, x: Any) -> Float[Array, "member row output size"]:
    """Evaluate the members in blocks of rows; on CPUs in turn, so that weights and activations stay in the cache.

    Args:
        belief: The ensemble.
        state: Its state.
        x: Inputs [row, ...]; the number of rows is a multiple of `BLOCK`.

    Returns:
        Raw outputs of all members.
    """
    blocks = jax.tree.map(lambda leaf: leaf.reshape(-1, BLOCK, *leaf.shape[1:]), x)

    def member(parts: Any) -> Array:
        rows = jax.vmap(lambda row: belief.output(parts[0], parts[1], row))
        found = one_by_one(rows, blocks)
        return found.reshape(-1, *found.shape[2:])

    return one_by_one(member, (state.params, state.frozen))
