"""The Neural Testbed: joint predictions of every belief on random classifiers (`testbed_problems`).

Settings of each method are chosen among six, by the mean KL divergence at tau = 100 over the problems of seeds that
are not shown (`best`); rows of that choice have the name `choice`. Shown is the normalised KL: the mean over problems
divided by that of a plain network without uncertainty (`mlp`), as in the authors' figure.

That figure (`PUBLISHED`, read off it) is of October 2021: problems of two dimensions with 1 to 1,000 examples, and 100
*independent* test inputs, whose joint probability was estimated by random projections. Later versions of the testbed
have dyadic sampling and 10 inputs. We show both samplings, with the joint probability computed from all functions.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.experiments.grids import Changes, grid, words
from priorax.experiments.testbed.methods import DEFAULTS, check_methods, fit_method, settings_of
from priorax.experiments.testbed.problems import SAMPLINGS, exam_of, make_problem, score
from priorax.report.looks import LOOKS
from priorax.report.plots import panels
from priorax.report.rows import Row, where

METHODS = tuple(DEFAULTS)
PLAIN = "mlp"
"""The method that others are divided by."""
TAUS = (1, 10, 100)
TEMPERATURES = (0.01, 0.1, 0.5)


class Size(NamedTuple):
    """How much is run."""

    dims: tuple[int, ...]
    """Dimensions of the inputs."""
    ratios: tuple[int, ...]
    """Numbers of examples divided by the dimension."""
    choice_seeds: tuple[int, ...]
    """Seeds on which settings are chosen."""
    seeds: tuple[int, ...]
    """Seeds that are shown."""
    members: int
    """Members of ensembles."""
    draws: int
    """Functions drawn from beliefs without members."""
    batches: int
    """Batches of dyadic test inputs."""
    independent: int
    """Batches of independent test inputs."""


SIZES = {
    "quick": Size((2,), (1, 10, 100), (0, 1), (100, 101, 102), members=20, draws=200, batches=500, independent=50),
    "full": Size(
        (2, 10, 100),
        (1, 10, 100, 1000),
        (0, 1),
        tuple(range(100, 105)),
        100,
        draws=1000,
        batches=1000,
        independent=100,
    ),
}
GRIDS: dict[str, list[Changes]] = {
    PLAIN: grid(l2=(0.3, 1.0, 3.0), power=(0.0, 0.5)),
    "ensemble": grid(l2=(0.3, 1.0, 3.0), power=(0.0, 0.5)),
    "dropout": grid(p_keep=(0.5, 0.7, 0.9), power=(0.0, 0.5)),
    "bbb": grid(prior_std=(0.5, 1.0, 2.0), power=(0.0, 0.5)),
    "bs": grid(l2=(0.3, 1.0, 3.0), power=(0.0, 0.5)),
    "bsr": grid(l2=(0.3, 1.0, 3.0), power=(0.0, 0.5)),
    "bsp": grid(prior_scale=(1.5, 3.0, 6.0), power=(0.0, 0.5)),
    "hypermodel": grid(prior_scale=(1.0, 3.0, 10.0), power=(0.0, 0.5)),
    "epinet": grid(prior_scale=(0.3, 1.0, 3.0), power=(0.0, 0.5)),
}
"""Six settings of each method."""
CHOSEN: dict[str, dict[str, Changes]] = {
    "quick": {
        PLAIN: {"l2": 1.0, "power": 0.0},
        "ensemble": {"l2": 1.0, "power": 0.0},
        "dropout": {"p_keep": 0.5, "power": 0.5},
        "bbb": {"prior_std": 0.5, "power": 0.0},
        "bs": {"l2": 1.0, "power": 0.5},
        "bsr": {"l2": 3.0, "power": 0.5},
        "bsp": {"prior_scale": 6.0, "power": 0.5},
        "hypermodel": {"prior_scale": 3.0, "power": 0.5},
        "epinet": {"prior_scale": 1.0, "power": 0.5},
    },
    "full": {},
}
"""What `best` chooses from the committed rows, by budget and method; a test compares the two."""
MANY = 100
"""Members of BSP in the rows `many members` of the quick experiment: as many as in the published one. These rows were
added after those with fewer members had been looked at; other ensembles have none."""
NEEDS = (
    "settings are chosen first; where `CHOSEN` in priorax/experiments/testbed/study.py has none, copy the choices of "
    "the table there and run it again"
)
"""What is announced before the full experiment."""
PUBLISHED = {
    "mlp": 1.0,
    "ensemble": 0.99,
    "dropout": 0.98,
    "bbb": 0.73,
    "hypermodel": 0.64,
    "bsp": 0.58,
}
"""Normalised KL at 100 inputs by the authors' figure; their `ensemble+` is the nearest to `bsp`, without bootstrap. The
lowest there is 0.565: stochastic-gradient Markov chain Monte Carlo, which we do not have."""


def ladders(budget: str, methods: Sequence[str] | None = None) -> list[Any]:
    """List every fit separately: first those that choose settings, then those that are shown.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        methods: Methods that are shown, beside `mlp`, without choosing settings; None: all methods that settings are
            chosen for, and their choice.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).

    Raises:
        ValueError: If a method is unknown, or settings of a belief have not been chosen.
    """
    size, found = SIZES[budget], []
    if methods is None:
        found += [
            _task("choice", method, problem, seed, size._replace(independent=0), changes)
            for seed in size.choice_seeds
            for problem in _problems(size)
            for method in METHODS
            for changes in GRIDS[method]
        ]
        methods = tuple(CHOSEN[budget])
        if budget == "quick":
            many = size._replace(members=MANY)
            found += [
                _task("many members", "bsp", problem, seed, many, CHOSEN[budget]["bsp"])
                for seed in size.seeds
                for problem in _problems(size)
            ]
    else:
        check_methods(tuple(methods))
        methods = tuple(dict.fromkeys([PLAIN, *methods]))
        _check_choices(budget, methods)
    found += [
        _task("shown", method, problem, seed, size, CHOSEN[budget].get(method, {}))
        for seed in size.seeds
        for problem in _problems(size)
        for method in methods
    ]
    return [[[item]] for item in found]


def _check_choices(budget: str, methods: Sequence[str]) -> None:
    """Refuse beliefs for which no settings have been chosen."""
    missing = [method for method in methods if method in DEFAULTS and method not in CHOSEN[budget]]
    if missing:
        raise ValueError(
            f"budget={budget!r} needs settings chosen for {', '.join(missing)}; run `priorax reproduce testbed "
            f"--budget {budget}`, then copy its choices into `CHOSEN` in priorax/experiments/testbed/study.py, or use "
            "`--budget quick`"
        )


def _problems(size: Size) -> list[tuple[int, int, float]]:
    return [(dim, ratio, heat) for dim in size.dims for ratio in size.ratios for heat in TEMPERATURES]


def _task(name: str, method: str, problem: tuple[int, int, float], seed: int, size: Size, changes: Changes) -> Task:
    dim, ratio, temperature = problem
    arguments = {"method": method, "dim": dim, "ratio": ratio, "temperature": temperature, "seed": seed}
    amount = {key: getattr(size, key) for key in ("members", "draws", "batches", "independent")}
    chosen = settings_of(method, changes) if method in DEFAULTS else {}
    return Task(name, {**arguments, **amount, **chosen}, measure)


def measure(
    method: str,
    dim: int,
    ratio: int,
    temperature: float,
    seed: int,
    members: int,
    draws: int,
    batches: int,
    independent: int,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Fit a method to a problem and score its joint predictions.

    Args:
        method: Name of a belief, or location of a classifier as `package.module:name`.
        dim: Dimension of the inputs.
        ratio: Number of training examples divided by the dimension.
        temperature: Temperature of the truth.
        seed: Random seed of the problem and the fit.
        members: Members of an ensemble.
        draws: Functions drawn from other methods.
        batches: Batches of dyadic test inputs.
        independent: Batches of independent test inputs; 0 leaves them out.
        **settings: Settings of a belief.

    Returns:
        One row for each sampling and tau; tau = 1 is in the rows of dyadic sampling only.
    """
    problem = make_problem(dim, ratio, temperature, seed)
    start = time.perf_counter()
    functions = fit_method(method, problem, seed, members, draws, settings)
    seconds = time.perf_counter() - start
    rows = []
    for sampling, count in zip(SAMPLINGS, (batches, independent), strict=True):
        taus = TAUS if sampling == "dyadic" else TAUS[1:]
        if count:
            exam = exam_of(problem, taus, count, sampling, ratio, seed)
            for tau, (kl, error) in score(functions, problem.truth, exam).items():
                rows.append({"sampling": sampling, "tau": tau, "kl": kl, "kl_error": error, "seconds": seconds})
    return rows


