"""D4PG (Barth-Maron et al. 2018) for continuous actions: a deterministic policy, a distributional critic, n steps.

The rival of section 4.2.2. Replay is uniform or prioritised; exploration is Gaussian noise on the policy's action. It
has no belief: what it does not know, it does not know.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from priorax.beliefs import Adam, Info
from priorax.checks import non_negative, positive_int
from priorax.heads import C51
from priorax.networks import MLP
from priorax.replay import Buffer, EnsembleBuffer, Transition


class Nets(NamedTuple):
    """Parameters of policy and critic, or the state of their optimisers."""

    actor: PyTree
    critic: PyTree


class D4PGState(NamedTuple):
    """What the agent carries."""

    nets: Nets
    target: Nets
    opt: Nets
    buffer: Buffer
    index: Any
    """Nothing: there is nothing to draw."""
    updates: Int[Array, ""]
    episodes: Int[Array, ""]


class D4PG(eqx.Module):
    """See the module's docstring. Actions are in [-bound, bound] in each of `num_actions` dimensions."""

    num_actions: int = eqx.field(static=True)
    head: C51 = eqx.field(static=True)
    """The critic's atoms: let them cover the task's discounted returns."""
    buffer: EnsembleBuffer = eqx.field(static=True)
    bound: float = eqx.field(static=True, default=1.0)
    network: MLP = eqx.field(static=True, default=MLP((50, 50)))
    """Of policy and critic alike."""
    actor_optimizer: Adam = Adam(1e-4)
    critic_optimizer: Adam = Adam(1e-3)
    batch_size: int = eqx.field(static=True, default=128)
    discount: float | Float[Array, ""] = 0.99
    n_step: int = eqx.field(static=True, default=5)
    target_period: int = eqx.field(static=True, default=100)
    """Updates between copies into the target networks."""
    action_noise: float | Float[Array, ""] = 0.3
    """Standard deviation of the noise on actions, as a share of the bound."""
    input_scale: tuple[float, ...] = eqx.field(static=True, default=())
    """Multiplies each number of an observation; (): as it is."""

    def __check_init__(self) -> None:
        positive_int("num_actions", self.num_actions)
        positive_int("n_step", self.n_step)
        positive_int("target_period", self.target_period)
        if isinstance(self.action_noise, float):
            non_negative("action_noise", self.action_noise)
        if self.buffer.num_streams != 1 or not self.buffer.shared:
            raise ValueError("D4PG replays one stream of all transitions; pass EnsembleBuffer(capacity, 1, 1.0)")

    def init(self, key: PRNGKeyArray, obs: Float[Array, "..."]) -> D4PGState:
        key_actor, key_critic = jax.random.split(key)
        action = jnp.zeros(self.num_actions)
        nets = Nets(
            self.network.init(key_actor, jnp.ravel(obs), self.num_actions),
            self.network.init(key_critic, self._pair(obs, action), self.head.size),
        )
        opt = Nets(self.actor_optimizer.init(nets.actor), self.critic_optimizer.init(nets.critic))
        zero, no = jnp.zeros(()), jnp.zeros((), bool)
        buffer = self.buffer.init(Transition(obs, action, zero, obs, no, no))
        return D4PGState(nets, nets, opt, buffer, (), jnp.zeros((), int), jnp.zeros((), int))

    def policy(self, actor: PyTree, obs: Array) -> Float[Array, " dim"]:
        """The action at ONE observation."""
        return self.bound * jnp.tanh(self.network.apply(actor, self._scaled(obs)))

    def outcomes(self, critic: PyTree, obs: Array, action: Array) -> Float[Array, " atom"]:
        """The critic's logits at ONE observation and action."""
        return self.network.apply(critic, self._pair(obs, action))

    def _pair(self, obs: Array, action: Array) -> Array:
        return jnp.concatenate([self._scaled(obs), action / self.bound])

    def _scaled(self, obs: Array) -> Array:
        return jnp.ravel(obs) * (jnp.asarray(self.input_scale) if self.input_scale else 1.0)

    def start_episode(self, state: D4PGState, key: PRNGKeyArray) -> D4PGState:
        return state._replace(episodes=state.episodes + 1)

    def act(self, state: D4PGState, key: PRNGKeyArray, obs: Any) -> Float[Array, " dim"]:
        noise = self.action_noise * self.bound * jax.random.normal(key, (self.num_actions,))
        return jnp.clip(self.policy(state.nets.actor, obs) + noise, -self.bound, self.bound)

    def update_buffer(self, state: D4PGState, key: PRNGKeyArray, transition: Transition) -> D4PGState:
        return state._replace(buffer=self.buffer.add(state.buffer, transition, key))

    def learn_from_buffer(self, state: D4PGState, key: PRNGKeyArray) -> tuple[D4PGState, Info]:
        """One step of the critic on the distributional loss, one of the policy up the critic's mean."""
        slots, weights = self.buffer.sample_shared(state.buffer, key, self.batch_size)
        step: Transition = self.buffer.get(state.buffer, slots)
        last, reward, discount = self.buffer.returns(
            state.buffer, slots, self.n_step, self.discount, lambda slots: self.buffer.get(state.buffer, slots)
        )
        end: Transition = self.buffer.get(state.buffer, last)
        some = (state.buffer.time > 0).astype(float)

        def target(obs: Array, reward: Array, discount: Array) -> Array:
            action = self.policy(state.target.actor, obs)
            return self.head.backup(self.outcomes(state.target.critic, obs, action), reward, discount)

        targets = jax.vmap(target)(end.next_obs, reward, discount)

        def critic_loss(critic: PyTree) -> tuple[Array, Array]:
            out = jax.vmap(lambda obs, action: self.outcomes(critic, obs, action))(step.obs, step.action)
            losses = jax.vmap(self.head.loss)(out, targets)
            return some * jnp.mean(weights[0] * losses), losses

        def actor_loss(actor: PyTree) -> Array:
            def value(obs: Array) -> Array:
                return self.head.value(self.outcomes(state.nets.critic, obs, self.policy(actor, obs)))

            return -some * jnp.mean(jax.vmap(value)(step.obs))

        (loss, losses), by_critic = jax.value_and_grad(critic_loss, has_aux=True)(state.nets.critic)
        by_actor = jax.grad(actor_loss)(state.nets.actor)
        moved_actor, opt_actor = self.actor_optimizer.update(by_actor, state.opt.actor, state.nets.actor)
        moved_critic, opt_critic = self.critic_optimizer.update(by_critic, state.opt.critic, state.nets.critic)
        nets = jax.tree.map(jnp.add, state.nets, Nets(moved_actor, moved_critic))
        updates = state.updates + 1
        copy = updates % self.target_period == 0
        kept = jax.tree.map(lambda new, old: jnp.where(copy, new, old), nets, state.target)
        after = state._replace(nets=nets, target=kept, opt=Nets(opt_actor, opt_critic), updates=updates)
        if self.buffer.priority > 0:
            error = jnp.sqrt(jnp.maximum(losses, 0.0))
            after = after._replace(buffer=self.buffer.prioritise(state.buffer, slots, error))
        return after, Info(loss[None])

    def mean_values(self, state: D4PGState, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch 1"]:
        """The critic's mean at the policy's action."""

        def value(obs: Array) -> Array:
            return self.head.value(self.outcomes(state.nets.critic, obs, self.policy(state.nets.actor, obs)))

        return jax.vmap(value)(obs)[:, None]

    def exploit(self, state: D4PGState, key: PRNGKeyArray, obs: Any) -> Float[Array, " dim"]:
        """The policy's action, without noise."""
        return self.policy(state.nets.actor, obs)
