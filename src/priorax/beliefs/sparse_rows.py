"""Adam on a big table, touching only the rows of a minibatch.

The first layer of a `Table` has a row per state; an update's gradient is zero for all but the states in the batch, yet
dense Adam still decays and moves every row. Here a row is brought up to date when it is next looked at: with
c = b1/sqrt(b2), j steps without gradient move a weight by

    -lr * m / (sqrt(v) + eps) * c (1 - c^j)/(1 - c) * sqrt(1 - b2^t)/(1 - b1^t)

and decay m by b1^j and v by b2^j. The bias correction drifts within the skipped steps; it is taken at their mean time
under the weights c^i, which is dense Adam to first order (tests state the tolerance). It needs c < 1: else moves would
grow with each step without gradient. A row's weights, moments and last
step lie side by side: one gather, one scatter. Only where untouched rows have no gradient: not under an l2 pull.

A row that occurs twice in a batch sums its gradients: each occurrence writes its place in the batch into the row's cell
of `writer`, whoever stands there afterwards speaks for all. The cells are never cleared, since only those just written
are read.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from priorax.beliefs.base import Adam
from priorax.networks import Layer, take_rows


class Rows(NamedTuple):
    """A table: a row per state."""

    weight: Float[Array, "row unit"]
    move: Float[Array, "row unit"]
    """What Adam last moved the row by, over the learning rate."""
    first: Float[Array, "row unit"]
    """First moment."""
    second: Float[Array, "row unit"]
    """Second moment."""
    last: Int[Array, " row"]
    """The step of the last update."""
    writer: Int[Array, " row"]
    """Scratch: who in the batch writes the row."""


class SparseParams(NamedTuple):
    """An ensemble's parameters with such a table."""

    rows: Rows
    """One table per member (a leading axis), or one for all: where members always look at the same rows, their weights
    lie side by side in it."""
    rest: PyTree
    """The layers, the first without its table; with a leading member axis."""
    step: Int[Array, ""]
    """Updates so far."""


def sparse_params(params: tuple[Layer, ...], shared: bool) -> SparseParams:
    """Dense parameters (leading member axis) as sparse ones."""
    table = params[0].weight
    rest = (Layer(table[:, :0], params[0].bias), *params[1:])
    side_by_side = jnp.moveaxis(table, 0, 1).reshape(table.shape[1], -1)
    rows = fresh(side_by_side) if shared else jax.vmap(fresh)(table)
    return SparseParams(rows, rest, jnp.zeros((), int))


def fresh(weight: Float[Array, "row unit"]) -> Rows:
    """A table that was never updated."""
    zeros, never = jnp.zeros_like(weight), jnp.zeros(weight.shape[0], int)
    return Rows(weight, zeros, zeros, zeros, never, never)


def read(adam: Adam, rows: Rows, x: Int[Array, "..."], step: Int[Array, ""]) -> Float[Array, "... unit"]:
    """Weights as dense Adam would have them after `step` updates; zeros outside the table."""
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
    """One Adam update, the `step`-th, of the rows at x, whose weights were read; rows that occur twice sum their
    gradients."""
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
    """Adam's bias correction at step t."""
    t = jnp.maximum(t, 1.0)
    return jnp.sqrt(1 - _power(adam.b2, t)) / (1 - _power(adam.b1, t))


def _power(base: float, exponent: Array) -> Array:
    """base^exponent; `exp` is vectorised on a CPU where `pow` is not."""
    return (exponent == 0).astype(float) if base == 0 else jnp.exp(exponent * math.log(base))
