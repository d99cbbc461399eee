"""Learning by gradient descent: optimisers, the data loss of each stream, and one optimiser step."""

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, BeliefState, Info, check_number
from priorax.checks import non_negative, positive
from priorax.heads import Head
from priorax.networks import Network, Table


@runtime_checkable
class Optimizer(Protocol):
    """An optax gradient transformation, `Adam`, `RMSProp` or `Langevin`."""

    @property
    def init(self) -> Any:
        """Function from parameters to the initial optimiser state."""
        ...

    @property
    def update(self) -> Any:
        """Function from (gradients, state, parameters) to (updates, state)."""
        ...


class _Transformation(eqx.Module):
    """An optimiser with optax's interface, whose transformation is built from the fields on use."""

    @abc.abstractmethod
    def _optax(self) -> optax.GradientTransformation:
        """Build the optax transformation."""

    @property
    def init(self) -> Any:
        return self._optax().init

    @property
    def update(self) -> Any:
        return self._optax().update


class Adam(_Transformation):
    """`optax.adam` with settings as fields. The learning rate is a leaf, so that sweeping it needs no recompilation."""

    learning_rate: float | Float[Array, ""] = 1e-3
    """Learning rate."""
    b1: float = eqx.field(static=True, default=0.9)
    """Decay rate of the first moment."""
    b2: float = eqx.field(static=True, default=0.999)
    """Decay rate of the second moment."""
    eps: float = eqx.field(static=True, default=1e-8)
    """Added to the denominator."""
    clip: float | None = eqx.field(static=True, default=None)
    """Maximum gradient norm (of each member separately, in an ensemble); None: no clipping."""

    def __check_init__(self) -> None:
        _check_rate_and_clip(self.learning_rate, self.clip)
        _check_decays(self.b1, self.b2)
        non_negative("eps", self.eps)

    def _optax(self) -> optax.GradientTransformation:
        return _clipped(optax.adam(self.learning_rate, self.b1, self.b2, self.eps), self.clip)


class RMSProp(_Transformation):
    """Centred `optax.rmsprop` with settings as fields, as used by Ape-X."""

    learning_rate: float | Float[Array, ""] = 6.25e-5
    """Learning rate."""
    decay: float = eqx.field(static=True, default=0.95)
    """Decay rate of the moments."""
    eps: float = eqx.field(static=True, default=1.5e-7)
    """Added to the denominator."""
    clip: float | None = eqx.field(static=True, default=40.0)
    """Maximum gradient norm; None: no clipping."""

    def __check_init__(self) -> None:
        _check_rate_and_clip(self.learning_rate, self.clip)

    def _optax(self) -> optax.GradientTransformation:
        return _clipped(optax.rmsprop(self.learning_rate, self.decay, self.eps, centered=True), self.clip)


class LangevinState(NamedTuple):
    """Running moments of the gradient."""

    first: PyTree
    """Mean."""
    second: PyTree
    """Mean square."""


