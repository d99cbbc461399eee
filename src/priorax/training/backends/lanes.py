"""Lanes: environments on the host that are stepped together, and the episode under way in each."""

from typing import Any, NamedTuple

import numpy as np

from priorax.checks import NonFinite
from priorax.envs.host.vector import VectorStep, VectorWorld


class Played(NamedTuple):
    """One finished episode."""

    lane: int
    total_return: float
    """Unclipped."""
    length: int
    """Actions."""


class Lanes:
    """What is seen in each lane now (`obs`), whether it is an episode's first observation (`first`) or what followed
    its last action (`over`): then nothing is done, and the next step begins another episode.

    A NaN or infinite reward or observation ends the run: nothing can be learned from it, and nothing after it.
    """

    def __init__(self, world: VectorWorld, seed: int, *, since: int = 0, first_lane: int = 0) -> None:
        """Begin an episode in every lane of the world.

        Args:
            world: the environments.
            seed: of their first reset.
            since: rounds that were played before, for errors to name the step.
            first_lane: the number of the first lane among those of all actors, for errors to name it.
        """
        self.world, self.rounds, self.first_lane = world, since, first_lane
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """New episodes in all lanes; those under way are left as they are."""
        lanes = self.world.num_envs
        self.obs = self._checked("observation", self.world.reset(seed))
        self.first, self.over = np.ones(lanes, bool), np.zeros(lanes, bool)
        self.total, self.length = np.zeros(lanes), np.zeros(lanes, int)

    def step(self, action: np.ndarray) -> tuple[VectorStep, list[Played]]:
        """One action in every lane: what came of it, and the episodes that ended.

        Raises:
            NonFinite: an environment gave a NaN or infinite reward or observation.
        """
        self.rounds += 1
        turn = self.world.step(action)
        self._checked("reward", turn.reward)
        self._checked("observation", turn.obs)
        ended = turn.terminated | turn.truncated
        self.total += turn.reward
        self.length += ~self.over
        played = [Played(int(i), float(self.total[i]), int(self.length[i])) for i in np.flatnonzero(ended)]
        self.total[ended], self.length[ended] = 0.0, 0
        self.obs, self.first, self.over = turn.obs, self.over, ended
        return turn, played

    def _checked(self, what: str, found: np.ndarray) -> Any:
        if np.issubdtype(found.dtype, np.inexact) and not np.isfinite(found).all():
            rows = found.reshape(len(found), -1)
            lane, place = (int(part[0]) for part in np.nonzero(~np.isfinite(rows)))
            where = f" (its number {place})" if rows.shape[1] > 1 else ""
            raise NonFinite(
                f"the environment gave the {what} {rows[lane, place]}{where} at step "
                f"{self.rounds * self.world.num_envs} in lane {self.first_lane + lane}; mend the environment, or wrap "
                "it so that rewards and observations are finite"
            )
        return found


def seed_for(seed: int, purpose: str, *more: int) -> int:
    """A seed for one purpose in a run of that seed: no two purposes share random numbers."""
    entropy = [seed, int.from_bytes(purpose.encode()), *more]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 2)
