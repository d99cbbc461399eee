"""Decisions: off-policy estimates, batches of active learning and proposals against brute force, and resuming."""

import itertools
import json

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import entropy, norm

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.decide import Choice, Integer, Logs, Optimizer, Real, ThompsonSampler, policy_value, query
from priorax.decide.active import bald, by_reduction, by_variance
from priorax.decide.optimizer import log_expected_improvement
from priorax.files import BadFile
from priorax.networks import MLP
from priorax.priors import Function

TINY = {"num_members": 4, "hidden_widths": (8,), "steps": 20, "batch_size": 16, "out_of_bag": False}
SPACE = {
    "rate": Real(1e-4, 1e-1, log=True),
    "shift": Real(-2, 3),
    "depth": Integer(1, 6),
    "units": Integer(4, 512, log=True),
    "loss": Choice(("l1", "l2", None, True)),
}


def small(**changes):
    return PriorEnsembleRegressor(**{**TINY, **changes})


def optimizer(**changes):
    return Optimizer(SPACE, small(noise="none", standardize=False), **{"initial": 4, "seed": 3, **changes})


def loss(x):
    return (np.log10(x["rate"]) + 3) ** 2 + (x["shift"] - 1) ** 2 + x["depth"] + (x["loss"] != "l2")


def points(x):
    return tuple(map(repr, x.values()))


# estimators: what decisions draw from


@pytest.mark.parametrize("kind", [PriorEnsembleRegressor, PriorEnsembleClassifier])
def test_members_are_the_functions_whose_mean_is_predicted(kind):
    x = np.random.default_rng(0).standard_normal((30, 2))
    y = x[:, 0] if kind is PriorEnsembleRegressor else np.where(x[:, 0] > 0, "right", "left")
    extra = {} if kind is PriorEnsembleRegressor else {"base_rates": False}
    model = kind(**TINY, **extra, random_state=0).fit(x, y)
    mean = model.predict(x) if kind is PriorEnsembleRegressor else model.predict_proba(x)
    members = model.members(x)
    assert members.shape == (4, *mean.shape)
    np.testing.assert_allclose(members.mean(axis=0), mean, atol=1e-5)
    for i in range(4):
        np.testing.assert_allclose(model.members(x[:9], i), members[i, :9], atol=1e-5)
    with pytest.raises(ValueError, match="member=4 must be None or a whole number from 0 to 3"):
        model.members(x, 4)


def test_another_value_or_reward_compiles_nothing(compilations):
    """Within a padded size."""
    tuner = optimizer()
    sampler = ThompsonSampler(["a", "b"], small(), first=3, growth=0)
    for i in range(14):
        x = tuner.ask()
        tuner.tell(x, loss(x))
        decision = sampler.decide([i, 1.0])
        sampler.reward(decision, i)
        if i == 6:
            assert compilations
            compilations.clear()
    assert compilations == []


# Thompson sampling


def test_the_doubly_robust_estimate_is_unbiased_with_a_wrong_model_and_its_standard_error_is_right():
    """Over many logged data sets, of which the true value of the policy is known."""
    random = np.random.default_rng(0)
    means = np.array([[0.2, 0.9, 0.4], [0.7, 0.1, 0.3]])  # [context, arm]
    logging, policy = np.array([[0.6, 0.1, 0.3], [0.2, 0.5, 0.3]]), np.array([[0.1, 0.8, 0.1], [0.5, 0.25, 0.25]])
    truth = 0.5 * np.sum(policy * means)
    wrong = np.array([[0.5, 0.5, 0.5], [0.0, 0.4, 1.0]])
    found = []
    for _ in range(2000):
        context = random.integers(2, size=100)
        arm = np.sum(random.random((100, 1)) > np.cumsum(logging, axis=1)[context, :-1], axis=1)
        reward = means[context, arm] + 0.1 * random.standard_normal(100)
        found.append(policy_value(policy[context], wrong[context], arm, reward, logging[context, arm]))
    for name in ("doubly_robust", "ips"):
        values = np.array([getattr(one, name).value for one in found])
        errors = np.array([getattr(one, name).standard_error for one in found])
        assert abs(values.mean() - truth) < 4 * values.std() / np.sqrt(len(values))
        assert np.sqrt(np.mean(errors**2)) == pytest.approx(values.std(), rel=0.1)
    assert abs(np.mean([one.direct.value for one in found]) - truth) > 0.05
    assert all(0 < one.effective_rows <= 100 for one in found)


