"""Networks: the trainable functions and prior functions of ensemble members.

A network is any object with two methods:

    init(key, x, num_out) -> params      draws parameters for inputs shaped like the example x
    apply(params, x)      -> output      evaluates the function at ONE input; returns num_out numbers

`MLP`, `Table`, `Dueling` and `Convnet` (`convnets.py`) are built in; `module` wraps any Equinox module, and a plain
`(init, apply)` pair of functions works too. Networks are frozen dataclasses: equal settings compare equal, so compiled
code is shared.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Num, PRNGKeyArray, PyTree

from priorax.checks import non_negative, one_of, positive, positive_int

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}
"""Activation functions by name."""


@runtime_checkable
class Network(Protocol):
    """A parametric family of functions."""

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> PyTree:
        """Draw parameters.

        Args:
            key: A PRNG key.
            x: An example input; only its shape and type matter.
            num_out: Number of outputs.

        Returns:
            The parameters, a pytree of arrays.
        """
        ...

    def apply(self, params: PyTree, x: Any) -> Array:
        """Evaluate the function at one input.

        Args:
            params: Parameters, as returned by `init`.
            x: One input.

        Returns:
            An array of `num_out` numbers.
        """
        ...


class Layer(NamedTuple):
    """An affine map `x @ weight + bias`; each row of `weight` belongs to one input."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"] | None


@dataclass(frozen=True)
class FourierCode:
    """A fixed code of an input vector: the vector itself, and random Fourier features of it (Rahimi and Recht 2007).

    Feature j is sqrt(2) cos(w_j z + b_j), with w_j ~ N(0, I / lengthscale²) and b_j uniform; the inner product of two
    inputs' features approximates a Gaussian kernel. A network on such features can vary over a distance of
    `lengthscale`: what it learns in one place changes little elsewhere, and, as a prior, it has as much to say about
    each place as about any other, where a plain ReLU network grows with its input. Codes with equal settings are equal,
    so that members and priors share their features.
    """

    features: int = 256
    """Number of features; 0: the vector alone."""
    lengthscale: float = 0.5
    """Distance over which features vary, in units of the (squashed) input."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Components of the input that belong together, by index."""
    grouped: float = 0.0
    """Share of the features that depend on one group alone, which is drawn in proportion to its size; the others depend
    on all components. What is learned through them about one group holds for all values of the others."""
    squashed: tuple[int, ...] = ()
    """Components that are replaced by their asinh, which is logarithmic above one, so that small values are resolved
    more finely than large ones."""
    seed: int = 0
    """Seed of the features."""

    def __post_init__(self) -> None:
        if self.features != 0:
            positive_int("features", self.features)
        positive("lengthscale", self.lengthscale)
        if not 0 <= self.grouped <= 1:
            raise ValueError(f"grouped={self.grouped} must be between 0 and 1; pass for example 0.5")
        if self.grouped > 0 and not self.groups:
            raise ValueError(f"grouped={self.grouped} needs groups of components, and groups=(); pass grouped=0")

    def size(self, num_in: int) -> int:
        """Compute the length of the code.

        Args:
            num_in: Length of the input.

        Returns:
            The length.
        """
        return num_in + self.features

    def __call__(self, z: Float[Array, " in"]) -> Float[Array, " code"]:
        """Encode one input.

        Args:
            z: The input.

        Returns:
            The features, then the (squashed) input.
        """
        if self.squashed:
            z = jnp.where(np.isin(np.arange(z.size), self.squashed), jnp.arcsinh(z), z)
        if self.features == 0:
            return z
        rng = np.random.default_rng(self.seed)
        frequency = rng.normal(size=(z.size, self.features)) / self.lengthscale
        phase = rng.uniform(0, 2 * np.pi, self.features)
        if self.grouped > 0:
            frequency *= self._dependence(rng, z.size)
        cosines = jnp.cos(z @ jnp.asarray(frequency, z.dtype) + jnp.asarray(phase, z.dtype))
        return jnp.concatenate([2**0.5 * cosines, z])

    def _dependence(self, rng: np.random.Generator, num_in: int) -> np.ndarray:
        """Draw the components that each feature depends on, as ones and zeros [in, feature]."""
        sizes = np.array([len(group) for group in self.groups])
        shares = np.append(self.grouped * sizes / sizes.sum(), 1 - self.grouped)
        members = [np.isin(np.arange(num_in), group) for group in (*self.groups, range(num_in))]
        return np.stack(members, axis=1)[:, rng.choice(len(shares), self.features, p=shares)]


