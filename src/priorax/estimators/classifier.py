"""The classifier."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from scipy.special import entr, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from priorax.beliefs import L2, BeliefState, Ensemble
from priorax.estimators.base import Combine, PriorEnsemble, Uncertainty
from priorax.estimators.evaluating import mean_of, outputs
from priorax.estimators.far_field import Anchors, distance, nearness
from priorax.fitting import Fit
from priorax.heads import Classes, Head
from priorax.networks import Network


@dataclass(frozen=True)
class _Shut:
    """A network whose logits beyond the number of classes of each output are far below all others."""

    network: Network
    sizes: tuple[int, ...]

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Any:
        return self.network.init(key, x, num_out)

    def apply(self, params: Any, x: Any) -> Array:
        shut = np.arange(max(self.sizes)) >= np.array(self.sizes)[:, None]
        return self.network.apply(params, x) + jnp.where(jnp.asarray(shut.ravel()), -1e9, 0.0)


class PriorEnsembleClassifier(ClassifierMixin, PriorEnsemble):
    """Classification by an ensemble with randomized prior functions, which are added to the logits.

    `predict_proba` is the mean of the members' probabilities; `predict_uncertainty` splits its entropy into an
    epistemic part, which more data would reduce, and an aleatoric part, which it would not. X may be sparse. Only the
    ratios of `sample_weight` matter.

    Args:
        num_members: Number of ensemble members, K.
        hidden_widths: Units of each hidden layer.
        prior: Prior function: "network" (a random network with one hidden layer, as wide as the first, and random
            biases), "linear", "fourier" (draws of a Gaussian process), "constant", None, any network or (init, apply)
            pair, or `priorax.priors.Function(f)`. Built-in priors see standardised X; your own see X as passed.
        prior_scale: Scale of the prior functions (beta), in units of logits. "auto" fits with 0.3, 1, 3 and 10, which
            takes four times as long, and keeps the largest whose out-of-bag likelihood is within a standard error of
            the best; see `prior_scale_`. `partial_fit` takes "auto" as 1.
        noise: Data noise by name (none, bootstrap, poisson, double_or_nothing, exponential) or as an object.
        network: Trainable network; None is an MLP of `hidden_widths`.
        l2: Regularisation of the weights towards an anchor (`priorax.beliefs.L2`).
        base_rates: Whether probabilities tend to the base rates of the classes far from the training data, as a prior
            on the logits should make them: beyond the usual distance between training rows, they are mixed in with a
            weight that is 0.63 at twice and 0.98 at three times that distance.
        class_weight: Weights of the classes, as elsewhere in scikit-learn: None, "balanced", a dictionary from labels
            to weights, or a list of these for several outputs.
        encode: Whether X may have text, categories, dates and missing cells, as a data frame or an array of objects:
            missing numbers become the median and are flagged, text is one-hot encoded, and dates are days with their
            position in the year, the week and the day. Columns that tell nothing (ids, constants, names) are left out
            with a warning; see `encoding_` and `left_out_`. The first call of `partial_fit` fixes the encoding.
        standardize: Whether to scale X to mean 0 and standard deviation 1.
        steps: Maximum number of Adam steps.
        batch_size: Minibatch size; None trains on full batches.
        learning_rate: Learning rate of Adam.
        validation_fraction: Fraction of rows to hold out for early stopping, stratified by class, instead of
            out-of-bag rows.
        out_of_bag: Whether to select the number of steps by the log loss of the rows that the bootstrap leaves out of
            each member's data. Without it and `validation_fraction`, or with noise that leaves out no rows, all `steps`
            are taken.
        patience: Stop when the loss on rows that it did not see has not fallen for `patience` x 100 steps, and keep
            the best state.
        partial_steps: Number of steps per call of `partial_fit`.
        random_state: Seed; an int makes results bitwise reproducible.
        verbose: Whether to show a progress bar.
    """

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
        class_weight: Any = None,
        base_rates: bool = True,
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
        super().__init__(
            num_members,
            hidden_widths=hidden_widths,
            prior=prior,
            prior_scale=prior_scale,
            noise=noise,
            network=network,
            l2=l2,
            encode=encode,
            standardize=standardize,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            validation_fraction=validation_fraction,
            out_of_bag=out_of_bag,
            patience=patience,
            partial_steps=partial_steps,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight
        self.base_rates = base_rates

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _head(self) -> Head:
        return Classes(max(len(labels) for labels in self._labels()))

    def _finish(self, network: Network) -> Network:
        """Mask the logits of classes that an output does not have: numbers of classes may differ between outputs."""
        sizes = tuple(len(labels) for labels in self._labels())
        return network if len(set(sizes)) == 1 else _Shut(network, sizes)

    def _labels(self) -> list[np.ndarray]:
        return [np.asarray(self.classes_)] if self.flat_y_ else list(self.classes_)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PriorEnsembleClassifier":
        """Fit the ensemble.

        Args:
            X: Inputs [n, features], dense or sparse.
            y: Labels [n] or [n, outputs].
            sample_weight: Weights [n]; None weighs all rows equally.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If a parameter or the data is invalid.
            NonFiniteLoss: If training diverges.
        """
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, True, multi_output=True)
        check_classification_targets(y)
        work._start(X, y, None, weight)
        targets = work._targets(y)
        weight = work._class_weighted(targets, weight)
        weight = None if weight is None else weight / np.mean(weight)
        work._see_rows(X, targets, weight)
        work._fit(X, targets, weight)
        return self._become(work)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "PriorEnsembleClassifier":
        """Train on new examples only; each call takes `partial_steps` steps. The first call fixes the standardisation.

        Args:
            X: Inputs [n, features], dense or sparse.
            y: Labels [n] or [n, outputs].
            classes: All labels that may occur; required on the first call. A list of arrays for several outputs.
            sample_weight: Weights [n]; None weighs all rows equally.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If a parameter or the data is invalid, or `classes` is missing or changed.
            NonFiniteLoss: If training diverges.
        """
        fresh = not hasattr(self, "state_")
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, fresh, multi_output=True)
        check_classification_targets(y)
        if fresh:
            if classes is None:
                raise ValueError("classes=None on the first call of partial_fit; pass every label that may occur")
            work._start(X, y, classes, weight)
        elif classes is not None and not _same_labels(self._labels(), [classes] if self.flat_y_ else classes):
            raise ValueError(f"classes={classes!r} differ from those of the first call; pass the same or None")
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all examples at once; for partial_fit pass a dictionary, "
                "for example from sklearn.utils.class_weight.compute_class_weight"
            )
        targets = work._targets(y)
        weight = work._class_weighted(targets, weight)
        work._see_rows(X, targets, weight)
        work._partial_fit(X, targets, weight)
        return self._become(work)

    def _start(self, X: Any, y: np.ndarray, classes: Any, weight: Any) -> None:
        columns = _label_columns(y)
        self.flat_y_ = columns.shape[1] == 1 and type_of_target(y) in ("binary", "multiclass")
        self.n_outputs_ = columns.shape[1]
        if classes is None:
            labels = [np.unique(column) for column in columns.T]
        else:
            labels = [np.unique(part) for part in ([classes] if self.flat_y_ else classes)]
        self.classes_: Any = labels[0] if self.flat_y_ else labels
        self.__dict__.pop("class_totals_", None)
        self._begin(X, self.n_outputs_, self._head(), weight)

    def _see_rows(self, X: Any, targets: np.ndarray, weight: Any) -> None:
        """Count the classes, and keep a sample of the rows, to know what is far from them."""
        used = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
        if not hasattr(self, "class_totals_"):
            self.to_base_rates_ = bool(self.base_rates)
            self.class_totals_ = np.zeros((self.n_outputs_, max(len(labels) for labels in self._labels())))
        share = np.ones(len(used)) if weight is None else weight[used]
        self.class_totals_ = self.class_totals_ + np.stack(
            [np.bincount(column[used], share, self.class_totals_.shape[1]) for column in targets.T]
        )
        self._keep_anchors(X, weight)
        self.radius_ = Anchors(self.anchors_, self.anchor_rank_).radius()

    def _rates(self) -> np.ndarray:
        """Get the base rates [output, class], with one example added to each class; zero for classes that are not."""
        known = np.arange(self.class_totals_.shape[1]) < np.array([[len(labels)] for labels in self._labels()])
        totals = self.class_totals_ + known
        return totals / totals.sum(axis=1, keepdims=True)

    def _proba(self, X: Any, combine: Combine) -> list[np.ndarray]:
        """Combine the members' probabilities, the base rates and the weight of the former, over chunks of rows."""
        rates, far = self._rates(), self.to_base_rates_
        anchors = Anchors(self.anchors_, self.anchor_rank_).padded()

        def compute(belief: Ensemble, state: BeliefState, x: Any) -> tuple[Array, Array]:
            return _logits(belief, state, x), distance(anchors, x[0] if self._sees_raw() else x)

        def mixed(logits: np.ndarray, gap: np.ndarray) -> Sequence[np.ndarray]:
            near = nearness(gap, self.radius_) if far else np.ones_like(gap)
            return combine(softmax(logits, axis=-1), rates, near[:, None, None])

        return self._chunks(X, compute, mixed)

    def _unseen_losses(self, X: Any, targets: np.ndarray, weight: Any, result: Fit) -> np.ndarray:
        rows, unseen, share = self._unseen_rows(X, weight, result)
        members = np.moveaxis(self._proba(X[rows], _all_proba)[0], 0, 1)
        used = unseen.T[..., None, None] / np.maximum(unseen.sum(axis=1), 1)[:, None, None]
        proba = np.take_along_axis(np.sum(used * members, axis=0), targets[rows][..., None], axis=-1)[..., 0]
        least = np.finfo(np.float32).tiny
        return share * unseen.any(axis=1) * -np.log(np.maximum(proba, least)).sum(axis=1)

    def _class_weighted(self, targets: np.ndarray, weight: Any) -> Any:
        """Multiply sample weights by class weights, which have mean one over classes, for every output."""
        if self.class_weight is None:
            return weight
        several = isinstance(self.class_weight, list | tuple)
        of_outputs = list(self.class_weight) if several else [self.class_weight] * self.n_outputs_
        if len(of_outputs) != self.n_outputs_:
            raise ValueError(
                f"class_weight has {len(of_outputs)} entries, but y has {self.n_outputs_} outputs; pass one per output"
            )
        result = np.ones(len(targets)) if weight is None else weight
        for column, known, given in zip(targets.T, self._labels(), of_outputs, strict=True):
            of_class = compute_class_weight(given, classes=known, y=known[column])
            if not (np.all(np.isfinite(of_class)) and np.all(of_class >= 0) and np.any(of_class[column] > 0)):
                raise ValueError(
                    f"class_weight={given!r} gives weights {of_class}; each must be finite and at least 0, and some "
                    "class in y must have one above 0"
                )
            result = result * (of_class / np.mean(of_class))[column]
        return result

    def _targets(self, y: np.ndarray) -> np.ndarray:
        columns, labels = _label_columns(y), self._labels()
        if columns.shape[1] != self.n_outputs_:
            raise ValueError(
                f"y has {columns.shape[1]} outputs, but the first call had {self.n_outputs_}; pass as many"
            )
        for column, known in zip(columns.T, labels, strict=True):
            unknown = np.setdiff1d(column, known)
            if len(unknown):
                raise ValueError(f"y has labels {unknown[:5]} that are not in classes; pass them on the first call")
        return np.stack([np.searchsorted(k, c) for c, k in zip(columns.T, labels, strict=True)], axis=1).astype(
            np.int32
        )

    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities: the mean over members.

        Args:
            X: Inputs [n, features], dense or sparse.

        Returns:
            Probabilities [n, classes]; a list of these for several outputs.
        """
        return self._shown(X, self._per_output(self._proba(self._asked(X), _mean_proba)[0]))

    def predict_log_proba(self, X: Any) -> Any:
        """Predict the logarithm of the class probabilities.

        Args:
            X: Inputs [n, features], dense or sparse.

        Returns:
            Logarithms of `predict_proba(X)`.
        """
        proba = self.predict_proba(X)
        with np.errstate(divide="ignore"):  # np.log keeps data frames
            return np.log(proba) if self.flat_y_ else [np.log(part) for part in proba]

    def predict(self, X: Any) -> Any:
        """Predict the label with the highest mean probability.

        Args:
            X: Inputs [n, features], dense or sparse.

        Returns:
            Labels [n] or [n, outputs].
        """
        proba = self._per_output(self._proba(self._asked(X), _mean_proba)[0])
        names = self._output_names(self.n_outputs_)
        if self.flat_y_:
            return self._said(X, self.classes_[np.argmax(proba, axis=1)], names)
        columns = [known[np.argmax(p, axis=1)] for p, known in zip(proba, self.classes_, strict=True)]
        return self._said(X, np.stack(columns, axis=1), names)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Predict class probabilities and their uncertainty in nats.

        Far from the training data the uncertainty of the base rates is epistemic: any class may be certain there.

        Args:
            X: Inputs [n, features], dense or sparse.

        Returns:
            Mean probabilities, mutual information (epistemic), mean entropy (aleatoric) and entropy of the mean
            (total).
        """
        proba, aleatoric, total = self._proba(self._asked(X), _class_moments)
        parts = (np.maximum(total - aleatoric, 0.0), aleatoric, total)
        names = self._output_names(self.n_outputs_)
        shown = (self._said(X, part[:, 0] if self.flat_y_ else part, names) for part in parts)
        return Uncertainty(self._shown(X, self._per_output(proba)), *shown)

    def sample(self, X: Any, num_samples: int = 1, random_state: Any = None) -> Any:
        """Predict with members drawn at random, with replacement.

        Args:
            X: Inputs [n, features], dense or sparse.
            num_samples: Number of draws.
            random_state: Seed of the draws; None gives the same draws for the same fit.

        Returns:
            Probabilities [num_samples, n, classes]; a list of these for several outputs.
        """
        members = np.moveaxis(self._proba(self._asked(X), _all_proba)[0], 0, 1)
        return self._per_output(members[self._drawn_members(num_samples, random_state)])

    def members(self, X: Any, member: int | None = None) -> Any:
        """Predict with each member, or with one: what decisions draw from.

        These are the members' own functions: base rates are not mixed in far from the data, where members that differ
        are what exploration needs. It is made for few rows at a time.

        Args:
            X: Inputs [n, features], dense or sparse.
            member: Number of the member, from 0; None evaluates all of them.

        Returns:
            Probabilities [members, n, classes], of one member [n, classes]; a list of these for several outputs.

        Raises:
            ValueError: If there is no such member, or X does not match the model.
        """
        proba = softmax(self._member_outputs(self._asked(X), member), axis=-1)
        return self._per_output(proba if member is None else proba[0])

    def _doubt(self, X: np.ndarray) -> np.ndarray:
        _, aleatoric, total = self._proba(X, _class_moments)
        return np.maximum(total - aleatoric, 0.0).sum(axis=1)

    def _centre(self, X: np.ndarray) -> np.ndarray:
        return self._proba(X, _mean_proba)[0]

    def _shown(self, X: Any, proba: Any) -> Any:
        """Convert probabilities for the rows of X, or a list of them for several outputs, to what is returned."""
        if self.flat_y_:
            return self._said(X, proba, self.classes_)
        return [self._said(X, part, known) for part, known in zip(proba, self.classes_, strict=True)]

    def _per_output(self, proba: np.ndarray) -> Any:
        """Split [..., output, class] into one array per output, with its own classes; rows sum to one exactly."""
        parts = []
        for i, known in enumerate(self._labels()):
            part = proba[..., i, : len(known)]
            parts.append(part / part.sum(axis=-1, keepdims=True))
        return parts[0] if self.flat_y_ else parts