def test_a_right_model_makes_the_doubly_robust_estimate_more_precise_than_weights_alone():
    random = np.random.default_rng(1)
    means, arm = np.tile([0.0, 5.0], (400, 1)), random.integers(2, size=400)
    reward = means[np.arange(400), arm] + 0.1 * random.standard_normal(400)
    found = policy_value(np.tile([0.5, 0.5], (400, 1)), means, arm, reward, np.full(400, 0.5))
    assert found.doubly_robust.standard_error < found.ips.standard_error / 10


def logged(n=120, seed=0):
    random = np.random.default_rng(seed)
    contexts, arms = random.standard_normal((n, 2)), random.integers(2, size=n)
    rewards = np.where(arms == 0, contexts[:, 0], -contexts[:, 0]) + 0.1 * random.standard_normal(n)
    return Logs(contexts, [("left", "right")[arm] for arm in arms], rewards, np.full(n, 0.5))


@pytest.mark.slow
def test_what_is_logged_is_learned_and_the_policy_is_worth_what_replay_says():
    model = PriorEnsembleRegressor(6, hidden_widths=(20,), steps=300, batch_size=64, learning_rate=1e-2)
    sampler = ThompsonSampler(["left", "right"], model).warm_start(logged())
    contexts = np.array([[1.5, 0.0], [-1.5, 0.0]])
    chosen = sampler.probabilities(contexts)
    assert chosen[0, 0] > 0.8
    assert chosen[1, 1] > 0.8
    found = sampler.replay(logged(300, seed=1), folds=2)
    truth = np.sqrt(2 / np.pi)  # the mean of |context| if it always chooses well
    assert abs(found.doubly_robust.value - truth) < 0.05 + 4 * found.doubly_robust.standard_error
    assert found.doubly_robust.standard_error < found.ips.standard_error
    own = sampler.replay(logged(300, seed=1), folds=1)
    assert own.ips == found.ips
    rows = list(zip(*logged(20), strict=True))
    assert ThompsonSampler(["left", "right"], model).warm_start(rows).logs.arms == logged(20).arms


def test_rewards_may_arrive_late_and_in_any_order():
    sampler = ThompsonSampler(["a", "b", "c"], small(), first=4, every=2)
    decisions = [sampler.decide([i]) for i in range(5)] + [sampler.decide([5], id="request")]
    assert sampler.pending == [0, 1, 2, 3, 4, "request"]
    for i in (3, 0, 4):
        sampler.reward(decisions[i].id, float(i))
    assert sampler.probabilities([[0.0]]).tolist() == [[1 / 3] * 3]
    sampler.reward("request", 1.0)
    assert sampler.pending == [1, 2]
    assert sampler.predict([[0.0]]).shape == (1, 3)
    np.testing.assert_array_equal(sampler.logs.contexts[:, 0], [3, 0, 4, 5])
    assert sampler.logs.arms == [decisions[i].arm for i in (3, 0, 4, 5)]
    with pytest.raises(ValueError, match=r"decision=3 is not awaited.*pass \(context, arm\)"):
        sampler.reward(3, 1.0)
    sampler.reward(([9.0], "b"), 2.0)
    assert np.isnan(sampler.logs.propensities[-1])


def test_the_propensity_is_the_frequency_of_the_choice():
    sampler = ThompsonSampler(["a", "b", "c"], small(num_members=7), every=None, max_pending=10)
    random = np.random.default_rng(0)
    sampler.warm_start([(random.standard_normal(2), "abc"[i % 3], random.standard_normal()) for i in range(12)])
    context = [0.5, -0.5]
    (expected,) = sampler.probabilities([context])
    decisions = [sampler.decide(context) for _ in range(1000)]
    for arm, chance in zip("abc", expected, strict=True):
        assert all(d.propensity == pytest.approx(chance) for d in decisions if d.arm == arm)
        frequency = np.mean([d.arm == arm for d in decisions])
        assert abs(frequency - chance) < 4 * np.sqrt(0.25 / 1000)
    assert len(sampler.pending) == 10
    assert {sampler.choose(context, among=["c", "a"]) for _ in range(50)} <= {"a", "c"}
    assert sampler.decide(context, among=["b"])[1:] == ("b", 1.0)


