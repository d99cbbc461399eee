"""A family of tasks: the functions of past tasks as the prior of the next one, and as what its members learn with.

By lemma 3 a member with a prior function is a posterior sample if both are linear in the same features. So `Learned`
draws combinations of past functions, and `FamilyMember` learns a combination of them. With Gaussian noise of standard
deviation s on targets and `L2(s**2)`, a member is then a sample of the exact posterior of a Gaussian process with the
mean and the covariance of the past functions.
"""

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from priorax.checks import non_negative
from priorax.networks import MLP, Layer, Network, Table


class LearnedParams(NamedTuple):
    """Parameters of one draw of `Learned`."""

    layers: tuple[Layer, ...]
    """Layers of the network, the last one combined over tasks."""
    rest: PyTree
    """Parameters of the random function that is added."""


@dataclass(frozen=True, eq=False)
class Learned:
    """Draws with the mean and the covariance of functions f_1 ... f_M that were learned on past tasks of a family.

    A draw is a random combination of them, mean(f) + sum_m z_m (f_m - mean(f)) / sqrt(M - 1), with z standard normal.
    The functions are outputs of one network, so that a draw is that network with one last layer, no larger than any
    other prior. A random function may be added for what the family does not contain. `priorax.learn_prior` makes it.
    """

    network: MLP | Table
    """The network whose outputs are the functions."""
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    """Weights and biases of its layers; those of the last one are [unit, task, output] and [task, output]."""
    rest: Network | None = None
    """Distribution of the random function that is added; None: nothing is added."""
    rest_scale: float = 1.0
    """Its factor."""

    def __post_init__(self) -> None:
        non_negative("rest_scale", self.rest_scale)
        weight, bias = self.layers[-1]
        if weight.ndim != 3 or bias.shape != weight.shape[1:] or len(bias) < 2:
            raise ValueError(
                f"layers end in weights {weight.shape} and biases {bias.shape}, but need [unit, task, output] and "
                "[task, output] for at least 2 tasks; use priorax.learn_prior"
            )

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> LearnedParams:
        key_task, key_rest = jax.random.split(key)
        *hidden, (weight, bias) = self.layers
        self.check_outputs(num_out)
        z = jax.random.normal(key_task, (len(bias),))
        share = 1 / len(bias) + (z - jnp.mean(z)) / (len(bias) - 1) ** 0.5
        last = Layer(jnp.einsum("t,uto->uo", share, weight), share @ bias)
        rest = () if self.rest is None else self.rest.init(key_rest, x, num_out)
        return LearnedParams((*(Layer(*map(jnp.asarray, each)) for each in hidden), last), rest)

    def apply(self, params: LearnedParams, x: Any) -> Array:
        value = self.network.apply(params.layers, x)
        return value if self.rest is None else value + self.rest_scale * self.rest.apply(params.rest, x)

    def check_outputs(self, num_out: int) -> None:
        """Check that the functions have as many outputs as a belief needs.

        Args:
            num_out: Number of outputs.

        Raises:
            ValueError: If they have not.
        """
        found = self.layers[-1][1].shape[1]
        if found != num_out:
            raise ValueError(
                f"the learned prior has {found} outputs, but {num_out} are needed; learn it from functions with as "
                "many outputs"
            )

    def functions(self, x: Any) -> Float[Array, "task batch output"]:
        """Evaluate the functions of the past tasks, for example to compare them with those that it was learned from.

        Args:
            x: Inputs [batch, ...].

        Returns:
            Their values.
        """
        return jnp.moveaxis(jax.vmap(self._at)(jnp.asarray(x)), 1, 0)

    def deviations(self, x: Any) -> Float[Array, "task output"]:
        """Evaluate what the index z of a draw is multiplied by, at ONE input.

        Args:
            x: One input.

        Returns:
            The deviations of the functions from their mean, divided by sqrt(M - 1).
        """
        found = self._at(x)
        return (found - jnp.mean(found, axis=0)) / (len(found) - 1) ** 0.5

    def member(self, network: Network | None = None) -> "FamilyMember":
        """Create the network of members that follow this prior.

        Args:
            network: A network beside the combination, which learns what the family does not contain, scaled as `rest`;
                None: members remain in the family.

        Returns:
            The network.
        """
        return FamilyMember(self, network, self.rest_scale)

    def _at(self, x: Any) -> Float[Array, "task output"]:
        *hidden, (weight, bias) = self.layers
        last = Layer(jnp.asarray(weight.reshape(len(weight), -1)), jnp.asarray(bias.ravel()))
        layers = (*(Layer(*map(jnp.asarray, each)) for each in hidden), last)
        return self.network.apply(layers, x).reshape(bias.shape)

    @functools.cached_property
    def _content(self) -> tuple[Any, ...]:
        """What makes two of them equal, with a digest of the arrays."""
        arrays = [array for layer in self.layers for array in layer]
        digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
        return self.network, tuple(array.shape for array in arrays), digest, self.rest, self.rest_scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Learned) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


class FamilyParams(NamedTuple):
    """Parameters of a `FamilyMember`."""

    share: Float[Array, " task"]
    """Coefficients of the deviations of the past functions from their mean; initially zero."""
    network: PyTree
    """Parameters of the network beside them."""


@dataclass(frozen=True)
class FamilyMember:
    """The network of members that follow a learned prior: they learn which past functions a task is made of.

    A network of another form generalises from the data in its own way, and the prior then only adds doubt.
    """

    prior: Learned
    """The learned prior."""
    network: Network | None = None
    """A network beside the combination, for what the family does not contain; None: members remain in the family."""
    network_scale: float = 1.0
    """Its factor: the smaller, the more of the data is explained by the family."""

    def __post_init__(self) -> None:
        non_negative("network_scale", self.network_scale)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> FamilyParams:
        bias = self.prior.layers[-1][1]
        self.prior.check_outputs(num_out)
        return FamilyParams(jnp.zeros(len(bias)), () if self.network is None else self.network.init(key, x, num_out))

    def apply(self, params: FamilyParams, x: Any) -> Array:
        value = params.share @ self.prior.deviations(x)
        return value if self.network is None else value + self.network_scale * self.network.apply(params.network, x)
