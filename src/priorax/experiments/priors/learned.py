"""Can prior functions be learned? The paper's open question, for families of related tasks (`priorax.learn_prior`).

A prior is learned from past tasks of a family and used for tasks that it has not seen: others of the family, and tasks
outside of it, where it should not help.

Regression: sine waves of random amplitude, frequency and phase, 20 of which were seen at 100 noisy points; outside of
the family are waves of about three times the frequency. Members are plain networks, or combinations of the past
functions (`FamilyMember`), alone or beside a network. Random priors have several forms; exact Bayes has the mean and
the covariance of the past functions. Measured are the error and the log likelihood of the truth, by the number of
points.

DeepSea: action masks that differ from a common one in each cell with probability 0.1; masks that have nothing in common
with it, so that only the place of the treasure is known; and, outside of the family, such masks with cells that are
numbered in another order. Past tasks were learned by BSP itself; the prior is learned from the mean values of its
members, or, as the best that can be had, from the optimal values. Measured is the number of episodes without the
treasure.
"""

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from priorax.analysis.parallel import Task
from priorax.beliefs import L2, Ensemble
from priorax.envs.jax.deep_sea import DeepSea, DeepSeaState, Params
from priorax.family import Learned
from priorax.fitting import fit
from priorax.learned_prior import learn_prior
from priorax.networks import MLP, Network
from priorax.noise import Gaussian
from priorax.priors import RandomFourier
from priorax.report.intervals import mean_interval
from priorax.report.plots import panels, plain_ticks
from priorax.report.rows import Row, column, where
from priorax.storage import save_prior
from priorax.training.trainer import train

PLACES = {"inside": "within the family", "masks": "other masks", "outside": "outside"}
NOISE, REACH, NUM_PAST, NUM_SEEN, REST = 0.1, 3.0, 20, 100, 0.1
"""Of the regression: noise of targets, half the range of inputs, past tasks, points of each, and the scale of what is
added for tasks outside of the family."""
POINTS = {"quick": (3, 12), "full": (2, 3, 4, 6, 8, 12, 16, 24)}
DRAWS = {"quick": 3, "full": 20}
"""Tasks of each kind."""
EXACT = "exact Bayes"
LEARNED = {
    "learned, plain members": "#984ea3",
    "learned, members of the family": "#d62728",
    "learned, family and network": "#ff7f0e",
}
RANDOM: dict[str, Network | None] = {
    "no prior": None,
    "random network": MLP((50,), bias_scale=1.0),
    "random network, gain 3": MLP((50,), bias_scale=1.0, gain=3.0),
    "Gaussian process, lengthscale 1": RandomFourier(1.0),
    "Gaussian process, lengthscale 2": RandomFourier(2.0),
}
COLORS = {
    **dict(zip(RANDOM, ("#bbbbbb", "#1f5fb4", "#6baed6", "#4daf4a", "#a1d99b"), strict=True)),
    **LEARNED,
    EXACT: "#000000",
}

SEA_PAST = 8
"""Past masks of DeepSea."""
SEA_SIZES = {"quick": (10,), "full": (10, 20, 30)}
SEA_EPISODES = {10: 200, 20: 600, 30: 1200}
"""Episodes of a run, past or new, by size."""
SEA_SEEDS = {"quick": 2, "full": 5}
FIRST_SEED = 300
"""Seeds of new tasks; past ones have seeds from 0 on."""


class Choice(NamedTuple):
    """A prior on DeepSea."""

    source: str | None
    """Where it was learned from: agents, optimal; None: it is random."""
    changes: dict[str, Any]
    """Changed settings."""


SEA_PRIORS = {
    "random, scale 3": Choice(None, {"prior_scale": 3.0}),
    "random, scale 10": Choice(None, {"prior_scale": 10.0}),
    "random, scale 30": Choice(None, {"prior_scale": 30.0}),
    "learned from agents": Choice("agents", {"prior_scale": 1.0}),
    "learned from agents, scale 10": Choice("agents", {"prior_scale": 10.0}),
    "learned from optimal values": Choice("optimal", {"prior_scale": 1.0}),
}
SEA_NAMES = {
    "quick": ("random, scale 10", "learned from agents", "learned from optimal values"),
    "full": tuple(SEA_PRIORS),
}


