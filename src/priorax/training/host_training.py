"""`train_on_host`: an `Explorer` with a run's folder."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from priorax.checks import positive_int
from priorax.envs.adapt import World
from priorax.training.backends.host_files import HostCheckpoints, HostEpisode, Pace, record, rewound
from priorax.training.evaluate import Evaluations, Scores
from priorax.training.explorer import HOST_NAMES, Explorer
from priorax.training.folder import RunFolder
from priorax.training.policy import Policy

HOST_DEFAULTS: dict[str, Any] = {**HOST_NAMES, "steps": None, "episodes": None}
"""What a command that says nothing means."""
DEFAULT_STEPS = 100_000
"""Where neither steps nor episodes are given."""


class HostProgress(NamedTuple):
    """What a progress bar shows."""

    step: int
    episodes: int
    mean_return: float | None
    """Of the last 100 episodes."""
    steps_per_second: float
    updates: int
    cells: int
    evaluation: float | None = None
    """The mean of the last evaluation."""


class HostResult(NamedTuple):
    """What a run gave."""

    agent: str
    env: str
    seed: int
    preset: str
    steps: int
    episodes: int
    mean_return: float | None
    """Of the last 100 episodes."""
    best: float | None
    cells: int
    """Distinct states seen, in this process."""
    steps_per_second: float
    evaluation: float | None
    """The mean of the last evaluation."""
    history: Sequence[HostEpisode]
    policy: Policy | None = None
    """What was learned: it has `predict(obs)` and `values(obs)`."""

    def summary(self) -> dict[str, Any]:
        """All but the history and the policy, for JSON."""
        return {name: value for name, value in self._asdict().items() if name not in ("history", "policy")}


def train_on_host(
    agent: str = "bsp",
    env: World = "atari",
    *,
    game: str | None = None,
    size: int = 10,
    seed: int = 0,
    steps: int | None = None,
    episodes: int | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    checkpoint_seconds: float = 60.0,
    evaluations: Evaluations | None = None,
    report: Callable[[HostProgress], None] = lambda progress: None,
    announce: Callable[[str], None] = lambda words: None,
    stop: Callable[[Sequence[HostEpisode]], bool] = lambda history: False,
) -> HostResult:
    """Train for so many actions over all lanes, or episodes, or until `stop` says so. Ctrl-C leaves a checkpoint.

    `announce` hears advice on the prior's scale.
    """
    if steps is None and episodes is None:
        steps = DEFAULT_STEPS
    for name, count in (("steps", steps), ("episodes", episodes)):
        if count is not None:
            positive_int(name, count)
    tried = (evaluations or Evaluations()).checked()
    with contextlib.ExitStack() as stack:
        explorer = Explorer(env, agent, preset=preset, seed=seed, size=size, game=game, **(changes or {}))
        stack.callback(explorer.close)
        folder = None
        if out is not None:
            until = {"steps": steps, "episodes": episodes, **tried._asdict()}
            columns = HostEpisode._fields
            files = RunFolder(Path(out), HostCheckpoints, explorer.config, until, resume, overwrite, columns, force)
            folder = stack.enter_context(contextlib.closing(files))
            if folder.checkpoints.last is not None:
                explorer.restore(folder.checkpoints, rewound(folder, explorer.world.num_envs))
        scores = stack.enter_context(contextlib.closing(Scores(None if out is None else Path(out), explorer.steps)))
        pace = Pace(explorer.steps)

        def over() -> bool:
            enough = episodes is not None and len(explorer.history) >= episodes
            return enough or (steps is not None and explorer.steps >= steps) or stop(explorer.history)

        def going() -> Iterator[list[HostEpisode]]:
            rounds = explorer.rounds(**tried._asdict())
            while not over():
                each = next(rounds)
                if each.evaluation is not None:
                    scores.add(each.steps, each.evaluation)
                yield each.episodes
                if each.advice is not None:
                    announce(each.advice)

        def progress() -> HostProgress:
            done = explorer.summary()
            speed, updates = pace(explorer.steps), explorer.host.updates
            return HostProgress(
                done["steps"], done["episodes"], done["mean_return"], speed, updates, done["cells"], scores.last
            )

        record(going(), folder, explorer.snapshot, checkpoint_seconds, lambda: report(progress()))
        result = HostResult(
            agent,
            explorer.asked["env"],
            seed,
            explorer.asked["preset"],
            **explorer.summary(),
            steps_per_second=pace(explorer.steps),
            evaluation=scores.last,
            history=explorer.history,
            policy=explorer.policy,
        )
        if folder is not None:
            folder.finish(explorer.snapshot(), {**explorer.asked, **result.summary()})
        return result
