"""The Q-learner of appendix A over any belief: `act`, `update_buffer`, `learn_from_buffer`.

With `Ensemble(prior=...)` it is BootDQN with randomized prior functions (algorithm 2); with another belief, a rival.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from priorax.agents.base import best_by_mean, greedy
from priorax.beliefs import (
    ENSEMBLES,
    Batch,
    Belief,
    BeliefState,
    Counts,
    Ensemble,
    Info,
    belief_values,
    greedy_backup,
    plain_batch,
    values_of,
)
from priorax.checks import non_negative, one_of, positive_int
from priorax.priors import TABLES
from priorax.replay import EnsembleBuffer, Transition


class Stored(NamedTuple):
    """What replay keeps of a step. A prior never changes, so its values are stored beside the transition."""

    transition: Transition
    prior: Float[Array, "stream output prior"] | None
    next_prior: Float[Array, "stream output prior"] | None


class Sampled(NamedTuple):
    """Transitions to learn from, wherever they were kept, over one step or several: from `obs` to `next_obs`, where the
    bootstrap is. With a shared batch, what all streams share has no stream axis."""

    obs: PyTree
    action: Int[Array, "*stream batch"]
    reward: Float[Array, "*stream batch"]
    """Discounted, of the steps between."""
    discount: Float[Array, "*stream batch"]
    """What is left of it for the bootstrap: zero after a termination."""
    next_obs: PyTree
    weight: Float[Array, "stream batch"]
    counts: Int[Array, " stream"]
    """How many transitions each stream owns in all."""
    prior: Float[Array, "stream batch output prior"] | None = None
    """Prior values at both ends, where they are known."""
    next_prior: Float[Array, "stream batch output prior"] | None = None


class AgentState(NamedTuple):
    """What an agent carries."""

    belief: BeliefState
    target: PyTree
    """The target network's parameters, none where they are always the online ones (period 1). Priors are not in it, so
    online and target share them."""
    buffer: Any
    """A `replay.Buffer`; nothing where transitions are kept elsewhere."""
    index: PyTree
    """The function drawn for this episode."""
    updates: Int[Array, ""]
    episodes: Int[Array, ""]
    """Episodes that ended so far, over all lanes."""


class QLearner(eqx.Module):
    """Thompson sampling with Q-learning on the loss of equation (6)."""

    belief: Belief
    buffer: EnsembleBuffer = eqx.field(static=True)
    batch_size: int = eqx.field(static=True, default=128)
    discount: float | Float[Array, ""] = 0.99
    """gamma."""
    target_period: int = eqx.field(static=True, default=1)
    """Updates between copies into the target network; 1 is the paper's algorithm 2."""
    target_rate: float = eqx.field(static=True, default=1.0)
    """How far the target network then moves to the online one: 1 is a copy, less an average over past weights, which
    has less of the optimiser's noise, so that its maximum over actions overestimates less."""
    double_q: bool = eqx.field(static=True, default=False)
    """Let the online network choose the next action."""
    shared_batch: bool = eqx.field(static=True, default=False)
    """One minibatch for all members, with masks as weights; else each draws its own."""
    draw_each_step: bool = eqx.field(static=True, default=False)
    """Draw a new function at each step instead of each episode."""
    epsilon: float | Float[Array, ""] | None = None
    """Dithering: the chance of a random action in the first episode; None: none."""
    epsilon_episodes: int = eqx.field(static=True, default=2000)
    """Over so many episodes epsilon falls linearly to zero; 0: it stays."""
    n_step: int = eqx.field(static=True, default=1)
    """Rewards summed before the bootstrap; fewer where the episode ends or the newest transition comes first."""
    bonus_at: str = eqx.field(static=True, default="learning")
    """When a belief that counts pays its bonus beta/sqrt(N(s)) with the reward. insertion: by the visits before this
    one, for good; learning: by the visits so far, each time that the transition is replayed."""
    epsilon_ladder: float = eqx.field(static=True, default=0.0)
    """How far epsilon differs between lanes: in lane i of N it is taken to the power 1 + epsilon_ladder * i/(N-1), as
    Ape-X does with 7. 0: all have the same; where there is one lane it changes nothing."""

    def __check_init__(self) -> None:
        positive_int("batch_size", self.batch_size)
        positive_int("target_period", self.target_period)
        if self.epsilon_episodes != 0:
            positive_int("epsilon_episodes", self.epsilon_episodes)
        non_negative("epsilon_ladder", self.epsilon_ladder)
        if not 0 < self.target_rate <= 1:
            raise ValueError(f"target_rate={self.target_rate} must be above 0 and at most 1; pass 1 for copies")
        positive_int("n_step", self.n_step)
        one_of("bonus_at", self.bonus_at, ("insertion", "learning"))
        if isinstance(self.epsilon, float) and not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon={self.epsilon} must be between 0 and 1; pass for example 0.1")
        if not self.belief.by_gradient:
            raise ValueError(
                f"{type(self.belief).__name__} conditions on targets when it observes, and Q-learning does not know "
                "them then; use a belief that learns by gradient"
            )
        if self.batch_size > self.buffer.capacity:
            raise ValueError(
                f"batch_size={self.batch_size} exceeds capacity={self.buffer.capacity}; "
                "raise capacity or lower batch_size"
            )
        if self.buffer.num_streams != self.belief.num_streams:
            raise ValueError(
                f"num_streams={self.buffer.num_streams} of the buffer differs from the belief's "
                f"{self.belief.num_streams}; give both the same"
            )
        if self.buffer.priority > 0 and not self.shared_batch:
            raise ValueError(
                f"priority={self.buffer.priority} draws one minibatch for all members; use shared_batch=True"
            )
        if isinstance(self.belief, Ensemble) and self.belief.is_sparse:
            if self.buffer.priority > 0:
                raise ValueError(f"priority={self.buffer.priority} does not go with sparse rows; use sparse_rows='no'")
            if self.lagged:
                raise ValueError(
                    f"target_period={self.target_period}, target_rate={self.target_rate} would copy the whole table "
                    "that sparse_rows spares; use target_period=1, target_rate=1 or sparse_rows='no'"
                )
            if self.shared_batch != (self.belief.sparse_rows == "shared"):
                raise ValueError(
                    f"shared_batch={self.shared_batch} does not go with sparse_rows={self.belief.sparse_rows!r}; "
                    f"use sparse_rows={'shared' if self.shared_batch else 'own'!r}"
                )

    @property
    def num_actions(self) -> int:
        return self.belief.num_outputs

    @property
    def lagged(self) -> bool:
        """Whether the target network is another than the online one."""
        return self.target_period > 1 or self.target_rate < 1

    def followed(self, updates: Array, new: PyTree, old: PyTree) -> PyTree:
        """The target network after an update."""
        rate = jnp.where(updates % self.target_period == 0, self.target_rate, 0.0)
        return jax.tree.map(lambda a, b: jnp.where(rate == 1, a, b + rate * (a - b)), new, old)

    def init(self, key: PRNGKeyArray, obs: Any) -> AgentState:
        """A fresh agent; obs is one example observation."""
        state = self.init_without_buffer(key, obs)
        zero = jnp.zeros(())
        transition = Transition(obs, zero.astype(int), zero, obs, zero.astype(bool), zero.astype(bool))
        return state._replace(buffer=self.buffer.init(self._stored(state.belief, transition)))

    def init_without_buffer(self, key: PRNGKeyArray, obs: Any) -> AgentState:
        """A fresh agent whose transitions are kept elsewhere."""
        key_belief, key_draw = jax.random.split(key)
        belief = self.belief.init(key_belief, obs)
        target = belief.params if self.lagged else ()
        index, none = self.belief.draw(belief, key_draw), jnp.zeros((), int)
        return AgentState(belief, target, (), index, none, none)

    def start_episode(self, state: AgentState, key: PRNGKeyArray) -> AgentState:
        """Draw the function to follow: a member, uniformly, for an ensemble."""
        return state._replace(index=self.belief.draw(state.belief, key), episodes=state.episodes + 1)

    def act(self, state: AgentState, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
        """Greedy on the drawn function, ties broken at random; dithering where epsilon says so."""
        key_draw, key_tie, key_dither, key_random = jax.random.split(key, 4)
        index = self.belief.draw(state.belief, key_draw) if self.draw_each_step else state.index
        values = self.belief.value(state.belief, index, obs)
        action = greedy(key_tie, values)
        if self.epsilon is None:
            return action
        epsilon = self.epsilon_after(state.episodes)
        other = jax.random.randint(key_random, (), 0, self.belief.num_outputs)
        return jnp.where(jax.random.uniform(key_dither) < epsilon, other, action)

    def epsilon_after(self, episodes: Any) -> Float[Array, ""]:
        """The chance of a random action once so many episodes have ended, over all lanes."""
        if self.epsilon is None:
            return jnp.zeros(())
        if self.epsilon_episodes == 0:
            return jnp.asarray(self.epsilon)
        return self.epsilon * jnp.maximum(0.0, 1.0 - episodes / self.epsilon_episodes)

    def mean_values(self, state: AgentState, key: PRNGKeyArray, obs: Any) -> Float[Array, "batch action"]:
        """The mean of the belief's functions on a batch of observations: what one would act on to exploit."""
        return jnp.mean(belief_values(self.belief, state.belief, key, obs), axis=0)

    def exploit(self, state: AgentState, key: PRNGKeyArray, obs: Any) -> Int[Array, ""]:
        return best_by_mean(self, state, key, obs)

    def update_buffer(self, state: AgentState, key: PRNGKeyArray, transition: Transition) -> AgentState:
        """Remember one transition; beliefs that count, count it."""
        if isinstance(self.belief, Counts) and self.bonus_at == "insertion":
            bonus = self.belief.bonus(state.belief, transition.obs)
            transition = transition._replace(reward=transition.reward + bonus)
        once = plain_batch(
            jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], transition.obs),
            jnp.zeros((1, self.belief.num_outputs)),
            self.belief.num_streams,
        )
        belief = self.belief.observe(state.belief, once)
        buffer = self.buffer.add(state.buffer, self._stored(belief, transition), key)
        return state._replace(belief=belief, buffer=buffer)

    def learn_from_buffer(self, state: AgentState, key: PRNGKeyArray) -> tuple[AgentState, Info]:
        """Algorithm 2: one optimiser step of every member on its own minibatch. Who has no data learns nothing."""
        key_slots, key_target, key_online = jax.random.split(key, 3)
        counts = self.buffer.counts(state.buffer)
        if self.shared_batch:
            slots, weight = self.buffer.sample_shared(state.buffer, key_slots, self.batch_size)
        else:
            slots = self.buffer.sample_slots(state.buffer, key_slots, self.batch_size)
            weight = jnp.ones((self.belief.num_streams, self.batch_size))
        step, stored_prior, stored_next, discount = self._sampled(state, slots)
        prior, next_prior = (self._by_stream(part) for part in (stored_prior, stored_next))
        sampled = Sampled(
            step.obs, step.action, step.reward, discount, step.next_obs, weight, counts, prior, next_prior
        )
        after, info = self.learn(state, sampled, key_target, key_online)
        if self.buffer.priority > 0 and info.examples is not None:
            after = after._replace(buffer=self.buffer.prioritise(state.buffer, slots, errors(info, weight > 0)))
        return after, info

    def learn(
        self, state: AgentState, batch: Sampled, key_target: PRNGKeyArray, key_online: PRNGKeyArray
    ) -> tuple[AgentState, Info]:
        """One optimiser step on the loss of equation (6), on these transitions; replay is not looked at."""
        streams = self.belief.num_streams
        target_state = state.belief._replace(params=state.target) if self.lagged else state.belief
        following = self.belief.forward(target_state, key_target, batch.next_obs, batch.next_prior, self.shared_batch)
        selector = None
        if self.double_q:
            online = self.belief.forward(state.belief, key_target, batch.next_obs, batch.next_prior, self.shared_batch)
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
            self.shared_batch,
        )
        belief, info = self.belief.update(state.belief, examples, key_online)
        updates = state.updates + 1
        kept = self.followed(updates, belief.params, state.target) if self.lagged else ()
        return state._replace(belief=belief, target=kept, updates=updates), info

    def _sampled(self, state: AgentState, slots: Int[Array, "*stream batch"]) -> tuple[Transition, Any, Any, Array]:
        """The transitions in those slots, over n_step steps: from s to where the bootstrap is, with the rewards between
        them and the discount that is left; prior values at both ends."""
        first: Stored = self.buffer.get(state.buffer, slots)
        step = first.transition

        def paid(step: Transition) -> Array:
            if isinstance(self.belief, Counts) and self.bonus_at == "learning":
                return step.reward + self.bonus(state.belief, step.obs, 1 if self.shared_batch else 2)
            return step.reward

        last, reward, discount = self.buffer.returns(
            state.buffer,
            slots,
            self.n_step,
            self.discount,
            lambda slots: self.buffer.get(state.buffer, slots).transition,
            paid,
        )
        end: Stored = self.buffer.get(state.buffer, last)
        whole = step._replace(reward=reward, next_obs=end.transition.next_obs, terminated=end.transition.terminated)
        return whole, first.prior, end.next_prior, discount

    def _stored(self, belief: BeliefState, transition: Transition) -> Stored:
        if self.n_step == 1:
            transition = transition._replace(ended=None)
        if not isinstance(self.belief, ENSEMBLES) or self.belief.prior is None or isinstance(self.belief.prior, TABLES):
            return Stored(transition, None, None)  # no prior, or one that is only looked up
        both = jax.tree.map(lambda a, b: jnp.stack([a, b]), transition.obs, transition.next_obs)
        values = self.belief.prior_values(belief, both)
        assert values is not None
        return Stored(transition, values[:, 0], values[:, 1])

    def bonus(self, belief: BeliefState, obs: Any, axes: int = 1) -> Array:
        """What a belief that counts pays at observations behind so many axes."""
        counts = self.belief
        assert isinstance(counts, Counts)
        one = lambda row: counts.bonus(belief, row)  # noqa: E731
        for _ in range(axes):
            one = jax.vmap(one)
        return one(obs)

    def _by_stream(self, prior: Array | None) -> Float[Array, "stream batch output prior"] | None:
        """Stored prior values [..., batch, stream, output, prior] as each stream's own."""
        if prior is None:
            return None
        if self.shared_batch:
            return jnp.moveaxis(prior, 1, 0)
        return jax.vmap(lambda own, k: own[:, k])(prior, jnp.arange(self.belief.num_streams))


def errors(info: Info, mask: Bool[Array, "stream batch"]) -> Float[Array, " batch"]:
    """How wrong each transition of a minibatch was, for its priority in replay: the mean, over the members that own it,
    of the root of its loss (of plain values, |TD error|)."""
    assert info.examples is not None
    return owned_mean(jnp, jnp.sqrt(jnp.maximum(info.examples, 0.0)), mask)


def owned_mean(xp: Any, size: Any, mask: Any) -> Any:
    """The mean over the members (first axis) whose mask is on; over all where none is."""
    weight = xp.where(xp.sum(mask, axis=0) > 0, mask, True).astype(size.dtype)
    return xp.sum(weight * size, axis=0) / xp.sum(weight, axis=0)
