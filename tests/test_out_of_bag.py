import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mapie.regression import JackknifeAfterBootstrapRegressor
from mapie.subsample import Subsample
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_digits
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.estimators.base import PRIOR_SCALES, largest_plausible
from priorax.estimators.far_field import ANCHORS, Anchors, nearness
from priorax.estimators.out_of_bag import conformal_quantile, jackknife_after_bootstrap, noise_scale, out_of_bag
from priorax.heads import Gaussian

RANDOM = np.random.default_rng(0)
SMALL = {"num_members": 10, "hidden_widths": (20,), "steps": 1000, "learning_rate": 1e-2, "random_state": 0}
NOISE = 0.3


def draw(n):
    x = RANDOM.uniform(-2, 2, (n, 2))
    return x, np.sin(2 * x[:, 0]) + NOISE * RANDOM.standard_normal(n)


X, Y = draw(300)
NEW_X, NEW_Y = draw(1000)


@pytest.fixture(scope="module")
def regressor():
    return PriorEnsembleRegressor(**SMALL).fit(X, Y)


def test_steps_stop_where_unseen_rows_no_longer_improve():
    """There is nothing to learn: more steps fit the noise, which the training loss does not tell."""
    noise = RANDOM.standard_normal(100)
    x = RANDOM.standard_normal((100, 10))
    slow = {**SMALL, "learning_rate": 3e-3, "prior_scale": 0.1}
    selected = PriorEnsembleRegressor(**slow, patience=3).fit(x, noise)
    every = PriorEnsembleRegressor(**slow, out_of_bag=False).fit(x, noise)
    assert selected.best_step_ + 300 == selected.n_iter_ < 1000
    assert every.best_step_ == every.n_iter_ == 1000
    new = RANDOM.standard_normal((500, 10))
    assert np.mean(selected.predict(new) ** 2) < 0.7 * np.mean(every.predict(new) ** 2)


@pytest.mark.parametrize("noise", ["none", pytest.param("exponential", marks=pytest.mark.slow)])
def test_noise_that_leaves_out_no_rows_takes_all_steps(noise):
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 200}, noise=noise, patience=1).fit(X, Y)
    assert model.best_step_ == model.n_iter_ == 200
    with pytest.warns(UserWarning, match=rf"noise='{noise}' leaves no rows out .* noise='bootstrap' or validation_fr"):
        assert np.all(np.isfinite(model.predict_interval(X)))


def test_noise_is_estimated_without_being_asked_for(regressor):
    said = regressor.predict_uncertainty(NEW_X)
    assert np.ptp(said.aleatoric) == 0
    assert said.aleatoric[0] == pytest.approx(NOISE, rel=0.2)
    np.testing.assert_allclose(said.total**2, said.epistemic**2 + said.aleatoric**2)


@pytest.mark.parametrize("method", ["scaled", "jackknife"])
@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_cover_as_often_as_they_say(regressor, method, coverage):
    low, high = regressor.predict_interval(NEW_X, coverage, method)
    assert np.mean((low <= NEW_Y) & (high >= NEW_Y)) == pytest.approx(coverage, abs=0.05)


def test_intervals_of_a_fit_to_all_rows_are_too_narrow():
    """The check above can fail: residuals of the fit are smaller than those of new rows."""
    x, y = RANDOM.standard_normal((60, 10)), RANDOM.standard_normal(60)
    model = PriorEnsembleRegressor(**SMALL, noise="none", prior=None).fit(x, y)
    new_x, new_y = RANDOM.standard_normal((500, 10)), RANDOM.standard_normal(500)
    with pytest.warns(UserWarning, match="too narrow"):
        low, high = model.predict_interval(new_x)
    assert np.mean((low <= new_y) & (new_y <= high)) < 0.8


def test_held_out_rows_calibrate_too():
    model = PriorEnsembleRegressor(**SMALL, validation_fraction=0.3).fit(X, Y)
    assert model.out_of_bag_rows_.shape[1] == 90
    low, high = model.predict_interval(NEW_X)
    assert np.mean((low <= NEW_Y) & (high >= NEW_Y)) == pytest.approx(0.9, abs=0.07)


def test_several_outputs_and_weights_have_intervals_of_their_own():
    y = np.stack([Y, 10 * RANDOM.standard_normal(len(Y))], axis=1)
    weight = np.where(np.arange(len(Y)) < 250, 1.0, 0.0)
    y[250:] = 1e3
    model = PriorEnsembleRegressor(**SMALL).fit(X, y, sample_weight=weight)
    for method in ("scaled", "jackknife"):
        low, high = model.predict_interval(NEW_X, method=method)
        assert low.shape == (1000, 2)
        assert 3 * NOISE < np.mean(high - low, axis=0)[0] < 5 * NOISE
        assert 30 < np.mean(high - low, axis=0)[1] < 45


