"""The regressor."""

import copy
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.base import RegressorMixin

from priorax.beliefs import L2, Ensemble, State
from priorax.estimators.base import PriorEnsemble, Uncertainty, moments, outputs
from priorax.heads import Gaussian, Head, Scalar


class PriorEnsembleRegressor(RegressorMixin, PriorEnsemble):
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
    noise : data noise by name (none, bootstrap, poisson, double_or_nothing, exponential) or object; the scale of
        `Gaussian(scale)` is in units of the standardised target.
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
        super().__init__(
            num_members,
            hidden_widths=hidden_widths,
            prior=prior,
            prior_scale=prior_scale,
            noise=noise,
            network=network,
            l2=l2,
            standardize=standardize,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            validation_fraction=validation_fraction,
            patience=patience,
            partial_steps=partial_steps,
            random_state=random_state,
            verbose=verbose,
        )
        self.heteroscedastic = heteroscedastic

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
        work._start(X, y, weight)
        work._fit(X, work._targets(y), weight, work._head())
        return self._become(work)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PriorEnsembleRegressor":
        """Learn from new examples only; the first call fixes the standardisation."""
        fresh = not hasattr(self, "state_")
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, fresh, y_numeric=True, multi_output=True)
        if fresh:
            work._start(X, y, weight)
        work._partial_fit(X, work._targets(y), weight, work._head())
        return self._become(work)

    def _start(self, X: np.ndarray, y: np.ndarray, weight: Any) -> None:
        self._standardise(X, weight)
        columns = y.reshape(len(y), -1)
        self.flat_y_, self.n_outputs_ = y.ndim == 1, columns.shape[1]
        self.y_mean_, self.y_scale_ = moments(columns, self.standardize, weight)

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
        return self._flat(members[self._drawn_members(num_samples, random_state)])

    def _members(self, X: Any) -> np.ndarray:
        """Every member's mean on X, standardised: [member, n, output]."""
        return np.moveaxis(self._chunks(X, _member_values)[0], 0, 1).astype(np.float64)

    def _unscale(self, values: np.ndarray) -> np.ndarray:
        return values * self.y_scale_ + self.y_mean_

    def _flat(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self.flat_y_ else values


@jax.jit
def _member_values(belief: Ensemble, state: State, x: Any) -> tuple[Array]:
    values = jax.vmap(jax.vmap(jax.vmap(belief.head.value)))(outputs(belief, state, x))
    return (jnp.moveaxis(values, 0, 1),)


@jax.jit
def _regression_moments(belief: Ensemble, state: State, x: Any) -> tuple[Array, Array, Array]:
    """Mean, epistemic std (unbiased over members), aleatoric std (root of the mean variance): [row, output]."""
    out = outputs(belief, state, x)
    values = jax.vmap(jax.vmap(jax.vmap(belief.head.value)))(out)
    noise = jax.vmap(jax.vmap(jax.vmap(belief.head.noise)))(out)
    mean = jnp.mean(values, axis=0)
    std = jnp.sqrt(jnp.sum((values - mean) ** 2, axis=0) / max(belief.num_members - 1, 1))
    return mean, std, jnp.sqrt(jnp.mean(noise**2, axis=0))