class Langevin(_Transformation):
    """Adam Langevin Monte Carlo (Ishfaq et al. 2024): gradient descent with noise, whose weights are samples over time.

        w <- w - eta * (grad + bias_factor * m / sqrt(v + eps)) + sqrt(2 * eta / inverse_temperature) * N(0, I)

    m and v are Adam's moments, without their correction at the start. With bias_factor=0 and a small learning rate eta,
    the weights are distributed by exp(-inverse_temperature * loss): for the squared error, a mean over n examples with
    noise of standard deviation sigma, the posterior has inverse_temperature = n / (2 * sigma**2).
    """

    learning_rate: float | Float[Array, ""] = 1e-3
    """Step size eta."""
    inverse_temperature: float | Float[Array, ""] = 1e6
    """Inverse temperature: the larger, the smaller the noise."""
    bias_factor: float | Float[Array, ""] = 1.0
    """Weight of Adam's direction beside the gradient; 0: plain Langevin dynamics."""
    b1: float = eqx.field(static=True, default=0.9)
    """Decay rate of the first moment."""
    b2: float = eqx.field(static=True, default=0.99)
    """Decay rate of the second moment."""
    eps: float = eqx.field(static=True, default=1e-8)
    """Added to the second moment, under the root."""
    clip: float | None = eqx.field(static=True, default=None)
    """Maximum gradient norm, as for `Adam`; None: no clipping."""

    def __check_init__(self) -> None:
        _check_rate_and_clip(self.learning_rate, self.clip)
        _check_decays(self.b1, self.b2)
        check_number(positive, "inverse_temperature", self.inverse_temperature)
        check_number(non_negative, "bias_factor", self.bias_factor)
        positive("eps", self.eps)

    def perturbed(self, key: PRNGKeyArray, updates: PyTree) -> PyTree:
        """Add the noise of one step.

        Args:
            key: PRNG key.
            updates: The updates without noise; streams, if any, along leading axes.

        Returns:
            The updates with independent noise on each weight.
        """
        std = jnp.sqrt(2 * self.learning_rate / self.inverse_temperature)
        return jax.tree.map(lambda u, noise: u + std * noise, updates, optax.tree.random_like(key, updates))

    def _optax(self) -> optax.GradientTransformation:
        def init(params: PyTree) -> LangevinState:
            zeros = jax.tree.map(jnp.zeros_like, params)
            return LangevinState(zeros, zeros)

        def update(grads: PyTree, state: LangevinState, params: PyTree = None) -> tuple[PyTree, LangevinState]:
            first = jax.tree.map(lambda m, g: self.b1 * m + (1 - self.b1) * g, state.first, grads)
            second = jax.tree.map(lambda v, g: self.b2 * v + (1 - self.b2) * g**2, state.second, grads)

            def step(g: Array, m: Array, v: Array) -> Array:
                return -self.learning_rate * (g + self.bias_factor * m / jnp.sqrt(v + self.eps))

            return jax.tree.map(step, grads, first, second), LangevinState(first, second)

        return _clipped(optax.GradientTransformation(init, update), self.clip)


class CustomOptimizer(_Transformation):
    """A custom optax transformation as an `eqx.Module`. It is code, not numbers, so it is static."""

    transformation: optax.GradientTransformation = eqx.field(static=True)
    """The transformation."""

    def _optax(self) -> optax.GradientTransformation:
        return self.transformation


def as_optimizer(optimizer: Any) -> Any:
    """Convert an optax transformation to an `eqx.Module`.

    Args:
        optimizer: `Adam`, `RMSProp`, `Langevin`, or any optax transformation.

    Returns:
        The first three unchanged; any other transformation as a `CustomOptimizer`.
    """
    return optimizer if isinstance(optimizer, eqx.Module) else CustomOptimizer(optimizer)


def _check_rate_and_clip(learning_rate: Any, clip: float | None) -> None:
    check_number(lambda name, value: positive(name, value, example=1e-3), "learning_rate", learning_rate)
    if clip is not None:
        positive("clip", clip)


def _check_decays(b1: float, b2: float) -> None:
    for name, value in (("b1", b1), ("b2", b2)):
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value} must be at least 0 and below 1; pass for example 0.9")


def _clipped(steps: optax.GradientTransformation, clip: float | None) -> optax.GradientTransformation:
    return steps if clip is None else optax.chain(optax.clip_by_global_norm(clip), steps)


def shape_output(flat: Array, num_outputs: int, size: int) -> Float[Array, "output size"]:
    """Reshape a network's flat output to one row per output.

    Args:
        flat: The flat output.
        num_outputs: Number of outputs.
        size: Numbers per output.

    Returns:
        The reshaped output.
    """
    return jnp.reshape(flat, (num_outputs, size))


def check_output(name: str, network: Network, params: PyTree, x: Any, wanted: int) -> None:
    """Check the output size of a network, before anything is compiled.

    Args:
        name: Name of the network's argument, for the message.
        network: The network.
        params: Its parameters.
        x: One example input.
        wanted: The required number of outputs.

    Raises:
        ValueError: If the size differs.
    """
    found = jax.eval_shape(network.apply, params, x).size
    if found != wanted:
        raise ValueError(
            f"{name} gives {found} numbers per input but the belief needs {wanted} (outputs x head size); "
            f"let {name} end in {wanted} numbers"
        )


