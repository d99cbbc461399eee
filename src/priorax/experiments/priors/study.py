"""Which prior? The paper's open question: what kinds of prior functions are appropriate.

All priors of a task have the same size (their root mean square over states or inputs), so that they differ by form
alone; on DeepSea they are also compared at a tenth and at ten times that size. Members are the same for all priors,
unless a name says otherwise.

On DeepSea, with and without wind, the measure is the learning time; seeds from 220 on, on which no setting was chosen.
For regression, the truth is a draw of a Gaussian process in two dimensions, seen at 60 points with a gap between them;
members are trained on targets with Gaussian noise (algorithm 1), without regularisation. The measure is the log
likelihood of the truth, relative to that of the exact posterior, at points among the data, in the gap, and outside.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.beliefs import Ensemble
from priorax.experiments.sweep import Outcome, task, time_to_learn
from priorax.fitting import fit
from priorax.networks import MLP, FourierCode, Network
from priorax.noise import Gaussian
from priorax.priors import Constant, Linear, RandomFourier, UnitSize
from priorax.report.intervals import mean_interval
from priorax.report.learning_times import seeds_of, time_words
from priorax.report.plots import BAND, MEAN, SAMPLE, panels
from priorax.report.rows import Row, where

SIZE = 0.5
"""Size of the priors on DeepSea; in the preset `tuned` it is between 0.4 and 0.6."""
FACTORS = {"quick": (1.0,), "full": (0.1, 1.0, 10.0)}
"""Other sizes, as multiples of it."""
SEA_PRIORS: dict[str, dict[str, Any]] = {
    "as the member": {},
    "one layer": {"prior_widths": (20,)},
    "four layers": {"prior_widths": (20, 20, 20, 20)},
    "200 units": {"prior_widths": (200, 200)},
    "5 units": {"prior_widths": (5, 5)},
    "tanh": {"prior_activation": "tanh"},
    "biases": {"prior_bias": 1.0},
    "independent values": {"prior": "linear"},
    "one value per action": {"prior": "constant"},
    "random size": {"prior_ratio": 10.0},
}
"""Priors on DeepSea by name."""
SEAS = {"deep_sea": "DeepSea", "deep_sea_stochastic": "DeepSea with wind"}
SEA_SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "quick": {"deep_sea": (10,)},
    "full": {"deep_sea": (10, 20, 30), "deep_sea_stochastic": (10, 20)},
}
SEA_SEEDS = {"quick": 2, "full": 5}
FIRST_SEED = 220
MOST_EPISODES = {"deep_sea": 1500, "deep_sea_stochastic": 3000}
NO_PRIOR = "no prior"

CODE = FourierCode(256, 1.0)
_SHAPES: dict[str, Network | None] = {
    NO_PRIOR: None,
    "network, no biases": MLP((50, 50)),
    "network, biases": MLP((50, 50), bias_scale=1.0),
    "network, biases, gain 3": MLP((50, 50), bias_scale=1.0, gain=3.0),
    "tanh, biases": MLP((50, 50), "tanh", bias_scale=1.0),
    "linear": Linear(),
    "constant": Constant(),
    "Gaussian process, lengthscale 0.3": RandomFourier(0.3),
    "Gaussian process, lengthscale 1": RandomFourier(1.0),
    "Gaussian process, lengthscale 3": RandomFourier(3.0),
}
FITTED = "Gaussian process, lengthscale 1, member with its features"
MEMBERS: dict[str, Network] = {FITTED: MLP((50, 50), code=CODE)}
"""Networks of members by name of the prior; others have two layers of 50 units."""
REGRESSION: dict[str, Network | None] = {**_SHAPES, FITTED: MLP((), code=CODE)}
"""Priors for regression by name."""
DRAWS = {"quick": 2, "full": 10}
"""Number of data sets."""
PLACES = ("among the data", "in the gap", "outside")
LENGTH, NOISE, NUM_DATA, NUM_TEST = 1.0, 0.1, 60, 100


def ladders(budget: str) -> list[Any]:
    """List every prior separately: a ladder of sizes on DeepSea, and the data sets of the regression.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = range(FIRST_SEED, FIRST_SEED + SEA_SEEDS[budget])
    variants = [
        (f"{name}, x{factor:g}", {"prior_unit": True, "prior_scale": SIZE * factor, **changes})
        for factor in FACTORS[budget]
        for name, changes in SEA_PRIORS.items()
    ]
    seas = [
        [[_sea_task(name, env, size, seed, changes) for seed in seeds] for size in sizes]
        for env, sizes in SEA_SIZES[budget].items()
        for name, changes in [*variants, (NO_PRIOR, {"prior": "none"})]
    ]
    return seas + [
        [[Task("regression", {"prior": prior, "seed": seed}, regress)]]
        for seed in range(DRAWS[budget])
        for prior in REGRESSION
    ]