def best(rows: Sequence[Row], method: str) -> Changes:
    """Choose the setting of a method with the least mean KL at the largest tau.

    Args:
        rows: Rows of the experiment.
        method: Name of the method.

    Returns:
        The setting; the first in the grid, of equals.
    """
    return min(GRIDS[method], key=lambda changes: choice_kl(rows, method, changes))


def choice_kl(rows: Sequence[Row], method: str, changes: Changes) -> float:
    """Compute the number by which settings are chosen.

    Args:
        rows: Rows of the experiment.
        method: Name of the method.
        changes: The setting.

    Returns:
        The mean KL over the problems of the choice.

    Raises:
        ValueError: If there are no rows of this setting.
    """
    mine = where(rows, name="choice", method=method, sampling="dyadic", tau=TAUS[-1], **settings_of(method, changes))
    if not mine:
        raise ValueError(f"there are no rows of method={method!r} with {words(changes)}; run the experiment")
    return float(np.mean([row["kl"] for row in mine]))


class Normalised(NamedTuple):
    """A mean KL divided by that of the plain network, with its standard error over problems."""

    value: float
    error: float


def normalised(
    rows: Sequence[Row], method: str, tau: int, sampling: str = "dyadic", name: str = "shown"
) -> Normalised | None:
    """Normalise the KL of a method: its mean over problems divided by that of the plain network on the same problems.

    Args:
        rows: Rows of the experiment.
        method: Name of the method.
        tau: Number of labels predicted jointly.
        sampling: dyadic or independent.
        name: Name of the method's rows: shown, or many members.

    Returns:
        The ratio, and its standard error by the delta method over problems; None if there are no rows of either.
    """
    ours, plain = (
        {tuple(row[key] for key in ("dim", "ratio", "temperature", "seed")): row["kl"] for row in found}
        for found in (
            where(rows, name=kind, method=each, tau=tau, sampling=sampling)
            for kind, each in ((name, method), ("shown", PLAIN))
        )
    )
    shared = sorted(ours.keys() & plain.keys())
    if not shared:
        return None
    over, under = (np.array([found[key] for key in shared]) for found in (ours, plain))
    ratio = float(over.mean() / under.mean())
    gap = over - ratio * under
    return Normalised(ratio, float(gap.std() / len(gap) ** 0.5 / under.mean()))


