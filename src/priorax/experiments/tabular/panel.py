"""Estimators on tables: ours, with default settings, beside those that people use today.

UCI sets with their published splits, scikit-learn's own sets, and Friedman's three functions. For regressions: root
mean squared error, negative log likelihood, CRPS, coverage and mean width of 90% intervals (in units of the standard
deviation of y); for classifications: accuracy, log loss and expected calibration error. For both: the area under the
ROC curve by which the estimator's doubt tells test rows from the same rows five times as far from the centre of the
data, and rows of a region without training data (a slab) from the rest. Defaults were chosen on other splits than are
shown.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from priorax.analysis.parallel import Task
from priorax.checks import one_of
from priorax.experiments.tabular.data import CLASSES, PUBLISHED, REGRESSION, load, without_slab
from priorax.experiments.tabular.models import CLASSIFIERS, COVERAGE, OURS, REGRESSORS, Normal, Proba, fit
from priorax.report import calibration
from priorax.report.plots import panels
from priorax.report.rows import Row, where

DEFAULTS = 1
"""Raised when defaults of our estimators change, so that rows made before are not mixed with new ones."""
FIRST_SHOWN = 5
"""First split that is shown; defaults were chosen on those before it."""
SPLITS = {"quick": 1, "full": 15}
"""Number of splits, the same for all estimators."""
QUICK = ("energy", "diabetes", "iris")
FAR = 5.0
"""Factor of the distance from the centre of the data for inputs that are too far."""
PUBLISHED_SCORES = {
    "concrete": {"MC dropout": (4.83, 2.94), "deep ensembles": (6.03, 3.06)},
    "energy": {"MC dropout": (0.54, 1.21), "deep ensembles": (2.09, 1.38)},
    "power": {"MC dropout": (4.01, 2.81), "deep ensembles": (4.11, 2.79)},
    "wine": {"MC dropout": (0.62, 0.93), "deep ensembles": (0.64, 0.94)},
}
"""Root mean squared error and negative log likelihood that others report, means of the 20 published splits."""


def ladders(budget: str, models: Sequence[str] | None = None) -> list[Any]:
    """List every measurement separately: our estimators first, split after split.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        models: Names of the estimators that are measured; None: all.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).

    Raises:
        ValueError: If a model is unknown.
    """
    known = list(dict.fromkeys([OURS, *REGRESSORS, *CLASSIFIERS]))
    chosen = known if models is None else [one_of("models", model, known) for model in models]
    names = [name for name in (*REGRESSION, *CLASSES) if budget == "full" or name in QUICK]
    splits = range(FIRST_SHOWN, FIRST_SHOWN + SPLITS[budget])
    found = [_task(OURS, name, split) for split in splits for name in names]
    found += [_task(model, name, split) for split in splits for name in names for model in peers(name)]
    small = [name for name in names if name != "power"]
    found += [_task(model, name, FIRST_SHOWN, slab=True) for name in small for model in (OURS, *peers(name))]
    return [[[item]] for item in found if item.arguments["model"] in chosen]


def peers(name: str) -> list[str]:
    """List the other estimators for a data set.

    Args:
        name: Name of the data set.

    Returns:
        Their names.
    """
    return list(REGRESSORS if name in REGRESSION else CLASSIFIERS)


def _task(model: str, name: str, split: int, slab: bool = False) -> Task:
    arguments = {"data": name, "model": model, "seed": split, "defaults": DEFAULTS if model == OURS else 0}
    name = f"{model}, slab" if slab else model
    return Task(name, arguments, slab_doubt if slab else measure, needs="ngboost" if model == "NGBoost" else "")


@threadpool_limits.wrap(limits=1)
def measure(data: str, model: str, seed: int, defaults: int, **changes: Any) -> list[dict[str, Any]]:
    """Fit a model to the training rows of a split and measure its predictions of the test rows, on one thread.

    Args:
        data: Name of the data set.
        model: Name of the model.
        seed: Number of the split, and random seed.
        defaults: Version of the default settings, for the rows only.
        **changes: Changed parameters of our estimators.

    Returns:
        One row.
    """
    part = load(data, seed)
    start = time.perf_counter()
    predict = fit(model, part.x, part.y, seed, part.is_regression, **changes)
    seconds = time.perf_counter() - start
    said = predict(part.test_x)
    centre = part.x.mean(axis=0)
    far = predict(centre + FAR * (part.test_x - centre))
    truth = np.arange(2 * len(part.test_x)) >= len(part.test_x)
    auroc = roc_auc_score(truth, np.concatenate([_doubt(said), _doubt(far)]))
    scores = _number_scores(said, part) if part.is_regression else _class_scores(said, part)
    return [{**scores, "far_auroc": auroc, "seconds": seconds}]


@threadpool_limits.wrap(limits=1)
def slab_doubt(data: str, model: str, seed: int, defaults: int) -> list[dict[str, Any]]:
    """Fit a model to training rows outside of a slab and measure how well its doubt tells test rows inside of it.

    Args:
        data: Name of the data set.
        model: Name of the model.
        seed: Number of the split, and random seed.
        defaults: Version of the default settings, for the rows only.

    Returns:
        One row.
    """
    part, inside = without_slab(load(data, seed))
    said = fit(model, part.x, part.y, seed, part.is_regression)(part.test_x)
    return [{"slab_auroc": roc_auc_score(inside, _doubt(said))}]


def _doubt(said: Normal | Proba) -> np.ndarray:
    return said.doubt if isinstance(said, Normal) else entropy(said.proba, axis=1)


def _number_scores(said: Normal, part: Any) -> dict[str, Any]:
    bounds = (COVERAGE, said.low, said.high)
    found = calibration.of_numbers(part.test_y, said.mean, said.std, float(part.y.mean()), [bounds])
    (interval,) = found.intervals
    return {
        **{name: found.metrics[name] for name in ("rmse", "nll", "crps")},
        "coverage": interval.coverage,
        "width": float(interval.width / part.y.std()),
    }


def _class_scores(said: Proba, part: Any) -> dict[str, float]:
    found = calibration.of_classes(part.test_y, said.proba, int(np.argmax(np.bincount(part.y))))
    return {"accuracy": found.score, "log_loss": found.log_loss, "ece": found.error}


COLUMNS = {
    "number": {"rmse": ".3f", "nll": ".3f", "crps": ".3f", "coverage": ".3f", "width": ".2f"},
    "class": {"accuracy": ".3f", "log_loss": ".3f", "ece": ".3f"},
}
"""Formats of the scores, by kind of target."""


def summary(rows: list[Row], kind: str = "number") -> list[tuple[str, ...]]:
    """Tabulate the means over splits.

    Args:
        rows: Rows of the experiment.
        kind: `number` for regressions, `class` for classifications.

    Returns:
        The table: a header, then rows.
    """
    columns, names = COLUMNS[kind], REGRESSION if kind == "number" else CLASSES
    more = ("far AUROC", "slab AUROC", "seconds", "splits")
    table: list[tuple[str, ...]] = [("data", "model", *(name.replace("_", " ") for name in columns), *more)]
    for name in names:
        for model in dict.fromkeys([OURS, *REGRESSORS, *CLASSIFIERS]):
            mine = [row for row in where(rows, data=name, model=model) if "seconds" in row]
            if not mine:
                continue
            slab = [row["slab_auroc"] for row in where(rows, data=name, model=model) if "slab_auroc" in row]
            cells = [_mean(mine, column, form) for column, form in columns.items()]
            doubt = [_mean(mine, "far_auroc", ".2f"), format(np.mean(slab), ".2f") if slab else "-"]
            table.append((name, model, *cells, *doubt, _mean(mine, "seconds", ".1f"), _splits(mine)))
        for source, (rmse, nll) in PUBLISHED_SCORES.get(name, {}).items() if where(rows, data=name) else ():
            blank = ("-",) * (len(columns) - 2)
            table.append((name, f"{source}, published", f"{rmse:.2f}", f"{nll:.2f}", *blank, *("-",) * 3, "0-19"))
    return table


def _mean(rows: list[Row], column: str, form: str) -> str:
    return format(np.mean([row[column] for row in rows]), form)


def _splits(rows: list[Row]) -> str:
    seeds = sorted(row["seed"] for row in rows)
    if len(seeds) == seeds[-1] - seeds[0] + 1:
        return f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    return ", ".join(map(str, seeds))


def figure(rows: list[Row]) -> Figure:
    """Plot negative log likelihood against coverage for the UCI sets, one panel each.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    names = [name for name in (*PUBLISHED, "diabetes") if where(rows, data=name)][:4]
    drawing, axes = panels(1, max(len(names), 1), width=3.2, height=3.2, share=False)
    for axis, name in zip(axes[0], names, strict=False):
        for model in (OURS, *REGRESSORS):
            mine = [row for row in where(rows, data=name, model=model) if "nll" in row]
            if mine:
                nll, kept = (np.mean([row[column] for row in mine]) for column in ("nll", "coverage"))
                axis.plot(kept, nll, "o" if model == OURS else "s", ms=6, label=model)
        for source, (_, nll) in PUBLISHED_SCORES.get(name, {}).items():
            axis.axhline(nll, lw=0.8, ls="--" if source == "MC dropout" else ":", color="#888888")
        axis.axvspan(0.87, 0.93, color="#eeeeee", zorder=0)
        axis.set(title=name, xlabel="coverage of 90% intervals", ylabel="negative log likelihood")
    axes[0, 0].legend(fontsize=7, frameon=False)
    return drawing
