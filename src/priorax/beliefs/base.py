"""What a belief is: something you update with data and draw a whole function from.

    init(key, x)                    -> BeliefState           x: one example input
    draw(state, key)                -> index           a member, a dropout mask, a noise sample
    value(state, index, x)          -> one number per output: the drawn function at ONE input
    forward(state, key, x, prior)   -> what training sees: outputs of every stream on a batch
    observe(state, batch)           -> BeliefState           each example exactly once: counts, Gram matrices
    update(state, batch, key)       -> BeliefState, Info     one gradient step on a (re)played batch

All are pure, and can be jitted and vmapped. A *stream* is one perturbed copy of the data: there are K for an
ensemble and one for everything else. `forward` also serves targets (on `state._replace(params=target_params)`):
member k is evaluated for stream k, which is what carries uncertainty over many steps, while dropout and noisy
networks draw afresh, which is lemma 2's failing, kept as their authors have it.

`by_gradient` says whether `update` learns anything: exact Bayes has learned all by observing.

A belief is an `eqx.Module`: numbers such as `prior_scale` are leaves, so sweeping them compiles nothing anew;
structure is static.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

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
    """Any optax transformation, or `Adam`."""

    @property
    def init(self) -> Any: ...
    @property
    def update(self) -> Any: ...


class Adam(eqx.Module):
    """`optax.adam` as settings. The learning rate is a leaf, so that sweeping it compiles nothing anew."""

    learning_rate: float | Float[Array, ""] = 1e-3
    b1: float = eqx.field(static=True, default=0.9)
    b2: float = eqx.field(static=True, default=0.999)
    eps: float = eqx.field(static=True, default=1e-8)
    clip: float | None = eqx.field(static=True, default=None)
    """The largest norm of a gradient (of each member's apart); None: any."""

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
    """`optax.rmsprop`, centred, as settings: what Ape-X learns by."""

    learning_rate: float | Float[Array, ""] = 6.25e-5
    decay: float = eqx.field(static=True, default=0.95)
    eps: float = eqx.field(static=True, default=1.5e-7)
    clip: float | None = eqx.field(static=True, default=40.0)
    """The largest norm of the gradient; None: any."""

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
    """A user's own optax transformation: code, not numbers, so it is static."""

    transformation: optax.GradientTransformation = eqx.field(static=True)

    @property
    def init(self) -> Any:
        return self.transformation.init

    @property
    def update(self) -> Any:
        return self.transformation.update


def as_optimizer(optimizer: Any) -> Any:
    """`Adam` or `RMSProp` as it is; any optax transformation as one that jax takes apart no further."""
    return optimizer if isinstance(optimizer, eqx.Module) else GivenOptimizer(optimizer)


def _rate(name: str, value: object) -> float:
    """A finite number above zero, or a ValueError that proposes a usual one."""
    return positive(name, value, example=1e-3)


def _clipped(steps: optax.GradientTransformation, clip: float | None) -> optax.GradientTransformation:
    return steps if clip is None else optax.chain(optax.clip_by_global_norm(clip), steps)


class BeliefState(NamedTuple):
    """What a belief carries. `frozen` is out of every optimiser's and target copy's reach."""

    params: PyTree
    frozen: PyTree = ()
    opt: PyTree = ()
    aux: PyTree = ()


class Info(NamedTuple):
    """Diagnostics of one update."""

    loss: Float[Array, " stream"]
    examples: Float[Array, "stream batch"] | None = None
    """The loss of each example, before its weight."""


class Batch(eqx.Module):
    """Examples as the streams see them. `shared`: all streams look at the same inputs (and actions)."""

    x: PyTree
    """[batch, ...] when shared, else [stream, batch, ...]."""
    target: Array
    """[stream, batch, output, ...], or [stream, batch, ...] where `action` names the output."""
    weight: Float[Array, "stream batch"]
    """The fixed data noise of each (stream, example)."""
    count: Float[Array, " stream"]
    """How many examples each stream owns in all (n of equations 4 and 5)."""
    action: Int[Array, "*stream batch"] | None = None
    """The output that the target is about; None: all of them."""
    prior: Float[Array, "stream batch output prior"] | None = None
    """Prior values (unscaled), where they are known already."""
    shared: bool = eqx.field(static=True, default=False)


def plain_batch(x: Any, y: Any, num_streams: int = 1) -> Batch:
    """Examples without noise, shared by all streams: x [batch, ...], y [batch, output]."""
    target = jnp.broadcast_to(jnp.asarray(y), (num_streams, *jnp.shape(y)))
    n = jnp.shape(y)[0]
    x = jax.tree.map(jnp.asarray, x)
    return Batch(x, target, jnp.ones((num_streams, n)), jnp.full(num_streams, float(n)), shared=True)


@runtime_checkable
class Belief(Protocol):
    """See the module's docstring."""

    @property
    def head(self) -> Head: ...
    @property
    def num_outputs(self) -> int: ...
    @property
    def num_streams(self) -> int: ...
    @property
    def by_gradient(self) -> bool: ...
    def init(self, key: PRNGKeyArray, x: Any) -> BeliefState: ...
    def draw(self, state: BeliefState, key: PRNGKeyArray) -> PyTree: ...
    def value(self, state: BeliefState, index: PyTree, x: Any) -> Float[Array, " output"]: ...
    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]: ...
    def observe(self, state: BeliefState, batch: Batch) -> BeliefState: ...
    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]: ...


def check_number(check: Callable[[str, object], float], name: str, value: Any) -> None:
    """Check a setting where it is a plain number; inside a trace or a sweep it is an array and passes."""
    if not isinstance(value, jax.Array):
        check(name, value)


READINGS = ("posterior", "coefficient")


