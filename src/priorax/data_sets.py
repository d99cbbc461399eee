"""Data sets in the form that algorithm 1 trains on: validated, split, perturbed once for each member, padded, batched.

Data sets are padded to a power of two, and the true number of rows is an argument of the compiled code, as are the
hyperparameters of belief and noise. So data sets of similar size, and beliefs that differ in numbers only, share one
compiled program.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, BeliefState
from priorax.checks import fraction
from priorax.noise import Noise, as_noise

ROWS_AT_ONCE = 4096
"""Rows for which priors and losses are evaluated at once, to bound memory."""


class Data(eqx.Module):
    """A data set with its noise drawn for each stream. Rows past `num_rows` are padding."""

    x: PyTree
    """Inputs [row, ...], a pytree."""
    target: Array
    """Encoded targets [row, stream or 1, output, ...]."""
    weight: Float[Array, "row stream"]
    """Weights, including those of the data noise."""
    sample_weight: Float[Array, " row"]
    """Weights without the data noise; zero for padding."""
    prior: Float[Array, "row stream output prior"] | None
    """Values of the prior functions; None if there are none."""
    count: Float[Array, " stream"]
    """Number of examples that each stream has seen, including earlier ones."""
    num_rows: Int[Array, ""]
    """Number of rows that are not padding."""


def form_data(
    belief: Belief,
    state: BeliefState,
    x: Any,
    y: Any,
    *,
    key: PRNGKeyArray,
    noise: Any = "none",
    sample_weight: Any = None,
    seen: int = 0,
) -> Data:
    """Perturb a data set for each stream and evaluate the priors on it (algorithm 1, lines 3 and 4).

    Args:
        belief: The belief to be trained.
        state: Its state, which holds the priors.
        x: Inputs [n, ...], any pytree.
        y: Targets [n] or [n, num_outputs]: labels 0, 1, ... for a `Classes` head, else numbers.
        key: PRNG key of the noise.
        noise: Data noise, by name or as an object.
        sample_weight: Weights [n]; None weighs all rows equally.
        seen: Number of examples that the belief was trained on before (for n in equation 4).

    Returns:
        The data to pass to `train`.

    Raises:
        ValueError: If shapes do not match or values are invalid; see `checked`.
    """
    x, y, sample_weight = checked(belief, x, y, sample_weight)
    noise, n = as_noise(noise), len(y)
    shift = jax.eval_shape(lambda key: noise.shift(key, n, belief.num_outputs), key)  # checks the shape of its scale
    if shift is not None and belief.head.takes_classes:
        raise ValueError(f"noise={noise!r} shifts targets, but these targets are classes; use a resampling noise")
    size = _bucket(n)
    return _assemble(
        as_arrays(belief),
        state,
        as_arrays(noise),
        key,
        jax.tree.map(lambda leaf: _pad(leaf, size, mode="edge"), x),
        _pad(y, size),
        _pad(sample_weight, size),
        jnp.asarray(n),
        jnp.asarray(seen, dtype=float),
    )


@eqx.filter_jit
def _assemble(
    belief: Belief,
    state: BeliefState,
    noise: Noise,
    key: PRNGKeyArray,
    x: Any,
    y: Any,
    sample_weight: Any,
    num_rows: Array,
    seen: Array,
) -> Data:
    size, streams = sample_weight.shape[0], belief.num_streams
    key_weight, key_shift = jax.random.split(key)
    # one stream after the other, to bound the memory of random numbers
    weight = jax.lax.map(lambda k: noise.weights(k, num_rows, size), jax.random.split(key_weight, streams))
    shift = jax.lax.map(
        lambda k: noise.shift(k, num_rows, belief.num_outputs, size), jax.random.split(key_shift, streams)
    )
    y = y[:, None] if shift is None else y[:, None] + jnp.swapaxes(shift, 0, 1)
    return Data(
        x=x,
        target=jax.vmap(jax.vmap(jax.vmap(belief.head.encode)))(y),
        weight=weight.T * sample_weight[:, None],
        sample_weight=sample_weight,
        prior=_prior_values(belief, state, x, size),
        count=jnp.broadcast_to(seen + num_rows, (streams,)),
        num_rows=num_rows,
    )


def _prior_values(
    belief: Belief, state: BeliefState, x: Any, size: int
) -> Float[Array, "row stream output prior"] | None:
    if not belief.has_prior:
        return None

    def of_rows(rows: Any) -> Array | None:
        values = belief.prior_values(state, rows)
        return None if values is None else jnp.moveaxis(values, 0, 1)

    return in_row_chunks(of_rows, x, size)


def in_row_chunks(function: Callable[[Any], Any], rows: Any, size: int) -> Any:
    """Apply a function to rows in chunks, to bound memory.

    Args:
        function: Maps a pytree of arrays [chunk, ...] to another with the same leading axis.
        rows: A pytree of arrays [size, ...].
        size: Number of rows, a power of two.

    Returns:
        The results [size, ...].
    """
    chunk = min(ROWS_AT_ONCE, size)
    parts = jax.tree.map(lambda leaf: leaf.reshape(size // chunk, chunk, *leaf.shape[1:]), rows)
    done = jax.lax.map(function, parts)
    return jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[2:]), done)


def as_arrays(tree: Any) -> Any:
    """Convert the Python numbers of a pytree to arrays, so that `eqx.filter_jit` does not recompile when they change.

    Args:
        tree: A pytree.

    Returns:
        The pytree with arrays in place of numbers.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float | int | np.ndarray) else leaf, tree)


