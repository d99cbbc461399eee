"""Exact algorithms for finite states: RLSVI and PSRL, the "Exact Bayes" rows, and UCRL, their optimistic counterpart.

The agent counts transitions, and plans at the start of each episode in a model derived from the counts:

    RLSVI   randomized least-squares value iteration with Gaussian noise (Osband et al. 2016): a sample of Q
    PSRL    a Markov decision process sampled from its posterior: Dirichlet transitions, Normal rewards (Strens 2000)
    UCRL    the most optimistic process within confidence bounds (Jaksch et al. 2010)

A planner provides a Bellman operator, values -> Q, drawn once; the plan is the result of applying it `horizon` times.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from priorax.agents.base import AgentDefaults, Choice, best_by_mean
from priorax.beliefs import Info
from priorax.checks import positive, positive_int
from priorax.heads import greedy
from priorax.replay import Sampled, Transition

Q = Float[Array, "state action"]
Values = Float[Array, " after"]
"""Values of all states; the last entry is the end of an episode (zero)."""
Operator = Callable[[Values], Q]


class Model(NamedTuple):
    """Counts of transitions. The last successor is the end of an episode."""

    moves: Float[Array, "state action after"]
    """Number of transitions from each state and action to each successor."""
    rewards: Q
    """Sums of rewards."""

    @property
    def visits(self) -> Q:
        """Number of visits of each state and action."""
        return jnp.sum(self.moves, axis=-1)


@runtime_checkable
class Planner(Protocol):
    """Interface of a planner."""

    def operator(self, model: Model, discount: Any, key: PRNGKeyArray | None) -> Operator:
        """Draw a Bellman operator.

        Args:
            model: The counts.
            discount: The discount factor gamma.
            key: PRNG key; None gives the expected operator.

        Returns:
            A function from values to Q-values.
        """
        ...


@dataclass(frozen=True, eq=False)
class RLSVI:
    """Regression of Q on features of (s, a), each plan with fresh Gaussian noise on data and prior.

    For one-hot features (None) this is, for each (s, a), a draw from N(mean, 1/precision) around its Bellman target;
    features [state, feature] are used for every action separately, and the regression is equation (3).
    """

    noise_std: float = 0.1
    """Assumed standard deviation sigma of targets."""
    prior_std: float = 1.0
    """Standard deviation of the zero-mean prior over weights."""
    features: Float[Array, "state feature"] | None = None
    """Features of states; None: one-hot."""

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
    """Posterior sampling: Dirichlet transitions, Normal rewards with known noise."""

    noise_std: float = 0.1
    """Assumed standard deviation of rewards."""
    prior_std: float = 1.0
    """Standard deviation of the zero-mean prior over mean rewards."""
    concentration: float = 0.1
    """Total concentration of the Dirichlet prior, divided evenly among successors."""

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
    """UCRL2: extended value iteration in confidence sets."""

    confidence: float = 1.0
    """Multiplies the widths of the confidence sets; 1 is the theoretical width, less works better in practice."""
    delta: float = 0.05
    """The confidence sets hold with probability 1 - delta."""
    most: float = 1.0
    """Upper bound of mean rewards."""

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
    """Sample logarithms of Gamma(alpha, 1) variables, vectorised.

    Marsaglia and Tsang's rejection method for alpha + 1, repeated until every sample is accepted, then transformed to
    alpha. (`jax.random.loggamma` is sequential on CPU.)

    Args:
        key: PRNG key.
        alpha: Shape parameters.

    Returns:
        One sample per shape parameter.
    """
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
    """State of a tabular agent."""

    model: Model
    """Counts of transitions."""


class Plans(NamedTuple):
    """Plans of a tabular agent for deployment."""

    mean: Q
    """Q-values of the expected model."""
    drawn: Float[Array, "draw state action"]
    """Q-values of drawn plans, as followed in exploration."""


DRAWS = 20
"""Number of plans drawn for deployment."""


class Tabular(AgentDefaults):
    """Tabular agent that counts transitions and plans at the start of each episode.

    Attributes:
        planner: The planning algorithm.
        num_states: Number of states; observations are their indices.
        num_actions: Number of actions.
        horizon: Applications of the Bellman operator in a plan: the longest episode, or more than 1/(1 - discount).
        discount: The discount factor gamma.
    """

    planner: Planner = eqx.field(static=True)
    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    discount: float | Float[Array, ""] = 0.99

    def __check_init__(self) -> None:
        positive_int("num_states", self.num_states)
        positive_int("horizon", self.horizon)

    @property
    def replay(self) -> None:
        """None: counts replace replay."""

    @property
    def observes(self) -> bool:
        """True: `observe` counts transitions."""
        return True

    def init(self, key: PRNGKeyArray, obs: Any) -> TabularState:
        """Initialise the counts to zero.

        Args:
            key: PRNG key.
            obs: Unused.

        Returns:
            The initial state.
        """
        shape = (self.num_states, self.num_actions)
        return TabularState(Model(jnp.zeros((*shape, self.num_states + 1)), jnp.zeros(shape)))

    def plan(self, model: Model, key: PRNGKeyArray | None) -> Q:
        """Compute Q by `horizon` steps of value iteration.

        Args:
            model: The counts.
            key: PRNG key of the plan; None plans in the expected model.

        Returns:
            Q-values [state, action].
        """
        operator = self.planner.operator(model, self.discount, key)

        def sweep(_: Any, q: Q) -> Q:
            return operator(jnp.append(jnp.max(q, axis=-1), 0.0))

        return jax.lax.fori_loop(0, self.horizon, sweep, jnp.zeros((self.num_states, self.num_actions)))

    def begin(self, state: TabularState, key: PRNGKeyArray) -> Q:
        """Draw the plan of an episode.

        Args:
            state: State of the agent.
            key: PRNG key.

        Returns:
            Q-values [state, action].
        """
        return self.plan(state.model, key)

    def act(self, state: TabularState, key: PRNGKeyArray, obs: Any, index: Array, epsilon: Any) -> Choice:
        """Act greedily on each lane's plan, breaking ties at random.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: One observation per lane, [lane, ...].
            index: The plan of each lane.
            epsilon: Unused.

        Returns:
            The actions.
        """
        return Choice(greedy(key, jax.vmap(lambda plan, state: plan[state])(index, obs)))

    def observe(self, state: TabularState, transition: Transition, weight: Array) -> tuple[TabularState, None]:
        """Count each transition once.

        Args:
            state: State of the agent.
            transition: One transition per lane.
            weight: Weights [lane]; zero for lanes without a transition.

        Returns:
            The new state, and no bonus.
        """
        after = jnp.where(transition.terminated, self.num_states, transition.next_obs)
        place = (transition.obs, transition.action)
        moves = state.model.moves.at[(*place, after)].add(weight)
        rewards = state.model.rewards.at[place].add(weight * transition.reward)
        return TabularState(Model(moves, rewards)), None

    def learn(self, state: TabularState, sampled: Sampled, key: PRNGKeyArray) -> tuple[TabularState, Info]:
        """Return the state unchanged: `observe` has already learned.

        Args:
            state: State of the agent.
            sampled: Unused.
            key: Unused.

        Returns:
            The state, and a loss of zero.
        """
        return state, Info(jnp.zeros(1))

    def deployed(self, state: TabularState, key: PRNGKeyArray) -> Plans:
        """Compute the plan in the expected model, and drawn plans.

        Args:
            state: State of the agent.
            key: PRNG key.

        Returns:
            The plans.
        """
        drawn = jax.lax.map(lambda k: self.plan(state.model, k), jax.random.split(key, DRAWS))
        return Plans(self.plan(state.model, None), drawn)

    def values(self, deployed: Plans, key: PRNGKeyArray, obs: Any) -> tuple[Array, Array]:
        """Look up the plans at a batch of observations.

        Args:
            deployed: The plans.
            key: PRNG key.
            obs: State indices [batch].

        Returns:
            The expected plan [batch, action], and the drawn plans [draw, batch, action].
        """
        return deployed.mean[obs], deployed.drawn[:, obs]

    def mean_values(self, state: TabularState, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch action"]:
        """Look up the plan in the expected model at a batch of observations.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: State indices [batch].

        Returns:
            Q-values [batch, action].
        """
        return self.plan(state.model, None)[obs]

    def exploit(self, deployed: Plans, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
        """Choose the greedy action of the plan in the expected model.

        Args:
            deployed: The plans.
            key: PRNG key.
            obs: One state index.

        Returns:
            The index of the action.
        """
        return best_by_mean(self, deployed, key, obs)
