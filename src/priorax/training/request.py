"""What is asked for, in words: defaults, the preset of an environment, changes to it, and what a run was asked
for that goes on."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from priorax.agents import Settings
from priorax.checks import one_of
from priorax.envs import BSUITE, GYMNASIUM, GYMNAX, make_environment, num_states
from priorax.envs.adapt import shows_pictures
from priorax.envs.host.vector import VectorWorld
from priorax.envs.registry import lives_on_host, make_world
from priorax.storage import BadFile
from priorax.training.folder import read_config

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
