import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from priorax.cli import main
from priorax.experiments import rows_of
from priorax.experiments.testbed import study as testbed
from priorax.experiments.testbed.methods import DEFAULTS, FLOOR, LogOdds, belief_for, fit_method, settings_of
from priorax.experiments.testbed.problems import (
    CLASSES,
    HIDDEN,
    Known,
    draw_exam,
    draw_labels,
    draw_truth,
    exam_of,
    joint_log_likelihood,
    make_problem,
    score,
)
from priorax.report.plots import save_figure

RESULTS = Path(__file__).parent.parent / "results"


def some_log_probs(*shape: int, seed: int = 0) -> np.ndarray:
    return log_softmax(np.random.default_rng(seed).normal(size=(*shape, CLASSES)), axis=-1)


def counts_of(labels) -> np.ndarray:
    """Counts [batch=1, point, class] of one label per point."""
    return np.eye(CLASSES, dtype=int)[np.asarray(labels)][None]


def test_truth_has_the_published_distribution():
    dim = 100
    truth = draw_truth(np.random.default_rng(0), dim, 0.1)
    for weight, fan_in in zip(truth.weights, (dim, HIDDEN, HIDDEN), strict=True):
        assert np.abs(weight).max() <= 2 / fan_in**0.5
        assert weight.std() * fan_in**0.5 == pytest.approx(0.8796, abs=0.1 if weight.size < 200 else 0.03)
    assert truth.bias.std() == pytest.approx(1 / dim**0.5, rel=0.3)
    assert [weight.shape for weight in truth.weights] == [(dim, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)]


def test_temperature_divides_logits():
    x = np.random.default_rng(1).normal(size=(7, 3))
    cold, warm = (draw_truth(np.random.default_rng(0), 3, temperature)(x) for temperature in (0.1, 0.5))
    odds_cold, odds_warm = (part[:, 1] - part[:, 0] for part in (cold, warm))
    np.testing.assert_allclose(odds_cold, 5 * odds_warm)


def test_labels_follow_their_probabilities():
    log_probs = np.log([[0.2, 0.8], [0.7, 0.3]])
    labels = draw_labels(np.random.default_rng(0), np.broadcast_to(log_probs, (20_000, 2, 2)))
    np.testing.assert_allclose(labels.mean(axis=0), [0.8, 0.3], atol=0.015)


def test_joint_log_likelihood_is_the_mean_over_functions_of_products():
    log_probs = some_log_probs(3, 1, 4)
    for labels in itertools.product(range(2), repeat=4):
        products = [np.prod([np.exp(f[0, i, label]) for i, label in enumerate(labels)]) for f in log_probs]
        assert joint_log_likelihood(log_probs, counts_of(labels))[0] == pytest.approx(np.log(np.mean(products)))


def test_joint_probabilities_sum_to_one():
    log_probs = some_log_probs(5, 1, 3)
    total = logsumexp(
        [joint_log_likelihood(log_probs, counts_of(labels))[0] for labels in itertools.product(range(2), repeat=3)]
    )
    assert total == pytest.approx(0)


def test_log_likelihood_stays_finite_for_certain_functions():
    log_probs = np.array([[[[-1e4, 0.0]]], [[[-2e4, 0.0]]]])
    assert joint_log_likelihood(log_probs, np.array([[[100, 0]]]))[0] == pytest.approx(-1e6 - np.log(2))


def test_order_of_inputs_does_not_matter():
    log_probs = some_log_probs(4, 6, 5)
    counts = np.random.default_rng(0).integers(3, size=(6, 5, CLASSES))
    order = [3, 0, 4, 1, 2]
    np.testing.assert_allclose(
        joint_log_likelihood(log_probs[:, :, order], counts[:, order]), joint_log_likelihood(log_probs, counts)
    )


@pytest.mark.parametrize("sampling", ["dyadic", "independent"])
def test_truth_has_no_divergence(sampling):
    problem = make_problem(2, 3, 0.1, 0)
    exam = exam_of(problem, (1, 10, 100), 20, sampling, 3, 0)
    assert score(lambda x: problem.truth(x)[None], problem.truth, exam) == dict.fromkeys((1, 10, 100), (0.0, 0.0))


