"""Epinets: a network beside a base network that makes its output depend on a random index (Osband et al. 2021).

    f(x, z) = mu(x) + sigma(stop_gradient(phi(x)), z) + prior_scale * sum_k z_k p_k(x)

The index z is standard normal in `index_dim` dimensions. mu is the base network and phi its last hidden layer. sigma is
small and trained: an MLP of phi and z gives `index_dim` numbers per output, whose inner product with z is taken. Its
gradient does not reach phi: the base network learns from mu alone. The p_k are fixed functions of the input, such as
`priors.Independent` networks (as in the Neural Testbed) or linear ones (as on bsuite).

What the first layer of sigma makes of features and input is computed once for all indices. `indexed.py` has the
updates. Without `sees_index`, and with linear networks, the function is that of a linear hypermodel with
xi = z / sqrt(index_dim).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.gradient import shape_output
from priorax.beliefs.indexed import AfterRow, Indexed
from priorax.networks import MLP, Layer, Network, Table, features_of, inputs_of, take_rows


class Nets(NamedTuple):
    """Parameters, or anchors, of both networks."""

    base: PyTree
    """Those of the base network."""
    epinet: PyTree
    """Those of the epinet."""


class Known(NamedTuple):
    """What is known of an input before an index is chosen."""

    mean: Float[Array, "*batch output size"]
    """The base network's outputs mu."""
    product: Float[Array, "*batch unit"]
    """The features, and the input if it is one of them, times their weights in the epinet's first layer."""
    action: Int[Array, "*batch"] | None
    """The output that was chosen; None: all."""


class Epinet(Indexed):
    """A base network, a small network of its features and a random index, and a fixed prior linear in the index."""

    index_dim: int = eqx.field(static=True, default=8)
    """Dimension of the index."""
    epinet: MLP = eqx.field(static=True, default=MLP((15, 15)))
    """The trained network of features and index; it gets `index_dim` times as many outputs."""
    input_features: bool = eqx.field(static=True, default=False)
    """Whether the epinet sees the base network's input beside its last hidden layer, as in the Neural Testbed. For a
    `Table` it has a table of its own then."""
    sees_index: bool = eqx.field(static=True, default=True)
    """Whether the index is an input of the epinet; False: it only multiplies the outputs, so that the function is
    linear in it."""

    def __check_init__(self) -> None:
        if self.epinet.gain != 1.0 or self.epinet.code is not None:
            raise ValueError(
                f"epinet={self.epinet!r} sees features and an index, which have neither gain nor code; pass "
                "MLP(...) without them"
            )
        if self.sparse_rows and isinstance(self.network, Table) and not self.network.widths:
            raise ValueError(
                f"sparse_rows=True needs hidden layers, whose activations are features, and network={self.network!r} "
                "has none; leave sparse_rows=False"
            )

    @property
    def radius(self) -> float:
        return self.index_dim**0.5

    def update_indices(self, key: PRNGKeyArray) -> Float[Array, "draw index"]:
        """Draw the indices of an update, over which the loss is averaged: orthogonal directions and their opposites.

        Args:
            key: PRNG key.

        Returns:
            `num_indices` indices, each of which is standard normal.
        """
        key_direction, key_norm = jax.random.split(key)
        norm = jnp.linalg.norm(self._indices(key_norm, self.num_indices), axis=1, keepdims=True)
        return norm * self._directions(key_direction)

    def _indices(self, key: PRNGKeyArray, count: int) -> Float[Array, "draw index"]:
        """Draw independent indices from the standard normal distribution."""
        return jax.random.normal(key, (count, self.index_dim))

    def _start(self, key: PRNGKeyArray, key_anchor: PRNGKeyArray, x: Any) -> tuple[Nets, PyTree]:
        key_base, key_epinet = jax.random.split(key)
        anchor_base, anchor_epinet = jax.random.split(key_anchor)
        num_out = self.num_outputs * self.head.size
        base, to_base = self._start_network("network", self.network, key_base, anchor_base, x, num_out)
        size = jax.eval_shape(lambda x: self._features(self.network, base, x), x).size
        if self.input_features:
            size += jax.eval_shape(lambda x: inputs_of(self.network, x), x).size
        example = jnp.zeros(size + self.index_dim * self.sees_index)
        epinet, to_epinet = self._start_network(
            "epinet", self.epinet, key_epinet, anchor_epinet, example, num_out * self.index_dim
        )
        return Nets(base, epinet), () if self.l2 is None else Nets(to_base, to_epinet)

    def _features(self, network: Network, params: PyTree, x: Any) -> Float[Array, " feature"]:
        """The last hidden layer at one input, through which no gradient flows."""
        return jax.lax.stop_gradient(features_of(network, params, x))

    def _known(self, network: Network, params: Nets, x: Any) -> Known:
        weight, own = params.epinet[0].weight, x
        if isinstance(network, AfterRow):
            own, for_epinet = jnp.split(x, [network.table.widths[0]])
        features = self._features(network, params.base, own)
        product = features @ weight[: features.size]
        if self.input_features:
            by_input = weight[features.size : weight.shape[0] - self.index_dim * self.sees_index]
            if isinstance(network, AfterRow):
                product = product + for_epinet
            elif isinstance(network, Table):
                product = product + take_rows(by_input, x)
            else:
                product = product + inputs_of(network, x) @ by_input
        mean = shape_output(network.apply(params.base, own), self.num_outputs, self.head.size)
        return Known(mean, product, None)

    def _chosen(self, net: Known, action: Int[Array, ""]) -> Known:
        return Known(net.mean[action][None], net.product, action)

    def _trained(
        self, weights: tuple[Layer, ...], net: Known, index: Float[Array, " index"]
    ) -> Float[Array, "output size"]:
        product = net.product
        if self.sees_index:
            product = product + index @ weights[0].weight[-self.index_dim :]
        flat = self.epinet.apply_product(weights, product)
        sigma = flat.reshape(self.num_outputs, self.head.size, self.index_dim)
        if net.action is not None:
            sigma = sigma[net.action][None]
        return net.mean + sigma @ index

    def _weights(self, params: Nets) -> tuple[Layer, ...]:
        return params.epinet

    def _split_table(self, params: Nets) -> tuple[Float[Array, "row unit"], Nets]:
        table, base = super()._split_table(params.base)
        if not self.input_features:
            return table, params._replace(base=base)
        first, *others = params.epinet
        start, rows = params.base[-1].weight.shape[0], table.shape[0]
        before, own, after = jnp.split(first.weight, [start, start + rows])
        epinet = (Layer(jnp.concatenate([before, after]), first.bias), *others)
        return jnp.concatenate([table, own], axis=1), Nets(base, epinet)
