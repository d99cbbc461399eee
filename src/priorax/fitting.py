"""Algorithm 1: fit a belief to a fixed data set. All members are trained together, in compiled chunks of steps.

Between chunks the host updates the progress bar, checks that losses are finite and decides whether to stop early, so
Ctrl-C takes effect within one chunk.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from priorax.beliefs import Belief, BeliefState
from priorax.checks import NonFinite, positive_int
from priorax.data_sets import Data, checked, form_data, full_batch, in_row_chunks, minibatch, split_rows
from priorax.noise import as_noise
from priorax.progress import steps_bar

CHUNK = 100
"""Optimiser steps per compiled call."""

OUT_OF_BAG_ROWS = 2048
"""Maximum number of rows, evenly spaced, on which the out-of-bag loss is computed while training."""

DRAWS = 20
"""Number of functions drawn for validation from a belief without members; all members are evaluated."""


class Fit(NamedTuple):
    """The result of fitting a belief."""

    state: BeliefState
    """The fitted state; with validation or out-of-bag selection, the one with the lowest loss there."""
    losses: Float[np.ndarray, "step stream"]
    """Training loss of each stream at each step."""
    stopped_early: bool
    """Whether training stopped because the validation or out-of-bag loss no longer fell."""
    best_step: int
    """Number of steps after which the fitted state was reached."""
    data: Data
    """The data that it was trained on, with its noise."""
    held: tuple[np.ndarray, np.ndarray] | None
    """Indices of held-out rows and of training rows; None if there was no validation split."""


class NonFiniteLoss(NonFinite):
    """Training diverged: a loss became NaN or infinite. The message names the step and the member."""


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
    out_of_bag: bool = False,
    patience: int = 10,
    own_batches: bool = False,
    progress: Callable[[int, float], None] | bool = False,
) -> Fit:
    """Fit a belief to a data set.

    Args:
        belief: The belief to fit.
        data: Inputs x [n, ...] (any pytree) and targets y [n] or [n, num_outputs]: labels 0, 1, ... for a `Classes`
            head, else numbers.
        key: PRNG key; all randomness derives from it.
        noise: Data noise, by name or as an object; drawn once per (example, member).
        sample_weight: Weights [n]; None weighs all rows equally.
        steps: Number of optimiser steps.
        batch_size: Minibatch size; None, or at least n, trains on full batches.
        validation_fraction: Fraction of rows to hold out for early stopping, stratified by class. Training stops when
            the loss of the combined prediction (the mean of the members, or the mixture of their distributions) has
            not fallen for `patience` chunks of 100 steps. None trains for all steps.
        out_of_bag: Whether to stop early by the out-of-bag loss instead: that of the combined prediction of the members
            whose data noise gave a row weight zero. No rows are held out. It has no effect with a validation split,
            with noise that leaves out no rows, and for beliefs without members.
        patience: Chunks of 100 steps without improvement before stopping early.
        own_batches: Whether each member draws its own minibatches; else they share them, each with its own weights.
        progress: True shows a progress bar; a function is called after each chunk with the number of steps done and the
            mean loss.

    Returns:
        The fitted state (with validation, the best one), the losses of all steps, and whether training stopped early.

    Raises:
        ValueError: If a setting or the data is invalid.
        NonFiniteLoss: If training diverges.
    """
    steps = positive_int("steps", steps)
    key_init, key_data, key_split, key_train = jax.random.split(key, 4)
    x, y, sample_weight = checked(belief, *data, sample_weight)
    noise, patience = as_noise(noise), positive_int("patience", patience)
    state = start(belief, key_init, x)
    held: Data | None = None
    parts: tuple[np.ndarray, np.ndarray] | None = None
    if validation_fraction is not None:
        out, kept = parts = split_rows(key_split, y, validation_fraction, belief.head.takes_classes)
        part = jax.tree.map(lambda leaf: leaf[out], (x, y, sample_weight))
        held = form_data(belief, state, part[0], part[1], key=key_data, sample_weight=part[2])
        x, y, sample_weight = jax.tree.map(lambda leaf: leaf[kept], (x, y, sample_weight))
        noise = noise.take(kept)
    formed = form_data(belief, state, x, y, key=key_data, noise=noise, sample_weight=sample_weight)
    with steps_bar(progress is True, steps, "fit") as bar:
        result = train(
            belief,
            state,
            formed,
            key=key_train,
            steps=steps,
            batch_size=batch_size,
            own_batches=own_batches,
            held=held,
            out_of_bag=out_of_bag,
            patience=patience,
            progress=progress if callable(progress) else bar,
        )
    return result._replace(held=parts)


def start(belief: Belief, key: PRNGKeyArray, x: Any) -> BeliefState:
    """Initialise the state of a belief.

    Args:
        belief: The belief.
        key: A PRNG key.
        x: Inputs [n, ...]; the first row is the example input.

    Returns:
        The state before training.
    """
    return _init(belief, key, jax.tree.map(lambda leaf: np.asarray(leaf)[0], x))


def train(
    belief: Belief,
    state: BeliefState,
    data: Data,
    *,
    key: PRNGKeyArray,
    steps: int,
    batch_size: int | None = 128,
    own_batches: bool = False,
    held: Data | None = None,
    out_of_bag: bool = False,
    patience: int = 10,
    first_step: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Fit:
    """Train on data that has been formed (algorithm 1, line 5).

    Args:
        belief: The belief to train.
        state: The state to start from.
        data: The data, from `form_data`.
        key: A PRNG key; step t depends on the key and t only.
        steps: Number of optimiser steps.
        batch_size: Minibatch size; None, or at least the number of rows, trains on full batches.
        own_batches: Whether each member draws its own minibatches.
        held: Held-out data for early stopping; None trains for all steps.
        out_of_bag: Whether to stop early by the out-of-bag loss, if there is no held-out data (see `fit`).
        patience: Chunks of 100 steps without improvement before stopping early.
        first_step: Number of the first step.
        progress: Called after each chunk with the number of steps done and the mean loss.

    Returns:
        The result.

    Raises:
        ValueError: If a setting is invalid.
        NonFiniteLoss: If training diverges.
    """
    size = None if batch_size is None or positive_int("batch_size", batch_size) >= int(data.num_rows) else batch_size
    state = _observe(belief, state, data)
    if not belief.by_gradient:
        return Fit(state, np.zeros((0, belief.num_streams)), False, 0, data, None)
    by_bag = out_of_bag and held is None and belief.num_members is not None and bool(_leaves_rows_out(data))
    best, best_loss, best_step, losses = state, np.inf, 0, []
    for done in range(0, steps, CHUNK):
        length = min(CHUNK, steps - done)
        state, chunk = _run(belief, state, data, key, first_step + done, length, size, own_batches)
        chunk = np.asarray(chunk)[:length]
        _check_finite(chunk, first_step + done)
        losses.append(chunk)
        if progress is not None:
            progress(done + length, float(chunk.mean()))
        if held is not None or by_bag:
            loss = float(
                _out_of_bag_loss(belief, state, data) if held is None else _held_loss(belief, state, held, key)
            )
            if loss < best_loss:
                best, best_loss, best_step = state, loss, done + length
            elif done + length - best_step >= patience * CHUNK:
                return Fit(best, np.concatenate(losses), True, best_step, data, None)
        else:
            best, best_step = state, done + length
    return Fit(best, np.concatenate(losses), False, best_step, data, None)


@jax.jit
def _init(belief: Belief, key: PRNGKeyArray, x: Any) -> BeliefState:
    return belief.init(key, x)


@jax.jit
def _observe(belief: Belief, state: BeliefState, data: Data) -> BeliefState:
    return belief.observe(state, full_batch(data, normalise=False))


@functools.partial(jax.jit, static_argnames=("size", "own_batches"))
def _run(
    belief: Belief,
    state: BeliefState,
    data: Data,
    key: PRNGKeyArray,
    first: int | Int[Array, ""],
    length: int | Int[Array, ""],
    size: int | None,
    own_batches: bool,
) -> tuple[BeliefState, Float[Array, "step stream"]]:
    """Run `length` steps from step `first` on. Step t depends on (key, t) only, not on the division into chunks."""

    def body(i: Array, carry: tuple[BeliefState, Array]) -> tuple[BeliefState, Array]:
        state, losses = carry
        key_rows, key_update = jax.random.split(jax.random.fold_in(key, first + i))
        batch = full_batch(data) if size is None else minibatch(data, key_rows, size, own_batches)
        state, info = belief.update(state, batch, key_update)
        return state, losses.at[i].set(info.loss)

    return jax.lax.fori_loop(0, length, body, (state, jnp.zeros((CHUNK, belief.num_streams))))


@jax.jit
def _held_loss(belief: Belief, state: BeliefState, held: Data, key: PRNGKeyArray) -> Float[Array, ""]:
    """Compute the mean weighted loss of the combined prediction, with the same draws at every call."""
    draws = jax.random.split(key, DRAWS if belief.num_members is None else 1)

    def losses(rows: tuple[Any, Array, Array, Array | None]) -> Float[Array, " row"]:
        x, target, weight, prior = rows
        prior = None if prior is None else jnp.moveaxis(prior, 1, 0)
        out = jax.vmap(lambda k: belief.forward(state, k, x, prior, True))(draws)
        out = out.reshape(-1, *out.shape[2:])
        by_output = jax.vmap(belief.head.mixture_loss, in_axes=(1, 0))
        return weight[:, 0] * jnp.sum(jax.vmap(by_output, in_axes=(1, 0))(out, target[:, 0]), axis=1)

    rows = (held.x, held.target, held.weight, held.prior)
    return jnp.sum(in_row_chunks(losses, rows, held.weight.shape[0])) / held.num_rows


@jax.jit
def _leaves_rows_out(data: Data) -> Bool[Array, ""]:
    """Whether the data noise gave weight zero to rows of some stream."""
    return jnp.any((data.weight == 0) & (data.sample_weight > 0)[:, None])


@jax.jit
def _out_of_bag_loss(belief: Belief, state: BeliefState, data: Data) -> Float[Array, ""]:
    """Compute the mean weighted loss of the combined prediction of the members that did not see a row."""
    size = data.sample_weight.shape[0]
    wanted = min(OUT_OF_BAG_ROWS, size)
    rows = (jnp.arange(wanted) * (data.num_rows / wanted)).astype(int)
    x, target, weight, share, prior = jax.tree.map(
        lambda leaf: leaf[rows], (data.x, data.target, data.weight, data.sample_weight, data.prior)
    )
    out = belief.forward(state, jax.random.key(0), x, None if prior is None else jnp.moveaxis(prior, 1, 0), True)

    def one(out: Array, target: Array, weight: Array) -> Float[Array, ""]:
        unseen = weight == 0
        order = jnp.argsort(~unseen, stable=True)
        chosen = order[jnp.arange(len(weight)) % jnp.maximum(jnp.sum(unseen), 1)]  # repeated to a fixed number
        return jnp.sum(jax.vmap(belief.head.mixture_loss, in_axes=(1, 0))(out[chosen], target[0]))

    losses = jax.vmap(one, in_axes=(1, 0, 0))(out, target, weight)
    share = share * jnp.any(weight == 0, axis=1)
    return jnp.sum(share * losses) / jnp.sum(share)


def _check_finite(losses: np.ndarray, first: int) -> None:
    bad = np.argwhere(~np.isfinite(losses))
    if len(bad):
        step, member = bad[0]
        raise NonFiniteLoss(
            f"the loss of member {member} became {losses[step, member]} at step {first + step}; "
            "lower the learning rate, standardise the data, or check for outliers in the targets"
        )