class L2(eqx.Module):
    """A pull of the weights towards an anchor: BSR, the first form of lemma 3, and dropout's regulariser.

    Two readings of the weight. With `reading="posterior"` it is sigma²/lambda of equation (4), a *sum* over data:
    against a mean over the member's own n examples it becomes weight/n. With `reading="coefficient"` it is the bare
    factor of |theta - anchor|² beside the mean loss: R of equation (1), an expectation over data, without which lemma 1
    would not hold; and it may be what appendix B means by "scale lambda = 0.1". Unless told, each belief reads it as
    its own equation does: an ensemble as posterior, dropout as coefficient.
    """

    weight: float | Float[Array, ""] = 0.1
    """sigma²/lambda, or the bare coefficient."""
    to: str = eqx.field(static=True, default="initial")
    """initial: the starting weights, as in the paper's experiments; prior: a separate draw (lemma 3); zero."""
    reading: str | None = eqx.field(static=True, default=None)
    """posterior or coefficient, see above; None: as the belief's own equation has it."""

    def __check_init__(self) -> None:
        check_number(non_negative, "weight", self.weight)
        one_of("to", self.to, ("initial", "prior", "zero"))
        if self.reading is not None:
            one_of("reading", self.reading, READINGS)

    def anchor(self, network: Network, key: PRNGKeyArray, x: Any, num_out: int, params: PyTree) -> PyTree:
        """The anchor of one member."""
        if self.to == "zero":
            return jax.tree.map(jnp.zeros_like, params)
        if self.to == "prior":
            return eqx.filter(network.init(key, x, num_out), eqx.is_inexact_array)
        return params

    def penalty(
        self, params: PyTree, anchor: PyTree, count: Float[Array, ""], reading: str = "posterior"
    ) -> Float[Array, ""]:
        """What one stream adds to its mean loss; `reading`: the belief's own, where none was asked for."""
        pairs = zip(jax.tree.leaves(params), jax.tree.leaves(anchor), strict=True)
        distance = sum((jnp.sum((p - a) ** 2) for p, a in pairs), jnp.zeros(()))
        by_count = (self.reading or reading) == "posterior"
        return (self.weight / jnp.maximum(count, 1.0) if by_count else self.weight) * distance


def shape_output(flat: Array, num_outputs: int, size: int) -> Float[Array, "output size"]:
    """A network's flat output as one row per output."""
    return jnp.reshape(flat, (num_outputs, size))


def check_output(name: str, network: Network, params: PyTree, x: Any, wanted: int) -> None:
    """Refuse a network whose output has the wrong size, before anything is compiled."""
    found = jax.eval_shape(network.apply, params, x).size
    if found != wanted:
        raise ValueError(
            f"{name} gives {found} numbers per input but the belief needs {wanted} (outputs x head size); "
            f"let {name} end in {wanted} numbers"
        )


def stream_losses(head: Head, out: Array, batch: Batch) -> Float[Array, " stream"]:
    """Each stream's mean weighted loss: the data term of algorithm 1, of equation (6) where `action` is given."""
    if batch.action is not None:
        action = jnp.broadcast_to(batch.action, out.shape[:2])
        chosen = jnp.take_along_axis(out, action[:, :, None, None], axis=2)[:, :, 0]
        losses = jax.vmap(jax.vmap(head.loss))(chosen, batch.target)
    else:
        losses = jnp.sum(jax.vmap(jax.vmap(jax.vmap(head.loss)))(out, batch.target), axis=-1)
    return jnp.mean(losses * batch.weight, axis=1)


@runtime_checkable
class GradientBelief(Protocol):
    """A belief that learns by gradient: it says what each stream minimises."""

    @property
    def optimizer(self) -> Optimizer: ...
    def losses(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> Float[Array, " stream"]: ...


def gradient_step(
    belief: GradientBelief, state: BeliefState, batch: Batch, key: PRNGKeyArray, per_stream: bool = False
) -> tuple[BeliefState, Info]:
    """One optimiser step on the streams' losses. `per_stream`: params have a leading stream axis, and the optimiser
    sees each stream apart, so that even a gradient clip does not couple members."""

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
    """The values of outputs, whatever stands before them."""
    flat = out.reshape(-1, out.shape[-1])
    return jax.vmap(head.value)(flat).reshape(out.shape[:-1])


def greedy_backup(
    head: Head,
    next_out: Float[Array, "output size"],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    selector: Float[Array, " output"] | None = None,
) -> Array:
    """The target of equation (6) for ONE transition: reward + discount * the best next output.

    `selector` chooses the output instead (double Q: the online network's values)."""
    best = jnp.argmax(values_of(head, next_out) if selector is None else selector)
    return head.backup(next_out[best], reward, discount)


class Wrapper(eqx.Module):
    """A belief around another that learns as that one does: what it draws or counts is its own."""

    base: eqx.AbstractVar[Any]

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

    def forward(
        self, state: BeliefState, key: PRNGKeyArray, x: Any, prior: Array | None = None, shared: bool = False
    ) -> Float[Array, "stream batch output size"]:
        return self.base.forward(state, key, x, prior, shared)

    def update(self, state: BeliefState, batch: Batch, key: PRNGKeyArray) -> tuple[BeliefState, Info]:
        return self.base.update(state, batch, key)


def draw_values(
    belief: Belief, state: BeliefState, key: PRNGKeyArray, x: Any, num_draws: int
) -> Float[Array, "draw batch output"]:
    """Whole functions drawn from the belief, evaluated on a batch of inputs."""
    index = jax.vmap(lambda k: belief.draw(state, k))(jax.random.split(key, num_draws))
    return jax.vmap(lambda i: jax.vmap(lambda row: belief.value(state, i, row))(x))(index)