def test_one_input_gives_the_marginal_divergence():
    problem = make_problem(2, 3, 0.5, 0)
    said = some_log_probs(6, 1, seed=2)
    exam = exam_of(problem, (1,), 20_000, "dyadic", 3, 0)
    found, error = score(lambda x: np.broadcast_to(said, (6, len(x), CLASSES)), problem.truth, exam)[1]
    right = problem.truth(exam.points.reshape(-1, 2))
    mixture = logsumexp(said[:, 0], axis=0) - np.log(6)
    exact = np.mean(np.sum(np.exp(right) * (right - mixture), axis=-1))
    assert found == pytest.approx(exact, abs=4 * error)
    assert error < 0.02


def test_uncertainty_that_is_not_joint_costs_more_with_more_inputs():
    """Two coins with equal marginals (the example of the paper): only the mixture knows that labels agree."""
    certain = np.log([[0.01, 0.99], [0.99, 0.01]])[:, None, None]
    fair = np.log([[0.5, 0.5]])[:, None, None]
    heads = np.array([[[0, 1]]])
    assert joint_log_likelihood(certain, heads) == pytest.approx(joint_log_likelihood(fair, heads))
    assert joint_log_likelihood(certain, 100 * heads) > joint_log_likelihood(fair, 100 * heads) + 60


def test_posterior_of_a_finite_hypothesis_space_has_the_least_divergence():
    """E KL(P_h || Q) over h of the posterior is least for its mixture, among mixtures with other weights."""
    tau, parts = 3, np.array([4, 2, 1, 1])
    functions = some_log_probs(4, 1, tau)
    labels = [counts_of(each) for each in itertools.product(range(2), repeat=tau)]
    each = np.array([[joint_log_likelihood(f[None], counts)[0] for counts in labels] for f in functions])

    def divergence(weights: np.ndarray) -> float:
        mixed = np.repeat(functions, weights, axis=0)
        said = np.array([joint_log_likelihood(mixed, counts)[0] for counts in labels])
        return float(np.sum(parts[:, None] / parts.sum() * np.exp(each) * (each - said)))

    others = np.random.default_rng(0).multinomial(8, [0.25] * 4, size=40)
    least = divergence(parts)
    assert least > 0
    assert all(divergence(weights) > least for weights in others if not np.array_equal(weights, parts))


@pytest.mark.slow
def test_draws_from_the_true_posterior_score_better_than_draws_from_the_prior():
    """Draws from the generative model, weighted by their likelihood of the data, are the exact posterior."""
    truths = [draw_truth(np.random.default_rng(1000 + i), 2, 0.1) for i in range(400)]
    found = []
    for seed in range(30):
        problem = make_problem(2, 2, 0.1, seed)
        exam = exam_of(problem, (10,), 30, "dyadic", 2, seed)
        fits = np.array([truth(problem.x)[np.arange(4), problem.y].sum() for truth in truths])
        weights = np.exp(fits - logsumexp(fits))
        kept = np.random.default_rng(seed).choice(len(truths), len(truths), p=weights)
        found.append(
            [
                score(lambda x, which=which: np.array([truths[i](x) for i in which]), problem.truth, exam)[10][0]
                for which in (kept, range(len(truths)))
            ]
        )
    posterior, prior = np.mean(found, axis=0)
    assert posterior < 0.9 * prior
    assert prior < 10 * np.log(2)


def test_dyadic_inputs_are_two_anchors_at_random():
    truth = draw_truth(np.random.default_rng(0), 2, 0.5)
    exam = draw_exam(truth, 2, (1, 10), 20_000, "dyadic", np.random.default_rng(1))
    assert exam.points.shape == (20_000, 2, 2)
    assert exam.points.mean() == pytest.approx(0, abs=0.02)
    assert exam.points.std() == pytest.approx(1, abs=0.02)
    for tau, counts in exam.counts.items():
        at_first = counts[:, 0].sum(axis=-1)
        assert np.all(counts.sum(axis=(1, 2)) == tau)
        assert at_first.mean() == pytest.approx(tau / 2, abs=0.05)
        assert at_first.var() == pytest.approx(tau / 4, rel=0.05)
    expected = np.exp(truth(exam.points)) * exam.counts[10].sum(axis=-1, keepdims=True)
    z = (exam.counts[10] - expected)[..., 1].sum() / np.sqrt(np.sum(expected.prod(-1) / expected.sum(-1).clip(1)))
    assert abs(z) < 4


def test_independent_inputs_have_one_label_each():
    truth = draw_truth(np.random.default_rng(0), 2, 0.5)
    exam = draw_exam(truth, 2, (10, 100), 5, "independent", np.random.default_rng(1))
    assert exam.points.shape == (5, 100, 2)
    assert np.all(exam.counts[100].sum(axis=-1) == 1)
    np.testing.assert_array_equal(exam.counts[10].sum(axis=-1)[0], np.arange(100) < 10)


