"""Adam on a big table, touching only the rows of a minibatch.

The first layer of a `Table` has a row per state; an update's gradient is zero for all but the states in the batch, yet
dense Adam still decays and moves every row. Here a row is brought up to date when it is next looked at: with
c = b1/sqrt(b2), j steps without gradient move a weight by

    -lr * m / (sqrt(v) + eps) * c (1 - c^j)/(1 - c) * sqrt(1 - b2^t)/(1 - b1^t)

and decay m by b1^j and v by b2^j. The bias correction drifts within the skipped steps; it is taken at their mean time
under the weights c^i, which is dense Adam to first order (tests state the tolerance). A row's weights, moments and last
step lie side by side: one gather, one scatter. Only where untouched rows have no gradient: not under an l2 pull.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from priorax.beliefs.base import Adam
from priorax.networks import Layer


class Rows(NamedTuple):
    """The table of ONE member, packed: [weights, first moment, second moment, last step] side by side."""

    packed: Float[Array, "row packed"]

    @property
    def width(self) -> int:
        return (self.packed.shape[-1] - 1) // 3


class Row(NamedTuple):
    """Some rows, up to date at some step."""

    weight: Float[Array, "... unit"]
    first: Float[Array, "... unit"]
    second: Float[Array, "... unit"]


class SparseParams(NamedTuple):
    """Members' parameters with a packed table: all have a leading member axis."""

    rows: Rows
    rest: PyTree
    """The layers, the first without its table."""
    step: Int[Array, " member"]
    """Updates so far."""


def sparse_params(params: tuple[Layer, ...]) -> SparseParams:
    """Dense parameters (leading member axis) as sparse ones."""
    table = params[0].weight
    rest = (Layer(table[:, :0], params[0].bias), *params[1:])
    return SparseParams(jax.vmap(pack)(table), rest, jnp.zeros(table.shape[0], int))


def pack(weight: Float[Array, "row unit"]) -> Rows:
    """A fresh table: no moments, last touched at step 0."""
    zeros = jnp.zeros_like(weight)
    return Rows(jnp.concatenate([weight, zeros, zeros, zeros[..., :1]], axis=-1))


def read(adam: Adam, rows: Rows, x: Int[Array, "..."], step: Int[Array, ""]) -> Row:
    """Rows as dense Adam would have them after `step` updates; all zeros outside the table."""
    outside = rows.packed.shape[0]
    packed = jnp.take(rows.packed, jnp.where(x < 0, outside, x), axis=0, mode="fill", fill_value=0.0)
    weight, first, second, last = jnp.split(packed, [rows.width, 2 * rows.width, 3 * rows.width], axis=-1)
    skipped = jnp.maximum(step - last, 0.0)
    c = adam.b1 / adam.b2**0.5
    left = c**skipped
    mean_time = (1 - (skipped + 1) * left + skipped * left * c) / ((1 - c) * jnp.maximum(1 - left, 1e-6))
    t = jnp.maximum(last + mean_time, 1.0)
    correction = jnp.sqrt(1 - adam.b2**t) / (1 - adam.b1**t)
    tail = c * (1 - left) / (1 - c) * correction
    return Row(
        weight - adam.learning_rate * first / (jnp.sqrt(second) + adam.eps) * tail,
        first * adam.b1**skipped,
        second * adam.b2**skipped,
    )


def write(
    adam: Adam,
    rows: Rows,
    x: Int[Array, " batch"],
    row: Row,
    gradient: Float[Array, "batch unit"],
    step: Int[Array, ""],
) -> Rows:
    """One Adam update, the `step`-th, of the rows `row` read at x; rows that occur twice sum their gradients."""
    same = (x[:, None] == x[None, :]).astype(gradient.dtype)
    total = same @ gradient
    first = adam.b1 * row.first + (1 - adam.b1) * total
    second = adam.b2 * row.second + (1 - adam.b2) * total**2
    t = step.astype(float)
    move = (first / (1 - adam.b1**t)) / (jnp.sqrt(second / (1 - adam.b2**t)) + adam.eps)
    last = jnp.broadcast_to(t, (*x.shape, 1))
    packed = jnp.concatenate([row.weight - adam.learning_rate * move, first, second, last], axis=-1)
    return Rows(rows.packed.at[x].set(packed, mode="drop"))
