"""Records of a run, common to all backends: episodes, progress, result, and snapshots for checkpoints."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


class Ended(NamedTuple):
    """A finished episode, as reported by a backend."""

    step: int
    """Number of actions taken so far, over all lanes."""
    lane: int
    """Index of the lane."""
    total_return: float
    """Undiscounted return of the unclipped rewards."""
    length: int
    """Length: environment steps in a scan, actions on the host; they differ if actions are repeated (`hold`)."""
    loss: float | None = None
    """Loss of the last update, averaged over members; None before the first."""
    bad: bool | None = None
    """Whether the episode was certainly suboptimal, if the environment reports it (DeepSea: it left the diagonal)."""
    solved: bool | None = None
    """Whether the greedy policy of the ensemble mean was optimal at that time, if the environment reports it."""


class Episode(NamedTuple):
    """A finished episode: a row of episodes.csv. Values that a backend or environment does not provide are None."""

    episode: int
    """Number of the episode, from 1, in the order of their ends."""
    step: int
    """Actions so far, over all lanes."""
    lane: int
    """Index of the lane."""
    total_return: float
    """Undiscounted return of the unclipped rewards."""
    length: int
    """Length: environment steps in a scan, actions on the host; they differ if actions are repeated (`hold`)."""
    loss: float | None
    """Loss of the last update, averaged over members; None before the first."""
    cells: int | None
    """Number of distinct states seen so far; beyond 100,000 an estimate with a standard error of 0.8%."""
    bad: bool | None
    """Whether the episode was certainly suboptimal."""
    solved: bool | None
    """Whether the greedy policy of the ensemble mean was optimal at that time."""
    average_regret: float | None
    """Average regret per episode so far, as in the paper: the fraction of bad episodes."""


class Round(NamedTuple):
    """Some steps of a run, and their results."""

    steps: int
    """Number of actions taken so far, over all lanes."""
    episodes: list[Episode]
    """Episodes that finished."""
    evaluation: list[float] | None
    """Returns of the deployed policy, if an evaluation was due."""
    advice: str | None
    """Advice on the prior scale, if any."""


class Cluster(NamedTuple):
    """Statistics of a run on Ray.

    Attributes:
        actors: Number of rollout actors.
        shards: Number of replay shards.
        restarts: Number of restarts of workers that died, hung or lost their machine.
        idle_share: Fraction of the time since learning began in which updates were due but no minibatch had arrived.
        spare_share: Fraction of that time in which no update was due, because actors were slower.
        acted_on: Number of updates in the weights that each actor used last.
        processes: Process ids of the running workers by name, such as "rollout actor 0"; others wait for a free CPU.
    """

    actors: int
    shards: int
    restarts: int
    idle_share: float
    spare_share: float
    acted_on: list[int]
    processes: dict[str, int]


class Progress(NamedTuple):
    """Progress of a run, for a progress bar."""

    step: int
    """Number of actions taken so far, over all lanes."""
    episodes: int
    """Number of finished episodes."""
    total_return: float | None
    """Return of the last episode."""
    mean_return: float | None
    """Mean return of the last 100 episodes."""
    average_regret: float | None
    """Average regret per episode so far, if the environment reports regret."""
    learned: int | None
    """Episode at which the run counts as learned, if the environment reports regret."""
    steps_per_second: float
    """Number of actions per second."""
    updates: int
    """Number of updates so far."""
    cells: int | None
    """Number of distinct states seen so far, if they are counted."""
    evaluation: float | None
    """Mean return of the last evaluation."""
    cluster: Cluster | None = None
    """Statistics of the workers, on Ray."""


class Result(NamedTuple):
    """Result of a run."""

    agent: str
    """Name of the agent."""
    env: str
    """Name of the environment."""
    game: str | None
    """Name of the game, of Atari."""
    size: int
    """Size of the environment."""
    seed: int
    """Seed of the run."""
    preset: str
    """Preset of hyperparameters."""
    backend: str
    """Name of the backend."""
    steps: int
    """Number of actions taken, over all lanes."""
    episodes: int
    """Number of finished episodes."""
    total_return: float
    """Sum of the returns of all episodes."""
    mean_return: float | None
    """Mean return of the last 100 episodes."""
    best: float | None
    """Highest return of an episode."""
    cells: int | None
    """Number of distinct states seen, if they are counted."""
    updates: int
    """Number of updates."""
    steps_per_second: float
    """Number of actions per second in this process; compilation is excluded if there was more than one round."""
    tells_regret: bool
    """Whether the environment reports regret."""
    episodes_to_learn: int | None
    """The paper's measure: the first episode at which average regret is below 0.9, if the environment reports it."""
    episodes_to_solve: int | None
    """First episode from which the greedy policy of the ensemble mean remains optimal."""
    evaluation: float | None
    """Mean return of the last evaluation."""
    cluster: Cluster | None
    """Statistics of the workers, on Ray."""
    history: Sequence[Episode]
    """All episodes; the newest 10,000 to 20,000 are in memory (`history.History`)."""
    probes: list[dict[str, float]]
    """Results of the `probe` function, each with the number of episodes finished by then."""
    policy: Any
    """The trained policy (`policy.Policy`), with `predict(obs)` and `values(obs)`."""

    def summary(self) -> dict[str, Any]:
        """Summarise the result, without history, probes and policy, for JSON.

        Returns:
            Values by name.
        """
        found = {name: part for name, part in self._asdict().items() if name not in ("history", "probes", "policy")}
        if self.cluster is not None:
            found["cluster"] = self.cluster._asdict()
        return found