def check_sparse(network: Network, optimizer: Optimizer, l2: Any, used: str, remedy: str) -> None:
    """Check that a belief supports updates of only the rows in a batch (`sparse_rows.py`).

    Args:
        network: The network.
        optimizer: The optimiser.
        l2: The regularisation, if any.
        used: The setting that asks for sparse rows, for the message.
        remedy: The setting without them.

    Raises:
        ValueError: If it does not.
    """
    if not (isinstance(network, Table) and isinstance(optimizer, Adam) and optimizer.clip is None and l2 is None):
        raise ValueError(
            f"{used} needs network=Table(...), Adam(...) without clip, and no l2: there rows outside a batch have no "
            f"gradient; leave {remedy}"
        )
    if optimizer.b1**2 >= optimizer.b2:
        raise ValueError(
            f"b1={optimizer.b1} is too large for b2={optimizer.b2} and {used}: rows outside a batch would move by "
            f"growing steps; raise b2 above b1**2, or use {remedy}"
        )


def check_sparse_learning(lagged: bool, prioritised: bool, remedy: str) -> None:
    """Check that settings of Q-learning go with updates of only the rows in a batch.

    Args:
        lagged: Whether a target network lags behind the online one.
        prioritised: Whether minibatches are drawn by priority.
        remedy: The setting without sparse rows, for the message.

    Raises:
        ValueError: If a setting does not.
    """
    if prioritised:
        raise ValueError(f"priority above 0 is not supported with sparse rows; use priority=0 or {remedy}")
    if lagged:
        raise ValueError(
            "target_period above 1 or target_rate below 1 would copy the whole table, which sparse_rows avoids; use "
            f"target_period=1, target_rate=1 or {remedy}"
        )


def stream_losses(head: Head, out: Array, batch: Batch) -> Float[Array, " stream"]:
    """Compute each stream's mean weighted loss: the data term of algorithm 1, or of equation (6) if `action` is given.

    Args:
        head: The interpretation of outputs.
        out: Outputs [stream, batch, output, size].
        batch: The examples.

    Returns:
        One loss per stream.
    """
    if batch.action is not None:
        action = jnp.broadcast_to(batch.action, out.shape[:2])
        chosen = jnp.take_along_axis(out, action[:, :, None, None], axis=2)[:, :, 0]
        losses = jax.vmap(jax.vmap(head.loss))(chosen, batch.target)
    else:
        losses = jnp.sum(jax.vmap(jax.vmap(jax.vmap(head.loss)))(out, batch.target), axis=-1)
    return jnp.mean(losses * batch.weight, axis=1)


NOISE = 0x4C4D43
"""Folded into the key of an update for the noise of `Langevin`; no key of a split is that number."""


@runtime_checkable
class GradientBelief(Protocol):
    """A belief that learns by gradient descent on a loss per stream."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimiser."""
        ...

    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        """Compute the loss that each stream minimises.

        Args:
            state: State of the belief.
            batch: Examples.
            key: PRNG key.

        Returns:
            One loss per stream.
        """
        ...


def gradient_step(
    belief: GradientBelief, state: BeliefState, batch: Batch, key: PRNGKeyArray, per_stream: bool = False
) -> tuple[BeliefState, Info]:
    """Perform one optimiser step on the streams' losses.

    Args:
        belief: The belief.
        state: State of the belief.
        batch: Examples.
        key: PRNG key.
        per_stream: Whether params have a leading stream axis, and the optimiser acts on each stream separately, so that
            not even gradient clipping couples members.

    Returns:
        The new state, and the losses.
    """

    def total(params: PyTree, weight: Array) -> tuple[Array, Array]:
        weighted = eqx.tree_at(lambda batch: batch.weight, batch, weight)
        losses = belief.losses(state._replace(params=params), weighted, key)
        return jnp.sum(losses), losses

    # a stream's loss is the mean of weight * loss over n examples: its derivative by a weight is one example's loss / n
    (grads, by_weight), losses = jax.grad(total, argnums=(0, 1), has_aux=True)(state.params, batch.weight)
    step = jax.vmap(belief.optimizer.update) if per_stream else belief.optimizer.update
    updates, opt = step(grads, state.opt, state.params)
    if isinstance(belief.optimizer, Langevin):
        # not by a split: the losses use the key itself, which may be that of the targets
        updates = belief.optimizer.perturbed(jax.random.fold_in(key, NOISE), updates)
    return state._replace(params=optax.apply_updates(state.params, updates), opt=opt), Info(
        losses, by_weight * batch.weight.shape[1]
    )
