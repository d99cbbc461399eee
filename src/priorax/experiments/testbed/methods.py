"""Methods of the Neural Testbed: from training data, and what a problem tells, to functions drawn from a posterior.

Beliefs are those of `priorax.beliefs.method`, fitted by `priorax.fitting.fit`. As in the published agents, settings
depend on what a problem tells: the weight of the regulariser grows with sqrt(temperature) * d (and is divided by the
number of examples), and prior functions are divided by a power of the temperature. In ours this power applies to the
whole output, network and prior function alike: both then have the scale of the truth for `power=1`.

Any classifier with the interface of scikit-learn is a method too, given as `package.module:name`: a class, or a
function that takes `random_state`. Its functions are those of `members(X)`, of `sample(X, n)`, or `predict_proba(X)` as
a single one.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from priorax.beliefs import L2, Adam, Belief, BeliefState, Method
from priorax.beliefs import method as make_method
from priorax.checks import one_of
from priorax.experiments.testbed.problems import Functions, Known, Problem
from priorax.fitting import fit
from priorax.heads import Classes, Number, Out, Outs
from priorax.networks import MLP
from priorax.priors import Independent

FLOOR = 1e-6
"""Least probability of a class that a classifier can give: those of trees can be zero."""
ROWS = 128
"""Inputs at which functions are evaluated at once."""
NETWORK = MLP((50, 50))
"""The trained network of every method, as in the published agents."""

COMMON: dict[str, Any] = {
    "steps": 1000,
    "learning_rate": 1e-3,
    "batch_size": 100,
    "power": 0.0,
    "l2": 1.0,
}
"""Settings of all methods: optimiser steps, learning rate, minibatch size, the power of the temperature by which
outputs are divided, and the weight of the regulariser (of BBB: of the divergence from the prior over weights)."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "ensemble": {},
    "dropout": {"p_keep": 0.9},
    "bbb": {"prior_std": 1.0, "learning_rate": 3e-3},
    "bs": {},
    "bsr": {},
    "bsp": {"prior_scale": 3.0},
    "hypermodel": {"prior_scale": 1.0, "index_dim": 6},
    "epinet": {"prior_scale": 0.3, "index_dim": 8},
}
"""Settings by method, beside `COMMON`."""


@dataclass(frozen=True)
class LogOdds(Classes):
    """Two class logits after division by a number; the value of an output is the log odds of class 1."""

    divisor: float = 1.0
    """What the network's outputs, and prior functions, are divided by."""

    def value(self, out: Out) -> Number:
        return (out[1] - out[0]) / self.divisor

    def quantile(self, out: Out, u: Number) -> Number:
        return super().quantile(out / self.divisor, u)

    def noise(self, out: Out) -> Number:
        return super().noise(out / self.divisor)

    def loss(self, out: Out, target: Array) -> Number:
        return -jax.nn.log_softmax(out / self.divisor)[target]

    def mixture_loss(self, outs: Outs, target: Array) -> Number:
        return -jax.nn.logsumexp(jax.nn.log_softmax(outs / self.divisor), axis=0)[target] + jnp.log(len(outs))


