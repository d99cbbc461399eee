"""L2 regularisation of weights towards an anchor."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.beliefs.base import check_number
from priorax.checks import non_negative, one_of
from priorax.networks import Network

READINGS = ("posterior", "coefficient")


class L2(eqx.Module):
    """L2 regularisation of the weights towards an anchor: BSR, the first form of lemma 3, and dropout's regulariser.

    The weight has two interpretations. With `reading="posterior"` it is sigma²/lambda of equation (4), whose loss is a
    *sum* over the data; our loss is a mean over the member's n examples, so the penalty is weight/n * |theta -
    anchor|². With `reading="coefficient"` the penalty is weight * |theta - anchor|², added to the mean loss: R of
    equation (1), whose loss is an expectation over the data, as lemma 1 requires. The "scale lambda = 0.1" of appendix
    B can be read in either way. By default an ensemble uses `posterior` and dropout `coefficient`, as in their
    equations.
    """

    weight: float | Float[Array, ""] = 0.1
    """sigma²/lambda, or the coefficient, depending on `reading`."""
    to: str = eqx.field(static=True, default="initial")
    """The anchor. initial: the initial weights, as in the paper's experiments; prior: a separate draw (lemma 3); zero.
    """
    reading: str | None = eqx.field(static=True, default=None)
    """posterior or coefficient, see above; None: the default of the belief."""

    def __check_init__(self) -> None:
        check_number(non_negative, "weight", self.weight)
        one_of("to", self.to, ("initial", "prior", "zero"))
        if self.reading is not None:
            one_of("reading", self.reading, READINGS)

    def anchor(self, network: Network, key: PRNGKeyArray, x: Any, num_out: int, params: PyTree) -> PyTree:
        """Create the anchor of one member.

        Args:
            network: The network.
            key: PRNG key of a separate draw.
            x: One example input.
            num_out: Number of outputs of the network.
            params: The member's initial weights.

        Returns:
            A pytree like `params`.
        """
        if self.to == "zero":
            return jax.tree.map(jnp.zeros_like, params)
        if self.to == "prior":
            return eqx.filter(network.init(key, x, num_out), eqx.is_inexact_array)
        return params

    def penalty(
        self, params: PyTree, anchor: PyTree, count: Float[Array, ""], reading: str = "posterior"
    ) -> Float[Array, ""]:
        """Compute the penalty that is added to the mean loss of one stream.

        Args:
            params: Weights of the member.
            anchor: Its anchor.
            count: Number of examples of the stream.
            reading: The default of the belief, used if the setting `reading` is None.

        Returns:
            The penalty.
        """
        pairs = zip(jax.tree.leaves(params), jax.tree.leaves(anchor), strict=True)
        distance = sum((jnp.sum((p - a) ** 2) for p, a in pairs), jnp.zeros(()))
        by_count = (self.reading or reading) == "posterior"
        return (self.weight / jnp.maximum(count, 1.0) if by_count else self.weight) * distance