def test_a_stream_keeps_its_intervals():
    model = PriorEnsembleRegressor(**{**SMALL, "partial_steps": 300})
    for part in np.split(np.arange(300), 3):
        model.partial_fit(X[part], Y[part])
    assert model.out_of_bag_rows_.shape[1] == 300
    low, high = model.predict_interval(NEW_X)
    assert 0.8 < np.mean((low <= NEW_Y) & (high >= NEW_Y)) < 0.99


def test_what_is_saved_has_the_same_intervals(regressor, tmp_path):
    regressor.save(tmp_path / "model")
    again = PriorEnsembleRegressor.load(tmp_path / "model")
    for method in ("scaled", "jackknife"):
        np.testing.assert_array_equal(
            regressor.predict_interval(X, method=method), again.predict_interval(X, method=method)
        )


@pytest.mark.parametrize(
    ("settings", "words"), [({"coverage": 1.0}, "coverage=1.0"), ({"method": "cv"}, "method='cv'")]
)
def test_intervals_that_make_no_sense(regressor, settings, words):
    with pytest.raises(ValueError, match=words):
        regressor.predict_interval(X, **settings)


@pytest.mark.parametrize("method", ["scaled", "jackknife"])
def test_a_coverage_for_which_there_are_too_few_rows_is_warned_of(regressor, method):
    with pytest.warns(
        UserWarning, match=r"coverage=0\.999 needs 999 rows .* there are 2.*: .* at most coverage=0\.996"
    ):
        low, high = regressor.predict_interval(X, coverage=0.999, method=method)
    assert np.all(np.isinf(low)) and np.all(np.isinf(high))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high = regressor.predict_interval(X, coverage=0.996, method=method)
    assert np.all(np.isfinite(low)) and np.all(np.isfinite(high))


def test_the_conformal_quantile_counts_the_new_value():
    assert conformal_quantile(np.arange(1.0, 10.0), 0.9) == 9
    assert conformal_quantile(np.arange(1.0, 10.0), 0.5) == 5
    assert conformal_quantile(np.arange(1.0, 9.0), 0.9) == np.inf
    doubled = conformal_quantile(np.array([1.0, 2.0, 3.0]), 0.5, np.array([1.0, 1.0, 0.0]))
    assert doubled == 2


def test_the_noise_scale_is_the_most_likely_one():
    n, members = 4000, 10
    truth, doubt = RANDOM.standard_normal(n), 0.5
    values = truth + doubt * RANDOM.standard_normal((members, n))
    target = truth + doubt * RANDOM.standard_normal(n) + 0.7 * RANDOM.standard_normal(n)
    rows = out_of_bag(values, np.ones((members, n)), np.ones((n, members), dtype=bool), target, np.ones(n))
    assert noise_scale(rows) == pytest.approx(0.7, rel=0.12)


def test_only_members_that_did_not_see_a_row_speak_of_it():
    values = np.array([[1.0, 5.0], [3.0, 7.0], [100.0, 9.0]])
    unseen = np.array([[True, True, False], [False, False, True]])
    rows = out_of_bag(values, np.ones((3, 2)), unseen, np.zeros(2), np.ones(2))
    np.testing.assert_allclose(rows.residual, [-2, -9])
    np.testing.assert_allclose(rows.disagreement[0], 2)
    np.testing.assert_array_equal(rows.weight, [1, 0])


def bagged_lines(seed, in_bag_residuals=False):
    """Coverage of jackknife+-after-bootstrap around bagged least squares, with heavy tails and few rows."""
    random = np.random.default_rng(seed)
    n, columns, members = 40, 10, 20
    x, new = random.standard_normal((n, columns)), random.standard_normal((200, columns))
    y, new_y = x[:, 0] + random.standard_t(2, n), new[:, 0] + random.standard_t(2, 200)
    drawn = random.integers(n, size=(members, n))
    lines = [np.linalg.lstsq(x[rows], y[rows], rcond=None)[0] for rows in drawn]
    unseen = np.array([[i not in rows for rows in drawn] for i in range(n)])
    used = unseen.any(axis=1)  # all but about one row in ten thousand
    x, y, unseen = x[used], y[used], unseen[used]
    values = np.array([x @ line for line in lines])
    mean = (values.T * unseen).sum(axis=1) / unseen.sum(axis=1)
    residual = np.abs(y - (values.mean(axis=0) if in_bag_residuals else mean))
    low, high = jackknife_after_bootstrap(np.array([new @ line for line in lines]), unseen, residual, 0.9)
    return np.mean((low <= new_y) & (new_y <= high))


