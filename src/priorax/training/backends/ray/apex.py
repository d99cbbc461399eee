"""`run_apex`: Ape-X (Horgan et al. 2018) on Ray, with any agent that learns on the host (`training/backends/host.py`).

One learner, here; rollout actors and replay shards in processes of their own, on this machine or on a cluster. Its
folder is that of `train_on_host`. Killing a rollout actor costs what it had not sent yet, killing a shard what it held:
both are made anew, and the run goes on. Killing this process costs what is newer than the last checkpoint.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from priorax.agents import Settings, settings
from priorax.checks import checked_seed, non_negative, positive_int
from priorax.envs.interface import interface_of
from priorax.envs.registry import make_world
from priorax.training.backends.host import Learner, buffer_plan, build_for
from priorax.training.backends.host_files import (
    HostCheckpoints,
    HostEpisode,
    HostSnapshot,
    HostTally,
    Pace,
    mean_of_last,
    record,
    rewound,
)
from priorax.training.backends.ray.cluster import import_ray, session
from priorax.training.backends.ray.driver import Crew, Driver, Ended, least_in_shard
from priorax.training.backends.ray.rollout import RolloutPlan
from priorax.training.distinct import Distinct
from priorax.training.folder import RunFolder, describe_run
from priorax.training.history import History
from priorax.training.host_training import DEFAULT_STEPS
from priorax.training.request import preset_for


class ApexProgress(NamedTuple):
    """What a progress bar shows."""

    step: int
    episodes: int
    mean_return: float | None
    """Of the last 100 episodes."""
    steps_per_second: float
    updates: int
    cells: int
    restarts: int
    idle_share: float
    processes: dict[str, int]
    """Of the workers by name, such as "rollout actor 0" and "replay shard 0", as far as they have begun."""


class ApexResult(NamedTuple):
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
    steps_per_second: float
    updates: int
    """In all, those before a resume too."""
    actors: int
    shards: int
    restarts: int
    """Of workers whose processes died."""
    idle_share: float
    """Of the time since learning began, in which updates were due and no minibatch was here."""
    spare_share: float
    """Of that time, in which no update was due: the actors were slower."""
    acted_on: list[int]
    """How many updates were in the weights that each actor played with last."""
    history: Sequence[HostEpisode]
    """All episodes, as if in a list; in memory are the newest 10,000 to 20,000."""

    def summary(self) -> dict[str, Any]:
        """All but the history, for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "history"}