def split_rows(key: PRNGKeyArray, y: np.ndarray, share: float, is_label: bool) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random for validation; the classes of a single output are stratified.

    Args:
        key: A PRNG key.
        y: Targets [n, output].
        share: Fraction of rows to hold out.
        is_label: Whether y contains class labels.

    Returns:
        Indices of the held-out rows and of the training rows. No class is held out entirely.

    Raises:
        ValueError: If either part would be empty.
    """
    n = len(y)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    order = random.permutation(n)
    cut = int(n * fraction("validation_fraction", share))
    if is_label and y.shape[1] == 1 and cut:
        _, label, count = np.unique(y[order, 0], return_inverse=True, return_counts=True)
        wanted = _shares(cut, count)
        by_label = np.argsort(label, kind="stable")
        place = np.arange(n) - np.repeat(np.cumsum(count) - count, count)
        is_held = np.empty(n, dtype=bool)
        is_held[by_label] = place < wanted[label[by_label]]
        order = np.concatenate([order[is_held], order[~is_held]])
        cut = int(wanted.sum())
    if cut < 1 or cut >= n:
        raise ValueError(
            f"validation_fraction={share} of {n} examples leaves no training or no validation data; "
            "pass more data or another fraction"
        )
    return order[:cut], order[cut:]


def _shares(cut: int, count: np.ndarray) -> np.ndarray:
    """Divide about `cut` rows between classes in proportion to their size; each class keeps one row for training."""
    exact = cut * count / count.sum()
    wanted = np.floor(exact).astype(int)
    for i in np.argsort(wanted - exact, kind="stable"):
        if wanted.sum() < cut and wanted[i] + 1 < count[i]:
            wanted[i] += 1
    return wanted


def minibatch(data: Data, key: PRNGKeyArray, size: int, own: bool) -> Batch:
    """Draw a minibatch uniformly, with replacement.

    Args:
        data: The data set.
        key: A PRNG key.
        size: Number of rows.
        own: Whether each stream draws its own rows; else all streams share them.

    Returns:
        The batch.
    """
    streams = data.weight.shape[1]
    if not own:
        rows = _uniform_rows(key, (size,), data.num_rows)
        return _batch(data, lambda leaf: leaf[rows], shared=True)
    rows = _uniform_rows(key, (size, streams), data.num_rows)
    stream = jnp.arange(streams)
    return Batch(
        x=jax.tree.map(lambda leaf: leaf[rows.T], data.x),
        target=jnp.swapaxes(data.target[rows, jnp.minimum(stream, data.target.shape[1] - 1)], 0, 1),
        weight=data.weight[rows, stream].T,
        count=data.count,
        prior=None if data.prior is None else jnp.swapaxes(data.prior[rows, stream], 0, 1),
    )


def _uniform_rows(key: PRNGKeyArray, shape: tuple[int, ...], num_rows: Array) -> Int[Array, "..."]:
    """Draw row indices in [0, num_rows), uniform to within num_rows/2³²; faster than `randint`."""
    return (jax.random.bits(key, shape) % num_rows.astype(jnp.uint32)).astype(jnp.int32)


def full_batch(data: Data, normalise: bool = True) -> Batch:
    """Return all rows as one batch; padding has weight zero.

    Args:
        data: The data set.
        normalise: Whether to scale the weights so that the mean over padded rows is the mean over real rows.

    Returns:
        The batch.
    """
    factor = data.weight.shape[0] / data.num_rows if normalise else 1.0
    return eqx.tree_at(lambda b: b.weight, _batch(data, lambda leaf: leaf, shared=True), factor * data.weight.T)


def _batch(data: Data, take: Callable[[Array], Array], shared: bool) -> Batch:
    target = jnp.swapaxes(take(data.target), 0, 1)
    return Batch(
        x=jax.tree.map(take, data.x),
        target=jnp.broadcast_to(target, (data.weight.shape[1], *target.shape[1:])),
        weight=take(data.weight).T,
        count=data.count,
        prior=None if data.prior is None else jnp.swapaxes(take(data.prior), 0, 1),
        shared=shared,
    )


def checked(belief: Belief, x: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Validate a data set and convert it to the types it is computed in.

    Args:
        belief: The belief to be trained.
        x: Inputs [n, ...], any pytree.
        y: Targets [n] or [n, num_outputs].
        sample_weight: Weights [n], or None.

    Returns:
        x, y [n, num_outputs] and the weights [n].

    Raises:
        ValueError: If the numbers of rows differ, y does not have one column per output, a number is not finite or
            exceeds the range of float32, a weight is negative, or a label is not one of the head's classes.
    """
    n = _num_rows(x)
    if n == 0:
        raise ValueError("the data set is empty (0 rows); pass at least one example")
    y = np.asarray(y)
    y = y[:, None] if y.ndim == 1 else y
    if y.shape != (n, belief.num_outputs):
        raise ValueError(
            f"y has shape {y.shape} but x has {n} rows and the belief {belief.num_outputs} outputs; "
            f"pass y of shape ({n}, {belief.num_outputs})"
        )
    sample_weight = np.ones(n, dtype=np.float32) if sample_weight is None else np.asarray(sample_weight)
    if sample_weight.shape != (n,):
        raise ValueError(f"sample_weight has shape {sample_weight.shape} but x has {n} rows; pass one per row")
    if np.any(sample_weight < 0):
        raise ValueError(f"sample_weight has the value {sample_weight.min()}; every weight must be at least 0")
    is_label = belief.head.takes_classes
    y = y if is_label else _numbers("y", y, float)
    x = jax.tree.map(lambda leaf: _numbers("x", np.asarray(leaf)), x)
    sample_weight = _numbers("sample_weight", sample_weight, float)
    return x, _labels(y, belief.head.size) if is_label else y, sample_weight