def _label_columns(y: np.ndarray) -> np.ndarray:
    return np.asarray(y).reshape(len(y), -1)


def _same_labels(known: Any, given: Any) -> bool:
    return len(known) == len(given) and all(np.array_equal(a, np.unique(b)) for a, b in zip(known, given, strict=True))


@jax.jit
def _logits(belief: Ensemble, state: BeliefState, x: Any) -> Array:
    """Compute the logits of every member, [member, row, output, class]."""
    return outputs(belief, state, x)


def _all_proba(proba: np.ndarray, rates: np.ndarray, near: np.ndarray) -> tuple[np.ndarray]:
    return (np.moveaxis(near * proba + (1 - near) * rates, 0, 1),)


def _mean_proba(proba: np.ndarray, rates: np.ndarray, near: np.ndarray) -> tuple[np.ndarray]:
    return (near * mean_of(proba) + (1 - near) * rates,)


def _class_moments(proba: np.ndarray, rates: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute mean probabilities [row, output, class], mean entropy and entropy of the mean [row, output].

    The part of the base rates has no entropy of its own: it stands for functions that are each certain of a class.
    """
    (mean,) = _mean_proba(proba, rates, near)
    return mean, near[..., 0] * mean_of(_entropy(proba)), _entropy(mean)


def _entropy(p: np.ndarray) -> np.ndarray:
    return entr(p).sum(axis=-1)
