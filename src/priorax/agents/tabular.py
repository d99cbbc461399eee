"""Exact references for finite states: RLSVI, PSRL and UCRL, the rows "Exact Bayes" and its optimistic rival.

An agent that counts what it saw, and at each episode's start plans in what its planner makes of the counts:

    RLSVI   randomized least-squares value iteration with Gaussian noise (Osband et al. 2016): a sample of Q
    PSRL    a Markov decision process sampled from its posterior: Dirichlet transitions, Normal rewards (Strens 2000)
    UCRL    the most optimistic one within confidence bounds (Jaksch et al. 2010)

A planner gives a Bellman operator, values -> Q, drawn once; `horizon` applications of it are the plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from priorax.agents.base import best_by_mean, greedy
from priorax.beliefs import Info
from priorax.checks import positive, positive_int
from priorax.replay import Buffer, EnsembleBuffer, Transition

Q = Float[Array, "state action"]
Values = Float[Array, " after"]
"""Of every state, and last of the end (zero)."""
Operator = Callable[[Values], Q]


class Model(NamedTuple):
    """What was seen. The last successor is the end of an episode."""

    moves: Float[Array, "state action after"]
    """How often each led to each."""
    rewards: Q
    """Their sums."""

    @property
    def visits(self) -> Q:
        return jnp.sum(self.moves, axis=-1)


@runtime_checkable
class Planner(Protocol):
    """operator(model, discount, key): a Bellman operator drawn from what the model leaves open; the expected one where
    key is None."""

    def operator(self, model: Model, discount: Any, key: PRNGKeyArray | None) -> Operator: ...


@dataclass(frozen=True, eq=False)
class RLSVI:
    """Regression of Q on features of (s, a), each plan with fresh Gaussian noise on data and prior. For one-hot
    features (None) this is, for each (s, a), a draw from N(mean, 1/precision) around its Bellman target; features
    [state, feature] serve every action apart, and the regression is the one of equation (3)."""

    noise_std: float = 0.1
    """sigma: of a target, as the regression sees it."""
    prior_std: float = 1.0
    """Of the prior over weights, whose mean is zero."""
    features: Float[Array, "state feature"] | None = None

    def __post_init__(self) -> None:
        positive("noise_std", self.noise_std)
        positive("prior_std", self.prior_std)

    def operator(self, model: Model, discount: Any, key: PRNGKeyArray | None) -> Operator:
        weight = model.visits / self.noise_std**2
        if self.features is None:
            precision = weight + 1 / self.prior_std**2
            drawn = jnp.zeros(()) if key is None else jax.random.normal(key, weight.shape) / jnp.sqrt(precision)
            return lambda values: _targets(model, discount, values) / self.noise_std**2 / precision + drawn
        phi = self.features
        gram = jnp.einsum("sa,sf,sg->afg", weight, phi, phi) + jnp.eye(phi.shape[1]) / self.prior_std**2
        factor = jnp.linalg.cholesky(gram)
        noise = jnp.zeros(factor.shape[:2]) if key is None else jax.random.normal(key, factor.shape[:2])
        shift = jax.vmap(lambda root, e: jax.scipy.linalg.solve_triangular(root.T, e, lower=False))(factor, noise)

        def apply(values: Values) -> Q:
            moment = jnp.einsum("sa,sf->af", _targets(model, discount, values) / self.noise_std**2, phi)
            mean = jax.vmap(lambda root, m: jax.scipy.linalg.cho_solve((root, True), m))(factor, moment)
            return jnp.einsum("sf,af->sa", phi, mean + shift)

        return apply


@dataclass(frozen=True)
class PSRL:
    """Transitions ~ Dirichlet, rewards ~ Normal with known noise."""

    noise_std: float = 0.1
    """Of rewards."""
    prior_std: float = 1.0
    """Of the prior over a mean reward, itself of mean zero."""
    concentration: float = 0.1
    """Of the Dirichlet prior in all: shared out evenly over the successors."""

    def __post_init__(self) -> None:
        positive("noise_std", self.noise_std)
        positive("prior_std", self.prior_std)
        positive("concentration", self.concentration)

    def operator(self, model: Model, discount: Any, key: PRNGKeyArray | None) -> Operator:
        alpha = model.moves + self.concentration / model.moves.shape[-1]
        precision = model.visits / self.noise_std**2 + 1 / self.prior_std**2
        reward = model.rewards / self.noise_std**2 / precision
        if key is None:
            move = alpha / jnp.sum(alpha, axis=-1, keepdims=True)
        else:
            key_move, key_reward = jax.random.split(key)
            move = jax.nn.softmax(log_gamma(key_move, alpha), axis=-1)
            reward = reward + jax.random.normal(key_reward, reward.shape) / jnp.sqrt(precision)
        return lambda values: reward + discount * move @ values


@dataclass(frozen=True)
class UCRL:
    """UCRL2's confidence sets, planned in by extended value iteration."""

    confidence: float = 1.0
    """Multiplies the widths of the sets; 1 is what the theory asks for, less is what works."""
    delta: float = 0.05
    """The sets hold with probability 1 - delta."""
    most: float = 1.0
    """The largest mean reward that can be."""

    def __post_init__(self) -> None:
        positive("confidence", self.confidence)
        positive("delta", self.delta)

    def operator(self, model: Model, discount: Any, key: PRNGKeyArray | None) -> Operator:
        states, actions, _ = model.moves.shape
        visits = model.visits
        n = jnp.maximum(visits, 1.0)
        reward, move = model.rewards / n, model.moves / n[..., None]
        if key is None:
            return lambda values: reward + discount * move @ values
        time = jnp.maximum(jnp.sum(visits), 1.0)
        log = jnp.log(2 * actions * time / self.delta)
        hopeful = reward + self.confidence * jnp.sqrt(7 * (log + jnp.log(float(states))) / (2 * n))
        hopeful = jnp.where(visits > 0, jnp.minimum(hopeful, self.most), self.most)
        slack = jnp.where(visits > 0, self.confidence * jnp.sqrt(14 * states * log / n), 2.0)

        def apply(values: Values) -> Q:
            order = jnp.argsort(values)  # worst first
            sorted_move = move[..., order]
            more = jnp.minimum(slack / 2, 1 - sorted_move[..., -1])
            raised = sorted_move.at[..., -1].add(more)
            excess = jnp.sum(raised, axis=-1) - 1
            before = jnp.cumsum(raised, axis=-1) - raised
            kept = raised - jnp.clip(excess[..., None] - before, 0.0, raised)
            return hopeful + discount * kept @ values[order]

        return apply


