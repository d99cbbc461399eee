"""Interface of a belief: a distribution over functions that is updated with data and sampled from.

A belief subclasses `Belief`. It must define

    head, num_outputs               how an output is interpreted (`priorax.heads`), and the number of outputs
    init(key, x)                    -> BeliefState      x: one example input
    draw(state, key)                -> index            a member, a dropout mask, a noise sample
    value(state, index, x)          -> [output]         the drawn function at ONE input
    forward(state, key, x, prior)   -> [stream, batch, output, size]   the outputs for training, on a batch
    update(state, batch, key)       -> BeliefState, Info               one gradient step on a minibatch

and may override these defaults:

    num_streams    = 1              number of perturbed copies of the data that it trains on
    by_gradient    = True           `update` learns; False: `observe` has learned everything (exact Bayes)
    observe(state, batch)           sees each example exactly once (counts, Gram matrices); by default nothing
    num_members    = None           number of functions that can all be evaluated, by `forward` on a shared batch
    draws_members                   whether an index is a member's number; by default if there are members
    has_prior      = False          fixed prior functions are added; see `prior_values` and `prior_scale`
    stores_prior   = False          prior values are worth storing with each transition
    pays_bonus     = False          `reward_bonus` is added to rewards
    functions, spread               values of all members, or of drawn functions, and their standard deviation
    check_learning                  refuses replay and target-network settings that it does not support

Code outside `beliefs/` does not look at a belief's class: fitting, bandits, Q-learning, deployment, the viewer and
files use this interface alone, so custom beliefs are supported everywhere. `Wrapper` is the base class of a belief
around another one, to which it delegates.

All methods are pure, and can be jitted and vmapped. A *stream* is one perturbed copy of the data: an ensemble has K,
every other belief has one. `forward` also computes targets (with `state._replace(params=target_params)`): member k is
evaluated for stream k, which propagates uncertainty over many steps, whereas dropout and noisy networks draw new noise,
which is the failure of lemma 2, kept as in the original papers.

A belief is an `eqx.Module`: numbers such as `prior_scale` are leaves, so that sweeping them needs no recompilation;
structure is static.
"""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.checks import non_negative, one_of, positive
from priorax.heads import Head
from priorax.networks import Network


@runtime_checkable
class Optimizer(Protocol):
    """An optax gradient transformation, `Adam` or `RMSProp`."""

    @property
    def init(self) -> Any:
        """Function from parameters to the initial optimiser state."""
        ...

    @property
    def update(self) -> Any:
        """Function from (gradients, state, parameters) to (updates, state)."""
        ...


class Adam(eqx.Module):
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
        check_number(_rate, "learning_rate", self.learning_rate)
        for name in ("b1", "b2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0 and below 1; pass for example 0.9")
        non_negative("eps", self.eps)
        if self.clip is not None:
            positive("clip", self.clip)

    @property
    def init(self) -> Any:
        return self._optax().init

    @property
    def update(self) -> Any:
        return self._optax().update

    def _optax(self) -> optax.GradientTransformation:
        return _clipped(optax.adam(self.learning_rate, self.b1, self.b2, self.eps), self.clip)


class RMSProp(eqx.Module):
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
        check_number(_rate, "learning_rate", self.learning_rate)
        if self.clip is not None:
            positive("clip", self.clip)

    @property
    def init(self) -> Any:
        return self._optax().init

    @property
    def update(self) -> Any:
        return self._optax().update

    def _optax(self) -> optax.GradientTransformation:
        return _clipped(optax.rmsprop(self.learning_rate, self.decay, self.eps, centered=True), self.clip)


class GivenOptimizer(eqx.Module):
    """A custom optax transformation; it is code, not numbers, so it is static."""

    transformation: optax.GradientTransformation = eqx.field(static=True)
    """The transformation."""

    @property
    def init(self) -> Any:
        return self.transformation.init

    @property
    def update(self) -> Any:
        return self.transformation.update


def as_optimizer(optimizer: Any) -> Any:
    """Convert an optax transformation to an `eqx.Module`.

    Args:
        optimizer: `Adam`, `RMSProp`, or any optax transformation.

    Returns:
        `Adam` or `RMSProp` unchanged; any other transformation wrapped as a static field.
    """
    return optimizer if isinstance(optimizer, eqx.Module) else GivenOptimizer(optimizer)


