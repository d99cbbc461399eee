"""Thompson sampling for contextual bandits: draw a member of the ensemble, choose its best arm, learn from the reward.

Rewards may arrive late and in any order. The probability of every choice is known exactly, since it is the fraction of
members that prefer the arm; it is recorded, so that the decisions can later be used to evaluate other policies.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.base import clone

from priorax import files, storage
from priorax.checks import checked_seed, non_negative, one_of, positive_int
from priorax.decide.logs import Logs, PolicyValue, as_context, as_logs, policy_value
from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.estimators.files import pack, unpack
from priorax.files import BadFile, Content

MODELS: dict[str, Any] = {kind.__name__: kind for kind in (PriorEnsembleRegressor, PriorEnsembleClassifier)}
"""Classes of models by name, as files name them."""
SETTINGS = ("encoding", "update", "every", "growth", "first", "window", "max_pending", "seed")
"""Arguments of the constructor that are plain values."""
MODEL = "model."
"""Prefix of the names of the model's arrays in a file."""


class Decision(NamedTuple):
    """A choice whose reward is awaited."""

    id: Any
    """Identifies the decision when its reward arrives."""
    arm: Any
    """Id of the chosen arm."""
    propensity: float
    """Probability with which it was chosen."""


class ThompsonSampler:
    """Choose among arms, given a context, and learn from rewards that may arrive late.

    ```python
    sampler = ThompsonSampler(["red", "green", "blue"])
    decision = sampler.decide(context)  # show decision.arm; later, perhaps after other decisions:
    sampler.reward(decision.id, 1.0)
    ```

    Args:
        arms: Ids of the arms (strings or whole numbers), or a dictionary from ids to features of the arms.
        model: The ensemble to fit: a `PriorEnsembleRegressor`, or a `PriorEnsembleClassifier` for rewards that are 0 or
            1. None uses `default_model()`.
        encoding: How arms without features enter the model: "separate" gives every arm its own copy of the context, so
            that a linear network is one model per arm; "one_hot" adds an indicator of the arm to the context.
        update: How to learn: "fit" fits again to all rewards, "partial_fit" trains on the new ones only, which takes
            equally long however many there were, but forgets.
        every: Number of new rewards after which to learn; None learns only when `learn()` is called.
        growth: With "fit", learn only when the new rewards are at least this fraction of the ones learned from, so
            that the total time grows almost linearly; 0 learns after `every` rewards always.
        first: Number of rewards before the model is used; until then, arms are chosen uniformly at random. None uses
            twice the number of arms, and at most 10.
        window: Number of latest rewards to remember and learn from; None remembers all.
        max_pending: Maximum number of decisions that await their reward; the oldest are forgotten.
        seed: Random seed. The same seed and the same calls give the same choices, to the bit.

    Raises:
        ValueError: If an argument is invalid.
    """

    def __init__(
        self,
        arms: Sequence[Any] | Mapping[Any, Any],
        model: Any = None,
        *,
        encoding: str = "separate",
        update: str = "fit",
        every: int | None = 1,
        growth: float | int = 0.1,
        first: int | None = None,
        window: int | None = None,
        max_pending: int = 100_000,
        seed: int = 0,
    ) -> None:
        self.arms = list(arms)
        if len(self.arms) < 2 or len(set(self.arms)) < len(self.arms) or not all(map(_is_id, self.arms)):
            raise ValueError(
                f"arms={arms!r:.200} must be at least two different strings or whole numbers, or a dictionary from "
                "those to features; pass for example arms=['a', 'b']"
            )
        self._features = _arm_features(arms) if isinstance(arms, Mapping) else None
        self._number = {arm: i for i, arm in enumerate(self.arms)}
        self.model = default_model() if model is None else model
        if type(self.model).__name__ not in MODELS or not isinstance(self.model, tuple(MODELS.values())):
            raise ValueError(f"model={model!r:.100} must be one of {', '.join(MODELS)}; pass one of them")
        self.encoding = one_of("encoding", encoding, ("separate", "one_hot"))
        self.update = one_of("update", update, ("fit", "partial_fit"))
        self.every = None if every is None else positive_int("every", every)
        self.growth = non_negative("growth", growth)
        self.first = min(10, 2 * len(self.arms)) if first is None else positive_int("first", first)
        self.window = None if window is None else positive_int("window", window)
        self.max_pending = positive_int("max_pending", max_pending)
        self.seed = checked_seed(seed)
        self._dim: int | None = None
        self._decisions = 0
        self._rewards = 0
        self._learned = 0
        self._pending: dict[Any, tuple[np.ndarray, int, float]] = {}
        self._history: list[tuple[np.ndarray, int, float, float]] = []
        self._fitted: Any = None

    def decide(self, context: Any = None, among: Sequence[Any] | None = None, id: Any = None) -> Decision:
        """Choose an arm, and remember the choice until its reward arrives.

        Args:
            context: Numbers that describe the situation [features]; None if there are none.
            among: Ids of the arms that are available; None is all of them.
            id: Identifies the decision, for example the id of a request: a string or whole number; None numbers them.

        Returns:
            The arm, the id under which to pass its reward, and the probability with which it was chosen.

        Raises:
            ValueError: If an argument is invalid, or the id is that of another decision whose reward is awaited.
        """
        id = self._decisions if id is None else id
        if not _is_id(id) or id in self._pending:
            raise ValueError(f"id={id!r} must be a string or whole number that no awaited decision has; pass another")
        row = self._checked(context)
        arm, propensity = self._chosen(row, among)
        self._pending[id] = row, arm, propensity
        while len(self._pending) > self.max_pending:
            del self._pending[next(iter(self._pending))]
        return Decision(id, self.arms[arm], propensity)

    def choose(self, context: Any = None, among: Sequence[Any] | None = None) -> Any:
        """Choose an arm; pass its reward as `reward((context, arm), value)`.

        Args:
            context: Numbers that describe the situation [features]; None if there are none.
            among: Ids of the arms that are available; None is all of them.

        Returns:
            The id of the arm.

        Raises:
            ValueError: If an argument is invalid.
        """
        return self.arms[self._chosen(self._checked(context), among)[0]]

    def reward(self, decision: Any, value: Any) -> None:
        """Pass the reward of a decision, at any time, and learn if enough new rewards have arrived.

        Args:
            decision: The id of a `Decision`, the `Decision`, or a pair (context, arm).
            value: The reward.

        Raises:
            ValueError: If no such decision is awaited, the arm is unknown, or the reward is not a finite number (with a
                classifier, not 0 or 1).
        """
        value = self._checked_reward(value)
        if isinstance(decision, Decision):
            decision = decision.id
        if isinstance(decision, tuple):
            if len(decision) != 2:
                raise ValueError(f"decision={decision!r:.100} must be an id or (context, arm); pass one of them")
            row, arm, propensity = self._checked(decision[0]), self._arm(decision[1]), np.nan
        else:
            if not _is_id(decision) or decision not in self._pending:
                raise ValueError(
                    f"decision={decision!r:.100} is not awaited: it is unknown, was rewarded already, or is older than "
                    f"max_pending={self.max_pending} others; pass (context, arm) instead to learn from it anyway"
                )
            row, arm, propensity = self._pending.pop(decision)
        self._remember([(row, arm, value, propensity)])

    def warm_start(self, logs: Any) -> "ThompsonSampler":
        """Learn from logged decisions, of this or any other policy.

        Args:
            logs: `Logs(contexts, arms, rewards, propensities)`, or rows (context, arm, reward[, propensity]).
                Propensities are recorded; the model of the rewards does not need them.

        Returns:
            The sampler itself.

        Raises:
            ValueError: If the logs are invalid or have an unknown arm.
        """
        logs = as_logs(logs)
        given = np.full(len(logs.rewards), np.nan) if logs.propensities is None else logs.propensities
        rows = [
            (self._checked(context), self._arm(arm), self._checked_reward(reward), float(propensity))
            for context, arm, reward, propensity in zip(logs.contexts, logs.arms, logs.rewards, given, strict=True)
        ]
        self._remember(rows, learn=False)
        self.learn()
        return self

    def learn(self) -> None:
        """Learn from all rewards that have arrived, now."""
        new = self._rewards - self._learned
        if not self._history or not new:
            return
        partial = self.update == "partial_fit"
        rows = self._history[-new:] if partial and self._fitted is not None else self._history
        x = self._inputs(np.stack([row[0] for row in rows]), np.array([row[1] for row in rows]))
        y = np.array([row[2] for row in rows])
        if self._classifies():
            y = y.astype(int)
        if partial:
            model = clone(self.model).set_params(random_state=self.seed) if self._fitted is None else self._fitted
            self._fitted = model.partial_fit(x, y, [0, 1]) if self._classifies() else model.partial_fit(x, y)
        else:
            seed = int(np.random.default_rng([self.seed, self._rewards]).integers(2**31))
            self._fitted = clone(self.model).set_params(random_state=seed).fit(x, y)
        self._learned = self._rewards

    def probabilities(self, contexts: Any) -> Float[np.ndarray, "n arm"]:
        """Compute the policy: the probability of choosing each arm.

        Args:
            contexts: Contexts [n, features].

        Returns:
            The fraction of members that prefer each arm; uniform before there are `first` rewards.

        Raises:
            ValueError: If the contexts do not match those seen before.
        """
        rows = np.stack([self._checked(context) for context in contexts])
        if not self._is_ready():
            return np.full((len(rows), len(self.arms)), 1 / len(self.arms))
        values = self._on_all_arms(rows, self._member_values)
        return _preferences(values)

    def predict(self, contexts: Any) -> Float[np.ndarray, "n arm"]:
        """Predict the mean reward of each arm.

        Args:
            contexts: Contexts [n, features].

        Returns:
            The mean over members.

        Raises:
            ValueError: If nothing was learned yet, or the contexts do not match those seen before.
        """
        if self._fitted is None:
            raise ValueError("predict needs a model, but nothing was learned yet; pass rewards and call learn() first")
        rows = np.stack([self._checked(context) for context in contexts])
        return self._on_all_arms(rows, lambda x: _mean(self._fitted, x)[None])[0]

    @property
    def logs(self) -> Logs:
        """All decisions with a reward that are remembered; unknown propensities are NaN."""
        rows = self._history
        contexts = np.stack([row[0] for row in rows]) if rows else np.zeros((0, self._dim or 0))
        columns = [np.array([row[i] for row in rows]) for i in (2, 3)]
        return Logs(contexts, [self.arms[row[1]] for row in rows], *columns)

    @property
    def pending(self) -> list[Any]:
        """Ids of the decisions whose reward is awaited, the oldest first."""
        return list(self._pending)

    def replay(self, logs: Any, folds: int = 5) -> PolicyValue:
        """Estimate the mean reward that this policy would have earned in logged contexts, without learning from them.

        The estimates are unbiased only if the sampler did not learn from these logs: otherwise its choices fit their
        noise.

        Args:
            logs: Logged decisions with propensities, `Logs` or rows (context, arm, reward, propensity).
            folds: Number of parts of the logs; the rewards of each are predicted by a copy of the model that is fitted
                to the others. 1 uses the sampler's own mean instead.

        Returns:
            Doubly robust, IPS and direct estimates with their standard errors.

        Raises:
            ValueError: If the logs are invalid, have no propensities, or have fewer than 2 `folds` rows.
        """
        logs = as_logs(logs)
        if logs.propensities is None:
            raise ValueError("logs has no propensities, which replay divides by; log them, or use predict(contexts)")
        n, arms = len(logs.rewards), np.array([self._arm(arm) for arm in logs.arms])
        if positive_int("folds", folds) > 1 and n < 2 * folds:
            raise ValueError(f"folds={folds} needs at least {2 * folds} rows, but logs has {n}; pass fewer folds")
        rewards = np.array([self._checked_reward(reward) for reward in logs.rewards])
        probabilities = self.probabilities(logs.contexts)
        if folds == 1:
            model = self.predict(logs.contexts)
        else:
            part = np.random.default_rng([self.seed, n]).permutation(n) % folds
            model = np.empty((n, len(self.arms)))
            for fold in range(folds):
                rest, held = part != fold, part == fold
                y = rewards[rest].astype(int) if self._classifies() else rewards[rest]
                x = self._inputs(logs.contexts[rest], arms[rest])
                other = clone(self.model).set_params(random_state=self.seed).fit(x, y)
                model[held] = self._on_all_arms(logs.contexts[held], lambda x, other=other: _mean(other, x)[None])[0]
        return policy_value(probabilities, model, arms, rewards, logs.propensities)

    def save(self, path: Path | str) -> None:
        """Save everything to one file of arrays and JSON, without pickle; `load` continues exactly.

        Args:
            path: The file to write.
        """
        content = None if self._fitted is None else pack(self._fitted)
        params = self.model.get_params(deep=False)
        waiting = list(self._pending.values())
        dim = self._dim or 0
        arrays = {
            "contexts": np.array([row[0] for row in self._history]).reshape(len(self._history), dim),
            "numbers": np.array([row[1:] for row in self._history], dtype=float).reshape(-1, 3),
            "pending_contexts": np.array([row[0] for row in waiting]).reshape(len(waiting), dim),
            "pending_numbers": np.array([row[1:] for row in waiting], dtype=float).reshape(-1, 2),
        }
        arrays["numbers"][:, 2] = np.nan_to_num(arrays["numbers"][:, 2], nan=-1.0)
        if content is not None:
            arrays |= {MODEL + name: array for name, array in content.arrays.items()}
        description = {
            "arms": self.arms,
            "features": None if self._features is None else self._features.tolist(),
            "kind": type(self.model).__name__,
            "model": {name: storage.describe(value, name) for name, value in params.items()},
            "settings": {name: getattr(self, name) for name in SETTINGS},
            "dim": self._dim,
            "counts": [self._decisions, self._rewards, self._learned],
            "pending": list(self._pending),
            "fitted": None if content is None else content.description,
        }
        files.write(path, Content(type(self).__name__, description, arrays))

    @classmethod
    def load(cls, path: Path | str, **own: Any) -> "ThompsonSampler":
        """Load a sampler; it continues exactly as the one that was saved. Nothing in the file is executed.

        Args:
            path: The file, written by `save`.
            **own: Parameters of the model that are custom code, by name, as in `load(path, prior=...)`.

        Returns:
            The sampler.

        Raises:
            BadFile: If the file was not written by `save`, is damaged, or describes something invalid.
            FileNotFoundError: If the file does not exist.
        """
        content = files.read(path)
        if content.kind != cls.__name__:
            raise BadFile(f"{path} holds a {content.kind:.100}, not a {cls.__name__}; load it with that class")
        about, arrays = content.description, content.arrays
        with files.reading(path):
            kind = MODELS[about["kind"]]
            model = kind(**{k: storage.rebuild(v, own, content.largest) for k, v in about["model"].items()})
            arms, features = about["arms"], about["features"]
            if set(about["settings"]) != set(SETTINGS):
                raise BadFile(f"{path} has other settings than this version; use the version that wrote it")
            if features is not None:
                arms = dict(zip(arms, features, strict=True))
            found = cls(arms, model, **about["settings"])
            found._resume(about, arrays)
            if about["fitted"] is not None:
                own_arrays = {k.removeprefix(MODEL): a for k, a in arrays.items() if k.startswith(MODEL)}
                found._fitted = unpack(kind, Content(kind.__name__, about["fitted"], own_arrays), path, own)
                width = found._inputs(np.zeros((1, found._dim or 0)), np.zeros(1, dtype=int)).shape[1]
                if found._fitted.n_features_in_ != width:
                    raise BadFile(f"the model has {found._fitted.n_features_in_} features instead of {width}")
        return found

    def _resume(self, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take over the counts, rewards and awaited decisions of a file, and check them."""
        dim, counts = about["dim"], about["counts"]
        whole = [*counts, 0 if dim is None else dim]
        if len(counts) != 3 or not all(type(count) is int and count >= 0 for count in whole):
            raise BadFile(f"counts={counts!r:.100} and dim={dim!r:.100} are not valid counts; save it again")
        self._dim, (self._decisions, self._rewards, self._learned) = dim, counts
        rows, waiting, ids = arrays["numbers"], arrays["pending_numbers"], about["pending"]
        contexts, awaited = arrays["contexts"], arrays["pending_contexts"]
        width = dim or 0
        if rows.shape != (len(contexts), 3) or waiting.shape != (len(ids), 2) or len(set(ids)) < len(ids):
            raise BadFile("its rewards and awaited decisions do not match; save it again")
        if contexts.shape[1:] != (width,) or awaited.shape != (len(ids), width) or not all(map(_is_id, ids)):
            raise BadFile("its contexts do not match; save it again")
        given = np.concatenate([rows[:, 0], waiting[:, 0]])
        finite = all(np.all(np.isfinite(array)) for array in (rows, waiting, contexts, awaited))
        if not finite or not np.all(np.isin(given, np.arange(len(self.arms)))):
            raise BadFile("it has a number that is not finite, or an unknown arm; save it again")
        if self._learned > self._rewards or len(rows) > self._rewards:
            raise BadFile("its numbers of rewards contradict each other; save it again")
        self._history = [
            (context, int(arm), self._checked_reward(float(reward)), float(p) if p >= 0 else np.nan)
            for context, (arm, reward, p) in zip(contexts, rows, strict=True)
        ]
        self._pending = {
            id: (context, int(arm), float(p)) for id, context, (arm, p) in zip(ids, awaited, waiting, strict=True)
        }

    def _classifies(self) -> bool:
        return isinstance(self.model, PriorEnsembleClassifier)

    def _is_ready(self) -> bool:
        return self._fitted is not None

    def _checked(self, context: Any) -> np.ndarray:
        """Validate a context; the first one determines the number of features."""
        row = as_context(context)
        if self._dim is None:
            self._dim = len(row)
        if len(row) != self._dim:
            raise ValueError(
                f"context={context!r:.100} has {len(row)} numbers, but the first one had {self._dim}; pass as many"
            )
        return row

    def _checked_reward(self, value: Any) -> float:
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = np.nan
        if not np.isfinite(found) or (self._classifies() and found not in (0.0, 1.0)):
            limit = "0 or 1, since the model is a classifier" if self._classifies() else "a finite number"
            raise ValueError(f"value={value!r:.100} must be {limit}; pass such a reward, or leave the decision out")
        return found

    def _arm(self, arm: Any) -> int:
        arm = arm.item() if isinstance(arm, np.generic) else arm
        if not _is_id(arm) or arm not in self._number:
            raise ValueError(f"arm={arm!r:.100} is unknown; the arms are {self.arms!r:.200}")
        return self._number[arm]

    def _remember(self, rows: list[tuple[np.ndarray, int, float, float]], learn: bool = True) -> None:
        self._history.extend(rows)
        self._rewards += len(rows)
        if self.window is not None and len(self._history) > self.window:
            del self._history[: -self.window]
        new = self._rewards - self._learned
        if not learn or self.every is None or self._rewards < self.first or new < self.every:
            return
        if self._fitted is None or self.update == "partial_fit" or new >= self.growth * self._learned:
            self.learn()

    def _chosen(self, row: np.ndarray, among: Sequence[Any] | None) -> tuple[int, float]:
        """Draw a member and choose its best arm, with the probability of that choice."""
        allowed = np.arange(len(self.arms)) if among is None else np.array([self._arm(arm) for arm in among], dtype=int)
        if not len(allowed):
            raise ValueError("among=[] must have at least one arm; pass those that are available, or None for all")
        if self._is_ready():
            x = self._inputs(np.broadcast_to(row, (len(allowed), len(row))), allowed)
            chance = _preferences(self._member_values(x)[:, None])[0]
        else:
            chance = np.full(len(allowed), 1 / len(allowed))
        random = np.random.default_rng([self.seed, self._decisions])
        at = min(int(np.searchsorted(np.cumsum(chance), random.random(), side="right")), len(allowed) - 1)
        at = at if chance[at] > 0 else int(np.argmax(chance))  # rounding of the sum
        self._decisions += 1
        return int(allowed[at]), float(chance[at])

    def _inputs(self, contexts: np.ndarray, arms: np.ndarray) -> np.ndarray:
        """Combine contexts and arms to inputs of the model, one for each pair."""
        if self._features is not None:
            return np.concatenate([contexts, self._features[arms]], axis=1)
        arm = np.eye(len(self.arms))[arms]
        if self.encoding == "one_hot" or not contexts.shape[1]:
            return np.concatenate([contexts, arm], axis=1)
        return np.concatenate([arm, (arm[:, :, None] * contexts[:, None, :]).reshape(len(arm), -1)], axis=1)

    def _member_values(self, x: np.ndarray) -> np.ndarray:
        """Compute the expected reward under each member, [member, n]."""
        found = self._fitted.members(x)
        return found @ self._fitted.classes_ if self._classifies() else found

    def _on_all_arms(self, contexts: np.ndarray, values: Any) -> np.ndarray:
        """Compute values [k, n, arm] of all arms in all contexts, in chunks; `values` maps inputs to [k, rows]."""
        arms, parts = np.arange(len(self.arms)), []
        chunk = max(1, 4096 // len(arms))
        for start in range(0, len(contexts), chunk):
            some = contexts[start : start + chunk]
            x = self._inputs(np.repeat(some, len(arms), axis=0), np.tile(arms, len(some)))
            parts.append(values(x).reshape(-1, len(some), len(arms)))
        return np.concatenate(parts, axis=1)


def default_model() -> PriorEnsembleRegressor:
    """Make the ensemble that samplers use by default.

    It takes few steps, so that fitting again is fast and members do not learn the noise of rewards; they differ by
    their priors only.

    Returns:
        The unfitted estimator.
    """
    return PriorEnsembleRegressor(
        prior_scale=0.5, noise="none", out_of_bag=False, steps=100, batch_size=64, learning_rate=1e-2
    )


def _preferences(values: np.ndarray) -> np.ndarray:
    """Fraction of members [member, n, arm] that prefer each arm [n, arm]; members that are indifferent split."""
    best = values == values.max(axis=-1, keepdims=True)
    return np.mean(best / best.sum(axis=-1, keepdims=True), axis=0)


def _mean(model: Any, x: np.ndarray) -> np.ndarray:
    return model.predict_proba(x) @ model.classes_ if isinstance(model, PriorEnsembleClassifier) else model.predict(x)


def _arm_features(arms: Mapping[Any, Any]) -> np.ndarray:
    rows = [np.asarray(row, dtype=float) for row in arms.values()]
    if {row.ndim for row in rows} != {1} or len({row.shape for row in rows}) != 1 or not np.all(np.isfinite(rows)):
        raise ValueError("arms has features that are not equally many finite numbers for each arm; pass those")
    return np.stack(rows)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
