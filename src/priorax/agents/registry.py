"""Agents by name: built-in (`priorax.names`), registered here, and from other packages.

    spec = agent_spec("bsp")                        how it is built, and with which settings
    chosen = settings("bsp", "tuned", prior_scale=3)
    agent = build("bsp", chosen, interface)

Other packages add an agent by an entry point of group `priorax.agents`, whose value is an `AgentSpec`.
"""

import dataclasses
import difflib
import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any

from priorax import names
from priorax.agents.base import Agent
from priorax.agents.presets import PRESETS, Preset
from priorax.agents.setting_values import checked, hints
from priorax.agents.settings import INERT, Settings
from priorax.checks import one_of
from priorax.envs.interface import Interface, TaskSpec


@dataclass(frozen=True)
class AgentSpec:
    """Specification of a named agent: its settings, and how it is built from them."""

    name: str
    """The name, as in `priorax train --agent NAME`."""
    settings: type[Settings]
    """The class of its hyperparameters."""
    build: Callable[[Any, TaskSpec], Agent]
    """Function that builds the agent from an instance of that class and a description of the environment."""
    summary: str = ""
    """One-line description, for lists."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Values of settings that define this agent; they take precedence over every preset."""
    aliases: tuple[str, ...] = ()
    """Names in the literature; if one is requested, the error message gives the name used here."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The agent's own changes to presets, by preset name; a new name is a preset of this agent alone."""
    continuous: bool = False
    """Whether its actions are continuous."""

    def __post_init__(self) -> None:
        """Check that all changes are to settings of its class.

        Raises:
            ValueError: If a change is to an unknown setting.
        """
        for name in (name for changes in (self.changes, *self.presets.values()) for name in changes):
            one_of(f"a setting of agent {self.name!r}", name, hints(self.settings))

    def preset(self, name: str) -> dict[str, Any]:
        """Collect all changes that a preset makes to the defaults of this agent.

        Args:
            name: Name of the preset.

        Returns:
            New values by setting.

        Raises:
            ValueError: If the preset is unknown, or needs settings that this agent does not have.
        """
        own = self.presets.get(one_of("preset", name, {**PRESETS, **self.presets}))
        shared = PRESETS.get(name, Preset())
        known = hints(self.settings)
        lacking = [each for each in shared.needs if each not in known]
        if lacking and own is None:
            others = [each for each, preset in PRESETS.items() if all(need in known for need in preset.needs)]
            raise ValueError(
                f"preset={name!r} is for agents with the setting {', '.join(lacking)}, such as 'bsp', which "
                f"agent={self.name!r} does not have; use another preset ({', '.join(others)}) or another agent"
            )
        return {**{each: v for each, v in shared.changes.items() if each in known}, **self.changes, **(own or {})}


_registered: dict[str, AgentSpec] = {}


def register(spec: AgentSpec) -> AgentSpec:
    """Register an agent, for this process.

    Args:
        spec: The agent.

    Returns:
        The same spec.

    Raises:
        ValueError: If the name is taken.
    """
    if spec.name in _registered or spec.name in names.agent_names():
        raise ValueError(f"agent={spec.name!r} is taken; register it under another name")
    _registered[spec.name] = spec
    return spec


def agents() -> dict[str, AgentSpec]:
    """List all agents by name: built-in, from plug-ins, and registered.

    A plug-in that fails to load, or whose name is taken, is skipped with a warning.

    Returns:
        Specs by name.
    """
    found = {name: _ours(name) for name in names.AGENTS}
    for point in names.plugins(names.AGENT_PLUGINS):
        try:
            found[point.name] = _plugin(point)
        except ValueError as error:
            warnings.warn(str(error), stacklevel=2)
    return found | _registered


def agent_spec(agent: str | AgentSpec) -> AgentSpec:
    """Look up an agent by name.

    Args:
        agent: Name of the agent, or its spec.

    Returns:
        Its spec.

    Raises:
        ValueError: If the name is unknown (the message suggests the nearest name), or its plug-in fails to load.
    """
    if isinstance(agent, AgentSpec):
        return agent
    if agent in _registered:
        return _registered[agent]
    if agent in names.AGENTS:
        return _ours(agent)
    for point in names.plugins(names.AGENT_PLUGINS):
        if point.name == agent:
            return _plugin(point)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = agents()
    one_of("agent", agent, known, {alias: name for name, spec in known.items() for alias in spec.aliases})
    raise AssertionError("one_of raises for unknown names")


@functools.cache
def _ours(name: str) -> AgentSpec:
    where, summary = names.AGENTS[name]
    module, _, attribute = where.partition(":")
    spec: AgentSpec = getattr(importlib.import_module(module), attribute)
    return dataclasses.replace(spec, summary=summary)


