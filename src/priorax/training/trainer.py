"""`train`: one agent, one environment, one seed; in a folder, if one is given (`run_folder.py`)."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from priorax.agents import QLearner, Settings, build, check_members_differ, nearby, settings
from priorax.checks import checked_seed, positive_int
from priorax.envs import Environment, Held, action_bound, input_scale, make_environment, num_states
from priorax.envs.adapt import World, as_world
from priorax.envs.interface import interface_of_environment
from priorax.envs.registry import lives_on_host
from priorax.training.advice import LEAST_UPDATES, ROWS, Adviser, better, measure
from priorax.training.backends.scan import Episode, Live, Loop, advance, episodes_to_learn, episodes_to_solve, start
from priorax.training.backends.scan_files import Checkpoints
from priorax.training.evaluate import Evaluations, Evaluator
from priorax.training.folder import RunFolder, describe_run
from priorax.training.history import History
from priorax.training.interrupt import interruptible
from priorax.training.policy import Policy
from priorax.training.prior_scale import with_proposal, without_auto
from priorax.training.request import DEFAULT_EPISODES, preset_for

CHUNK = 1000
"""Environment steps between two looks at the clock."""
CHUNKS_BETWEEN_LOOKS = 5
"""Before the next look at whether the prior's scale suits."""


class Progress(NamedTuple):
    """What a progress bar shows."""

    episode: int
    total_return: float
    average_regret: float | None
    """None where the environment does not tell."""
    steps_per_second: float
    learned: int | None
    step: int
    evaluation: float | None = None
    """The mean of the last evaluation."""


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
    evaluation: float | None = None
    """The mean of the last evaluation."""
    policy: Policy | None = None
    """What was learned: it has `predict(obs)` and `values(obs)`."""

    def summary(self) -> dict[str, Any]:
        """All but the history, the probes and the policy, for JSON."""
        return {name: value for name, value in self._asdict().items() if name not in ("history", "probes", "policy")}


Probe = Callable[[Loop, Live], dict[str, float]]
"""Looks at a run between two chunks of steps, and says what it sees."""


