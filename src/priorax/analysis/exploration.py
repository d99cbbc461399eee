"""What an agent believed and where it went, episode by episode, on DeepSea: what the exploration viewer shows.

It is the run that `train` does, step by step; nothing is drawn or learned in addition. Each kept moment has what was
believed and known *before* an episode, and where the agent then went: cause, then effect.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from priorax.agents import QLearner, settings
from priorax.agents.registry import AGENTS
from priorax.beliefs import Ensemble, belief_values
from priorax.checks import checked_seed, positive_int
from priorax.training.backends.scan import Live, Loop, start
from priorax.training.trainer import prepare

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
    """Train an agent on DeepSea and keep at most `frames` moments, denser early; the first treasure is one of them.

    `members`: of how many members the values are kept; `report` hears of each finished episode.
    """
    positive_int("episodes", episodes)
    positive_int("members", members)
    checked_seed(seed)
    if positive_int("frames", frames) < FEWEST_FRAMES:
        raise ValueError(f"frames={frames} must be at least {FEWEST_FRAMES}; pass for example frames=60")
    chosen = settings(agent, preset, **(changes or {}))
    loop, key, params = prepare(chosen, "deep_sea", size, seed)
    belief = loop.agent.belief if isinstance(loop.agent, QLearner) else None
    if not isinstance(belief, Ensemble) or chosen.draw_each_step:
        known = [name for name, what in AGENTS.items() if what.get("belief", "ensemble") == "ensemble"]
        raise ValueError(
            f"agent={agent!r} follows no member through an episode, so there is none to look at; "
            f"record one of {', '.join(name for name in known if not AGENTS[name].get('bonus_scale'))}"
        )
    cells = np.flatnonzero(np.tril(np.ones((size, size), bool)))
    kept, live = moments_to_keep(episodes, frames), start(loop, key, params).live
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
            drawn = int(before.agent.index)
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
        chosen.epsilon,
        None if prior is None else np.asarray(prior),
        np.asarray(found),
        np.asarray(seen),
        moments,
    )


def moments_to_keep(episodes: int, frames: int) -> set[int]:
    """Episodes from the first to the last, one fewer than `frames`, farther and farther apart; all if they are few."""
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
def _values(belief: Ensemble, live: Live, cells: Array) -> Array:
    """What the members hope for in each cell."""
    return jnp.max(belief_values(belief, live.agent.belief, jax.random.key(0), cells), axis=-1)


@eqx.filter_jit
def _priors(belief: Ensemble, live: Live, cells: Array) -> Array | None:
    """What their priors alone would say."""
    values = belief.prior_values(live.agent.belief, cells)
    return None if values is None else jnp.max(belief.prior_scale * values[..., 0], axis=-1)