@dataclass(frozen=True)
class MLP:
    """A multi-layer perceptron with Glorot initialisation (paper, algorithm 1, line 2).

    Inputs of any shape are flattened. `widths=()` is a linear model.
    """

    widths: tuple[int, ...] = (50, 50)
    """Units of each hidden layer."""
    activation: str = "relu"
    """Activation function: relu, tanh, gelu or silu."""
    use_bias: bool = True
    """Whether layers have biases."""
    bias_scale: float = 0.0
    """Standard deviation of the initial biases; 0 initialises them to zero."""
    weight_std: float | None = None
    """Standard deviation of normally distributed initial weights; None uses Glorot's uniform distribution."""
    gain: float | tuple[float, ...] = 1.0
    """Factor that multiplies the inputs: one number, or one per input. A larger gain gives a function that varies
    faster.
    """
    code: FourierCode | None = None
    """Code of the inputs, after the gain; None: the inputs themselves."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(positive_int("widths", w) for w in self.widths))
        one_of("activation", self.activation, ACTIVATIONS)
        non_negative("bias_scale", self.bias_scale)
        if self.weight_std is not None:
            non_negative("weight_std", self.weight_std)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> tuple[Layer, ...]:
        num_in = jnp.size(x) if self.code is None else self.code.size(jnp.size(x))
        pairs = list(itertools.pairwise((num_in, *self.widths, num_out)))
        key_weight, key_bias = jax.random.split(key)
        # one draw for all layers, since compiling random number generators is slow
        count = sum(fan_in * fan_out for fan_in, fan_out in pairs)
        if self.weight_std is None:
            weights = jax.random.uniform(key_weight, (count,), minval=-1.0, maxval=1.0)
        else:
            weights = self.weight_std * jax.random.normal(key_weight, (count,))
        biases = jnp.zeros(sum(fan_out for _, fan_out in pairs))
        if self.bias_scale > 0:
            biases = self.bias_scale * jax.random.normal(key_bias, biases.shape)
        layers = []
        for fan_in, fan_out in pairs:
            weight, weights = jnp.split(weights, [fan_in * fan_out])
            bias, biases = jnp.split(biases, [fan_out])
            glorot = (6 / (fan_in + fan_out)) ** 0.5 if self.weight_std is None else 1.0
            layers.append(Layer(glorot * weight.reshape(fan_in, fan_out), bias if self.use_bias else None))
        return tuple(layers)

    def apply(self, params: tuple[Layer, ...], x: Num[Array, "..."], masks: tuple[Array, ...] = ()) -> Array:
        """Evaluate the network at one input.

        Args:
            params: Parameters, as returned by `init`.
            x: One input; it is flattened.
            masks: Dropout masks that multiply the activations, one for each hidden layer; empty for none.

        Returns:
            The outputs.
        """
        return self.apply_product(params, self.inputs(x, params[0].weight.dtype) @ params[0].weight, masks)

    def apply_product(
        self, params: tuple[Layer, ...], product: Float[Array, " unit"], masks: tuple[Array, ...] = ()
    ) -> Array:
        """Evaluate the network from the product of the inputs and the first layer's weights.

        Args:
            params: Parameters, as returned by `init`; the first layer's weights are not read.
            product: The product.
            masks: Dropout masks, as for `apply`.

        Returns:
            The outputs.
        """
        return _after_first(product, params, ACTIVATIONS[self.activation], masks)

    def inputs(self, x: Num[Array, "..."], dtype: Any = float) -> Float[Array, " in"]:
        """Compute the vector that the first layer sees: the flattened input after gain and code.

        Args:
            x: One input.
            dtype: Type of the vector.

        Returns:
            The vector.
        """
        flat = jnp.ravel(x).astype(dtype)
        if self.gain != 1.0:
            flat = flat * jnp.asarray(self.gain)
        return flat if self.code is None else self.code(flat)

    def features(self, params: tuple[Layer, ...], x: Num[Array, "..."]) -> Float[Array, " feature"]:
        """Compute the last hidden layer, after activation.

        Args:
            params: Parameters, as returned by `init`.
            x: One input.

        Returns:
            The activations; without hidden layers, `inputs`.
        """
        return ACTIVATIONS[self.activation](self.apply(params[:-1], x)) if self.widths else self.inputs(x)


@dataclass(frozen=True)
class Table:
    """An MLP whose input is the index of a discrete state: the first layer is a table look-up.

    Exactly equal to `MLP` on the one-hot encoding of the index, and initialised with the same numbers. An index outside
    [0, num_rows) stands for the all-zero vector.
    """

    num_rows: int
    """Number of states."""
    widths: tuple[int, ...] = (50, 50)
    """Units of each hidden layer."""
    activation: str = "relu"
    """Activation function: relu, tanh, gelu or silu."""
    use_bias: bool = True
    """Whether layers have biases."""
    bias_scale: float = 0.0
    """Standard deviation of the initial biases; 0 initialises them to zero."""
    weight_std: float | None = None
    """Standard deviation of normally distributed initial weights; None uses Glorot's uniform distribution."""

    def __post_init__(self) -> None:
        positive_int("num_rows", self.num_rows)
        object.__setattr__(self, "widths", self.one_hot().widths)

    def one_hot(self) -> MLP:
        """Return the MLP that equals this table on one-hot inputs."""
        return MLP(self.widths, self.activation, self.use_bias, self.bias_scale, self.weight_std)

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> tuple[Layer, ...]:
        return self.one_hot().init(key, jnp.zeros(self.num_rows), num_out)

    def apply(self, params: tuple[Layer, ...], x: Integer[Array, ""], masks: tuple[Array, ...] = ()) -> Array:
        """Evaluate the network at one state.

        Args:
            params: Parameters, as returned by `init`.
            x: The index of the state.
            masks: Dropout masks, as for `MLP.apply`.

        Returns:
            The outputs.
        """
        return self.apply_row(params, take_rows(params[0].weight, x), masks)

    def apply_row(self, params: tuple[Layer, ...], row: Float[Array, " unit"], masks: tuple[Array, ...] = ()) -> Array:
        """Evaluate the network from a row of the first layer that was looked up before.

        Args:
            params: Parameters, as returned by `init`; the table in them is not read.
            row: The row of the first layer's weights.
            masks: Dropout masks, as for `MLP.apply`.

        Returns:
            The outputs.
        """
        return _after_first(row, params, ACTIVATIONS[self.activation], masks)

    def inputs(self, x: Integer[Array, ""]) -> Float[Array, " row"]:
        """Compute the one-hot encoding of a state.

        Args:
            x: The index of the state.

        Returns:
            The encoding; zeros for an index outside the table.
        """
        return jax.nn.one_hot(x, self.num_rows)

    def features(self, params: tuple[Layer, ...], x: Integer[Array, ""]) -> Float[Array, " feature"]:
        """Compute the last hidden layer, after activation.

        Args:
            params: Parameters, as returned by `init`.
            x: The index of the state.

        Returns:
            The activations; without hidden layers, `inputs`.
        """
        return self.row_features(params, take_rows(params[0].weight, x)) if self.widths else self.inputs(x)

    def row_features(self, params: tuple[Layer, ...], row: Float[Array, " unit"]) -> Float[Array, " feature"]:
        """Compute the last hidden layer from a row of the first layer that was looked up before.

        Args:
            params: Parameters, as returned by `init`; the table in them is not read.
            row: The row of the first layer's weights.

        Returns:
            The activations.
        """
        return ACTIVATIONS[self.activation](self.apply_row(params[:-1], row))


