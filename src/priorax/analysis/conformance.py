"""Check that every agent works on every backend, or is refused with an error message that names a remedy.

Each agent is trained on a minimal task (`envs.jax.two_step`), stopped half-way and resumed. Then its members, bonus,
epsilon, masks and priorities are checked in the state of the backend.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from priorax.agents import agent_spec
from priorax.agents.setting_values import hints
from priorax.training.backends.base import Backend
from priorax.training.policy import load
from priorax.training.records import Result
from priorax.training.run_files import read_episodes
from priorax.training.setup import BACKENDS, Workers
from priorax.training.trainer import train

STEPS = 1200
"""Number of actions of a run."""
CHANGES: dict[str, Any] = {
    "widths": (16,),
    "batch_size": 16,
    "capacity": 2000,
    "learning_rate": 0.01,
    "num_members": 4,
    "priority": 0.6,
    "mask_prob": 0.7,
    "n_step": 2,
    "learn_after": 20,
    "learn_every": 1,
    "discount": 0.9,
}
"""Settings for the checks, applied if the agent has them."""
EPSILON = 0.5
"""Epsilon of epsilon-greedy agents."""
OWN: dict[str, dict[str, Any]] = {
    "dropout": {"p_keep": 0.9},  # at 0.1 dropout pulls the mean towards zero
    "bbb": {"kl_weight": 0.01},
    # whether the noise of lmcdqn explores in so few steps is luck
    "lmcdqn": {"learning_rate": 0.1, "epsilon": EPSILON, "epsilon_episodes": 0},
    "d4pg": {"lowest": -0.5, "highest": 1.5, "action_noise": 0.5, "actor_rate": 3e-3, "target_period": 10},
}


class Conformance(NamedTuple):
    """Result of the checks of one agent on one backend."""

    agent: str
    """Name of the agent."""
    backend: str
    """Name of the backend."""
    refused: str | None
    """Error message if the agent cannot run on the backend, else None."""
    checks: dict[str, bool | None]
    """Whether each check passed; None if it does not apply."""

    @property
    def holds(self) -> bool:
        """Whether all checks passed, or the agent was refused with a remedy."""
        if self.refused is not None:
            return ";" in self.refused
        return all(check is not False for check in self.checks.values())


def table(
    agents: list[str], backends: tuple[str, ...] = BACKENDS, report: Callable[[str], None] = lambda words: None
) -> Iterator[Conformance]:
    """Check agents on backends.

    Args:
        agents: Names of agents.
        backends: Names of backends.
        report: Function called with a description of each check before it starts.

    Yields:
        One result for each agent and backend.
    """
    for agent in agents:
        for backend in backends:
            report(f"{agent} on {backend}")
            yield check(agent, backend)


def check(agent: str, backend: str) -> Conformance:
    """Check one agent on one backend.

    Args:
        agent: Name of the agent.
        backend: "scan", "host" or "ray".
    """
    spec = agent_spec(agent)
    known = hints(spec.settings)
    changes = {name: value for name, value in CHANGES.items() if name in known}
    if spec.changes.get("num_members") == 1:  # a single network by definition
        changes = {name: value for name, value in changes.items() if name not in ("num_members", "mask_prob")}
    if spec.changes.get("epsilon") is not None:
        changes |= {"epsilon": EPSILON, "epsilon_episodes": 0}
    changes |= {"lanes": 1 if backend == "scan" else 2, **OWN.get(agent, {})}
    run: dict[str, Any] = {"agent": agent, "env": "two_step", "backend": backend, "preset": "tuned", "changes": changes}
    if backend == "ray":
        run["workers"] = Workers(1, 1)
    seen: list[Backend] = []

    def look(backend: Backend) -> dict[str, float]:
        seen[:] = [backend]
        return {}

    with tempfile.TemporaryDirectory() as folder:
        try:
            train(**run, steps=STEPS // 2, out=folder)
            before = read_episodes(Path(folder))
            result = train(**run, steps=STEPS, out=folder, resume=True, probe=look)
        except ValueError as error:
            return Conformance(agent, backend, str(error), {})
        goes_on = read_episodes(Path(folder))[: len(before)] == before and result.steps >= STEPS
        goes_on = goes_on and _same_values(result, load(folder))
    return Conformance(
        agent,
        backend,
        None,
        {
            "learns": _learns(result),
            "resumes": goes_on,
            "members differ": _members_differ(seen[-1]),
            "bonus": _bonus(seen[-1]),
            "epsilon": _epsilon(seen[-1]),
            "masks": _masks(seen[-1]),
            "priorities": _priorities(seen[-1]),
        },
    )


def _obs(result: Result) -> Any:
    """Get the observations of both states."""
    continuous = result.policy.interface.bound is not None
    return np.eye(2, dtype=np.float32) if continuous else np.arange(2)


def _learns(result: Result) -> bool:
    """Check that the deployed policy takes the rewarded action."""
    return bool(np.ravel(result.policy.predict(_obs(result)))[1] > 0)


def _same_values(result: Result, loaded: Any) -> bool:
    obs = _obs(result)
    return bool(np.array_equal(result.policy.values(obs).mean, loaded.values(obs).mean))


def _members_differ(backend: Backend) -> bool | None:
    belief: Any = getattr(backend.agent, "belief", None)
    if belief is None or belief.num_members in (None, 1):
        return None
    fresh = backend.agent.init(jax.random.key(0), jnp.zeros((), int))
    values = belief.forward(fresh.belief, jax.random.key(0), jnp.arange(2), shared=True)
    return not any(bool(jnp.all(values[i] == values[0])) for i in range(1, len(values)))


def _bonus(backend: Backend) -> bool | None:
    """Check that each visit was counted once, and that the bonus was larger before."""
    belief: Any = getattr(backend.agent, "belief", None)
    if belief is None or not belief.pays_bonus:
        return None
    fresh = backend.agent.init(jax.random.key(0), jnp.zeros((), int))
    visits = float(jnp.sum(getattr(backend.state.belief.aux, "visits", backend.state.belief.aux)))
    known, new = (belief.reward_bonus(state.belief, jnp.arange(2)) for state in (backend.state, fresh))
    return bool(visits == backend.steps and jnp.all((known > 0) & (known < new)))


def _epsilon(backend: Backend) -> bool | None:
    """Check that the frequency of the worse action is that of epsilon-greedy."""
    if getattr(backend.agent, "epsilon", None) is None:
        return None
    found = backend.recent(1000)
    if found is None:
        return None
    obs, action = (np.asarray(part) for part in found)
    taken = action[obs == 1]
    if len(taken) < 100:  # too few in a minibatch
        return None
    return bool(0.15 < np.mean(taken == 0) < 0.6)


def _masks(backend: Backend) -> bool | None:
    """Check that each stream owns its share of the transitions."""
    replay, facts = backend.agent.replay, backend.replay_facts()
    if replay is None or facts is None or not replay.bootstraps:
        return None
    return bool(np.all(np.abs(facts.owned / facts.size - replay.mask_prob) < 0.1))


def _priorities(backend: Backend) -> bool | None:
    """Check that transitions have different priorities."""
    replay, facts = backend.agent.replay, backend.replay_facts()
    if replay is None or facts is None or replay.priority == 0:
        return None
    return bool(np.all(facts.priorities > 0) and len(np.unique(facts.priorities)) > 1)