def _rate(name: str, value: object) -> float:
    """Check a learning rate: a finite number above zero."""
    return positive(name, value, example=1e-3)


def _clipped(steps: optax.GradientTransformation, clip: float | None) -> optax.GradientTransformation:
    return steps if clip is None else optax.chain(optax.clip_by_global_norm(clip), steps)


class BeliefState(NamedTuple):
    """State of a belief. Neither optimisers nor target networks touch `frozen`."""

    params: PyTree
    """Trainable parameters."""
    frozen: PyTree = ()
    """Arrays that never change, such as prior functions."""
    opt: PyTree = ()
    """State of the optimiser."""
    aux: PyTree = ()
    """Statistics that `observe` updates, such as counts."""


class Info(NamedTuple):
    """Diagnostics of one update."""

    loss: Float[Array, " stream"]
    """Mean loss of each stream."""
    examples: Float[Array, "stream batch"] | None = None
    """Loss of each example, before weighting."""


class Batch(eqx.Module):
    """Examples as seen by the streams."""

    x: PyTree
    """Inputs [batch, ...] if shared, else [stream, batch, ...]."""
    target: Array
    """Targets [stream, batch, output, ...], or [stream, batch, ...] if `action` selects the output."""
    weight: Float[Array, "stream batch"]
    """Weight of each (stream, example): the fixed data noise."""
    count: Float[Array, " stream"]
    """Total number of examples of each stream (n of equations 4 and 5)."""
    action: Int[Array, "*stream batch"] | None = None
    """Index of the output that the target is for; None: all outputs."""
    prior: Float[Array, "stream batch output prior"] | None = None
    """Unscaled prior values, if they are already known."""
    shared: bool = eqx.field(static=True, default=False)
    """Whether all streams have the same inputs (and actions)."""


def plain_batch(x: Any, y: Any, num_streams: int = 1) -> Batch:
    """Create a batch of examples without data noise, shared by all streams.

    Args:
        x: Inputs [batch, ...].
        y: Targets [batch, output].
        num_streams: Number of streams.

    Returns:
        The batch, with unit weights.
    """
    target = jnp.broadcast_to(jnp.asarray(y), (num_streams, *jnp.shape(y)))
    n = jnp.shape(y)[0]
    x = jax.tree.map(jnp.asarray, x)
    return Batch(x, target, jnp.ones((num_streams, n)), jnp.full(num_streams, float(n)), shared=True)


if TYPE_CHECKING:
    overridable = property
else:

    class overridable:
        """A property that a subclass may replace by a field.

        Of a plain property, a dataclass would take the property object as the default of the field, and refuse its
        value.
        """

        def __init__(self, getter: Callable[[Any], Any]) -> None:
            self._getter = getter
            self.__doc__ = getter.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, belief: Any, owner: type | None = None) -> Any:
            if belief is None:
                raise AttributeError(f"{self._name} is defined for instances, not for the class")
            return self._getter(belief)


