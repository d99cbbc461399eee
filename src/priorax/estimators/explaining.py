"""What makes a row doubtful: its distance to the training rows in each column, and the doubt without that distance.

A sample of the training rows (anchors) stands for the data. Columns that matter are those on which predictions depend:
relevance is the root mean square change of the prediction when the values of a column are exchanged between anchors.
Distances are in standard deviations, each column weighed by its relevance. For each column, the anchors that are
nearest in the other columns show what its value usually is for such a row: with that value instead, the doubt is
predicted again, and falls if it is this column that makes the row doubtful.
"""

import re
from typing import Any, NamedTuple

import numpy as np

from priorax.checks import short_number
from priorax.estimators.evaluating import SIZES
from priorax.estimators.far_field import Anchors

LEAST_RELEVANCE = 0.05
"""Least relevance of a column in distances, as a fraction of the most relevant one's."""
MAX_COLUMNS = 1000
"""Maximum number of columns, which are compared one by one."""
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
"""Pattern of dates as they are shown."""


class Cause(NamedTuple):
    """One column of a row, and its part in the doubt."""

    column: str
    """Name of the column."""
    value: Any
    """Value in this row; None if it is missing."""
    nearest: tuple[Any, ...]
    """Values in the training rows that are nearest in the other columns, the nearest first."""
    gap: float
    """Distance to the closest of these values, in standard deviations of the column."""
    relevance: float
    """How much predictions depend on the column, as a fraction of the column on which they depend most."""
    doubt_without: float
    """Doubt if the value were that of these rows: the mean over them."""
    outside: bool
    """Whether the value is beyond the range of the training rows, or a category that was not in the training data."""
    range: tuple[Any, Any] | None
    """Least and greatest value in the training rows; None for text."""

    @property
    def alike(self) -> bool:
        """Whether the value is as in the rows that are nearest in the other columns, or between their values."""
        values = [value for value in self.nearest if value is not None]
        if self.range is None or self.value is None or not values:
            return self.value in self.nearest
        return bool(min(values) <= self.value <= max(values))


class Explanation(NamedTuple):
    """Why a row is doubtful."""

    doubt: float
    """Epistemic uncertainty of the row: the standard deviation of a regression (for several outputs, the root mean
    square in units of each output's standard deviation), or nats for a classification (their sum over outputs).
    """
    nearest_doubt: float
    """The same for the nearest training rows, on average."""
    more_than: float
    """Fraction of the training rows that are less doubtful."""
    distance: float
    """Distance to the nearest training row, in standard deviations, each column weighed by its relevance."""
    usual_distance: float
    """Distance of training rows to the nearest other one: its 99% quantile."""
    causes: tuple[Cause, ...]
    """The columns; first the one without whose value the doubt would be least."""

    def __str__(self) -> str:
        """Explain in words, with the main causes."""
        ratio = self.distance / self.usual_distance
        lines = [
            f"doubt {shown(self.doubt, 3)}, above that of {self.more_than:.0%} of the training rows; the nearest ones "
            f"have {shown(self.nearest_doubt, 3)}",
            f"distance to the nearest training row: {self.distance:.2g}, "
            + (f"{ratio:.1f} times the usual one" if ratio > 1 else "which is usual"),
        ]
        main = [f"- {self.words(cause)}" for cause in self.main_causes()]
        return "\n".join([*lines, *(main or ["- no single column makes it doubtful"])])

    def main_causes(self) -> tuple[Cause, ...]:
        """Select the main causes.

        Returns:
            At most three, without each of which the doubt would be at least 5% lower; perhaps none.
        """
        return tuple(cause for cause in self.causes[:3] if cause.doubt_without <= 0.95 * self.doubt)

    def words(self, cause: Cause) -> str:
        """Describe one cause.

        Args:
            cause: One of `causes`.

        Returns:
            A sentence without a full stop.
        """
        change = (cause.doubt_without - self.doubt) / self.doubt if self.doubt > 0 else 0.0
        if cause.outside and cause.range is not None:
            seen = f"outside the training range, {shown(cause.range[0])} to {shown(cause.range[1])}"
        elif cause.outside:
            seen = "not in the training data"
        elif cause.alike:
            seen = "as in training rows alike in the other columns"
        else:
            seen = "in the training data, but not together with the other columns"
        return (
            f"{cause.column} = {shown(cause.value)} ({seen}): training rows alike in the other columns have "
            f"{_listed(cause.nearest)}; with their values, the doubt would be {shown(cause.doubt_without, 3)} on "
            f"average ({change:+.0%})"
        )


