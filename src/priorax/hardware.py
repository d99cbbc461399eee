"""Choices that depend on where JAX computes: on CPUs, or on an accelerator.

On a CPU a program is fastest if it touches little memory; on an accelerator, if it has few and large operations. All
such choices are made here; both ways give the same results within rounding.
"""

from collections.abc import Callable
from typing import Any

import jax


def on_cpu() -> bool:
    """Whether JAX computes on CPUs.

    Returns:
        False on a GPU or TPU.
    """
    return jax.default_backend() == "cpu"


def one_by_one(function: Callable[[Any], Any], parts: Any) -> Any:
    """Apply a function to each part, along the leading axis.

    Args:
        function: Function of one part.
        parts: Arrays with a leading axis.

    Returns:
        The results, along a leading axis. On CPUs one part is computed after the other, so that what it needs stays in
        the cache, and its result does not depend on the number of parts; on an accelerator all are computed at once.
    """
    return jax.lax.map(function, parts) if on_cpu() else jax.vmap(function)(parts)


def updates_sparse_rows(requested: bool | None = None) -> bool:
    """Whether Adam updates only the rows of a table that occur in a minibatch, rather than all of them.

    Args:
        requested: The choice that was requested, if any.

    Returns:
        That choice; without one, True on CPUs, where the time of an update grows with the numbers that it touches, and
        False on accelerators, where one pass over the table is fewer operations than look-ups and scattered writes.
    """
    return on_cpu() if requested is None else requested
