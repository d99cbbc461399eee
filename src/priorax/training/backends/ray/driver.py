"""The driver of a distributed run: it learns, and keeps rollout actors and replay shards at work.

    rollout actor --moments--> replay shard --minibatches--> learner
          ^                         ^------- errors -----------|
          |------------------------ weights -------------------|

Neither side runs away from the other. Actions played earn updates, `updates` for every `learn_every`, and only what was
earned is learned; actors wait while more than `slack` updates are due. While no shard has its share of `learn_after`
transitions nothing is earned, and actors do not wait: so it is at the start, and after all of replay was lost.
"""

import functools
import math
import time
from collections import deque
from typing import Any, NamedTuple

import jax
import numpy as np

from priorax.agents import Settings
from priorax.replay import Drawn
from priorax.training.backends.host import BufferPlan, Learner
from priorax.training.backends.lanes import Played, seed_for
from priorax.training.backends.ray.cluster import Call, Calls, Worker, import_ray
from priorax.training.backends.ray.rollout import Answer, Rollout, RolloutPlan, Weights
from priorax.training.backends.ray.shard import Shard
from priorax.training.distinct import Distinct

ROUNDS = 16
"""That an actor plays between two looks at the weights."""
AHEAD = 4
"""Minibatches drawn before they are needed, under way or here."""
PUBLISHED_EVERY = 20
"""Updates after which weights are sent anew."""
NAP = 0.5
"""Seconds to wait for an answer before looking at the clock again."""


class Ended(NamedTuple):
    """An episode that ended, and the step at which it did."""

    step: int
    played: Played


class Crew(NamedTuple):
    """The plans of all workers; actor i sends to shard i modulo their number."""

    rollouts: list[RolloutPlan]
    shards: list[BufferPlan]