def run_apex(
    agent: str = "bsp",
    env: str = "atari",
    *,
    game: str | None = None,
    size: int = 10,
    seed: int = 0,
    steps: int | None = None,
    actors: int = 2,
    shards: int = 1,
    address: str | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    checkpoint_seconds: float = 60.0,
    report: Callable[[ApexProgress], None] = lambda progress: None,
    stop: Callable[[Sequence[HostEpisode]], bool] = lambda history: False,
) -> ApexResult:
    """Train for so many actions over all lanes of all actors, or until `stop` says so. Ctrl-C leaves a checkpoint.

    `actors`, each with the setting `lanes` of environments; `shards` of replay, which divide the setting `capacity`;
    `address` of a Ray cluster, such as "auto" on one of its machines; without it, and outside of any Ray session, this
    machine alone. The rest is as in `train_on_host`.
    """
    steps = DEFAULT_STEPS if steps is None else steps
    preset = preset or preset_for(env)
    chosen = settings(agent, preset, **(changes or {}))
    import_ray()
    asked: dict[str, Any] = {"agent": agent, "env": env, "game": game, "size": size, "seed": seed, "preset": preset}
    asked |= {"actors": actors, "shards": shards}
    with contextlib.ExitStack() as stack:
        world = make_world(env, 1, size=size, game=game, seed=seed, num_threads=1, hold=chosen.hold)
        stack.callback(world.close)
        built = build_for(chosen, world)
        _check(chosen, seed, steps, actors, shards, checkpoint_seconds)
        plans = [RolloutPlan(chosen, env, game, size, seed, i, actors, i // shards, since=0) for i in range(actors)]
        buffers = [
            buffer_plan(built, world, _share(actors, shards, i) * chosen.lanes, chosen.capacity // shards)
            for i in range(shards)
        ]
        for plan in buffers:
            plan.settings.check_holds(least_in_shard(chosen, shards))
        stack.enter_context(session(address, actors + shards))  # may refuse: before an old run is overwritten
        folder = None
        if out is not None:
            shown = {"interface": interface_of(world).as_json()}
            config = describe_run({"loop": "host", **asked, **shown}, chosen)
            columns = HostEpisode._fields
            files = RunFolder(Path(out), HostCheckpoints, config, {"steps": steps}, resume, overwrite, columns, force)
            folder = stack.enter_context(contextlib.closing(files))
        learner = Learner(built, world.reset(0)[0], seed)
        history = History(HostEpisode)
        since, cells = HostTally(), Distinct()
        if folder is not None and folder.checkpoints.last is not None:
            learner.state = folder.checkpoints.restore(learner.state, cells)
            since = folder.checkpoints.last.tally
            history.extend(rewound(folder, chosen.lanes))
        crew = Crew([plan._replace(since=since.rounds) for plan in plans], buffers)
        driver = stack.enter_context(
            contextlib.closing(Driver(learner, crew, chosen, seed, steps, cells, since.rounds))
        )
        pace = Pace(driver.steps)
        record(
            _turns(driver, history, stop),
            folder,
            lambda: _snapshot(driver, history),
            checkpoint_seconds,
            lambda: report(_progress(driver, history, pace(driver.steps))),
        )
        result = ApexResult(
            agent,
            env,
            seed,
            preset,
            driver.steps,
            len(history),
            mean_of_last([row.total_return for row in history[-100:]]),
            history.best,
            len(driver.cells),
            pace(driver.steps),
            driver.updates,
            actors,
            shards,
            driver.calls.restarts,
            *driver.shares,
            driver.acted_on,
            history,
        )
        if folder is not None:
            folder.finish(_snapshot(driver, history), {**asked, **result.summary()})
        return result


def _share(actors: int, shards: int, shard: int) -> int:
    """How many actors send to this shard."""
    return len(range(shard, actors, shards))


def _check(chosen: Settings, seed: int, steps: int, actors: int, shards: int, checkpoint_seconds: float) -> None:
    checked_seed(seed)
    for name, count in (("steps", steps), ("actors", actors), ("shards", shards)):
        positive_int(name, count)
    for name in ("lanes", "learn_every", "updates", "learn_after"):
        positive_int(name, getattr(chosen, name))
    non_negative("checkpoint_seconds", checkpoint_seconds)
    if shards > actors:
        raise ValueError(f"shards={shards} must be at most actors={actors}, or some get nothing; pass shards={actors}")
    if chosen.bonus_scale > 0:
        raise ValueError(
            f"bonus_scale={chosen.bonus_scale} needs one count of visits, and actors on Ray would count each for "
            "itself; use `priorax train`, which has one process, or bonus_scale=0"
        )


def _turns(
    driver: Driver, history: History[HostEpisode], stop: Callable[[Sequence[HostEpisode]], bool]
) -> Iterator[list[HostEpisode]]:
    """On to the end."""
    while driver.steps < driver.steps_wanted and not stop(history):
        new = [_row(ended, driver, len(history) + i) for i, ended in enumerate(driver.turn(), start=1)]
        history.extend(new)
        yield new


def _progress(driver: Driver, history: Sequence[HostEpisode], speed: float) -> ApexProgress:
    mean = mean_of_last([row.total_return for row in history[-100:]])
    processes = {worker.name: worker.pid for worker in driver.workers if worker.pid is not None}
    return ApexProgress(
        driver.steps,
        len(history),
        mean,
        speed,
        driver.updates,
        len(driver.cells),
        driver.calls.restarts,
        driver.shares[0],
        processes,
    )


def _row(ended: Ended, driver: Driver, number: int) -> HostEpisode:
    played = ended.played
    cells, loss = len(driver.cells), driver.learner.loss
    return HostEpisode(number, ended.step, played.lane, played.total_return, played.length, loss, cells)


def _snapshot(driver: Driver, history: Sequence[HostEpisode]) -> HostSnapshot:
    return HostSnapshot(driver.learner.state, HostTally(driver.rounds, len(history)), driver.cells)
