"""The lemmas hold, and the checks can fail: each is tried on something wrong."""

import jax
import numpy as np
import pytest

from priorax.beliefs import L2
from priorax.sanity import LEMMAS, Check, run_checks
from priorax.sanity.bandit import beta_sampler, dropout_sampler, mean_regret
from priorax.sanity.dropout import EXAMPLES, PENALTY, TOLERANCE, duplicate_ratio
from priorax.sanity.posterior import (
    Problem,
    agreement,
    exact_posterior,
    index_weights,
    member_weights,
    random_problem,
)


@pytest.mark.parametrize("name", LEMMAS)
@pytest.mark.slow
def test_the_lemma_holds(name):
    checks = list(LEMMAS[name]())
    assert checks
    for check in checks:
        assert check.passed, check


def test_all_lemmas_are_run_in_order(monkeypatch):
    first, second = (Check(name, "", 0.0, "", True) for name in ("b", "a"))
    monkeypatch.setattr("priorax.sanity.LEMMAS", {"b": lambda: iter([first]), "a": lambda: iter([second])})
    seen = []
    assert run_checks(lambda share, what: seen.append(share)) == [first, second]
    assert seen == [0.0, 0.5, 1.0]


def test_agreement_accepts_the_right_distribution_and_no_other():
    random = np.random.default_rng(0)
    mean, cov = np.array([1.0, -1.0]), np.array([[1.0, 0.5], [0.5, 2.0]])
    samples = random.multivariate_normal(mean, cov, 3000)
    assert min(agreement(samples, mean, cov)) > 0.01
    assert agreement(samples + np.array([0.1, 0.0]), mean, cov)[0] < 1e-4
    assert agreement(samples * [1.1, 1.0], mean, cov)[1] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("form", [1, 2])
def test_a_wrong_noise_or_prior_fails_lemma_3(form):
    """Members fitted with twice the noise, or half the prior variance, are not samples of this posterior."""
    problem = random_problem(0, 3, 20, 1.0, 0.5)
    mean, cov = exact_posterior(problem)
    for wrong in (Problem(problem.x, problem.y, 2.0, 0.5), Problem(problem.x, problem.y, 1.0, 0.1)):
        theta = member_weights(wrong, form, jax.random.key(0))
        assert min(agreement(theta, mean, cov)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hypermodel", "epinet"])
def test_a_wrong_noise_or_prior_fails_the_check_of_beliefs_with_an_index(name):
    problem = random_problem(0, 3, 20, 1.0, 0.5)
    mean, cov = exact_posterior(problem)
    for wrong in (Problem(problem.x, problem.y, 2.0, 0.5), Problem(problem.x, problem.y, 1.0, 0.1)):
        theta = index_weights(name, wrong, jax.random.key(0))
        assert min(agreement(theta, mean, cov)) < 1e-6


@pytest.mark.slow
def test_a_regulariser_over_n_fails_lemma_1():
    """Divided by the number of examples it would not be equation (1), and copies of the data would matter."""
    over_n = L2(PENALTY * EXAMPLES, to="zero", reading="posterior")
    assert abs(duplicate_ratio("dropout", p_keep=0.5, l2=over_n) - 1) > TOLERANCE


@pytest.mark.slow
def test_the_bandit_pays_what_it_says():
    """A first choice without data ties at random, so it costs half the gap; later exact sampling learns."""
    curve = mean_regret(dropout_sampler(3, 0.999, 0.1), 0.5, 1, 4000)
    assert float(curve[0]) == pytest.approx(0.25, abs=0.03)
    assert float(mean_regret(beta_sampler(), 0.4, 500, 50)[-1]) < 0.1 * 0.4 * 500