def train(
    agent: str = "bsp",
    env: World = "deep_sea",
    *,
    game: str | None = None,
    size: int = 10,
    seed: int = 0,
    episodes: int | None = None,
    steps: int | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
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
    report: Callable[[Any], None] = lambda progress: None,
    announce: Callable[[str], None] | None = None,
    probe: Probe | None = None,
) -> Any:
    """Train an agent. Ctrl-C leaves a checkpoint.

    Args:
        agent: Its name.
        env: The environment: a name; one of your own in gymnax's shape, which is compiled; or whatever `Explorer`
            takes, such as an environment of Gymnasium, which runs on the host.
        game: Of `env="atari"`.
        size: Of environments that have one.
        seed: Everything random follows from it.
        episodes: How many.
        steps: Up to the episode that passes so many; on the host, up to so many.
        preset: Of hyperparameters; none: the environment's own.
        changes: To the preset's hyperparameters (`agents.Settings`).
        out: A folder for rows and checkpoints.
        resume: Go on with the run in that folder.
        overwrite: Replace the run in that folder.
        force: Resume a run of another version of priorax, where its files have the same format.
        stop_when_learned: End when average regret falls below `learned_below`.
        learned_below: The average regret that counts as learned.
        learned_after: The first episode that may count so.
        checkpoint_seconds: A checkpoint at least so often.
        evaluate_every: Actions between two trials of what would be deployed; none: never.
        evaluation_episodes: Of each trial.
        deploy: What is tried, as `Policy.predict` has it.
        report: Hears how far it is: a `Progress`, on the host a `HostProgress`.
        announce: Hears advice on the prior's scale.
        probe: Looks at a compiled run between chunks of steps.

    Returns:
        A `Result`, on the host a `HostResult`; its `policy` is what was learned.

    Raises:
        ValueError: If an argument is wrong; it says which, and what to do.
    """
    tried = Evaluations(evaluate_every, evaluation_episodes, deploy).checked()
    if not isinstance(env, Environment) and (not isinstance(env, str) or lives_on_host(env)):
        if stop_when_learned or probe is not None:
            name = "stop_when_learned=True" if stop_when_learned else f"probe={probe!r}"
            raise ValueError(f"{name} is for compiled environments, and env={env!r} runs on the host; leave it out")
        from priorax.training.host_training import train_on_host  # late: it needs what is here

        return train_on_host(
            agent,
            env,
            game=game,
            size=size,
            seed=seed,
            steps=steps,
            episodes=episodes,
            preset=preset,
            changes=changes,
            out=out,
            resume=resume,
            overwrite=overwrite,
            force=force,
            checkpoint_seconds=checkpoint_seconds,
            evaluations=tried,
            report=report,
            announce=announce or (lambda words: None),
        )
    if game is not None:
        raise ValueError(f"game={game!r} is for env='atari', not {env!r}; leave it out")
    if episodes is None and steps is None:
        episodes = DEFAULT_EPISODES
    for what, count in (("episodes", episodes), ("steps", steps)):
        if count is not None:
            positive_int(what, count)
    checked_seed(seed)
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
    evaluator = Evaluator(tried, seed, None if out is None else Path(out))
    rest = (asked, until, evaluator, checkpoint_seconds, report, probe, adviser, announce)
    if out is None:
        return _run(loop, key, params, None, *rest)
    interface = interface_of_environment(loop.env, params)
    shown = {} if interface is None else {"interface": interface.as_json()}
    files = RunFolder(
        Path(out),
        lambda path: Checkpoints(path, loop.agent.buffer),
        describe_run({**asked, **shown}, chosen),
        {"episodes": episodes, "steps": steps, **tried._asdict()},
        resume,
        overwrite,
        force=force,
    )
    with contextlib.closing(files) as folder, contextlib.closing(evaluator):
        return _run(loop, key, params, folder, *rest)


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
    evaluator: Evaluator,
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
    evaluator.begin(int(snapshot.live.step))
    clock, held = _Clock(int(snapshot.live.step)), getattr(loop.env, "times", 1)
    tells, scores = getattr(loop.env, "tells_regret", False), evaluator.scores

    def first_below(rows: Sequence[Episode]) -> int | None:
        return episodes_to_learn(rows, until.below, until.after) if tells else None

    learned = first_below(history)
    taken = sum(row.length for row in history)

    def over() -> bool:
        enough = until.episodes is not None and len(history) >= until.episodes
        return enough or (until.steps is not None and taken >= until.steps) or (until.stop and learned is not None)

    size = evaluator.chunk(CHUNK)
    with interruptible() as interrupt:
        while not over():
            following, ended, ends = advance(loop, key, params, snapshot, size)
            clock.lap(int(following.live.step))
            known = len(history)
            for row, end in zip(ended, ends, strict=True):
                history.append(row)
                taken += row.length
                learned = learned or first_below([row])
                if over():  # the agent as it was at the end of the last episode, not of the chunk
                    if end < int(following.live.step):
                        following = advance(loop, key, params, snapshot, size, until=end).snapshot
                    break
            if folder is not None:
                folder.append(history[known:])
            snapshot = following
            evaluator.look(loop, params, snapshot.live)
            if folder is not None:
                folder.checkpoint(snapshot, unless_younger_than=checkpoint_seconds)
            if probe is not None:
                probes.append({"episode": len(history), **probe(loop, snapshot.live)})
            if announce is not None and clock.laps % CHUNKS_BETWEEN_LOOKS == 0:
                returns = [row.total_return for row in history.ends()]
                good = learned is not None if tells else better(returns)
                words = _advice(loop, snapshot.live, adviser, returns, good)
                if words is not None:
                    announce(words)
            if history[known:]:
                last = history[-1]
                regret = last.average_regret if tells else None
                speed = clock.speed * held
                report(Progress(last.episode, last.total_return, regret, speed, learned, taken, scores.last))
            if interrupt.came:
                if folder is not None:
                    folder.checkpoint(snapshot)
                interrupt.stop()
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
        evaluation=scores.last,
        policy=_policy(loop, params, snapshot.live),
    )
    if folder is not None:
        folder.finish(snapshot, result.summary())
    return result


def _policy(loop: Loop, params: Any, live: Live) -> Policy | None:
    interface = interface_of_environment(loop.env, params)
    return None if interface is None else Policy(loop.agent, live.agent, interface)


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
