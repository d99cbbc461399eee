"""The scikit-learn face of algorithm 1.

PriorEnsembleRegressor().fit(X, y).predict(X, return_std=True)
"""

import copy
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from priorax import storage
from priorax.beliefs import L2, Ensemble, State
from priorax.beliefs.base import Adam
from priorax.checks import non_negative, one_of, positive, positive_int
from priorax.fitting import fit, form_data, train
from priorax.heads import Classes, Gaussian, Head, Scalar
from priorax.networks import MLP, Network, Pair, as_network
from priorax.priors import Constant, Function, Linear, RandomFourier
from priorax.progress import steps_bar

ROWS = 4096
"""Rows per compiled call of predict, padded: a row's prediction does not depend on what else is asked for."""

PRIORS: dict[str, Network] = {"linear": Linear(), "fourier": RandomFourier(), "constant": Constant()}


class Uncertainty(NamedTuple):
    """What a prediction is made of. Regression: standard deviations, total² = epistemic² + aleatoric².
    Classification: nats, total = epistemic + aleatoric (entropy of the mean; mutual information; mean entropy)."""

    mean: np.ndarray
    epistemic: np.ndarray
    aleatoric: np.ndarray
    total: np.ndarray


@dataclass(frozen=True)
class _Part:
    """A network that looks at one part of the input: members see standardised X, a user's own prior raw X."""

    network: Network
    part: int

    def init(self, key: PRNGKeyArray, x: Any, num_out: int) -> Any:
        return self.network.init(key, x[self.part], num_out)

    def apply(self, params: Any, x: Any) -> Array:
        return self.network.apply(params, x[self.part])