def explain(model: Any, X: np.ndarray, rows: list[dict[str, Any]], num_nearest: int) -> list[Explanation]:
    """Explain the doubt about rows.

    Args:
        model: A fitted estimator.
        X: The rows as the networks' features, before standardisation.
        rows: The rows as values by column.
        num_nearest: Number of nearest training rows to compare with.

    Returns:
        An explanation of each row.

    Raises:
        ValueError: If there are too many columns.
    """
    groups = model._groups()
    if len(groups) > MAX_COLUMNS:
        raise ValueError(
            f"X has {len(groups)} columns, but explain compares at most {MAX_COLUMNS}; fit to fewer columns"
        )
    anchors = Anchors(model.anchors_.astype(np.float64), model.anchor_rank_)
    raw = anchors.rows * model.x_scale_ + model.x_mean_
    relevance = _relevance(model, raw, groups)
    weight = np.ones(X.shape[1])
    for name, places in groups.items():
        weight[places] = max(relevance[name], LEAST_RELEVANCE)
    usual = Anchors(anchors.rows * weight, anchors.rank).radius()
    doubts_there = model._doubt(raw)
    seen, words = np.sort(doubts_there), model._text_columns()
    scaled = (X - model.x_mean_) / model.x_scale_
    low, high = (model.x_range_ - model.x_mean_) / model.x_scale_
    ends = [model._decoded(_rounded(end, model.x_scale_)) for end in _ends(model.x_range_, groups)]
    shown_rows = _rounded(raw, model.x_scale_)
    at_once = max(1, SIZES[-1] // (num_nearest * len(groups)))
    found: list[Explanation] = []
    for start in range(0, len(X), at_once):
        part = range(start, min(start + at_once, len(X)))
        gaps = [_gaps((scaled[i] - anchors.rows) * weight, groups) for i in part]
        alike = [_nearest(gap.sum(axis=1, keepdims=True) - gap, gap.sum(axis=1), num_nearest) for gap in gaps]
        changed = np.concatenate([_changed(X[i], raw, near, groups) for i, near in zip(part, alike, strict=True)])
        doubts = model._doubt(changed).reshape(len(part), len(groups), -1).mean(axis=2)
        for i, own, others, gap, without in zip(part, model._doubt(X[part]), alike, gaps, doubts, strict=True):
            causes = [
                Cause(
                    column=name,
                    value=rows[i][name],
                    nearest=tuple(model._decoded(row)[name] for row in shown_rows[near]),
                    gap=float(np.linalg.norm(scaled[i, places] - anchors.rows[near][:, places], axis=1).min()),
                    relevance=relevance[name],
                    doubt_without=float(doubt),
                    outside=_is_outside(scaled[i, places], low[places], high[places], name in words),
                    range=None if name in words else (ends[0][name], ends[1][name]),
                )
                for (name, places), near, doubt in zip(groups.items(), others, without, strict=True)
            ]
            whole = gap.sum(axis=1)
            near = _nearest(whole[:, None], whole, num_nearest)[0]
            found.append(
                Explanation(
                    doubt=float(own),
                    nearest_doubt=float(doubts_there[near].mean()),
                    more_than=float(np.searchsorted(seen, own) / len(seen)),
                    distance=float(np.sqrt(whole[near[0]])),
                    usual_distance=usual,
                    causes=tuple(sorted(causes, key=lambda cause: (cause.doubt_without, -cause.gap))),
                )
            )
    return found


def _relevance(model: Any, raw: np.ndarray, groups: dict[str, np.ndarray]) -> dict[str, float]:
    """Measure how much predictions change when the values of a column are exchanged between rows; the most is one."""
    order = np.random.default_rng(model.stream_seed_).permutation(len(raw))
    before, found = model._centre(raw), dict[str, float]()
    for name, places in groups.items():
        changed = raw.copy()
        changed[:, places] = raw[order][:, places]
        found[name] = float(np.sqrt(np.mean((model._centre(changed) - before) ** 2)))
    most = max(found.values())
    return {name: value / most if most > 0 else 1.0 for name, value in found.items()}


def _gaps(difference: np.ndarray, groups: dict[str, np.ndarray]) -> np.ndarray:
    """Compute the squared distance to each anchor in each column, [anchor, column]."""
    return np.stack([np.sum(difference[:, places] ** 2, axis=1) for places in groups.values()], axis=1)


def _nearest(squares: np.ndarray, whole: np.ndarray, count: int) -> np.ndarray:
    """Find the nearest anchors by each column of distances, then by the whole distance: [column, count]."""
    return np.stack([np.lexsort((whole, np.round(column, 9)))[:count] for column in squares.T])


def _changed(row: np.ndarray, raw: np.ndarray, near: np.ndarray, groups: dict[str, np.ndarray]) -> np.ndarray:
    """Replace each column in turn by its values in some rows, [column, nearest]: [column x nearest, feature]."""
    found = np.tile(row, (*near.shape, 1))
    for number, places in enumerate(groups.values()):
        found[number][:, places] = raw[near[number]][:, places]
    return found.reshape(-1, len(row))


def _rounded(raw: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Round to the precision that anchors have, about a millionth of the standard deviation."""
    unit = 10.0 ** np.floor(np.log10(scale) - 6)
    return np.round(raw / unit) * unit + 0.0


def _ends(range_: np.ndarray, groups: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Make two rows of features from the least and the greatest value of each column, which do not count as missing."""
    low, high = range_[0].copy(), range_[0].copy()
    for places in groups.values():
        low[places[1:]] = high[places[1:]] = 0.0
        high[places[0]] = range_[1][places[0]]
    return low, high


def _is_outside(row: np.ndarray, low: np.ndarray, high: np.ndarray, is_text: bool) -> bool:
    """Check whether a value is new: a number beyond the training range, or a category without a feature."""
    if is_text:
        return bool(np.all(row <= low + 1e-6))
    return bool(row[0] < low[0] - 1e-6 or row[0] > high[0] + 1e-6)


def _listed(values: tuple[Any, ...]) -> str:
    """List the distinct values, or the range of numbers and dates."""
    different = list(dict.fromkeys(values))
    ordered = all(isinstance(value, float) for value in different)
    dated = all(isinstance(value, str) and DATE.match(value) for value in different)
    if len(different) > 1 and (ordered or dated):
        return f"{shown(min(different))} to {shown(max(different))}"
    return ", ".join(map(shown, different))


def shown(value: Any, digits: int = 4) -> str:
    """Write a value for people.

    Args:
        value: A number, text or None.
        digits: Number of significant digits; whole numbers have up to nine.

    Returns:
        The number, "missing" for None, or the text.
    """
    if not isinstance(value, float):
        return "missing" if value is None else str(value)
    return short_number(value, 9 if value.is_integer() else digits)