def test_the_jackknife_after_bootstrap_keeps_its_guarantee():
    found = np.mean([bagged_lines(seed) for seed in range(100)])
    assert found >= 0.8, "the guarantee, for any distribution"
    assert found == pytest.approx(0.9, abs=0.03)
    assert np.mean([bagged_lines(seed, in_bag_residuals=True) for seed in range(100)]) < found - 0.02


class Resamplings(Subsample):
    """Given resamplings, for MAPIE."""

    def __init__(self, bags):
        super().__init__(n_resamplings=len(bags))
        self.bags = bags

    def split(self, X, *_):
        for rows in self.bags:
            yield rows, np.setdiff1d(np.arange(len(X)), rows)


class Member(RegressorMixin, BaseEstimator):
    """Predicts as the member of a fitted ensemble whose resampling it is fitted to does; the ensemble is looked up."""

    fitted = None

    def fit(self, X, y):
        seen = np.isin(Member.fitted.x, X[:, 0])
        found = np.flatnonzero((seen == Member.fitted.seen.T).all(axis=1))
        self.member_ = None if seen.all() else int(found[0])  # MAPIE also fits to all rows, for its point predictions
        return self

    def predict(self, X):
        model = Member.fitted.model
        return model.predict(X) if self.member_ is None else model.members(X, self.member_)


def of_mapie(learner, bags, x, y, new_x, coverage):
    """Intervals of MAPIE's jackknife+-after-bootstrap."""
    model = JackknifeAfterBootstrapRegressor(learner, confidence_level=coverage, resampling=Resamplings(bags))
    return model.fit_conformalize(x, y).predict_interval(new_x)[1][..., 0].T


@pytest.mark.filterwarnings("ignore:WARNING. at least one point of training set belongs to every resampling")
@pytest.mark.filterwarnings("ignore:(Mean of empty slice|invalid value encountered in (scalar )?divide)")
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_intervals_of_an_ensemble_are_those_of_mapie(regressor, coverage):
    """Of the same members, with the same resamplings; differences are rounding errors of float32."""
    unseen = regressor._unseen()
    assert np.any(unseen.sum(axis=1) == 1), "rows that only one member left out count too"
    Member.fitted = SimpleNamespace(model=regressor, x=X[:, 0], seen=~unseen)
    bags = [np.flatnonzero(seen) for seen in ~unseen.T]
    theirs = of_mapie(Member(), bags, X, Y, NEW_X, coverage)
    ours = regressor.predict_interval(NEW_X, coverage, "jackknife")
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("coverage", "rank"), [(0.5, 50), (0.9, 90), (0.93, 93), pytest.param(0.55, 55, id="0.55, not 56 as in MAPIE")]
)
def test_the_quantile_of_the_jackknife_after_bootstrap_is_that_of_mapie(coverage, rank):
    """The ceil((n + 1) coverage)-th value. In float64, 100 * 0.55 is above 55: MAPIE then takes the next value."""
    x, y = X[:99], Y[:99]
    bags = [RANDOM.integers(99, size=99) for _ in range(30)]
    lines = [LinearRegression().fit(x[rows], y[rows]) for rows in bags]
    unseen = np.array([~np.isin(np.arange(99), rows) for rows in bags]).T
    mean = (np.array([line.predict(x) for line in lines]).T * unseen).sum(axis=1) / unseen.sum(axis=1)
    values = np.array([line.predict(NEW_X) for line in lines])
    residual = np.abs(y - mean)
    ours = jackknife_after_bootstrap(values, unseen, residual, coverage)
    theirs = of_mapie(LinearRegression(), bags, x, y, NEW_X, coverage)
    centre = unseen / unseen.sum(axis=1, keepdims=True) @ values
    low, high = np.sort(centre - residual[:, None], axis=0), np.sort(centre + residual[:, None], axis=0)
    np.testing.assert_allclose(ours, [low[99 - rank], high[rank - 1]], rtol=0, atol=1e-12)
    taken = rank + (coverage == 0.55)
    np.testing.assert_allclose(theirs, [low[99 - taken], high[taken - 1]], rtol=0, atol=1e-12)


def test_beta_one_moves_the_mean_as_the_squared_error_does():
    out, target = jnp.array([0.4, -1.3]), jnp.array(1.0)
    by_mean = jax.grad(lambda out: Gaussian(beta=1.0).loss(out, target))(out)[0]
    assert by_mean == pytest.approx(0.4 - 1.0, rel=1e-4)
    assert abs(jax.grad(lambda out: Gaussian().loss(out, target))(out)[0]) > 5 * abs(by_mean)