COLUMNS = (("dyadic", 1), ("dyadic", 10), ("dyadic", 100), ("independent", 10), ("independent", 100))
"""Samplings and taus of the rows of a fit."""


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the normalised KL of each method.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows; if nothing is shown yet, the choice of settings.
    """
    if not where(rows, name="shown"):
        return _choices(rows)
    columns = [part for part in COLUMNS if part != ("independent", 10)]
    heads = (f"τ={tau} {sampling}" if tau > 1 else "τ=1" for sampling, tau in columns)
    table: list[tuple[str, ...]] = [("method", *heads, "published", "seconds")]
    for label, method, name in _lines(rows):
        mine = where(rows, name=name, method=method, sampling="dyadic", tau=1)
        cells = [normalised(rows, method, tau, sampling, name) for sampling, tau in columns]
        known = PUBLISHED.get(method)
        table.append(
            (
                label,
                *("-" if cell is None else f"{cell.value:.2f} ±{cell.error:.2f}" for cell in cells),
                "-" if known is None else f"{known:.2f}",
                f"{np.mean([row['seconds'] for row in mine]):.1f}",
            )
        )
    return table


def _lines(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """List what is shown as label, method and name of its rows: beliefs in the order of `METHODS`, others by name."""
    found = {row["method"] for row in where(rows, name="shown")}
    lines = []
    for method in (*(each for each in METHODS if each in found), *sorted(found.difference(METHODS))):
        lines.append((method, method, "shown"))
        if where(rows, name="many members", method=method):
            lines.append((f"{method}, {MANY} members", method, "many members"))
    return lines


def _choices(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Tabulate the choice of settings."""
    table: list[tuple[str, ...]] = [("method", "best of 6 settings", f"mean KL at τ={TAUS[-1]}")]
    for method in METHODS:
        chosen = best(rows, method)
        table.append((method, words(chosen), f"{choice_kl(rows, method, chosen):.2f}"))
    return table


def figure(rows: list[Row]) -> Figure:
    """Plot the normalised KL of each method; with independent inputs, the published numbers beside it.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    lines = _lines(rows)
    parts = [part for part in COLUMNS if part[1] in (TAUS[0], TAUS[-1])]
    drawing, axes = panels(1, len(parts), width=3.3, height=1.1 + 0.3 * max(len(lines), 1))
    for axis, (sampling, tau) in zip(axes[0], parts, strict=True):
        for i, (_, method, name) in enumerate(reversed(lines)):
            found = normalised(rows, method, tau, sampling, name)
            if found is None:
                continue
            color = LOOKS[method].color if method in LOOKS else "#8a8f98"
            axis.barh(i, found.value, xerr=found.error, color=color, alpha=0.85, height=0.7, ecolor="#333333")
            if (sampling, tau) == ("independent", TAUS[-1]) and method in PUBLISHED:
                axis.plot(PUBLISHED[method], i, "|", color="k", ms=13, mew=2)
        axis.axvline(1.0, color="k", lw=0.8, ls="--")
        axis.set_yticks(range(len(lines)), [label for label, _, _ in reversed(lines)])
        axis.set(title=f"τ = {tau}" + (f", {sampling} inputs" if tau > 1 else ""), xlabel="KL over that of mlp")
    axes[0, -1].set_xlabel("KL over that of mlp; black: published")
    return drawing
