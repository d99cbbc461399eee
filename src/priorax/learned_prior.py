"""Learned priors: the functions of past tasks as the prior of the next one.

The paper asks whether prior functions can be learned. By lemma 3, the right prior is the distribution of the true
function over the tasks that may come. Of a family of tasks some of which are solved, that distribution is known as far
as its mean and covariance: those of the functions found. `learn_prior` represents these functions by one network, and
`priorax.family.Learned` draws functions with their mean and covariance.
"""

import warnings
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from priorax.beliefs import Adam, Ensemble
from priorax.checks import checked_seed, positive
from priorax.family import Learned
from priorax.fitting import fit
from priorax.networks import MLP, Network, Table

LARGEST_ERROR = 0.1
"""Error of the network, as a fraction of the size of the functions, above which `learn_prior` warns."""


def learn_prior(
    x: Any,
    values: Any,
    *,
    network: MLP | Table | None = None,
    rest: Network | None = None,
    rest_scale: float = 1.0,
    steps: int = 5000,
    batch_size: int | None = 128,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> Learned:
    """Learn a prior from the functions of past tasks, given by their values at common inputs.

    Args:
        x: Inputs [n, ...], the same for all tasks: arrays, or the indices of states.
        values: Values [task, n] or [task, n, output] of each task's function there: as measured, or as predicted by
            what was learned, such as `model.predict(x)` or `policy.values(x).mean`.
        network: The network that represents the functions; None: two layers of 50 units, or, for the indices of states,
            a table, which is exact.
        rest: Distribution of a random function that is added to each draw, for what the past tasks do not contain;
            None: nothing is added.
        rest_scale: Its factor.
        steps: Optimiser steps of the fit.
        batch_size: Minibatch size; None: all inputs.
        learning_rate: Learning rate of Adam.
        seed: Random seed.

    Returns:
        The prior, in units of the values; use it with `prior_scale=1`.

    Raises:
        ValueError: If shapes do not fit, there are fewer than two tasks, or a value is not finite.
    """
    x, values = np.asarray(x), np.asarray(values, np.float32)
    values = values[..., None] if values.ndim == 2 else values
    if values.ndim != 3 or len(values) < 2 or values.shape[1] != len(x) or len(x) == 0:
        raise ValueError(
            f"values has shape {values.shape}, but needs [task, n] or [task, n, output] for at least 2 tasks and the "
            f"n={len(x)} inputs of x; pass every task's function at the same inputs"
        )
    if not np.all(np.isfinite(values)):
        raise ValueError("values has NaN or infinity; pass functions that are known at every input")
    by_state = x.ndim == 1 and np.issubdtype(x.dtype, np.integer)
    if network is None:
        network = Table(int(x.max()) + 1, ()) if by_state else MLP((50, 50))
    if not network.use_bias:
        raise ValueError("network has no biases, which the functions of the tasks need; pass use_bias=True")
    if by_state and isinstance(network, Table) and not network.widths:
        return Learned(network, _tabulated(x, values, network.num_rows), rest, rest_scale)
    flat = np.moveaxis(values, 0, 1).reshape(len(x), -1)
    size = max(float(np.sqrt(np.mean(flat**2))), 1e-12)
    mean, scale = _moments(x, network)
    fitted = fit(
        Ensemble(
            1, network=network, num_outputs=flat.shape[1], optimizer=Adam(positive("learning_rate", learning_rate))
        ),
        ((x - mean) / scale if mean is not None else x, flat / size),
        key=jax.random.key(checked_seed(seed)),
        steps=steps,
        batch_size=batch_size,
    )
    layers = [(np.asarray(layer.weight[0]), np.asarray(layer.bias[0])) for layer in fitted.state.params]
    if mean is not None:  # the first layer sees x as it is
        (weight, bias), *others = layers
        weight = weight / scale.ravel()[:, None]
        layers = [(weight, bias - mean.ravel() @ weight), *others]
    *hidden, last = layers
    weight, bias = (size * part for part in last)
    shape = (len(values), values.shape[2])
    found = Learned(network, (*hidden, (weight.reshape(-1, *shape), bias.reshape(shape))), rest, rest_scale)
    error = float(np.sqrt(np.mean((np.asarray(found.functions(x)) - values) ** 2))) / size
    if error > LARGEST_ERROR:
        warnings.warn(
            f"the network represents the functions of the past tasks with an error of {error:.0%} of their root mean "
            "square; pass more steps, a wider network, or functions that are known at more inputs",
            UserWarning,
            stacklevel=2,
        )
    return found


def _moments(x: np.ndarray, network: MLP | Table) -> tuple[np.ndarray | None, np.ndarray]:
    """Mean and standard deviation of each component of arrays; no mean where the network encodes its inputs itself."""
    if isinstance(network, Table) or network.code is not None:
        return None, np.ones(1)
    scale = np.asarray(np.std(x, axis=0, dtype=np.float64))
    return np.asarray(np.mean(x, axis=0, dtype=np.float64)), np.where(scale > 0, scale, 1.0)


def _tabulated(
    x: np.ndarray, values: Float[np.ndarray, "task n output"], num_rows: int
) -> tuple[tuple[np.ndarray, np.ndarray]]:
    """The one layer of a table with these values; states that are not in x have value zero."""
    if len(np.unique(x)) < len(x) or x.min() < 0 or x.max() >= num_rows:
        raise ValueError(f"x must be distinct states from 0 to {num_rows - 1}; pass each state once")
    weight = np.zeros((num_rows, len(values), values.shape[2]), np.float32)
    weight[x] = np.moveaxis(values, 0, 1)
    return ((weight, np.zeros(weight.shape[1:], np.float32)),)
