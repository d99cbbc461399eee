"""What `priorax train` and `priorax apex` do: the same things asked, shown and said, whichever loop runs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from priorax.cli.commands import Apex, Train
from priorax.progress import console, count_bar, say


def train(command: Train) -> int:
    """In the compiled loop, or on the host where the environment lives there."""
    import json

    from priorax.envs.registry import lives_on_host
    from priorax.training.folder import read_config
    from priorax.training.request import DEFAULT_EPISODES, DEFAULTS
    from priorax.training.trainer import Progress
    from priorax.training.trainer import train as run

    before = read_config(command.resume) if command.resume else {}
    env = before.get("env", command.env)
    if before.get("loop") == "host" or (env is not None and lives_on_host(env)):
        return _train_on_host(command, before)
    if command.game is not None:
        raise ValueError(f"game={command.game!r} is for --env atari; leave it out")
    out, asked = _asked(command, DEFAULTS)
    tried = _tried(command, before)
    shown = _shown(command)

    def note(progress: Progress) -> str:
        words = f"return {progress.total_return:.2f}{_deployed(progress.evaluation)}  "
        words += f"{progress.steps_per_second:,.0f} steps/s"
        if progress.average_regret is None:
            return words
        learned = f"learned at {progress.learned}" if progress.learned else "not learned yet"
        return f"{words}  regret {progress.average_regret:.2f}  {learned}"

    try:
        by_steps = asked["episodes"] is None and asked["steps"] is not None
        total = asked["steps"] if by_steps else asked["episodes"] or DEFAULT_EPISODES
        with count_bar(total, f"{asked['agent']} on {asked['env']} {asked['size']}", shown) as update:
            result = run(
                **asked,
                **tried,
                out=out,
                resume=command.resume is not None,
                overwrite=command.overwrite,
                force=command.force,
                stop_when_learned=command.stop_when_learned,
                checkpoint_seconds=command.checkpoint_seconds,
                report=lambda progress: update(progress.step if by_steps else progress.episode, note(progress)),
                announce=lambda words: say(words, shown),
            )
    except (KeyboardInterrupt, SystemExit):
        say(f"go on with: priorax train --resume {out}", shown)
        raise
    if command.json:
        print(json.dumps(result.summary()))
        return 0
    words = f"learned at episode {result.episodes_to_learn}" if result.episodes_to_learn else "not learned"
    if not result.tells_regret:
        last = [row.total_return for row in result.history[-50:]]
        words = f"mean return {sum(last) / len(last):.1f} in the last {len(last)} episodes"
    console.print(
        f"{words} of {result.episodes}{_evaluated(result.evaluation)}; {result.env_steps_per_second:,.0f} steps/s; "
        f"rows in {out}/episodes.csv"
    )
    return 0


def _tried(command: Train, before: Mapping[str, Any]) -> dict[str, Any]:
    """How often what is deployed is tried: as asked, or as before when the run goes on."""
    from priorax.training.evaluate import Evaluations

    names = Evaluations._fields
    tried = {name: getattr(command, name) for name in names if getattr(command, name) is not None}
    if before.get("evaluate_every") is not None:
        tried = {**{name: before[name] for name in names}, **tried}
    if tried and tried.get("evaluate_every") is None:
        raise ValueError(f"{', '.join(tried)}: nothing is evaluated; pass --evaluate-every too")
    return tried


def _deployed(evaluation: float | None) -> str:
    """For a bar."""
    return "" if evaluation is None else f"  deployed {evaluation:.2f}"


def _evaluated(evaluation: float | None) -> str:
    """For the last line."""
    return "" if evaluation is None else f"; deployed {evaluation:.2f} in the last evaluation"


def _asked(command: Any, defaults: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The folder of a run, and what is asked for there: anew, or as it was when the run goes on."""
    from priorax.training.request import parse_changes, resumed

    given = {name: getattr(command, name) for name in defaults if getattr(command, name) is not None}
    changes = parse_changes(command.set)
    if command.resume is not None:
        return command.resume, resumed(command.resume, given, changes, defaults)
    asked = {**defaults, **given, "changes": changes}
    return command.out or _default_folder(asked), asked