class Inserted(NamedTuple):
    """Access to replay for a checkpoint."""

    time: int
    """Number of insertions so far."""
    capacity: int
    """Number of insertions still stored."""
    get: Callable[[int, int], Arrays]
    """Function that gives the insertions in [first, end)."""


class ReplayFacts(NamedTuple):
    """Statistics of the replay buffer."""

    size: int
    """Number of transitions that can be sampled."""
    owned: np.ndarray
    """Number of them that each bootstrap stream owns, [stream]."""
    priorities: np.ndarray
    """Sampling priorities, [transition]."""


class Snapshot(NamedTuple):
    """State of a run between two steps, complete for continuing it."""

    step: int
    """Number of actions taken so far, over all lanes."""
    state: Arrays
    """Everything except replay."""
    replay: Inserted | None = None
    """Replay; None if it is not saved but refilled on resume."""


def mean_of_last(rows: Sequence[Episode], count: int = 100) -> float | None:
    """Compute the mean return of the last episodes.

    Args:
        rows: The episodes.
        count: Number of episodes.

    Returns:
        The mean; None if there are no episodes.
    """
    last = [row.total_return for row in rows[-count:]]
    return float(np.mean(last)) if last else None


def episodes_to_learn(episodes: Iterable[Episode], below: float = 0.9, after: int = 1) -> int | None:
    """Find the first episode at which the average regret per episode is below 0.9, the paper's measure.

    Args:
        episodes: Episodes of a run; on DeepSea the regret is the fraction of bad episodes so far, as in bsuite.
        below: Average regret that counts as learned.
        after: First episode that may count.

    Returns:
        Number of the episode, or None.
    """

    def learned(row: Episode) -> bool:
        return row.average_regret is not None and row.average_regret < below and row.episode >= after

    return next((row.episode for row in episodes if learned(row)), None)


def episodes_to_solve(episodes: Sequence[Episode]) -> int | None:
    """Find the first episode from which the greedy policy of the ensemble mean remains optimal.

    Args:
        episodes: Episodes of a run.

    Returns:
        Number of the episode, or None if the policy is not optimal at the end.
    """
    first = 1 + max((row.episode for row in episodes if not row.solved), default=0)
    return first if first <= len(episodes) else None
