"""Adam on a large table, updating only the rows of a minibatch.

The first layer of a `Table` has a row per state; the gradient of an update is zero for all but the states in the batch,
yet dense Adam decays the moments of every row and moves it. Here a row is brought up to date when it is next read: with
c = b1/sqrt(b2), j steps without gradient move a weight by

    -lr * m / (sqrt(v) + eps) * c (1 - c^j)/(1 - c) * sqrt(1 - b2^t)/(1 - b1^t)

and decay m by b1^j and v by b2^j. The bias correction changes within the skipped steps; it is evaluated at their mean
time under the weights c^i, which is dense Adam to first order (tests state the tolerance). It needs c < 1: otherwise
steps without gradient would grow. It requires that rows outside the batch have no gradient, so it excludes L2
regularisation.

The gradients of a row that occurs twice in a batch are summed: each occurrence writes its position in the batch into
the row's cell of `writer`, and the one found there afterwards represents all. Cells are never cleared, since only those
just written are read.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from priorax.beliefs.base import SHARED
from priorax.beliefs.gradient import Adam
from priorax.networks import Layer, take_rows


class Rows(NamedTuple):
    """A table with one row per state."""

    weight: Float[Array, "row unit"]
    """Weights."""
    move: Float[Array, "row unit"]
    """Last Adam step of the row, divided by the learning rate."""
    first: Float[Array, "row unit"]
    """First moment."""
    second: Float[Array, "row unit"]
    """Second moment."""
    last: Int[Array, " row"]
    """Step of the last update."""
    writer: Int[Array, " row"]
    """Scratch space: the position in the batch that represents the row."""


SIDE_BY_SIDE = Rows._make([1, 1, 1, 1, SHARED, SHARED])
"""The axis of members in each array of a table that serves all members."""


class SparseParams(NamedTuple):
    """Parameters of an ensemble whose first layer is such a table."""

    rows: Rows
    """One table per member (a leading axis), or one for all members with their weights side by side, if they always
    have the same inputs."""
    rest: PyTree
    """The remaining layers, including the first layer without its table; with a leading member axis."""
    step: Int[Array, ""]
    """Number of updates so far."""


def sparse_params(params: tuple[Layer, ...], shared: bool) -> SparseParams:
    """Convert dense parameters to sparse ones.

    Args:
        params: Layers with a leading member axis.
        shared: Whether one table serves all members.

    Returns:
        The sparse parameters.
    """
    table = params[0].weight
    rest = (Layer(table[:, :0], params[0].bias), *params[1:])
    side_by_side = jnp.moveaxis(table, 0, 1).reshape(table.shape[1], -1)
    rows = fresh(side_by_side) if shared else jax.vmap(fresh)(table)
    return SparseParams(rows, rest, jnp.zeros((), int))


def fresh(weight: Float[Array, "row unit"]) -> Rows:
    """Create a table that was never updated.

    Args:
        weight: Initial weights.

    Returns:
        The table.
    """
    zeros, never = jnp.zeros_like(weight), jnp.zeros(weight.shape[0], int)
    return Rows(weight, zeros, zeros, zeros, never, never)


def read(adam: Adam, rows: Rows, x: Int[Array, "..."], step: Int[Array, ""]) -> Float[Array, "... unit"]:
    """Read weights as dense Adam would have them after `step` updates; zeros for indices outside the table.

    Args:
        adam: The optimiser.
        rows: The table.
        x: Row indices.
        step: Number of updates so far.

    Returns:
        One row of weights per index.
    """
    last = take_rows(rows.last[:, None], x).astype(float)
    skipped = step - last
    c = adam.b1 / adam.b2**0.5
    left = _power(c, skipped)
    mean_time = (1 - (skipped + 1) * left + skipped * left * c) / ((1 - c) * jnp.maximum(1 - left, 1e-6))
    tail = c * (1 - left) / (1 - c) * _correction(adam, last + mean_time) / _correction(adam, last)
    return take_rows(rows.weight, x) - adam.learning_rate * tail * take_rows(rows.move, x)


def write(
    adam: Adam,
    rows: Rows,
    x: Int[Array, " batch"],
    weight: Float[Array, "batch unit"],
    gradient: Float[Array, "batch unit"],
    step: Int[Array, ""],
) -> Rows:
    """Perform one Adam update of the rows at x; gradients of rows that occur twice are summed.

    Args:
        adam: The optimiser.
        rows: The table.
        x: Row indices.
        weight: Weights of these rows, from `read`.
        gradient: Their gradients.
        step: Number of this update, from 1.

    Returns:
        The updated table.
    """
    outside, place = rows.last.shape[0], jnp.arange(x.shape[0])
    x = jnp.where(x < 0, outside, x)
    writer = rows.writer.at[x].set(place, mode="drop")
    speaker = writer.at[x].get(mode="clip")
    total = jnp.zeros_like(gradient).at[speaker].add(gradient)
    skipped = (step - 1 - take_rows(rows.last[:, None], x)).astype(float)
    first = adam.b1 * _power(adam.b1, skipped) * take_rows(rows.first, x) + (1 - adam.b1) * total
    second = adam.b2 * _power(adam.b2, skipped) * take_rows(rows.second, x) + (1 - adam.b2) * total**2
    t = step.astype(float)
    move = (first / (1 - adam.b1**t)) / (jnp.sqrt(second / (1 - adam.b2**t)) + adam.eps)
    to = jnp.where(speaker == place, x, outside)

    def put(table: Array, new: Array) -> Array:
        return table.at[to].set(new, mode="drop")

    return Rows(
        put(rows.weight, weight - adam.learning_rate * move),
        put(rows.move, move),
        put(rows.first, first),
        put(rows.second, second),
        put(rows.last, step),
        writer,
    )


def _correction(adam: Adam, t: Array) -> Array:
    """Compute Adam's bias correction at step t."""
    t = jnp.maximum(t, 1.0)
    return jnp.sqrt(1 - _power(adam.b2, t)) / (1 - _power(adam.b1, t))


def _power(base: float, exponent: Array) -> Array:
    """Compute base^exponent by `exp`, which is vectorised on CPU, unlike `pow`."""
    return (exponent == 0).astype(float) if base == 0 else jnp.exp(exponent * math.log(base))
