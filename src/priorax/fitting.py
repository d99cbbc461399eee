"""Algorithm 1: fit a belief to a fixed data set. All members train together, in compiled chunks of steps.

Between chunks the host draws the progress bar, looks for non-finite losses and for a reason to stop early, so a
Ctrl-C is answered within a chunk.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, State, stream_losses
from priorax.beliefs.ensemble import Ensemble
from priorax.checks import NonFinite, fraction, positive_int
from priorax.noise import Noise, as_noise
from priorax.progress import steps_bar

CHUNK = 100
"""Steps between two looks of the host."""


class Data(eqx.Module):
    """A data set as the streams see it: `data_noise` has been drawn. Rows past `num_rows` are padding."""

    x: PyTree
    """[row, ...]"""
    target: Array
    """[row, stream or 1, output, ...]"""
    weight: Float[Array, "row stream"]
    prior: Float[Array, "row stream output prior"] | None
    count: Float[Array, " stream"]
    num_rows: Int[Array, ""]


class Fit(NamedTuple):
    """What fitting gives."""

    state: State
    losses: Float[np.ndarray, "step stream"]
    stopped_early: bool


class NonFiniteLoss(NonFinite):
    """Training diverged; the message names step and member."""


def form_data(
    belief: Belief,
    state: State,
    x: Any,
    y: Any,
    *,
    key: PRNGKeyArray,
    noise: Any = "none",
    sample_weight: Any = None,
    seen: int = 0,
) -> Data:
    """Lines 3 and 4 of algorithm 1: each stream's own copy of the data, its noise drawn once, priors evaluated once.

    `seen`: how many examples the belief has learned from before (for `n` of equation 4).
    """
    n, y, sample_weight = _checked(belief, x, y, sample_weight)
    noise = as_noise(noise)
    weight, shift = _draw_noise(noise, key, belief.num_streams, n, belief.num_outputs)
    if shift is not None and not np.issubdtype(y.dtype, np.floating):
        raise ValueError(f"noise={noise!r} moves targets, but these targets are classes; use a resampling noise")
    targets = jnp.asarray(y)[None] if shift is None else jnp.asarray(y)[None] + shift
    padded = _bucket(n)
    return _assemble(
        belief,
        state,
        jax.tree.map(lambda leaf: _pad(np.asarray(leaf), padded, mode="edge"), x),
        _pad(np.moveaxis(np.asarray(targets), 0, 1), padded),
        _pad(np.asarray(weight).T * np.asarray(sample_weight, dtype=np.float32)[:, None], padded),
        jnp.asarray(n),
        jnp.asarray(seen, dtype=float),
    )


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))
def _draw_noise(
    noise: Noise, key: PRNGKeyArray, num_streams: int, n: int, num_outputs: int
) -> tuple[Float[Array, "stream row"], Float[Array, "stream row output"] | None]:
    """Weights and target shifts of every (stream, example)."""
    key_weight, key_shift = jax.random.split(key)
    weight = jax.vmap(lambda k: noise.weights(k, n))(jax.random.split(key_weight, num_streams))
    return weight, jax.vmap(lambda k: noise.shift(k, n, num_outputs))(jax.random.split(key_shift, num_streams))


@eqx.filter_jit
def _assemble(belief: Belief, state: State, x: Any, y: Any, weight: Any, num_rows: Array, seen: Array) -> Data:
    target = jax.vmap(jax.vmap(jax.vmap(belief.head.encode)))(y)
    prior = belief.prior_values(state, x) if isinstance(belief, Ensemble) else None
    return Data(
        x=x,
        target=target,
        weight=weight,
        prior=None if prior is None else jnp.moveaxis(prior, 0, 1),
        count=jnp.broadcast_to(seen + num_rows, (belief.num_streams,)),
        num_rows=num_rows,
    )


def fit(
    belief: Belief,
    data: tuple[Any, Any],
    *,
    key: PRNGKeyArray,
    noise: Any = "none",
    sample_weight: Any = None,
    steps: int = 2000,
    batch_size: int | None = 128,
    validation_fraction: float | None = None,
    patience: int = 10,
    own_batches: bool = False,
    progress: Callable[[int, float], None] | bool = False,
) -> Fit:
    """Fit a belief to `data = (x, y)`: x [n, ...] (any pytree), y [n] or [n, num_outputs].

    noise                data noise by name or object, drawn once per (example, member)
    batch_size           None, or at least n: full batches; else drawn uniformly at each step
    own_batches          members draw their own minibatches; else they share them (their weights stay their own)
    validation_fraction  hold out this share and stop when its loss has not fallen for `patience` chunks of 100 steps
    progress             True shows a bar; a function is called after each chunk with the steps done and the mean loss
    """
    steps = positive_int("steps", steps)
    x, y = data
    key_init, key_data, key_split, key_train = jax.random.split(key, 4)
    n, y, sample_weight = _checked(belief, x, y, sample_weight)
    noise, patience = as_noise(noise), positive_int("patience", patience)
    state = _init(belief, key_init, jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], x))
    held: Data | None = None
    if validation_fraction is not None:
        order = np.asarray(jax.random.permutation(key_split, n))
        cut = int(n * fraction("validation_fraction", validation_fraction))
        if cut < 1 or cut >= n:
            raise ValueError(
                f"validation_fraction={validation_fraction} of {n} examples leaves no data on one side; "
                "pass more data or another fraction"
            )
        take = functools.partial(_rows, order[:cut])
        held = form_data(belief, state, jax.tree.map(take, x), take(y), key=key_data, sample_weight=take(sample_weight))
        take = functools.partial(_rows, order[cut:])
        x, y, sample_weight = jax.tree.map(take, x), take(y), take(sample_weight)
        noise = noise.take(order[cut:])
    formed = form_data(belief, state, x, y, key=key_data, noise=noise, sample_weight=sample_weight)
    with steps_bar(progress is True, steps, "fit") as bar:
        return train(
            belief,
            state,
            formed,
            key=key_train,
            steps=steps,
            batch_size=batch_size,
            own_batches=own_batches,
            held=held,
            patience=patience,
            progress=progress if callable(progress) else bar,
        )


def train(
    belief: Belief,
    state: State,
    data: Data,
    *,
    key: PRNGKeyArray,
    steps: int,
    batch_size: int | None = 128,
    own_batches: bool = False,
    held: Data | None = None,
    patience: int = 10,
    first_step: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Fit:
    """Line 5 of algorithm 1: `steps` optimiser steps on data that has been formed."""
    size = None if batch_size is None or positive_int("batch_size", batch_size) >= int(data.num_rows) else batch_size
    state = _observe(belief, state, data)
    if not belief.by_gradient:
        return Fit(state, np.zeros((0, belief.num_streams)), False)
    best, best_loss, since_best, losses = state, np.inf, 0, []
    for done in range(0, steps, CHUNK):
        length = min(CHUNK, steps - done)
        state, chunk = _run(belief, state, data, key, first_step + done, length, size, own_batches)
        chunk = np.asarray(chunk)[:length]
        _check_finite(chunk, first_step + done)
        losses.append(chunk)
        if progress is not None:
            progress(done + length, float(chunk.mean()))
        if held is not None:
            loss = float(_held_loss(belief, state, held, key))
            if loss < best_loss:
                best, best_loss, since_best = state, loss, 0
            else:
                since_best += 1
            if since_best >= patience:
                return Fit(best, np.concatenate(losses), True)
    return Fit(state if held is None else best, np.concatenate(losses), False)


@eqx.filter_jit
def _init(belief: Belief, key: PRNGKeyArray, x: Any) -> State:
    return belief.init(key, x)


@eqx.filter_jit
def _observe(belief: Belief, state: State, data: Data) -> State:
    return belief.observe(state, _full_batch(data, normalise=False))


@functools.partial(jax.jit, static_argnames=("size", "own_batches"))
def _run(
    belief: Belief,
    state: State,
    data: Data,
    key: PRNGKeyArray,
    first: int | Int[Array, ""],
    length: int | Int[Array, ""],
    size: int | None,
    own_batches: bool,
) -> tuple[State, Float[Array, "step stream"]]:
    """`length` steps from step `first` on. Step t depends on (key, t) only, so chunks can be cut anywhere."""

    def body(i: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
        state, losses = carry
        key_rows, key_update = jax.random.split(jax.random.fold_in(key, first + i))
        batch = _full_batch(data) if size is None else _minibatch(data, key_rows, size, own_batches)
        state, info = belief.update(state, batch, key_update)
        return state, losses.at[i].set(info.loss)

    return jax.lax.fori_loop(0, length, body, (state, jnp.zeros((CHUNK, belief.num_streams))))


def _minibatch(data: Data, key: PRNGKeyArray, size: int, own: bool) -> Batch:
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
    """Row numbers in [0, num_rows), uniform to within num_rows/2³²; a third of `randint`'s cost."""
    return (jax.random.bits(key, shape) % num_rows.astype(jnp.uint32)).astype(jnp.int32)