@pytest.mark.parametrize(
    ("kind", "update"),
    [
        ("regressor", "partial_fit"),
        ("classifier", "fit"),
        pytest.param("regressor", "fit", marks=pytest.mark.slow),
        pytest.param("classifier", "partial_fit", marks=pytest.mark.slow),
    ],
)
def test_a_sampler_continues_from_its_file_to_the_bit(tmp_path, update, kind):
    model = small() if kind == "regressor" else PriorEnsembleClassifier(**TINY)
    sampler = ThompsonSampler({7: [1.0, 0.0], "b": [0.0, 1.0]}, model, update=update, every=4, first=6, window=15)

    def go_on(sampler, rounds):
        found = []
        for i in rounds:
            decision = sampler.decide([np.sin(i)])
            found.append(decision)
            if i % 3:  # every third reward is still awaited
                sampler.reward(decision.id, float(i % 2))
        return found, sampler.pending, sampler.predict([[0.3]]).tolist(), sampler.logs.rewards.tolist()

    go_on(sampler, range(20))
    sampler.save(tmp_path / "sampler")
    again = ThompsonSampler.load(tmp_path / "sampler")
    assert go_on(again, range(20, 40)) == go_on(sampler, range(20, 40))
    assert len(sampler.logs.rewards) == 15


def test_a_damaged_or_wrong_file_is_refused(tmp_path):
    path = tmp_path / "file"
    ThompsonSampler(["a", "b"]).save(path)
    fresh = ThompsonSampler.load(path)
    assert fresh.arms == ["a", "b"]
    with pytest.raises(BadFile, match="holds a ThompsonSampler, not a PriorEnsembleRegressor"):
        PriorEnsembleRegressor.load(path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BadFile):
        ThompsonSampler.load(path)
    with pytest.raises(FileNotFoundError):
        ThompsonSampler.load(tmp_path / "nothing")


