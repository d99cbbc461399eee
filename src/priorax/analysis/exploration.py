"""Recording of beliefs and trajectories on DeepSea, episode by episode, for the exploration viewer.

The run is the same as that of `train`; recording draws and learns nothing in addition. Each frame has the belief
*before* an episode, and the trajectory of that episode.
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
"""The first, the last, and the one with the treasure."""
TREASURE = 1.0
"""What it is worth; nothing else that is paid comes near."""


class EpisodeFrame(NamedTuple):
    """One episode. Cells are those on or below the diagonal, row by row: no other can be reached."""

    episode: int
    """From 1."""
    member: int
    """Which member it follows, from 0."""
    path: np.ndarray
    """The column in each row."""
    found: bool
    """Whether it ends with the treasure."""
    visits: np.ndarray
    """Of each cell, in all episodes before."""
    followed: np.ndarray
    """max_a Q_k of each cell for that member, as the episode begins."""
    values: np.ndarray
    """The same for the first members, [member, cell]."""
    mean: np.ndarray
    """Of that, over all members."""
    spread: np.ndarray
    """Its standard deviation over all members."""


class Exploration(NamedTuple):
    """A run to look at."""

    agent: str
    preset: str
    size: int
    seed: int
    num_members: int
    """K."""
    epsilon: float | None
    """Dithering, if any."""
    prior: np.ndarray | None
    """max_a of scale * p_k of each cell, [member, cell]: it never changes. None without prior functions."""
    found: np.ndarray
    """Whether each episode ended with the treasure."""
    seen: np.ndarray
    """Distinct cells seen by the end of each episode."""
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
            f"agent={agent!r} follows no member through an episode, so there is none to look at; "
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
    """An episode of the run: where it is then, the cells on its way, and what was paid."""

    def step(carry: Live, _: None) -> tuple[Live, tuple[Array, Array]]:
        after, steps = loop.step(key, params, carry)
        return after, (carry.obs, steps.reward)

    live, (cells, reward) = jax.lax.scan(step, live, length=length)
    return live, cells, reward


@eqx.filter_jit
def _values(belief: Belief, live: Live, cells: Array) -> Array:
    """What the members hope for in each cell."""
    return jnp.max(belief.functions(live.agent.belief, jax.random.key(0), cells), axis=-1)


@eqx.filter_jit
def _priors(belief: Belief, live: Live, cells: Array) -> Array | None:
    """What their priors alone would say."""
    values = belief.prior_values(live.agent.belief, cells)
    return None if values is None else jnp.max(belief.prior_scale * values[..., 0], axis=-1)
