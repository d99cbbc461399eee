"""`python -m benchmarks.decide`: measure the decisions of `priorax.decide`, with rows in results/decide.csv.

Parts: `optimize` (simple regret after 50 and 200 evaluations against optuna's TPE and random search), `label` (accuracy
on digits by number of labels against random choice), `bandit` (regret on a linear bandit against exact Thompson
sampling and MABWiser) and `time` (milliseconds of a choice and of a proposal). Defaults were chosen on seeds 0 to 4,
and after a look at seeds 5 to 14, whose rows are in results/decide_thompson.csv: there proposals were those of single
members. Rows are of seeds 100 and up. A measurement that has a row is not repeated, so that an interrupted run can be
continued.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score, train_test_split

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.caching import enable_compilation_cache
from priorax.decide import Choice, Integer, Optimizer, Real, ThompsonSampler, query
from priorax.decide.optimizer import default_model
from priorax.doctor import is_installed
from priorax.networks import MLP
from priorax.priors import Linear
from priorax.report.rows import read_rows, write_rows

PATH = Path(__file__).parent.parent / "results" / "decide.csv"
FIRST_SHOWN = 100
"""First seed that is shown; defaults were chosen on others."""
EVALUATIONS = {"branin": 200, "hartmann6": 200, "ackley5": 200, "boosting": 50}
"""Number of evaluations of each task; those of boosting take long."""
SHOWN = (50, 200)
ROUNDS = 400
NOISE = 0.5
"""Standard deviation of the bandit's rewards."""
ARMS, FEATURES = 5, 4
LABELS = 20
"""Labels at the start, and those added at once."""
MOST_LABELS = 200

HARTMANN = (
    np.array([1.0, 1.2, 3.0, 3.2]),
    np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    ),
    1e-4
    * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    ),
)


def branin(x: dict[str, Any]) -> float:
    a, b = x.values()
    return float(
        (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10
    )


def hartmann(x: dict[str, Any]) -> float:
    weight, inverse, centre = HARTMANN
    return float(-np.sum(weight * np.exp(-np.sum(inverse * (np.array(list(x.values())) - centre) ** 2, axis=1))))


def ackley(x: dict[str, Any]) -> float:
    at = np.array(list(x.values()))
    return float(-20 * np.exp(-0.2 * np.sqrt(np.mean(at**2))) - np.exp(np.mean(np.cos(2 * np.pi * at))) + 20 + np.e)


def boosting(x: dict[str, Any]) -> float:
    """Cross-validated log loss of gradient boosting on the breast cancer data; its lowest value is not known."""
    data, labels = load_breast_cancer(return_X_y=True)
    weights = {"none": None, "balanced": "balanced"}
    settings = {**x, "class_weight": weights[x["class_weight"]]}
    model = HistGradientBoostingClassifier(max_iter=25, early_stopping=False, random_state=0, **settings)
    return float(-np.mean(cross_val_score(model, data, labels, cv=3, scoring="neg_log_loss")))


TASKS: dict[str, tuple[Callable[[dict[str, Any]], float], dict[str, Any], float]] = {
    "branin": (branin, {"x0": Real(-5, 10), "x1": Real(0, 15)}, 0.39788735772973816),
    "hartmann6": (hartmann, {f"x{i}": Real(0, 1) for i in range(6)}, -3.322368011415515),
    # not symmetric, since its optimum would be at the centre, which some methods evaluate first
    "ackley5": (ackley, {f"x{i}": Real(-32.768, 29.4912) for i in range(5)}, 0.0),
    "boosting": (
        boosting,
        {
            "learning_rate": Real(0.01, 1.0, log=True),
            "max_leaf_nodes": Integer(2, 63, log=True),
            "min_samples_leaf": Integer(1, 100, log=True),
            "l2_regularization": Real(1e-3, 1e2, log=True),
            "max_features": Real(0.1, 1.0),
            "class_weight": Choice(("none", "balanced")),
        },
        0.0,
    ),
}
"""Function, space and lowest value of each task."""


Run = Callable[[str, int], list[float]]
"""Values of a task in the order of their evaluation, with a seed."""


def ours(task: str, seed: int, model: PriorEnsembleRegressor | None = None) -> list[float]:
    function, space, _ = TASKS[task]
    optimizer = Optimizer(space, model, seed=seed)
    found = []
    for _ in range(EVALUATIONS[task]):
        x = optimizer.ask()
        found.append(function(x))
        optimizer.tell(x, found[-1])
    return found


def thompson(task: str, seed: int) -> list[float]:
    """Optimise by proposals of single members."""
    return ours(task, seed, default_model().set_params(num_members=1))


def with_optuna(sampler: str) -> Run:
    """Optimise by one of optuna's samplers, with its default settings."""

    def run(task: str, seed: int) -> list[float]:
        _needs("optuna")
        import optuna

        function, space, _ = TASKS[task]
        optuna.logging.set_verbosity(optuna.logging.ERROR)

        def suggested(trial: Any) -> float:
            x = {}
            for name, part in space.items():
                if isinstance(part, Choice):
                    x[name] = trial.suggest_categorical(name, part.options)
                else:
                    suggest = trial.suggest_int if isinstance(part, Integer) else trial.suggest_float
                    x[name] = suggest(name, part.low, part.high, log=part.log)
            return function(x)

        chosen = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}[sampler](seed=seed)
        study = optuna.create_study(sampler=chosen)
        study.optimize(suggested, n_trials=EVALUATIONS[task])
        return [trial.value for trial in study.trials]

    return run