@pytest.mark.slow
def test_a_linear_bandit_is_learned():
    """Regret far below that of random choice."""
    random = np.random.default_rng(0)
    weights = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    sampler, regret, by_chance = ThompsonSampler(range(3), seed=0), 0.0, 0.0
    for _ in range(120):
        x = random.standard_normal(2)
        mean = weights @ x
        decision = sampler.decide(x)
        sampler.reward(decision.id, mean[decision.arm] + 0.1 * random.standard_normal())
        regret, by_chance = regret + mean.max() - mean[decision.arm], by_chance + mean.max() - mean.mean()
    assert regret < by_chance / 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ThompsonSampler(["a"]), "arms=.* must be at least two different"),
        (lambda: ThompsonSampler(["a", "a"]), "arms=.* must be at least two different"),
        (lambda: ThompsonSampler({"a": [1], "b": [1, 2]}), "equally many finite numbers"),
        (lambda: ThompsonSampler(["a", "b"], "ridge"), "model='ridge' must be one of"),
        (lambda: ThompsonSampler(["a", "b"], update="refit"), "update='refit' is unknown"),
        (lambda: ThompsonSampler(["a", "b"]).decide([np.nan]), "context=.* finite numbers"),
        (lambda: ThompsonSampler(["a", "b"]).decide(among=[]), "among=.* at least one arm"),
        (lambda: ThompsonSampler(["a", "b"]).decide(among=["c"]), "arm='c' is unknown; the arms are"),
        (lambda: ThompsonSampler(["a", "b"]).decide(id=1.5), "id=1.5 must be a string or whole number"),
        (lambda: ThompsonSampler(["a", "b"]).reward((None, "a"), np.inf), "value=inf must be a finite number"),
        (lambda: ThompsonSampler(["a", "b"]).reward((None, "a", 1), 1.0), "must be an id or \\(context, arm\\)"),
        (lambda: ThompsonSampler(["a", "b"]).predict([[1.0]]), "nothing was learned yet"),
        (lambda: ThompsonSampler(["a", "b"]).warm_start([(1, 2)]), "rows of \\[2\\] parts"),
        (lambda: ThompsonSampler(["a", "b"]).replay([(None, "a", 1.0)] * 20), "no propensities"),
        (lambda: ThompsonSampler(["a", "b"]).replay([(None, "a", 1.0, 0.0)] * 20), "above 0 and at most 1"),
        (lambda: ThompsonSampler(["a", "b"]).replay([(None, "a", 1.0, 0.5)] * 3), "folds=5 needs at least 10 rows"),
        (
            lambda: ThompsonSampler(["a", "b"], PriorEnsembleClassifier()).reward((None, "a"), 0.5),
            "value=0.5 must be 0 or 1, since the model is a classifier",
        ),
    ],
)
def test_a_wrong_argument_of_a_sampler_is_named_with_the_remedy(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_contexts_have_as_many_numbers_as_the_first():
    sampler = ThompsonSampler(["a", "b"])
    sampler.choose([1.0, 2.0])
    with pytest.raises(ValueError, match="has 1 numbers, but the first one had 2"):
        sampler.choose([1.0])


# Bayesian optimisation


def test_proposals_are_in_the_space_and_differ():
    tuner = optimizer()
    for x in tuner.ask(4):
        tuner.tell(x, loss(x))
    asked = [*tuner.ask(6), tuner.ask(), tuner.ask()]
    assert len(set(map(points, asked))) == 8
    for x in asked:
        assert list(x) == list(SPACE)
        assert 1e-4 <= x["rate"] <= 1e-1
        assert -2 <= x["shift"] <= 3
        assert x["depth"] in range(1, 7)
        assert 4 <= x["units"] <= 512
        assert isinstance(x["units"], int)
        assert any(x["loss"] is option for option in ("l1", "l2", None, True))
    assert tuner.pending == asked
    tuner.tell(asked[2], 1.0)
    assert len(tuner.pending) == 7


def test_a_small_space_is_searched_without_repetition():
    tuner = Optimizer({"a": Integer(1, 3), "b": Choice(("x", "y", "z"))}, small(noise="none"), initial=3)
    seen = []
    for _ in range(9):
        x = tuner.ask()
        seen.append(points(x))
        tuner.tell(x, x["a"])
    assert len(set(seen)) >= 8
    assert tuner.best.y == 1
    assert tuner.ask() in [one.x for one in tuner.evaluations]  # all of them were evaluated


@pytest.mark.parametrize("value", [1e-4, 3.3e-3, 1e-1])
def test_values_and_coordinates_correspond(value):
    assert Real(1e-4, 1e-1, log=True).from_unit(Real(1e-4, 1e-1, log=True).to_unit(value)) == pytest.approx(value)
    for parameter in (Integer(1, 9), Integer(1, 900, log=True), Choice(("a", 1, True, None))):
        values = parameter.options if isinstance(parameter, Choice) else range(parameter.low, parameter.high + 1)
        for each in values:
            assert (
                parameter.from_unit(parameter.to_unit(each)) is each
                or parameter.from_unit(parameter.to_unit(each)) == each
            )
        u = np.linspace(0, 1, 1001)
        assert {parameter.from_unit(at) for at in u} <= set(values)
        np.testing.assert_allclose(parameter.snapped(parameter.snapped(u)), parameter.snapped(u), atol=1e-12)


def test_the_optimum_of_a_smooth_function_is_found():
    tuner = Optimizer({"x": Real(-1, 2), "y": Real(0, 4)}, goal="maximize", seed=1)
    for _ in range(25):
        x = tuner.ask()
        tuner.tell(x, -((x["x"] - 0.5) ** 2) - (x["y"] - 1) ** 2)
    assert tuner.best.y > -0.02
    assert tuner.best.x["x"] == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("z", [-30.0, -8.0, -1.001, -0.999, 0.0, 0.5, 6.0])
def test_the_expected_improvement_is_the_integral(z):
    best, std = 2.0, 0.3
    mean = best + z * std
    # E[max(y - best, 0)] = std * the integral of the tail of the normal distribution beyond -z
    tail = integrate.quad(lambda t: np.exp(norm.logsf(t) - norm.logsf(-z)), -z, -z + 40, points=[-z + 1, -z + 5])[0]
    found = log_expected_improvement(np.array([mean]), np.array([std]), best)
    assert found[0] == pytest.approx(np.log(std) + norm.logsf(-z) + np.log(tail), abs=1e-6)


def test_without_doubt_the_higher_of_two_values_is_the_better_one():
    found = log_expected_improvement(np.array([0.0, 0.5, 1.5, 2.0]), np.zeros(4), 1.0)
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) > 0)


