import numpy as np
import pytest

from priorax import PriorEnsembleClassifier
from priorax.noise import Gaussian

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (120, 2))
LABELS = np.where(X[:, 0] > 0, "right", "left")
SMALL = {"num_members": 5, "hidden_widths": (20,), "steps": 500, "learning_rate": 1e-2, "random_state": 0}


@pytest.fixture(scope="module")
def classifier():
    return PriorEnsembleClassifier(**SMALL).fit(X, LABELS)


def test_partial_fit_of_a_classifier_needs_all_classes_first():
    model = PriorEnsembleClassifier(**SMALL)
    with pytest.raises(ValueError, match="classes=None on the first call"):
        model.partial_fit(X, LABELS)
    model.partial_fit(X, LABELS, classes=["left", "right", "up"])
    assert model.predict_proba(X).shape == (120, 3)
    with pytest.raises(ValueError, match=r"classes=\['left'\] differ from those of the first call"):
        model.partial_fit(X, LABELS, classes=["left"])
    with pytest.raises(ValueError, match=r"labels .*down.* not in classes"):
        model.partial_fit(X, np.full(120, "down"))


def test_a_classifiers_doubt_is_parted(classifier):
    assert classifier.score(X, LABELS) > 0.95
    np.testing.assert_array_equal(classifier.classes_, ["left", "right"])
    doubt = classifier.predict_uncertainty(np.array([[0.0, 0.0], [0.9, 0.0], [-0.9, 0.0]]))
    np.testing.assert_allclose(doubt.total, doubt.epistemic + doubt.aleatoric, atol=1e-6)
    assert doubt.total[0] > doubt.total[1:].max()
    assert np.all(doubt.epistemic >= 0)
    samples = classifier.sample(X[:3], 6, random_state=1)
    assert samples.shape == (6, 3, 2)
    np.testing.assert_allclose(samples.sum(axis=2), 1, rtol=1e-6)


def test_a_classifier_takes_several_outputs_with_different_classes():
    labels = np.stack([np.digitize(X[:, 0], [-0.3, 0.3]), X[:, 1] > 0], axis=1).astype(int)
    model = PriorEnsembleClassifier(**SMALL).fit(X, labels)
    proba = model.predict_proba(X)
    assert [p.shape for p in proba] == [(120, 3), (120, 2)]
    np.testing.assert_allclose(proba[1].sum(axis=1), 1, rtol=1e-6)
    assert np.mean(model.predict(X) == labels) > 0.9
    assert model.predict_uncertainty(X).total[:, 1].max() <= np.log(2) + 1e-5
    with pytest.raises(ValueError, match="y has 1 outputs, but the first call had 2"):
        model.partial_fit(X, labels[:, :1])


def test_log_probabilities_are_the_logarithms_of_probabilities(classifier):
    np.testing.assert_array_equal(classifier.predict_log_proba(X), np.log(classifier.predict_proba(X)))
    labels = np.stack([X[:, 0] > 0, X[:, 1] > 0], axis=1).astype(int)
    both = PriorEnsembleClassifier(**{**SMALL, "steps": 5}).fit(X, labels)
    assert [part.shape for part in both.predict_log_proba(X)] == [(120, 2), (120, 2)]


def test_class_weights_act_as_in_scikit_learn(tmp_path):
    rare = np.where(X[:, 0] > 0.8, "rare", "usual")
    settings = {**SMALL, "steps": 300, "noise": "none", "batch_size": None}
    x = np.zeros((120, 1))  # says nothing of the label: what is left are the weights

    def share(weight, sample_weight=None):
        model = PriorEnsembleClassifier(**settings, class_weight=weight)
        return model.fit(x, rare, sample_weight=sample_weight).predict_proba(x)[:, 0].mean()

    counts = {label: np.sum(rare == label) for label in ("rare", "usual")}
    balanced = {label: len(rare) / (2 * count) for label, count in counts.items()}
    assert share("balanced") == pytest.approx(0.5, abs=0.01)
    assert share(None) == pytest.approx(counts["rare"] / 120, abs=0.01)
    assert share({"rare": 3.0}) == pytest.approx(3 * counts["rare"] / (120 + 2 * counts["rare"]), abs=0.01)
    np.testing.assert_allclose(share(balanced), share("balanced"), rtol=1e-5)
    by_row = np.array([balanced[label] for label in rare])
    np.testing.assert_allclose(share(None, by_row), share("balanced"), rtol=1e-5)
    model = PriorEnsembleClassifier(**settings, class_weight=balanced).fit(X, rare)
    model.save(tmp_path / "model")
    assert PriorEnsembleClassifier.load(tmp_path / "model").class_weight == pytest.approx(balanced)


@pytest.mark.parametrize(
    ("weight", "message"),
    [({"left": -1.0, "right": 1.0}, "at least 0"), ("balancd", "class_weight"), ([None, None], "y has 1 outputs")],
)
def test_bad_class_weights_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        PriorEnsembleClassifier(**SMALL, class_weight=weight).fit(X, LABELS)


def test_balanced_class_weights_need_all_examples_at_once():
    with pytest.raises(ValueError, match="class_weight='balanced' needs all examples at once"):
        PriorEnsembleClassifier(**SMALL, class_weight="balanced").partial_fit(X, LABELS, classes=["left", "right"])


def test_noise_on_targets_is_refused_for_classes():
    with pytest.raises(ValueError, match="these targets are classes"):
        PriorEnsembleClassifier(**SMALL, noise=Gaussian(1.0)).fit(X, LABELS)
