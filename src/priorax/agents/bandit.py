"""Thompson sampling in bandits over any belief: draw a function, play the arm where it is largest, learn what it paid.

A sampler is a triple of pure functions. Rewards are targets as they are, so every belief can learn from them, exact
Bayes too; data noise is drawn once for each reward and stream, as it comes in (algorithm 4, or lemma 3's Gaussian), and
stays: the bootstrap is the online one, with a Poisson(1) weight for each (`noise.online`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs import Batch, BeliefState, Method, ensemble_of
from priorax.checks import positive_int
from priorax.noise import online


class Sampler(NamedTuple):
    """init(key, arms) -> state; values(state, key, arms) -> [arm]; update(state, key, arms, arm, reward) -> state.

    `arms`: [arm, feature]."""

    init: Callable[[PRNGKeyArray, Array], PyTree]
    values: Callable[[PyTree, PRNGKeyArray, Array], Float[Array, " arm"]]
    update: Callable[[PyTree, PRNGKeyArray, Array, Int[Array, ""], Float[Array, ""]], PyTree]
    steps: int | None = None
    """How many rewards it can learn from; None: any number."""


class Seen(NamedTuple):
    """One reward as the streams see it; with a leading axis, all of them."""

    x: Float[Array, "*step feature"]
    target: Float[Array, "*step stream"]
    weight: Float[Array, "*step stream"]
    prior: Float[Array, "*step stream output prior"] | None
    """Prior values: they never change, so they are computed once."""


class SamplerState(NamedTuple):
    """What a belief's sampler carries."""

    belief: BeliefState
    seen: Seen | None
    """All rewards, to draw minibatches from; none where observing a reward is learning it."""
    time: Int[Array, ""]


def belief_sampler(method: Method, steps: int, batch_size: int = 64, updates: int = 1) -> Sampler:
    """Thompson sampling with a belief.

    Args:
        method: A belief with one output, and its data noise.
        steps: How many rewards there will be, at most: beliefs that learn by gradient keep them all.
        batch_size: Rewards per gradient step, drawn from those seen so far.
        updates: Gradient steps after each reward.

    Returns:
        The sampler. Its `update` fails where it is told of more rewards than it can keep, compiled or not.

    Raises:
        ValueError: A number is not positive, or the noise needs to know all examples beforehand.
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
        members = ensemble_of(belief)
        prior = None if members is None else members.prior_values(state, x[None])
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
    """Ensemble sampling (Lu & Van Roy 2017): K linear members with Gaussian noise on targets and prior draws, lemma 3
    in closed form. Each solves the regression on its own perturbed rewards; they share its matrix."""

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
