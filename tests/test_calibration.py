"""Whether predictions are as sure as they should be: measured where it is known."""

import numpy as np
import pytest

from priorax.report import calibration


def test_calibration_of_numbers_tells_right_from_too_sure():
    random = np.random.default_rng(1)
    mean, std = random.normal(size=4000), random.uniform(0.5, 2, size=4000)
    truth = mean + std * random.normal(size=4000)
    right = calibration.of_numbers(truth, mean, std, 0.0)
    assert right.error < 0.015
    assert right.error <= right.by_chance
    assert "well calibrated" in right.verdict
    sure, unsure = (calibration.of_numbers(truth, mean, std * factor, 0.0) for factor in (0.4, 2.5))
    assert (sure.verdict, unsure.verdict) == ("overconfident", "underconfident")
    assert sure.error > 0.15
    assert unsure.error > 0.15
    assert right.log_loss < min(sure.log_loss, unsure.log_loss)
    width = dict(zip(right.promised, right.weight, strict=True))[0.95]
    assert width == pytest.approx(2 * 1.959964 * std.mean(), rel=1e-6)
    assert right.score == pytest.approx(np.sqrt(np.mean((truth - mean) ** 2)))


def test_calibration_of_classes_tells_right_from_too_sure():
    random = np.random.default_rng(2)
    proba = random.dirichlet(np.ones(3), size=4000)
    truth = np.array([random.choice(3, p=row) for row in proba])
    right = calibration.of_classes(truth, proba, 0)
    assert right.error < 0.03
    assert "well calibrated" in right.verdict
    sharp = proba**4 / np.sum(proba**4, axis=1, keepdims=True)
    assert calibration.of_classes(truth, sharp, 0).verdict == "overconfident"
    flat = proba**0.25 / np.sum(proba**0.25, axis=1, keepdims=True)
    assert calibration.of_classes(truth, flat, 0).verdict == "underconfident"
    assert sum(right.weight) == pytest.approx(1)
    assert right.error == pytest.approx(
        sum(w * abs(p - k) for w, p, k in zip(right.weight, right.promised, right.kept, strict=True))
    )


def test_few_rows_are_not_held_against_a_prediction():
    """How often perfect predictions on 30 rows are called otherwise: once in 20."""
    random = np.random.default_rng(3)
    runs = [calibration.of_numbers(random.normal(size=30), np.zeros(30), np.ones(30), 0.0) for _ in range(200)]
    assert np.mean([run.error > run.by_chance for run in runs]) < 0.12


def test_calibration_refuses_what_it_cannot_measure():
    ones = np.ones(3)
    for std in (np.zeros(3), np.ones(2), np.full(3, np.nan)):
        with pytest.raises(ValueError, match="standard deviation"):
            calibration.of_numbers(ones, ones, std, 0.0)
    with pytest.raises(ValueError, match="at least one row"):
        calibration.of_numbers(ones[:0], ones[:0], ones[:0], 0.0)
    with pytest.raises(ValueError, match="sum to one"):
        calibration.of_classes(np.zeros(3, int), np.ones((3, 2)), 0)
