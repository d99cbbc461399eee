"""Arguments of a run: defaults, changes to settings, and the arguments of a run to resume."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from priorax.agents import AgentSpec, agent_spec, setting_of
from priorax.agents.setting_values import checked_all, parse
from priorax.files import BadFile
from priorax.training.run_files import read_config

NAMES: dict[str, Any] = {
    "agent": "bsp",
    "env": "deep_sea",
    "game": None,
    "size": 10,
    "seed": 0,
    "preset": None,
}
"""Arguments that identify a run, with their defaults; preset None is that of the environment."""
DEFAULTS: dict[str, Any] = {**NAMES, "episodes": None, "steps": None}
"""Arguments of a run, with their defaults."""


def parse_changes(agent: str | AgentSpec, words: Sequence[str]) -> dict[str, Any]:
    """Parse changes to an agent's settings: `prior_scale=3`, `widths=50,50`, `epsilon=none`.

    Args:
        agent: Name of the agent, or its spec.
        words: Changes, each NAME=VALUE.

    Returns:
        New values by setting.

    Raises:
        ValueError: If a change is malformed, the agent does not have such a setting, or the value has the wrong type.
    """
    spec = agent_spec(agent)
    changes = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise ValueError(f"set={word!r} must be NAME=VALUE; `priorax agents {spec.name}` shows the settings")
        changes[name] = parse(spec.settings, setting_of(spec, name), text)
    return changes


def resumed(
    path: Path, given: Mapping[str, Any], changes: Mapping[str, Any], defaults: Mapping[str, Any] = DEFAULTS
) -> dict[str, Any]:
    """Get the arguments for resuming a run; those given explicitly must agree with it.

    Args:
        path: Folder of the run.
        given: Arguments given explicitly.
        changes: Changes to settings given explicitly.
        defaults: Names of all possible arguments; by default those of `train`.

    Returns:
        The arguments.

    Raises:
        BadFile: If run.json is damaged or has unknown values.
    """
    found = read_config(path)
    try:
        arguments = {name: found.get(name) if default is None else found[name] for name, default in defaults.items()}
        stored = checked_all(agent_spec(found["agent"]).settings, found["settings"])
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"{path / 'run.json'} is damaged ({error!r}); start the run again with --overwrite") from None
    except ValueError as error:
        raise BadFile(
            f"{path / 'run.json'} has an unknown value ({error}); resume with the version of priorax, or the plug-in, "
            "that wrote it, or start the run again with --overwrite"
        ) from None
    if given.keys() & {"episodes", "steps"}:
        arguments |= dict.fromkeys(arguments.keys() & {"episodes", "steps"})  # the new length replaces the old
    if any(arguments[name] != given[name] for name in ("agent", "preset") if name in given):
        return {**arguments, **given, "changes": changes}  # `train` reports the differing settings
    return {**arguments, **given, "changes": {**stored, **changes}}