def _sea_task(name: str, env: str, size: int, seed: int, changes: dict[str, Any]) -> Task:
    return task(name, "bsp", size, seed, MOST_EPISODES[env], env=env, **changes)


outcome: Outcome = time_to_learn


def regress(prior: str, seed: int) -> list[dict[str, Any]]:
    """Fit an ensemble with a prior to one data set.

    Args:
        prior: Name of the prior, of `REGRESSION`.
        seed: Seed of the data set and of the ensemble.

    Returns:
        One row per place: the mean log likelihood of the truth minus that of the exact posterior, in nats.
    """
    rng = np.random.default_rng(seed)
    x, test = _inputs(rng)
    everywhere = np.concatenate([x, *test])
    truth = np.linalg.cholesky(_kernel(everywhere, everywhere) + 1e-6 * np.eye(len(everywhere))) @ rng.normal(
        size=len(everywhere)
    )
    y = truth[:NUM_DATA] + NOISE * rng.normal(size=NUM_DATA)
    shape = REGRESSION[prior]
    network = MEMBERS.get(prior, MLP((50, 50)))
    sized = None if shape is None else UnitSize(shape, input_scale=(2.0, 2.0))
    belief = Ensemble(num_members=20, network=network, prior=sized)
    key_fit, key_draw = jax.random.split(jax.random.key(seed))
    state = fit(belief, (x, y), key=key_fit, noise=Gaussian(NOISE), steps=2000).state
    rows = []
    for place, points, values in zip(PLACES, test, np.split(truth[NUM_DATA:], [NUM_TEST, 2 * NUM_TEST]), strict=True):
        functions = np.asarray(belief.functions(state, key_draw, jnp.asarray(points)))[..., 0]
        ours = _log_likelihood(values, functions.mean(0), functions.var(0))
        exact = _log_likelihood(values, *_posterior(x, y, points))
        rows.append({"place": place, "relative": round(ours - exact, 4), "exact": round(exact, 4)})
    return rows


def _inputs(rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
    """Draw training inputs on both sides of a gap, and test inputs of each place."""
    side = rng.choice([-1.0, 1.0], (NUM_DATA + NUM_TEST, 1))
    across = rng.uniform(0.7, 2.0, (NUM_DATA + NUM_TEST, 1)) * side
    along = rng.uniform(-2.0, 2.0, (NUM_DATA + 2 * NUM_TEST, 1))
    split = np.concatenate([across, along[: NUM_DATA + NUM_TEST]], axis=1)
    gap = np.concatenate([rng.uniform(-0.4, 0.4, (NUM_TEST, 1)), along[NUM_DATA + NUM_TEST :]], axis=1)
    angle, radius = rng.uniform(0, 2 * np.pi, NUM_TEST), rng.uniform(3.5, 6.0, NUM_TEST)
    outside = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return split[:NUM_DATA], [split[NUM_DATA:], gap, outside]


def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-np.sum((a[:, None] - b[None]) ** 2, axis=-1) / (2 * LENGTH**2))


