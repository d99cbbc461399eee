"""`train`: one agent, one environment, one seed; in a folder, if one is given (`run_folder.py`)."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from priorax.agents import QLearner, Settings, build, check_members_differ, nearby, settings
from priorax.checks import one_of, positive_int
from priorax.envs import GYMNAX, Environment, Held, action_bound, input_scale, make_environment, num_states
from priorax.envs.given import as_world, shows_pictures
from priorax.envs.vector import VectorWorld
from priorax.envs.worlds import BSUITE, GYMNASIUM, lives_on_host, make_world
from priorax.loops.checkpoints import Checkpoints
from priorax.loops.compiled import Episode, Live, Loop, chunks, episodes_to_learn, episodes_to_solve, start
from priorax.loops.doubt import LEAST_UPDATES, ROWS, Adviser, better, measure
from priorax.loops.history import History
from priorax.loops.run_folder import RunFolder, describe_run, read_config
from priorax.loops.scaling import with_proposal, without_auto
from priorax.storage import BadFile

CHUNK = 1000
"""Environment steps between two looks at the clock."""


DEFAULTS: dict[str, Any] = {
    "agent": "bsp",
    "env": "deep_sea",
    "size": 10,
    "seed": 0,
    "episodes": None,
    "steps": None,
    "preset": None,
}
"""What a command that says nothing means; no preset is the environment's own."""
DEFAULT_EPISODES = 2000
"""Where neither episodes nor steps are given."""
CHUNKS_BETWEEN_LOOKS = 5
"""Before the next look at whether the prior's scale suits."""


def preset_for(env: str) -> str:
    """The hyperparameters found best there."""
    if env.startswith(GYMNAX):
        return "gymnasium" if num_states(make_environment(env, 1)) is None else "finite"
    if env.startswith(GYMNASIUM):
        with contextlib.closing(make_world(env, 1)) as world:
            return preset_in(world)
    if env.startswith(BSUITE):
        return "tuned" if env.startswith(f"{BSUITE}deep_sea") else "gymnasium"
    if lives_on_host(env):
        return "small"
    return "swingup" if "cartpole" in env.lower() else "tuned"


def preset_in(world: VectorWorld) -> str:
    """The hyperparameters for someone else's environment, by what it shows."""
    if shows_pictures(world):
        return "small"
    return "gymnasium" if getattr(world, "num_states", None) is None else "finite"


class Progress(NamedTuple):
    """What a progress bar shows."""

    episode: int
    total_return: float
    average_regret: float | None
    """None where the environment does not tell."""
    steps_per_second: float
    learned: int | None
    step: int


class Result(NamedTuple):
    """What a run gave."""

    agent: str
    env: str
    size: int
    seed: int
    preset: str
    episodes: int
    """How many were run."""
    tells_regret: bool
    """Whether the environment says what would have been optimal."""
    episodes_to_learn: int | None
    """The paper's measure: the first episode at which average regret is below 0.9, where the environment tells it."""
    episodes_to_solve: int | None
    """The first episode from which the greedy policy of the ensemble's mean stays optimal."""
    total_return: float
    env_steps: int
    env_steps_per_second: float
    """Of this process, the first chunk and its compilation apart where there were more."""
    history: Sequence[Episode]
    """All episodes, as if in a list; in memory are the newest 10,000 to 20,000 (`history.History`)."""
    probes: list[dict[str, float]]
    """What a probe found, each with the episodes finished by then."""

    def summary(self) -> dict[str, Any]:
        """All but the history and the probes, for JSON."""
        return {name: value for name, value in self._asdict().items() if name not in ("history", "probes")}


Probe = Callable[[Loop, Live], dict[str, float]]
"""Looks at a run between two chunks of steps, and says what it sees."""