def _needs(package: str) -> None:
    if not is_installed(package):
        raise SystemExit(f"{package} is not installed, which the comparison needs: pip install 'priorax[peers]'")


OPTIMIZERS: dict[str, Run] = {
    "priorax": ours,
    "thompson": thompson,
    "tpe": with_optuna("tpe"),
    "random": with_optuna("random"),
}


def optimize(task: str, method: str, seed: int) -> Iterator[dict[str, Any]]:
    lowest = TASKS[task][2]
    began = time.perf_counter()
    best = np.minimum.accumulate(OPTIMIZERS[method](task, seed)) - lowest
    seconds = time.perf_counter() - began
    for evaluations in SHOWN:
        if evaluations <= len(best):
            yield {"evaluations": evaluations, "regret": float(best[evaluations - 1]), "seconds": round(seconds, 2)}


def label(task: str, method: str, seed: int) -> Iterator[dict[str, Any]]:
    """Accuracy on held-out digits by number of labels."""
    x, y = load_digits(return_X_y=True)
    pool, test, answers, truth = train_test_split(x, y, test_size=597, random_state=seed, stratify=y)
    random = np.random.default_rng(seed)
    known = random.permutation(len(pool))[:LABELS]
    while True:
        model = PriorEnsembleClassifier(10, steps=300, out_of_bag=False, batch_size=64, random_state=seed)
        model.fit(pool[known], answers[known])
        yield {"labels": len(known), "accuracy": float(np.mean(model.predict(test) == truth))}
        if len(known) >= MOST_LABELS:
            return
        rest = np.setdiff1d(np.arange(len(pool)), known)
        picked = query(model, pool[rest], LABELS, seed=seed) if method == "bald" else random.permutation(len(rest))
        known = np.concatenate([known, rest[picked[:LABELS]]])


def linear_model() -> PriorEnsembleRegressor:
    """An ensemble of linear functions, which know that the bandit is linear, as exact Thompson sampling does."""
    return PriorEnsembleRegressor(
        10,
        network=MLP(()),
        prior=Linear(bias_std=1.0),
        noise="none",
        steps=200,
        batch_size=64,
        learning_rate=3e-2,
        out_of_bag=False,
    )


def exact_arm(precision: np.ndarray, moment: np.ndarray, x: np.ndarray, random: np.random.Generator) -> int:
    weights = [
        random.multivariate_normal(np.linalg.solve(p, m), np.linalg.inv(p))
        for p, m in zip(precision, moment, strict=True)
    ]
    return int(np.argmax(np.array(weights) @ x))


def with_mabwiser(method: str, seed: int) -> Any:
    """Make a linear policy of MABWiser with its default settings, which has seen each arm once without a reward."""
    _needs("mabwiser")
    from mabwiser.mab import MAB, LearningPolicy

    policies = {"mabwiser LinTS": LearningPolicy.LinTS(), "mabwiser LinUCB": LearningPolicy.LinUCB()}
    found = MAB(list(range(ARMS)), policies[method], seed=seed)
    found.fit(list(range(ARMS)), [0.0] * ARMS, np.zeros((ARMS, FEATURES)))
    return found


