"""`ensemble_buffer` (appendix A): K buffers in the memory of one.

One ring holds the transitions. A transition belongs to stream k with probability `mask_prob`, drawn once at insertion
(algorithm 4). Each stream keeps a ring of the insertion times of its own transitions, so that it can draw a full
minibatch from them, uniformly and exactly; with `mask_prob` 1 every transition is everyone's and no ring is kept.

With `priority` above 0 shared minibatches are drawn in proportion to error^priority (Schaul et al. 2016), and weighted
so that what is learned leans to the uniform.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from priorax.checks import non_negative, positive_int
from priorax.replay import sum_tree
from priorax.replay.returns import Window, n_step_return


class Transition(NamedTuple):
    """(s, a, r, s') of the paper, with termination told apart from truncation: only termination cuts the bootstrap."""

    obs: PyTree
    action: Int[Array, "..."]
    reward: Float[Array, "..."]
    next_obs: PyTree
    """The true one, before any reset."""
    terminated: Bool[Array, "..."]
    ended: Bool[Array, "..."] | None = None
    """Whether the episode ended here in any way, for returns over many steps."""


class Buffer(NamedTuple):
    """What is stored. Time t lives in slot t mod capacity."""

    data: PyTree
    """Transitions, and whatever is kept beside them: [slot, ...]."""
    mask: Bool[Array, "slot stream"]
    time: Int[Array, ""]
    """Transitions ever inserted."""
    own: Int[Array, "stream slot"]
    """Insertion times of each stream's own transitions, a ring; empty where mask_prob is 1."""
    own_inserted: Int[Array, " stream"]
    """Own transitions ever inserted."""
    own_count: Int[Array, " stream"]
    """Own transitions still stored."""
    priority: sum_tree.Levels
    """What each slot is drawn in proportion to; nothing where draws are uniform."""
    highest: Float[Array, ""]
    """The highest priority so far: what a new transition gets."""


@dataclass(frozen=True)
class EnsembleBuffer:
    """Settings and pure functions; the state is a `Buffer`."""

    capacity: int
    """How many transitions are kept."""
    num_streams: int
    """K."""
    mask_prob: float = 0.5
    """The chance that a transition belongs to a stream; 1: no bootstrap."""
    priority: float = 0.0
    """The power of its error that a transition is drawn in proportion to; 0: uniformly."""
    importance: float = 0.4
    """How far weights undo that: 0 not at all, 1 wholly."""

    def __post_init__(self) -> None:
        positive_int("capacity", self.capacity)
        positive_int("num_streams", self.num_streams)
        if not 0 < self.mask_prob <= 1:
            raise ValueError(f"mask_prob={self.mask_prob} must be above 0 and at most 1; pass 0.5, or 1 (no bootstrap)")
        non_negative("priority", self.priority)
        non_negative("importance", self.importance)

    @property
    def shared(self) -> bool:
        """Whether every transition is everyone's."""
        return self.mask_prob == 1

    def init(self, example: PyTree) -> Buffer:
        """Room for transitions like the example: any pytree, any dtype."""
        data = jax.tree.map(lambda leaf: jnp.zeros((self.capacity, *jnp.shape(leaf)), jnp.asarray(leaf).dtype), example)
        rings = 0 if self.shared else self.capacity
        return Buffer(
            data,
            jnp.zeros((rings, self.num_streams), bool),
            jnp.zeros((), int),
            jnp.zeros((self.num_streams, rings), int),
            jnp.zeros(self.num_streams, int),
            jnp.zeros(self.num_streams, int),
            sum_tree.empty(jnp, self.capacity) if self.priority > 0 else (),
            jnp.ones(()),
        )

    def add(self, buffer: Buffer, transition: PyTree, key: PRNGKeyArray) -> Buffer:
        """Insert one transition; its masks are drawn here and never again."""
        slot = buffer.time % self.capacity
        data = jax.tree.map(lambda ring, leaf: ring.at[slot].set(leaf), buffer.data, transition)
        if self.priority > 0:
            buffer = buffer._replace(priority=sum_tree.write(jnp, buffer.priority, slot[None], buffer.highest[None]))
        if self.shared:
            return buffer._replace(data=data, time=buffer.time + 1)
        mask = jax.random.bernoulli(key, self.mask_prob, (self.num_streams,))
        lost = buffer.mask[slot] & (buffer.time >= self.capacity)
        place = jnp.where(mask, buffer.own_inserted % self.capacity, self.capacity)
        return buffer._replace(
            data=data,
            mask=buffer.mask.at[slot].set(mask),
            time=buffer.time + 1,
            own=buffer.own.at[jnp.arange(self.num_streams), place].set(buffer.time, mode="drop"),
            own_inserted=buffer.own_inserted + mask,
            own_count=buffer.own_count + mask - lost,
        )

    def counts(self, buffer: Buffer) -> Int[Array, " stream"]:
        """How many transitions each stream owns."""
        if self.shared:
            return jnp.broadcast_to(jnp.minimum(buffer.time, self.capacity), (self.num_streams,))
        return buffer.own_count

    def sample_slots(self, buffer: Buffer, key: PRNGKeyArray, size: int) -> Int[Array, "stream batch"]:
        """Slots of each stream's own transitions, uniform with replacement; slot 0 for a stream that has none."""
        counts = self.counts(buffer)[:, None].astype(jnp.uint32)
        bits = jax.random.bits(key, (self.num_streams, size))
        back = (bits % jnp.maximum(counts, 1)).astype(int)  # 0 is the newest
        if self.shared:
            return (buffer.time - 1 - back) % self.capacity
        place = (buffer.own_inserted[:, None] - 1 - back) % self.capacity
        return jnp.take_along_axis(buffer.own, place, axis=1) % self.capacity

    def sample_shared(self, buffer: Buffer, key: PRNGKeyArray, size: int) -> tuple[Int[Array, " batch"], Array]:
        """One minibatch for all streams: slots, and weights [stream, batch]: of mean one (1/mask_prob where owned), by
        importance where draws are not uniform."""
        stored = jnp.minimum(buffer.time, self.capacity)
        if self.priority > 0:
            slots, weight = self._draw(buffer, key, size, jnp.maximum(stored, 1))
        else:
            slots = (jax.random.bits(key, (size,)) % jnp.maximum(stored, 1).astype(jnp.uint32)).astype(int)
            weight = jnp.ones(size)
        if self.shared:
            return slots, jnp.broadcast_to(weight, (self.num_streams, size))
        return slots, weight * buffer.mask[slots].T / self.mask_prob

    def _draw(self, buffer: Buffer, key: PRNGKeyArray, size: int, stored: Array) -> tuple[Array, Array]:
        """Slots in proportion to their priorities, and their weights by importance, the largest one."""
        slots, share = sum_tree.draw(jnp, buffer.priority, jax.random.uniform(key, (size,)))
        slots = jnp.minimum(slots, stored - 1)  # of an empty buffer, any
        weight = (stored * jnp.maximum(share, 1e-30)) ** -self.importance
        return slots, weight / jnp.max(weight)

    def prioritise(self, buffer: Buffer, slots: Int[Array, " batch"], error: Float[Array, " batch"]) -> Buffer:
        """Learn from the errors just seen how soon to look at those transitions again."""
        new = (error + 1e-3) ** self.priority
        return buffer._replace(
            priority=sum_tree.write(jnp, buffer.priority, slots, new), highest=jnp.maximum(buffer.highest, jnp.max(new))
        )

    def returns(
        self,
        buffer: Buffer,
        slots: Int[Array, "..."],
        n: int,
        discount: Any,
        transitions: Callable[[Array], Transition],
        reward: Callable[[Transition], Array] = lambda step: step.reward,
    ) -> tuple[Int[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
        """Over up to n steps from those in the slots: the slot of the last, their discounted rewards, and the discount
        that is left for the bootstrap there (zero after a termination). Fewer than n where an episode ends, or where
        the newest transition comes first. `transitions` fetches slots."""
        age = (buffer.time - 1 - slots) % self.capacity  # 0 is the newest

        def window(j: int) -> Window:
            step = transitions((slots + j) % self.capacity)
            return Window(reward(step), step.terminated, step.ended)

        found = n_step_return(jnp, n, discount, window, lambda j: age >= j)
        return (slots + found.last) % self.capacity, found.reward, found.discount

    def get(self, buffer: Buffer, slots: Int[Array, "..."]) -> Any:
        """The transitions in those slots."""
        return jax.tree.map(lambda ring: ring[slots], buffer.data)
