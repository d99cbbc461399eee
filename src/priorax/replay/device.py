"""Replay on the device (`ensemble_buffer` of appendix A): K bootstrapped buffers in the memory of one.

One ring buffer holds the transitions. A transition belongs to stream k with probability `mask_prob`, drawn once at
insertion (algorithm 4). If streams draw minibatches of their own, each has a ring buffer of the insertion times of its
transitions, so that it can sample a full minibatch from them, exactly uniformly; with a shared minibatch, or with
`mask_prob` 1, where every stream owns every transition, these buffers are empty.

With `priority` above 0, shared minibatches are sampled in proportion to (|error| + 0.001)^priority (Schaul et al. 2016)
and weighted by importance sampling.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from priorax.replay import sum_tree
from priorax.replay.base import Path, Replay, Return, Sampled, Transition, Window, n_step_return


class Stored(NamedTuple):
    """Stored data of one step. Prior functions never change, so their values may be stored with the transition."""

    transition: Transition
    """The transition."""
    prior: Float[Array, "stream output prior"] | None = None
    """Prior values at the observation."""
    next_prior: Float[Array, "stream output prior"] | None = None
    """Prior values at the next observation."""
    mask: Bool[Array, " stream"] | None = None
    """Which streams own the transition, drawn at insertion; None if mask_prob is 1."""


class Buffer(NamedTuple):
    """Contents of a replay buffer. The transition inserted at time t is in slot t mod capacity."""

    data: Stored
    """Stored steps, [slot, ...]."""
    time: Int[Array, ""]
    """Number of insertions so far."""
    own: Int[Array, "stream slot"]
    """Ring buffers of the insertion times of each stream's own transitions; empty if mask_prob is 1 or minibatches are
    shared."""
    own_inserted: Int[Array, " stream"]
    """Number of own transitions inserted so far."""
    own_count: Int[Array, " stream"]
    """Number of own transitions still stored."""
    priority: sum_tree.Levels
    """Sum tree of the slots' priorities; empty for uniform replay."""
    highest: Float[Array, ""]
    """Highest priority so far, given to new transitions."""