def train(
    agent: str = "bsp",
    env: str | Environment = "deep_sea",
    *,
    size: int = 10,
    seed: int = 0,
    episodes: int | None = None,
    steps: int | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    stop_when_learned: bool = False,
    learned_below: float = 0.9,
    learned_after: int = 1,
    checkpoint_seconds: float = 60.0,
    report: Callable[[Progress], None] = lambda progress: None,
    announce: Callable[[str], None] | None = None,
    probe: Probe | None = None,
) -> Result:
    """Train an agent by name in an environment by name (or your own, in gymnax's shape). Ctrl-C leaves a checkpoint.

    For so many `episodes`, or up to the episode that passes so many `steps`. `changes` to the preset's hyperparameters
    (`agents.Settings`; no preset: the environment's own), `out` a folder for rows and checkpoints. It counts as learned
    when average regret falls below `learned_below`, from episode `learned_after` on. `probe` looks at the run between
    chunks of steps; `announce` hears advice on the prior's scale.
    """
    if episodes is None and steps is None:
        episodes = DEFAULT_EPISODES
    for what, count in (("episodes", episodes), ("steps", steps)):
        if count is not None:
            positive_int(what, count)
    name = env if isinstance(env, str) else type(env).__name__
    preset = preset or preset_for(name)
    changes = changes or {}
    chosen = settings(agent, preset, **{"lanes": 1, **without_auto(changes)})  # presets are for the host too
    probed = lambda: as_world(env, 4, size=size, seed=seed, hold=chosen.hold).world  # noqa: E731
    chosen = with_proposal(chosen, changes, probed, seed)
    loop, key, params = prepare(chosen, env, size, seed)
    asked: dict[str, Any] = {"agent": agent, "env": name, "size": size, "seed": seed, "preset": preset}
    until = _Until(episodes, steps, learned_below, learned_after, stop_when_learned)
    adviser = Adviser(chosen.prior_scale)
    if out is None:
        return _run(loop, key, params, None, asked, until, checkpoint_seconds, report, probe, adviser, announce)
    files = RunFolder(
        Path(out),
        lambda path: Checkpoints(path, loop.agent.buffer),
        describe_run(asked, chosen),
        {"episodes": episodes, "steps": steps},
        resume,
        overwrite,
    )
    with contextlib.closing(files) as folder:
        return _run(loop, key, params, folder, asked, until, checkpoint_seconds, report, probe, adviser, announce)


def prepare(chosen: Settings, env: str | Environment, size: int, seed: int) -> tuple[Loop, PRNGKeyArray, Any]:
    """An agent in its environment, the key of its run, and what the seed makes of the environment."""
    if chosen.lanes > 1:
        raise ValueError(
            f"lanes={chosen.lanes} is for environments on the host, and the compiled loop has one; pass lanes=1, or "
            "use Explorer, which runs this environment on the host"
        )
    world: Any = env
    if isinstance(env, str):
        world = make_environment(env, positive_int("size", size), continuous=chosen.belief == "d4pg")
    if chosen.hold > 1:
        world = Held(world, chosen.hold)
    key_params, key = jax.random.split(jax.random.key(seed))
    params = world.params(key_params) if hasattr(world, "params") else world.default_params
    values = None
    if chosen.prior == "optimal" and hasattr(world, "optimal_values"):
        values = np.reshape(world.optimal_values(params, chosen.discount), (-1, world.num_actions))
    agent = build(
        chosen,
        world.num_actions,
        num_states=num_states(world),
        horizon=getattr(world, "horizon", None),
        optimal_values=values,
        bound=action_bound(world),
        input_scale=input_scale(world),
    )
    loop = Loop(world, agent, chosen.learn_every, chosen.updates, chosen.learn_after, chosen.clip_rewards)
    return loop, key, params


class _Until(NamedTuple):
    """How long a run is; when it counts as learned, and whether it stops then."""

    episodes: int | None
    steps: int | None
    below: float
    after: int
    stop: bool


def _run(
    loop: Loop,
    key: PRNGKeyArray,
    params: Any,
    folder: RunFolder | None,
    asked: dict[str, Any],
    until: _Until,
    checkpoint_seconds: float,
    report: Callable[[Progress], None],
    probe: Probe | None,
    adviser: Adviser,
    announce: Callable[[str], None] | None,
) -> Result:
    """Start or go on, up to the end."""
    history = History(Episode)
    probes: list[dict[str, float]] = []
    if folder is not None and folder.checkpoints.last is not None:
        snapshot, rows = folder.restore(loop, key, params)
        history.extend(rows)
    else:
        snapshot = start(loop, key, params)
        _check_at_start(loop, snapshot.live)
    clock, held = _Clock(int(snapshot.live.step)), getattr(loop.env, "times", 1)
    tells = getattr(loop.env, "tells_regret", False)

    def first_below(rows: Sequence[Episode]) -> int | None:
        return episodes_to_learn(rows, until.below, until.after) if tells else None

    learned = first_below(history)
    taken = sum(row.length for row in history)

    def over() -> bool:
        enough = until.episodes is not None and len(history) >= until.episodes
        return enough or (until.steps is not None and taken >= until.steps) or (until.stop and learned is not None)

    steps = chunks(loop, key, params, snapshot, CHUNK)
    try:
        while not over():
            following, ended = next(steps)
            clock.lap(int(following.live.step))
            known = len(history)
            for row in ended:
                history.append(row)
                taken += row.length
                learned = learned or first_below([row])
                if over():
                    break
            if probe is not None:
                probes.append({"episode": len(history), **probe(loop, following.live)})
            if announce is not None and clock.laps % CHUNKS_BETWEEN_LOOKS == 0:
                returns = [row.total_return for row in history.ends()]
                good = learned is not None if tells else better(returns)
                words = _advice(loop, following.live, adviser, returns, good)
                if words is not None:
                    announce(words)
            if folder is not None:
                folder.append(history[known:])
            if not over():  # what is beyond the end is in no checkpoint: a finished run can be made longer
                snapshot = following
                if folder is not None:
                    folder.checkpoint(snapshot, unless_younger_than=checkpoint_seconds)
            if history[known:]:
                last = history[-1]
                regret = last.average_regret if tells else None
                report(Progress(last.episode, last.total_return, regret, clock.speed * held, learned, taken))
    except KeyboardInterrupt:
        if folder is not None:
            folder.checkpoint(snapshot)
        raise
    result = Result(
        **asked,
        episodes=len(history),
        tells_regret=tells,
        episodes_to_learn=learned,
        episodes_to_solve=episodes_to_solve(history) if hasattr(loop.env, "optimal_path") else None,
        total_return=float(sum(row.total_return for row in history)),
        env_steps=taken,
        env_steps_per_second=clock.speed * held,
        history=history,
        probes=probes,
    )
    if folder is not None:
        folder.finish(snapshot, result.summary())
    return result