def test_members_are_divided_among_the_proposals_that_await_their_values():
    """As many parallel proposals as members have one each, as Thompson sampling has."""

    def proposals(num_members, *calls):
        tuner = Optimizer(SPACE, small(noise="none", num_members=num_members), initial=4, seed=3)
        for x in tuner.ask(4):
            tuner.tell(x, loss(x))
        return [points(x) for n in calls for x in tuner.ask(n)]

    assert proposals(4, 4) == proposals(1, 4)
    assert proposals(4, 1) != proposals(1, 1)
    assert proposals(4, 3, 1)[3] == proposals(1, 3, 1)[3]


def test_an_optimizer_continues_from_its_file_to_the_bit(tmp_path):
    tuner = optimizer()
    for x in tuner.ask(7)[:5]:
        tuner.tell(x, loss(x))
    tuner.tell(dict(zip(SPACE, (0.01, 0.5, 2, 64, True), strict=True)), None)
    tuner.save(tmp_path / "tuner.json")
    again = Optimizer.load(tmp_path / "tuner.json")
    assert again.pending == tuner.pending
    assert again.best == tuner.best
    for _ in range(2):
        expected, found = tuner.ask(2), again.ask(2)
        assert found == expected
        for each in (tuner, again):
            each.tell(expected, [loss(x) for x in expected])
    assert json.loads((tmp_path / "tuner.json").read_text())["seed"] == 3


def test_a_file_of_an_optimizer_is_checked(tmp_path):
    path = tmp_path / "tuner.json"
    tuner = optimizer()
    tuner.tell(tuner.ask(), 1.0)
    tuner.save(path)
    good = json.loads(path.read_text())
    for change in (
        {"format": "other"},
        {"space": [["a", "Exec", [1, 2, False]]]},
        {"told": [[[7.0] * 5, 1.0]]},
        {"told": [[[0.1], 1.0]]},
        {"asked": -1},
        {"model": {"prior": {"kind": "os.system", "fields": {}}}},
        {"goal": "win"},
    ):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(BadFile):
            Optimizer.load(path)
    path.write_text("[1,")
    with pytest.raises(BadFile):
        Optimizer.load(path)