def bandit(task: str, method: str, seed: int) -> Iterator[dict[str, Any]]:
    """Regret on a linear bandit whose weights are drawn from the prior that exact Thompson sampling knows."""
    world = np.random.default_rng([seed, 99])
    weights = world.standard_normal((ARMS, FEATURES)) / FEATURES**0.5
    random = np.random.default_rng([seed, 1])
    precision, moment = np.stack([np.eye(FEATURES) * FEATURES] * ARMS), np.zeros((ARMS, FEATURES))
    models = {"ensemble": None, "linear ensemble": linear_model()}
    sampler = ThompsonSampler(range(ARMS), models[method], seed=seed) if method in models else None
    peer = with_mabwiser(method, seed) if method.startswith("mabwiser") else None
    regret, began = 0.0, time.perf_counter()
    for done in range(1, ROUNDS + 1):
        x, noise = world.standard_normal(FEATURES), NOISE * world.standard_normal()
        mean = weights @ x
        if sampler is not None:
            decision = sampler.decide(x)
            arm = decision.arm
            sampler.reward(decision.id, mean[arm] + noise)
        elif method == "exact":
            arm = exact_arm(precision, moment, x, random)
            precision[arm] += np.outer(x, x) / NOISE**2
            moment[arm] += x * (mean[arm] + noise) / NOISE**2
        elif peer is not None:
            arm = peer.predict([x])
            peer.partial_fit([arm], [mean[arm] + noise], [x])
        else:
            arm = int(random.integers(ARMS))
        regret += mean.max() - mean[arm]
        if done in (100, ROUNDS):
            yield {"rounds": done, "regret": float(regret), "seconds": round(time.perf_counter() - began, 2)}


def times(task: str, method: str, seed: int) -> Iterator[dict[str, Any]]:
    """Median milliseconds of a decision among some arms, and of a proposal given 200 values, once compiled."""
    random = np.random.default_rng(seed)
    for arms in (5, 30):
        sampler = ThompsonSampler(range(arms), every=None, seed=seed)
        contexts = random.standard_normal((200, 10))
        sampler.warm_start([(x, int(random.integers(arms)), float(x[0])) for x in contexts])
        yield {
            "what": f"decide, {arms} arms",
            "milliseconds": _median(lambda s=sampler, x=contexts[0]: s.decide(x), 200),
        }
    space = {f"x{i}": Real(0, 1) for i in range(6)}
    for proposals in (1, 8):
        optimizer = Optimizer(space, seed=seed)
        points = [dict(zip(space, row, strict=True)) for row in random.random((200, 6)).tolist()]
        optimizer.tell(points, [hartmann(x) for x in points])
        found = _median(lambda o=optimizer, n=proposals: o.ask(n), 5)
        yield {"what": f"ask, {proposals} proposals", "milliseconds": found}


def _median(work: Callable[[], Any], repeats: int) -> float:
    work()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return round(1e3 * float(np.median(taken)), 3)


BANDITS = ("exact", "linear ensemble", "ensemble", "mabwiser LinTS", "mabwiser LinUCB", "random")
PARTS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "optimize": (optimize, [(task, method) for task in TASKS for method in OPTIMIZERS]),
    "label": (label, [("digits", "bald"), ("digits", "random")]),
    "bandit": (bandit, [("linear", method) for method in BANDITS]),
    "time": (times, [("time", "priorax")]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--seeds", type=int, default=10, help=f"number of seeds, from {FIRST_SHOWN} on")
    parser.add_argument("--tasks", nargs="*", default=[], help="only these tasks, such as branin; by default all")
    arguments = parser.parse_args()
    enable_compilation_cache()
    rows = list(read_rows(PATH)) if PATH.exists() else []
    for part in arguments.parts:
        measure, pairs = PARTS[part]
        seeds = range(FIRST_SHOWN, FIRST_SHOWN + (1 if part == "time" else arguments.seeds))
        for seed in seeds:
            for task, method in [pair for pair in pairs if not arguments.tasks or pair[0] in arguments.tasks]:
                stamp = {"part": part, "task": task, "method": method, "seed": seed}
                if not any(all(row.get(k) == v for k, v in stamp.items()) for row in rows):
                    rows += [{**stamp, **row} for row in measure(task, method, seed)]
                    write_rows(PATH, rows)
                    print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