class Driver:
    """See the module's docstring. `turn` does whatever can be done next."""

    def __init__(
        self, learner: Learner, crew: Crew, chosen: Settings, seed: int, steps: int, cells: Distinct, rounds: int = 0
    ) -> None:
        """Begin all workers.

        Args:
            learner: What learns, here.
            crew: What the workers are to do.
            chosen: Hyperparameters.
            seed: Of the run.
            steps: To play up to, over all lanes.
            cells: What was seen before.
            rounds: Played before, by any actor.
        """
        self.learner, self.chosen, self.steps_wanted = learner, chosen, steps
        self.rounds = rounds
        """Of any actor so far."""
        self.updates = learner.updates
        self.calls = Calls()
        self.cells = cells
        self.episodes = int(learner.state.episodes)
        """That ended, over all actors."""
        self.owed = 0.0
        """Updates that are due."""
        per_step = chosen.updates / chosen.learn_every
        self.earned_by_round = chosen.lanes * per_step
        self.slack = 2 * ROUNDS * self.earned_by_round * len(crew.rollouts)
        self.least = least_in_shard(chosen, len(crew.shards))
        self.batches: deque[tuple[Call, Drawn]] = deque()
        self.origin: Call | None = None
        """Where the minibatch of the last update came from."""
        self.sizes = [(0, 0)] * len(crew.shards)
        """Of each shard: an incarnation, and how many transitions could be drawn from it when it was last heard of."""
        self.next_shard = 0
        self.played = [0] * len(crew.rollouts)
        self.acted_on = [-1] * len(crew.rollouts)
        """Updates in the weights that each actor played with last."""
        self.learning_since: float | None = None
        self.idle, self.spare = 0.0, 0.0
        """Seconds in which the learner waited for minibatches though updates were due; in which none was due."""
        self.shards = [
            Worker(f"replay shard {i}", Shard, functools.partial(_seeded, plan, chosen.lanes, (seed, rounds, i)))
            for i, plan in enumerate(crew.shards)
        ]
        self.rollouts = [
            Worker(f"rollout actor {plan.number}", Rollout, functools.partial(_numbered, plan))
            for plan in crew.rollouts
        ]
        for worker in self.workers:
            self.calls.begin(worker, "pid")
        put = import_ray().put
        self.frozen = put(jax.device_get(learner.state.belief.frozen))
        self.published: tuple[int, Any] = (-PUBLISHED_EVERY, None)

    @property
    def workers(self) -> list[Worker]:
        return [*self.rollouts, *self.shards]

    @property
    def steps(self) -> int:
        """Actions so far, over all lanes."""
        return self.rounds * self.chosen.lanes

    @property
    def ready(self) -> bool:
        """Whether there is something to learn from."""
        return any(self._size(i) >= self.least for i in range(len(self.shards)))

    @property
    def shares(self) -> tuple[float, float]:
        """`idle` and `spare` as shares of the time since learning began."""
        if self.learning_since is None:
            return 0.0, 0.0
        seconds = max(time.perf_counter() - self.learning_since, 1e-9)
        return self.idle / seconds, self.spare / seconds

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.end()

    def turn(self) -> list[Ended]:
        """Give out work, then learn once if it is due, else wait a little; the episodes that were heard of."""
        self._give_out_plays()
        self._ask_for_batches()
        if self.owed >= 1 and self.batches:
            self._learn()
            return self._hear(0.0)
        self._report_errors(self.learner.read())  # which waits for the update under way: what comes now is idleness
        before, due = time.perf_counter(), self.owed >= 1
        ended = self._hear(NAP)
        if self.learning_since is not None:
            if due:
                self.idle += time.perf_counter() - before
            else:
                self.spare += time.perf_counter() - before
        return ended

    def _size(self, i: int) -> int:
        """Of shard i as far as known; one that was made anew is empty."""
        incarnation, size = self.sizes[i]
        return size if incarnation == self.shards[i].incarnation else 0

    def _give_out_plays(self) -> None:
        """To idle actors, those first that have played least."""
        lanes = self.chosen.lanes
        busy = {call.worker.name: call.note[0] for call in self.calls.of("play")}
        for i in sorted(range(len(self.rollouts)), key=self.played.__getitem__):
            if self.rollouts[i].name in busy:
                continue
            under_way = sum(busy.values())
            missing = self.steps_wanted - self.steps - under_way * lanes
            if missing <= 0 or (self.ready and self.owed + under_way * self.earned_by_round >= self.slack):
                return
            rounds = min(ROUNDS, math.ceil(missing / lanes))
            busy[self.rollouts[i].name] = rounds
            shard = self.shards[i % len(self.shards)]
            asked = Call(shard, shard.incarnation, "add", None)
            arguments = (self._weights(), self.frozen, shard.handle, rounds)
            self.calls.begin(self.rollouts[i], "play", *arguments, note=(rounds, i, asked))

    def _weights(self) -> Any:
        """A reference to weights that are not too old."""
        if self.updates - self.published[0] >= PUBLISHED_EVERY:
            belief = self.learner.state.belief
            params, aux = jax.device_get((belief.params, belief.aux))
            weights = Weights(self.updates, params, aux, self.episodes)
            self.published = (self.updates, import_ray().put(weights))
        return self.published[1]

    def _ask_for_batches(self) -> None:
        """From one shard after the other."""
        for _ in range(AHEAD - len(self.calls.of("draw")) - len(self.batches)):
            order = [(self.next_shard + i) % len(self.shards) for i in range(len(self.shards))]
            able = [i for i in order if self._size(i) >= self.least]
            if not able:
                return
            self.next_shard = able[0] + 1
            self.calls.begin(self.shards[able[0]], "draw", self.chosen.batch_size, self.least, note=able[0])

    def _learn(self) -> None:
        origin, drawn = self.batches.popleft()
        self._report_errors(self.learner.learn(drawn, max(1, sum(map(self._size, range(len(self.shards)))))))
        self.origin = origin
        self.owed -= 1
        self.updates += 1

    def _report_errors(self, read: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Of the last update but one; a shard that was made anew meanwhile does not know those transitions."""
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
        _, i, asked = call.note
        before = self.rounds
        self.rounds += answer.rounds
        self.played[i] += answer.rounds
        self.acted_on[i] = answer.updates
        self.cells.update(answer.cells)
        self.episodes += len(answer.ended)
        self.learner.note(self.episodes)
        if answer.size is None:
            self.calls.revive(asked, "it did not answer a rollout actor")
        else:
            self.sizes[i % len(self.shards)] = (asked.incarnation, answer.size)
            asked.worker.deaths = 0
        if self.ready:
            if self.learning_since is None:
                self.learning_since = time.perf_counter()
            else:
                self.owed += answer.rounds * self.earned_by_round
        return [Ended((before + after) * self.chosen.lanes, played) for after, played in answer.ended]


def least_in_shard(chosen: Settings, shards: int) -> int:
    """Transitions that a shard has before it is drawn from."""
    return math.ceil(chosen.learn_after / shards)


def _numbered(plan: RolloutPlan, incarnation: int) -> tuple[RolloutPlan, int]:
    return plan, incarnation


def _seeded(plan: BufferPlan, lanes: int, entropy: tuple[int, ...], incarnation: int) -> tuple[BufferPlan, int, int]:
    seed, *more = entropy
    return plan, lanes, seed_for(seed, "replay", *more, incarnation)