def take_rows(table: Num[Array, "... row unit"], x: Integer[Array, "..."], *index: Array) -> Num[Array, "... unit"]:
    """Look up rows of a table; indices outside it give zeros.

    Args:
        table: The table, possibly with leading axes.
        x: Row indices.
        *index: Indices into the leading axes.

    Returns:
        The rows.
    """
    row = jnp.where(x < 0, table.shape[-2], x)
    return table.at[(*index, row)].get(mode="fill", fill_value=0.0)


def _after_first(
    first: Float[Array, " hidden"],
    params: tuple[Layer, ...],
    activation: Callable[[Array], Array],
    masks: tuple[Array, ...],
) -> Float[Array, " out"]:
    """Evaluate the remaining layers, given the product of the first."""
    h = first if params[0].bias is None else first + params[0].bias
    for i, layer in enumerate(params[1:]):
        h = activation(h)
        if masks:
            h = h * masks[i]
        h = h @ layer.weight
        if layer.bias is not None:
            h = h + layer.bias
    return h


@dataclass(frozen=True)
class Dueling:
    """A dueling network (Wang et al. 2016): output i is `v + advantage * (a_i - mean(a))`.

    The state value v is learned from the data of all actions.
    """

    network: Network
    """The network that computes v and a; it gets one output more."""
    size: int = 1
    """Numbers per output: the `size` of the head."""
    advantage: float = 1.0
    """Factor of the advantages; below 1, initial outputs differ less between actions."""

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> PyTree:
        return self.network.init(key, x, num_out + self.size)

    def apply(self, params: PyTree, x: Num[Array, "..."], *masks: tuple[Array, ...]) -> Array:
        parts = self.network.apply(params, x, *masks).reshape(-1, self.size)
        own = parts[1:] - jnp.mean(parts[1:], axis=0)
        return jnp.ravel(parts[0] + self.advantage * own)

    def features(self, params: PyTree, x: Any) -> Float[Array, " feature"]:
        """Compute the last hidden layer of the network, if it has `features`.

        Args:
            params: Parameters, as returned by `init`.
            x: One input.

        Returns:
            The activations.
        """
        return features_of(self.network, params, x)

    def inputs(self, x: Any) -> Float[Array, " in"]:
        """Compute the vector that the network's first layer sees, if it has `inputs`.

        Args:
            x: One input.

        Returns:
            The vector.
        """
        return inputs_of(self.network, x)


