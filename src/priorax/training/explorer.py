"""`Explorer`: an agent in an environment that is not compiled, to train, look at, deploy, save and load.

    agent = Explorer("gymnasium:CartPole-v1", seed=0)
    agent.learn(total_steps=20_000)
    agent.predict(obs)

What it explores with (one member for each episode) and what it deploys (the mean of all, unless told) are two things.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from priorax.agents import QLearner, settings
from priorax.agents.deploy import DEPLOY, Values, best, values
from priorax.checks import checked_seed, one_of, positive_int
from priorax.envs.adapt import World, as_world
from priorax.envs.host.vector import VectorWorld
from priorax.envs.interface import Interface, interface_of
from priorax.progress import count_bar
from priorax.training.advice import ROWS, Adviser, better, measure
from priorax.training.backends.host import host_for
from priorax.training.backends.host_files import (
    HostCheckpoints,
    HostEpisode,
    HostSnapshot,
    HostTally,
    mean_of_last,
    parse_row,
)
from priorax.training.backends.planner_host import PlannerHost
from priorax.training.distinct import Cells
from priorax.training.folder import RunFolder, describe_run, read_config, read_rows, replaced
from priorax.training.history import History
from priorax.training.policy import Policy, interface_in, restored
from priorax.training.prior_scale import with_proposal, without_auto
from priorax.training.request import preset_for, preset_in, resumed

LOOK_EVERY = 1000
"""Updates between two looks at whether the prior's scale suits."""


class Round(NamedTuple):
    """One action in every lane, and what came of it."""

    steps: int
    """Actions so far, over all lanes."""
    episodes: list[HostEpisode]
    """That ended in it."""
    evaluation: list[float] | None
    """Returns of what is deployed, in episodes of its own, where they were due."""
    advice: str | None
    """On the prior's scale, where there is something to say."""


