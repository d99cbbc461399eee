"""Automatic choice of the prior scale, from the returns of random actions."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from priorax.agents import AgentSpec, Settings
from priorax.beliefs import Belief
from priorax.checks import positive_int
from priorax.envs.host.vector import VectorWorld
from priorax.training.backends.host import build_for

PROBE_STEPS = 2000
"""Number of random actions, over all lanes."""


class Proposal(NamedTuple):
    """A proposed prior scale, with its reasons."""

    scale: float
    """The proposed scale."""
    returns: float
    """Root mean square of discounted returns-to-go, over all time steps."""
    smallest: float
    """Lower bound of the assumed magnitude of returns."""
    spread: float
    """Standard deviation of the priors over members at scale 1, at the observations seen."""
    steps: int
    """Number of random actions."""
    episodes: int
    """Number of finished episodes."""
    worst: float
    """Lowest return; zero if no episode finished."""
    best: float
    """Highest return; zero if no episode finished."""

    def summary(self) -> list[tuple[str, ...]]:
        """Format the proposal as a table.

        Returns:
            Rows of the table.
        """
        return [
            ("quantity", "value"),
            ("random actions", f"{self.steps:,} ({self.episodes:,} episodes finished)"),
            ("episode returns", f"{self.worst:g} to {self.best:g}" if self.episodes else "no episode finished"),
            ("discounted returns-to-go", f"{self.returns:.3g} (root mean square)"),
            ("assumed minimum", f"{self.smallest:g}"),
            ("priors at scale 1", f"{self.spread:.3g} (standard deviation over members)"),
            ("proposed prior_scale", f"{self.scale:.3g}"),
        ]


def propose(
    agent: str | AgentSpec,
    chosen: Settings,
    world: VectorWorld,
    seed: int = 0,
    steps: int = PROBE_STEPS,
    smallest: float = 1.0,
) -> Proposal:
    """Propose a prior scale from the returns of random actions.

    The proposed scale makes the standard deviation of the priors over members half the root-mean-square return, so that
    some member is about as optimistic as the best return; in DeepSea this scale performed best. With a much smaller
    scale members agree after the first data; with a much larger one most data is spent on unlearning the prior. With
    sparse rewards random actions see almost none, so the magnitude of returns is taken as at least `smallest`.

    Args:
        agent: Name or spec of the agent.
        chosen: Its hyperparameters.
        world: The environments.
        seed: Seed of the random actions and of the priors.
        steps: Number of random actions, over all lanes.
        smallest: Lower bound of the assumed magnitude of returns.

    Returns:
        The proposal.

    Raises:
        ValueError: If the agent has no prior functions in units of reward.
    """
    positive_int("steps", steps)
    belief = _belief(agent, chosen, world)
    seen, rewards, ended = _probe(world, seed, steps)
    acted = np.concatenate([np.ones_like(ended[:1]), ~ended[:-1]])  # the step after an end only resets
    learned_from = np.clip(rewards, -1, 1) if chosen.clip_rewards else rewards
    returns = to_come(learned_from, ended, chosen.discount)[acted]
    size = float(np.sqrt(np.mean(returns**2)))
    rows = seen[acted]
    pick = np.random.default_rng(seed).choice(len(rows), min(256, len(rows)), replace=False)
    spread = _spread(belief, rows[pick], seed)
    totals = episode_totals(rewards, ended)
    return Proposal(
        max(size, smallest) / 2 / max(spread, 1e-12),
        size,
        smallest,
        spread,
        int(acted.sum()),
        len(totals),
        min(totals, default=0.0),
        max(totals, default=0.0),
    )


def without_auto(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out prior_scale="auto", so that the agent of the probe has the scale of its preset.

    Args:
        changes: New values of settings.

    Returns:
        The changes, without "auto".

    Raises:
        ValueError: If prior_scale is any other string.
    """
    scale = changes.get("prior_scale")
    if isinstance(scale, str) and scale != "auto":
        raise ValueError(f"prior_scale={scale!r} must be a number or 'auto'; pass for example 3")
    return {name: value for name, value in changes.items() if (name, value) != ("prior_scale", "auto")}


