"""Thompson sampling in bandits over any belief: draw a function, play the arm where it is largest, learn what it paid.

A sampler is a triple of pure functions. Rewards are targets as they are, so every belief can learn from them, exact
Bayes too; data noise is drawn once for each reward, as it comes in (algorithm 4, or lemma 3's Gaussian).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs import Batch, Method, State
from priorax.checks import positive_int


class Sampler(NamedTuple):
    """init(key, arms) -> state; values(state, key, arms) -> [arm]; update(state, key, arms, arm, reward) -> state.

    `arms`: [arm, feature]."""

    init: Callable[[PRNGKeyArray, Array], PyTree]
    values: Callable[[PyTree, PRNGKeyArray, Array], Float[Array, " arm"]]
    update: Callable[[PyTree, PRNGKeyArray, Array, Int[Array, ""], Float[Array, ""]], PyTree]


class Seen(NamedTuple):
    """What was played and paid, as every stream sees it."""

    x: Float[Array, "step feature"]
    target: Float[Array, "step stream"]
    weight: Float[Array, "step stream"]
    time: Int[Array, ""]


def belief_sampler(method: Method, steps: int, batch_size: int = 64, updates: int = 1) -> Sampler:
    """A belief with one output and its data noise, for so many steps; each is followed by `updates` gradient steps on
    minibatches of what was seen."""
    belief, noise = method
    positive_int("steps", steps)
    streams = belief.num_streams

    def init(key: PRNGKeyArray, arms: Array) -> tuple[State, Seen]:
        state = belief.init(key, arms[0])
        empty = jnp.zeros((steps, streams))
        return state, Seen(jnp.zeros((steps, arms.shape[1])), empty, empty, jnp.zeros((), int))

    def values(state: tuple[State, Seen], key: PRNGKeyArray, arms: Array) -> Array:
        index = belief.draw(state[0], key)
        return jax.vmap(lambda arm: belief.value(state[0], index, arm)[0])(arms)

    def update(state: tuple[State, Seen], key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> Any:
        key_noise, key_learn = jax.random.split(key)
        x = arms[arm]

        def perturbed(key: PRNGKeyArray) -> tuple[Array, Array]:
            key_weight, key_shift = jax.random.split(key)
            shift = noise.shift(key_shift, 1, 1)
            return noise.weights(key_weight, 1)[0], reward if shift is None else reward + shift[0, 0]

        weight, target = jax.vmap(perturbed)(jax.random.split(key_noise, streams))
        seen = state[1]
        at = seen.time
        seen = Seen(seen.x.at[at].set(x), seen.target.at[at].set(target), seen.weight.at[at].set(weight), seen.time + 1)
        believed = belief.observe(state[0], _batch(x[None], target[:, None], weight[:, None], jnp.ones(())))
        if belief.by_gradient:
            for key_update in jax.random.split(key_learn, updates):
                believed = learn(believed, seen, key_update)
        return believed, seen

    def learn(state: State, seen: Seen, key: PRNGKeyArray) -> State:
        key_rows, key_update = jax.random.split(key)
        rows = jax.random.randint(key_rows, (batch_size,), 0, seen.time)
        return belief.update(
            state, _batch(seen.x[rows], seen.target[rows].T, seen.weight[rows].T, seen.time), key_update
        )[0]

    def _batch(x: Array, target: Array, weight: Array, count: Array) -> Batch:
        encoded = jax.vmap(jax.vmap(belief.head.encode))(target)[:, :, None]
        return Batch(x, encoded, weight, jnp.full(streams, 1.0) * count, shared=True)

    return Sampler(init, values, update)


def ensemble_sampler(
    num_members: int, noise_std: float = 0.5, prior_std: float = 0.5, prior_mean: float = 0.5
) -> Sampler:
    """Ensemble sampling (Lu & Van Roy 2017): K linear members with Gaussian noise on targets and prior draws, lemma 3
    in closed form. Each solves the regression on its own perturbed rewards; they share its matrix."""

    def init(key: PRNGKeyArray, arms: Array) -> tuple[Array, Array]:
        dim = arms.shape[1]
        prior = prior_mean + prior_std * jax.random.normal(key, (num_members, dim))
        return jnp.eye(dim) / prior_std**2, prior / prior_std**2

    def values(state: tuple[Array, Array], key: PRNGKeyArray, arms: Array) -> Array:
        precision, moments = state
        member = jax.random.randint(key, (), 0, num_members)
        return arms @ jnp.linalg.solve(precision, moments[member])

    def update(state: tuple[Array, Array], key: PRNGKeyArray, arms: Array, arm: Array, reward: Array) -> Any:
        precision, moments = state
        x = arms[arm]
        perturbed = reward + noise_std * jax.random.normal(key, (num_members,))
        return precision + jnp.outer(x, x) / noise_std**2, moments + perturbed[:, None] * x / noise_std**2

    return Sampler(init, values, update)
