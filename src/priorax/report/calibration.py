"""Calibration of predictions, measured on held-out rows.

For a regression: the coverage of central prediction intervals and their mean width. For a classification: the accuracy
of predictions by confidence (reliability). The *calibration error* is the mean distance between nominal and observed
frequencies: over 100 levels from 0 to 1 for a regression (the mean absolute calibration error of the Uncertainty
Toolbox), over rows in ten bins of confidence for a classification (ECE). Sampling alone causes some error on few rows;
its 95% quantile is reported for comparison. Beside it are the usual scores, `metrics`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import erfinv
from scipy.stats import binom, norm
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, roc_auc_score

from priorax.checks import fraction, short_number
from priorax.report.plots import BAND, MEAN, panels, plain_ticks

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
GRID = np.linspace(0, 1, 100)
"""Levels over which the calibration error of a regression is the mean."""
BINS, TRIALS = 10, 400
"""Numbers of bins of confidence, and of simulations of perfectly calibrated predictions."""


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class against the rest."""

    name: str
    """Name of the class."""
    rows: int
    """Number of rows of this class."""
    precision: float
    """Fraction of the rows predicted as this class that belong to it; 0 if there are none."""
    recall: float
    """Fraction of the rows of this class that are predicted as such; 0 if there are none."""
    f1: float
    """Harmonic mean of precision and recall."""
    auc: float | None
    """Area under the ROC curve of the class probability; None if all rows are of this class, or none."""


@dataclass(frozen=True)
class IntervalScore:
    """Prediction intervals of one level."""

    level: float
    """Nominal coverage."""
    coverage: float
    """Fraction of the rows whose true value is inside."""
    width: float
    """Mean width."""


