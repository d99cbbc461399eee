"""Q-learning over any belief (appendix A).

With `Ensemble(prior=...)` it is bootstrapped DQN with randomized prior functions (algorithm 2); with other beliefs, a
baseline.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.agents.base import AgentDefaults, Choice, best_by_mean
from priorax.beliefs import Batch, Belief, BeliefState, Info, greedy_backup, plain_batch, values_of
from priorax.checks import non_negative, one_of, positive_int
from priorax.heads import greedy
from priorax.replay import Replay, Sampled, Transition


class AgentState(NamedTuple):
    """State of a Q-learner."""

    belief: BeliefState
    """State of the belief: online parameters, optimiser state, prior functions."""
    target: PyTree
    """Parameters of the target network; empty if they always equal the online ones (period 1). Prior functions are not
    included: online and target network share them."""
    updates: Int[Array, ""]
    """Number of updates so far."""


class QLearner(AgentDefaults):
    """Thompson sampling with Q-learning on the loss of equation (6).

    Attributes:
        belief: The belief over Q functions.
        replay: Replay settings; `num_streams` must equal the belief's.
        target_period: Updates between updates of the target network; 1 is the paper's algorithm 2.
        target_rate: Step of the target network towards the online one: 1 copies it; less is Polyak averaging, which
            reduces the optimiser's noise and with it the overestimation by the maximum over actions.
        double_q: Whether the online network selects the next action (van Hasselt et al. 2016).
        draw_each_step: Whether to draw a new function at each step instead of each episode.
        epsilon: Probability of a random action in the first episode; None: no dithering.
        epsilon_episodes: Episodes, over all lanes, over which epsilon is annealed linearly to zero; 0: it stays
            constant.
        epsilon_ladder: Exponents of epsilon increase over the lanes, from 1 to 1 + epsilon_ladder (Ape-X: 7). No effect
            with one lane.
        bonus_at: When a count bonus is added to the reward. insertion: once, by the visits before this one; learning:
            at each replay, by the visits so far.
    """

    belief: Belief
    replay: Replay = eqx.field(static=True)
    target_period: int = eqx.field(static=True, default=1)
    target_rate: float = eqx.field(static=True, default=1.0)
    double_q: bool = eqx.field(static=True, default=False)
    draw_each_step: bool = eqx.field(static=True, default=False)
    epsilon: float | Float[Array, ""] | None = None
    epsilon_episodes: int = eqx.field(static=True, default=2000)
    epsilon_ladder: float = eqx.field(static=True, default=0.0)
    bonus_at: str = eqx.field(static=True, default="learning")

    def __check_init__(self) -> None:
        positive_int("target_period", self.target_period)
        if not 0 < self.target_rate <= 1:
            raise ValueError(f"target_rate={self.target_rate} must be above 0 and at most 1; pass 1 for copies")
        if self.epsilon_episodes != 0:
            positive_int("epsilon_episodes", self.epsilon_episodes)
        non_negative("epsilon_ladder", self.epsilon_ladder)
        one_of("bonus_at", self.bonus_at, ("insertion", "learning"))
        if isinstance(self.epsilon, float) and not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon={self.epsilon} must be between 0 and 1; pass for example 0.1")
        if not self.belief.by_gradient:
            raise ValueError(
                f"{type(self.belief).__name__} conditions on targets when it observes, and Q-learning does not know "
                "them then; use a belief that learns by gradient"
            )
        if self.replay.num_streams != self.belief.num_streams:
            raise ValueError(
                f"num_streams={self.replay.num_streams} of the replay differs from the belief's "
                f"{self.belief.num_streams}; give both the same"
            )
        if self.replay.paths != self.pays_at_learning:
            raise ValueError(
                f"paths={self.replay.paths} of the replay must be {self.pays_at_learning}: a bonus at learning "
                "needs all steps of a return"
            )
        self.belief.check_learning(self.replay.shared_batch, self.lagged, self.replay.priority > 0)

    @property
    def num_actions(self) -> int:
        """Number of actions: the outputs of the belief."""
        return self.belief.num_outputs

    @property
    def lagged(self) -> bool:
        """Whether there is a target network distinct from the online one."""
        return self.target_period > 1 or self.target_rate < 1

    @property
    def observes(self) -> bool:
        """Whether the belief has to see each transition once, as counts do."""
        return self.belief.observes

    @property
    def pays_at_learning(self) -> bool:
        """Whether the count bonus is added at each replay."""
        return self.belief.pays_bonus and self.bonus_at == "learning"

    def init(self, key: PRNGKeyArray, obs: Any) -> AgentState:
        """Initialise the state.

        Args:
            key: PRNG key.
            obs: One example observation.

        Returns:
            The initial state.
        """
        belief = self.belief.init(jax.random.split(key)[0], obs)
        return AgentState(belief, belief.params if self.lagged else (), jnp.zeros((), int))

    def begin(self, state: AgentState, key: PRNGKeyArray) -> PyTree:
        """Draw the function to follow for an episode: for an ensemble, a member uniformly at random.

        Args:
            state: State of the agent.
            key: PRNG key.

        Returns:
            The draw, as arrays.
        """
        return self.belief.draw(state.belief, key)

    def act(self, state: AgentState, key: PRNGKeyArray, obs: Any, index: PyTree, epsilon: Array) -> Choice:
        """Act greedily on each lane's function, breaking ties at random; with probability epsilon, act at random.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: One observation per lane, [lane, ...].
            index: The draw of each lane, [lane, ...].
            epsilon: Probability of a random action, [lane].

        Returns:
            The actions, with all members' values if there are members.
        """
        lanes = epsilon.shape[0]
        key_draw, key_tie, key_dither, key_value = jax.random.split(key, 4)
        if self.draw_each_step:
            index = jax.vmap(lambda k: self.belief.draw(state.belief, k))(jax.random.split(key_draw, lanes))
        prior = self._priors(state.belief, obs)
        members = None
        if self.belief.num_members is not None:
            out = self.belief.forward(state.belief, key_value, obs, prior, shared=True)
            members = values_of(self.belief.head, out)
        if members is not None and self.belief.acts_on_forward:
            followed = members[index, jnp.arange(lanes)]
        else:
            followed = jax.vmap(lambda i, x: self.belief.value(state.belief, i, x))(index, obs)
        action = greedy(key_tie, followed)
        if self.epsilon is not None:
            # one draw of numbers in [0, 1) for both: `randint` would draw four times as many bits, in three calls
            coin, other = jax.random.uniform(key_dither, (2, lanes))
            action = jnp.where(coin < epsilon, (other * self.num_actions).astype(action.dtype), action)
        return Choice(action, members, None if prior is None else jnp.moveaxis(prior, 1, 0))

    def prior_at(self, state: AgentState, obs: Any) -> Float[Array, "batch stream action prior"] | None:
        """Evaluate the prior functions, if their values are stored with transitions.

        Args:
            state: State of the agent.
            obs: A batch of observations, [batch, ...].

        Returns:
            Prior values, or None.
        """
        prior = self._priors(state.belief, obs)
        return None if prior is None else jnp.moveaxis(prior, 1, 0)

    def _priors(self, belief: BeliefState, obs: Any) -> Float[Array, "stream batch action prior"] | None:
        return self.belief.prior_values(belief, obs) if self.belief.stores_prior else None

    def epsilon_at(self, episodes: Any, lanes: Any, num_lanes: int) -> Float[Array, " lane"]:
        """Compute the probability of a random action.

        Args:
            episodes: Episodes finished so far, over all lanes.
            lanes: Indices of the lanes.
            num_lanes: Total number of lanes.

        Returns:
            One probability per lane in `lanes`.
        """
        lanes = jnp.asarray(lanes)
        if self.epsilon is None:
            return jnp.zeros(lanes.shape)
        left = 1.0 if self.epsilon_episodes == 0 else jnp.maximum(0.0, 1.0 - episodes / self.epsilon_episodes)
        return (self.epsilon * left) ** (1 + self.epsilon_ladder * lanes / max(num_lanes - 1, 1))

    def observe(self, state: AgentState, transition: Transition, weight: Array) -> tuple[AgentState, Array | None]:
        """Pass each transition to the belief once, for example to count visits.

        Args:
            state: State of the agent.
            transition: One transition per lane.
            weight: Weights [lane]; zero for lanes without a transition.

        Returns:
            The new state, and the bonus [lane] to add to the reward if `bonus_at` is insertion, by the visits before
            this one; else None.
        """
        if not self.observes:
            return state, None
        bonus = None
        if self.belief.pays_bonus and self.bonus_at == "insertion":
            bonus = self.belief.reward_bonus(state.belief, transition.obs)
        lanes = weight.shape[0]
        batch = plain_batch(transition.obs, jnp.zeros((lanes, self.num_actions)), self.belief.num_streams)
        batch = eqx.tree_at(lambda batch: batch.weight, batch, batch.weight * weight)
        return state._replace(belief=self.belief.observe(state.belief, batch)), bonus

    def learn(self, state: AgentState, sampled: Sampled, key: PRNGKeyArray) -> tuple[AgentState, Info]:
        """Perform one optimiser step of every member on the loss of equation (6). A stream without data is not updated.

        Args:
            state: State of the agent.
            sampled: A minibatch from replay.
            key: PRNG key.

        Returns:
            The new state, and the losses.
        """
        key_target, key_online = jax.random.split(key)
        if self.belief.pairs_targets:
            key_online = key_target
        batch, shared = sampled, self.replay.shared_batch
        if batch.path is not None:
            batch = batch._replace(reward=batch.reward + self._bonuses(state.belief, batch))
        streams = self.belief.num_streams
        target_state = state.belief._replace(params=state.target) if self.lagged else state.belief
        following = self.belief.forward(target_state, key_target, batch.next_obs, batch.next_prior, shared)
        selector = None
        if self.double_q:
            online = self.belief.forward(state.belief, key_target, batch.next_obs, batch.next_prior, shared)
            selector = values_of(self.belief.head, online)
        size = batch.weight.shape[1]
        reward, discount = (jnp.broadcast_to(part, (streams, size)) for part in (batch.reward, batch.discount))
        backup = jax.vmap(jax.vmap(lambda *parts: greedy_backup(self.belief.head, *parts)))
        target = backup(following, reward, discount, *(() if selector is None else (selector,)))
        examples = Batch(
            batch.obs,
            jax.lax.stop_gradient(target),
            batch.weight * (batch.counts > 0)[:, None],
            batch.counts.astype(float),
            batch.action,
            batch.prior,
            shared,
        )
        belief, info = self.belief.update(state.belief, examples, key_online)
        updates = state.updates + 1
        kept = self.followed(updates, belief.params, state.target) if self.lagged else ()
        return state._replace(belief=belief, target=kept, updates=updates), info

    def followed(self, updates: Array, new: PyTree, old: PyTree) -> PyTree:
        """Compute the target network's parameters after an update.

        Args:
            updates: Number of updates so far.
            new: Online parameters.
            old: Target parameters.

        Returns:
            The new target parameters.
        """
        rate = jnp.where(updates % self.target_period == 0, self.target_rate, 0.0)
        return jax.tree.map(lambda a, b: jnp.where(rate == 1, a, b + rate * (a - b)), new, old)

    def values(self, deployed: AgentState, key: PRNGKeyArray, obs: Any) -> tuple[Array, Array]:
        """Evaluate the Q-values of all members, or of drawn functions if there are no members.

        Args:
            deployed: The result of `deployed`.
            key: PRNG key.
            obs: A batch of observations, [batch, ...].

        Returns:
            The mean [batch, action], and the individual functions [function, batch, action].
        """
        functions = self.belief.functions(deployed.belief, key, obs)
        return jnp.mean(functions, axis=0), functions

    def mean_values(self, state: AgentState, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch action"]:
        """Evaluate the mean Q-values, over members or drawn functions.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: A batch of observations, [batch, ...].

        Returns:
            The mean, as in `values`.
        """
        return self.values(state, key, obs)[0]

    def exploit(self, deployed: AgentState, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
        """Choose the greedy action with respect to the mean.

        Args:
            deployed: The result of `deployed`.
            key: PRNG key.
            obs: One observation, without batch axis.

        Returns:
            The index of the action.
        """
        return best_by_mean(self, deployed, key, obs)

    def _bonuses(self, belief: BeliefState, batch: Sampled) -> Array:
        """Sum the count bonuses over the steps of each n-step return, by the current counts."""
        path = batch.path
        assert path is not None
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[path.weight.ndim :]), path.obs)
        paid = self.belief.reward_bonus(belief, flat).reshape(path.weight.shape)
        return jnp.sum(path.weight * paid, axis=0)
