"""A prior's scale without guessing, from the returns that are known, or worth looking for."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from priorax.agents import QLearner, Settings
from priorax.beliefs import ENSEMBLES
from priorax.checks import positive_int
from priorax.envs.host.vector import VectorWorld
from priorax.heads import Scalar
from priorax.training.backends.host import build_for

PROBE_STEPS = 2000
"""Actions of a probe, over all lanes."""


class Proposal(NamedTuple):
    """A scale, and why."""

    scale: float
    returns: float
    """The root mean square of the discounted returns to come, at the moments seen."""
    smallest: float
    """Returns of this size are worth looking for, seen or not."""
    spread: float
    """Of the priors at scale 1: the standard deviation over members at what was seen."""
    steps: int
    episodes: int
    """That ended."""
    worst: float
    best: float
    """Of their returns; zero where none ended."""

    def summary(self) -> list[tuple[str, ...]]:
        """As a table."""
        return [
            ("what", "seen"),
            ("random actions", f"{self.steps:,}, {self.episodes:,} episodes ended"),
            ("their returns", f"{self.worst:g} to {self.best:g}" if self.episodes else "none ended"),
            ("discounted returns to come", f"{self.returns:.3g} (root mean square)"),
            ("worth looking for", f"{self.smallest:g}, seen or not"),
            ("priors at scale 1", f"{self.spread:.3g} (standard deviation over members)"),
            ("proposed prior_scale", f"{self.scale:.3g}"),
        ]


def propose(
    chosen: Settings, world: VectorWorld, seed: int = 0, steps: int = PROBE_STEPS, smallest: float = 1.0
) -> Proposal:
    """Act at random for a while, then choose a scale at which members' priors differ, by their standard deviation, by
    half of what returns are large: some member then believes in as much. In DeepSea that is what was found best there.

    A prior must be able to outweigh what was seen: were it much smaller, members would agree after the first data; were
    it much larger, all data would be spent on forgetting it. Where rewards are sparse a random policy sees next to
    none, so returns below `smallest` are not believed.
    """
    positive_int("steps", steps)
    agent = _agent(chosen, world)
    seen, rewards, ended = _probe(world, seed, steps)
    acted = np.concatenate([np.ones_like(ended[:1]), ~ended[:-1]])  # the step after an end only begins anew
    learned_from = np.clip(rewards, -1, 1) if chosen.clip_rewards else rewards
    returns = to_come(learned_from, ended, chosen.discount)[acted]
    size = float(np.sqrt(np.mean(returns**2)))
    rows = seen[acted]
    pick = np.random.default_rng(seed).choice(len(rows), min(256, len(rows)), replace=False)
    spread = _spread(agent, rows[pick], seed)
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
    """Changes to settings with a number in place of "auto", to build what a probe looks at."""
    scale = changes.get("prior_scale")
    if isinstance(scale, str) and scale != "auto":
        raise ValueError(f"prior_scale={scale!r} must be a number or 'auto'; pass for example 3")
    return {**changes, "prior_scale": 1.0} if scale == "auto" else dict(changes)


def with_proposal(
    chosen: Settings, changes: Mapping[str, Any], probed: Callable[[], VectorWorld], seed: int
) -> Settings:
    """Those settings, with a scale proposed for that world where the changes that led to them ask for one."""
    if changes.get("prior_scale") != "auto":
        return chosen
    return dataclasses.replace(chosen, prior_scale=propose(chosen, probed(), seed).scale)


def to_come(rewards: np.ndarray, ended: np.ndarray, discount: float) -> np.ndarray:
    """[time, lane]: discounted rewards from each moment on to its episode's end, or to that of the probe."""
    found = np.zeros_like(rewards, dtype=float)
    after = np.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        after = rewards[t] + discount * np.where(ended[t], 0.0, after)
        found[t] = after
    return found


def episode_totals(rewards: np.ndarray, ended: np.ndarray) -> list[float]:
    """The returns of the episodes that ended."""
    totals, running = [], np.zeros(rewards.shape[1])
    for reward, over in zip(rewards, ended, strict=True):
        running = running + reward
        totals += running[over].tolist()
        running = np.where(over, 0.0, running)
    return totals


def _agent(chosen: Settings, world: VectorWorld) -> QLearner:
    agent = build_for(dataclasses.replace(chosen, prior_scale=1.0), world)
    if not isinstance(agent.belief, ENSEMBLES) or agent.belief.prior is None:
        raise ValueError("a prior's scale needs an ensemble with prior functions, and this agent has none; use 'bsp'")
    if not isinstance(agent.belief.head, Scalar):
        raise ValueError(f"head={chosen.head!r} has priors on logits, not on returns; choose prior_scale by hand")
    return agent


def _probe(world: VectorWorld, seed: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What was seen, paid and ended, [time, lane, ...], under random actions."""
    rng = np.random.default_rng(seed)
    obs, rewards, ended = [world.reset(seed)], [], []
    for _ in range(-(-steps // world.num_envs)):
        turn = world.step(rng.integers(0, world.num_actions, world.num_envs))
        rewards.append(turn.reward)
        ended.append(turn.terminated | turn.truncated)
        obs.append(turn.obs)
    return np.stack(obs[:-1]), np.stack(rewards), np.stack(ended)


def _spread(agent: QLearner, rows: np.ndarray, seed: int) -> float:
    """Of the priors at scale 1, as they will be drawn for that seed."""
    values = eqx.filter_jit(_prior_values)(agent, jax.random.key(seed), rows)
    return float(np.sqrt(np.mean(np.var(np.asarray(values), axis=0))))


def _prior_values(agent: QLearner, key: Any, rows: Any) -> Any:
    owner: Any = agent.belief
    return owner.prior_scale * owner.prior_values(owner.init(key, rows[0]), rows)