@dataclass(frozen=True)
class Calibration:
    """Calibration and scores of a model on held-out rows."""

    kind: str
    """`number` (regression) or `class` (classification)."""
    rows: int
    """Number of held-out rows."""
    promised: tuple[float, ...]
    """Levels of central intervals, or mean confidence of each bin."""
    kept: tuple[float, ...]
    """Coverage of each interval, or accuracy in each bin."""
    weight: tuple[float, ...]
    """Mean width of each interval, or fraction of rows in each bin."""
    error: float
    """Calibration error: mean distance between nominal and observed frequencies, over 100 levels or over rows."""
    by_chance: float
    """95% quantile of the calibration error of perfectly calibrated predictions on as many rows."""
    surplus: float
    """Mean of observed minus nominal frequencies; negative values mean overconfidence."""
    score: float
    """Root mean squared error, or accuracy."""
    plain_score: float
    """The same for a baseline without features: the mean, or the most frequent class, of the training rows."""
    log_loss: float
    """Mean negative log likelihood, in nats."""
    auc: float | None = None
    """For classes: mean area under the ROC curves of those that some but not all rows have; None if there are none."""
    classes: tuple[ClassScore, ...] = ()
    """For classes: the scores of each class."""
    brier: float | None = None
    """For classes: mean squared distance between the probabilities and the true class, from 0 to 2."""
    balanced: float | None = None
    """For classes: the mean recall of the classes that occur (balanced accuracy)."""
    confusion: tuple[tuple[int, ...], ...] = ()
    """For classes: numbers of rows by true class and predicted class."""
    intervals: tuple[IntervalScore, ...] = ()
    """For numbers: prediction intervals of some levels."""
    mae: float | None = None
    """For numbers: mean absolute error."""
    r2: float | None = None
    """For numbers: coefficient of determination; None if all true values are equal."""
    crps: float | None = None
    """For numbers: mean continuous ranked probability score, in units of the target."""
    sharpness: float | None = None
    """For numbers: root mean square of the predicted standard deviations."""

    @property
    def metrics(self) -> dict[str, float | None]:
        """The scores by their usual names.

        For numbers also `coverage_0.9` and `width_0.9` of each level; None where a score is not defined.
        """
        if self.kind == "class":
            return {
                "accuracy": self.score,
                "balanced_accuracy": self.balanced,
                "log_loss": self.log_loss,
                "brier": self.brier,
                "ece": self.error,
                "auroc": self.auc,
            }
        found = {
            "rmse": self.score,
            "mae": self.mae,
            "r2": self.r2,
            "nll": self.log_loss,
            "crps": self.crps,
            "calibration_error": self.error,
            "sharpness": self.sharpness,
        }
        for each in self.intervals:
            found |= {f"coverage_{each.level:g}": each.coverage, f"width_{each.level:g}": each.width}
        return found

    def __str__(self) -> str:
        """Write the summary as text."""
        lines = self.summary()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    @property
    def verdict(self) -> str:
        """Whether the model is well calibrated, overconfident or underconfident."""
        if self.error <= self.by_chance:
            return "well calibrated within sampling error"
        return "overconfident" if self.surplus < 0 else "underconfident"

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as JSON."""
        return {**asdict(self), "verdict": self.verdict}

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> "Calibration":
        """Build a calibration from JSON.

        Args:
            description: JSON from `as_json`.

        Returns:
            The calibration.

        Raises:
            TypeError: If a field is unknown or has the wrong type.
            KeyError: If a field is missing.
            ValueError: If a value is invalid.
        """
        parts: dict[str, Any] = {}
        for field in fields(cls):
            value = description[field.name]
            if field.name in ("promised", "kept", "weight"):
                value = _plain(value)
            elif field.name == "classes":
                value = tuple(ClassScore(**score) for score in value)
            elif field.name == "confusion":
                value = tuple(tuple(map(int, row)) for row in value)
            elif field.name == "intervals":
                value = tuple(IntervalScore(**{name: float(v) for name, v in each.items()}) for each in value)
            elif field.name not in ("kind", "rows") and value is not None:
                value = float(value)
            parts[field.name] = value
        if parts["kind"] not in ("number", "class") or type(parts["rows"]) is not int:
            raise ValueError("kind must be 'number' or 'class', and rows at least 1")
        return cls(**parts)

    def summary(self) -> list[tuple[str, ...]]:
        """Return a table of the main results: a header, then rows."""
        number = self.kind == "number"
        plain = f"{short_number(self.plain_score)} (baseline without features)"
        lines: list[tuple[str, ...]] = [
            ("", "value", "reference"),
            ("error (RMSE)" if number else "accuracy", short_number(self.score), plain),
            ("calibration error", f"{self.error:.3f}", f"up to {self.by_chance:.3f} by chance on {self.rows} rows"),
            ("verdict", self.verdict, ""),
        ]
        if number:
            for place, each in enumerate(self.intervals):
                low, high = binom.interval(0.95, self.rows, each.level) / np.array(self.rows)
                by_chance = f"{each.level:.4g} ({low:.2f} to {high:.2f} by chance on {self.rows} rows)"
                lines[2 + 2 * place : 2 + 2 * place] = [
                    (f"coverage of {each.level:.4g} intervals", f"{each.coverage:.3f}", by_chance),
                    ("mean width of these intervals", short_number(each.width), ""),
                ]
            more = {
                "mean absolute error": (self.mae, ""),
                "R²": (self.r2, "1 is perfect"),
                "negative log likelihood": (self.log_loss, ""),
                "CRPS": (self.crps, "0 is perfect"),
                "sharpness": (self.sharpness, "RMS of standard deviations"),
            }
            known = [(name, short_number(value), words) for name, (value, words) in more.items() if value is not None]
            return [*lines[:2], *known, *lines[2:]]
        scores = {
            "balanced accuracy": (self.balanced, f"{1 / max(len(self.classes), 1):.3g} by chance"),
            "AUC (ROC curve)": (self.auc, "0.5 by chance"),
            "log loss (nats)": (self.log_loss, "0 is perfect"),
            "Brier score": (self.brier, "0 is perfect, 2 the worst"),
        }
        known = [(name, f"{value:.4g}", words) for name, (value, words) in scores.items() if value is not None]
        return [*lines[:2], *known, *lines[2:]]

    def plot(self) -> Figure:
        """Plot observed against nominal frequencies (the reliability diagram), with widths or confidences beside it.

        Returns:
            The figure; `figure.savefig("calibration.png")` writes it, and notebooks show it.
        """
        drawing, axes = panels(1, 2, share=False)
        left, right = axes[0]
        left.plot([0, 1], [0, 1], color=BAND, ls="--", lw=1.0)
        left.plot(self.promised, self.kept, "o-", color=MEAN, ms=4, lw=1.8)
        left.set(xlim=(0, 1), ylim=(0, 1), title=f"calibration error {self.error:.3f}")
        if self.kind == "number":
            left.set(xlabel="nominal coverage", ylabel="observed coverage")
            right.plot(self.promised, self.weight, "o-", color=MEAN, ms=4, lw=1.8)
            right.set(xlabel="nominal coverage", ylabel="mean width", title="width of intervals", ylim=(0, None))
            plain_ticks(right.yaxis)
        else:
            left.set(xlabel="confidence", ylabel="accuracy")
            right.bar(self.promised, self.weight, width=0.6 / BINS, color=MEAN)
            right.set(xlabel="confidence", ylabel="fraction of rows", title="confidence", xlim=(0, 1))
        drawing.suptitle(f"{self.rows:,} rows: {self.verdict}", fontsize=10)
        return drawing

    def class_summary(self) -> list[tuple[str, ...]]:
        """Return a table of the scores of each class: a header, then rows; empty for a regression."""
        if not self.classes:
            return []
        lines: list[tuple[str, ...]] = [("class", "rows", "precision", "recall", "F1", "AUC")]
        for score in self.classes:
            shares = (score.precision, score.recall, score.f1)
            auc = "-" if score.auc is None else f"{score.auc:.3f}"
            lines.append((score.name, f"{score.rows:,}", *(f"{share:.3f}" for share in shares), auc))
        return lines


def of_numbers(
    truth: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    plain: float | None = None,
    intervals: Sequence[tuple[float, np.ndarray, np.ndarray]] | None = None,
    *,
    levels: Sequence[float] = (0.9,),
) -> Calibration:
    """Measure the calibration and the scores of normal predictive distributions, of any model.

    Args:
        truth: True values.
        mean: Predicted means.
        std: Predicted standard deviations, noise included.
        plain: Prediction of the baseline: the mean of the training rows; None is the mean of `truth`.
        intervals: Level, lower and upper bounds of prediction intervals; None uses those of the normal distributions.
        levels: Levels of the latter.

    Returns:
        The calibration.

    Raises:
        ValueError: If the arrays do not fit each other, or have values that are not finite.
    """
    truth, mean, std = (np.asarray(part, dtype=np.float64) for part in (truth, mean, std))
    _refuse(truth.ndim == 1, truth, "one true value per row")
    _refuse(mean.shape == truth.shape, mean, "one mean per row")
    _refuse(std.shape == truth.shape and bool(np.all(std > 0)), std, "one standard deviation above 0 per row")
    z = (truth - mean) / std
    plotted, kept = np.array(LEVELS), _inside(z, GRID)
    between = np.random.default_rng(0).multinomial(len(truth), np.diff(GRID), size=TRIALS)
    trials = np.abs(np.cumsum(between, axis=1) / len(truth) - GRID[1:]).sum(axis=1) / len(GRID)  # perfectly calibrated
    if intervals is None:
        half = [(fraction("levels", level, example=0.9), norm.ppf(0.5 + level / 2) * std) for level in levels]
        intervals = [(level, mean - width, mean + width) for level, width in half]
    spread = np.sum((truth - truth.mean()) ** 2)
    return Calibration(
        kind="number",
        rows=len(truth),
        promised=LEVELS,
        kept=_plain(_inside(z, plotted)),
        weight=_plain(2 * np.sqrt(2.0) * erfinv(plotted) * std.mean()),
        error=float(np.mean(np.abs(kept - GRID))),
        by_chance=float(np.quantile(trials, 0.95)),
        surplus=float(np.mean(kept - GRID)),
        score=float(np.sqrt(np.mean((truth - mean) ** 2))),
        plain_score=float(np.sqrt(np.mean((truth - (truth.mean() if plain is None else plain)) ** 2))),
        log_loss=float(np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi))),
        intervals=tuple(_interval(truth, *each) for each in intervals),
        mae=float(np.mean(np.abs(truth - mean))),
        r2=float(1 - np.sum((truth - mean) ** 2) / spread) if spread > 0 else None,
        crps=float(np.mean(std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)))),
        sharpness=float(np.sqrt(np.mean(std**2))),
    )


def of_classes(
    truth: np.ndarray, proba: np.ndarray, plain: int | None = None, names: Sequence[str] | None = None
) -> Calibration:
    """Measure the calibration and the scores of class probabilities, of any model.

    Args:
        truth: Index of the true class of each row.
        proba: Probabilities [row, class].
        plain: Prediction of the baseline: the most frequent class of the training rows; None is that of `truth`.
        names: Names of the classes; by default their indices.

    Returns:
        The calibration.

    Raises:
        ValueError: If the arrays do not fit each other, or have values that are not finite.
    """
    truth, proba = np.asarray(truth), np.asarray(proba, dtype=np.float64)
    _refuse(truth.ndim == 1, truth, "one true class per row")
    sums = proba.ndim == 2 and len(proba) == len(truth) and np.allclose(proba.sum(axis=1), 1.0, atol=1e-4)
    _refuse(bool(sums), proba, "one row of probabilities that sum to one per row")
    confidence, right = proba.max(axis=1), proba.argmax(axis=1) == truth
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    used = np.unique(place)
    random = np.random.default_rng(0)
    trials = [_bin_error(confidence, random.random(len(truth)) < confidence, place) for _ in range(TRIALS)]
    scores = _class_scores(truth, proba, names or [str(number) for number in range(proba.shape[1])])
    areas = [score.auc for score in scores if score.auc is not None]
    chosen = np.maximum(proba[np.arange(len(truth)), truth], np.finfo(np.float32).tiny)
    return Calibration(
        kind="class",
        rows=len(truth),
        promised=_plain([confidence[place == bin_].mean() for bin_ in used]),
        kept=_plain([right[place == bin_].mean() for bin_ in used]),
        weight=_plain([np.mean(place == bin_) for bin_ in used]),
        error=_bin_error(confidence, right, place),
        by_chance=float(np.quantile(trials, 0.95)),
        surplus=float(np.mean(right) - np.mean(confidence)),
        score=float(np.mean(right)),
        plain_score=float(np.mean(truth == (np.argmax(np.bincount(truth)) if plain is None else plain))),
        log_loss=float(-np.mean(np.log(chosen))),
        auc=float(np.mean(areas)) if areas else None,
        classes=scores,
        brier=float(np.mean(np.sum((proba - np.eye(proba.shape[1])[truth]) ** 2, axis=1))),
        balanced=float(np.mean([score.recall for score in scores if score.rows])),
        confusion=tuple(
            tuple(map(int, row))
            for row in confusion_matrix(truth, proba.argmax(axis=1), labels=list(range(proba.shape[1])))
        ),
    )


def _inside(z: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Compute the fraction of standardised residuals inside the central intervals of each level."""
    return np.searchsorted(np.sort(np.abs(z)), np.sqrt(2.0) * erfinv(levels), side="right") / len(z)


