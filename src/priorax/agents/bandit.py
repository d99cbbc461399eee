"""Thompson sampling for bandits over any belief: draw a function, play its best arm, learn from the reward.

A sampler is a triple of pure functions. Rewards themselves are the targets, so that every belief can learn from them,
including exact Bayes; data noise is drawn once for each reward and stream, on arrival (algorithm 4, or the Gaussian
noise of lemma 3), and kept: the bootstrap is the online one, with Poisson(1) weights (`noise.online`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs import Batch, BeliefState, Method
from priorax.checks import positive_int
from priorax.noise import online


class Sampler(NamedTuple):
    """Bandit algorithm as pure functions. `arms` are features [arm, feature]."""

    init: Callable[[PRNGKeyArray, Array], PyTree]
    """init(key, arms) -> state."""
    values: Callable[[PyTree, PRNGKeyArray, Array], Float[Array, " arm"]]
    """values(state, key, arms) -> sampled values [arm]."""
    update: Callable[[PyTree, PRNGKeyArray, Array, Int[Array, ""], Float[Array, ""]], PyTree]
    """update(state, key, arms, arm, reward) -> state."""
    steps: int | None = None
    """Maximum number of rewards it can learn from; None: unlimited."""


class Seen(NamedTuple):
    """One reward, with the targets and weights of all streams; with a leading axis, all rewards."""

    x: Float[Array, "*step feature"]
    """Features of the arm."""
    target: Float[Array, "*step stream"]
    """Perturbed rewards."""
    weight: Float[Array, "*step stream"]
    """Bootstrap weights."""
    prior: Float[Array, "*step stream output prior"] | None
    """Prior values; they never change, so they are computed once."""


class SamplerState(NamedTuple):
    """State of a belief's sampler."""

    belief: BeliefState
    """State of the belief."""
    seen: Seen | None
    """All rewards, for minibatches; None if the belief learns by observing."""
    time: Int[Array, ""]
    """Number of rewards so far."""


def belief_sampler(method: Method, steps: int, batch_size: int = 64, updates: int = 1) -> Sampler:
    """Create a Thompson sampler from a belief.

    Args:
        method: A belief with one output, and its data noise.
        steps: Maximum number of rewards; beliefs that learn by gradient store them all.
        batch_size: Minibatch size of gradient steps, drawn from the rewards so far.
        updates: Gradient steps after each reward.

    Returns:
        The sampler. Its `update` raises an error, compiled or not, when there are more rewards than it can store.

    Raises:
        ValueError: If a number is not positive, or the noise needs to know all examples beforehand.
    """
    belief, noise = method.belief, online(method.noise)
    positive_int("steps", steps)
    positive_int("batch_size", batch_size)
    positive_int("updates", updates)
    streams = belief.num_streams

    def perturbed(key: PRNGKeyArray, reward: Array) -> tuple[Array, Array]:
        key_weight, key_shift = jax.random.split(key)
        shift = noise.shift(key_shift, 1, 1)
        return noise.weights(key_weight, 1)[0], reward if shift is None else reward + shift[0, 0]

    def see(state: BeliefState, key: PRNGKeyArray, x: Array, reward: Array) -> Seen:
        weight, target = jax.vmap(lambda key: perturbed(key, reward))(jax.random.split(key, streams))
        prior = belief.prior_values(state, x[None])
        return Seen(x, target, weight, None if prior is None else prior[:, 0])

    def batch_of(seen: Seen, count: Array) -> Batch:
        target = jax.vmap(jax.vmap(belief.head.encode))(seen.target.T)[:, :, None]
        prior = None if seen.prior is None else jnp.moveaxis(seen.prior, 1, 0)
        return Batch(seen.x, target, seen.weight.T, jnp.ones(streams) * count, prior=prior, shared=True)

    def init(key: PRNGKeyArray, arms: Array) -> SamplerState:
        state = belief.init(key, arms[0])
        if not belief.by_gradient:
            return SamplerState(state, None, jnp.zeros((), int))
        example = jax.eval_shape(see, state, key, arms[0], jnp.zeros(()))
        seen = jax.tree.map(lambda leaf: jnp.zeros((steps, *leaf.shape), leaf.dtype), example)
        return SamplerState(state, seen, jnp.zeros((), int))

    def values(learner: SamplerState, key: PRNGKeyArray, arms: Array) -> Array:
        index = belief.draw(learner.belief, key)
        return jax.vmap(lambda arm: belief.value(learner.belief, index, arm)[0])(arms)

    def update(learner: SamplerState, key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> SamplerState:
        key_noise, key_learn = jax.random.split(key)
        new = see(learner.belief, key_noise, arms[arm], reward)
        state = belief.observe(learner.belief, batch_of(jax.tree.map(lambda leaf: leaf[None], new), jnp.ones(())))
        if learner.seen is None:
            return SamplerState(state, None, learner.time + 1)
        full = f"this sampler was made for steps={steps} rewards, and this is one more; make it for more steps"
        time = eqx.error_if(learner.time, learner.time >= steps, full)
        seen = jax.tree.map(lambda all_, one: all_.at[time].set(one), learner.seen, new)
        for key_update in jax.random.split(key_learn, updates):
            state = learn(state, seen, time + 1, key_update)
        return SamplerState(state, seen, time + 1)

    def learn(state: BeliefState, seen: Seen, time: Array, key: PRNGKeyArray) -> BeliefState:
        key_rows, key_update = jax.random.split(key)
        rows = jax.random.randint(key_rows, (batch_size,), 0, time)
        return belief.update(state, batch_of(jax.tree.map(lambda leaf: leaf[rows], seen), time), key_update)[0]

    return Sampler(init, values, update, steps if belief.by_gradient else None)


def ensemble_sampler(
    num_members: int, noise_std: float = 0.5, prior_std: float = 0.5, prior_mean: float = 0.5
) -> Sampler:
    """Create an ensemble sampler (Lu & Van Roy 2017).

    K linear members with Gaussian noise on targets and prior draws, lemma 3 in closed form. Each member solves the
    regression on its own perturbed rewards; all share the precision matrix.

    Args:
        num_members: Ensemble size K.
        noise_std: Standard deviation of the noise on rewards.
        prior_std: Standard deviation of the prior over weights.
        prior_mean: Mean of the prior over weights.

    Returns:
        The sampler.
    """

    def init(key: PRNGKeyArray, arms: Array) -> tuple[Array, Array]:
        dim = arms.shape[1]
        prior = prior_mean + prior_std * jax.random.normal(key, (num_members, dim))
        return jnp.eye(dim) * prior_std**2, prior / prior_std**2

    def values(state: tuple[Array, Array], key: PRNGKeyArray, arms: Array) -> Array:
        covariance, moments = state
        member = jax.random.randint(key, (), 0, num_members)
        return arms @ (covariance @ moments[member])

    def update(state: tuple[Array, Array], key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> Any:
        covariance, moments = state
        x = arms[arm]
        along = covariance @ x
        covariance = covariance - jnp.outer(along, along) / (noise_std**2 + x @ along)  # Sherman and Morrison
        perturbed = reward + noise_std * jax.random.normal(key, (num_members,))
        return covariance, moments + perturbed[:, None] * x / noise_std**2

    return Sampler(init, values, update)
