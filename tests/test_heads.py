import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from priorax.beliefs import greedy_backup
from priorax.heads import C51, Classes, Gaussian, Head, Quantiles, Scalar

GAUSSIAN = Gaussian()


def test_scalar_backup_is_equation_6():
    next_out = jnp.array([[1.0], [3.0], [2.0]])
    target = greedy_backup(Scalar(), next_out, jnp.asarray(0.5), jnp.asarray(0.9))
    assert float(target) == pytest.approx(0.5 + 0.9 * 3)
    assert float(Scalar().loss(jnp.array([1.0]), target)) == pytest.approx((3.2 - 1) ** 2)


def test_double_q_lets_another_network_choose():
    next_out, online = jnp.array([[1.0], [3.0]]), jnp.array([5.0, 0.0])
    assert float(greedy_backup(Scalar(), next_out, jnp.asarray(0.0), jnp.asarray(1.0), online)) == 1.0


def test_gaussian_loss_is_the_negative_log_likelihood():
    out = jnp.array([0.3, -0.7])
    std = float(GAUSSIAN.noise(out))
    expected = -stats.norm.logpdf(1.1, 0.3, std) - 0.5 * np.log(2 * np.pi)
    assert float(GAUSSIAN.loss(out, jnp.asarray(1.1))) == pytest.approx(expected, rel=1e-5)
    assert std == pytest.approx(np.exp(-0.7), rel=1e-2)
    assert float(GAUSSIAN.quantile(out, jnp.asarray(0.975))) == pytest.approx(0.3 + 1.96 * std, rel=1e-3)
    assert np.isfinite(GAUSSIAN.loss(jnp.array([0.3, -1e6]), jnp.asarray(0.3)))


def test_classes_loss_is_cross_entropy():
    out = jnp.array([1.0, 2.0, 0.5])
    proba = np.exp(out) / np.exp(out).sum()
    assert float(Classes(3).loss(out, jnp.asarray(1))) == pytest.approx(-np.log(proba[1]), rel=1e-5)
    with pytest.raises(TypeError, match="no Bellman backup"):
        Classes(3).backup(out, jnp.asarray(0.0), jnp.asarray(1.0))


def looped_projection(head, points, mass):
    """C51's projection as its authors write it: floor and ceiling, one point at a time."""
    step = (head.high - head.low) / (head.num_atoms - 1)
    result = np.zeros(head.num_atoms)
    for point, m in zip(points, mass, strict=True):
        b = (np.clip(point, head.low, head.high) - head.low) / step
        low, high = int(np.floor(b)), int(np.ceil(b))
        if low == high:
            result[low] += m
        else:
            result[low] += m * (high - b)
            result[high] += m * (b - low)
    return result


def test_c51_projects_as_its_authors_do():
    head = C51(-1.0, 2.0, 11)
    random = np.random.default_rng(0)
    points, mass = random.uniform(-2, 3, 20), random.dirichlet(np.ones(20))
    found = head.project(jnp.asarray(points), jnp.asarray(mass))
    np.testing.assert_allclose(found, looped_projection(head, points, mass), atol=1e-5)
    next_out = jnp.asarray(random.standard_normal(11))
    expected = looped_projection(head, 0.3 + 0.9 * np.asarray(head.atoms), jax.nn.softmax(next_out))
    np.testing.assert_allclose(head.backup(next_out, jnp.asarray(0.3), jnp.asarray(0.9)), expected, atol=1e-5)


def test_c51_target_keeps_the_mean_and_its_loss_is_least_there():
    head = C51(0.0, 1.0, 5)
    target = head.encode(jnp.asarray(0.6))
    assert float(target @ head.atoms) == pytest.approx(0.6)
    best = head.loss(jnp.log(target + 1e-9), target)
    assert float(best) < float(head.loss(jnp.zeros(5), target))


def test_c51_quantiles_are_outcomes():
    head = C51(0.0, 1.0, 3)
    out = jnp.log(jnp.array([0.5, 1e-9, 0.5]))
    assert [float(head.quantile(out, jnp.asarray(u))) for u in (0.1, 0.49, 0.51, 1.0)] == [0, 0, 1, 1]
    assert float(head.noise(out)) == pytest.approx(0.5, rel=1e-4)


