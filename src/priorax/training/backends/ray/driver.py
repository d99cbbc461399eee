"""The driver of a distributed run: it learns, and schedules rollout actors and replay shards.

    rollout actor --steps----> replay shard --minibatches--> learner
          ^                         ^------- errors -----------|
          |------------------------ weights -------------------|

Acting and learning stay in proportion. Actions earn updates, `updates` for every `learn_every`, and only earned updates
are performed; actors wait while more than `slack` updates are due. While no shard has its share of `learn_after`
transitions, nothing is earned and actors do not wait: at the start, and after all of replay was lost.
"""

import functools
import math
import time
from collections import deque
from typing import Any, NamedTuple

import jax
import numpy as np

from priorax.agents import Settings
from priorax.replay import Sampled
from priorax.training.backends.host import Learner
from priorax.training.backends.lanes import seed_for
from priorax.training.backends.ray.cluster import Call, Calls, Worker, import_ray
from priorax.training.backends.ray.rollout import Answer, Rollout, RolloutPlan, Weights
from priorax.training.backends.ray.shard import Shard, ShardPlan
from priorax.training.distinct import Distinct
from priorax.training.records import Ended

ROUNDS = 16
"""Number of rounds that an actor plays with the same weights."""
AHEAD = 4
"""Number of minibatches that are prefetched."""
PUBLISHED_EVERY = 20
"""Updates between publications of the weights."""
NAP = 0.5
"""Maximum number of seconds to wait for a result before checking the clock again."""


class Plans(NamedTuple):
    """The plans of all workers; actor i sends to shard i modulo their number."""

    rollouts: list[RolloutPlan]
    """Plans of the rollout actors."""
    shards: list[ShardPlan]
    """Plans of the replay shards."""


class Since(NamedTuple):
    """Progress of a run, over all actors."""

    rounds: int = 0
    """Number of rounds played by any actor: an action in each of its lanes."""
    steps: int = 0
    """Number of actions."""
    episodes: int = 0
    """Number of finished episodes."""


