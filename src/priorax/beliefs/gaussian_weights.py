"""A Gaussian over every weight: NoisyNet (Fortunato et al. 2018) and Bayes by Backprop (Blundell et al. 2015).

Two settings of one belief: NoisyNet learns means and standard deviations by the loss alone; Bayes by Backprop adds the
KL divergence from a Gaussian prior. The initialisation is a setting too; NoisyNet's is that of its paper. A training
step uses one noise sample per batch; targets use another one.
"""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import Batch, Belief, BeliefState, Info, check_number
from priorax.beliefs.gradient import (
    Adam,
    Optimizer,
    as_optimizer,
    check_output,
    gradient_step,
    shape_output,
    stream_losses,
)
from priorax.checks import non_negative, one_of, positive
from priorax.heads import Head, Scalar, values_of
from priorax.networks import MLP, Layer, Network, as_network


class Posterior(NamedTuple):
    """theta = mean + std(spread) * noise, for each weight."""

    mean: PyTree
    """Means of the weights."""
    spread: PyTree
    """Unconstrained parameters of the standard deviations."""


class GaussianWeights(Belief):
    """A network with a Gaussian over every weight; `noisy` and `bayes_by_backprop` are the usual settings."""

    network: Network = eqx.field(static=True, default=MLP(), converter=as_network)
    """Architecture of the network."""
    noise: str = eqx.field(static=True, default="factorised")
    """factorised: f(e_in) f(e_out)' with f(e) = sign(e) sqrt|e|, for the layers of MLP and Table (other weights are
    independent); independent: one normal variable per weight."""
    initial_std: float | Float[Array, ""] = 0.5
    """Initial standard deviation; for factorised noise it is divided by sqrt(fan_in), as in the NoisyNet paper."""
    means: str = eqx.field(static=True, default="network")
    """Initialisation of the means. network: as the network draws its weights (Glorot uniform, for MLP and Table);
    fan_in: weights and biases of the layers of MLP and Table uniform in ±1/sqrt(fan_in) for factorised noise,
    ±sqrt(3/fan_in) for independent, as in the NoisyNet paper (other weights as the network draws them)."""
    kl_weight: float | Float[Array, ""] | None = None
    """Weight of KL(q || N(0, prior_std²))/n, added to the mean loss; None: no prior (NoisyNet). For squared error with
    noise variance s², 2 s² is exact Bayes; for a log likelihood, 1."""
    prior_std: float | Float[Array, ""] = 1.0
    """Standard deviation of the prior over each weight."""
    head: Head = eqx.field(static=True, default=Scalar())
    """Interpretation of an output."""
    num_outputs: int = eqx.field(static=True, default=1)
    """Number of regression targets, or of actions."""
    optimizer: Optimizer = eqx.field(default=Adam(), converter=as_optimizer)
    """Optimiser of means and standard deviations."""

    def __check_init__(self) -> None:
        one_of("noise", self.noise, ("factorised", "independent"))
        one_of("means", self.means, ("network", "fan_in"))
        own = [name for name in ("weight_std", "bias_scale") if getattr(self.network, name, None)]
        if self.means == "fan_in" and own:
            raise ValueError(
                f"{own[0]}={getattr(self.network, own[0])} of the network sets the initialisation, and so does "
                "means='fan_in'; use means='network', or leave it out"
            )
        check_number(positive, "initial_std", self.initial_std)
        check_number(positive, "prior_std", self.prior_std)
        if self.kl_weight is not None:
            check_number(non_negative, "kl_weight", self.kl_weight)

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        num_out = self.num_outputs * self.head.size
        mean = self.network.init(key, x, num_out)
        check_output("network", self.network, mean, x, num_out)
        mean, buffers = eqx.partition(mean, eqx.is_inexact_array)
        if self.means == "fan_in":
            mean = self._by_fan_in(jax.random.fold_in(key, 1), mean)
        params = Posterior(mean, _by_layer(self._initial_spread, mean))
        return BeliefState(params, buffers, self.optimizer.init(params))

    def _by_fan_in(self, key: PRNGKeyArray, mean: PyTree) -> PyTree:
        """Redraw the means of the layers, uniformly within limits set by their fan-in."""
        layers = [layer for layer in jax.tree.leaves(mean, is_leaf=_is_layer) if _is_layer(layer)]
        sizes = [sum(leaf.size for leaf in jax.tree.leaves(layer)) for layer in layers]
        uniform = jax.random.uniform(key, (sum(sizes),), minval=-1.0, maxval=1.0)
        parts = iter(jnp.split(uniform, list(itertools.accumulate(sizes))[:-1]))
        square = 1 if self.noise == "factorised" else 3

        def draw(layer: PyTree) -> PyTree:
            if not _is_layer(layer):
                return layer
            limit = (square / layer.weight.shape[0]) ** 0.5
            weight, bias = jnp.split(limit * next(parts), [layer.weight.size])
            return Layer(weight.reshape(layer.weight.shape), None if layer.bias is None else bias)

        return _by_layer(draw, mean)

    def _initial_spread(self, layer: PyTree) -> PyTree:
        fan_in = layer.weight.shape[0] if isinstance(layer, Layer) and self.noise == "factorised" else 1
        start = jnp.asarray(self.initial_std) / fan_in**0.5
        raw = start if self.kl_weight is None else jnp.log(jnp.expm1(start))
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, raw), layer)

    def _std(self, spread: Array) -> Array:
        return spread if self.kl_weight is None else jax.nn.softplus(spread)

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree:
        """Draw the noise of every weight.

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            The noise sample.
        """
        layers = jax.tree.leaves(state.params.mean, is_leaf=_is_layer)
        sizes = [sum(self._noise_sizes(layer)) for layer in layers]
        parts = iter(jnp.split(jax.random.normal(key, (sum(sizes),)), list(itertools.accumulate(sizes))[:-1]))
        return _by_layer(lambda layer: self._noise(next(parts), layer), state.params.mean)

    def _noise_sizes(self, layer: PyTree) -> tuple[int, ...]:
        """Count the normal variables of each part of a layer."""
        if isinstance(layer, Layer) and self.noise == "factorised":
            return layer.weight.shape
        return tuple(leaf.size for leaf in jax.tree.leaves(layer))

    def _noise(self, normal: Float[Array, " number"], layer: PyTree) -> PyTree:
        parts = jnp.split(normal, list(itertools.accumulate(self._noise_sizes(layer)))[:-1])
        if isinstance(layer, Layer) and self.noise == "factorised":
            left, right = _signed_root(parts[0]), _signed_root(parts[1])
            return Layer(left[:, None] * right, None if layer.bias is None else right)
        leaves, tree = jax.tree.flatten(layer)
        return jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])

    def output(self, state: BeliefState, noise: PyTree, x: Any) -> Float[Array, "output size"]:
        """Evaluate the network under one noise sample at ONE input.

        Args:
            state: State of the belief.
            noise: The noise sample.
            x: One input, without batch axis.

        Returns:
            `head.size` numbers for each output.
        """
        sample = jax.tree.map(lambda m, s, e: m + self._std(s) * e, *state.params, noise)
        whole = eqx.combine(sample, state.frozen)
        return shape_output(self.network.apply(whole, x), self.num_outputs, self.head.size)

    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        return values_of(self.head, self.output(state, index, x))

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        rows = x if shared else jax.tree.map(lambda leaf: leaf[0], x)
        noise = self.draw(state, key)
        return jax.vmap(lambda row: self.output(state, noise, row))(rows)[None]

    def kl(self, params: Posterior) -> Float[Array, ""]:
        """Compute KL(q || prior), in closed form.

        Args:
            params: The posterior.

        Returns:
            The divergence.
        """

        def one(mean: Array, spread: Array) -> Array:
            ratio = (self._std(spread) / self.prior_std) ** 2
            return 0.5 * jnp.sum(ratio + (mean / self.prior_std) ** 2 - 1 - jnp.log(ratio))

        return sum(jax.tree.leaves(jax.tree.map(one, params.mean, params.spread)), jnp.zeros(()))

    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]:
        losses = stream_losses(self.head, self.forward(state, key, batch.x, None, batch.shared), batch)
        if self.kl_weight is None:
            return losses
        return losses + self.kl_weight * self.kl(state.params) / jnp.maximum(batch.count, 1.0)

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        return gradient_step(self, state, batch, key)


