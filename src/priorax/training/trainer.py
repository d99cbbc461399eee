"""`train`: one agent, one environment, one seed, on any backend; optionally with a folder (`folder.py`)."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from priorax.agents import Agent, AgentSpec
from priorax.agents.deploy import DEPLOY
from priorax.checks import checked_seed, non_negative, one_of, positive_int
from priorax.envs.adapt import World
from priorax.training.advice import ROWS, Adviser, better, measure
from priorax.training.backends.base import Backend
from priorax.training.evaluate import Evaluations, Scores
from priorax.training.folder import RunFolder
from priorax.training.history import History
from priorax.training.interrupt import interruptible
from priorax.training.policy import Policy
from priorax.training.records import (
    Ended,
    Episode,
    Progress,
    Result,
    Round,
    episodes_to_learn,
    episodes_to_solve,
    mean_of_last,
)
from priorax.training.setup import Setup, Workers, set_up

DEFAULT_EPISODES = 2000
"""Length of a run in a compiled scan, if neither episodes nor steps are given."""
DEFAULT_STEPS = 100_000
"""Length of any other run, if neither episodes nor steps are given."""
LOOK_EVERY = 1000
"""Updates between checks of the prior scale."""
REPORT_SECONDS = 0.5
"""Seconds between reports of progress."""

Probe = Callable[[Backend], dict[str, float]]
"""Function from the backend to measurements, called between rounds."""


class Until(NamedTuple):
    """Length of a run.

    Attributes:
        episodes: Number of episodes; None: unlimited.
        steps: Number of actions, over all lanes; None: unlimited.
        learned: Whether to stop once average regret is below `below`, at episode `after` at the earliest.
        below: Average regret that counts as learned.
        after: First episode that may count as learned.
        stop: Further stopping criterion: a function of all episodes so far.
    """

    episodes: int | None = None
    steps: int | None = None
    learned: bool = False
    below: float = 0.9
    after: int = 1
    stop: Callable[[Sequence[Episode]], bool] = lambda history: False


class _Rows:
    """Numbers episodes, and counts bad ones."""

    def __init__(self, finished: int, bad: int) -> None:
        self.finished, self.bad = finished, bad

    def add(self, ended: Ended, cells: int | None) -> Episode:
        self.finished, self.bad = self.finished + 1, self.bad + bool(ended.bad)
        regret = None if ended.bad is None else self.bad / self.finished
        step, lane, total, length, loss, bad, solved = ended
        return Episode(self.finished, step, lane, total, length, loss, cells, bad, solved, regret)


class Trainer:
    """Training of one agent in one environment, in progress."""

    def __init__(self, setup: Setup, until: Until | None = None) -> None:
        """Start a run.

        Args:
            setup: The prepared run.
            until: Length of the run; by default it has no end.
        """
        self.setup, self.backend, self.until = setup, setup.backend, until or Until()
        self.learned: int | None = None
        """First episode at which the run counts as learned, if the environment reports regret."""
        self.history: History[Episode] = History(Episode)
        """All finished episodes; the newest 10,000 to 20,000 are in memory."""
        self.bad = 0
        self.adviser = Adviser(getattr(setup.settings, "prior_scale", 1.0))
        self.rng = np.random.default_rng([setup.seed, 2])
        """Random numbers of the deployed policy; exploration has its own."""
        self._policy: tuple[Any, Policy] | None = None
        """Cached policy, and the state that it was created from."""

    def advance(self, evaluations: Evaluations | None = None, *, advise: bool = True) -> Round:
        """Continue the run for some steps; a backend stops at its last episode, if it can.

        Args:
            evaluations: Schedule of evaluations.
            advise: Whether to check the prior scale.

        Returns:
            The results of these steps.
        """
        evaluations, steps = evaluations or Evaluations(), self.until.steps
        before, updates = self.backend.steps, self.backend.updates if advise else 0
        limits = [None if steps is None else steps - before, evaluations.until_next(before)]
        rows = _Rows(len(self.history), self.bad)

        def last(ended: Ended) -> bool:
            new.append(rows.add(ended, self.backend.cells))
            return self._ends_with(new[-1])

        new: list[Episode] = []
        ended = self.backend.advance(min((each for each in limits if each is not None), default=None), last)
        new += [rows.add(each, self.backend.cells) for each in ended[len(new) :]]  # backends may not have called `last`
        self.bad += sum(bool(row.bad) for row in new)
        self.history.extend(new)
        self.learned = self.learned or self._first_learned(new)
        evaluation = None
        if evaluations.due(before, self.backend.steps):
            evaluation = self.evaluate(evaluations.evaluation_episodes, evaluations.deploy)
        looked = advise and self.backend.updates // LOOK_EVERY > updates // LOOK_EVERY
        return Round(self.backend.steps, new, evaluation, self._advice() if looked else None)

    @property
    def over(self) -> bool:
        """Whether the run has finished."""
        until = self.until
        enough = until.episodes is not None and len(self.history) >= until.episodes
        enough = enough or (until.steps is not None and self.steps >= until.steps)
        return enough or (until.learned and self.learned is not None) or until.stop(self.history)

    def evaluate(self, episodes: int = 10, deploy: str = "mean", seed: int | None = None) -> list[float]:
        """Evaluate the deployed policy in separate episodes, without learning.

        Args:
            episodes: Number of episodes.
            deploy: How actions are chosen, as in `Policy.predict`.
            seed: Seed of these episodes; by default derived from the run's seed and the number of actions so far.

        Returns:
            The returns.
        """
        positive_int("episodes", episodes)
        one_of("deploy", deploy, DEPLOY)
        if seed is None:
            seed = self.setup.evaluation_seed(self.backend.steps)
        return self.backend.evaluate(episodes, deploy, seed)

    @property
    def steps(self) -> int:
        """Number of actions taken so far, over all lanes."""
        return self.backend.steps

    @property
    def policy(self) -> Policy | None:
        """A copy of the policy learned so far; it needs no environment and does not change with further training."""
        if self.backend.interface is None:
            return None
        if self._policy is None or self._policy[0] is not self.backend.state:  # planning is cached per policy
            state = self.backend.state
            self._policy = state, Policy(self.backend.agent, state, self.backend.interface, self.rng)
        return self._policy[1]

    def restore(self, folder: RunFolder) -> None:
        """Continue from the last checkpoint of a folder; later rows are removed.

        Args:
            folder: The folder.
        """
        self.backend.restore(folder.checkpoints)
        self.remember(folder.rewind())

    def remember(self, rows: Sequence[Episode]) -> None:
        """Add the episodes of an earlier part of the run.

        Args:
            rows: The episodes.
        """
        self.history = History(Episode, rows)
        self.bad = sum(bool(row.bad) for row in rows)
        self.learned = self._first_learned(rows)

    def _first_learned(self, rows: Sequence[Episode]) -> int | None:
        """Find the first of these episodes at which the run counts as learned."""
        return episodes_to_learn(rows, self.until.below, self.until.after) if self.backend.tells_regret else None

    def _ends_with(self, row: Episode) -> bool:
        """Check whether the run ends with this episode."""
        until = self.until
        enough = until.episodes is not None and row.episode >= until.episodes
        enough = enough or (until.steps is not None and row.step >= until.steps)
        return enough or (until.learned and self._first_learned([row]) is not None)

    def _advice(self) -> str | None:
        """Check the prior scale at transitions sampled from replay."""
        found = self.backend.recent(ROWS)
        belief = getattr(self.backend.agent, "belief", None)
        if found is None or belief is None:
            return None
        returns = [row.total_return for row in self.history.ends()]
        if self.backend.tells_regret:
            good = self.learned is not None
        else:  # with clipped rewards returns are not comparable to values
            good = self.setup.settings.clip_rewards or better(returns)
        doubt = measure(belief, self.backend.state.belief, *found)
        return self.adviser.look(doubt, self.backend.updates, self.backend.variety, returns, good)


def train(
    agent: str | AgentSpec | Agent = "bsp",
    env: World = "deep_sea",
    *,
    backend: str | None = None,
    game: str | None = None,
    size: int = 10,
    seed: int = 0,
    episodes: int | None = None,
    steps: int | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    workers: Workers | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    stop_when_learned: bool = False,
    learned_below: float = 0.9,
    learned_after: int = 1,
    checkpoint_seconds: float = 60.0,
    evaluate_every: int | None = None,
    evaluation_episodes: int = 10,
    deploy: str = "mean",
    report: Callable[[Progress], None] = lambda progress: None,
    announce: Callable[[str], None] | None = None,
    probe: Probe | None = None,
    stop: Callable[[Sequence[Episode]], bool] = lambda history: False,
) -> Result:
    """Train an agent. Ctrl-C and SIGTERM write a checkpoint before the run stops.

    Args:
        agent: A name (`agents.registry`), or a custom agent (`agents.base`).
        env: A name; a custom environment with gymnax's interface, which is compiled; or anything that `Explorer` takes,
            such as a Gymnasium environment, which runs on the host.
        backend: "scan" (agent and environment in one compiled scan), "host" (lanes of environments that are not
            compiled), or "ray" (rollout actors, replay shards and one learner); by default that of the environment.
        game: The game, for `env="atari"`.
        size: Size of environments that have one.
        seed: Seed of all randomness.
        episodes: Number of episodes.
        steps: Number of actions, over all lanes. If neither is given: 2,000 episodes in a scan, else 100,000 actions.
        preset: Preset of hyperparameters; by default that of the environment.
        changes: New values of hyperparameters.
        workers: Processes of the backend "ray".
        out: Folder for logs and checkpoints.
        resume: Resume the run in that folder.
        overwrite: Replace the run in that folder.
        force: Resume a run of another version of priorax, if its files have the same format.
        stop_when_learned: Stop once average regret falls below `learned_below`.
        learned_below: Average regret that counts as learned.
        learned_after: First episode that may count as learned.
        checkpoint_seconds: Maximum number of seconds between checkpoints.
        evaluate_every: Actions between evaluations of the deployed policy; None: never.
        evaluation_episodes: Episodes of each evaluation.
        deploy: How actions are chosen in evaluations, as in `Policy.predict`.
        report: Function called regularly with the progress.
        announce: Function called with the chosen prior scale (prior_scale="auto") and with advice on it.
        probe: Function called with the backend between rounds of steps; its results are collected in `Result.probes`.
        stop: Function called with all episodes so far; the run stops when it returns True.

    Returns:
        The result, including the trained policy.

    Raises:
        ValueError: If an argument is invalid; the message names it and the remedy.
    """
    evaluations = Evaluations(evaluate_every, evaluation_episodes, deploy).checked()
    for name, count in (("episodes", episodes), ("steps", steps)):
        if count is not None:
            positive_int(name, count)
    checked_seed(seed)
    non_negative("checkpoint_seconds", checkpoint_seconds)
    with contextlib.ExitStack() as stack:
        setup = set_up(
            agent,
            env,
            backend=backend,
            game=game,
            size=size,
            seed=seed,
            preset=preset,
            changes=changes or {},
            workers=workers,
        )
        stack.callback(setup.backend.close)
        if announce is not None and (changes or {}).get("prior_scale") == "auto":
            announce(f"prior_scale=auto: {getattr(setup.settings, 'prior_scale', None):.3g} (see `priorax scale`)")
        if episodes is None and steps is None:
            episodes, steps = (DEFAULT_EPISODES, None) if setup.backend.name == "scan" else (None, DEFAULT_STEPS)
        if stop_when_learned and not setup.backend.tells_regret:
            raise ValueError(
                f"stop_when_learned=True needs an environment that reports regret on the backend 'scan', such as "
                f"deep_sea; env={setup.names['env']!r} on the backend {setup.backend.name!r} does not: leave it out"
            )
        until = Until(episodes, steps, stop_when_learned, learned_below, learned_after, stop)
        trainer = Trainer(setup, until)
        folder = None
        if out is not None:
            lengths = {"episodes": episodes, "steps": steps, **evaluations._asdict()}
            folder = RunFolder(Path(out), setup.config, lengths, setup.prior, resume, overwrite, force)
            stack.callback(folder.close)
            if folder.checkpoints.last is not None:
                trainer.restore(folder)
        scores = stack.enter_context(contextlib.closing(Scores(None if out is None else Path(out), trainer.steps)))
        clock, told, probes = _Clock(trainer.steps), 0.0, list[dict[str, float]]()

        def progress() -> Progress:
            rows, made = trainer.history, trainer.backend
            last = rows[-1] if len(rows) else None
            return Progress(
                trainer.steps,
                len(rows),
                None if last is None else last.total_return,
                mean_of_last(rows),
                None if last is None else last.average_regret,
                trainer.learned,
                clock.speed,
                made.updates,
                made.cells,
                scores.last,
                made.cluster,
            )

        with interruptible() as interrupt:
            while not trainer.over:
                done = trainer.advance(evaluations, advise=announce is not None)
                clock.lap(trainer.steps)
                if folder is not None and done.episodes:
                    folder.append(done.episodes)
                if done.evaluation is not None:
                    scores.add(done.steps, done.evaluation)
                if folder is not None:
                    folder.checkpoint(trainer.backend.snapshot, len(trainer.history), checkpoint_seconds)
                if probe is not None:
                    probes.append({"episode": len(trainer.history), **probe(trainer.backend)})
                if announce is not None and done.advice is not None:
                    announce(done.advice)
                if time.perf_counter() - told > REPORT_SECONDS:
                    told = time.perf_counter()
                    report(progress())
                if interrupt.came:
                    if folder is not None:
                        folder.checkpoint(trainer.backend.snapshot, len(trainer.history))
                    interrupt.stop()
        report(progress())
        rows, made = trainer.history, trainer.backend
        result = Result(
            **setup.names,
            backend=made.name,
            steps=trainer.steps,
            episodes=len(rows),
            total_return=float(sum(row.total_return for row in rows)),
            mean_return=mean_of_last(rows),
            best=rows.best,
            cells=made.cells,
            updates=made.updates,
            steps_per_second=clock.speed,
            tells_regret=made.tells_regret,
            episodes_to_learn=trainer.learned,
            episodes_to_solve=episodes_to_solve(rows) if made.tells_solved else None,
            evaluation=scores.last,
            cluster=made.cluster,
            history=rows,
            probes=probes,
            policy=trainer.policy,
        )
        if folder is not None:
            folder.finish(made.snapshot, len(rows), result.summary())
        return result


class _Clock:
    """Measures actions per second, without the first round, which compiles."""

    def __init__(self, step: int) -> None:
        self.first = self.step = self.first_end = step
        self.begun = self.after_first = self.now = time.perf_counter()
        self.laps = 0

    def lap(self, step: int) -> None:
        self.laps, self.step, self.now = self.laps + 1, step, time.perf_counter()
        if self.laps == 1:
            self.after_first, self.first_end = self.now, step

    @property
    def speed(self) -> float:
        if self.laps > 1:
            return (self.step - self.first_end) / max(self.now - self.after_first, 1e-9)
        return (self.step - self.first) / max(self.now - self.begun, 1e-9)