def ladders(budget: str) -> list[Any]:
    """List every prior and task separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    regression = [
        Task("regression", {"prior": prior, "points": points, "seed": seed}, regress)
        for points in POINTS[budget]
        for prior in COLORS
        for seed in range(DRAWS[budget])
    ]
    seas = [
        Task("deep_sea", {"prior": prior, "size": size, "seed": seed, "episodes": SEA_EPISODES[size]}, explore)
        for size in SEA_SIZES[budget]
        for prior in SEA_NAMES[budget]
        for seed in range(FIRST_SEED, FIRST_SEED + SEA_SEEDS[budget])
    ]
    return [[[item]] for item in regression + seas]


def _wave(rng: np.random.Generator, place: str) -> Callable[[np.ndarray], np.ndarray]:
    """Draw a function within the family, or outside."""
    size, frequency, phase = rng.uniform(0.5, 2.0), rng.uniform(*KINDS[place]), rng.uniform(0, 2 * np.pi)
    return lambda x: size * np.sin(frequency * x[:, 0] + phase)


KINDS = {"inside": (0.8, 1.2), "outside": (2.4, 3.6)}
"""Frequencies of waves."""
GRID = np.linspace(-REACH, REACH, NUM_SEEN, dtype=np.float32)[:, None]


@functools.cache
def waves() -> Learned:
    """Learn the prior of the regression from the past tasks.

    Returns:
        The prior, with a random network beside the past functions.
    """
    rng = np.random.default_rng(1000)
    seen = np.stack([_wave(rng, "inside")(GRID) + NOISE * rng.normal(size=NUM_SEEN) for _ in range(NUM_PAST)])
    return learn_prior(GRID, seen, network=MLP((50, 50), "tanh"), rest=MLP((50,), bias_scale=1.0), rest_scale=REST)


def _member(prior: str) -> tuple[Network, Network | None]:
    """The network of members, and the prior."""
    plain = MLP((50, 50))
    if prior in RANDOM:
        return plain, RANDOM[prior]
    beside: dict[str, Network] = {"learned, plain members": plain, "learned, family and network": waves().member(plain)}
    return beside.get(prior, waves().member()), waves()


def regress(prior: str, points: int, seed: int) -> list[dict[str, Any]]:
    """Fit an ensemble to few points of one task within the family and one outside.

    Args:
        prior: Name of the prior, of `COLORS`.
        points: Number of points.
        seed: Seed of the tasks and of the ensemble.

    Returns:
        One row per task: the root mean square error, and the mean log likelihood of the truth.
    """
    rows = []
    for place in KINDS:
        rng = np.random.default_rng(seed)
        truth = _wave(rng, place)
        x = rng.uniform(-REACH, REACH, (points, 1)).astype(np.float32)
        y = truth(x) + NOISE * rng.normal(size=points)
        mean, variance = _exact(x, y) if prior == EXACT else _fitted(prior, x, y, seed)
        error, total = truth(GRID) - mean, variance + NOISE**2
        likelihood = np.mean(-0.5 * np.log(2 * np.pi * total) - 0.5 * error**2 / total)
        measured = {"error": float(np.sqrt(np.mean(error**2))), "likelihood": float(likelihood)}
        rows.append({"place": place, **{name: round(value, 4) for name, value in measured.items()}})
    return rows


def _fitted(prior: str, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of an ensemble's functions."""
    network, function = _member(prior)
    belief = Ensemble(num_members=20, network=network, prior=function, l2=L2(NOISE**2))
    key_fit, key_draw = jax.random.split(jax.random.key(seed))
    state = fit(belief, (x, y), key=key_fit, noise=Gaussian(NOISE), steps=2000).state
    functions = np.asarray(belief.functions(state, key_draw, jnp.asarray(GRID)))[..., 0]
    return functions.mean(0), functions.var(0)


