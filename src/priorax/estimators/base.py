"""Base class of the regressor and the classifier: building the belief, fitting, predicting in chunks, files."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, no_type_check

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from priorax.beliefs import L2, BeliefState, Ensemble
from priorax.beliefs.gradient import Adam
from priorax.checks import non_negative, one_of, positive, positive_int
from priorax.data_sets import form_data
from priorax.estimators import files
from priorax.estimators.evaluating import LEAST, SIZES, all_outputs, outputs_of
from priorax.estimators.explaining import Explanation, explain
from priorax.estimators.far_field import Anchors
from priorax.estimators.inputs import TableInputs
from priorax.estimators.out_of_bag import ROWS
from priorax.estimators.standardising import as_given, extremes, moments, refuse_vanishing, standardised
from priorax.family import FamilyMember, Learned
from priorax.fitting import Fit, fit, start, train
from priorax.heads import Head
from priorax.networks import MLP, Network, Table, as_network
from priorax.noise import as_noise, online
from priorax.priors import Constant, Linear, RandomFourier, RandomSize, UnitSize

PRIORS: dict[str, Network] = {"linear": Linear(), "fourier": RandomFourier(), "constant": Constant()}
"""Prior functions by name."""

PRIOR_SCALES = (0.3, 1.0, 3.0, 10.0)
"""Prior scales among which `prior_scale="auto"` chooses, in ascending order."""

OURS = (MLP, Table, Linear, RandomFourier, Constant)
"""Priors that see standardised X, also inside `UnitSize` and `RandomSize`; any other is a custom prior and sees X as
passed."""


Compute = Callable[[Ensemble, BeliefState, Any], Sequence[Array]]
"""Function that computes the predictions of each member for a chunk of rows."""
Combine = Callable[..., Sequence[np.ndarray]]
"""Function that combines the members' predictions."""


class Uncertainty(NamedTuple):
    """A prediction with its uncertainty, split into epistemic and aleatoric parts.

    For a regression these are standard deviations, total² = epistemic² + aleatoric². For a classification they are in
    nats, total = epistemic + aleatoric: the entropy of the mean probabilities, the mutual information, and the mean
    entropy.
    """

    mean: np.ndarray
    """Predicted means [n] or [n, outputs], or class probabilities [n, classes]."""
    epistemic: np.ndarray
    """Uncertainty that more data would reduce."""
    aleatoric: np.ndarray
    """Uncertainty due to noise, which more data would not reduce."""
    total: np.ndarray
    """Total uncertainty."""


@dataclass(frozen=True)
class _Part:
    """A network that sees one part of the input: members see standardised X, a custom prior raw X."""

    network: Network
    part: int

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Any:
        return self.network.init(key, x[self.part], num_out)

    def apply(self, params: Any, x: Any) -> Array:
        return self.network.apply(params, x[self.part])