@dataclass(frozen=True)
class DeviceReplay:
    """Replay buffer as pure functions on a `Buffer`.

    Attributes:
        settings: Replay settings.
    """

    settings: Replay

    def init(self, example: Stored) -> Buffer:
        """Allocate an empty buffer.

        Args:
            example: An example step: any pytree, any dtype.

        Returns:
            The buffer.
        """
        settings = self.settings
        rings = settings.capacity if settings.bootstraps and not settings.shared_batch else 0
        mask = jnp.zeros(settings.num_streams, bool) if settings.bootstraps else None
        return Buffer(
            jax.tree.map(
                lambda leaf: jnp.zeros((settings.capacity, *jnp.shape(leaf)), jnp.asarray(leaf).dtype),
                self._kept(example)._replace(mask=mask),
            ),
            jnp.zeros((), int),
            jnp.zeros((settings.num_streams, rings), int),
            jnp.zeros(settings.num_streams, int),
            jnp.zeros(settings.num_streams, int),
            sum_tree.empty(jnp, settings.capacity) if settings.priority > 0 else (),
            jnp.ones(()),
        )

    def add(self, buffer: Buffer, step: Stored, key: PRNGKeyArray) -> Buffer:
        """Insert one step, and draw its bootstrap masks.

        Args:
            buffer: The contents.
            step: The step.
            key: PRNG key.

        Returns:
            The new contents.
        """
        settings = self.settings
        slot = buffer.time % settings.capacity
        step = self._kept(step)
        if settings.priority > 0:
            buffer = buffer._replace(priority=sum_tree.write_one(buffer.priority, slot, buffer.highest))
        if settings.bootstraps:
            mask = jax.random.bernoulli(key, settings.mask_prob, (settings.num_streams,))
            step = step._replace(mask=mask)
            buffer, slot = self._owned(buffer, mask, slot)
        data = jax.tree.map(lambda ring, leaf: ring.at[slot].set(leaf), buffer.data, step)
        return buffer._replace(data=data, time=buffer.time + 1)

    def _owned(self, buffer: Buffer, mask: Array, slot: Array) -> tuple[Buffer, Array]:
        """Count a new transition for the streams that own it, in place of the one in its slot; return the slot too."""
        settings = self.settings
        assert buffer.data.mask is not None
        lost = buffer.data.mask[slot] & (buffer.time >= settings.capacity)
        own = buffer.own
        if not settings.shared_batch:
            place = jnp.where(mask, buffer.own_inserted % settings.capacity, settings.capacity)
            own = own.at[jnp.arange(settings.num_streams), place].set(buffer.time, mode="drop")
        counted = buffer._replace(
            own=own, own_inserted=buffer.own_inserted + mask, own_count=buffer.own_count + mask - lost
        )
        # no count is negative: the slot is unchanged, but only known once the old mask was read, so that the compiler
        # needs no copy of all masks
        return counted, jnp.where(jnp.any(counted.own_count < 0), 0, slot)

    def sample(self, buffer: Buffer, key: PRNGKeyArray) -> Sampled:
        """Sample a minibatch, shared or for each stream. From an empty buffer, it returns the first slot.

        Args:
            buffer: The contents.
            key: PRNG key.

        Returns:
            The minibatch.
        """
        settings = self.settings
        if settings.shared_batch:
            slots, weight = self.shared_slots(buffer, key)
        else:
            slots = self.own_slots(buffer, key)
            weight = jnp.ones((settings.num_streams, settings.batch_size))
        found = self._returns(buffer, slots)
        first = self.get(buffer, slots)
        end = self.get(buffer, (slots + found.last) % settings.capacity)
        return Sampled(
            first.transition.obs,
            first.transition.action,
            found.reward,
            found.discount,
            end.transition.next_obs,
            weight,
            self.counts(buffer),
            self._by_stream(first.prior),
            self._by_stream(end.next_prior),
            self._path(buffer, slots, found.last) if settings.paths else None,
            slots,
        )

    def prioritise(self, buffer: Buffer, slots: Int[Array, " batch"], errors: Float[Array, " batch"]) -> Buffer:
        """Update the priorities of transitions by their latest errors; no effect for uniform replay.

        Args:
            buffer: The contents.
            slots: Slot indices.
            errors: TD errors of these transitions.

        Returns:
            The new contents.
        """
        if self.settings.priority == 0:
            return buffer
        new = self.settings.priorities(errors)
        return buffer._replace(
            priority=sum_tree.write(jnp, buffer.priority, slots, new), highest=jnp.maximum(buffer.highest, jnp.max(new))
        )

    def size(self, buffer: Buffer) -> Int[Array, ""]:
        """Get the number of transitions stored.

        Args:
            buffer: The contents.

        Returns:
            The number of transitions.
        """
        return jnp.minimum(buffer.time, self.settings.capacity)

    def counts(self, buffer: Buffer) -> Int[Array, " stream"]:
        """Get the number of transitions that each stream owns.

        Args:
            buffer: The contents.

        Returns:
            One number per stream.
        """
        if self.settings.bootstraps:
            return buffer.own_count
        return jnp.broadcast_to(self.size(buffer), (self.settings.num_streams,))

    def own_slots(self, buffer: Buffer, key: PRNGKeyArray) -> Int[Array, "stream batch"]:
        """Sample slots of each stream's own transitions, uniformly with replacement; slot 0 for a stream without any.

        Args:
            buffer: The contents.
            key: PRNG key.

        Returns:
            Slot indices.
        """
        settings = self.settings
        counts = self.counts(buffer)[:, None].astype(jnp.uint32)
        bits = jax.random.bits(key, (settings.num_streams, settings.batch_size))
        back = (bits % jnp.maximum(counts, 1)).astype(int)  # 0 is the newest
        if not settings.bootstraps:
            return (buffer.time - 1 - back) % settings.capacity
        place = (buffer.own_inserted[:, None] - 1 - back) % settings.capacity
        return jnp.take_along_axis(buffer.own, place, axis=1) % settings.capacity

    def shared_slots(self, buffer: Buffer, key: PRNGKeyArray) -> tuple[Int[Array, " batch"], Array]:
        """Sample slots of one minibatch for all streams.

        Args:
            buffer: The contents.
            key: PRNG key.

        Returns:
            Slot indices, and weights [stream, batch]: 1/mask_prob if the stream owns the transition, else 0, times the
            importance weight.
        """
        settings = self.settings
        size, stored = settings.batch_size, jnp.maximum(self.size(buffer), 1)
        if settings.priority > 0:
            slots, weight = self._draw(buffer, key, stored)
        else:
            slots = (jax.random.bits(key, (size,)) % stored.astype(jnp.uint32)).astype(int)
            weight = jnp.ones(size)
        if buffer.data.mask is None:
            return slots, jnp.broadcast_to(weight, (settings.num_streams, size))
        return slots, weight * buffer.data.mask[slots].T / settings.mask_prob

    def get(self, buffer: Buffer, slots: Int[Array, "..."]) -> Stored:
        """Load stored steps.

        Args:
            buffer: The contents.
            slots: Slot indices.

        Returns:
            The steps.
        """
        return jax.tree.map(lambda ring: ring[slots], buffer.data)

    def _kept(self, step: Stored) -> Stored:
        """Drop the ends of episodes if they are not needed: they only matter to n-step returns."""
        if self.settings.n_step > 1:
            return step
        return step._replace(transition=step.transition._replace(ended=None))

    def _draw(self, buffer: Buffer, key: PRNGKeyArray, stored: Array) -> tuple[Array, Array]:
        """Sample slots in proportion to their priorities, with importance weights, normalised to a maximum of one."""
        slots, share = sum_tree.draw(jnp, buffer.priority, jax.random.uniform(key, (self.settings.batch_size,)))
        slots = jnp.minimum(slots, stored - 1)  # an empty buffer has no valid slot
        weight = (stored * jnp.maximum(share, 1e-30)) ** -self.settings.importance
        return slots, weight / jnp.max(weight)

    def _returns(self, buffer: Buffer, slots: Int[Array, "..."]) -> Return:
        """Compute n-step returns, over fewer steps at the end of an episode or at the newest transition."""
        age = (buffer.time - 1 - slots) % self.settings.capacity  # 0 is the newest

        def window(j: int) -> Window:
            step = self.get(buffer, (slots + j) % self.settings.capacity).transition
            return Window(step.reward, step.terminated, step.ended)

        return n_step_return(jnp, self.settings.n_step, self.settings.discount, window, lambda j: age >= j)

    def _path(self, buffer: Buffer, slots: Int[Array, "..."], last: Array) -> Path:
        steps = range(self.settings.n_step)
        seen = [self.get(buffer, (slots + j) % self.settings.capacity).transition.obs for j in steps]
        weight = jnp.stack([jnp.where(j <= last, self.settings.discount**j, 0.0) for j in steps])
        return Path(jax.tree.map(lambda *leaves: jnp.stack(leaves), *seen), weight)

    def _by_stream(self, prior: PyTree) -> Float[Array, "stream batch output prior"] | None:
        """Rearrange stored prior values [*stream, batch, stream, output, prior] to each stream's own."""
        if prior is None:
            return None
        if self.settings.shared_batch:
            return jnp.moveaxis(prior, 1, 0)
        return jax.vmap(lambda own, k: own[:, k])(prior, jnp.arange(self.settings.num_streams))