class _PriorEnsemble(BaseEstimator):
    """What regressor and classifier share; the subclasses' docstrings describe the settings."""

    num_members: int
    standardize: bool
    heteroscedastic: bool

    def _belief(self, num_outputs: int, head: Head) -> Ensemble:
        widths = tuple(self.hidden_widths)
        network = MLP(widths) if self.network is None else as_network(self.network)
        prior: Network | None
        if self.prior is None:
            prior = None
        elif isinstance(self.prior, str):
            own = MLP(widths[:1], bias_scale=1.0)
            prior = {"network": own, **PRIORS}[one_of("prior", self.prior, ["network", *PRIORS])]
        else:
            prior = as_network(self.prior)
        if self._raw_prior():
            assert prior is not None
            network, prior = _Part(network, 0), _Part(prior, 1)
        return Ensemble(
            num_members=positive_int("num_members", self.num_members),
            network=network,
            prior=prior,
            prior_scale=non_negative("prior_scale", self.prior_scale),
            l2=self.l2,
            head=head,
            num_outputs=num_outputs,
            optimizer=Adam(positive("learning_rate", self.learning_rate)),
        )

    def _raw_prior(self) -> bool:
        """Whether the prior is the user's own code, which sees X as it was given."""
        return isinstance(self.prior, Function | Pair | tuple)

    def _inputs(self, X: np.ndarray) -> Any:
        scaled = ((X - self.x_mean_) / self.x_scale_).astype(np.float32)
        return (scaled, X.astype(np.float32)) if self._raw_prior() else scaled

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _standardise(self, X: np.ndarray) -> None:
        self.x_mean_, self.x_scale_ = _moments(X, self.standardize)

    def _validated(self, X: Any, y: Any, sample_weight: Any, reset: bool, **y_checks: Any) -> tuple[Any, Any, Any]:
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, **y_checks)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        return X, y, weight

    def _fit(self, X: np.ndarray, targets: np.ndarray, weight: Any, head: Head) -> None:
        """Algorithm 1 from the start."""
        self.stream_seed_ = self._seed()
        belief = self._belief(targets.shape[1], head)
        with steps_bar(self.verbose, self.steps, "fit") as progress:
            result = fit(
                belief,
                (self._inputs(X), targets),
                key=jax.random.key(self.stream_seed_),
                noise=self.noise,
                sample_weight=weight,
                steps=self.steps,
                batch_size=self.batch_size,
                validation_fraction=self.validation_fraction,
                patience=self.patience,
                progress=progress,
            )
        self.belief_, self.state_ = belief, result.state
        self.n_iter_ = len(result.losses)
        self.loss_curve_ = result.losses.mean(axis=1)
        self.n_seen_ = len(X)

    def _partial_fit(self, X: np.ndarray, targets: np.ndarray, weight: Any, head: Head) -> None:
        """Steps on new examples only; each gets its data noise once. The online bootstrap is Poisson(1)."""
        x = self._inputs(X)
        if not hasattr(self, "state_"):
            self.stream_seed_, self.n_seen_, self.n_iter_ = self._seed(), 0, 0
            self.belief_ = self._belief(targets.shape[1], head)
            first = jax.tree.map(lambda leaf: leaf[0], x)
            self.state_ = jax.jit(self.belief_.init)(jax.random.key(self.stream_seed_), first)
        key_data, key_train = jax.random.split(jax.random.fold_in(jax.random.key(self.stream_seed_), self.n_seen_ + 1))
        noise = "poisson" if isinstance(self.noise, str) and self.noise == "bootstrap" else self.noise
        data = form_data(
            self.belief_,
            self.state_,
            x,
            targets,
            key=key_data,
            noise=noise,
            sample_weight=weight,
            seen=self.n_seen_,
        )
        steps = positive_int("partial_steps", self.partial_steps)
        result = train(self.belief_, self.state_, data, key=key_train, steps=steps, batch_size=self.batch_size)
        self.state_ = result.state
        self.n_seen_ += len(X)
        self.n_iter_ += steps

    def _become(self, work: Any) -> Any:
        """Take over a finished fit, all at once: an interrupted one leaves the estimator as it was."""
        self.__dict__.update(work.__dict__)
        return self

    def _chunks(self, X: Any, compute: Any) -> list[np.ndarray]:
        """`compute(belief, state, rows)` over padded chunks of fixed size; each result [row, ...], concatenated."""
        check_is_fitted(self, "state_")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        x = self._inputs(X)

        def chunk(start: int) -> list[np.ndarray]:
            rows = min(ROWS, len(X) - start)
            padded = jax.tree.map(lambda leaf: np.pad(leaf[start : start + rows], [(0, ROWS - rows), (0, 0)]), x)
            return [np.asarray(part)[:rows] for part in compute(self.belief_, self.state_, padded)]

        first, *others = range(0, len(X), ROWS)
        parts = [chunk(first)]
        if others:  # compiled code runs outside the interpreter's lock, so threads use all cores
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                parts.extend(threads.map(chunk, others))
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def save(self, path: Path | str) -> None:
        """Write the fitted estimator to one file: arrays and JSON, no pickle. See `load`."""
        check_is_fitted(self, "state_")
        params = {name: storage.describe(value, name) for name, value in self.get_params(deep=False).items()}
        if not isinstance(self.random_state, int | None):
            params["random_state"] = None
        fitted = {name: storage.describe(getattr(self, name)) for name in sorted(vars(self)) if self._is_plain(name)}
        description = {"params": params, "fitted": fitted}
        storage.write(path, storage.Content(type(self).__name__, description, storage.state_arrays(self.state_)))

    @staticmethod
    def _is_plain(name: str) -> bool:
        return name.endswith("_") and not name.startswith("_") and name not in ("state_", "belief_")

    @classmethod
    def load(cls, path: Path | str, **own: Any) -> Any:
        """Read what `save` wrote. A network or prior that is your own code is passed again: `load(path, prior=...)`."""
        content = storage.read(path)
        if content.kind != cls.__name__:
            raise storage.BadFile(f"{path} holds a {content.kind}, not a {cls.__name__}; load it with that class")
        params = {name: storage.rebuild(value, own) for name, value in content.description["params"].items()}
        self = cls(**params)
        for name, value in content.description["fitted"].items():
            setattr(self, name, storage.rebuild(value, own))
        self.belief_ = self._belief(self.n_outputs_, self._head())
        example = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], self._inputs(np.zeros((1, self.n_features_in_))))
        self.state_ = storage.restore_state(self.belief_, example, content.arrays)
        return self


