"""Interface of an agent: pure functions over any number of *lanes* (environments stepped together).

    init(key, obs)                             -> state            obs: one example observation
    begin(state, key)                          -> index            the draw that ONE lane follows for an episode
    act(state, key, obs, index, epsilon)       -> Choice           all lanes: obs [lane, ...], index [lane, ...]
    prior_at(state, obs)                       -> prior values to store with transitions, or None
    observe(state, transition, weight)         -> state, bonus     once per transition, as it happens: counts
    learn(state, sampled, key)                 -> state, Info      one update on a minibatch from any replay
    deployed(state, key)                       -> the part of the state needed for deployment, computed once
    values(deployed, key, obs)                 -> mean [batch, action], functions [function, batch, action]
    mean_values(state, key, obs)               -> [batch, action]  the same mean
    exploit(deployed, key, obs)                -> action           ONE observation: greedy with respect to the mean

An agent neither stores transitions nor steps environments; a backend does both (`training/backends`). `replay` holds
the replay settings (None: the agent learns in `observe` alone), `observes` is whether `observe` has an effect, and
`epsilon_at(episodes, lanes, num_lanes)` gives the probability of a random action in each lane.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs import Info
from priorax.replay import Replay, Sampled, Transition


class Choice(NamedTuple):
    """Actions of an agent in all lanes, with the values behind them."""

    action: Any
    """Actions [lane], or [lane, dim] if continuous."""
    values: Float[Array, "member lane action"] | None = None
    """Q-values of every member, if there are members; used for the initial priorities of new transitions."""
    prior: Float[Array, "lane stream action prior"] | None = None
    """Prior values, if they are stored with transitions."""


@runtime_checkable
class Agent(Protocol):
    """Interface of an agent; see the module docstring for an overview."""

    @property
    def num_actions(self) -> int:
        """Number of actions, or of action dimensions if actions are continuous."""
        ...

    @property
    def replay(self) -> Replay | None:
        """Replay settings; None if the agent learns in `observe` alone."""
        ...

    @property
    def observes(self) -> bool:
        """Whether `observe` has an effect."""
        ...

    def init(self, key: PRNGKeyArray, obs: Any) -> Any:
        """Initialise the state.

        Args:
            key: PRNG key.
            obs: One example observation.

        Returns:
            The initial state.
        """
        ...

    def begin(self, state: Any, key: PRNGKeyArray) -> PyTree:
        """Draw the function that one lane follows for an episode.

        Args:
            state: State of the agent.
            key: PRNG key.

        Returns:
            The draw, as arrays.
        """
        ...

    def act(self, state: Any, key: PRNGKeyArray, obs: Any, index: PyTree, epsilon: Any) -> Choice:
        """Choose an action in every lane.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: One observation per lane, [lane, ...].
            index: The draw of each lane (from `begin`), [lane, ...].
            epsilon: Probability of a random action, [lane].

        Returns:
            The actions, with the values behind them.
        """
        ...

    def prior_at(self, state: Any, obs: Any) -> Array | None:
        """Evaluate the prior functions, if their values are stored with transitions.

        Args:
            state: State of the agent.
            obs: A batch of observations, [batch, ...].

        Returns:
            Prior values [batch, stream, action, prior], or None.
        """
        ...

    def observe(self, state: Any, transition: Transition, weight: Any) -> tuple[Any, Array | None]:
        """Process new transitions, each exactly once.

        Args:
            state: State of the agent.
            transition: One transition per lane.
            weight: Weights [lane]; zero for lanes without a transition.

        Returns:
            The new state, and the bonus [lane] to add to rewards before they are stored, or None.
        """
        ...

    def learn(self, state: Any, sampled: Sampled, key: PRNGKeyArray) -> tuple[Any, Info]:
        """Perform one update on a minibatch.

        Args:
            state: State of the agent.
            sampled: A minibatch from replay.
            key: PRNG key.

        Returns:
            The new state, and the losses.
        """
        ...

    def deployed(self, state: Any, key: PRNGKeyArray) -> Any:
        """Extract from a state what deployment needs.

        Args:
            state: State of the agent.
            key: PRNG key.

        Returns:
            A pytree for `values` and `exploit`.
        """
        ...

    def values(self, deployed: Any, key: PRNGKeyArray, obs: Any) -> tuple[Array, Array]:
        """Evaluate Q-values on a batch of observations.

        Args:
            deployed: The result of `deployed`.
            key: PRNG key.
            obs: A batch of observations, [batch, ...].

        Returns:
            The mean [batch, action], and the individual functions [function, batch, action].
        """
        ...

    def mean_values(self, state: Any, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch action"]:
        """Evaluate the mean Q-values on a batch of observations.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: A batch of observations, [batch, ...].

        Returns:
            The mean, as in `values`.
        """
        ...

    def exploit(self, deployed: Any, key: PRNGKeyArray, obs: Any) -> Any:
        """Choose the greedy action with respect to the mean.

        Args:
            deployed: The result of `deployed`.
            key: PRNG key.
            obs: One observation, without batch axis.

        Returns:
            The action.
        """
        ...

    def epsilon_at(self, episodes: Any, lanes: Any, num_lanes: int) -> Float[Array, " lane"]:
        """Compute the probability of a random action.

        Args:
            episodes: Episodes finished so far, over all lanes.
            lanes: Indices of the lanes.
            num_lanes: Total number of lanes.

        Returns:
            One probability per lane in `lanes`.
        """
        ...


class AgentDefaults(eqx.Module):
    """Default methods for agents that count nothing, have no prior functions and take no random actions."""

    @property
    def observes(self) -> bool:
        return False

    def prior_at(self, state: Any, obs: Any) -> Array | None:
        """Return None: there are no prior functions.

        Args:
            state: State of the agent.
            obs: A batch of observations.
        """
        return None

    def epsilon_at(self, episodes: Any, lanes: Any, num_lanes: int) -> Float[Array, " lane"]:
        """Return zeros: no action is drawn uniformly at random.

        Args:
            episodes: Episodes that ended so far.
            lanes: Indices of the lanes.
            num_lanes: Number of lanes in all.

        Returns:
            Zero per lane.
        """
        return jnp.zeros(jnp.shape(lanes))

    def observe(self, state: Any, transition: Transition, weight: Any) -> tuple[Any, Array | None]:
        """Return the state unchanged: nothing is counted.

        Args:
            state: State of the agent.
            transition: One transition per lane.
            weight: Weights [lane]; zero for lanes without a transition.

        Returns:
            The state, and no bonus.
        """
        return state, None

    def deployed(self, state: Any, key: PRNGKeyArray) -> Any:
        """Return the state: deployment needs nothing else.

        Args:
            state: State of the agent.
            key: PRNG key.
        """
        return state


def best_by_mean(agent: Agent, deployed: Any, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
    """Choose the greedy action with respect to the mean: `exploit` for discrete actions.

    Args:
        agent: The agent.
        deployed: The result of `deployed`.
        key: PRNG key.
        obs: One observation, without batch axis.

    Returns:
        The index of the action.
    """
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], obs)
    return jnp.argmax(agent.values(deployed, key, one)[0][0])