def test_the_largest_prior_scale_that_rows_do_not_speak_against():
    losses = RANDOM.standard_normal(400)
    jitter = 0.1 * RANDOM.standard_normal(400)
    jitter -= jitter.mean()
    assert largest_plausible({0.3: losses + 0.1, 1.0: losses, 3.0: losses + jitter, 10.0: losses + jitter + 0.1}) == 3.0
    assert largest_plausible({1.0: losses}) == 1.0


@pytest.mark.parametrize(
    "kind", [PriorEnsembleRegressor, pytest.param(PriorEnsembleClassifier, marks=pytest.mark.slow)]
)
def test_the_prior_scale_can_be_chosen_by_unseen_rows(kind, tmp_path):
    y = Y if kind is PriorEnsembleRegressor else Y > 0
    model = kind(**{**SMALL, "steps": 200}, prior_scale="auto").fit(X, y)
    assert model.prior_scale_ in PRIOR_SCALES
    assert f"prior_scale='auto' (chose {model.prior_scale_:g})" in repr(model)
    assert "chose" not in repr(kind(prior_scale="auto"))
    assert model.belief_.prior_scale == model.prior_scale_
    same = kind(**{**SMALL, "steps": 200}, prior_scale=model.prior_scale_).fit(X, y)
    np.testing.assert_array_equal(model.predict_uncertainty(X).total, same.predict_uncertainty(X).total)
    model.save(tmp_path / "model")
    again = kind.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict_uncertainty(X).total, again.predict_uncertainty(X).total)
    with pytest.raises(ValueError, match="prior_scale='big'"):
        kind(prior_scale="big").fit(X, y)


@pytest.fixture(scope="module")
def classifier():
    return PriorEnsembleClassifier(**SMALL).fit(X, np.where(X[:, 0] > 1, "rare", "common"))


def test_far_from_data_probabilities_tend_to_the_base_rates(classifier):
    rates = np.array([np.mean(X[:, 0] <= 1), np.mean(X[:, 0] > 1)])
    far = classifier.predict_uncertainty([[50.0, 0.0], [-1e6, 1e6], [0.0, 30.0]])
    np.testing.assert_allclose(far.mean, [rates] * 3, atol=0.01)
    assert np.all(far.epistemic > 0.99 * far.total), "more data would tell"
    near = classifier.predict_uncertainty([[-1.5, 0.0], [1.8, 0.0]])
    assert np.all(near.total < 0.3 * far.total[0])
    np.testing.assert_array_equal(classifier.predict([[-1.5, 0.0], [1.8, 0.0]]), ["common", "rare"])


def test_without_base_rates_members_are_sure_far_away():
    model = PriorEnsembleClassifier(**SMALL, base_rates=False).fit(X, X[:, 0] > 1)
    assert model.predict_proba([[50.0, 0.0]])[0, 1] > 0.9


def test_a_row_of_the_data_is_not_far(classifier):
    plain = PriorEnsembleClassifier(**SMALL, base_rates=False).fit(X, np.where(X[:, 0] > 1, "rare", "common"))
    same = np.abs(classifier.predict_proba(NEW_X) - plain.predict_proba(NEW_X)).max(axis=1) < 1e-3
    assert np.mean(same) > 0.95


def test_anchors_are_a_fair_sample_of_a_stream():
    kept = Anchors(np.zeros((0, 1), np.float32), np.zeros(0))
    for part in range(8):
        kept = kept.add(np.full((1000, 1), part, np.float32), (0, part))
    assert len(kept.rows) == len(kept.rank) == ANCHORS
    counts = np.bincount(kept.rows[:, 0].astype(int), minlength=8)
    assert np.all(np.abs(counts - ANCHORS / 8) < 4 * np.sqrt(ANCHORS / 8))


def test_nearness_falls_beyond_the_usual_distance():
    np.testing.assert_allclose(nearness(np.array([0.0, 2.0, 4.0, 8.0]), 2.0), [1, 1, np.exp(-1), np.exp(-9)])
    assert Anchors(np.zeros((5, 2), np.float32), np.arange(5.0)).radius() == 1.0


@pytest.mark.slow
def test_base_rates_cost_no_accuracy_on_digits():
    x, test_x, y, test_y = train_test_split(*load_digits(return_X_y=True), random_state=0)
    with_rates = PriorEnsembleClassifier(steps=1000, random_state=0).fit(x, y).score(test_x, test_y)
    without = PriorEnsembleClassifier(steps=1000, base_rates=False, random_state=0).fit(x, y).score(test_x, test_y)
    assert with_rates > max(0.96, without - 0.005)