def _numbers(name: str, values: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Check that numbers are finite and convert them to JAX's default type."""
    wanted = jax.dtypes.canonicalize_dtype(values.dtype if dtype is None else dtype)
    if not np.issubdtype(values.dtype, np.floating):
        return values.astype(wanted, copy=False)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{name} contains NaN or infinity; remove or impute those rows first")
    if values.dtype != wanted and (largest := np.max(np.abs(values), initial=0.0)) > np.finfo(wanted).max:
        raise ValueError(
            f"{name} has values up to {largest:.3g}, but the largest {wanted} is {np.finfo(wanted).max:.3g}; "
            f"divide {name} by a constant"
        )
    return values.astype(wanted, copy=False)


def _labels(y: np.ndarray, num_classes: int) -> np.ndarray:
    """Check class labels and convert them to integers."""
    number = y.dtype.kind in "iubf"
    wrong = y[(y != np.floor(y)) | (y < 0) | (y >= num_classes)] if number else y.ravel()
    if len(wrong):
        raise ValueError(
            f"y has the label {wrong[0]}, but the head's {num_classes} classes are numbered 0 to {num_classes - 1}; "
            "encode the labels, for example by numpy.unique(y, return_inverse=True), or use a head with more classes"
        )
    return y.astype(np.int32)


def _num_rows(x: Any) -> int:
    sizes = {np.shape(leaf)[0] for leaf in jax.tree.leaves(x)}
    if len(sizes) != 1:
        raise ValueError(f"the parts of x have different numbers of rows {sorted(sizes)}; they must agree")
    return sizes.pop()


def _bucket(n: int) -> int:
    """Get the next power of two, at least 64, so that data sets of similar size share compiled code."""
    return max(64, 1 << (n - 1).bit_length())


def _pad(leaf: np.ndarray, rows: int, mode: Any = "constant") -> np.ndarray:
    """Pad with zeros, or with mode "edge" by repeating the last row, so that custom code only sees valid inputs."""
    return np.pad(leaf, [(0, rows - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1), mode=mode)