class Belief(eqx.Module):
    """Base class of all beliefs; see the module docstring for what a subclass must and may define."""

    if TYPE_CHECKING:  # type checkers would take abstract variables for fields

        @property
        @abc.abstractmethod
        def head(self) -> Head: ...
        @property
        @abc.abstractmethod
        def num_outputs(self) -> int: ...

    else:
        head: eqx.AbstractVar[Head]
        """What an output means."""
        num_outputs: eqx.AbstractVar[int]
        """Targets of a regression, or actions."""

    @overridable
    def num_streams(self) -> int:
        """Number of perturbed copies of the data that it trains on."""
        return 1

    @overridable
    def by_gradient(self) -> bool:
        """Whether `update` learns; False: everything is learned by `observe`."""
        return True

    @overridable
    def num_members(self) -> int | None:
        """Number of functions that can all be evaluated, stream k of `forward` being the k-th; None: functions can only
        be drawn.
        """
        return None

    @overridable
    def draws_members(self) -> bool:
        """Whether `draw` returns the index of a member, so that `value` agrees with its entry of `functions`."""
        return self.num_members is not None

    @overridable
    def acts_on_forward(self) -> bool:
        """Whether acting on a drawn member is acting on its stream of `forward`: one evaluation serves all lanes."""
        return self.draws_members

    @overridable
    def has_prior(self) -> bool:
        """Whether a fixed prior function is added to each function."""
        return False

    @overridable
    def prior_scale(self) -> float | Float[Array, ""]:
        """Factor by which `prior_values` are multiplied; 1 if there is no prior."""
        return 1.0

    @overridable
    def stores_prior(self) -> bool:
        """Whether to store prior values with each transition, because evaluating them costs more than loading them."""
        return False

    @overridable
    def pays_bonus(self) -> bool:
        """Whether `reward_bonus` is added to rewards."""
        return False

    @overridable
    def observes(self) -> bool:
        """Whether `observe` has an effect: by default, whether a subclass defines it."""
        return type(self).observe is not Belief.observe

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        """Initialise the state, before any data.

        Args:
            key: PRNG key.
            x: One example input.

        Returns:
            The initial state.
        """

    @abc.abstractmethod
    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree:
        """Draw one function: a member, a dropout mask, a noise sample.

        Args:
            state: State of the belief.
            key: PRNG key.

        Returns:
            The draw, as arrays, for `value`.
        """

    @abc.abstractmethod
    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        """Evaluate a drawn function at ONE input.

        Args:
            state: State of the belief.
            index: The result of `draw`.
            x: One input, without batch axis.

        Returns:
            One value per output.
        """

    @abc.abstractmethod
    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        """Compute the outputs for training, for every stream on a batch.

        Args:
            state: State of the belief.
            key: PRNG key, for beliefs that draw noise at each step.
            x: Inputs [stream, batch, ...], or [batch, ...] if `shared`.
            prior: Unscaled prior values at x [stream, batch, output, prior], if they are already known.
            shared: Whether all streams have the same inputs.

        Returns:
            `head.size` numbers for each stream, example and output.
        """

    @abc.abstractmethod
    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        """Perform one gradient step.

        Args:
            state: State of the belief.
            batch: A minibatch of the examples seen so far.
            key: PRNG key, for beliefs that draw noise at each step.

        Returns:
            The new state, and the losses.
        """

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        """Process new examples, each exactly once; by default it does nothing.

        Args:
            state: State of the belief.
            batch: New examples.

        Returns:
            The new state.
        """
        return state

    def member_output(self, state: BeliefState, index: Int[Array, ""], x: Any) -> Float[Array, "output size"]:
        """Evaluate the raw output of a member at ONE input.

        Args:
            state: State of the belief.
            index: Index of the member.
            x: One input, without batch axis.

        Returns:
            `head.size` numbers for each output.
        """
        batch = jax.tree.map(lambda leaf: leaf[None], x)
        return self.forward(state, jax.random.key(0), batch, shared=True)[index, 0]

    def prior_values(self, state: BeliefState, x: Any) -> Float[Array, "stream batch output prior"] | None:
        """Evaluate all members' prior functions on a shared batch of inputs, before `prior_scale`, for `Batch.prior`.

        Args:
            state: State of the belief.
            x: Inputs [batch, ...].

        Returns:
            The prior values; None if there is no prior.
        """
        return None

    def reward_bonus(self, state: BeliefState, x: Any) -> Float[Array, " batch"]:
        """Compute the bonus that is added to rewards at a batch of inputs.

        Args:
            state: State of the belief.
            x: Inputs [batch, ...].

        Returns:
            One bonus per input; zeros unless `pays_bonus`.
        """
        return jnp.zeros(jax.tree.leaves(x)[0].shape[0])

    def functions(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "function batch output"]:
        """Evaluate functions on a batch of inputs: all members, or drawn functions if there are no members.

        Args:
            state: State of the belief.
            key: PRNG key.
            x: Inputs [batch, ...].
            num_draws: Number of functions drawn if there are no members.

        Returns:
            One value per function, input and output, including the bonus, if any.
        """
        if self.num_members is None:
            return draw_values(self, state, key, x, num_draws)
        return values_of(self.head, self.forward(state, key, x, shared=True))

    def spread(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "batch output"]:
        """Compute the epistemic uncertainty at a batch of inputs: the standard deviation over `functions`; for counts,
        the bonus.

        Args:
            state: State of the belief.
            key: PRNG key.
            x: Inputs [batch, ...].
            num_draws: Number of functions drawn if there are no members.

        Returns:
            One number per input and output.
        """
        return jnp.std(self.functions(state, key, x, num_draws), axis=0)

    def check_learning(self, shared_batch: bool, lagged: bool, prioritised: bool) -> None:
        """Check that this belief supports some settings of Q-learning; by default all are supported.

        Args:
            shared_batch: Whether all streams learn from the same minibatch.
            lagged: Whether a target network lags behind the online one.
            prioritised: Whether minibatches are drawn by priority.

        Raises:
            ValueError: If a setting is not supported; the message names the remedy.
        """


