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
    pairs_targets  = False          targets of Q-learning are computed with the key of the update
    pays_bonus     = False          `reward_bonus` is added to rewards
    functions, spread               values of all members, or of drawn functions, and their standard deviation
    member_axes                     the axis of members in each array of a state, to spread them over devices
    check_learning                  refuses replay and target-network settings that it does not support

Code outside `beliefs/` does not look at a belief's class: fitting, bandits, Q-learning, deployment, the viewer and
files use this interface alone, so custom beliefs are supported everywhere. `Wrapper` (`wrapper.py`) is the base class
of a belief around another one, to which it delegates; `gradient_step` (`gradient.py`) is the usual `update`.

All methods are pure, and can be jitted and vmapped. A *stream* is one perturbed copy of the data: an ensemble has K,
every other belief has one. `forward` also computes targets (with `state._replace(params=target_params)`): member k is
evaluated for stream k, which propagates uncertainty over many steps, whereas dropout and noisy networks draw new noise,
which is the failure of lemma 2, kept as in the original papers.

A belief is an `eqx.Module`: numbers such as `prior_scale` are leaves, so that sweeping them needs no recompilation;
structure is static.
"""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.heads import Head, values_of


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


SHARED = -1
"""Axis of members of an array that all members share."""


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
    def pairs_targets(self) -> bool:
        """Whether Q-learning computes targets with the key of the update, so that both use the same draws."""
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

    def member_axes(self, state: BeliefState) -> BeliefState:
        """Find the axis of members in each array of a state, to spread members over devices.

        Args:
            state: State of the belief.

        Returns:
            A tree like the state, of axes; `SHARED` for arrays that all members share. By default those in `params`,
            `frozen` and `opt` whose first axis has the length of the ensemble have a row for each member.
        """

        def axis(leaf: Any) -> int:
            return 0 if leaf.ndim > 0 and leaf.shape[0] == self.num_members else SHARED

        axes: BeliefState = jax.tree.map(axis, state)
        return axes._replace(aux=jax.tree.map(lambda leaf: SHARED, state.aux))

    def prior_values(self, state: BeliefState, x: Any) -> Float[Array, "stream batch output prior"] | None:
        """Evaluate all members' prior functions on a shared batch of inputs, before `prior_scale`, for `Batch.prior`.

        Args:
            state: State of the belief.
            x: Inputs [batch, ...].

        Returns:
            The prior values; None if there is no prior.
        """
        return None

    def prior_spread(self, state: BeliefState, x: Any) -> Float[Array, "batch output"]:
        """Compute the standard deviation of the prior functions over draws at a batch of inputs, with `prior_scale`.

        Args:
            state: State of the belief.
            x: Inputs [batch, ...].

        Returns:
            One number per input and output: the root mean square over the numbers of an output; zeros without a prior.
        """
        values = self.prior_values(state, x)
        if values is None:
            return jnp.zeros((jax.tree.leaves(x)[0].shape[0], self.num_outputs))
        return self.prior_scale * jnp.sqrt(jnp.mean(jnp.var(values, axis=0), axis=-1))

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
