"""Calibration of predictions, measured on held-out rows.

For a regression: the coverage of central prediction intervals and their mean width (sharpness). For a classification:
the accuracy of predictions by confidence (reliability). The *calibration error* is the mean distance between nominal
and observed frequencies. Sampling alone causes some error on few rows; its 95% quantile is reported for comparison. For
each class there are also precision, recall, F1 and the area under the ROC curve, and for all of them the Brier score,
the balanced accuracy and the confusion matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import erfinv
from scipy.stats import binom
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, roc_auc_score

from priorax.checks import short_number
from priorax.report.plots import BAND, MEAN, panels, plain_ticks

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
BINS = 10
TRIALS = 400


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
    """Prediction intervals of one level, as `predict_interval` gives them."""

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
    """Calibration error: mean distance between `promised` and `kept`, over levels or rows."""
    by_chance: float
    """95% quantile of the calibration error of perfectly calibrated predictions on as many rows."""
    surplus: float
    """Mean of `kept` minus `promised`; negative values mean overconfidence."""
    score: float
    """Root mean squared error, or accuracy."""
    plain_score: float
    """The same for the baseline that always predicts the mean, or the most frequent class, of the training rows."""
    log_loss: float
    """Mean negative log likelihood, in nats."""
    auc: float | None = None
    """For classes: mean area under the ROC curves; None if it is undefined for a class."""
    classes: tuple[ClassScore, ...] = ()
    """For classes: the scores of each class."""
    brier: float | None = None
    """For classes: mean squared distance between the probabilities and the true class, from 0 to 2."""
    balanced: float | None = None
    """For classes: the mean recall of the classes that occur (balanced accuracy)."""
    confusion: tuple[tuple[int, ...], ...] = ()
    """For classes: numbers of rows by true class and predicted class."""
    interval: IntervalScore | None = None
    """For numbers: the measured prediction intervals, if there are any."""

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
            elif field.name == "interval" and value is not None:
                value = IntervalScore(**{name: float(number) for name, number in value.items()})
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
            at = self.promised.index(0.9)
            shown = self.interval or IntervalScore(0.9, self.kept[at], self.weight[at])
            low, high = binom.interval(0.95, self.rows, shown.level) / np.array(self.rows)
            by_chance = f"{shown.level:.4g} ({low:.2f} to {high:.2f} by chance on {self.rows} rows)"
            lines.insert(2, (f"coverage of {shown.level:.4g} intervals", f"{shown.coverage:.3f}", by_chance))
            lines.insert(3, ("mean width of these intervals", short_number(shown.width), ""))
            return lines
        scores = {
            "balanced accuracy": (self.balanced, f"{1 / max(len(self.classes), 1):.3g} by chance"),
            "AUC (ROC curve)": (self.auc, "0.5 by chance"),
            "log loss (nats)": (self.log_loss, "0 is perfect"),
            "Brier score": (self.brier, "0 is perfect, 2 the worst"),
        }
        known = [(name, f"{value:.4g}", words) for name, (value, words) in scores.items() if value is not None]
        return [*lines[:2], *known, *lines[2:]]

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
    plain: float,
    interval: tuple[float, np.ndarray, np.ndarray] | None = None,
) -> Calibration:
    """Measure the calibration of normal predictive distributions.

    Args:
        truth: True values.
        mean: Predicted means.
        std: Predicted standard deviations.
        plain: Prediction of the baseline: the mean of the training rows.
        interval: Level, lower and upper bounds of prediction intervals, if there are any.

    Returns:
        The calibration.
    """
    truth, mean, std = (np.asarray(part, dtype=np.float64) for part in (truth, mean, std))
    _refuse(truth.ndim == 1, truth, "one true value per row")
    _refuse(mean.shape == truth.shape, mean, "one mean per row")
    _refuse(std.shape == truth.shape and bool(np.all(std > 0)), std, "one standard deviation above 0 per row")
    levels = np.array(LEVELS)
    widths = np.sqrt(2.0) * erfinv(levels)
    kept = np.mean(np.abs(truth - mean)[:, None] <= widths * std[:, None], axis=0)
    between = np.random.default_rng(0).multinomial(len(truth), np.diff([0.0, *LEVELS, 1.0]), size=TRIALS)
    trials = np.abs(np.cumsum(between, axis=1)[:, :-1] / len(truth) - levels).mean(axis=1)  # perfectly calibrated
    return Calibration(
        kind="number",
        rows=len(truth),
        promised=LEVELS,
        kept=_plain(kept),
        weight=_plain(2 * widths * std.mean()),
        error=float(np.mean(np.abs(kept - levels))),
        by_chance=float(np.quantile(trials, 0.95)),
        surplus=float(np.mean(kept - levels)),
        score=float(np.sqrt(np.mean((truth - mean) ** 2))),
        plain_score=float(np.sqrt(np.mean((truth - plain) ** 2))),
        log_loss=float(np.mean(0.5 * ((truth - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi))),
        interval=None if interval is None else _interval(truth, *interval),
    )


def of_classes(truth: np.ndarray, proba: np.ndarray, plain: int, names: Sequence[str] | None = None) -> Calibration:
    """Measure the calibration of class probabilities.

    Args:
        truth: Index of the true class of each row.
        proba: Probabilities [row, class].
        plain: Prediction of the baseline: the most frequent class of the training rows.
        names: Names of the classes; by default their indices.

    Returns:
        The calibration.
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
        plain_score=float(np.mean(truth == plain)),
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


def figure(calibration: Calibration) -> Figure:
    """Plot observed against nominal frequencies, with the sharpness beside it.

    Args:
        calibration: The calibration.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, share=False)
    left, right = axes[0]
    promised, kept, weight = calibration.promised, calibration.kept, calibration.weight
    left.plot([0, 1], [0, 1], color=BAND, ls="--", lw=1.0)
    left.plot(promised, kept, "o-", color=MEAN, ms=4, lw=1.8)
    left.set(xlim=(0, 1), ylim=(0, 1), title=f"calibration error {calibration.error:.3f}")
    if calibration.kind == "number":
        left.set(xlabel="nominal coverage", ylabel="observed coverage")
        right.plot(promised, weight, "o-", color=MEAN, ms=4, lw=1.8)
        right.set(xlabel="nominal coverage", ylabel="mean width", title="width of intervals", ylim=(0, None))
        plain_ticks(right.yaxis)
    else:
        left.set(xlabel="confidence", ylabel="accuracy")
        right.bar(promised, weight, width=0.6 / BINS, color=MEAN)
        right.set(xlabel="confidence", ylabel="fraction of rows", title="confidence", xlim=(0, 1))
    drawing.suptitle(f"{calibration.rows:,} rows: {calibration.verdict}", fontsize=10)
    return drawing


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