def _check_at_start(loop: Loop, live: Live) -> None:
    """Members and priors must differ where this run begins."""
    if isinstance(loop.agent, QLearner):
        check_members_differ(loop.agent, live.agent.belief, nearby(live.obs))


def _advice(loop: Loop, live: Live, adviser: Adviser, returns: list[float], learned: bool) -> str | None:
    """On the prior's scale, by transitions of replay; of indices, by how many are in it."""
    agent, state = loop.agent, live.agent
    if not isinstance(agent, QLearner) or int(state.updates) < LEAST_UPDATES:
        return None
    kept = min(int(state.buffer.time), agent.buffer.capacity)
    step = agent.buffer.get(state.buffer, jax.random.randint(jax.random.key(0), (ROWS,), 0, kept)).transition
    found = measure(agent, state.belief, step.obs, step.action)
    seen = state.buffer.data.transition.obs
    cells = len(np.unique(seen)) if num_states(loop.env) is not None else None
    return adviser.look(found, int(state.updates), cells, returns, learned)


class _Clock:
    """Environment steps per second, the first chunk apart: it compiles."""

    def __init__(self, step: int) -> None:
        self.first = self.step = step
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


def parse_changes(words: Sequence[str]) -> dict[str, Any]:
    """Changes to settings, as words: `prior_scale=3`, `widths=50,50`, `epsilon=none`."""
    changes = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise ValueError(f"set={word!r} must be NAME=VALUE; pass for example prior_scale=3")
        changes[name] = _parse(one_of("setting", name, [field.name for field in dataclasses.fields(Settings)]), text)
    return changes


def _parse(name: str, text: str) -> Any:
    """A value of that setting's kind."""
    example = getattr(Settings(), name)
    if name == "prior_scale" and text == "auto":
        return text
    try:
        if isinstance(example, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(example, tuple):
            return tuple(int(part) for part in text.strip("()").split(",") if part.strip())
        if example is None:
            return None if text.lower() == "none" else float(text)
        return type(example)(text)
    except (ValueError, KeyError):
        kind = "a number or none" if example is None else f"like {example!r}"
        raise ValueError(f"{name}={text!r} must be {kind}") from None


def resumed(
    path: Path, given: Mapping[str, Any], changes: Mapping[str, Any], defaults: Mapping[str, Any] = DEFAULTS
) -> dict[str, Any]:
    """What to ask for, to go on with the run in a folder; what was given on top must agree with it. `defaults` has the
    names of all that can be asked for: those of `train`, unless told."""
    found = read_config(path)
    try:
        asked = {name: found.get(name) if default is None else found[name] for name, default in defaults.items()}
        stored = {**found["settings"], "widths": tuple(found["settings"]["widths"])}
    except (KeyError, TypeError) as error:
        raise BadFile(f"{path / 'run.json'} is damaged ({error!r}); start the run again with --overwrite") from None
    if given.keys() & {"episodes", "steps"}:
        asked |= dict.fromkeys(asked.keys() & {"episodes", "steps"})  # the new length, not also the old one
    if any(asked[name] != given[name] for name in ("agent", "preset") if name in given):
        return {**asked, **given, "changes": changes}  # other settings altogether: `train` says which
    return {**asked, **given, "changes": {**stored, **changes}}