def test_problems_and_exams_are_given_by_their_seed():
    first, same, other = (make_problem(2, 5, 0.1, seed) for seed in (3, 3, 4))
    assert first.known == Known(2, 10, 0.1)
    np.testing.assert_array_equal(first.x, same.x)
    np.testing.assert_array_equal(first.y, same.y)
    assert not np.array_equal(first.x, other.x)
    exams = [exam_of(first, (1, 10), 4, "dyadic", 5, 3) for _ in range(2)]
    np.testing.assert_array_equal(exams[0].points, exams[1].points)
    assert not np.isin(exams[0].points, first.x).any()


def test_uniform_predictions_cost_what_labels_tell():
    problem = make_problem(2, 1, 0.01, 0)
    exam = exam_of(problem, (1, 100), 300, "dyadic", 1, 0)
    found = score(lambda x: np.full((1, len(x), 2), -np.log(2)), problem.truth, exam)
    assert 0.5 < found[1][0] < np.log(2)
    assert found[100][0] == pytest.approx(100 * found[1][0], rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((0, 1, 0.1), "dim=0"), ((2, 0, 0.1), "ratio=0"), ((2, 1, 0.0), "temperature=0.0")],
)
def test_wrong_problems_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        make_problem(*arguments, 0)


def test_head_is_classes_after_division():
    head, out = LogOdds(divisor=0.1), jnp.array([0.2, -0.1])
    assert head.value(out) == pytest.approx(-3)
    assert head.loss(out, jnp.array(1)) == pytest.approx(np.log1p(np.exp(3)), rel=1e-5)
    assert head.mixture_loss(out[None], jnp.array(1)) == pytest.approx(np.log1p(np.exp(3)), rel=1e-5)


@pytest.mark.parametrize("name", DEFAULTS)
def test_regulariser_and_prior_know_the_problem(name):
    known = Known(10, 50, 0.25)
    belief, _ = belief_for(name, known, settings_of(name, {"l2": 2.0, "power": 0.5}), 7)
    strength = belief.kl_weight if name == "bbb" else belief.l2.weight
    assert strength == pytest.approx(2.0 * 0.5 * 10)
    assert belief.head.divisor == 0.5
    assert belief.num_members == {"mlp": 1, "ensemble": 7, "bs": 7, "bsr": 7, "bsp": 7}.get(name)
    assert belief.has_prior == (name in ("bsp", "hypermodel", "epinet"))


def test_functions_are_the_same_at_every_call():
    problem = make_problem(2, 10, 0.1, 0)
    functions = fit_method("ensemble", problem, 0, 3, 5, {"steps": 20})
    x = np.random.default_rng(0).normal(size=(150, 2))
    whole = functions(x)
    assert whole.shape == (3, 150, 2)
    np.testing.assert_allclose(logsumexp(whole, axis=-1), 0, atol=1e-12)
    np.testing.assert_allclose(functions(x[140:]), whole[:, 140:], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULTS)
def test_every_method_beats_uniform_predictions(name):
    rows = testbed.measure(name, 2, 50, 0.1, 1, 5, 50, 100, 10, **settings_of(name, {}))
    assert [(row["sampling"], row["tau"]) for row in rows] == list(testbed.COLUMNS)
    problem = make_problem(2, 50, 0.1, 1)
    exam = exam_of(problem, (1,), 100, "dyadic", 50, 1)
    assert rows[0]["kl"] < score(lambda x: np.full((1, len(x), 2), -np.log(2)), problem.truth, exam)[1][0]


class Coin:
    """A classifier with `sample`, sure of one class in half of its draws."""

    def __init__(self, random_state):
        self.random_state = random_state

    def fit(self, x, y):
        assert set(y) == {0, 1}
        return self

    def sample(self, x, n):
        return np.stack([np.tile([[1.0, 0.0], [0.0, 1.0]][i % 2], (len(x), 1)) for i in range(n)])


def test_classifiers_of_others_are_methods(monkeypatch):
    problem = make_problem(2, 1, 0.1, 0)
    one = fit_method("sklearn.linear_model:LogisticRegression", problem, 0, 3, 6, {})(problem.x)
    assert one.shape == (1, 2, 2)
    monkeypatch.setitem(sys.modules, "coins", SimpleNamespace(Coin=Coin))
    many = fit_method("coins:Coin", problem, 0, 3, 6, {})(problem.x)
    assert many.shape == (6, 2, 2)
    np.testing.assert_allclose(many[0, 0], [0, np.log(FLOOR)])
    with pytest.raises(ValueError, match=r"methods='coins:Nothing' cannot be imported"):
        testbed.ladders("quick", ["coins:Nothing"])