def _exact(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the posterior of a Gaussian process with the past functions' mean and covariance."""
    there, here = (np.asarray(waves().functions(rows), float)[..., 0] for rows in (GRID, x))
    mean, at = there.mean(0), here.mean(0)
    a, b = (there - mean) / (NUM_PAST - 1) ** 0.5, (here - at) / (NUM_PAST - 1) ** 0.5
    gain = np.linalg.solve(b.T @ b + NOISE**2 * np.eye(len(y)), b.T @ a).T
    return mean + gain @ (y - at), np.sum(a**2, axis=0) - np.sum(gain * (a.T @ b), axis=1)


@dataclass(frozen=True)
class RelatedSea(DeepSea):
    """DeepSea with an action mask that differs from a common one in random cells."""

    flip: float = 0.1
    """Probability that a cell differs; 0.5: the masks have nothing in common."""
    renumbered: bool = False
    """Whether cells are numbered in a random order, the same for all masks."""

    def params(self, key: PRNGKeyArray) -> Params:
        """Draw an action mask.

        Args:
            key: A PRNG key.

        Returns:
            The action mask.
        """
        common = super().params(jax.random.key(0)).right
        return Params(jnp.where(jax.random.bernoulli(key, self.flip, common.shape), 1 - common, common))

    def observe(self, state: DeepSeaState) -> Array:
        """Return the observation of a state.

        Args:
            state: The state.

        Returns:
            The index of the cell; the end has the last one.
        """
        cell = super().observe(state)
        if not self.renumbered:
            return cell
        order = np.random.default_rng(0).permutation(self.num_states)
        return jnp.asarray(np.append(order, self.num_states), cell.dtype)[cell]


SEAS: dict[str, dict[str, Any]] = {
    "inside": {"flip": 0.1},
    "masks": {"flip": 0.5},
    "outside": {"flip": 0.5, "renumbered": True},
}
"""Tasks of DeepSea by place."""


@functools.cache
def past_values(source: str, size: int) -> np.ndarray:
    """Get the values of past tasks of the family of DeepSea.

    Args:
        source: "agents": mean values of BSP after training; "optimal": optimal values.
        size: Size of the grid.

    Returns:
        Values [task, state, action].
    """
    sea, states = RelatedSea(size, **SEAS["inside"]), np.arange(size**2)
    if source == "agents":
        runs = [train("bsp", sea, seed=seed, episodes=SEA_EPISODES[size]) for seed in range(SEA_PAST)]
        return np.stack([run.policy.values(states).mean for run in runs])
    masks = [sea.params(jax.random.split(jax.random.key(seed))[0]) for seed in range(SEA_PAST)]
    return np.stack([np.reshape(sea.optimal_values(mask, 0.99), (-1, 2)) for mask in masks])


def explore(prior: str, size: int, seed: int, episodes: int) -> list[dict[str, Any]]:
    """Train BSP on one task of each kind.

    Args:
        prior: Name of the prior, of `SEA_PRIORS`.
        size: Size of the grid.
        seed: Seed of the masks and of the agent.
        episodes: Number of episodes.

    Returns:
        One row per task: the number of episodes without the treasure.
    """
    choice = SEA_PRIORS[prior]
    with tempfile.TemporaryDirectory() as folder:
        changes = dict(choice.changes)
        if choice.source is not None:
            changes |= {"prior": "learned", "prior_file": str(Path(folder) / "prior")}
            save_prior(changes["prior_file"], learn_prior(np.arange(size**2), past_values(choice.source, size)))
        rows = []
        for place, kind in SEAS.items():
            run = train("bsp", RelatedSea(size, **kind), seed=seed, episodes=episodes, changes=changes)
            rows.append({"place": place, "missed": sum(bool(row.bad) for row in run.history)})
    return rows


def _shown(rows: list[Row], name: str, known: dict[str, Any]) -> list[str]:
    return [prior for prior in known if where(rows, name=name, prior=prior)]


def figure(rows: list[Row]) -> Figure:
    """Plot errors and log likelihoods of the regression (top), and episodes without the treasure on DeepSea.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    sizes = sorted({row["size"] for row in where(rows, name="deep_sea")})
    drawing, axes = panels(1 + len(sizes), 3, width=4.0, height=2.9, share=False)
    shown = (("inside", "error"), ("outside", "error"), ("outside", "likelihood"))
    for axis, (place, measure) in zip(axes[0], shown, strict=True):
        _draw_regression(axis, where(rows, name="regression", place=place), measure)
        axis.set_title(f"regression, {PLACES[place]}")
    for i, size in enumerate(sizes, start=1):
        for axis, (place, words) in zip(axes[i], PLACES.items(), strict=True):
            _draw_sea(axis, where(rows, name="deep_sea", place=place, size=size))
            axis.set_title(f"DeepSea {size}, {words}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return drawing


def _draw_regression(axis: Any, rows: list[Row], measure: str) -> None:
    counts = sorted({row["points"] for row in rows})
    for prior in _shown(rows, "regression", COLORS):
        mine = where(rows, prior=prior)
        found = [mean_interval(column(where(mine, points=count), measure)).value for count in counts]
        line = "--" if prior in RANDOM else ":" if prior == EXACT else "-"
        axis.plot(counts, found, line, color=COLORS[prior], marker="o", ms=3, label=prior)
    scale = {"error": "log", "likelihood": "symlog"}[measure]
    axis.set(xscale="log", yscale=scale, xlabel="points", ylabel={"likelihood": "log likelihood"}.get(measure, measure))
    axis.set_xticks(counts, [str(count) for count in counts])
    if measure == "error":
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    plain_ticks(axis.yaxis)
    axis.minorticks_off()


def _draw_sea(axis: Any, rows: list[Row]) -> None:
    names = _shown(rows, "deep_sea", SEA_PRIORS)
    for i, prior in enumerate(reversed(names)):
        missed = column(where(rows, prior=prior), "missed")
        color = "#1f5fb4" if SEA_PRIORS[prior].source is None else "#d62728"
        axis.plot(missed, [i] * len(missed), "o", color=color, ms=4, alpha=0.5)
        axis.plot([float(np.mean(missed))] * 2, [i - 0.25, i + 0.25], color=color, lw=2.5)
    axis.set_yticks(range(len(names)), list(reversed(names)), fontsize=8)
    most = max((row["episodes"] for row in rows), default=1)
    axis.set(xlim=(0, most * 1.03))
    axis.set_xlabel("episodes without the treasure; bar: mean", fontsize=8)


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate errors and log likelihoods of the regression, and episodes without the treasure, with intervals.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    counts = sorted({row["points"] for row in where(rows, name="regression")})
    sizes = sorted({row["size"] for row in where(rows, name="deep_sea")})
    cases: list[tuple[str, str, str, dict[str, Any]]] = [
        *((f"error, {n} points", "error", ".2f", {"points": n}) for n in counts),
        *((f"log likelihood, {n} points", "likelihood", ".2f", {"points": n}) for n in counts),
        *((f"DeepSea {n}, missed", "missed", ".0f", {"size": n}) for n in sizes),
    ]
    table: list[tuple[str, ...]] = [("prior", "place", *(words for words, *_ in cases))]
    for name, known in (("regression", COLORS), ("deep_sea", SEA_PRIORS)):
        for prior in _shown(rows, name, known):
            for place, words in PLACES.items():
                mine = where(rows, name=name, prior=prior, place=place)
                if not mine:
                    continue
                found = [[float(row[which]) for row in where(mine, **case)] for _, which, _, case in cases]
                cells = [mean_interval(f).words(c[2]) if f else "" for f, c in zip(found, cases, strict=True)]
                table.append((prior, words, *cells))
    return table