class Explorer:
    """See the module's docstring."""

    def __init__(
        self,
        env: World,
        agent: str = "bsp",
        *,
        preset: str | None = None,
        seed: int = 0,
        size: int = 10,
        game: str | None = None,
        **changes: Any,
    ) -> None:
        """`env`: a name (gymnasium:CartPole-v1, gymnax:..., bsuite:..., or one of ours), a Gymnasium environment, a
        function that makes one, a vector of them, a dm_env environment, one in gymnax's shape, or a `VectorWorld`.

        `agent` by name and `preset` of its hyperparameters, with `changes` to them (`agents.Settings`);
        prior_scale="auto" has a scale proposed. Everything random follows from `seed`, but for what an environment
        object draws by itself.
        """
        checked_seed(seed)
        name = env if isinstance(env, str) else f"object:{_name(env)}"
        self.make = lambda lanes, hold=1: as_world(env, lanes, size=size, game=game, seed=seed, hold=hold)
        if preset is None and isinstance(env, str):
            preset = preset_for(env)
        elif preset is None:
            world, shared = self.make(1)
            preset = preset_in(world)
            if not shared:
                world.close()
        chosen = settings(agent, preset, **without_auto(changes))
        self.world, self.shared = self.make(chosen.lanes, chosen.hold)
        chosen = with_proposal(chosen, changes, lambda: self.world, seed)
        self.settings, self.seed = dataclasses.replace(chosen, lanes=self.world.num_envs), seed
        self.asked: dict[str, Any] = {
            "agent": agent,
            "env": name,
            "game": game,
            "size": size,
            "seed": seed,
            "preset": preset,
        }
        self.interface = interface_of(self.world)
        self.cells = Cells(self.world)
        self.host = host_for(self.settings, self.world, seed, look=self.cells)
        self.history: History[HostEpisode] = History(HostEpisode)
        """Episodes of exploration that ended, all of them; in memory are the newest 10,000 to 20,000."""
        self.adviser = Adviser(chosen.prior_scale)
        self.evaluations = 0
        self.rng = np.random.default_rng([seed, 2])
        """For what is deployed; exploring has its own."""
        self._policy: tuple[Any, Policy] | None = None
        """The last one asked for, and the state that it was taken from."""
        self.apart: VectorWorld | None = None
        """Where evaluations are played, once there was one."""

    @property
    def steps(self) -> int:
        """Actions so far, over all lanes."""
        return self.host.steps

    @property
    def num_members(self) -> int:
        """K; 1 where there is no ensemble."""
        agent = self.host.agent
        return agent.belief.num_streams if isinstance(agent, QLearner) else 1

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
        """Explore and learn.

        Args:
            total_steps: So many actions more, over all lanes.
            callback: Hears of every round; learning ends where it gives False.
            evaluate_every: Actions between two trials of what would be deployed; none: never.
            evaluation_episodes: Of each trial.
            deploy: What is tried.
            progress: Show a bar.

        Returns:
            Itself.

        Raises:
            ValueError: If a number is below 1, or `deploy` is unknown.
        """
        tried: dict[str, Any] = {"evaluation_episodes": evaluation_episodes, "deploy": deploy}
        rounds = self.rounds(total_steps, evaluate_every=evaluate_every, **tried)
        with contextlib.ExitStack() as stack:
            show: Callable[[int, str], None] = lambda done, note: None  # noqa: E731
            if progress:
                show = stack.enter_context(count_bar(total_steps, f"{self.asked['agent']} on {self.asked['env']}"))
            begun, deployed = self.steps, ""
            for each in rounds:
                if each.evaluation is not None:
                    deployed = f"  deployed {np.mean(each.evaluation):.2f}"
                mean = mean_of_last([row.total_return for row in self.history[-100:]])
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
        """The same as a generator, without an end where no number is given: an action in every lane at a time."""
        if total_steps is not None:
            positive_int("total_steps", total_steps)
        if evaluate_every is not None:
            positive_int("evaluate_every", evaluate_every)
        one_of("deploy", deploy, DEPLOY)
        positive_int("evaluation_episodes", evaluation_episodes)
        return self._rounds(total_steps, evaluate_every, evaluation_episodes, deploy)

    def _rounds(self, total: int | None, every: int | None, episodes: int, deploy: str) -> Iterator[Round]:
        end = math.inf if total is None else self.steps + total
        while self.steps < end:
            before, updates = self.steps, self.host.begun
            played = self.host.round()
            advice = self._advice() if self.host.begun // LOOK_EVERY > updates // LOOK_EVERY else None
            due = every is not None and self.steps // every > before // every
            evaluation = self.evaluate(episodes, deploy) if due else None
            new = [
                HostEpisode(
                    len(self.history) + i,
                    self.steps,
                    each.lane,
                    each.total_return,
                    each.length,
                    self.host.loss,
                    len(self.cells),
                )
                for i, each in enumerate(played, start=1)
            ]
            self.history.extend(new)  # last, so that what is interrupted before is in no count
            yield Round(self.steps, new, evaluation, advice)

    def predict(self, obs: Any, deploy: str | int = "mean") -> Any:
        """The action for one observation, or those for a batch, as the environment gives and takes them (`Policy`)."""
        return self.policy.predict(obs, deploy)

    def values(self, obs: Any) -> Values:
        """What the members say of one observation, or of a batch: their mean, their spread, and each one's Q."""
        return self.policy.values(obs)

    @property
    def policy(self) -> Policy:
        """What it has learned so far, to keep: it needs no environment, and goes on learning no further."""
        if self._policy is None or self._policy[0] is not self.host.state:  # a planner's plans are made once for each
            self._policy = self.host.state, Policy(self.host.agent, self.host.state, self.interface, self.rng)
        return self._policy[1]

    @property
    def belief(self) -> Any:
        """The state of its belief (`beliefs.BeliefState`) as learned so far; of a planner its plans (`Plans`)."""
        return self.host.belief

    def evaluate(self, episodes: int = 10, deploy: str = "mean", seed: int | None = None) -> list[float]:
        """Returns of what is deployed, in so many episodes apart from exploration; nothing is learned from them.

        An environment that was handed over as an object is played in itself, and exploration then begins a new episode;
        any other is made anew. Without a `seed` each evaluation has other random numbers than the one before.
        """
        positive_int("episodes", episodes)
        one_of("deploy", deploy, DEPLOY)
        self.evaluations += 1
        if seed is None:
            seed = int(np.random.SeedSequence([self.seed, self.steps, self.evaluations]).generate_state(1)[0])
        if self.shared:
            returns = self._play(self.world, episodes, deploy, seed)
            self.host.begin_anew()
            return returns
        if self.apart is None:
            self.apart = self.make(self.settings.lanes, self.settings.hold).world
        return self._play(self.apart, episodes, deploy, seed)

    def _play(self, world: VectorWorld, episodes: int, deploy: str, seed: int) -> list[float]:
        """Each lane plays its share, so that short episodes are not counted more often than long ones."""
        rng = np.random.default_rng(seed)
        lanes = world.num_envs
        wanted = np.array([len(range(i, episodes, lanes)) for i in range(lanes)])
        obs, total, over = world.reset(seed % 2**32), np.zeros(lanes), np.zeros(lanes, bool)
        returns: list[list[float]] = [[] for _ in range(lanes)]
        functions = len(values(self.host.agent, self.belief, obs).members)
        member = rng.integers(0, functions, lanes)
        while any(len(mine) < count for mine, count in zip(returns, wanted, strict=True)):
            turn = world.step(best(values(self.host.agent, self.belief, obs), deploy, member))
            total = np.where(over, 0.0, total + turn.reward)  # the step after an end only begins anew
            over = turn.terminated | turn.truncated
            for i in np.flatnonzero(over):
                returns[i].append(float(total[i]))
            member = np.where(over, rng.integers(0, functions, lanes), member)
            obs = turn.obs
        return [total for mine, count in zip(returns, wanted, strict=True) for total in mine[:count]]

    def _advice(self) -> str | None:
        host = self.host
        if isinstance(host, PlannerHost) or host.buffer.size == 0:
            return None
        drawn = host.buffer.draw(ROWS, np.random.default_rng(host.updates))
        found = measure(host.agent, self.belief, drawn.obs, drawn.action)
        returns = [row.total_return for row in self.history.ends()]
        learned = self.settings.clip_rewards or better(returns)  # clipped, returns do not say what values should be
        return self.adviser.look(found, host.updates, len(self.cells), returns, learned)

    def save(self, path: Path | str) -> None:
        """A run's folder, as `priorax train` writes it: it can be loaded, reported on and inspected. One that was saved
        there before is replaced once this one is whole."""
        path = Path(path)
        with replaced(path) as fresh:
            until = {"steps": self.steps}
            files = RunFolder(fresh, HostCheckpoints, self.config, until, columns=HostEpisode._fields)
            with contextlib.closing(files):
                files.append(self.history)
                files.finish(self.snapshot(), {**self.asked, **self.summary()})

    @classmethod
    def load(cls, path: Path | str, env: World | None = None) -> "Explorer":
        """What `save` or `priorax train` wrote. `env` is needed where it was an object: files hold no code.

        What the compiled loop learned can go on here, with an empty replay.
        """
        path = Path(path)
        asked = resumed(path, {}, {}, HOST_NAMES)
        name = asked.pop("env")
        if env is None:
            if name.startswith("object:"):
                raise ValueError(f"{str(path)!r} was learned in an object ({name}); pass env=, like the one it was")
            env = name
        changes = asked.pop("changes")
        agent = cls(env, **asked, **changes)
        agent.asked["env"] = name
        config = read_config(path)
        _refuse_another(path, interface_in(config, path), agent.interface)
        lanes = agent.world.num_envs
        if lanes != changes["lanes"]:
            raise ValueError(f"env has {lanes} lanes, and must have {changes['lanes']} as when {str(path)!r} was saved")
        if config.get("loop") != "host":
            agent.host.resume(restored(path, agent.host.agent, agent.interface))
            return agent
        checkpoints = HostCheckpoints(path / "checkpoint")
        if checkpoints.last is None:
            raise ValueError(f"{str(path)!r} has no checkpoint yet; let the run go on for a while")
        agent.restore(checkpoints, read_rows(path, parse_row, checkpoints.last.rows_bytes))
        return agent

    def restore(self, checkpoints: HostCheckpoints, history: list[HostEpisode]) -> None:
        """Go on from the last checkpoint, with the rows that belong to it."""
        since = checkpoints.last.tally if checkpoints.last is not None else HostTally()
        self.host = host_for(self.settings, self.world, self.seed, look=self.cells, since=since.rounds)
        self.host.resume(checkpoints.restore(self.host.state, self.cells.distinct, self.host.buffer))
        self.history = History(HostEpisode, history[: since.finished])

    @property
    def config(self) -> dict[str, Any]:
        """What run.json says of it."""
        return describe_run({"loop": "host", **self.asked, "interface": self.interface.as_json()}, self.settings)

    def snapshot(self) -> HostSnapshot:
        """What a checkpoint holds."""
        host = self.host
        return HostSnapshot(host.state, HostTally(host.rounds, len(self.history)), self.cells.distinct, host.buffer)

    def summary(self) -> dict[str, Any]:
        """How it went so far."""
        return {
            "steps": self.steps,
            "episodes": len(self.history),
            "mean_return": mean_of_last([row.total_return for row in self.history[-100:]]),
            "best": self.history.best,
            "cells": len(self.cells),
        }

    def close(self) -> None:
        """Give back the environments."""
        self.world.close()
        if self.apart is not None:
            self.apart.close()


def _name(env: Any) -> str:
    """Of a class or function, its own; of an object its class's, without wrappers."""
    return str(getattr(env, "__name__", None) or type(getattr(env, "unwrapped", env)).__name__)


def _refuse_another(path: Path, was: Interface, now: Interface) -> None:
    """An environment that shows or takes something else than the one a run was learned in."""
    for what, before, after in (
        ("observations of shape", was.sight.frame_shape, now.sight.frame_shape),
        ("states", was.num_states, now.num_states),
        ("actions", was.num_actions, now.num_actions),
    ):
        if before != after:
            raise ValueError(
                f"env has {what} {after}, and the run in {str(path)!r} was learned with {before}; pass the environment "
                "it was learned in"
            )


HOST_NAMES = {"agent": "bsp", "env": "atari", "game": None, "size": 10, "seed": 0, "preset": None}
"""What says which run it is, and what a command that says nothing means."""