def features_of(network: Network, params: PyTree, x: Any) -> Float[Array, " feature"]:
    """Compute the last hidden layer of a network.

    Args:
        network: The network.
        params: Its parameters.
        x: One input.

    Returns:
        The activations.

    Raises:
        ValueError: If the network has no method `features`.
    """
    return _method(network, "features(params, x)", "its last hidden layer")(params, x)


def inputs_of(network: Network, x: Any) -> Float[Array, " in"]:
    """Compute the vector that the first layer of a network sees.

    Args:
        network: The network.
        x: One input.

    Returns:
        The vector.

    Raises:
        ValueError: If the network has no method `inputs`.
    """
    return _method(network, "inputs(x)", "the vector that its first layer sees")(x)


def _method(network: Network, call: str, returns: str) -> Callable[..., Array]:
    found = getattr(network, call.partition("(")[0], None)
    if found is None:
        raise ValueError(
            f"network={network!r} has no method {call} that returns {returns}; pass MLP(...), Table(...) or a network "
            "with that method"
        )
    return found


@dataclass(frozen=True)
class Pair:
    """A network made of two functions, `init(key, x) -> params` and `apply(params, x) -> output`."""

    init_fn: Callable[..., PyTree]
    """Draws parameters."""
    apply_fn: Callable[..., Array]
    """Evaluates the function at one input."""

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> PyTree:
        return self.init_fn(key, x)

    def apply(self, params: PyTree, x: Any) -> Array:
        return jnp.ravel(self.apply_fn(params, x))


def module(make: Callable[[PRNGKeyArray], PyTree]) -> Pair:
    """Create a network from an Equinox module.

    Args:
        make: Builds the module from a PRNG key; calling the module evaluates it at one input.

    Returns:
        The network.

    Example:
        `module(lambda key: eqx.nn.MLP(3, 1, 32, 2, key=key))`
    """
    shapes = eqx.filter_eval_shape(make, jax.random.key(0))
    static = jax.tree.map(lambda leaf: None if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, shapes)
    return Pair(
        lambda key, x: eqx.filter(make(key), eqx.is_array),
        lambda params, x: eqx.combine(params, static)(x),
    )


def as_network(network: Any, name: str = "network") -> Network:
    """Convert an argument to a network.

    Args:
        network: A network, or an `(init, apply)` pair, which may be a named tuple.
        name: Name of the argument, for the error message.

    Returns:
        The network.

    Raises:
        TypeError: If it is neither.
    """
    if isinstance(network, tuple) and len(network) == 2 and all(callable(part) for part in network):
        return Pair(*network)
    if isinstance(network, Network):
        return network
    function = ", or priorax.priors.Function(f) for a plain function of x" if name == "prior" else ""
    raise TypeError(
        f"{name}={network!r} is neither a network nor an (init, apply) pair; "
        f"pass MLP(...), Table(...), a pair of functions, module(make) for an Equinox module{function}"
    )