def test_custom_code_of_a_model_is_passed_again(tmp_path):
    prior = Function(lambda x: x[:1])
    tuner = Optimizer({"a": Real(0, 1)}, small(prior=prior), initial=2)
    tuner.save(tmp_path / "tuner.json")
    with pytest.raises(BadFile, match="prior is custom code"):
        Optimizer.load(tmp_path / "tuner.json")
    assert Optimizer.load(tmp_path / "tuner.json", prior=prior).model.prior is prior


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Optimizer({}), "space=.* at least one parameter"),
        (lambda: Optimizer({"a": (0, 1)}), "parameters Real, Integer or Choice"),
        (lambda: Optimizer({"a": Real(0, 1)}, goal="min"), "goal='min' is unknown"),
        (lambda: Optimizer({"a": Real(0, 1)}, "gp"), "model='gp' must be a PriorEnsembleRegressor"),
        (lambda: Optimizer({"a": Real(0, 1)}).best, "best needs a value"),
        (lambda: Optimizer({"a": Real(0, 1)}).ask(0), "n=0 must be"),
        (lambda: Optimizer({"a": Real(0, 1)}).tell({"a": 2}, 1.0), r"x\['a'\]: 2 is no number from 0 to 1"),
        (lambda: Optimizer({"a": Real(0, 1)}).tell({"b": 1}, 1.0), "the space has the parameters"),
        (lambda: Optimizer({"a": Real(0, 1)}).tell({"a": 1}, np.nan), "pass one, or None if the evaluation failed"),
        (lambda: Optimizer({"a": Real(0, 1)}).tell([{"a": 1}], [1.0, 2.0]), "as many values as there are points"),
        (lambda: Real(1, 0), "must have low < high"),
        (lambda: Real(0, 1, log=True), "must have low above 0"),
        (lambda: Integer(0.5, 2), "finite whole numbers as bounds"),
        (lambda: Choice(("a",)), "at least two different"),
        (lambda: Choice((print, "a")), "look up other objects by such a name"),
    ],
)
def test_a_wrong_argument_of_an_optimizer_is_named_with_the_remedy(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# active learning


def joint_information(proba, batch):
    """Mutual information between the member and the labels of a batch, over all joint labels."""
    joint = []
    for labels in itertools.product(range(proba.shape[2]), repeat=len(batch)):
        joint.append(np.mean(np.prod([proba[:, row, label] for row, label in zip(batch, labels, strict=True)], axis=0)))
    return entropy(joint) - sum(entropy(proba[:, row], axis=1).mean() for row in batch)


def probabilities(members=5, rows=12, labels=3):
    return np.random.default_rng(0).dirichlet(np.full(labels, 0.5), size=(members, rows))


def test_a_batch_has_the_highest_joint_information_step_by_step():
    """Against brute force over all joint labels."""
    proba = probabilities()
    picked = bald(proba, 4, np.random.default_rng(0))
    for i in range(4):
        best = max(joint_information(proba, [*picked[:i], row]) for row in range(12) if row not in picked[:i])
        assert joint_information(proba, picked[: i + 1]) == pytest.approx(best, abs=1e-9)


def test_drawn_joint_labels_approximate_all_of_them():
    proba = probabilities(members=4, rows=10, labels=4)
    picked = bald(proba, 4, np.random.default_rng(0), most=60)  # 64 joint labels of three rows are too many
    for i in range(4):
        best = max(joint_information(proba, [*picked[:i], row]) for row in range(10) if row not in picked[:i])
        assert joint_information(proba, picked[: i + 1]) > best - 0.1


def test_the_first_row_for_a_classifier_is_the_one_of_the_highest_mutual_information():
    random = np.random.default_rng(0)
    x = random.standard_normal((40, 2))
    model = PriorEnsembleClassifier(**TINY, base_rates=False, random_state=0).fit(x, x[:, 0] > 0)
    pool = 2 * random.standard_normal((200, 2))
    assert query(model, pool)[0] == np.argmax(model.predict_uncertainty(pool).epistemic)


def gaussian_variance(members, noise, picked):
    """Conditional covariance by the textbook formula."""
    covariance = np.cov(members, rowvar=False)
    if not len(picked):
        return covariance
    inner = covariance[np.ix_(picked, picked)] + np.diag(noise[picked])
    return covariance - covariance[:, picked] @ np.linalg.solve(inner, covariance[picked])


def test_batches_of_a_regression_are_those_of_gaussian_conditioning():
    random = np.random.default_rng(0)
    members, noise = random.standard_normal((6, 15)), random.uniform(0.1, 1, 15)
    picked = by_variance(members, noise, 5)
    for i in range(5):
        variance = np.diag(gaussian_variance(members, noise, picked[:i])).copy()
        variance[picked[:i]] = -1
        assert picked[i] == np.argmax(variance)
    picked = by_reduction(members, noise, 5, members)
    for i in range(5):
        rest = [row for row in range(15) if row not in picked[:i]]
        after = [np.trace(gaussian_variance(members, noise, [*picked[:i], row])) for row in rest]
        assert picked[i] == rest[int(np.argmin(after))]


def test_a_batch_does_not_repeat_a_row_that_the_pool_has_twice():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (30, 1))
    model = small(num_members=10, random_state=0).fit(x, np.sin(3 * x[:, 0]))
    pool = np.concatenate([np.full((20, 1), 4.0), np.full((20, 1), -4.0)])
    for method in ("variance", "reduction"):
        assert sorted(query(model, pool, 2, method=method) // 20) == [0, 1]
    near = query(model, np.array([[4.0], [-4.0]]), target=np.full((5, 1), -4.0))
    assert near[0] == 1


def test_wrong_arguments_of_a_query_are_named_with_the_remedy():
    x = np.random.default_rng(0).standard_normal((20, 2))
    model = small(random_state=0).fit(x, x[:, 0])
    for arguments, words in (
        (("ridge", x), "model='ridge' must be"),
        ((model, x, 21), "n=21 must be at most the 20 rows of pool"),
        ((model, x, 0), "n=0 must be"),
    ):
        with pytest.raises(ValueError, match=words):
            query(*arguments)
    with pytest.raises(ValueError, match="method='bald' is not for a PriorEnsembleRegressor; pass 'reduction'"):
        query(model, x, method="bald")
    with pytest.raises(ValueError, match="target is not used by method='variance'"):
        query(model, x, method="variance", target=x)


@pytest.mark.slow
def test_a_query_of_a_model_with_several_outputs_is_refused():
    x = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(ValueError, match="model has 2 outputs"):
        query(small(random_state=0, network=MLP((3,))).fit(x, x), x)
