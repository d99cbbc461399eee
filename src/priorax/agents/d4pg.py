"""D4PG (Barth-Maron et al. 2018) for continuous actions: deterministic policy, distributional critic, n-step returns.

The baseline of section 4.2.2. Replay is uniform or prioritised; exploration is Gaussian noise on actions. It has no
belief, and so no estimate of epistemic uncertainty.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.agents.base import AgentDefaults, Choice
from priorax.beliefs import Adam, Info
from priorax.checks import non_negative, positive_int
from priorax.heads import C51
from priorax.networks import MLP, FourierCode
from priorax.replay import Replay, Sampled


class Nets(NamedTuple):
    """Parameters of actor and critic, or the states of their optimisers."""

    actor: PyTree
    """Of the policy network."""
    critic: PyTree
    """Of the value network."""


class D4PGState(NamedTuple):
    """State of a D4PG agent."""

    nets: Nets
    """Online networks."""
    target: Nets
    """Target networks."""
    opt: Nets
    """Optimiser states."""
    updates: Int[Array, ""]
    """Number of updates so far."""


class D4PG(AgentDefaults):
    """D4PG agent. Actions are in [-bound, bound] in each of `num_actions` dimensions."""

    num_actions: int = eqx.field(static=True)
    """Number of action dimensions."""
    head: C51 = eqx.field(static=True)
    """Atoms of the critic's distribution; they should cover the discounted returns of the task."""
    replay: Replay = eqx.field(static=True)
    """Replay settings; one stream, without bootstrap masks."""
    bound: float = eqx.field(static=True, default=1.0)
    """Largest absolute value of an action."""
    network: MLP = eqx.field(static=True, default=MLP((50, 50)))
    """Architecture of both policy and critic."""
    actor_optimizer: Adam = Adam(1e-4)
    """Optimiser of the policy."""
    critic_optimizer: Adam = Adam(1e-3)
    """Optimiser of the critic."""
    target_period: int = eqx.field(static=True, default=100)
    """Updates between copies into the target networks."""
    action_noise: float | Float[Array, ""] = 0.3
    """Standard deviation of the exploration noise, as a fraction of the bound."""
    input_scale: tuple[float, ...] = eqx.field(static=True, default=())
    """Multiplies each component of an observation; (): no scaling."""
    code: FourierCode | None = eqx.field(static=True, default=None)
    """Code of scaled observations; None: none."""

    def __check_init__(self) -> None:
        positive_int("num_actions", self.num_actions)
        positive_int("target_period", self.target_period)
        if isinstance(self.action_noise, float):
            non_negative("action_noise", self.action_noise)
        if self.replay.num_streams != 1 or self.replay.bootstraps:
            raise ValueError("D4PG replays one stream of all transitions; pass Replay(num_streams=1, mask_prob=1.0)")

    def init(self, key: PRNGKeyArray, obs: Float[Array, "..."]) -> D4PGState:
        """Initialise the networks and optimisers.

        Args:
            key: PRNG key.
            obs: One example observation.

        Returns:
            The initial state.
        """
        key_actor, key_critic = jax.random.split(key)
        action = jnp.zeros(self.num_actions)
        nets = Nets(
            self.network.init(key_actor, self._scaled(obs), self.num_actions),
            self.network.init(key_critic, self._pair(obs, action), self.head.size),
        )
        opt = Nets(self.actor_optimizer.init(nets.actor), self.critic_optimizer.init(nets.critic))
        return D4PGState(nets, nets, opt, jnp.zeros((), int))

    def policy(self, actor: PyTree, obs: Array) -> Float[Array, " dim"]:
        """Evaluate the policy at ONE observation.

        Args:
            actor: Parameters of the policy.
            obs: One observation, without batch axis.

        Returns:
            The action.
        """
        return self.bound * jnp.tanh(self.network.apply(actor, self._scaled(obs)))

    def outcomes(self, critic: PyTree, obs: Array, action: Array) -> Float[Array, " atom"]:
        """Evaluate the critic's logits at ONE observation and action.

        Args:
            critic: Parameters of the critic.
            obs: One observation, without batch axis.
            action: One action.

        Returns:
            One logit per atom.
        """
        return self.network.apply(critic, self._pair(obs, action))

    def _pair(self, obs: Array, action: Array) -> Array:
        return jnp.concatenate([self._scaled(obs), action / self.bound])

    def _scaled(self, obs: Array) -> Array:
        scaled = jnp.ravel(obs) * (jnp.asarray(self.input_scale) if self.input_scale else 1.0)
        return scaled if self.code is None else self.code(scaled)

    def begin(self, state: D4PGState, key: PRNGKeyArray) -> tuple[()]:
        """Return nothing: exploration is noise on actions, so no function is drawn.

        Args:
            state: State of the agent.
            key: PRNG key.

        Returns:
            An empty tuple.
        """
        return ()

    def act(self, state: D4PGState, key: PRNGKeyArray, obs: Any, index: Any, epsilon: Any) -> Choice:
        """Apply the policy with Gaussian exploration noise, in each lane.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: One observation per lane, [lane, ...].
            index: Unused.
            epsilon: Unused.

        Returns:
            The actions [lane, dim].
        """
        action = jax.vmap(lambda one: self.policy(state.nets.actor, one))(obs)
        noise = self.action_noise * self.bound * jax.random.normal(key, action.shape)
        return Choice(jnp.clip(action + noise, -self.bound, self.bound))

    def learn(self, state: D4PGState, sampled: Sampled, key: PRNGKeyArray) -> tuple[D4PGState, Info]:
        """Perform one critic step on the distributional loss and one policy step up the gradient of the critic's mean.

        Args:
            state: State of the agent.
            sampled: A minibatch from replay.
            key: PRNG key.

        Returns:
            The new state, and the critic's losses.
        """
        some = (sampled.counts[0] > 0).astype(float)

        def target(obs: Array, reward: Array, discount: Array) -> Array:
            action = self.policy(state.target.actor, obs)
            return self.head.backup(self.outcomes(state.target.critic, obs, action), reward, discount)

        targets = jax.vmap(target)(sampled.next_obs, sampled.reward, sampled.discount)

        def critic_loss(critic: PyTree) -> tuple[Array, Array]:
            out = jax.vmap(lambda obs, action: self.outcomes(critic, obs, action))(sampled.obs, sampled.action)
            losses = jax.vmap(self.head.loss)(out, targets)
            return some * jnp.mean(sampled.weight[0] * losses), losses

        def actor_loss(actor: PyTree) -> Array:
            def value(obs: Array) -> Array:
                return self.head.value(self.outcomes(state.nets.critic, obs, self.policy(actor, obs)))

            return -some * jnp.mean(jax.vmap(value)(sampled.obs))

        (loss, losses), by_critic = jax.value_and_grad(critic_loss, has_aux=True)(state.nets.critic)
        by_actor = jax.grad(actor_loss)(state.nets.actor)
        moved_actor, opt_actor = self.actor_optimizer.update(by_actor, state.opt.actor, state.nets.actor)
        moved_critic, opt_critic = self.critic_optimizer.update(by_critic, state.opt.critic, state.nets.critic)
        nets = jax.tree.map(jnp.add, state.nets, Nets(moved_actor, moved_critic))
        updates = state.updates + 1
        copy = updates % self.target_period == 0
        kept = jax.tree.map(lambda new, old: jnp.where(copy, new, old), nets, state.target)
        after = D4PGState(nets, kept, Nets(opt_actor, opt_critic), updates)
        return after, Info(loss[None], losses[None])

    def values(self, deployed: D4PGState, key: PRNGKeyArray, obs: Any) -> tuple[Array, Array]:
        """Evaluate the critic's mean at the policy's action, as a single function.

        Args:
            deployed: The result of `deployed`.
            key: PRNG key.
            obs: A batch of observations, [batch, ...].

        Returns:
            The mean [batch, 1], and the same with a leading axis of one function.
        """
        mean = self.mean_values(deployed, key, obs)
        return mean, mean[None]

    def mean_values(self, state: D4PGState, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch 1"]:
        """Evaluate the critic's mean at the policy's action.

        Args:
            state: State of the agent.
            key: PRNG key.
            obs: A batch of observations, [batch, ...].

        Returns:
            The mean [batch, 1].
        """

        def value(obs: Array) -> Array:
            return self.head.value(self.outcomes(state.nets.critic, obs, self.policy(state.nets.actor, obs)))

        return jax.vmap(value)(obs)[:, None]

    def exploit(self, deployed: D4PGState, key: PRNGKeyArray, obs: Any) -> Float[Array, " dim"]:
        """Apply the policy without exploration noise.

        Args:
            deployed: The result of `deployed`.
            key: PRNG key.
            obs: One observation, without batch axis.

        Returns:
            The action.
        """
        return self.policy(deployed.nets.actor, obs)
