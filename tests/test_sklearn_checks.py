"""scikit-learn's own conformance checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor

SMALL = {"num_members": 4, "hidden_widths": (20,), "steps": 400, "learning_rate": 1e-2}
EXPECTED = {
    f"check_sample_weight_equivalence_on_{form}_data": "a resampling method with minibatches draws noise and batches "
    "per row, so repeating a row is another data set than doubling its weight"
    for form in ("dense", "sparse")
}


@parametrize_with_checks(
    [
        kind(encode=encode, **SMALL)
        for kind in (PriorEnsembleRegressor, PriorEnsembleClassifier)
        for encode in (False, True)
    ],
    expected_failed_checks=lambda estimator: EXPECTED,
)
@pytest.mark.filterwarnings("ignore:Estimator .* does not support array API:UserWarning")
@pytest.mark.slow
def test_scikit_learn_check(estimator, check):
    check(estimator)
