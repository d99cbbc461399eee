"""Backend for compiled environments: runs the compiled loop (`loop.py`) in chunks of steps, between which the trainer
acts.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from priorax.agents import check_members_differ, nearby
from priorax.agents.deploy import Values, best
from priorax.checks import NonFinite, positive_int
from priorax.envs import num_states
from priorax.envs.interface import Interface, interface_of_environment
from priorax.fitting import NonFiniteLoss
from priorax.replay import Buffer, sum_tree
from priorax.storage import restore_tree, tree_arrays
from priorax.training.backends.loop import (
    Live,
    Loop,
    Steps,
    run_chunk,
    start,
    with_transitions,
    without_transitions,
)
from priorax.training.checkpoint import Checkpoints
from priorax.training.records import Arrays, Ended, Inserted, ReplayFacts, Snapshot
from priorax.training.sharding import devices_for, on_each, spread_members

CHUNK = 1000
"""Actions in one compiled call."""
LONGEST = 10_000
"""Maximum length of an evaluation episode in actions, if the environment declares none."""


class ScanBackend:
    """A run in one compiled scan. Resumed from a checkpoint, it gives bit-identical results."""

    name = "scan"
    cluster = None

    def __init__(self, loop: Loop, key: PRNGKeyArray, params: Any, chunk: int | None = None, devices: int = 1) -> None:
        """Initialise the run.

        Args:
            loop: Agent and environment.
            key: PRNG key of the run.
            params: Parameters of the environment.
            chunk: Actions in one compiled call, by default `CHUNK`; results do not depend on it.
            devices: Number of devices over which members are spread; 0: as many as possible.

        Raises:
            ValueError: If members cannot be spread over that many devices, or all members of the agent's ensemble, or
                all their priors, are the same function.
        """
        self.loop, self.key, self.params = loop, key, params
        self.chunk = positive_int("chunk", CHUNK if chunk is None else chunk)
        self.agent = loop.agent
        self.interface: Interface | None = interface_of_environment(loop.env, params)
        self.devices = devices_for(loop.agent, devices)
        self.live = self._spread(start(loop, key, params))
        self.steps = 0
        self.total, self.length = 0.0, 0
        """Return and length, in environment steps, of the episode in progress."""
        self.loss: float | None = None
        check_members_differ(self.agent, self.live.agent, nearby(self.live.obs))

    @property
    def state(self) -> Any:
        return self.live.agent

    @property
    def updates(self) -> int:
        return int(getattr(self.live.agent, "updates", 0))

    @property
    def cells(self) -> int | None:
        return None

    @property
    def variety(self) -> int | None:
        """Number of distinct states in replay, if the environment has finitely many states."""
        replay = self.loop.replay
        if replay is None or num_states(self.loop.env) is None:
            return None
        kept = int(replay.size(self.live.replay))
        return len(np.unique(np.asarray(self.live.replay.data.transition.obs)[:kept]))

    @property
    def tells_regret(self) -> bool:
        return bool(getattr(self.loop.env, "tells_regret", False))

    @property
    def tells_solved(self) -> bool:
        return hasattr(self.loop.env, "optimal_path")

    def advance(self, limit: int | None, last: Callable[[Ended], bool]) -> list[Ended]:
        """Run one chunk, or up to the episode with which the run ends.

        Args:
            limit: Maximum number of actions.
            last: Function that tells whether the run ends with an episode.

        Returns:
            The episodes that finished.

        Raises:
            NonFinite: If a reward, an observation or the loss is NaN or infinite.
        """
        length = self.chunk if limit is None else min(limit, self.chunk)
        steps, rewind = self._run(length)
        losses = self._last_losses(steps, length)
        ended, rest = self._ended(steps, length, losses)
        for i, episode in enumerate(ended):
            if last(episode):
                if episode.step < self.steps + length:  # run again up to this episode's end, for the agent at that time
                    length, rest = episode.step - self.steps, (0.0, 0)
                    rewind()
                    self._run(length)
                ended = ended[: i + 1]
                break
        self.loss = losses[length - 1]
        self.steps, (self.total, self.length) = self.steps + length, rest
        return ended

    def _run(self, length: int) -> tuple[Steps, Callable[[], None]]:
        """Run a number of steps; return their results, and a function that restores the state before them.

        Transitions are written in place, so that those that these steps may overwrite are kept aside.
        """
        before, overwritten = self.live, _next_slots(self.live, self.chunk)

        def rewind() -> None:
            self.live = _written_back(before, self.live, overwritten)

        self.live, steps = run_chunk(self.loop, self.key, self.params, self.live, self.chunk, jnp.asarray(length))
        steps = jax.tree.map(np.asarray, steps)
        try:
            self._refuse_non_finite(steps)
        except NonFinite:
            rewind()
            raise
        return steps, rewind

    def _ended(self, steps: Steps, length: int, losses: list[float | None]) -> tuple[list[Ended], tuple[float, int]]:
        """Collect the finished episodes, and the return and length of the episode in progress."""
        places = np.flatnonzero(steps.done[:length])
        paid = np.split(steps.reward[:length].astype(float), places + 1)
        taken = np.split(steps.taken[:length].astype(int), places + 1)
        totals, lengths = [float(part.sum()) for part in paid], [int(part.sum()) for part in taken]
        totals[0], lengths[0] = totals[0] + self.total, lengths[0] + self.length
        ended = [
            Ended(
                self.steps + int(t) + 1,
                0,
                totals[i],
                lengths[i],
                losses[t],
                bool(steps.bad[t]) if self.tells_regret else None,
                bool(steps.solved[t]) if self.tells_solved else None,
            )
            for i, t in enumerate(places)
        ]
        return ended, (totals[-1], lengths[-1])

    def _last_losses(self, steps: Steps, length: int) -> list[float | None]:
        """Find the loss of the last update, at each step of a chunk; a step without an update has a loss of zero."""
        last = np.maximum.accumulate(np.where(steps.loss[:length] != 0, np.arange(length), -1))
        return [float(steps.loss[t]) if t >= 0 else self.loss for t in last]

    def _refuse_non_finite(self, steps: Steps) -> None:
        """Raise for the first NaN or infinite reward, observation or loss of a chunk."""
        found = {"reward": steps.reward, "observation": steps.non_finite, "loss": steps.loss}
        wrong = {what: np.flatnonzero(~np.isfinite(part)) for what, part in found.items()}
        at = {what: int(places[0]) for what, places in wrong.items() if len(places)}
        if not at:
            return
        what = min(at, key=at.__getitem__)
        value, step = found[what][at[what]], self.steps + 1 + at[what]
        if what == "loss":
            raise NonFiniteLoss(f"the loss became {value} at step {step}; lower the learning rate")
        raise NonFinite(
            f"the environment gave the {what} {value} at step {step} in lane 0; fix the environment, or wrap it so "
            "that rewards and observations are finite"
        )

    def snapshot(self) -> Snapshot:
        state = tree_arrays(_light(self.live))
        in_progress = {"total": self.total, "length": self.length, "loss": np.nan if self.loss is None else self.loss}
        state |= {f"run.{name}": np.asarray(number) for name, number in in_progress.items()}
        if self.loop.replay is None:
            return Snapshot(self.steps, state)
        settings = self.loop.replay.settings
        return Snapshot(self.steps, state, Inserted(int(self.live.replay.time), settings.capacity, self._inserted))

    def restore(self, checkpoints: Checkpoints) -> None:
        shape = jax.eval_shape(lambda key, params: self.loop.init(key, params), self.key, self.params)
        with checkpoints.explained():
            arrays = checkpoints.state()
            self.total, self.length = float(arrays.pop("run.total")), int(arrays.pop("run.length"))
            loss = float(arrays.pop("run.loss"))
            self.loss = None if np.isnan(loss) else loss
            live: Live = restore_tree(_light(shape), arrays)
            if self.loop.replay is not None:
                live = live._replace(replay=self._refill(shape.replay, live.replay, checkpoints))
        self.live, self.steps = self._spread(live), int(live.step)

    def resume(self, state: Any, steps: int) -> None:
        self.live = self.live._replace(agent=spread_members(self.agent, state, self.devices))

    def evaluate(self, episodes: int, deploy: str, seed: int) -> list[float]:
        """Evaluate the deployed policy in all episodes at once, with at most `LONGEST` actions each.

        Args:
            episodes: Number of episodes.
            deploy: How actions are chosen, as in `Policy.predict`.
            seed: Seed of these episodes.

        Returns:
            The returns.
        """
        limit = getattr(self.loop.env, "horizon", None) or getattr(self.params, "max_steps_in_episode", None) or LONGEST
        key = jax.random.fold_in(jax.random.key(seed), self.steps)
        return np.asarray(_returns(self.loop, self.params, self.state, key, episodes, deploy, int(limit))).tolist()

    def recent(self, count: int) -> tuple[Any, Any] | None:
        replay = self.loop.replay
        kept = 0 if replay is None else int(replay.size(self.live.replay))
        if replay is None or kept == 0:
            return None
        step = replay.get(self.live.replay, jax.random.randint(jax.random.key(0), (count,), 0, kept)).transition
        return step.obs, step.action

    def replay_facts(self) -> ReplayFacts | None:
        replay = self.loop.replay
        if replay is None:
            return None
        buffer, size = self.live.replay, int(replay.size(self.live.replay))
        slots = np.arange(size)
        priorities = np.asarray(sum_tree.read(buffer.priority, slots)) if buffer.priority else np.ones(size)
        return ReplayFacts(size, np.asarray(replay.counts(buffer)), priorities)

    def close(self) -> None:
        """Do nothing: there are no open resources."""

    def _spread(self, live: Live) -> Live:
        """Spread the members over the devices; environment and replay are on each of them."""
        rest = on_each(live._replace(agent=()), self.devices)
        return rest._replace(agent=spread_members(self.agent, live.agent, self.devices))

    def _inserted(self, first: int, end: int) -> Arrays:
        assert self.loop.replay is not None
        buffer = self.live.replay
        slots = np.arange(first, end) % self.loop.replay.settings.capacity
        return tree_arrays(jax.tree.map(lambda ring: np.asarray(ring)[slots], buffer.data))

    def _refill(self, whole: Buffer, light: Buffer, checkpoints: Checkpoints) -> Buffer:
        """Restore replay from the files of a checkpoint."""
        assert self.loop.replay is not None
        settings = self.loop.replay.settings
        data = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), whole.data)
        for first, end, arrays in checkpoints.replay():
            part = jax.tree.map(
                lambda ring, n=end - first: jax.ShapeDtypeStruct((n, *ring.shape[1:]), ring.dtype), data
            )
            slots = np.arange(first, end) % settings.capacity
            for ring, rows in zip(jax.tree.leaves(data), jax.tree.leaves(restore_tree(part, arrays)), strict=True):
                ring[slots] = np.asarray(rows)
        own = np.zeros(whole.own.shape, whole.own.dtype)
        if own.size:
            times = np.arange(max(0, int(light.time) - settings.capacity), int(light.time))
            for k, inserted in enumerate(np.asarray(light.own_inserted)):
                mine = times[data.mask[times % settings.capacity, k]]
                own[k, np.arange(inserted - len(mine), inserted) % settings.capacity] = mine
        filled = jax.tree.map(jnp.asarray, (data, own))
        return light._replace(data=filled[0], own=filled[1])


@eqx.filter_jit
def _next_slots(live: Live, count: int) -> PyTree:
    """Copy the transitions in the slots that the next insertions overwrite."""
    transitions = without_transitions(live)[1]
    return jax.tree.map(lambda ring: ring[_slots(live, ring, count)], transitions)


def _written_back(before: Live, after: Live, overwritten: PyTree) -> Live:
    """Restore the state before a chunk, whose transitions were changed in place to those after it."""
    light, transitions = without_transitions(before)[0], without_transitions(after)[1]

    def restored(ring: Array, old: Array) -> Array:
        return ring.at[_slots(before, ring, len(old))].set(old)

    return with_transitions(light, jax.tree.map(restored, transitions, overwritten))


def _slots(live: Live, ring: Array, count: int) -> Array:
    return (live.replay.time + jnp.arange(count)) % len(ring)


def _light(live: Any) -> Any:
    """Remove the large arrays of replay from the state of a run."""
    return live if live.replay == () else live._replace(replay=live.replay._replace(data=(), own=()))


@eqx.filter_jit
def _returns(loop: Loop, params: Any, state: Any, key: PRNGKeyArray, episodes: int, deploy: str, limit: int) -> Array:
    agent, env = loop.agent, loop.env
    key_start, key_member, key_steps = jax.random.split(key, 3)
    obs, inside = jax.vmap(lambda key: env.reset(key, params))(jax.random.split(key_start, episodes))
    deployed = agent.deployed(state, jax.random.key(0))

    def actions(obs: Any) -> Array:
        if deploy == "mean":
            return jax.vmap(lambda one: agent.exploit(deployed, jax.random.key(0), one))(obs)
        mean, functions = agent.values(deployed, jax.random.key(0), obs)
        drawn = jax.random.randint(key_member, (episodes,), 0, len(functions))
        return best(Values(mean, functions.std(axis=0), functions), deploy, drawn)

    def going(carry: Any) -> Array:
        t, *_, over = carry
        return (t < limit) & ~jnp.all(over)

    def step(carry: Any) -> Any:
        t, obs, inside, total, over = carry
        keys = jax.random.split(jax.random.fold_in(key_steps, t), episodes)
        after = jax.vmap(env.step, (0, 0, 0, None))(keys, inside, actions(obs), params)
        obs, inside, reward, terminated, truncated, _ = after
        total = total + jnp.where(over, 0.0, reward)
        return t + 1, obs, inside, total, over | terminated | truncated

    first = (jnp.zeros((), int), obs, inside, jnp.zeros(episodes), jnp.zeros(episodes, bool))
    return jax.lax.while_loop(going, step, first)[3]


def live(loop: Loop, key: PRNGKeyArray, params: Any, *, episodes: int, chunk: int = CHUNK) -> Iterator[Ended]:
    """Run a number of episodes, as a generator; logging and stopping are up to the caller.

    Args:
        loop: Agent and environment.
        key: PRNG key of the run.
        params: Parameters of the environment.
        episodes: Number of episodes.
        chunk: Actions per compiled call; results do not depend on it.

    Returns:
        An iterator of finished episodes.
    """
    positive_int("episodes", episodes)
    backend, done = ScanBackend(loop, key, params, chunk), 0
    while done < episodes:
        for ended in backend.advance(None, lambda _: False)[: episodes - done]:
            done += 1
            yield ended
