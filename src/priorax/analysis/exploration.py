"""Recording of beliefs and trajectories on DeepSea, episode by episode, for the exploration viewer.

The run is identical to that of `train`: recording does not affect it. Each frame has the belief *before* an episode,
and the trajectory of that episode.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from priorax.agents import EnsembleSettings, agent_spec, agents, settings
from priorax.beliefs import Belief
from priorax.checks import checked_seed, positive_int
from priorax.training.backends.loop import Live, Loop, prepare, start

FEWEST_FRAMES = 3
"""Minimum number of frames: the first episode, the last, and the first with the treasure."""
TREASURE = 1.0
"""Reward of the treasure."""


class EpisodeFrame(NamedTuple):
    """One episode. Cells are the reachable ones, on or below the diagonal, row by row."""

    episode: int
    """Number of the episode, from 1."""
    member: int
    """Index of the member followed."""
    path: np.ndarray
    """Column of the trajectory in each row."""
    found: bool
    """Whether the episode reaches the treasure."""
    visits: np.ndarray
    """Number of visits of each cell in previous episodes."""
    followed: np.ndarray
    """max_a Q_k of that member at each cell, at the start of the episode."""
    values: np.ndarray
    """max_a Q_k of the first members, [member, cell]."""
    mean: np.ndarray
    """Mean of max_a Q_k over all members, [cell]."""
    spread: np.ndarray
    """Standard deviation of max_a Q_k over all members, [cell]."""


class Exploration(NamedTuple):
    """Recording of a run."""

    agent: str
    preset: str
    size: int
    seed: int
    num_members: int
    """K."""
    epsilon: float | None
    """Epsilon of an epsilon-greedy agent, else None."""
    prior: np.ndarray | None
    """max_a of scale * p_k, which is fixed, [member, cell]; None without prior functions."""
    found: np.ndarray
    """Whether each episode reached the treasure."""
    seen: np.ndarray
    """Number of distinct cells seen by the end of each episode."""
    moments: list[EpisodeFrame]


def record_deep_sea(
    agent: str = "bsp",
    size: int = 20,
    seed: int = 0,
    episodes: int = 300,
    preset: str = "tuned",
    *,
    frames: int = 60,
    members: int = 20,
    changes: Mapping[str, Any] | None = None,
    report: Callable[[int], None] = lambda episode: None,
) -> Exploration:
    """Train an agent on DeepSea and record frames, denser early; the first episode with the treasure is always
    included.

    Args:
        agent: Name of the agent.
        size: Size N of DeepSea.
        seed: Seed of all randomness.
        episodes: Number of episodes.
        preset: Preset of hyperparameters.
        frames: Maximum number of frames.
        members: Number of members whose values are recorded.
        changes: New values of hyperparameters.
        report: Function called with the number of each finished episode.

    Returns:
        The recording.

    Raises:
        ValueError: If there are too few frames, or the agent does not follow a member through an episode.
    """
    positive_int("episodes", episodes)
    positive_int("members", members)
    checked_seed(seed)
    if positive_int("frames", frames) < FEWEST_FRAMES:
        raise ValueError(f"frames={frames} must be at least {FEWEST_FRAMES}; pass for example frames=60")
    chosen = settings(agent, preset, **(changes or {}))
    loop, key, params = prepare(agent, chosen, "deep_sea", size, seed)
    belief = getattr(loop.agent, "belief", None)
    if belief is None or not belief.draws_members or belief.pays_bonus or getattr(chosen, "draw_each_step", False):
        known = [name for name, spec in agents().items() if issubclass(spec.settings, EnsembleSettings)]
        raise ValueError(
            f"agent={agent!r} does not follow a member through an episode, so it cannot be recorded; "
            f"record one of {', '.join(name for name in known if not agent_spec(name).changes.get('bonus_scale'))}"
        )
    cells = np.flatnonzero(np.tril(np.ones((size, size), bool)))
    kept, live = moments_to_keep(episodes, frames), start(loop, key, params)
    prior = _priors(belief, live, jnp.asarray(cells))
    visits = np.zeros(size * size, int)
    found, seen, moments = [], [], []
    for episode in range(1, episodes + 1):
        before = live
        live, visited, reward = _episode(loop, key, params, before, size)
        path = np.asarray(visited)
        found.append(bool(np.max(reward) > TREASURE / 2))
        if episode in kept or (found[-1] and sum(found) == 1):
            values = np.asarray(_values(belief, before, jnp.asarray(cells)))
            drawn = int(before.index)
            maps = (visits[cells], values[drawn], values[:members], values.mean(axis=0), values.std(axis=0))
            moments.append(EpisodeFrame(episode, drawn, path % size, found[-1], *maps))
        visits[path] += 1
        seen.append(int(np.count_nonzero(visits)))
        report(episode)
    return Exploration(
        agent,
        preset,
        size,
        seed,
        belief.num_members,
        getattr(chosen, "epsilon", None),
        None if prior is None else np.asarray(prior),
        np.asarray(found),
        np.asarray(seen),
        moments,
    )


def moments_to_keep(episodes: int, frames: int) -> set[int]:
    """Choose the episodes to record, from the first to the last with increasing distance; all if there are few.

    Args:
        episodes: Number of episodes.
        frames: Maximum number of frames; one fewer is chosen.

    Returns:
        Numbers of the episodes.
    """
    if episodes < frames:
        return set(range(1, episodes + 1))
    share = np.linspace(0.0, 1.0, frames - 1)
    return {1 + round((episodes - 1) * part**2) for part in share.tolist()}


@eqx.filter_jit
def _episode(loop: Loop, key: PRNGKeyArray, params: Any, live: Live, length: int) -> tuple[Live, Array, Array]:
    """Run one episode; get the final state, the cells visited and the rewards."""

    def step(carry: Live, _: None) -> tuple[Live, tuple[Array, Array]]:
        after, steps = loop.step(key, params, carry)
        return after, (carry.obs, steps.reward)

    live, (cells, reward) = jax.lax.scan(step, live, length=length)
    return live, cells, reward


@eqx.filter_jit
def _values(belief: Belief, live: Live, cells: Array) -> Array:
    """Compute max_a Q_k of all members at each cell."""
    return jnp.max(belief.functions(live.agent.belief, jax.random.key(0), cells), axis=-1)


@eqx.filter_jit
def _priors(belief: Belief, live: Live, cells: Array) -> Array | None:
    """Compute max_a of scale * p_k of all members at each cell."""
    values = belief.prior_values(live.agent.belief, cells)
    return None if values is None else jnp.max(belief.prior_scale * values[..., 0], axis=-1)