@functools.cache
def _plugin(point: EntryPoint) -> AgentSpec:
    """Load an agent from another package.

    Raises:
        ValueError: If it cannot be loaded; the message names the distribution.
    """
    whose = f"the plug-in {names.distribution(point)!r} ({point.group}: {point.name} = {point.value})"
    same = [each for each in names.plugins(point.group) if each.name == point.name]
    if point.name in names.AGENTS or same[0] != point:
        raise ValueError(f"{whose} defines an agent whose name is taken; rename or uninstall it")
    try:
        spec = point.load()
    except Exception as error:  # anything may fail in another package
        raise ValueError(f"{whose} cannot be loaded: {error!r}; fix or uninstall it") from error
    if not isinstance(spec, AgentSpec) or spec.name != point.name:
        raise ValueError(f"{whose} is {spec!r}; it must be an AgentSpec with name={point.name!r}")
    return spec


def settings(agent: str | AgentSpec, preset: str = "tuned", **changes: Any) -> Settings:
    """Create the hyperparameters of an agent: the preset, the values that define the agent, then your changes.

    Args:
        agent: Name of the agent, or its spec.
        preset: A name in `PRESETS`, or of a preset of the agent.
        **changes: New values of single settings.

    Returns:
        An instance of the agent's class of settings.

    Raises:
        ValueError: If a name is unknown, the agent does not have such a setting, or a value is not allowed.
    """
    spec = agent_spec(agent)
    base = spec.preset(preset)
    typed = {name: checked(spec.settings, setting_of(spec, name), value) for name, value in changes.items()}
    if typed.get("prior_scale") == "auto":
        raise ValueError(
            "prior_scale='auto' needs an environment, which is unknown here; run `priorax scale`, and pass its proposal"
        )
    found, usual = spec.settings(**{**base, **typed}), (spec.settings(), spec.settings(**base))
    for name in typed:
        if getattr(found, name) not in [getattr(each, name) for each in usual]:
            _warn_if_inert(spec, found, name)
    return found


def _warn_if_inert(spec: AgentSpec, found: Settings, name: str) -> None:
    """Warn if a changed setting has no effect beside the value of another one."""
    for other, values in INERT.get(name, ()):
        if other in hints(spec.settings) and (value := getattr(found, other)) in values:
            warnings.warn(
                f"{name}={getattr(found, name)!r} has no effect on agent={spec.name!r} with {other}={value!r}; "
                f"change {other} too, or leave {name} out",
                stacklevel=3,
            )
            return


def setting_of(spec: AgentSpec, name: str) -> str:
    """Check that an agent has a setting.

    Args:
        spec: The agent.
        name: Name of the setting.

    Returns:
        The name.

    Raises:
        ValueError: If it does not; the message names agents that have it, or similar settings of this agent.
    """
    mine = list(hints(spec.settings))
    if name in mine:
        return name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        others = [each for each, other in agents().items() if name in hints(other.settings)]
    if not others:
        one_of("setting", name, mine)
    near = difflib.get_close_matches(name, mine, n=3, cutoff=0.5)
    meant = f"did you mean {', '.join(map(repr, near))}? " if near else ""
    raise ValueError(
        f"setting={name!r} does not exist for agent={spec.name!r}; agents that have it: {', '.join(others)}; {meant}"
        f"`priorax agents {spec.name}` lists the settings of {spec.name}"
    )


def build(
    agent: str | AgentSpec, settings: Settings, interface: Interface | TaskSpec, optimal_values: Any = None
) -> Agent:
    """Build an agent.

    Args:
        agent: Name of the agent, or its spec.
        settings: Its hyperparameters, an instance of the agent's class of settings.
        interface: Observations and actions of its environment.
        optimal_values: Optimal Q-values [state, action], for settings that need them (prior='optimal').

    Returns:
        The agent.

    Raises:
        ValueError: If the settings belong to another agent, or are incompatible with the environment.
    """
    spec = agent_spec(agent)
    if not isinstance(settings, spec.settings):
        raise ValueError(
            f"settings={type(settings).__name__} must be {spec.settings.__name__} for agent={spec.name!r}; pass "
            f"settings({spec.name!r})"
        )
    task = interface.task_spec() if isinstance(interface, Interface) else interface
    if optimal_values is not None:
        task = dataclasses.replace(task, optimal_values=optimal_values)
    if spec.continuous and task.bound is None:
        raise ValueError(
            f"agent={spec.name!r} needs continuous actions, and the environment has {task.num_actions} discrete ones; "
            "use another agent, or an environment with continuous actions"
        )
    if not spec.continuous and task.bound is not None:
        raise ValueError(
            f"agent={spec.name!r} needs discrete actions, and the environment has continuous ones; use agent='d4pg'"
        )
    return spec.build(settings, task)