@pytest.mark.slow
def test_our_estimators_are_methods():
    problem = make_problem(2, 10, 0.1, 0)
    said = fit_method("priorax.estimators:PriorEnsembleClassifier", problem, 0, 3, 5, {})(problem.x)
    assert said.shape == (20, 20, 2)


@pytest.mark.parametrize(
    ("names", "said"), [(["epi"], "methods='epi' is unknown; did you mean 'epinet'"), (["exact"], "methods='exact'")]
)
def test_unknown_methods_are_refused(names, said):
    with pytest.raises(ValueError, match=said):
        testbed.ladders("quick", names)


def test_beliefs_without_chosen_settings_are_refused(monkeypatch):
    monkeypatch.setitem(testbed.CHOSEN, "full", {"mlp": {}})
    assert tasks_of("full", ["sklearn.ensemble:RandomForestClassifier"])
    with pytest.raises(
        ValueError, match="needs settings chosen for bsp; run `priorax reproduce testbed --budget full`"
    ):
        testbed.ladders("full", ["bsp"])


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="setting of mlp='prior_scale' is unknown"):
        settings_of("mlp", {"prior_scale": 1.0})


def tasks_of(*arguments):
    return [item for ladder in testbed.ladders(*arguments) for level in ladder for item in level]


def test_settings_are_chosen_with_equal_effort_on_other_seeds():
    assert set(testbed.GRIDS) == set(DEFAULTS)
    assert {len(grid) for grid in testbed.GRIDS.values()} == {6}
    for budget in ("quick", "full"):
        by_name = {
            name: {item.arguments["seed"] for item in tasks_of(budget) if item.name == name}
            for name in ("choice", "shown")
        }
        assert not by_name["choice"] & by_name["shown"]
        assert by_name["choice"]


def test_a_part_shows_its_methods_and_the_plain_network():
    found = tasks_of("quick", ["bsp", "sklearn.ensemble:RandomForestClassifier"])
    assert {item.name for item in found} == {"shown"}
    assert {item.arguments["method"] for item in found} == {"mlp", "bsp", "sklearn.ensemble:RandomForestClassifier"}
    assert len(found) == 3 * 9 * 3


def some_rows():
    rows = []
    for item in tasks_of("quick", ["bsp"]):
        factor = 1.0 if item.arguments["method"] == "mlp" else 0.4
        kl = factor * (1 + item.arguments["ratio"])
        for sampling, tau in testbed.COLUMNS:
            found = {"sampling": sampling, "tau": tau, "kl": kl * tau, "kl_error": 0.1, "seconds": 1.0}
            rows.append({"name": item.name, **item.arguments, **found})
    return rows


def test_normalised_is_the_ratio_of_means():
    rows = some_rows()
    assert testbed.normalised(rows, "mlp", 100) == pytest.approx((1.0, 0.0))
    assert testbed.normalised(rows, "bsp", 100) == pytest.approx((0.4, 0.0))
    assert testbed.normalised(rows, "epinet", 100) is None


def test_figure_and_summary_of_a_part(tmp_path):
    rows = some_rows()
    header, plain, ours = testbed.summary(rows)
    assert plain[:2] == ("mlp", "1.00 ±0.00")
    assert ours[3] == "0.40 ±0.00"
    assert len(header) == len(plain) == len(ours)
    save_figure(testbed.figure(rows), tmp_path, "testbed", ("png",))


def test_the_command_shows_a_part_of_the_committed_rows(capsys, tmp_path):
    for path in RESULTS.glob("testbed_quick.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert main(["testbed", "--methods", "bsp,ensemble", "--draw-only", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "mlp" in said and "bsp" in said
    assert "epinet" not in said
    assert (tmp_path / "testbed_quick_part.png").exists()


def test_help_lists_the_beliefs(capsys):
    with pytest.raises(SystemExit):
        main(["testbed", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in DEFAULTS)


@pytest.mark.parametrize("budget", [budget for budget, chosen in testbed.CHOSEN.items() if chosen])
def test_chosen_settings_are_those_of_the_committed_rows(budget):
    rows = rows_of("testbed", budget, RESULTS)
    assert {method: dict(testbed.best(rows, method)) for method in testbed.METHODS} == testbed.CHOSEN[budget]