def with_proposal(
    agent: str | AgentSpec,
    chosen: Settings,
    changes: Mapping[str, Any],
    probed: Callable[[], VectorWorld],
    seed: int,
) -> Settings:
    """Resolve prior_scale="auto", if requested.

    Args:
        agent: Name or spec of the agent.
        chosen: Its hyperparameters.
        changes: The changes that led to them, which may request "auto".
        probed: Function that creates the environments for the probe.
        seed: Seed of the probe.

    Returns:
        The hyperparameters, with the proposed scale if requested.
    """
    if changes.get("prior_scale") != "auto":
        return chosen
    scale: dict[str, Any] = {"prior_scale": propose(agent, chosen, probed(), seed).scale}
    return dataclasses.replace(chosen, **scale)


def to_come(rewards: np.ndarray, ended: np.ndarray, discount: float) -> np.ndarray:
    """Compute discounted returns-to-go, up to the end of the episode or of the probe.

    Args:
        rewards: Rewards [time, lane].
        ended: Whether the episode ended, [time, lane].
        discount: Discount factor gamma.

    Returns:
        Returns-to-go [time, lane].
    """
    found = np.zeros_like(rewards, dtype=float)
    after = np.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        after = rewards[t] + discount * np.where(ended[t], 0.0, after)
        found[t] = after
    return found


def episode_totals(rewards: np.ndarray, ended: np.ndarray) -> list[float]:
    """Compute the returns of finished episodes.

    Args:
        rewards: Rewards [time, lane].
        ended: Whether the episode ended, [time, lane].

    Returns:
        One return per episode.
    """
    totals, running = [], np.zeros(rewards.shape[1])
    for reward, over in zip(rewards, ended, strict=True):
        running = running + reward
        totals += running[over].tolist()
        running = np.where(over, 0.0, running)
    return totals


def _belief(agent: str | AgentSpec, chosen: Settings, world: VectorWorld) -> Belief:
    one: dict[str, Any] = {"prior_scale": 1.0} if hasattr(chosen, "prior_scale") else {}
    belief = getattr(build_for(agent, dataclasses.replace(chosen, **one), world), "belief", None)
    if not one or belief is None or not belief.has_prior:
        raise ValueError("a prior scale needs prior functions, and this agent has none; use 'bsp'")
    kind = getattr(chosen, "prior", "network")
    if kind in ("learned", "optimal"):
        raise ValueError(
            f"prior={kind!r} has a size of its own, which is not that of random functions; pass a number as prior_scale"
        )
    if not belief.head.in_reward_units:
        head = getattr(chosen, "head", type(belief.head).__name__)
        raise ValueError(f"head={head!r} has priors on logits, not on returns; pass a number as prior_scale")
    return belief


def _probe(world: VectorWorld, seed: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Act at random; get observations, rewards and ends of episodes, [time, lane, ...]."""
    rng = np.random.default_rng(seed)
    obs, rewards, ended = [world.reset(seed)], [], []
    for _ in range(-(-steps // world.num_envs)):
        turn = world.step(rng.integers(0, world.num_actions, world.num_envs))
        rewards.append(turn.reward)
        ended.append(turn.terminated | turn.truncated)
        obs.append(turn.obs)
    return np.stack(obs[:-1]), np.stack(rewards), np.stack(ended)


def _spread(belief: Belief, rows: np.ndarray, seed: int) -> float:
    """Compute the standard deviation of the priors at scale 1, as drawn for that seed."""
    return float(np.sqrt(np.mean(np.asarray(eqx.filter_jit(_prior_spread)(belief, jax.random.key(seed), rows)) ** 2)))


def _prior_spread(belief: Belief, key: Any, rows: Any) -> Any:
    return belief.prior_spread(belief.init(key, rows[0]), rows)