def _posterior(x: np.ndarray, y: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the exact posterior of the Gaussian process."""
    gain = np.linalg.solve(_kernel(x, x) + NOISE**2 * np.eye(len(x)), _kernel(x, points)).T
    return gain @ y, 1 - np.sum(gain * _kernel(points, x), axis=1)


def _log_likelihood(values: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Mean log density of the noisy values' distribution at the truth."""
    total = variance + NOISE**2
    return float(np.mean(-0.5 * np.log(2 * np.pi * total) - 0.5 * (values - mean) ** 2 / total))


def _shown(rows: list[Row]) -> list[tuple[str, int]]:
    """List the environments and sizes in the rows."""
    return [(env, size) for env in SEAS for size in sorted({row["size"] for row in where(rows, env=env)})]


def figure(rows: list[Row]) -> Figure:
    """Plot learning times on DeepSea (left) and log likelihoods of the regression (right), one line per prior.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    seas = _shown(rows)
    drawing, axes = panels(1, len(seas) + 1, width=3.4, height=4.4, share=False)
    for axis, (env, size) in zip(axes[0], seas, strict=False):
        _draw_sea(axis, where(rows, env=env, size=size))
        axis.set_title(f"{SEAS[env]} {size}")
    _draw_regression(axes[0, -1], where(rows, name="regression"))
    return drawing


def _draw_sea(axis: Any, rows: list[Row]) -> None:
    names = [NO_PRIOR, *SEA_PRIORS]
    top = max((row["most_episodes"] for row in rows), default=1)
    colours = dict(zip(FACTORS["full"], (BAND, MEAN, SAMPLE), strict=True))
    for i, name in enumerate(reversed(names)):
        for j, (factor, colour) in enumerate(colours.items()):
            found = seeds_of(rows, name=name if name == NO_PRIOR else f"{name}, x{factor:g}")
            if not found or (name == NO_PRIOR and factor != 1):
                continue
            height = i + 0.22 * (1 - j)
            learned = [time for time in found if np.isfinite(time)]
            axis.plot(learned, [height] * len(learned), ".", color=colour, ms=4, alpha=0.5)
            missed = len(found) - len(learned)
            if missed:
                axis.annotate(f"{missed} of {len(found)} not learned", (top, height), ha="right", va="center", size=6)
            middle = float(np.median(found))
            if np.isfinite(middle):
                axis.plot([middle] * 2, [height - 0.1, height + 0.1], color=colour, lw=2.5)
    for factor, colour in colours.items():
        axis.plot([], [], color=colour, lw=2.5, label=f"size x {factor:g}")
    axis.set_yticks(range(len(names)), list(reversed(names)), fontsize=8)
    axis.set(xscale="log", xlabel="episodes to learn")
    axis.set_xlim(None, top)
    axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def _draw_regression(axis: Any, rows: list[Row]) -> None:
    names = [name for name in REGRESSION if where(rows, prior=name)]
    for j, (place, colour) in enumerate(zip(PLACES, (MEAN, SAMPLE, BAND), strict=True)):
        for i, name in enumerate(reversed(names)):
            estimate = mean_interval([row["relative"] for row in where(rows, prior=name, place=place)])
            height = i + 0.22 * (1 - j)
            axis.plot([-estimate.low, -estimate.high], [height] * 2, color=colour, lw=1.5)
            axis.plot(-estimate.value, height, "o", color=colour, ms=4, label=place if i == 0 else None)
    axis.set_yticks(range(len(names)), list(reversed(names)), fontsize=8)
    axis.set(xscale="symlog", xlabel="nats lost to exact Bayes")
    axis.set_title("regression")
    axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time on DeepSea at each size of the priors, and what the regression loses.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    seas = _shown(rows)
    table: list[tuple[str, ...]] = [("prior", *(f"{SEAS[env]} {size}" for env, size in seas), *PLACES)]
    names = [NO_PRIOR, *(f"{name}, x{factor:g}" for name in SEA_PRIORS for factor in FACTORS["full"])]
    for name in names:
        found = [seeds_of(rows, name=name, env=env, size=size) for env, size in seas]
        if any(found):
            table.append((f"DeepSea: {name}", *map(time_words, found), *("" for _ in PLACES)))
    for name in REGRESSION:
        mine = where(rows, name="regression", prior=name)
        if mine:
            lost = [mean_interval([-row["relative"] for row in where(mine, place=place)]) for place in PLACES]
            table.append((f"regression: {name}", *("" for _ in seas), *(each.words(".2f") for each in lost)))
    return table