def _interval(truth: np.ndarray, level: float, low: np.ndarray, high: np.ndarray) -> IntervalScore:
    inside = (low <= truth) & (truth <= high)
    return IntervalScore(level, float(np.mean(inside)), float(np.mean(high - low)))


def _class_scores(truth: np.ndarray, proba: np.ndarray, names: Sequence[str]) -> tuple[ClassScore, ...]:
    """Compute the scores of each class against the rest."""
    numbers = range(proba.shape[1])
    parts = precision_recall_fscore_support(truth, proba.argmax(axis=1), labels=list(numbers), zero_division=0.0)
    scores = []
    for number, name, precision, recall, f1, rows in zip(numbers, names, *parts, strict=True):
        both = 0 < rows < len(truth)
        auc = float(roc_auc_score(truth == number, proba[:, number])) if both else None
        scores.append(ClassScore(name, int(rows), float(precision), float(recall), float(f1), auc))
    return tuple(scores)


def _bin_error(confidence: np.ndarray, right: np.ndarray, place: np.ndarray) -> float:
    """Compute the expected calibration error: the distance in each bin, weighted by its rows."""
    gaps = np.bincount(place, weights=confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(place))


def _plain(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _refuse(holds: bool, value: np.ndarray, need: str) -> None:
    if not holds or not len(value) or not np.all(np.isfinite(value)):
        raise ValueError(f"calibration needs {need}, all finite, and at least one row; got shape {value.shape}")
