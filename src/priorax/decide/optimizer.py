"""Bayesian optimisation by ask and tell, over the members of an ensemble.

Members are fitted to what was told: they agree where there are data and follow their priors elsewhere. A proposal
maximises the expected improvement over the best value so far, by the mean and standard deviation of its members.
Parallel proposals divide the members among them, so that they differ; one member alone is Thompson sampling.
"""

import json
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erfcx
from scipy.stats import norm, qmc, rankdata
from sklearn.base import clone

from priorax import files, storage
from priorax.checks import checked_seed, one_of, positive_int
from priorax.decide.space import Parameter, Space
from priorax.estimators import PriorEnsembleRegressor
from priorax.files import BadFile

FORMAT = "priorax optimizer 2"
"""Name and version of the file format."""
MEMBERS = 8
"""Members of the default ensemble."""
RANDOM = 2048
"""Random candidates for each proposal."""
LOCAL = 2048
"""Candidates near the best points so far."""
TOP = 5
"""Number of best points so far near which to look."""
ROUNDS = 6
"""Rounds of refinement around the best candidate."""
REFINED = 256
"""Candidates of each round of refinement."""
SCALES = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Standard deviations of the local candidates, as parts of each parameter's range."""
SAME = 1e-6
"""Coordinates that differ by less are the same point."""


class Evaluation(NamedTuple):
    """A point and its value."""

    x: dict[str, Any]
    """Parameters by name."""
    y: float
    """The value there."""