def test_quantile_loss_is_least_at_the_quantiles():
    """Trained on a normal distribution, here at a thousand evenly spaced levels, the outputs become its quantiles."""
    head = Quantiles(9, huber=0.01)
    data = jnp.asarray(stats.norm.ppf((np.arange(1000) + 0.5) / 1000))

    def loss(out):
        return jnp.mean(jax.vmap(lambda y: head.loss(out, head.encode(y)))(data))

    out = jnp.zeros(9)
    step = jax.jit(lambda out, rate: out - rate * jax.grad(loss)(out))
    for i in range(800):
        out = step(out, 0.5 if i < 600 else 0.1)
    np.testing.assert_allclose(out, stats.norm.ppf((np.arange(9) + 0.5) / 9), atol=0.06)


def test_quantile_loss_by_hand():
    """Two quantiles at 1/4 and 3/4, one target sample repeated: Huber 1, gaps 2 and -1."""
    head = Quantiles(2)
    found = float(head.loss(jnp.array([0.0, 3.0]), jnp.array([2.0, 2.0])))
    assert found == pytest.approx(0.25 * (2 - 0.5) + 0.25 * 0.5)


def test_the_prior_enters_where_the_value_is():
    prior = jnp.array([2.0])
    for head, out in ((Scalar(), jnp.array([1.0])), (GAUSSIAN, jnp.array([1.0, -1.0])), (Quantiles(3), jnp.ones(3))):
        moved = head.add_prior(out, prior)
        assert float(head.value(moved)) == pytest.approx(3.0)
        assert float(head.noise(moved)) == pytest.approx(float(head.noise(out)))


def test_heads_say_what_their_numbers_are():
    heads = (Scalar(), GAUSSIAN, Classes(3), C51(), Quantiles())
    assert [head.in_reward_units for head in heads] == [True, True, False, False, True]
    assert [head.takes_classes for head in heads] == [False, False, True, False, False]
    assert [head.knows_noise for head in heads] == [False, True, True, True, True]


def test_a_head_is_in_units_of_return_where_a_prior_moves_the_value_by_as_much():
    """And where its noise is known, some output has noise."""
    for head in (Scalar(), GAUSSIAN, Classes(3), C51(0.0, 1.0, 5), Quantiles(4)):
        out, prior = jnp.linspace(-1.0, 2.0, head.size), jnp.full(head.prior_size, 0.25)
        moved = float(head.value(head.add_prior(out, prior)) - head.value(out))
        assert (moved == pytest.approx(0.25, rel=1e-5)) == head.in_reward_units
        assert (float(head.noise(out)) > 0) == head.knows_noise


def test_a_head_of_ones_own_says_nothing_it_does_not_define():
    class Median(Scalar):
        def loss(self, out, target):
            return jnp.abs(out[0] - target)

    class Bare(Head):
        size = prior_size = 1

    assert Median().in_reward_units
    assert not (Bare().in_reward_units or Bare().takes_classes or Bare().knows_noise)


def test_bad_supports_are_refused():
    with pytest.raises(ValueError, match="needs low < high"):
        C51(1.0, 0.0)


def test_the_loss_of_one_draw_is_its_own():
    for head, y in ((Scalar(), 0.4), (GAUSSIAN, 0.4), (Classes(3), 1), (C51(0.0, 1.0, 5), 0.4), (Quantiles(4), 0.4)):
        out, target = jnp.linspace(-1.0, 2.0, head.size), head.encode(jnp.asarray(y))
        assert float(head.mixture_loss(out[None], target)) == pytest.approx(float(head.loss(out, target)), rel=1e-5)


def test_many_draws_are_scored_as_one_prediction():
    outs = jnp.array([[0.0, -1.0], [2.0, 0.5]])
    assert float(Scalar().mixture_loss(outs[:, :1], jnp.asarray(1.0))) == 0.0
    proba = np.mean(np.exp(outs) / np.exp(outs).sum(axis=1, keepdims=True), axis=0)
    assert float(Classes(2).mixture_loss(outs, jnp.asarray(1))) == pytest.approx(-np.log(proba[1]), rel=1e-5)
    variance = 2.0 + np.mean([float(GAUSSIAN.noise(out)) ** 2 for out in outs])
    expected = -stats.norm.logpdf(4.0, 1.0, variance**0.5) - 0.5 * np.log(2 * np.pi)
    assert float(GAUSSIAN.mixture_loss(outs, jnp.asarray(4.0))) == pytest.approx(expected, rel=1e-5)
    head = C51(0.0, 1.0, 2)
    assert float(head.mixture_loss(outs, head.encode(jnp.asarray(1.0)))) == pytest.approx(-np.log(proba[1]), rel=1e-5)
