"""`train_on_host`: one agent, many lanes, one seed; in a folder, if one is given (`run_folder.py`).

A checkpoint holds the agent and how far the run was. It does not hold replay, nor where the games were: they begin anew
when it goes on, as after a lost actor.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from priorax.agents import AgentState, QLearner, Settings, build, settings
from priorax.envs.atari import Atari, cells
from priorax.envs.vector import VectorWorld
from priorax.envs.worlds import make_world
from priorax.loops.host import Host, Played
from priorax.loops.run_folder import RunFolder
from priorax.loops.training import preset_for
from priorax.storage import BadFile, Content, read, restore_tree, tree_arrays, write, write_atomically
from priorax.version import __version__

HOST_DEFAULTS: dict[str, Any] = {
    "agent": "bsp",
    "env": "atari",
    "game": None,
    "size": 10,
    "seed": 0,
    "steps": 100_000,
    "preset": None,
}
"""What a command that says nothing means."""


class HostEpisode(NamedTuple):
    """One finished episode, in the order in which they ended."""

    episode: int
    """From 1."""
    step: int
    """Actions so far, over all lanes."""
    lane: int
    total_return: float
    """As the environment pays."""
    length: int
    loss: float
    """Of the last update, mean over members."""
    cells: int
    """Distinct states seen so far, by Go-Explore's measure (a frame of 11 x 8 with 8 greys); 0 where not counted."""


class HostTally(NamedTuple):
    """How far a run is."""

    rounds: int = 0
    """Actions in each lane."""
    finished: int = 0


class HostSnapshot(NamedTuple):
    """What a checkpoint holds."""

    state: AgentState
    tally: HostTally


class HostCheckpoints:
    """The last checkpoint in a folder: a file of the agent, and a small one, written last, that names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: Any = None
        path = folder / "commit.json"
        if path.exists():
            try:
                found = json.loads(path.read_text())
                tally = HostTally(**found["tally"])
                self.last = _Commit(tally.rounds, str(found["state"]), int(found["rows_bytes"]), tally)
            except (ValueError, TypeError, KeyError) as error:
                raise BadFile(f"{path} is damaged ({error}); start the run again with --overwrite") from None

    def save(self, snapshot: HostSnapshot, rows_bytes: int) -> None:
        """Write the agent, then say so."""
        self.folder.mkdir(exist_ok=True)
        state = f"state-{snapshot.tally.rounds}.safetensors"
        write(self.folder / state, Content("run", {}, tree_arrays(snapshot.state)))
        self.last = _Commit(snapshot.tally.rounds, state, rows_bytes, snapshot.tally)
        described = {"state": state, "rows_bytes": rows_bytes, "tally": snapshot.tally._asdict()}
        write_atomically(self.folder / "commit.json", json.dumps(described).encode())
        for path in self.folder.glob("state-*.safetensors"):
            if path.name != state:
                path.unlink()

    def restore(self, like: AgentState) -> HostSnapshot:
        """An agent of that shape, as it was."""
        shape = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)
        return HostSnapshot(restore_tree(shape, read(self.folder / self.last.state).arrays), self.last.tally)


class _Commit(NamedTuple):
    step: int
    state: str
    rows_bytes: int
    tally: HostTally


class HostProgress(NamedTuple):
    """What a progress bar shows."""

    step: int
    episodes: int
    mean_return: float | None
    """Of the last 100 episodes."""
    steps_per_second: float
    updates: int
    cells: int


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
    steps_per_second: float
    history: list[HostEpisode]

    def summary(self) -> dict[str, Any]:
        """All but the history, for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "history"}


def build_for(chosen: Settings, world: VectorWorld) -> QLearner:
    """The agent with those settings, for that world."""
    seen: dict[str, Any] = {
        "num_states": getattr(world, "num_states", None),
        "input_scale": getattr(world, "input_scale", ()),
    }
    agent = build(chosen, world.num_actions, **seen)
    if not isinstance(agent, QLearner):
        raise ValueError(f"belief={chosen.belief!r} does not run on the host; use an agent that learns Q by gradient")
    return agent


def describe_run(asked: Mapping[str, Any], chosen: Settings) -> dict[str, Any]:
    """What run.json says."""
    return {**asked, "settings": json.loads(json.dumps(dataclasses.asdict(chosen))), "version": __version__}