def log_gamma(key: PRNGKeyArray, alpha: Float[Array, "..."]) -> Float[Array, "..."]:
    """Logarithms of Gamma(alpha, 1) draws, all at once: Marsaglia and Tsang's rejection for alpha + 1, tried until
    every one is accepted, and brought down to alpha. (`jax.random.loggamma` draws one after the other on a CPU.)"""
    key_try, key_boost = jax.random.split(key)
    d = alpha + 2 / 3
    c = 1 / jnp.sqrt(9 * d)

    def attempt(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, accepted, drawn = carry
        key_normal, key_uniform = jax.random.split(jax.random.fold_in(key_try, count))
        x = jax.random.normal(key_normal, alpha.shape)
        v = jnp.maximum(1 + c * x, 0.0) ** 3
        log_v = jnp.log(v)
        good = jnp.log(jax.random.uniform(key_uniform, alpha.shape)) < 0.5 * x**2 + d * (1 - v + log_v)
        return count + 1, accepted | good, jnp.where(good & ~accepted, jnp.log(d) + log_v, drawn)

    start = (jnp.zeros((), int), jnp.zeros(alpha.shape, bool), jnp.zeros(alpha.shape))
    drawn = jax.lax.while_loop(lambda carry: ~jnp.all(carry[1]), attempt, start)[2]
    return drawn - jax.random.exponential(key_boost, alpha.shape) / alpha


def _targets(model: Model, discount: Any, values: Values) -> Q:
    """Sums over the data of r + discount * V(s')."""
    return model.rewards + discount * model.moves @ values


class TabularState(NamedTuple):
    """What a tabular agent carries."""

    model: Model
    buffer: Buffer
    """Empty: counts are all that it needs."""
    index: Any
    """The plan of this episode: Q."""
    episodes: Int[Array, ""]


class Plans(NamedTuple):
    """What a tabular agent deploys."""

    mean: Q
    """The plan in what it expects."""
    drawn: Float[Array, "draw state action"]
    """Plans as it follows them when it explores."""


class Tabular(eqx.Module):
    """Counts, then plans; see the module's docstring."""

    planner: Planner = eqx.field(static=True)
    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    """Applications of the Bellman operator in a plan: the longest episode, or more than 1/(1 - discount)."""
    discount: float | Float[Array, ""] = 0.99

    def __check_init__(self) -> None:
        positive_int("num_states", self.num_states)
        positive_int("horizon", self.horizon)

    @property
    def buffer(self) -> EnsembleBuffer:
        return EnsembleBuffer(1, 1, 1.0)

    def init(self, key: PRNGKeyArray, obs: Any) -> TabularState:
        shape = (self.num_states, self.num_actions)
        model = Model(jnp.zeros((*shape, self.num_states + 1)), jnp.zeros(shape))
        return TabularState(model, self.buffer.init(()), self.plan(model, key), jnp.zeros((), int))

    def plan(self, model: Model, key: PRNGKeyArray | None) -> Q:
        """Q after `horizon` steps of value iteration."""
        operator = self.planner.operator(model, self.discount, key)

        def sweep(_: Any, q: Q) -> Q:
            return operator(jnp.append(jnp.max(q, axis=-1), 0.0))

        return jax.lax.fori_loop(0, self.horizon, sweep, jnp.zeros((self.num_states, self.num_actions)))

    def plans(self, state: TabularState, key: PRNGKeyArray, count: int = 20) -> Plans:
        """The plan of what it expects, and so many draws."""
        drawn = jax.lax.map(lambda k: self.plan(state.model, k), jax.random.split(key, count))
        return Plans(self.plan(state.model, None), drawn)

    def start_episode(self, state: TabularState, key: PRNGKeyArray) -> TabularState:
        return state._replace(index=self.plan(state.model, key), episodes=state.episodes + 1)

    def act(self, state: TabularState, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
        return greedy(key, state.index[obs])

    def update_buffer(self, state: TabularState, key: PRNGKeyArray, transition: Transition) -> TabularState:
        after = jnp.where(transition.terminated, self.num_states, transition.next_obs)
        place = (transition.obs, transition.action)
        moves = state.model.moves.at[(*place, after)].add(1.0)
        return state._replace(model=Model(moves, state.model.rewards.at[place].add(transition.reward)))

    def learn_from_buffer(self, state: TabularState, key: PRNGKeyArray) -> tuple[TabularState, Info]:
        """Nothing: counting was learning."""
        return state, Info(jnp.zeros(1))

    def mean_values(self, state: TabularState, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch action"]:
        return self.plan(state.model, None)[obs]

    def exploit(self, state: TabularState, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
        return best_by_mean(self, state, key, obs)