def settings_of(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the settings of a belief by defaults.

    Args:
        name: Name of the method, one of `DEFAULTS`.
        changes: Changed settings.

    Returns:
        All settings.

    Raises:
        ValueError: If the method or a setting is unknown.
    """
    known = {**COMMON, **DEFAULTS[one_of("methods", name, DEFAULTS)]}
    for setting in changes:
        one_of(f"setting of {name}", setting, known)
    return {**known, **changes}


def belief_for(name: str, known: Known, chosen: Mapping[str, Any], members: int) -> Method:
    """Build the belief of a method for a problem.

    Args:
        name: Name of the method, one of `DEFAULTS`.
        known: What the problem tells.
        chosen: All settings.
        members: Number of members of an ensemble.

    Returns:
        The belief and its data noise.
    """
    strength = chosen["l2"] * known.temperature**0.5 * known.dim
    own: dict[str, Any] = {
        "network": NETWORK,
        "head": LogOdds(divisor=known.temperature ** chosen["power"]),
        "optimizer": Adam(chosen["learning_rate"]),
    }
    if name == "bbb":
        return make_method("bbb", kl_weight=strength, prior_std=chosen["prior_std"], **own)
    own["l2"] = L2(strength, to="initial" if name == "bsr" else "zero", reading="posterior")
    if name == "dropout":
        return make_method("dropout", p_keep=chosen["p_keep"], **own)
    if name == "hypermodel":
        return make_method(
            name, prior_scale=chosen["prior_scale"], index_dim=chosen["index_dim"], num_indices=16, **own
        )
    if name == "epinet":
        prior = Independent(MLP((5, 5)), chosen["index_dim"])
        wide = {"prior": prior, "input_features": True, "index_dim": chosen["index_dim"]}
        return make_method(name, prior_scale=chosen["prior_scale"], **wide, **own)
    if name == "bsp":
        return make_method(name, num_members=members, prior_scale=chosen["prior_scale"], **own)
    return make_method("ensemble" if name == "mlp" else name, num_members=1 if name == "mlp" else members, **own)


def fit_belief(
    name: str, problem: Problem, seed: int, members: int, draws: int, changes: Mapping[str, Any]
) -> Functions:
    """Fit a belief to the training data of a problem.

    Args:
        name: Name of the method, one of `DEFAULTS`.
        problem: The problem.
        seed: Random seed of the fit.
        members: Number of members of an ensemble.
        draws: Number of functions drawn from other beliefs.
        changes: Changed settings.

    Returns:
        The log probabilities of its functions: all members, or drawn ones.
    """
    chosen = settings_of(name, changes)
    belief, noise = belief_for(name, problem.known, chosen, members)
    key_fit, key_draw = jax.random.split(jax.random.key(seed))
    data = (problem.x.astype(np.float32), problem.y)
    fitted = fit(belief, data, key=key_fit, noise=noise, steps=chosen["steps"], batch_size=chosen["batch_size"]).state

    def functions(x: np.ndarray) -> np.ndarray:
        odds = np.concatenate([_odds(belief, fitted, key_draw, jnp.asarray(r), draws) for r in _blocks(x)], axis=1)
        odds = odds[:, : len(x)].astype(float)
        return np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)], axis=-1)

    return functions


def _blocks(x: np.ndarray) -> list[np.ndarray]:
    """Divide inputs into blocks of the same size, the last one padded by its last row."""
    padded = np.pad(x.astype(np.float32), [(0, -len(x) % ROWS), (0, 0)], mode="edge")
    return np.split(padded, len(padded) // ROWS)


@functools.partial(jax.jit, static_argnums=4)
def _odds(belief: Belief, state: BeliefState, key: PRNGKeyArray, x: Array, draws: int) -> Float[Array, "function row"]:
    return belief.functions(state, key, x, draws)[..., 0]


def fit_classifier(name: str, problem: Problem, seed: int, draws: int) -> Functions:
    """Fit a classifier with the interface of scikit-learn to the training data of a problem.

    One example of each class at the centre of the inputs is added if a class has none, since such classifiers cannot
    predict a class that they have not seen.

    Args:
        name: Location of the class or function that makes it, as `package.module:name`.
        problem: The problem.
        seed: Random seed.
        draws: Number of functions drawn, if it has `sample`.

    Returns:
        The log probabilities of its functions.

    Raises:
        ValueError: If there is no such class or function.
    """
    classes = np.arange(problem.known.num_classes)
    x, y = problem.x, problem.y
    if len(np.unique(y)) < len(classes):
        x, y = np.concatenate([x, np.zeros((len(classes), x.shape[1]))]), np.concatenate([y, classes])
    model = _located(name)(random_state=seed).fit(x, y)

    def functions(x: np.ndarray) -> np.ndarray:
        if hasattr(model, "members"):
            proba = model.members(x)
        elif hasattr(model, "sample"):
            proba = model.sample(x, draws)
        else:
            proba = model.predict_proba(x)[None]
        return np.log(np.clip(np.asarray(proba, dtype=float), FLOOR, 1.0))

    return functions


def _located(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"methods={name!r} cannot be imported ({error}); pass names from {', '.join(DEFAULTS)}, or the location of "
            "a classifier as package.module:name"
        ) from None
    return found


def check_methods(names: tuple[str, ...]) -> None:
    """Check that methods exist.

    Args:
        names: Names from `DEFAULTS`, or locations of classifiers.

    Raises:
        ValueError: If one does not.
    """
    for name in names:
        if ":" in name:
            _located(name)
        else:
            one_of("methods", name, DEFAULTS)


def fit_method(
    name: str, problem: Problem, seed: int, members: int, draws: int, changes: Mapping[str, Any]
) -> Functions:
    """Fit a method to the training data of a problem.

    Args:
        name: Name of a belief, one of `DEFAULTS`, or location of a classifier as `package.module:name`.
        problem: The problem.
        seed: Random seed of the fit.
        members: Number of members of an ensemble.
        draws: Number of functions drawn from other methods.
        changes: Changed settings of a belief.

    Returns:
        The log probabilities of functions drawn from its posterior.

    Raises:
        ValueError: If the method or a setting is unknown.
    """
    if ":" in name:
        return fit_classifier(name, problem, seed, draws)
    return fit_belief(name, problem, seed, members, draws, changes)
