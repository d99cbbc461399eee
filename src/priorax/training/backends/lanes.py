"""Lanes: environments on the host that are stepped together, with the episode in progress in each."""

from typing import Any, NamedTuple

import numpy as np

from priorax.checks import NonFinite
from priorax.envs.host.vector import VectorStep, VectorWorld


class Played(NamedTuple):
    """A finished episode."""

    lane: int
    """Index of the lane."""
    total_return: float
    """Return of the unclipped rewards."""
    length: int
    """Number of actions."""


class Lanes:
    """Environments stepped together, with the current observation (`obs`) of each.

    `first` marks the first observation of an episode, `over` the one after its last action: there no action is taken,
    and the next step starts another episode. A NaN or infinite reward or observation ends the run.
    """

    def __init__(self, world: VectorWorld, seed: int, *, since: int = 0, first_lane: int = 0) -> None:
        """Start an episode in every lane.

        Args:
            world: The environments.
            seed: Seed of the first reset.
            since: Number of earlier rounds, for error messages.
            first_lane: Index of the first lane among those of all actors, for error messages.
        """
        self.world, self.rounds, self.first_lane = world, since, first_lane
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Start new episodes in all lanes; those in progress are abandoned.

        Args:
            seed: Seed of the resets.
        """
        lanes = self.world.num_envs
        self.obs = self._checked("observation", self.world.reset(seed))
        self.first, self.over = np.ones(lanes, bool), np.zeros(lanes, bool)
        self.total, self.length = np.zeros(lanes), np.zeros(lanes, int)

    def step(self, action: np.ndarray) -> tuple[VectorStep, list[Played]]:
        """Take one action in every lane.

        Args:
            action: One action per lane.

        Returns:
            The results of the step, and the episodes that finished.

        Raises:
            NonFinite: If a reward or observation is NaN or infinite.
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
            where = f" (component {place})" if rows.shape[1] > 1 else ""
            raise NonFinite(
                f"the environment returned the {what} {rows[lane, place]}{where} at step "
                f"{self.rounds * self.world.num_envs} in lane {self.first_lane + lane}; fix the environment, or wrap "
                "it so that rewards and observations are finite"
            )
        return found


def seed_for(seed: int, purpose: str, *more: int) -> int:
    """Derive the seed of one purpose in a run: no two purposes share random numbers.

    Args:
        seed: Seed of the run.
        purpose: Name of the purpose.
        *more: Numbers that distinguish seeds of the same purpose.

    Returns:
        The derived seed.
    """
    entropy = [seed, int.from_bytes(purpose.encode()), *more]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 2)