class PriorEnsemble(TableInputs):
    """Base class of the regressor and the classifier, whose docstrings describe the parameters."""

    @no_type_check  # scikit-learn convention: parameters are validated in fit
    def __init__(
        self,
        num_members: int = 20,
        *,
        hidden_widths: tuple[int, ...] = (50, 50),
        prior: Any = "network",
        prior_scale: float | str = 1.0,
        noise: Any = "bootstrap",
        network: Any = None,
        l2: L2 | None = None,
        encode: bool = False,
        standardize: bool = True,
        steps: int = 6000,
        batch_size: int | None = 128,
        learning_rate: float = 3e-3,
        validation_fraction: float | None = None,
        out_of_bag: bool = True,
        patience: int = 10,
        partial_steps: int = 100,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.num_members = num_members
        self.hidden_widths = hidden_widths
        self.prior = prior
        self.prior_scale = prior_scale
        self.noise = noise
        self.network = network
        self.l2 = l2
        self.encode = encode
        self.standardize = standardize
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.out_of_bag = out_of_bag
        self.patience = patience
        self.partial_steps = partial_steps
        self.random_state = random_state
        self.verbose = verbose

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Show the parameters that are not defaults, and which prior scale "auto" chose."""
        shown, auto = super().__repr__(N_CHAR_MAX), "prior_scale='auto'"
        return shown.replace(auto, f"{auto} (chose {self.prior_scale_:g})") if hasattr(self, "state_") else shown

    def _belief(self, num_outputs: int, head: Head) -> Ensemble:
        if not isinstance(self.hidden_widths, tuple | list):
            raise ValueError(
                f"hidden_widths={self.hidden_widths!r} must be a tuple of widths; pass for example (50, 50)"
            )
        widths = tuple(positive_int("hidden_widths", width) for width in self.hidden_widths)
        network = MLP(widths) if self.network is None else as_network(self.network)
        prior: Network | None
        if self.prior is None:
            prior = None
        elif isinstance(self.prior, str):
            own = MLP(widths[:1], bias_scale=1.0)
            prior = {"network": own, **PRIORS}[one_of("prior", self.prior, ["network", *PRIORS])]
        else:
            prior = as_network(self.prior, "prior")
        inner = prior
        while isinstance(inner, UnitSize | RandomSize):
            inner = inner.prior
        if self.standardize and (isinstance(inner, Learned) or isinstance(network, FamilyMember)):
            raise ValueError(
                "standardize=True does not go with a learned prior or its members, which are in the units of the past "
                "tasks; pass standardize=False"
            )
        if prior is not None and not isinstance(inner, OURS):  # custom priors see X as passed
            network, prior = _Part(network, 0), _Part(prior, 1)
        network = self._finish(network)
        return Ensemble(
            num_members=positive_int("num_members", self.num_members),
            network=network,
            prior=prior,
            prior_scale=self.prior_scale_,
            l2=self.l2,
            head=head,
            num_outputs=num_outputs,
            optimizer=Adam(positive("learning_rate", self.learning_rate, example=1e-3)),
        )

    def _finish(self, network: Network) -> Network:
        """Adapt the network to the kind of target."""
        return network

    def _inputs(self, X: Any) -> Any:
        """Convert rows of X, dense or sparse, to inputs of the fitted networks."""
        scaled = standardised("X", X, self.x_mean_, self.x_scale_)
        return (scaled, as_given(X)) if self._sees_raw() else scaled

    def _sees_raw(self) -> bool:
        """Whether the fitted prior is custom code, which sees X as passed."""
        return isinstance(self.belief_.prior, _Part)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _begin(self, X: Any, num_outputs: int, head: Head, weight: Any) -> None:
        """Fix the model before the first step; later changes of constructor parameters have no effect on it."""
        self._fit_params = self.get_params(deep=False)
        for name in ("anchors_", "anchor_rank_", "x_range_"):
            self.__dict__.pop(name, None)
        self.x_mean_, self.x_scale_ = moments("X", X, self.standardize, weight)
        self.prior_scale_ = 1.0 if self._is_auto() else float(non_negative("prior_scale", self.prior_scale))
        self.belief_ = self._belief(num_outputs, head)
        if self._sees_raw():
            refuse_vanishing(X)
        self.stream_seed_ = self._seed()

    def _fit(self, X: Any, targets: np.ndarray, weight: Any) -> Fit:
        """Run algorithm 1 from the start; with prior_scale="auto", once for each of `PRIOR_SCALES`."""
        inputs, found = self._inputs(X), dict[float, tuple[Fit, np.ndarray]]()
        for scale in PRIOR_SCALES if self._is_auto() else (self.prior_scale_,):
            self.belief_ = dataclasses.replace(self.belief_, prior_scale=scale)
            result = fit(
                self.belief_,
                (inputs, targets),
                key=jax.random.key(self.stream_seed_),
                noise=self.noise,
                sample_weight=weight,
                steps=self.steps,
                batch_size=self.batch_size,
                validation_fraction=self.validation_fraction,
                out_of_bag=bool(self.out_of_bag),
                patience=self.patience,
                progress=bool(self.verbose),
            )
            self.state_ = result.state
            found[scale] = result, self._unseen_losses(X, targets, weight, result) if self._is_auto() else np.zeros(1)
        self.prior_scale_ = largest_plausible({scale: losses for scale, (_, losses) in found.items()})
        self.belief_ = dataclasses.replace(self.belief_, prior_scale=self.prior_scale_)
        result = found[self.prior_scale_][0]
        self.state_ = result.state
        self.n_iter_, self.best_step_ = len(result.losses), result.best_step
        self.loss_curve_ = result.losses.mean(axis=1)
        self.n_seen_ = len(targets)
        return result

    def _keep_anchors(self, X: Any, weight: Any) -> None:
        """Keep a sample of the rows, to know what is near and far, and the range of each feature."""
        new, old = extremes(X, weight), getattr(self, "x_range_", None)
        joined = new if old is None else np.stack([np.minimum(old[0], new[0]), np.maximum(old[1], new[1])])
        if np.all(np.isfinite(joined)):  # there may be no row with a weight above 0
            self.x_range_ = joined
        if not hasattr(self, "anchors_"):
            self.anchors_, self.anchor_rank_ = np.zeros((0, X.shape[1]), dtype=np.float32), np.zeros(0)
        used = X if weight is None else X[np.flatnonzero(weight)]
        seed = (self.stream_seed_, int(getattr(self, "n_seen_", 0)) if len(self.anchors_) else 0)
        self.anchors_, self.anchor_rank_ = Anchors(self.anchors_, self.anchor_rank_).add(
            used, seed, lambda rows: standardised("X", rows, self.x_mean_, self.x_scale_)
        )

    def _is_auto(self) -> bool:
        if isinstance(self.prior_scale, str):
            return bool(one_of("prior_scale", self.prior_scale, ("auto",)))
        return False

    def _unseen_rows(self, X: Any, weight: Any, result: Fit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Choose training rows that members did not see.

        Rows that the bootstrap left out, or the held-out rows; if there are neither, all rows, though they were seen.

        Args:
            X: Inputs of the fit.
            weight: Sample weights, or None.
            result: The fit.

        Returns:
            Indices of at most `ROWS` rows, which members did not see each of them [row, member], and their weights.
        """
        used = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
        unseen = np.ones((X.shape[0], self.belief_.num_members), dtype=bool)
        if result.held is not None:
            held = np.intersect1d(used, result.held[0])
            used = held if len(held) else used  # all held-out rows may have weight zero
        elif np.any((kept := np.asarray(result.data.weight)[: X.shape[0]])[used] == 0):
            unseen = kept == 0
        rows = used[np.unique(np.linspace(0, len(used) - 1, ROWS).astype(int))] if len(used) else used
        return rows, unseen[rows], np.ones(len(rows)) if weight is None else weight[rows]

    def _unseen_losses(self, X: Any, targets: np.ndarray, weight: Any, result: Fit) -> np.ndarray:
        """Compute the negative log likelihood of each row that members did not see, weighted."""
        raise NotImplementedError

    def _partial_fit(self, X: Any, targets: np.ndarray, weight: Any) -> Fit:
        """Train on new examples only, with data noise drawn once per example. The online bootstrap is Poisson(1)."""
        x = self._inputs(X)
        if not hasattr(self, "state_"):
            self.n_seen_, self.n_iter_ = 0, 0
            self.state_ = start(self.belief_, jax.random.key(self.stream_seed_), x)
        key_data, key_train = jax.random.split(jax.random.fold_in(jax.random.key(self.stream_seed_), self.n_seen_ + 1))
        data = form_data(
            self.belief_,
            self.state_,
            x,
            targets,
            key=key_data,
            noise=online(as_noise(self.noise)),
            sample_weight=weight,
            seen=self.n_seen_,
        )
        steps = positive_int("partial_steps", self.partial_steps)
        result = train(self.belief_, self.state_, data, key=key_train, steps=steps, batch_size=self.batch_size)
        self.state_ = result.state
        self.n_seen_ += len(targets)
        self.n_iter_ += steps
        self.best_step_ = self.n_iter_
        return result

    def _become(self, work: Any) -> Any:
        """Adopt the result of a complete fit; an interrupted fit leaves the estimator unchanged."""
        self.__dict__ = work.__dict__
        return self

    def _drawn_members(self, num_samples: int, random_state: Any) -> np.ndarray:
        """Draw members with replacement; by default the same draws for the same fit."""
        random = check_random_state(self.stream_seed_ if random_state is None else random_state)
        return random.randint(self.belief_.num_members, size=positive_int("num_samples", num_samples))

    def _chunks(self, X: Any, compute: Compute, combine: Combine) -> list[np.ndarray]:
        """Combine the members' predictions for X, over padded chunks of fixed size.

        `compute(belief, state, rows)` returns arrays [member, row, ...] and is compiled; `combine` reduces them to
        arrays [row, ...] on the host, in float64 and in a fixed order, so that a row does not depend on other rows.
        """
        n = X.shape[0]
        size = next((size for size in SIZES if n <= size), SIZES[-1])

        def chunk(start: int) -> list[np.ndarray]:
            rows = min(size, n - start)
            x = self._inputs(X[start : start + rows])
            padded = jax.tree.map(lambda leaf: np.pad(leaf, [(0, size - rows), (0, 0)], mode="edge"), x)
            said = (np.asarray(part).astype(np.float64) for part in compute(self.belief_, self.state_, padded))
            return [part[:rows] for part in combine(*said)]

        first, *others = range(0, n, size)
        parts = [chunk(first)]
        if others:  # compiled code releases the GIL, so threads use all cores
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                parts.extend(threads.map(chunk, others))
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def _member_outputs(self, X: Any, member: int | None) -> np.ndarray:
        """Compute the outputs of all members, or of one, on few rows with little overhead: [member, n, output, size].

        Rows are padded to a power of two, so that another number of rows rarely compiles anything.
        """
        if member is not None and not 0 <= member < self.belief_.num_members:
            raise ValueError(
                f"member={member!r} must be None or a whole number from 0 to {self.belief_.num_members - 1}, since "
                f"the ensemble has {self.belief_.num_members} members; pass another one, or fit with more num_members"
            )
        n = X.shape[0]
        size = max(LEAST, 1 << (n - 1).bit_length()) if n <= SIZES[-1] else -(-n // SIZES[-1]) * SIZES[-1]
        padded = jax.tree.map(lambda leaf: np.pad(leaf, [(0, size - n), (0, 0)], mode="edge"), self._inputs(X))
        state = (self.state_.params, self.state_.frozen)
        found = (
            all_outputs(self.belief_, state, padded)
            if member is None
            else outputs_of(self.belief_, state, padded, member)[None]
        )
        return np.asarray(found)[:, :n].astype(np.float64)

    def explain(self, X: Any, num_nearest: int = 5) -> list[Explanation]:
        """Explain what makes rows doubtful: the columns in which they are far from the training rows.

        Each row is compared with at most 512 training rows, a random sample that the model keeps. For each column,
        the nearest ones in the other columns show what its value usually is; columns are ordered by the doubt that
        would remain with that value. Distances weigh each column by how much predictions depend on it. It is made for
        few rows: the members are evaluated `num_nearest` times for each row and column. `print(model.explain(X)[0])`
        is an explanation in words.

        Args:
            X: Inputs [n, features], dense or sparse, or a data frame.
            num_nearest: Number of nearest training rows to compare with.

        Returns:
            An explanation of each row.

        Raises:
            ValueError: If X does not match the model, or has more than 1,000 columns.
        """
        positive_int("num_nearest", num_nearest)
        return explain(self, *self._with_values(X), min(num_nearest, len(self.anchors_)))

    def _doubt(self, X: np.ndarray) -> np.ndarray:
        """Compute one number of epistemic uncertainty for each row of features."""
        raise NotImplementedError

    def _centre(self, X: np.ndarray) -> np.ndarray:
        """Compute the mean prediction for each row of features, standardised or as probabilities [row, ...]."""
        raise NotImplementedError

    def save(self, path: Path | str) -> None:
        """Save the fitted estimator to one file of arrays and JSON, without pickle.

        Args:
            path: The file to write.

        Raises:
            NotFittedError: If the estimator is not fitted.
        """
        check_is_fitted(self, "state_")
        files.save(self, path)

    @classmethod
    def load(cls, path: Path | str, **own: Any) -> Any:
        """Load an estimator.

        Args:
            path: The file, written by `save`, or a folder that `priorax fit` wrote.
            **own: Networks, priors or noise that are custom code, by parameter name, as in `load(path, prior=...)`:
                code is not saved.

        Returns:
            The fitted estimator.

        Raises:
            BadFile: If the file is damaged or describes something invalid (`priorax.files.BadFile`).
            FileNotFoundError: If the file does not exist, or the folder has no model.
        """
        return files.load(cls, path, own)


def largest_plausible(losses: dict[float, np.ndarray]) -> float:
    """Choose the largest prior scale that rows near the data do not speak against.

    Such rows say little about the prior scale, since members agree there in any case, but far from the data doubt grows
    with it. So the largest scale is chosen whose mean loss exceeds the lowest one by at most one standard error of
    the difference.

    Args:
        losses: For each scale, in ascending order, the losses of the same rows.

    Returns:
        The scale.
    """
    best = losses[min(losses, key=lambda scale: float(np.mean(losses[scale])))]
    worse = {scale: found - best for scale, found in losses.items()}
    return max(scale for scale, gap in worse.items() if np.mean(gap) <= np.std(gap) / np.sqrt(len(gap)))