def _shown(command: Any) -> Console:
    """Where bars and words go: not into what is read as JSON."""
    return Console(stderr=True) if command.json else console


def _default_folder(asked: dict[str, Any]) -> Path:
    """Someone else's environment has a name and no size."""
    name = asked.get("game") or asked["env"].replace(":", "-").replace("/", "-")
    size = "" if asked.get("game") or ":" in asked["env"] else f"-{asked['size']}"
    return Path("runs") / f"{asked['agent']}-{name}{size}-{asked['seed']}"


def _train_on_host(command: Train, before: dict[str, Any]) -> int:
    from priorax.training.evaluate import Evaluations
    from priorax.training.host_training import train_on_host

    if str(before.get("env")).startswith("object:"):
        raise ValueError(f"{command.resume} was learned in an object; go on with priorax.Explorer.load(path, env=...)")
    if command.stop_when_learned:
        raise ValueError("stop_when_learned=True is for DeepSea in the compiled loop; leave it out")
    tried = _tried(command, before)

    def run(**asked: Any) -> Any:
        return train_on_host(
            **asked,
            evaluations=Evaluations(**tried),
            announce=lambda words: say(words, _shown(command)),
        )

    return _on_host(command, run, {})


def apex(command: Apex) -> int:
    """On Ray."""
    from priorax.training.backends.ray import run_apex
    from priorax.training.folder import read_config

    before = read_config(command.resume) if command.resume else {}
    actors, shards = command.actors or before.get("actors", 2), command.shards or before.get("shards", 1)
    return _on_host(command, run_apex, {"actors": actors, "shards": shards, "address": command.address})


def _on_host(command: Any, run: Callable[..., Any], more: dict[str, Any]) -> int:
    """Train from pixels, in this process or on a cluster."""
    import json

    from priorax.training.host_training import DEFAULT_STEPS, HOST_DEFAULTS, HostProgress

    out, asked = _asked(command, {name: value for name, value in HOST_DEFAULTS.items() if hasattr(command, name)})
    shown = _shown(command)

    def note(progress: HostProgress) -> str:
        mean = "no episode yet" if progress.mean_return is None else f"return {progress.mean_return:.2f}"
        deployed = _deployed(getattr(progress, "evaluation", None))
        return (
            f"{mean}{deployed}  {progress.steps_per_second:,.0f} steps/s  {progress.updates:,} updates  "
            f"{progress.cells:,} states"
        )

    try:
        by_episodes = asked["steps"] is None and asked.get("episodes") is not None
        total = asked["episodes"] if by_episodes else asked["steps"] or DEFAULT_STEPS
        with count_bar(total, f"{asked['agent']} on {asked['game'] or asked['env']}", shown) as update:
            result = run(
                **asked,
                **more,
                out=out,
                resume=command.resume is not None,
                overwrite=command.overwrite,
                force=command.force,
                checkpoint_seconds=command.checkpoint_seconds,
                report=lambda progress: update(progress.episodes if by_episodes else progress.step, note(progress)),
            )
    except (KeyboardInterrupt, SystemExit):
        again = "apex" if more else "train"
        say(f"go on with: priorax {again} --resume {out}", shown)
        raise
    if command.json:
        print(json.dumps(result.summary()))
        return 0
    mean = "no episode ended"
    if result.mean_return is not None:
        mean = f"mean return {result.mean_return:.2f} in the last {min(100, result.episodes)} episodes"
    mean += _evaluated(getattr(result, "evaluation", None))
    console.print(
        f"{mean}; {result.episodes} episodes, {result.steps:,} steps, {result.steps_per_second:,.0f} a second; "
        f"rows in {out}/episodes.csv"
    )
    return 0
