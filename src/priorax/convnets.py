"""Convolutional networks, for images."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num, PRNGKeyArray

from priorax.checks import non_negative, one_of, positive_int
from priorax.networks import MLP, Layer


class Filters(NamedTuple):
    """Parameters of one convolution."""

    weight: Float[Array, "out in height width"]
    bias: Float[Array, " out"]


class Convolutions(NamedTuple):
    """Parameters of a `Convnet`."""

    filters: tuple[Filters, ...]
    rest: tuple[Layer, ...]


SMALL_NET = ((16, 8, 4), (32, 4, 2))
"""The convolutions of Mnih et al. 2013."""


NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""The convolutions of Mnih et al. 2015."""


def least_side(filters: tuple[tuple[int, int, int], ...]) -> int:
    """Return the smallest image that a stack of convolutions can process.

    Args:
        filters: Number of filters, kernel size and stride of each layer.

    Returns:
        The height and width in pixels.
    """
    side = 1
    for _, own, stride in reversed(filters):
        side = (side - 1) * stride + own
    return side


@dataclass(frozen=True)
class Convnet:
    """A convolutional network on an image [height, width] or a stack [channel, height, width], followed by an MLP.

    Integer inputs are divided by 255. The default is small enough for a CPU; `NATURE` is the network of Mnih et al.
    2015.
    """

    filters: tuple[tuple[int, int, int], ...] = SMALL_NET
    """Number of filters, kernel size and stride of each convolution."""
    widths: tuple[int, ...] = ()
    """Units of each hidden layer after the convolutions."""
    bias_scale: float = 0.0
    """Standard deviation of the initial biases; 0 initialises them to zero."""
    precision: str = "float32"
    """Floating-point type of the convolutions: float32 or bfloat16. Parameters are float32 in either case."""

    def __post_init__(self) -> None:
        for layer in self.filters:
            for number in layer:
                positive_int("filters", number)
        one_of("precision", self.precision, ("float32", "bfloat16"))
        non_negative("bias_scale", self.bias_scale)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Convolutions:
        key_bias, key_rest, *keys = jax.random.split(key, 2 + len(self.filters))
        channels = 1 if jnp.ndim(x) == 2 else jnp.shape(x)[0]
        layers: list[Filters] = []
        for own, (count, side, _) in zip(keys, self.filters, strict=True):
            limit = (6 / ((channels + count) * side**2)) ** 0.5  # Glorot initialisation
            shape = (count, channels, side, side)
            bias = self.bias_scale * jax.random.normal(jax.random.fold_in(key_bias, len(layers)), (count,))
            layers.append(Filters(jax.random.uniform(own, shape, minval=-limit, maxval=limit), bias))
            channels = count
        shown = jax.eval_shape(self._convolved, tuple(layers), x)
        if shown.size == 0:
            least = least_side(self.filters)
            raise ValueError(
                f"filters={self.filters} need images of at least {least} x {least} pixels, but these have shape "
                f"{jnp.shape(x)}; use torso='small' (from {least_side(SMALL_NET)} pixels), torso='none', or your own"
            )
        return Convolutions(tuple(layers), self._rest().init(key_rest, jnp.zeros(shown.shape), num_out))

    def apply(self, params: Convolutions, x: Num[Array, "*channel height width"]) -> Array:
        return self._rest().apply(params.rest, self._convolved(params.filters, x))

    def features(self, params: Convolutions, x: Num[Array, "*channel height width"]) -> Float[Array, " feature"]:
        """Compute the last hidden layer, after activation.

        Args:
            params: Parameters, as returned by `init`.
            x: One image.

        Returns:
            The activations; without hidden layers, the convolutions' outputs.
        """
        return self._rest().features(params.rest, self._convolved(params.filters, x))

    def _convolved(self, filters: tuple[Filters, ...], x: Any) -> Array:
        h = jnp.asarray(x, self.precision).reshape(1, -1, *jnp.shape(x)[-2:])
        if jnp.issubdtype(jnp.asarray(x).dtype, jnp.integer):
            h = h / 255
        for layer, (_, _, stride) in zip(filters, self.filters, strict=True):
            weight, bias = (part.astype(h.dtype) for part in layer)
            h = jax.lax.conv_general_dilated(h, weight, (stride, stride), "VALID")  # [1, channel, height, width]
            h = jax.nn.relu(h + bias[:, None, None])
        return h.astype(jnp.float32).ravel()

    def _rest(self) -> MLP:
        return MLP(self.widths, bias_scale=self.bias_scale)