class Optimizer:
    """Minimise or maximise an expensive function of few parameters, by ask and tell.

    ```python
    optimizer = Optimizer({"rate": Real(1e-4, 1e-1, log=True), "depth": Integer(1, 8), "loss": Choice(("l1", "l2"))})
    for x in optimizer.ask(4):  # four at once, for four workers
        optimizer.tell(x, evaluate(x))
    optimizer.best.x
    ```

    Args:
        space: Parameters by name: `Real(low, high, log=False)`, `Integer(low, high, log=False)`, `Choice(options)`.
        model: The ensemble to fit, a `PriorEnsembleRegressor`; it sees parameters scaled to variance 1 over the space,
            choices one-hot encoded, and targets with mean 0 and variance 1. Its `num_members` are divided among the
            proposals that await their values, one each at least; every call of `ask` draws new members, and
            `random_state` is ignored. None uses `default_model()`.
        goal: "minimize" or "maximize".
        initial: Number of values to be told before the model is used; until then, proposals are points of a scrambled
            Sobol sequence. None uses one more than the number of parameters, and at least 5.
        warp: What is fitted: "none" the values, "rank" their normal scores (quantiles of the normal distribution at
            their ranks, which outliers do not change), "half" the sum of both, each scaled to variance 1.
        seed: Random seed. The same seed and the same values told give the same proposals, to the bit.

    Raises:
        ValueError: If an argument is invalid.
    """

    def __init__(
        self,
        space: Mapping[str, Parameter] | Any,
        model: Any = None,
        *,
        goal: str = "minimize",
        initial: int | None = None,
        warp: str = "half",
        seed: int = 0,
    ) -> None:
        self.space = Space(space)
        self.model = default_model() if model is None else model
        if not isinstance(self.model, PriorEnsembleRegressor):
            raise ValueError(
                f"model={model!r:.100} must be a PriorEnsembleRegressor; pass one, or None for the default"
            )
        self.goal = one_of("goal", goal, ("minimize", "maximize"))
        self.initial = max(5, self.space.dim + 1) if initial is None else positive_int("initial", initial)
        self.warp = one_of("warp", warp, ("none", "half", "rank"))
        self.seed = checked_seed(seed)
        self._asked = 0
        self._told: list[tuple[np.ndarray, float | None]] = []
        self._pending: list[np.ndarray] = []

    def ask(self, n: int | None = None) -> Any:
        """Propose where to evaluate the function next.

        Proposals that were not told yet are remembered as pending and not proposed again.

        Args:
            n: Number of parallel proposals, each of other members; None proposes one.

        Returns:
            Parameters by name; a list of `n` of these if `n` is a number.
        """
        found = [self.space.from_unit(u) for u in self._proposals(1 if n is None else positive_int("n", n))]
        return found[0] if n is None else found

    def tell(self, x: Any, y: Any) -> None:
        """Tell the value of the function at a point, proposed or not.

        Args:
            x: Parameters by name, or a list of these.
            y: The value, or a list of these. None says that the evaluation failed: it counts as the worst value so far.

        Raises:
            ValueError: If a point is outside the space, a value is not a finite number, or there are not as many values
                as points; then nothing is told.
        """
        if isinstance(x, Mapping):
            x, y = [x], [y]
        if not isinstance(x, Sequence) or isinstance(y, str | numbers.Number) or y is None or len(x) != len(y):
            raise ValueError(f"y={y!r:.100} must be a list of as many values as there are points; pass one for each")
        new = [(self.space.to_unit(point), _checked_value(value)) for point, value in zip(x, y, strict=True)]
        for u, value in new:
            self._told.append((u, value))
            same = [i for i, other in enumerate(self._pending) if np.all(np.abs(other - u) < SAME)]
            for i in same[:1]:
                del self._pending[i]

    @property
    def evaluations(self) -> list[Evaluation]:
        """All points told so far, with their values, in the order told; those that failed have the value NaN."""
        return [Evaluation(self.space.from_unit(u), math.nan if y is None else y) for u, y in self._told]

    @property
    def pending(self) -> list[dict[str, Any]]:
        """Proposals whose values were not told yet."""
        return [self.space.from_unit(u) for u in self._pending]

    @property
    def best(self) -> Evaluation:
        """The best point told so far, with its value; the first of several.

        Raises:
            ValueError: If nothing was told yet.
        """
        known = [(u, y) for u, y in self._told if y is not None]
        if not known:
            raise ValueError("best needs a value, but none was told; call tell(x, y) first")
        u, y = known[int(np.argmax(self._sign() * np.array([y for _, y in known])))]
        return Evaluation(self.space.from_unit(u), y)

    def save(self, path: Path | str) -> None:
        """Save what was told and what is pending to a JSON file, from which `load` resumes.

        Args:
            path: The file to write.
        """
        params = self.model.get_params(deep=False)
        description = {
            "format": FORMAT,
            "space": self.space.describe(),
            "model": {name: storage.describe(value, name) for name, value in params.items()},
            "goal": self.goal,
            "initial": self.initial,
            "warp": self.warp,
            "seed": self.seed,
            "asked": self._asked,
            "told": [[u.tolist(), y] for u, y in self._told],
            "pending": [u.tolist() for u in self._pending],
        }
        text = json.dumps(description, indent=1, allow_nan=False)
        files.write_atomically(path, text.encode())

    @classmethod
    def load(cls, path: Path | str, **own: Any) -> "Optimizer":
        """Load an optimiser; it continues exactly as the one that was saved. Nothing in the file is executed.

        Args:
            path: The file, written by `save`.
            **own: Parameters of the model that are custom code, by name, as in `load(path, prior=...)`.

        Returns:
            The optimiser.

        Raises:
            BadFile: If the file was not written by `save`, is damaged, or describes something invalid.
            FileNotFoundError: If the file does not exist.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        content = files.parse_json(path, path.read_bytes())
        with files.reading(path):
            if not isinstance(content, dict) or content.get("format") != FORMAT:
                raise BadFile(f"{path} is not a file of an optimiser of this version; pass one made by save()")
            params = {k: storage.rebuild(v, own, files.SMALL) for k, v in content["model"].items()}
            model = PriorEnsembleRegressor(**params)
            names = ("goal", "initial", "warp", "seed")
            space = Space.rebuild(content["space"])
            found = cls(space.parameters, model, **{name: content[name] for name in names})
            if type(content["asked"]) is not int or content["asked"] < 0:
                raise BadFile(f"asked={content['asked']!r:.100} is not a valid count; save it again")
            found._asked = content["asked"]
            found._told = [(found._coordinates(u), _checked_value(y)) for u, y in content["told"]]
            found._pending = [found._coordinates(u) for u in content["pending"]]
        return found

    def _coordinates(self, values: Any) -> np.ndarray:
        """Check coordinates from a file."""
        u = np.array([float(value) for value in values])
        if u.shape != (self.space.dim,) or not np.allclose(self.space.snapped(u[None])[0], u, rtol=0, atol=1e-12):
            raise BadFile(f"the point {values!r:.100} is not in the space; save it again")
        return u

    def _sign(self) -> float:
        return -1.0 if self.goal == "minimize" else 1.0

    def _proposals(self, n: int) -> list[np.ndarray]:
        use_model = len(self._told) >= self.initial and any(y is not None for _, y in self._told)
        score = self._scores(n) if use_model else None
        found = []
        for i in range(n):
            random = np.random.default_rng([self.seed, self._asked])
            u = self._sobol() if score is None else self._maximum(partial(score, i), random)
            taken = [v for v, _ in self._told] + self._pending
            if any(np.all(np.abs(v - u) < SAME) for v in taken):
                u = self._free(u, taken, random)
            self._asked += 1
            self._pending.append(u)
            found.append(u)
        return found

    def _sobol(self) -> np.ndarray:
        """Get the next point of a scrambled Sobol sequence."""
        exponent = max(4, self._asked.bit_length())
        points = qmc.Sobol(self.space.dim, rng=np.random.default_rng(self.seed)).random_base2(exponent)
        return self.space.snapped(points[self._asked : self._asked + 1])[0]

    def _free(self, u: np.ndarray, taken: list[np.ndarray], random: np.random.Generator) -> np.ndarray:
        """Find a point near u that was not proposed or told; u itself if the whole neighbourhood was."""
        known = np.array(taken)
        for scale in SCALES[::-1]:
            near = self.space.around(np.repeat(u[None], 64, axis=0), scale, random)
            new = [v for v in near if not np.any(np.all(np.abs(known - v) < SAME, axis=1))]
            if new:
                return new[0]
        return u

    def _targets(self) -> np.ndarray:
        """Values to fit: larger is better, with mean 0 and variance 1; failures have the worst value."""
        known = self._sign() * np.array([np.nan if y is None else y for _, y in self._told])
        known = np.where(np.isnan(known), np.nanmin(known), known)
        scores = _standardised(norm.ppf((rankdata(known) - 0.5) / len(known)))
        if self.warp == "rank":
            return scores
        return _standardised(known if self.warp == "none" else _standardised(known) + scores)

    def _scores(self, n: int) -> Callable[[int, np.ndarray], np.ndarray]:
        """Fit members for n proposals to what was told; numbers of members are powers of two, which compile rarely.

        Returns:
            A function of the number of the proposal and of coordinates: how good these are, by the proposal's members.
        """
        each = _power_of_two_below(self.model.num_members / (len(self._pending) + n))
        seed = int(np.random.default_rng([self.seed, self._asked, 1]).integers(2**31))
        model = clone(self.model).set_params(random_state=seed, num_members=each << (n - 1).bit_length())
        targets = self._targets()
        model.fit(self.space.features(np.array([u for u, _ in self._told])), targets)

        def score(i: int, u: np.ndarray) -> np.ndarray:
            features = self.space.features(u)
            if each == 1:
                return model.members(features, i)
            mine = model.members(features)[i * each : (i + 1) * each]
            return log_expected_improvement(mine.mean(axis=0), mine.std(axis=0, ddof=1), targets.max())

        return score

    def _maximum(self, score: Callable[[np.ndarray], np.ndarray], random: np.random.Generator) -> np.ndarray:
        """Maximise a function: random candidates, candidates near the best points, then refinement."""
        best = np.array([self._told[i][0] for i in np.argsort(-self._targets(), kind="stable")[:TOP]])
        near = best[random.integers(len(best), size=LOCAL)]
        scale = random.choice(SCALES, size=(LOCAL, 1))
        candidates = np.concatenate(
            [self.space.snapped(random.random((RANDOM, self.space.dim))), self.space.around(near, scale, random)]
        )
        values = score(candidates)
        for round_ in range(ROUNDS):
            top = np.argsort(-values, kind="stable")[:TOP]
            centre = np.repeat(candidates[top], REFINED // TOP, axis=0)
            moved = self.space.around(centre, 0.1 * 0.4**round_, random)
            candidates = np.concatenate([candidates[top], moved])
            values = np.concatenate([values[top], score(moved)])
        return candidates[int(np.argmax(values))]


def log_expected_improvement(mean: Any, std: Any, best: float) -> np.ndarray:
    """Compute the logarithm of the expected improvement of a normal distribution over a value.

    It keeps its precision where an improvement is so improbable that its expectation is rounded to zero.

    Args:
        mean: Means.
        std: Standard deviations; those below 1e-9 count as 1e-9.
        best: The value to improve on, upwards.

    Returns:
        log E[max(y - best, 0)] for each mean and standard deviation.
    """
    std = np.maximum(std, 1e-9)
    z = (mean - best) / std
    above, below = np.maximum(z, -1.0), np.minimum(z, -1.0)
    likely = np.log(norm.pdf(above) + above * norm.cdf(above))
    ratio = math.sqrt(math.pi / 2) * erfcx(-below / math.sqrt(2))  # of distribution function and density
    unlikely = norm.logpdf(below) + np.log(np.maximum(1 + below * ratio, np.finfo(float).tiny))
    return np.log(std) + np.where(z > -1.0, likely, unlikely)


def _power_of_two_below(number: float) -> int:
    return 1 << max(int(number), 1).bit_length() - 1


def _standardised(values: np.ndarray) -> np.ndarray:
    """Scale to mean 0 and variance 1; the largest values of float64 do not overflow."""
    values = values / max(np.max(np.abs(values)), np.finfo(float).tiny)
    values = values - np.mean(values)
    spread = np.std(values)
    return values / spread if spread > 1e-12 else np.zeros_like(values)


def default_model() -> PriorEnsembleRegressor:
    """Make the ensemble that optimisers use by default.

    Members interpolate the values: no data noise, since the function usually has little, and no early stopping.

    Returns:
        The unfitted estimator.
    """
    return PriorEnsembleRegressor(
        MEMBERS, noise="none", out_of_bag=False, standardize=False, steps=500, batch_size=64, learning_rate=1e-2
    )


def _checked_value(y: Any) -> float | None:
    if y is None:
        return None
    if isinstance(y, bool) or not isinstance(y, numbers.Real) or not math.isfinite(y):
        raise ValueError(f"y={y!r:.100} must be a finite number; pass one, or None if the evaluation failed")
    return float(y)