class Cells:
    """Distinct states seen so far; nothing is counted where frames are no Atari screens."""

    def __init__(self, counted: bool) -> None:
        self.seen: set[bytes] = set()
        self.counted = counted

    def __call__(self, frames: np.ndarray) -> None:
        if self.counted:
            self.seen.update(cells(frames))

    def __len__(self) -> int:
        return len(self.seen)


def train_on_host(
    agent: str = "bsp",
    env: str = "atari",
    *,
    game: str | None = None,
    size: int = 10,
    seed: int = 0,
    steps: int = 100_000,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float = 60.0,
    report: Callable[[HostProgress], None] = lambda progress: None,
    stop: Callable[[list[HostEpisode]], bool] = lambda history: False,
) -> HostResult:
    """Train for so many actions over all lanes, or until `stop` says so. Ctrl-C leaves a checkpoint."""
    preset = preset or preset_for(env)
    chosen = settings(agent, preset, **(changes or {}))
    world = make_world(env, chosen.lanes, size=size, game=game, seed=seed)
    learner = build_for(chosen, world)
    asked: dict[str, Any] = {"agent": agent, "env": env, "game": game, "size": size, "seed": seed, "preset": preset}
    with contextlib.ExitStack() as stack:
        stack.callback(world.close)
        folder = None
        if out is not None:
            columns = HostEpisode._fields
            config = describe_run(asked, chosen)
            files = RunFolder(Path(out), HostCheckpoints, config, {"steps": steps}, resume, overwrite, columns)
            folder = stack.enter_context(contextlib.closing(files))
        found = Cells(isinstance(world, Atari))
        since = folder.checkpoints.last.tally if folder is not None and folder.checkpoints.last else HostTally()
        host = Host(
            learner,
            world,
            seed,
            learn_every=chosen.learn_every,
            updates=chosen.updates,
            learn_after=chosen.learn_after,
            clip_rewards=chosen.clip_rewards,
            look=found,
            since=since.rounds,
        )
        history: list[HostEpisode] = []
        if folder is not None and since.rounds:
            host.learner.state = folder.checkpoints.restore(host.learner.state).state
            host.acting = host.learner.state.belief
            history = folder.rewind(since.finished, parse_row)
        speed = _run(host, folder, history, found, steps, checkpoint_seconds, report, stop)
        returns = [row.total_return for row in history]
        result = HostResult(
            agent,
            env,
            seed,
            preset,
            host.steps,
            len(history),
            mean_of_last(returns),
            max(returns, default=None),
            len(found),
            speed,
            history,
        )
        if folder is not None:
            folder.finish(_snapshot(host, history), {**asked, **result.summary()})
        return result


def mean_of_last(returns: list[float]) -> float | None:
    """Of the last 100."""
    return float(np.mean(returns[-100:])) if returns else None


def _run(
    host: Host,
    folder: RunFolder | None,
    history: list[HostEpisode],
    found: Cells,
    steps: int,
    checkpoint_seconds: float,
    report: Callable[[HostProgress], None],
    stop: Callable[[list[HostEpisode]], bool],
) -> float:
    """On to the end; gives actions per second."""
    begun, first, told = time.perf_counter(), host.steps, 0.0
    speed = 0.0
    try:
        while host.steps < steps and not stop(history):
            new = [_row(played, host, len(history) + i, found) for i, played in enumerate(host.round(), start=1)]
            history.extend(new)
            if folder is not None:
                if new:
                    folder.append(new)
                folder.checkpoint(_snapshot(host, history), unless_younger_than=checkpoint_seconds)
            now = time.perf_counter()
            speed = (host.steps - first) / max(now - begun, 1e-9)
            if now - told > 0.5:
                told = now
                mean = mean_of_last([row.total_return for row in history])
                report(HostProgress(host.steps, len(history), mean, speed, host.learner.updates, len(found)))
    except KeyboardInterrupt:
        if folder is not None:
            folder.checkpoint(_snapshot(host, history))
        raise
    return speed


def _row(played: Played, host: Host, number: int, found: Cells) -> HostEpisode:
    return HostEpisode(
        number, host.steps, played.lane, played.total_return, played.length, host.learner.loss, len(found)
    )


def _snapshot(host: Host, history: list[HostEpisode]) -> HostSnapshot:
    return HostSnapshot(host.learner.state, HostTally(host.rounds, len(history)))


def parse_row(row: Mapping[str, str]) -> HostEpisode:
    """A row of episodes.csv."""
    kinds = (int, int, int, float, int, float, int)
    return HostEpisode(*(kind(row[name]) for kind, name in zip(kinds, HostEpisode._fields, strict=True)))