class PriorEnsembleRegressor(RegressorMixin, _PriorEnsemble):
    """Regression by an ensemble with randomized prior functions: predictions, and how sure they are.

    `predict(X, return_std=True)` gives the *epistemic* standard deviation: how far the members' means disagree, what
    more data would remove. It does not hold the noise of single measurements; for that set `heteroscedastic=True`
    and ask `predict_uncertainty`.

    Parameters
    ----------
    num_members : K, how many members.
    hidden_widths : units of each hidden layer.
    prior : "network" (a random network with one hidden layer, as wide as the first, and random biases), "linear",
        "fourier" (draws of a Gaussian process), "constant", None, any network or (init, apply) pair, or `Function(f)`.
        Ours see standardised X; your own see raw X.
    prior_scale : beta, in units of the standardised target.
    noise : data noise by name (none, bootstrap, poisson, double_or_nothing, exponential) or object.
    network : the trainable function, if not an MLP of `hidden_widths`.
    l2 : a pull of the weights towards an anchor (`priorax.beliefs.L2`).
    heteroscedastic : learn the noise as a function of X.
    standardize : scale X and y to mean 0 and standard deviation 1 inside.
    steps, batch_size, learning_rate : of Adam; batch_size None is full batch.
    validation_fraction, patience : stop when the loss on a held-out share has not fallen for `patience` x 100 steps.
    partial_steps : steps per call of `partial_fit`.
    random_state : an int makes everything reproducible to the bit.
    verbose : show a progress bar.
    """

    @no_type_check  # scikit-learn: constructors store anything, fit complains
    def __init__(
        self,
        num_members: int = 20,
        *,
        hidden_widths: tuple[int, ...] = (50, 50),
        prior: Any = "network",
        prior_scale: float = 1.0,
        noise: Any = "bootstrap",
        network: Any = None,
        l2: L2 | None = None,
        heteroscedastic: bool = False,
        standardize: bool = True,
        steps: int = 2000,
        batch_size: int | None = 128,
        learning_rate: float = 1e-3,
        validation_fraction: float | None = None,
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
        self.heteroscedastic = heteroscedastic
        self.standardize = standardize
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.partial_steps = partial_steps
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _head(self) -> Head:
        return Gaussian() if self.heteroscedastic else Scalar()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PriorEnsembleRegressor":
        """Fit to X [n, features] and y [n] or [n, outputs]."""
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, True, y_numeric=True, multi_output=True)
        work._start(X, y)
        work._fit(X, work._targets(y), weight, work._head())
        return self._become(work)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PriorEnsembleRegressor":
        """Learn from new examples only; the first call fixes the standardisation."""
        fresh = not hasattr(self, "state_")
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, fresh, y_numeric=True, multi_output=True)
        if fresh:
            work._start(X, y)
        work._partial_fit(X, work._targets(y), weight, work._head())
        return self._become(work)

    def _start(self, X: np.ndarray, y: np.ndarray) -> None:
        self._standardise(X)
        columns = y.reshape(len(y), -1)
        self.flat_y_, self.n_outputs_ = y.ndim == 1, columns.shape[1]
        self.y_mean_, self.y_scale_ = _moments(columns, self.standardize)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        columns = y.reshape(len(y), -1)
        if columns.shape[1] != self.n_outputs_:
            raise ValueError(f"y has {columns.shape[1]} outputs, but the first call had {self.n_outputs_}; keep them")
        return ((columns - self.y_mean_) / self.y_scale_).astype(np.float32)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean over members; with `return_std` also the epistemic standard deviation, with `return_cov` the
        epistemic covariance between the rows of X ([n, n], or [n, n, outputs])."""
        if return_std and return_cov:
            raise ValueError("return_std=True and return_cov=True at once; ask for one of them")
        if return_cov:
            members = self._members(X)
            centred = members - members.mean(axis=0)
            cov = np.einsum("knj,kmj->nmj", centred, centred) / max(self.num_members - 1, 1)
            return self._flat(self._unscale(members.mean(axis=0))), self._flat(cov * self.y_scale_**2)
        mean, std, _ = self._chunks(X, _regression_moments)
        mean = self._flat(self._unscale(mean))
        return (mean, self._flat(std * self.y_scale_)) if return_std else mean

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Mean, epistemic, aleatoric and total standard deviation. Needs `heteroscedastic=True`."""
        if not self.heteroscedastic:
            raise ValueError(
                "heteroscedastic=False learns no noise; set heteroscedastic=True for aleatoric uncertainty"
            )
        mean, epistemic, aleatoric = self._chunks(X, _regression_moments)
        epistemic, aleatoric = epistemic * self.y_scale_, aleatoric * self.y_scale_
        total = np.sqrt(epistemic**2 + aleatoric**2)
        return Uncertainty(*map(self._flat, (self._unscale(mean), epistemic, aleatoric, total)))

    def sample(self, X: Any, num_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Whole functions drawn from the ensemble, on X: [num_samples, n] or [num_samples, n, outputs]."""
        members = self._unscale(self._members(X))
        chosen = check_random_state(random_state).randint(
            self.num_members, size=positive_int("num_samples", num_samples)
        )
        return self._flat(members[chosen])

    def _members(self, X: Any) -> np.ndarray:
        """Every member's mean on X, standardised: [member, n, output]."""
        return np.moveaxis(self._chunks(X, _member_values)[0], 0, 1).astype(np.float64)

    def _unscale(self, values: np.ndarray) -> np.ndarray:
        return values * self.y_scale_ + self.y_mean_

    def _flat(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self.flat_y_ else values


class PriorEnsembleClassifier(ClassifierMixin, _PriorEnsemble):
    """Classification by an ensemble with randomized prior functions, which are added to the logits.

    `predict_proba` is the mean of the members' probabilities; `predict_uncertainty` parts its entropy into what more
    data would remove (epistemic) and what it would not. `prior_scale` is in units of logits; the other settings are
    those of `PriorEnsembleRegressor`.
    """

    @no_type_check  # scikit-learn: constructors store anything, fit complains
    def __init__(
        self,
        num_members: int = 20,
        *,
        hidden_widths: tuple[int, ...] = (50, 50),
        prior: Any = "network",
        prior_scale: float = 1.0,
        noise: Any = "bootstrap",
        network: Any = None,
        l2: L2 | None = None,
        standardize: bool = True,
        steps: int = 2000,
        batch_size: int | None = 128,
        learning_rate: float = 1e-3,
        validation_fraction: float | None = None,
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
        self.standardize = standardize
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.partial_steps = partial_steps
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags

    def _head(self) -> Head:
        return Classes(max(len(labels) for labels in self._labels()))

    def _labels(self) -> list[np.ndarray]:
        return [np.asarray(self.classes_)] if self.flat_y_ else list(self.classes_)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PriorEnsembleClassifier":
        """Fit to X [n, features] and labels y [n] or [n, outputs]."""
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, True, multi_output=True)
        check_classification_targets(y)
        work._start(X, y, None)
        work._fit(X, work._targets(y), weight, work._head())
        return self._become(work)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "PriorEnsembleClassifier":
        """Learn from new examples only; the first call needs all `classes` (a list of arrays for several outputs)."""
        fresh = not hasattr(self, "state_")
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, fresh, multi_output=True)
        check_classification_targets(y)
        if fresh:
            if classes is None:
                raise ValueError("classes=None on the first call of partial_fit; pass every label that may come")
            work._start(X, y, classes)
        work._partial_fit(X, work._targets(y), weight, work._head())
        return self._become(work)

    def _start(self, X: np.ndarray, y: np.ndarray, classes: Any) -> None:
        self._standardise(X)
        columns = _label_columns(y)
        self.flat_y_ = columns.shape[1] == 1 and type_of_target(y) in ("binary", "multiclass")
        self.n_outputs_ = columns.shape[1]
        if classes is None:
            labels = [np.unique(column) for column in columns.T]
        else:
            labels = [np.unique(part) for part in ([classes] if self.flat_y_ else classes)]
        self.classes_: Any = labels[0] if self.flat_y_ else labels

    def _targets(self, y: np.ndarray) -> np.ndarray:
        columns, labels = _label_columns(y), self._labels()
        for column, known in zip(columns.T, labels, strict=True):
            unknown = np.setdiff1d(column, known)
            if len(unknown):
                raise ValueError(f"y holds labels {unknown[:5]} that are not in classes; pass them on the first call")
        return np.stack([np.searchsorted(k, c) for c, k in zip(columns.T, labels, strict=True)], axis=1).astype(
            np.int32
        )

    def predict_proba(self, X: Any) -> Any:
        """The mean of the members' probabilities, [n, classes]; a list of these for several outputs."""
        return self._per_output(self._chunks(X, _class_moments)[0])

    def predict(self, X: Any) -> np.ndarray:
        """The label with the highest mean probability."""
        proba = self.predict_proba(X)
        if self.flat_y_:
            return self.classes_[np.argmax(proba, axis=1)]
        columns = [known[np.argmax(p, axis=1)] for p, known in zip(proba, self.classes_, strict=True)]
        return np.stack(columns, axis=1)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Mean probabilities, and in nats: mutual information, mean entropy, entropy of the mean."""
        proba, aleatoric, total = self._chunks(X, _class_moments)
        parts = (np.maximum(total - aleatoric, 0.0), aleatoric, total)
        return Uncertainty(self._per_output(proba), *(part[:, 0] if self.flat_y_ else part for part in parts))

    def sample(self, X: Any, num_samples: int = 1, random_state: Any = None) -> Any:
        """Probabilities by members drawn at random: [num_samples, n, classes], or a list of these."""
        members = np.moveaxis(self._chunks(X, _member_proba)[0], 0, 1)
        chosen = check_random_state(random_state).randint(
            self.num_members, size=positive_int("num_samples", num_samples)
        )
        return self._per_output(members[chosen])

    def _per_output(self, proba: np.ndarray) -> Any:
        """[..., output, class] as one array per output, with that output's own classes."""
        parts = []
        for i, known in enumerate(self._labels()):
            own = proba[..., i, : len(known)].astype(np.float64)
            parts.append(own / own.sum(axis=-1, keepdims=True))
        return parts[0] if self.flat_y_ else parts


def _moments(columns: np.ndarray, standardize: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column (one where it is constant), or 0 and 1."""
    if not standardize:
        return np.zeros(columns.shape[1]), np.ones(columns.shape[1])
    scale = columns.std(axis=0)
    return columns.mean(axis=0), np.where(scale > 1e-12 * np.maximum(1.0, np.abs(columns).max(axis=0)), scale, 1.0)


def _label_columns(y: np.ndarray) -> np.ndarray:
    return np.asarray(y).reshape(len(y), -1)


@jax.jit
def _outputs(belief: Ensemble, state: State, x: Any) -> Float[Array, "member row output size"]:
    """Member after member: one member's activations stay in the cache, and its products use all cores."""

    def member(parts: Any) -> Array:
        return jax.vmap(lambda row: belief.output(parts[0], parts[1], row))(x)

    return jax.lax.map(member, (state.params, state.frozen))


@jax.jit
def _member_values(belief: Ensemble, state: State, x: Any) -> tuple[Array]:
    values = jax.vmap(jax.vmap(jax.vmap(belief.head.value)))(_outputs(belief, state, x))
    return (jnp.moveaxis(values, 0, 1),)


@jax.jit
def _regression_moments(belief: Ensemble, state: State, x: Any) -> tuple[Array, Array, Array]:
    """Mean, epistemic std (unbiased over members), aleatoric std (root of the mean variance): [row, output]."""
    out = _outputs(belief, state, x)
    values = jax.vmap(jax.vmap(jax.vmap(belief.head.value)))(out)
    noise = jax.vmap(jax.vmap(jax.vmap(belief.head.noise)))(out)
    mean = jnp.mean(values, axis=0)
    std = jnp.sqrt(jnp.sum((values - mean) ** 2, axis=0) / max(belief.num_members - 1, 1))
    return mean, std, jnp.sqrt(jnp.mean(noise**2, axis=0))


@jax.jit
def _member_proba(belief: Ensemble, state: State, x: Any) -> tuple[Array]:
    return (jnp.moveaxis(jax.nn.softmax(_outputs(belief, state, x)), 0, 1),)


@jax.jit
def _class_moments(belief: Ensemble, state: State, x: Any) -> tuple[Array, Array, Array]:
    """Mean probabilities [row, output, class]; mean entropy and entropy of the mean [row, output]."""
    proba = jax.nn.softmax(_outputs(belief, state, x))
    mean = jnp.mean(proba, axis=0)
    return mean, jnp.mean(_entropy(proba), axis=0), _entropy(mean)


def _entropy(p: Array) -> Array:
    return jnp.sum(jax.scipy.special.entr(p), axis=-1)
