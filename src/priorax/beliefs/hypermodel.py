"""Hypermodels: one network whose last layer is linear in a random index (Dwaracherla et al. 2020; Li et al. 2024).

    Q(s, a, xi) = <W xi + b, phi(s)> + prior_scale * <P xi, phi_prior(s)>

The index xi is uniform on the unit sphere of `index_dim` dimensions. The network computes b'phi and all columns of
W'phi at once, so that one evaluation serves every index. W is stored divided by sqrt(index_dim): the L2 penalty of the
stored weights is then the mean over indices of |W xi + b|², the penalty of equation (4). `indexed.py` has the updates.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs.indexed import Indexed
from priorax.networks import Network


class Hypermodel(Indexed):
    """A network with a last layer that is linear in a random index, and a fixed prior function of the same form.

    `network` gets `index_dim` + 1 times as many outputs.
    """

    @property
    def radius(self) -> float:
        return 1.0

    def _indices(self, key: PRNGKeyArray, count: int) -> Float[Array, "draw index"]:
        """Draw independent indices, uniformly on the unit sphere."""
        normal = jax.random.normal(key, (count, self.index_dim))
        return normal / jnp.maximum(jnp.linalg.norm(normal, axis=1, keepdims=True), 1e-12)

    def _start(self, key: PRNGKeyArray, key_anchor: PRNGKeyArray, x: Any) -> tuple[PyTree, PyTree]:
        num_out = self.num_outputs * self.head.size * (self.index_dim + 1)
        return self._start_network("network", self.network, key, key_anchor, x, num_out)

    def _known(self, network: Network, params: PyTree, x: Any) -> Float[Array, "output size coefficient"]:
        """The constant b'phi, then the columns of W'phi divided by sqrt(index_dim)."""
        return network.apply(params, x).reshape(self.num_outputs, self.head.size, self.index_dim + 1)

    def _chosen(self, net: Array, action: Int[Array, ""]) -> Array:
        return net[action][None]

    def _trained(self, weights: PyTree, net: Array, index: Float[Array, " index"]) -> Float[Array, "output size"]:
        return net[..., 0] + net[..., 1:] @ (self.index_dim**0.5 * index)