class Driver:
    """The driver of a distributed run; `turn` performs the next work that is possible."""

    def __init__(
        self,
        learner: Learner,
        plans: Plans,
        chosen: Settings,
        seed: int,
        cells: Distinct,
        since: Since,
        timeout: float,
    ) -> None:
        """Start all workers.

        Args:
            learner: The learner, in this process.
            plans: Plans of the workers.
            chosen: Hyperparameters.
            seed: Seed of the run.
            cells: States seen in earlier parts of the run.
            since: Progress of earlier parts of the run.
            timeout: Seconds in which a worker must answer.
        """
        self.learner, self.chosen = learner, chosen
        self.rounds, self.steps, self.episodes = since
        self.calls = Calls(timeout)
        self.cells = cells
        self.owed = 0.0
        """Number of updates that are due."""
        self.earned = chosen.updates / chosen.learn_every
        """Updates per action."""
        self.slack = 1 + 2 * ROUNDS * chosen.lanes * self.earned * len(plans.rollouts)
        """Updates that may be due or in the making; with less than one, none would ever be due."""
        self.least = least_in_shard(chosen, len(plans.shards))
        self.batches: deque[tuple[Call, Sampled]] = deque()
        self.newest: Sampled | None = None
        """The minibatch of the last update."""
        self.origin: Call | None = None
        """The call that returned that minibatch."""
        self.sizes = [(0, 0)] * len(plans.shards)
        """Of each shard: its incarnation and size, as last reported."""
        self.next_shard = 0
        self.played = [0] * len(plans.rollouts)
        self.acted_on = [-1] * len(plans.rollouts)
        """Number of updates in the weights that each actor used last."""
        self.learning_since: float | None = None
        self.idle, self.spare = 0.0, 0.0
        """Seconds in which updates were due but no minibatch had arrived; seconds in which no update was due."""
        self.shards = [
            Worker(f"replay shard {i}", Shard, functools.partial(_seeded, plan, chosen.lanes, (seed, since.rounds, i)))
            for i, plan in enumerate(plans.shards)
        ]
        self.rollouts = [
            Worker(f"rollout actor {plan.number}", Rollout, functools.partial(_numbered, plan))
            for plan in plans.rollouts
        ]
        for worker in self.workers:
            self.calls.begin(worker, "pid")
        put = import_ray().put
        self.frozen = put(jax.device_get(learner.state.belief.frozen))
        self.published: tuple[int, Any] = (-PUBLISHED_EVERY, None)

    @property
    def workers(self) -> list[Worker]:
        """All workers."""
        return [*self.rollouts, *self.shards]

    @property
    def ready(self) -> bool:
        """Whether replay has enough transitions to learn from."""
        return any(self._size(i) >= self.least for i in range(len(self.shards)))

    @property
    def shares(self) -> tuple[float, float]:
        """`idle` and `spare` as fractions of the time since learning began."""
        if self.learning_since is None:
            return 0.0, 0.0
        seconds = max(time.perf_counter() - self.learning_since, 1e-9)
        return self.idle / seconds, self.spare / seconds

    def close(self) -> None:
        """Stop all workers."""
        for worker in self.workers:
            worker.end()

    def turn(self, limit: int | None = None) -> list[Ended]:
        """Schedule work, then learn once if an update is due, else wait briefly.

        Args:
            limit: Number of actions still to take; None: unlimited.

        Returns:
            The episodes that were reported.
        """
        self._give_out_plays(limit)
        self._ask_for_batches()
        if self.owed >= 1 and self.batches:
            self._learn()
            return self._hear(0.0)
        self._report_errors(self.learner.read())  # waits for the running update, so that the time below is idle
        before, due = time.perf_counter(), self.owed >= 1
        ended = self._hear(NAP)
        if self.learning_since is not None:
            if due:
                self.idle += time.perf_counter() - before
            else:
                self.spare += time.perf_counter() - before
        return ended

    def _size(self, i: int) -> int:
        """Get the last known size of shard i; a restarted shard is empty."""
        incarnation, size = self.sizes[i]
        return size if incarnation == self.shards[i].incarnation else 0

    def _give_out_plays(self, limit: int | None) -> None:
        """Schedule rounds on idle actors, those with the fewest rounds first. Actors without a process, or whose shard
        has none, get none: the others can reach the limit without them.
        """
        lanes = self.chosen.lanes
        busy = {call.worker.name: call.note[0] for call in self.calls.of("play")}
        for i in sorted(range(len(self.rollouts)), key=self.played.__getitem__):
            shard = self.shards[i % len(self.shards)]
            if self.rollouts[i].name in busy or self.rollouts[i].pid is None or shard.pid is None:
                continue
            under_way = sum(busy.values()) * lanes  # upper bound: resets take no action
            rounds = ROUNDS if limit is None else min(ROUNDS, math.ceil((limit - under_way) / lanes))
            if rounds <= 0 or (self.ready and self.owed + under_way * self.earned >= self.slack):
                return
            busy[self.rollouts[i].name] = rounds
            insertion = Call(shard, shard.incarnation, "add", None)
            arguments = (self._weights(), self.frozen, shard.handle, rounds, self.episodes)
            self.calls.begin(self.rollouts[i], "play", *arguments, note=(rounds, i, insertion))

    def _weights(self) -> Any:
        """Get a reference to recent weights."""
        updates = self.learner.updates
        if updates - self.published[0] >= PUBLISHED_EVERY:
            belief = self.learner.state.belief
            params, aux = jax.device_get((belief.params, belief.aux))
            self.published = (updates, import_ray().put(Weights(updates, params, aux)))
        return self.published[1]

    def _ask_for_batches(self) -> None:
        """Request minibatches from the shards in turn."""
        for _ in range(AHEAD - len(self.calls.of("draw")) - len(self.batches)):
            order = [(self.next_shard + i) % len(self.shards) for i in range(len(self.shards))]
            able = [i for i in order if self._size(i) >= self.least]
            if not able:
                return
            self.next_shard = able[0] + 1
            self.calls.begin(self.shards[able[0]], "draw", self.least, note=able[0])

    def _learn(self) -> None:
        origin, sampled = self.batches.popleft()
        here, everywhere = self._size(origin.note), sum(map(self._size, range(len(self.shards))))
        counts = np.maximum(sampled.counts * max(everywhere, 1) / max(here, 1), 1).astype(int)  # in all shards
        self._report_errors(self.learner.learn(sampled._replace(counts=counts)))
        self.newest, self.origin = sampled, origin
        self.owed -= 1

    def _report_errors(self, read: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Send errors of the previous update to their shard, unless it was restarted and does not have those
        transitions.
        """
        if read is not None and self.origin is not None and self.origin.current:
            self.calls.begin(self.origin.worker, "prioritise", *read)

    def _hear(self, seconds: float) -> list[Ended]:
        ended: list[Ended] = []
        for call, answer in self.calls.ended(seconds):
            if call.method == "draw" and answer is not None and call.current:
                size, drawn = answer
                self.sizes[call.note] = (call.incarnation, size)
                if drawn is not None:
                    self.batches.append((call, drawn))
            elif call.method == "play" and answer is not None:
                ended.extend(self._hear_of_play(call, answer))
        return ended

    def _hear_of_play(self, call: Call, answer: Answer) -> list[Ended]:
        _, i, insertion = call.note
        before = self.steps
        self.rounds += answer.rounds
        self.steps += answer.actions
        self.played[i] += answer.rounds
        self.acted_on[i] = answer.updates
        self.cells.update(answer.cells)
        self.episodes += len(answer.ended)
        if answer.size is None:
            self.calls.revive(insertion, "no reply to a rollout actor")
        elif insertion.current:
            self.sizes[i % len(self.shards)] = (insertion.incarnation, answer.size)
            insertion.worker.deaths = 0
        if self.ready:
            if self.learning_since is None:
                self.learning_since = time.perf_counter()
            else:
                self.owed += answer.actions * self.earned
        loss = self.learner.loss
        return [Ended(before + after, each.lane, each.total_return, each.length, loss) for after, each in answer.ended]


def least_in_shard(chosen: Settings, shards: int) -> int:
    """Compute the number of transitions that a shard needs before it is sampled from.

    Args:
        chosen: Hyperparameters.
        shards: Number of shards.

    Returns:
        The number of transitions.
    """
    return math.ceil(chosen.learn_after / shards)


def _numbered(plan: RolloutPlan, incarnation: int) -> tuple[RolloutPlan, int]:
    return plan, incarnation


def _seeded(plan: ShardPlan, lanes: int, entropy: tuple[int, ...], incarnation: int) -> tuple[ShardPlan, int, int]:
    seed, *more = entropy
    return plan, lanes, seed_for(seed, "replay", *more, incarnation)
