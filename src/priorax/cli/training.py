"""The commands `priorax train` and `priorax apex`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from priorax.cli.commands import Apex, Train
from priorax.progress import console, count_bar, say

if TYPE_CHECKING:
    from priorax.training.records import Progress, Result


def train(command: Train) -> int:
    """Run `priorax train`, on the backend of the environment or of the resumed run.

    Args:
        command: The command.

    Returns:
        The exit code.

    Raises:
        ValueError: If the run must be resumed in another way, or options do not go together.
    """
    from priorax.training.run_files import read_config

    before = read_config(command.resume) if command.resume else {}
    if str(before.get("env")).startswith("object:"):
        raise ValueError(
            f"the run in {command.resume} was trained in an environment object; resume it in Python with "
            "priorax.Explorer.load(path, env=...)"
        )
    if before.get("backend") == "ray":
        raise ValueError(
            f"the run in {command.resume} was trained on Ray; resume it with: priorax apex --resume {command.resume}"
        )
    more = {"stop_when_learned": command.stop_when_learned, **_tried(command, before)}
    return _run(command, before, more | ({} if command.backend is None else {"backend": command.backend}))


def apex(command: Apex) -> int:
    """Run `priorax apex`, on Ray.

    Args:
        command: The command.

    Returns:
        The exit code.
    """
    from priorax.training.run_files import read_config
    from priorax.training.setup import Workers

    before = read_config(command.resume) if command.resume else {}
    actors, shards = command.actors or before.get("actors", 2), command.shards or before.get("shards", 1)
    workers = Workers(actors, shards, command.address, command.timeout)
    return _run(command, before, {"backend": "ray", "workers": workers})


def _run(command: Any, before: Mapping[str, Any], more: dict[str, Any]) -> int:
    from priorax.training.request import DEFAULTS
    from priorax.training.setup import choose_backend
    from priorax.training.trainer import DEFAULT_EPISODES, DEFAULT_STEPS
    from priorax.training.trainer import train as run

    defaults = {name: value for name, value in DEFAULTS.items() if hasattr(command, name)}
    if isinstance(command, Apex):
        defaults["env"] = "atari"
    out, arguments = _arguments(command, defaults)
    shown = _shown(command)
    where = more.get("backend") or before.get("backend") or choose_backend(arguments["env"])
    by_episodes = arguments["steps"] is None and (arguments.get("episodes") is not None or where == "scan")
    total = (arguments.get("episodes") or DEFAULT_EPISODES) if by_episodes else arguments["steps"] or DEFAULT_STEPS
    size = f" {arguments['size']}" if _sized(arguments["env"]) else ""
    try:
        with count_bar(
            total, f"{arguments['agent']} on {arguments.get('game') or arguments['env']}{size}", shown
        ) as update:
            result = run(
                **arguments,
                **{"backend": where, **more},
                out=out,
                resume=command.resume is not None,
                overwrite=command.overwrite,
                force=command.force,
                checkpoint_seconds=command.checkpoint_seconds,
                report=lambda progress: update(progress.episodes if by_episodes else progress.step, _note(progress)),
                announce=lambda words: say(words, shown),
            )
    except (KeyboardInterrupt, SystemExit):
        again = "apex" if isinstance(command, Apex) else "train"
        say(f"resume with: priorax {again} --resume {out}", shown)
        raise
    if command.json:
        print(json.dumps(result.summary()))
    else:
        console.print(_outcome(result, out))
    return 0


def _note(progress: "Progress") -> str:
    """Format the text of the progress bar."""
    words = "no episode yet" if progress.mean_return is None else f"return {progress.mean_return:.2f}"
    if progress.evaluation is not None:
        words += f"  deployed {progress.evaluation:.2f}"
    words += f"  {progress.steps_per_second:,.0f} steps/s"
    if progress.average_regret is not None:
        learned = f"learned at {progress.learned}" if progress.learned else "not learned yet"
        words += f"  regret {progress.average_regret:.2f}  {learned}"
    if progress.cells is not None:
        words += f"  {progress.updates:,} updates  {progress.cells:,} states"
    if (cluster := progress.cluster) is not None and len(cluster.processes) < cluster.actors + cluster.shards:
        words += f"  {len(cluster.processes)} of {cluster.actors + cluster.shards} workers have a CPU"
    return words


def _outcome(result: "Result", out: Path) -> str:
    """Format the summary of a run."""
    if result.tells_regret:
        learned = result.episodes_to_learn
        words = f"learned at episode {learned} of" if learned else "not learned in"
        words += f" {result.episodes} episodes"
    elif result.mean_return is None:
        words = "no episode finished"
    else:
        last = min(100, result.episodes)
        words = f"mean return {result.mean_return:.2f} in the last {last} of {result.episodes} episodes"
    if result.evaluation is not None:
        words += f"; deployed {result.evaluation:.2f} in the last evaluation"
    return f"{words}; {result.steps:,} steps, {result.steps_per_second:,.0f} steps/s; rows in {out}/episodes.csv"


def _tried(command: Train, before: Mapping[str, Any]) -> dict[str, Any]:
    """Get the schedule of evaluations: as requested, or that of the run to resume."""
    from priorax.training.evaluate import Evaluations

    names = Evaluations._fields
    tried = {name: getattr(command, name) for name in names if getattr(command, name) is not None}
    if before.get("evaluate_every") is not None:
        tried = {**{name: before[name] for name in names}, **tried}
    if tried and tried.get("evaluate_every") is None:
        raise ValueError(f"{', '.join(tried)} without evaluate_every has no effect; pass --evaluate-every too")
    return tried


def _arguments(command: Any, defaults: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Get the folder of a run and its arguments: those requested, or those of the run to resume."""
    from priorax.training.request import parse_changes, resumed
    from priorax.training.run_files import read_config

    given = {name: getattr(command, name) for name in defaults if getattr(command, name) is not None}
    before = read_config(command.resume).get("agent") if command.resume is not None else None
    changes = parse_changes(given.get("agent") or before or defaults["agent"], command.set)
    if command.resume is not None:
        return command.resume, resumed(command.resume, given, changes, defaults)
    arguments = {**defaults, **given, "changes": changes}
    if "size" in given and not _sized(arguments["env"]):
        raise ValueError(f"size={given['size']} has no effect on env={arguments['env']!r}, which has no size; omit it")
    return command.out or _default_folder(arguments), arguments


def _shown(command: Any) -> Console:
    """Get the console for messages: standard error if the result is printed as JSON."""
    return Console(stderr=True) if command.json else console


def _sized(env: str) -> bool:
    """Whether an environment has a size."""
    from priorax.envs.registry import environment_spec

    return environment_spec(env).sized


def _default_folder(arguments: dict[str, Any]) -> Path:
    """Get the default folder."""
    name = arguments.get("game") or arguments["env"].replace(":", "-").replace("/", "-")
    size = f"-{arguments['size']}" if _sized(arguments["env"]) else ""
    return Path("runs") / f"{arguments['agent']}-{name}{size}-{arguments['seed']}"