def _full_batch(data: Data, normalise: bool = True) -> Batch:
    """All rows, padding with weight zero; `normalise` makes the mean over padded rows the mean over real ones."""
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


@eqx.filter_jit
def _held_loss(belief: Belief, state: State, held: Data, key: PRNGKeyArray) -> Float[Array, ""]:
    batch = _full_batch(held)
    return jnp.mean(stream_losses(belief.head, belief.forward(state, key, batch.x, batch.prior, True), batch))


def _check_finite(losses: np.ndarray, first: int) -> None:
    bad = np.argwhere(~np.isfinite(losses))
    if len(bad):
        step, member = bad[0]
        raise NonFiniteLoss(
            f"the loss of member {member} became {losses[step, member]} at step {first + step}; "
            "lower the learning rate, standardise the data, or look for extreme targets"
        )


def _checked(belief: Belief, x: Any, y: Any, sample_weight: Any) -> tuple[int, np.ndarray, Any]:
    """Rows agree, y has one column per output, all numbers are finite."""
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
        raise ValueError(f"sample_weight holds {sample_weight.min()}; every weight must be at least 0")
    for name, tree in {"x": x, "y": y, "sample_weight": sample_weight}.items():
        for leaf in jax.tree.leaves(tree):
            if np.issubdtype(np.asarray(leaf).dtype, np.floating) and not np.all(np.isfinite(leaf)):
                raise ValueError(f"{name} holds NaN or infinity; remove or impute those rows first")
    return n, y, sample_weight


def _num_rows(x: Any) -> int:
    sizes = {np.shape(leaf)[0] for leaf in jax.tree.leaves(x)}
    if len(sizes) != 1:
        raise ValueError(f"the parts of x have different numbers of rows {sorted(sizes)}; they must agree")
    return sizes.pop()


def _rows(order: np.ndarray, leaf: Any) -> np.ndarray:
    return np.asarray(leaf)[order]


def _bucket(n: int) -> int:
    """The next power of two, 64 at least: data sets of like size share compiled code."""
    return max(64, 1 << (n - 1).bit_length())


def _pad(leaf: np.ndarray, rows: int, mode: Any = "constant") -> np.ndarray:
    """More rows: zeros, or with mode "edge" the last row again (what users' code sees must be real inputs)."""
    return np.pad(leaf, [(0, rows - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1), mode=mode)
