"""What regressor and classifier share: settings to belief, algorithm 1, prediction in chunks, files."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, no_type_check

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from priorax.beliefs import L2, Ensemble, State
from priorax.beliefs.base import Adam
from priorax.checks import non_negative, one_of, positive, positive_int
from priorax.estimators import files
from priorax.fitting import fit, form_data, train
from priorax.heads import Head
from priorax.networks import MLP, Network, Table, as_network
from priorax.priors import Constant, Linear, RandomFourier

ROWS = 4096
"""Rows per compiled call of predict, padded: a row's prediction does not depend on what else is asked for."""

PRIORS: dict[str, Network] = {"linear": Linear(), "fourier": RandomFourier(), "constant": Constant()}

OURS = (MLP, Table, Linear, RandomFourier, Constant)
"""Priors that see standardised X; any other is the user's own and sees X as it was given."""


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


class PriorEnsemble(BaseEstimator):
    """What regressor and classifier share; the subclasses' docstrings describe the settings."""

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

    def _belief(self, num_outputs: int, head: Head) -> Ensemble:
        if not isinstance(self.hidden_widths, tuple | list):
            raise ValueError(f"hidden_widths={self.hidden_widths!r} must be a tuple of widths, as (50, 50)")
        widths = tuple(positive_int("hidden_widths", width) for width in self.hidden_widths)
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
        network = self._finish(network)
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

    def _finish(self, network: Network) -> Network:
        """What the kind of target asks of the network."""
        return network

    def _raw_prior(self) -> bool:
        """Whether the prior is the user's own code, which sees X as it was given."""
        return self.prior is not None and not isinstance(self.prior, (str, *OURS))

    def _inputs(self, X: np.ndarray) -> Any:
        scaled = ((X - self.x_mean_) / self.x_scale_).astype(np.float32)
        return (scaled, X.astype(np.float32)) if self._raw_prior() else scaled

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _standardise(self, X: np.ndarray, weight: Any) -> None:
        self.x_mean_, self.x_scale_ = moments(X, self.standardize, weight)

    def _validated(self, X: Any, y: Any, sample_weight: Any, reset: bool, **y_checks: Any) -> tuple[Any, Any, Any]:
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, **y_checks)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        return X, y, weight

    def _fit(self, X: np.ndarray, targets: np.ndarray, weight: Any, head: Head) -> None:
        """Algorithm 1 from the start."""
        self.stream_seed_ = self._seed()
        belief = self._belief(targets.shape[1], head)
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
            progress=bool(self.verbose),
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
        self.__dict__ = work.__dict__
        return self

    def _drawn_members(self, num_samples: int, random_state: Any) -> np.ndarray:
        """Members drawn with replacement; the same for the same fit unless a random state says otherwise."""
        random = check_random_state(self.stream_seed_ if random_state is None else random_state)
        return random.randint(self.num_members, size=positive_int("num_samples", num_samples))

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
        files.save(self, path)

    @classmethod
    def load(cls, path: Path | str, **own: Any) -> Any:
        """Read what `save` wrote; a file that is damaged or describes what cannot be is a `priorax.storage.BadFile`. A
        network or prior that is your own code is passed again: `load(path, prior=...)`."""
        return files.load(cls, path, own)


def moments(columns: np.ndarray, standardize: bool, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column (one where it is constant), or 0 and 1."""
    if not standardize:
        return np.zeros(columns.shape[1]), np.ones(columns.shape[1])
    mean = np.average(columns, axis=0, weights=weight)
    scale = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight))
    return mean, np.where(scale > 1e-12 * np.maximum(1.0, np.abs(mean)), scale, 1.0)


@jax.jit
def outputs(belief: Ensemble, state: State, x: Any) -> Float[Array, "member row output size"]:
    """Member after member: one member's activations stay in the cache, and its products use all cores."""

    def member(parts: Any) -> Array:
        return jax.vmap(lambda row: belief.output(parts[0], parts[1], row))(x)

    return jax.lax.map(member, (state.params, state.frozen))
