"""Interface of a backend: agent, environment and replay, run for a few steps at a time.

A backend makes no decisions: the trainer is responsible for stopping, logs, checkpoints, evaluation, callbacks and
signals.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from priorax.agents import Agent
from priorax.envs.interface import Interface
from priorax.training.checkpoint import Checkpoints
from priorax.training.records import Cluster, Ended, ReplayFacts, Snapshot


@runtime_checkable
class Backend(Protocol):
    """Interface of a backend, which runs agent, environment and replay."""

    name: str
    """Name of the backend."""
    agent: Agent
    """The agent."""
    interface: Interface | None
    """Observations and actions of the environment; None if observations are not a single array."""

    @property
    def state(self) -> Any:
        """State of the agent."""
        ...

    @property
    def steps(self) -> int:
        """Number of actions taken so far, over all lanes."""
        ...

    @property
    def updates(self) -> int:
        """Number of updates so far."""
        ...

    @property
    def cells(self) -> int | None:
        """Number of distinct states seen so far, if they are counted."""
        ...

    @property
    def variety(self) -> int | None:
        """Number of distinct states, as a measure of novelty: all so far, or those in replay."""
        ...

    @property
    def tells_regret(self) -> bool:
        """Whether episodes report regret (`Ended.bad`)."""
        ...

    @property
    def tells_solved(self) -> bool:
        """Whether episodes report if the greedy policy was optimal (`Ended.solved`)."""
        ...

    @property
    def cluster(self) -> Cluster | None:
        """Statistics of the workers, if any."""
        ...

    def advance(self, limit: int | None, last: Callable[[Ended], bool]) -> list[Ended]:
        """Run some steps.

        Args:
            limit: Maximum number of actions; with several lanes a round may exceed it by less than one action per lane.
            last: Function called with each finished episode in order; returns whether the run ends with it. A backend
                stops there, if it can.

        Returns:
            The episodes that finished.
        """
        ...

    def snapshot(self) -> Snapshot:
        """Get the complete state of the run.

        Returns:
            The snapshot.
        """
        ...

    def restore(self, checkpoints: Checkpoints) -> None:
        """Continue from the last checkpoint.

        Args:
            checkpoints: The checkpoints of the run.
        """
        ...

    def resume(self, state: Any, steps: int) -> None:
        """Continue with the state of an agent alone, trained elsewhere.

        Args:
            state: State of the agent.
            steps: Number of actions taken before.
        """
        ...

    def evaluate(self, episodes: int, deploy: str, seed: int) -> list[float]:
        """Evaluate the deployed policy in separate episodes, without learning.

        Args:
            episodes: Number of episodes.
            deploy: How actions are chosen, as in `Policy.predict`.
            seed: Seed of these episodes.

        Returns:
            The returns.
        """
        ...

    def recent(self, count: int) -> tuple[Any, Any] | None:
        """Sample transitions from replay, for inspection.

        Args:
            count: Number of transitions.

        Returns:
            Observations and actions; None if there are none.
        """
        ...

    def replay_facts(self) -> ReplayFacts | None:
        """Get statistics of replay.

        Returns:
            The statistics; None if there is no replay in this process.
        """
        ...

    def close(self) -> None:
        """Close environments and processes."""
        ...
