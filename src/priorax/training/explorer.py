"""`Explorer`: an agent in an environment on the host, to train, evaluate, deploy, save and load.

    agent = Explorer("gymnasium:CartPole-v1", seed=0)
    agent.learn(total_steps=20_000)
    agent.predict(obs)

Exploration follows one member per episode; deployment uses the mean over members by default.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from priorax.agents import Agent, AgentSpec, Settings
from priorax.agents.deploy import Values
from priorax.checks import checked_seed, positive_int
from priorax.envs.adapt import World
from priorax.envs.interface import Interface
from priorax.progress import count_bar
from priorax.training.checkpoint import Checkpoints
from priorax.training.evaluate import Evaluations
from priorax.training.folder import RunFolder, replaced
from priorax.training.history import History
from priorax.training.policy import Policy, interface_in, restored
from priorax.training.records import Episode, Round, mean_of_last
from priorax.training.request import NAMES, resumed
from priorax.training.run_files import read_config, read_episodes
from priorax.training.setup import set_up
from priorax.training.trainer import Trainer


class Explorer:
    """An agent in an environment on the host, to train, evaluate, deploy, save and load."""

    def __init__(
        self,
        env: World,
        agent: str | AgentSpec | Agent = "bsp",
        *,
        preset: str | None = None,
        seed: int = 0,
        size: int = 10,
        game: str | None = None,
        **changes: Any,
    ) -> None:
        """Create an untrained agent and its environments.

        Args:
            env: A name (gymnasium:CartPole-v1, gymnax:..., bsuite:..., or a built-in one), a Gymnasium environment, a
                function that creates one, a Gymnasium vector environment, a dm_env environment, a gymnax environment,
                or a `VectorWorld`.
            agent: A name, or a custom agent (`agents.base`).
            preset: Preset of hyperparameters; by default that of the environment.
            seed: Seed of all randomness, except that of an environment passed as an object.
            size: Size of environments that have one.
            game: The game, for `env="atari"`.
            **changes: New values of hyperparameters; prior_scale="auto" chooses the scale automatically.

        Raises:
            ValueError: If an argument is invalid.
        """
        checked_seed(seed)
        setup = set_up(agent, env, backend="host", game=game, size=size, seed=seed, preset=preset, changes=changes)
        self.trainer = Trainer(setup)
        self.evaluations = 0

    @property
    def steps(self) -> int:
        """Number of actions taken so far, over all lanes."""
        return self.trainer.steps

    @property
    def settings(self) -> Settings:
        """The hyperparameters."""
        return self.trainer.setup.settings

    @property
    def history(self) -> History[Episode]:
        """All finished episodes of exploration; the newest 10,000 to 20,000 are in memory."""
        return self.trainer.history

    @property
    def num_members(self) -> int:
        """Ensemble size K; 1 without an ensemble."""
        return self.policy.num_members

    @property
    def interface(self) -> Interface:
        """Observations and actions of the environment."""
        found = self.trainer.backend.interface
        assert found is not None
        return found

    def learn(
        self,
        total_steps: int,
        callback: Callable[[Round], Any] | None = None,
        *,
        evaluate_every: int | None = None,
        evaluation_episodes: int = 10,
        deploy: str = "mean",
        progress: bool = False,
    ) -> "Explorer":
        """Train the agent.

        Args:
            total_steps: Number of further actions, over all lanes.
            callback: Function called after every round of actions; training stops if it returns False.
            evaluate_every: Actions between evaluations of the deployed policy; None: never.
            evaluation_episodes: Episodes of each evaluation.
            deploy: How actions are chosen in evaluations, as in `predict`.
            progress: Whether to show a progress bar.

        Returns:
            The explorer itself.

        Raises:
            ValueError: If a number is below 1, or `deploy` is unknown.
        """
        tried: dict[str, Any] = {"evaluation_episodes": evaluation_episodes, "deploy": deploy}
        rounds = self.rounds(total_steps, evaluate_every=evaluate_every, **tried)
        with contextlib.ExitStack() as stack:
            show: Callable[[int, str], None] = lambda done, note: None  # noqa: E731
            if progress:
                names = self.trainer.setup.names
                show = stack.enter_context(count_bar(total_steps, f"{names['agent']} on {names['env']}"))
            begun, deployed = self.steps, ""
            for each in rounds:
                if each.evaluation is not None:
                    deployed = f"  deployed {np.mean(each.evaluation):.2f}"
                mean = mean_of_last(self.history)
                show(each.steps - begun, ("no episode yet" if mean is None else f"return {mean:.2f}") + deployed)
                said = None if callback is None else callback(each)
                if isinstance(said, (bool, np.bool_)) and not said:
                    break
        return self

    def rounds(
        self,
        total_steps: int | None = None,
        *,
        evaluate_every: int | None = None,
        evaluation_episodes: int = 10,
        deploy: str = "mean",
    ) -> Iterator[Round]:
        """Train the agent as a generator, one round of actions at a time.

        Args:
            total_steps: Number of further actions, over all lanes; None: unlimited.
            evaluate_every: Actions between evaluations of the deployed policy; None: never.
            evaluation_episodes: Episodes of each evaluation.
            deploy: How actions are chosen in evaluations, as in `predict`.

        Returns:
            An iterator of rounds.
        """
        if total_steps is not None:
            positive_int("total_steps", total_steps)
        evaluations = Evaluations(evaluate_every, evaluation_episodes, deploy).checked()
        return self._rounds(total_steps, evaluations)

    def _rounds(self, total: int | None, evaluations: Evaluations) -> Iterator[Round]:
        end = math.inf if total is None else self.steps + total
        while self.steps < end:
            yield self.trainer.advance(evaluations)

    def predict(self, obs: Any, deploy: str | int = "mean") -> Any:
        """Choose actions without exploration, as in `Policy.predict`.

        Args:
            obs: One observation, or a batch of them, in the environment's format.
            deploy: "mean", "vote", "member", or the index of a member.

        Returns:
            The action or actions, in the environment's format.

        Raises:
            ValueError: If an observation has the wrong shape, or there is no such member.
        """
        return self.policy.predict(obs, deploy)

    def values(self, obs: Any) -> Values:
        """Evaluate the Q-values of all members, as in `Policy.values`.

        Args:
            obs: One observation, or a batch of them, in the environment's format.

        Returns:
            Mean, standard deviation and each member's values.
        """
        return self.policy.values(obs)

    @property
    def policy(self) -> Policy:
        """A copy of the policy learned so far; it needs no environment and does not change with further training."""
        found = self.trainer.policy
        assert found is not None
        return found

    @property
    def state(self) -> Any:
        """Current state of the agent."""
        return self.trainer.backend.state

    def evaluate(self, episodes: int = 10, deploy: str = "mean", seed: int | None = None) -> list[float]:
        """Evaluate the deployed policy in separate episodes, without learning.

        If the environment was passed as an object, that object is used and exploration then starts a new episode;
        otherwise a new environment is created.

        Args:
            episodes: Number of episodes.
            deploy: How actions are chosen, as in `predict`.
            seed: Seed of these episodes; by default different for each evaluation.

        Returns:
            The returns.
        """
        self.evaluations += 1
        if seed is None:
            seed = self.trainer.setup.evaluation_seed(self.steps, self.evaluations)
        return self.trainer.evaluate(episodes, deploy, seed)

    def save(self, path: Path | str) -> None:
        """Write the run to a folder, in the format of `priorax train`, for loading, reports and inspection.

        A run that was saved there before is replaced atomically.

        Args:
            path: The folder.
        """
        backend = self.trainer.backend
        with replaced(Path(path)) as fresh:
            setup = self.trainer.setup
            files = RunFolder(fresh, setup.config, {"steps": self.steps}, setup.prior)
            with contextlib.closing(files):
                files.append(self.history)
                files.finish(backend.snapshot, len(self.history), {**self.trainer.setup.names, **self.summary()})

    @classmethod
    def load(cls, path: Path | str, env: World | None = None, *, devices: int | None = None) -> "Explorer":
        """Load a run that was written by `save` or `priorax train`, to continue it.

        Runs of the compiled scan or of Ray can be continued too, with an empty replay.

        Args:
            path: The folder.
            env: The environment, if it was an object: files contain no code.
            devices: Number of devices over which members are spread; by default that of the run.

        Returns:
            The explorer.

        Raises:
            ValueError: If the environment is missing, or differs from that of the run.
        """
        path = Path(path)
        arguments = resumed(path, {}, {} if devices is None else {"devices": devices}, NAMES)
        name = arguments.pop("env")
        if env is None:
            if name.startswith("object:"):
                raise ValueError(
                    f"the run in {str(path)!r} was trained in an environment object ({name}), which is not saved; pass "
                    "an equal environment as env"
                )
            env = name
        changes = arguments.pop("changes")
        explorer = cls(env, **arguments, **changes)
        trainer = explorer.trainer
        trainer.setup.names["env"] = name
        config = read_config(path)
        _refuse_another(path, interface_in(config, path), explorer.interface)
        lanes = explorer.settings.lanes
        if lanes != changes["lanes"]:
            raise ValueError(
                f"env has {lanes} lanes, but the run in {str(path)!r} has {changes['lanes']}; pass an environment with "
                f"{changes['lanes']} lanes"
            )
        state = restored(path, trainer.backend.agent, explorer.interface)
        checkpoints = Checkpoints(path / "checkpoint")
        assert checkpoints.last is not None
        if config.get("backend") != "host":
            trainer.backend.resume(state, 0)
            return explorer
        trainer.backend.restore(checkpoints)
        trainer.remember(read_episodes(path, checkpoints.last.rows_bytes, checkpoints.last.episodes))
        return explorer

    def summary(self) -> dict[str, Any]:
        """Summarise the run so far.

        Returns:
            Values by name.
        """
        return {
            "backend": self.trainer.backend.name,
            "steps": self.steps,
            "episodes": len(self.history),
            "mean_return": mean_of_last(self.history),
            "best": self.history.best,
            "cells": self.trainer.backend.cells,
        }

    def close(self) -> None:
        """Close the environments."""
        self.trainer.backend.close()


def _refuse_another(path: Path, was: Interface, now: Interface) -> None:
    """Check that observations and actions of an environment are those of a run."""
    for what, before, after in (
        ("observations of shape", was.sight.frame_shape, now.sight.frame_shape),
        ("states", was.num_states, now.num_states),
        ("actions", was.num_actions, now.num_actions),
    ):
        if before != after:
            raise ValueError(
                f"env has {what} {after}, but the run in {str(path)!r} was trained with {before}; pass the environment "
                "that it was trained in"
            )