def noisy(
    noise: str = "factorised", initial_std: float | None = None, means: str = "fan_in", **settings: Any
) -> GaussianWeights:
    """Create a NoisyNet with the initialisation of its paper (Fortunato et al. 2018, section 3.2).

    Args:
        noise: factorised or independent.
        initial_std: Initial standard deviation; None: 0.5, divided by sqrt(fan_in), for factorised noise, 0.017 for
            independent.
        means: fan_in: uniform in ±1/sqrt(fan_in) (independent: ±sqrt(3/fan_in)); network: as the network draws them.
        **settings: Other settings of `GaussianWeights`.

    Returns:
        The belief.
    """
    if initial_std is None:
        initial_std = 0.5 if noise == "factorised" else 0.017
    return GaussianWeights(noise=noise, initial_std=initial_std, means=means, **settings)


def bayes_by_backprop(kl_weight: float = 1.0, initial_std: float = 0.05, **settings: Any) -> GaussianWeights:
    """Create Bayes by Backprop with a Gaussian prior (not a mixture).

    Args:
        kl_weight: Weight of the KL divergence.
        initial_std: Initial standard deviation of the posterior.
        **settings: Other settings of `GaussianWeights`.

    Returns:
        The belief.
    """
    return GaussianWeights(noise="independent", initial_std=initial_std, kl_weight=kl_weight, **settings)


def _is_layer(node: Any) -> bool:
    return isinstance(node, Layer)


def _by_layer(function: Any, tree: PyTree) -> PyTree:
    return jax.tree.map(function, tree, is_leaf=_is_layer)


def _signed_root(e: Array) -> Array:
    return jnp.sign(e) * jnp.sqrt(jnp.abs(e))