def check_number(check: Callable[[str, object], float], name: str, value: Any) -> None:
    """Check a setting if it is a plain number; arrays, as in a trace or a sweep, pass unchecked.

    Args:
        check: A function from `priorax.checks`.
        name: Name of the setting.
        value: Its value.

    Raises:
        ValueError: If the check fails.
    """
    if not isinstance(value, jax.Array):
        check(name, value)


READINGS = ("posterior", "coefficient")


class L2(eqx.Module):
    """L2 regularisation of the weights towards an anchor: BSR, the first form of lemma 3, and dropout's regulariser.

    There are two readings of the weight. With `reading="posterior"` it is sigma²/lambda of equation (4), which is a
    *sum* over data: beside a mean over the member's n examples it becomes weight/n. With `reading="coefficient"` it is
    the factor of |theta - anchor|² beside the mean loss: R of equation (1), an expectation over data, without which
    lemma 1 would not hold; it may also be what appendix B means by "scale lambda = 0.1". By default each belief uses
    the reading of its own equation: an ensemble posterior, dropout coefficient.
    """

    weight: float | Float[Array, ""] = 0.1
    """sigma²/lambda, or the coefficient, depending on `reading`."""
    to: str = eqx.field(static=True, default="initial")
    """The anchor. initial: the initial weights, as in the paper's experiments; prior: a separate draw (lemma 3); zero.
    """
    reading: str | None = eqx.field(static=True, default=None)
    """posterior or coefficient, see above; None: the reading of the belief's own equation."""

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
            reading: The belief's own reading, if the setting is None.

        Returns:
            The penalty.
        """
        pairs = zip(jax.tree.leaves(params), jax.tree.leaves(anchor), strict=True)
        distance = sum((jnp.sum((p - a) ** 2) for p, a in pairs), jnp.zeros(()))
        by_count = (self.reading or reading) == "posterior"
        return (self.weight / jnp.maximum(count, 1.0) if by_count else self.weight) * distance


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

    # a stream's loss is the mean over examples of weight times loss: by the weight, its derivative is the example's
    (grads, by_weight), losses = jax.grad(total, argnums=(0, 1), has_aux=True)(state.params, batch.weight)
    step = jax.vmap(belief.optimizer.update) if per_stream else belief.optimizer.update
    updates, opt = step(grads, state.opt, state.params)
    return state._replace(params=optax.apply_updates(state.params, updates), opt=opt), Info(
        losses, by_weight * batch.weight.shape[1]
    )


def values_of(head: Head, out: Float[Array, "*batch output size"]) -> Float[Array, "*batch output"]:
    """Compute the values of outputs, with any leading axes.

    Args:
        head: The interpretation of outputs.
        out: Outputs [..., output, size].

    Returns:
        Values [..., output].
    """
    flat = out.reshape(-1, out.shape[-1])
    return jax.vmap(head.value)(flat).reshape(out.shape[:-1])


def greedy_backup(
    head: Head,
    next_out: Float[Array, "output size"],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    selector: Float[Array, " output"] | None = None,
) -> Array:
    """Compute the target of equation (6) for ONE transition: reward + discount * the best next output.

    Args:
        head: The interpretation of outputs.
        next_out: Outputs at the next observation.
        reward: The reward.
        discount: Discount factor; zero after termination.
        selector: Values that select the next output instead (double Q-learning: the online network's).

    Returns:
        The target, as `head.loss` takes it.
    """
    best = jnp.argmax(values_of(head, next_out) if selector is None else selector)
    return head.backup(next_out[best], reward, discount)


def draw_values(
    belief: Belief, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int
) -> Float[Array, "draw batch output"]:
    """Draw functions from a belief and evaluate them on a batch of inputs.

    Args:
        belief: The belief.
        state: State of the belief.
        key: PRNG key.
        x: Inputs [batch, ...].
        num_draws: Number of functions.

    Returns:
        One value per function, input and output.
    """
    index = jax.vmap(lambda k: belief.draw(state, k))(jax.random.split(key, num_draws))
    return index_values(belief, state, index, x)


def index_values(belief: Belief, state: BeliefState, index: PyTree, x: Any) -> Float[Array, "draw batch output"]:
    """Evaluate several drawn functions on a batch of inputs.

    Args:
        belief: The belief.
        state: State of the belief.
        index: Results of `draw`, with a leading axis.
        x: Inputs [batch, ...].

    Returns:
        One value per function, input and output.
    """
    return jax.vmap(lambda i: jax.vmap(lambda row: belief.value(state, i, row))(x))(index)


class Wrapper(Belief):
    """Base class of a belief around another one, whose state it shares and to which it delegates by default."""

    base: eqx.AbstractVar[Any]
    """The wrapped belief."""

    @property
    def head(self) -> Head:
        return self.base.head

    @property
    def num_outputs(self) -> int:
        return self.base.num_outputs

    @property
    def num_streams(self) -> int:
        return self.base.num_streams

    @property
    def by_gradient(self) -> bool:
        return self.base.by_gradient

    @property
    def num_members(self) -> int | None:
        return self.base.num_members

    @property
    def draws_members(self) -> bool:
        """As the belief inside, unless this one draws in its own way."""
        return type(self).draw is Wrapper.draw and self.base.draws_members

    @property
    def acts_on_forward(self) -> bool:
        """As the belief inside, unless this one draws or evaluates in its own way."""
        return self.draws_members and type(self).value is Wrapper.value and self.base.acts_on_forward

    @property
    def has_prior(self) -> bool:
        return self.base.has_prior

    @property
    def prior_scale(self) -> float | Float[Array, ""]:
        return self.base.prior_scale

    @property
    def stores_prior(self) -> bool:
        return self.base.stores_prior

    @property
    def pays_bonus(self) -> bool:
        return self.base.pays_bonus

    @property
    def observes(self) -> bool:
        return type(self).observe is not Wrapper.observe or self.base.observes

    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState:
        return self.base.init(key, x)

    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree:
        return self.base.draw(state, key)

    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]:
        return self.base.value(state, index, x)

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        return self.base.forward(state, key, x, prior, shared)

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        return self.base.update(state, batch, key)

    def observe(self, state: BeliefState, batch: Batch) -> BeliefState:
        return self.base.observe(state, batch)

    def member_output(self, state: BeliefState, index: Int[Array, ""], x: Any) -> Float[Array, "output size"]:
        return self.base.member_output(state, index, x)

    def prior_values(self, state: BeliefState, x: Any) -> Float[Array, "stream batch output prior"] | None:
        return self.base.prior_values(state, x)

    def reward_bonus(self, state: BeliefState, x: Any) -> Float[Array, " batch"]:
        return self.base.reward_bonus(state, x)

    def functions(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "function batch output"]:
        """Evaluate functions by the wrapper's own `value`, so that deployment agrees with acting.

        Args:
            state: State of the belief.
            key: PRNG key.
            x: Inputs [batch, ...].
            num_draws: Number of functions drawn if there are no members.

        Returns:
            One value per function, input and output.
        """
        if not self.draws_members:
            return draw_values(self, state, key, x, num_draws)
        return index_values(self, state, jnp.arange(self.base.num_members), x)

    def spread(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int = 100
    ) -> Float[Array, "batch output"]:
        return self.base.spread(state, key, x, num_draws)

    def check_learning(self, shared_batch: bool, lagged: bool, prioritised: bool) -> None:
        self.base.check_learning(shared_batch, lagged, prioritised)
