"""Preparation of a run: from its arguments to agent, environment and backend."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from priorax.agents import Agent, AgentSpec, Settings, settings
from priorax.checks import one_of
from priorax.envs import Environment
from priorax.envs.adapt import World, as_world
from priorax.envs.registry import known_environment, preset_for, preset_in
from priorax.training.backends.base import Backend
from priorax.training.backends.host import HostBackend, build_for
from priorax.training.backends.loop import prepare
from priorax.training.backends.scan import ScanBackend
from priorax.training.prior_scale import with_proposal, without_auto
from priorax.training.run_files import describe_run, read_prior

BACKENDS = ("scan", "host", "ray")


class Workers(NamedTuple):
    """Processes of the backend "ray".

    Attributes:
        actors: Number of rollout actors, each with as many lanes as in the settings.
        shards: Number of replay processes, which share the capacity.
        address: Address of a Ray cluster, such as "auto" on one of its machines; None: this machine alone.
        timeout: Seconds in which a process must answer, else it is replaced. An actor answers after 16 steps of all its
            lanes, and first creates its environments and compiles.
    """

    actors: int = 2
    shards: int = 1
    address: str | None = None
    timeout: float = 300.0


class Setup(NamedTuple):
    """A run before its first step."""

    names: dict[str, Any]
    """agent, env, game, size, seed and preset, as in run.json."""
    settings: Settings
    """Hyperparameters."""
    backend: Backend
    """The backend, with agent and environment."""
    workers: Workers | None = None
    """Processes of the backend "ray"."""
    prior: bytes | None = None
    """The file of the learned prior as it was at the beginning; None if there is none."""

    @property
    def seed(self) -> int:
        """Seed of all randomness."""
        return int(self.names["seed"])

    @property
    def config(self) -> dict[str, Any]:
        """The configuration for run.json."""
        arguments = {**self.names, "backend": self.backend.name}
        if self.workers is not None:
            arguments |= {"actors": self.workers.actors, "shards": self.workers.shards}
        if self.backend.interface is not None:
            arguments["interface"] = self.backend.interface.as_json()
        return describe_run(arguments, self.settings)

    def evaluation_seed(self, *more: int) -> int:
        """Derive the seed of an evaluation; no two evaluations share random numbers.

        Args:
            *more: Numbers that identify the evaluation.

        Returns:
            The seed.
        """
        return int(np.random.SeedSequence([self.seed, *more]).generate_state(1)[0] >> 1)


def set_up(
    agent: str | AgentSpec | Agent,
    env: World,
    *,
    backend: str | None = None,
    game: str | None = None,
    size: int = 10,
    seed: int = 0,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    workers: Workers | None = None,
) -> Setup:
    """Prepare a run; the arguments are those of `train`.

    Args:
        agent: A name, a spec, or a custom agent.
        env: A name, or an environment.
        backend: "scan", "host" or "ray"; None: that of the environment.
        game: The game, for `env="atari"`.
        size: Size of environments that have one.
        seed: Seed of all randomness.
        preset: Preset of hyperparameters; None: that of the environment.
        changes: New values of hyperparameters.
        workers: Processes of the backend "ray".

    Returns:
        The prepared run.

    Raises:
        ValueError: If an argument is invalid, or the agent cannot run on that backend.
    """
    changes = changes or {}
    where = choose_backend(env, backend, workers)
    if game is not None and env != "atari":
        raise ValueError(f"game={game!r} is for env='atari', not {env!r}; leave it out")
    names: dict[str, Any] = {
        "agent": name_of_agent(agent),
        "env": name_of(env),
        "game": game,
        "size": size,
        "seed": seed,
    }
    if where == "scan":
        made = _in_scan(agent, env, names, preset, changes)
    elif where == "ray":
        from priorax.training.backends.ray import on_ray  # imported late: optional dependency

        made = on_ray(agent, env, names, preset, changes, workers or Workers())
    else:
        made = _on_host(agent, env, names, preset, changes)
    return made._replace(prior=read_prior(dataclasses.asdict(made.settings)))  # as the agent has it


def choose_backend(env: World, backend: str | None = None, workers: Workers | None = None) -> str:
    """Choose the backend: the requested one, or that of the environment.

    Args:
        env: A name, or an environment.
        backend: The requested backend, if any.
        workers: Processes of the backend "ray", if any.

    Returns:
        Name of the backend.

    Raises:
        ValueError: If the environment cannot run on it.
    """
    spec = known_environment(env) if isinstance(env, str) else None
    compiled = isinstance(env, Environment) or (isinstance(env, str) and (spec is None or spec.is_compiled))
    on_host = not compiled or (spec is not None and spec.on_host)
    usual = "ray" if workers is not None else "host" if on_host else "scan"
    found = one_of("backend", backend or usual, BACKENDS)
    if found == "scan" and not compiled:
        raise ValueError(f"backend='scan' needs a compiled environment, but env={env!r} is not; use backend='host'")
    if found == "ray" and not isinstance(env, str):
        raise ValueError(
            f"backend='ray' needs the name of an environment, to create it in other processes; env={env!r} is an "
            "object: register it under a name, or use backend='host'"
        )
    if found != "ray" and workers is not None:
        raise ValueError(f"workers={workers} are for backend='ray', not {backend!r}; leave them out")
    return found


def name_of_agent(agent: str | AgentSpec | Agent) -> str:
    """Get the name of an agent in a run's files.

    Args:
        agent: A name, a spec, or a custom agent.

    Returns:
        The name.
    """
    if isinstance(agent, str):
        return agent
    return agent.name if isinstance(agent, AgentSpec) else f"object:{type(agent).__name__}"


def name_of(env: World) -> str:
    """Get the name of an environment in a run's files.

    Args:
        env: A name, or an environment.

    Returns:
        The name.
    """
    if isinstance(env, str):
        return env
    name = getattr(env, "__name__", None) or type(getattr(env, "unwrapped", env)).__name__
    return f"object:{name}"


def chosen_settings(agent: str | AgentSpec | Agent, preset: str, changes: Mapping[str, Any]) -> Settings:
    """Get the hyperparameters of a named agent; of a custom agent, which has its own, those of the training loop.

    Args:
        agent: A name, a spec, or a custom agent.
        preset: Preset of hyperparameters.
        changes: New values of hyperparameters.

    Returns:
        The hyperparameters.

    Raises:
        ValueError: If a name or value is invalid.
    """
    if isinstance(agent, str | AgentSpec):
        return settings(agent, preset, **without_auto(changes)).settled()
    for name in changes:
        one_of("setting of an agent object", name, [field.name for field in dataclasses.fields(Settings)])
    return Settings(**changes)


def _in_scan(
    agent: str | AgentSpec | Agent, env: Any, names: dict[str, Any], preset: str | None, changes: Mapping[str, Any]
) -> Setup:
    size, seed = names["size"], names["seed"]
    preset = preset or preset_for(env if isinstance(env, str) else type(env).__name__)
    chosen = chosen_settings(agent, preset, {"lanes": 1, **changes})  # presets may have more lanes, for the host
    if isinstance(agent, str | AgentSpec):
        probed = lambda: as_world(env, 4, size=size, seed=seed, hold=chosen.hold).world  # noqa: E731
        chosen = with_proposal(agent, chosen, changes, probed, seed)
    loop, key, params = prepare(agent, chosen, env, size, seed)
    return Setup({**names, "preset": preset}, chosen, ScanBackend(loop, key, params, devices=chosen.devices))


def _on_host(
    agent: str | AgentSpec | Agent, env: World, names: dict[str, Any], preset: str | None, changes: Mapping[str, Any]
) -> Setup:
    size, seed, game = names["size"], names["seed"], names["game"]

    def make(lanes: int, hold: int = 1) -> Any:
        return as_world(env, lanes, size=size, game=game, seed=seed, hold=hold)

    if preset is None and isinstance(env, str):
        preset = preset_for(env)
    elif preset is None:
        world, shared = make(1)
        preset = preset_in(world)
        if not shared:
            world.close()
    chosen = chosen_settings(agent, preset, changes)
    world, shared = make(chosen.lanes, chosen.hold)
    made: Any = agent
    try:
        if isinstance(agent, str | AgentSpec):
            chosen = with_proposal(agent, chosen, changes, lambda: world, seed)
            made = build_for(agent, chosen, world)
        chosen = dataclasses.replace(chosen, lanes=world.num_envs)
        apart = None if shared else lambda: make(chosen.lanes, chosen.hold).world
        backend = HostBackend(made, world, seed, chosen, apart)
    except BaseException:
        if not shared:
            world.close()
        raise
    return Setup({**names, "preset": preset}, chosen, backend)
