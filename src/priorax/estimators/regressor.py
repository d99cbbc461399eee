"""The regressor."""

import copy
import warnings
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.base import RegressorMixin

from priorax.beliefs import L2, BeliefState, Ensemble
from priorax.checks import fraction, one_of
from priorax.estimators.base import PriorEnsemble, Uncertainty
from priorax.estimators.evaluating import mean_of, outputs
from priorax.estimators.out_of_bag import (
    INTERVAL_METHODS,
    ROWS,
    OutOfBag,
    conformal_quantile,
    jackknife_after_bootstrap,
    log_loss,
    noise_scale,
    out_of_bag,
    rows_for,
    scores,
)
from priorax.estimators.standardising import moments, standardised
from priorax.fitting import Fit
from priorax.heads import Gaussian, Head, Scalar

BETA = 0.5
"""Exponent of the predicted variance that weighs examples while the noise is learned (`heads.Gaussian.beta`)."""


class PriorEnsembleRegressor(RegressorMixin, PriorEnsemble):
    """Regression by an ensemble with randomized prior functions, with uncertainty estimates.

    `predict(X, return_std=True)` returns the *epistemic* standard deviation: the disagreement between the members,
    which more data would reduce. It does not include the noise of single measurements; `predict_uncertainty` and
    `predict_interval` do. The number of steps and the noise are found from the rows that the bootstrap leaves out of
    each member's data (out-of-bag), so that no rows need to be held out.

    X may be sparse. Networks see dense float32 numbers, so fitting takes several times 4 bytes x rows x features, as
    for dense X; predicting converts 4,096 rows at a time. Only the ratios of `sample_weight` matter. `set_params`
    after `fit` has no effect before the next `fit`; `partial_fit` continues with the fitted model, and uses the
    current noise, batch_size and partial_steps.

    Args:
        num_members: Number of ensemble members, K.
        hidden_widths: Units of each hidden layer.
        prior: Prior function: "network" (a random network with one hidden layer, as wide as the first, and random
            biases), "linear", "fourier" (draws of a Gaussian process), "constant", None, any network or (init, apply)
            pair, or `priorax.priors.Function(f)`. Built-in priors see standardised X; your own see X as passed.
        prior_scale: Scale of the prior functions (beta), in units of the standardised target. "auto" fits with 0.3, 1,
            3 and 10, which takes four times as long, and keeps the largest whose out-of-bag likelihood is within a
            standard error of the best; see `prior_scale_`. `partial_fit` takes "auto" as 1.
        noise: Data noise by name (none, bootstrap, poisson, double_or_nothing, exponential) or as an object; the scale
            of `priorax.noise.Gaussian(scale)` is in units of the standardised target.
        network: Trainable network; None is an MLP of `hidden_widths`.
        l2: Regularisation of the weights towards an anchor (`priorax.beliefs.L2`).
        heteroscedastic: Whether to learn the noise as a function of X; otherwise it is one number for each output.
        encode: Whether X may have text, categories, dates and missing cells, as a data frame or an array of objects:
            missing numbers become the median and are flagged, text is one-hot encoded, and dates are days with their
            position in the year, the week and the day. Columns that tell nothing (ids, constants, names) are left out
            with a warning; see `encoding_` and `left_out_`. The first call of `partial_fit` fixes the encoding.
        standardize: Whether to scale X and y to mean 0 and standard deviation 1.
        steps: Maximum number of Adam steps.
        batch_size: Minibatch size; None trains on full batches.
        learning_rate: Learning rate of Adam.
        validation_fraction: Fraction of rows to hold out for early stopping, instead of out-of-bag rows.
        out_of_bag: Whether to select the number of steps by the out-of-bag error. Without it and `validation_fraction`,
            or with noise that leaves out no rows ("none", "exponential", Gaussian), all `steps` are taken.
        patience: Stop when the ensemble's error on rows that it did not see (with `heteroscedastic`, its negative log
            likelihood) has not fallen for `patience` x 100 steps, and keep the best state.
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
        heteroscedastic: bool = False,
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
        self.heteroscedastic = heteroscedastic

    def _head(self) -> Head:
        return Gaussian(beta=BETA) if self.heteroscedastic else Scalar()

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PriorEnsembleRegressor":
        """Fit the ensemble.

        Args:
            X: Inputs [n, features], dense or sparse.
            y: Targets [n] or [n, outputs].
            sample_weight: Weights [n]; None weighs all rows equally.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If a parameter or the data is invalid.
            NonFiniteLoss: If training diverges.
        """
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, True, y_numeric=True, multi_output=True)
        work._start(X, y, weight)
        targets = work._targets(y)
        work._keep_anchors(X, weight)
        work._see_noise(X, targets, weight, work._fit(X, targets, weight))
        return self._become(work)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PriorEnsembleRegressor":
        """Train on new examples only; each call takes `partial_steps` steps. The first call fixes the standardisation.

        Args:
            X: Inputs [n, features], dense or sparse.
            y: Targets [n] or [n, outputs].
            sample_weight: Weights [n]; None weighs all rows equally.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If a parameter or the data is invalid.
            NonFiniteLoss: If training diverges.
        """
        fresh = not hasattr(self, "state_")
        work = copy.copy(self)
        X, y, weight = work._validated(X, y, sample_weight, fresh, y_numeric=True, multi_output=True)
        if fresh:
            work._start(X, y, weight)
        targets = work._targets(y)
        work._keep_anchors(X, weight)
        work._see_noise(X, targets, weight, work._partial_fit(X, targets, weight))
        return self._become(work)

    def _start(self, X: Any, y: np.ndarray, weight: Any) -> None:
        columns = y.reshape(len(y), -1)
        self.flat_y_, self.n_outputs_ = y.ndim == 1, columns.shape[1]
        self.y_mean_, self.y_scale_ = moments("y", columns, self.standardize, weight)
        self._forget_noise()
        self._begin(X, self.n_outputs_, self._head(), weight)

    def _see_noise(self, X: Any, targets: np.ndarray, weight: Any, result: Fit) -> None:
        """Estimate the noise from rows that members did not see, and record its range on the training data."""
        rows, unseen, share = self._unseen_rows(X, weight, result)
        values, noise = self._chunks(X[rows], _values_and_noise, _by_row)
        columns = [
            out_of_bag(values[..., j].T, noise[..., j].T, unseen, targets[rows, j], share)
            for j in range(self.n_outputs_)
        ]
        found = np.stack(columns, axis=-1)
        if hasattr(self, "unseen_"):  # later calls of partial_fit: the latest rows
            found = np.concatenate([self.out_of_bag_rows_, found], axis=1)[:, -ROWS:]
            unseen = np.concatenate([self._unseen(), unseen])[-ROWS:]
        self.out_of_bag_rows_, self.unseen_ = found, np.packbits(unseen, axis=1)
        self.noise_scale_ = np.array([noise_scale(rows) for rows in self._out_of_bag()])
        low, high = getattr(self, "noise_range_", (np.inf, -np.inf))
        noise = np.sqrt(np.mean(noise**2, axis=1))
        self.noise_range_ = np.stack([np.minimum(low, noise.min(axis=0)), np.maximum(high, noise.max(axis=0))])

    def _unseen_losses(self, X: Any, targets: np.ndarray, weight: Any, result: Fit) -> np.ndarray:
        self._see_noise(X, targets, weight, result)
        losses = [
            rows.weight * log_loss(rows, scale)
            for rows, scale in zip(self._out_of_bag(), self.noise_scale_, strict=True)
        ]
        self._forget_noise()
        return np.sum(losses, axis=0)

    def _forget_noise(self) -> None:
        for name in ("noise_range_", "noise_scale_", "out_of_bag_rows_", "unseen_"):
            self.__dict__.pop(name, None)

    def _out_of_bag(self) -> list[OutOfBag]:
        """Get the kept out-of-bag predictions of each output."""
        return [OutOfBag(*self.out_of_bag_rows_[..., j]) for j in range(self.n_outputs_)]

    def _unseen(self) -> np.ndarray:
        """Get which members did not see each of the kept rows, [row, member]."""
        return np.unpackbits(self.unseen_, axis=1, count=self.belief_.num_members).astype(bool)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        columns = y.reshape(len(y), -1)
        if columns.shape[1] != self.n_outputs_:
            raise ValueError(
                f"y has {columns.shape[1]} outputs, but the first call had {self.n_outputs_}; pass as many"
            )
        return standardised("y", columns, self.y_mean_, self.y_scale_)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict the mean over members and, optionally, their disagreement.

        The prediction for a row does not depend on the other rows: bitwise for the built-in networks on the CPUs
        tested, and within 1e-5 of the target's standard deviation for accelerators and custom networks, where the order
        of summation may depend on the number of rows.

        Args:
            X: Inputs [n, features], dense or sparse.
            return_std: Whether to return the epistemic standard deviation as well.
            return_cov: Whether to return the epistemic covariance between the rows of X as well.

        Returns:
            The mean [n] or [n, outputs]. With `return_std`, the mean and the standard deviation of the same shape; with
            `return_cov`, the mean and the covariance [n, n] or [n, n, outputs].

        Raises:
            ValueError: If both are requested, X does not match the model, or X or the covariance exceeds the
                floating-point range.
        """
        if return_std and return_cov:
            raise ValueError("return_std=True and return_cov=True are mutually exclusive; pass only one of them")
        asked = self._asked(X)
        if return_cov:
            members = self._members(asked)
            mean = mean_of(members)
            cov = np.einsum("knj,kmj->nmj", members - mean, members - mean) / max(len(members) - 1, 1)
            return self._shown(X, self._unscale(mean)), self._flat(cov * self._y_variance())
        mean, std, _ = self._chunks(asked, _values_and_noise, _moments)
        mean = self._shown(X, self._unscale(mean))
        return (mean, self._shown(X, std * self.y_scale_)) if return_std else mean

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Predict the mean with epistemic, aleatoric and total standard deviations.

        The aleatoric part is the noise: one number for all rows or, with `heteroscedastic=True`, learned as a function
        of X and clipped to its range on the training data, since the noise far from the data is unknown. Its scale is
        the one under which out-of-bag residuals are most likely.

        Args:
            X: Inputs [n, features], dense or sparse.

        Returns:
            Mean and standard deviations, each [n] or [n, outputs].
        """
        mean, epistemic, aleatoric = self._spread(self._asked(X))
        epistemic, aleatoric = epistemic * self.y_scale_, aleatoric * self.y_scale_
        total = np.hypot(epistemic, aleatoric)
        return Uncertainty(*(self._shown(X, part) for part in (self._unscale(mean), epistemic, aleatoric, total)))

    def _spread(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute the standardised mean, epistemic and aleatoric standard deviation, [row, output]."""
        mean, epistemic, aleatoric = self._chunks(X, _values_and_noise, _moments)
        return mean, epistemic, np.clip(aleatoric, *self.noise_range_) * self.noise_scale_

    def predict_interval(self, X: Any, coverage: float = 0.9, method: str = "scaled") -> tuple[Any, Any]:
        """Predict intervals that contain a new measurement with a given probability.

        Both methods use the residuals of training rows at the members that did not see them (out-of-bag; held-out rows
        with `validation_fraction`). Without such rows (`noise="none"`) residuals are those of the fit, and intervals
        are too narrow, of which a warning tells.

        Args:
            X: Inputs [n, features], dense or sparse.
            coverage: Nominal coverage, between 0 and 1.
            method: "scaled": the mean plus and minus a multiple of the total standard deviation, the quantile of the
                out-of-bag residuals in the same unit; intervals are wider where the ensemble doubts. "jackknife":
                jackknife+-after-bootstrap, whose coverage is at least 2 `coverage` - 1 for any distribution (usually
                close to `coverage`) if `steps` is fixed (`out_of_bag=False`); widths hardly depend on X.

        Returns:
            Lower and upper bounds, each [n] or [n, outputs]; infinite, with a warning, if there are too few rows for
            the coverage.

        Raises:
            ValueError: If `coverage` or `method` is invalid.
        """
        asked = self._asked(X)
        self._warn_of_seen_rows()
        fraction("coverage", coverage, example=0.9)
        if one_of("method", method, INTERVAL_METHODS) == "scaled":
            mean, epistemic, aleatoric = self._spread(asked)
            quantiles = [
                conformal_quantile(scores(rows, scale), coverage, rows.weight)
                for rows, scale in zip(self._out_of_bag(), self.noise_scale_, strict=True)
            ]
            half = np.hypot(epistemic, aleatoric) * np.array(quantiles)
            low, high = mean - half, mean + half
        else:
            members, unseen = self._members(asked), self._unseen()
            used = unseen.any(axis=1)
            bounds = [
                jackknife_after_bootstrap(members[..., j], unseen[used], np.abs(rows.residual[used]), coverage)
                for j, rows in enumerate(self._out_of_bag())
            ]
            low, high = np.moveaxis(np.array(bounds), 0, -1)
        if np.any(np.isinf(high)):
            self._warn_of_infinite(coverage)
        return self._shown(X, self._unscale(low)), self._shown(X, self._unscale(high))

    def _warn_of_seen_rows(self) -> None:
        """Warn if intervals are based on residuals of rows that all members saw."""
        if self._fit_params["validation_fraction"] is None and np.all(self._unseen()):
            warnings.warn(
                f"noise={self._fit_params['noise']!r} leaves no rows out of the members' data, so intervals are those "
                "of the residuals of the fit, and too narrow; fit with noise='bootstrap' or validation_fraction=0.2",
                UserWarning,
                stacklevel=3,
            )

    def _warn_of_infinite(self, coverage: float) -> None:
        """Warn that there are too few rows that members did not see for the coverage."""
        fewest = min(int(np.sum(rows.weight > 0)) for rows in self._out_of_bag())
        most = np.floor(1000 * fewest / (fewest + 1)) / 1000
        warnings.warn(
            f"coverage={coverage} needs {rows_for(coverage)} rows that members did not see, and "
            f"there are {fewest}: intervals are infinite; pass at most coverage={most:.3f}, or fit to more rows",
            UserWarning,
            stacklevel=3,
        )

    def sample(self, X: Any, num_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Evaluate functions drawn from the ensemble, with replacement.

        Args:
            X: Inputs [n, features], dense or sparse.
            num_samples: Number of functions.
            random_state: Seed of the draws; None gives the same draws for the same fit.

        Returns:
            Values [num_samples, n] or [num_samples, n, outputs].
        """
        members = self._unscale(self._members(self._asked(X)))
        return self._flat(members[self._drawn_members(num_samples, random_state)])

    def members(self, X: Any, member: int | None = None) -> np.ndarray:
        """Evaluate the function of each member, or of one: what decisions draw from.

        It is made for few rows at a time: one row takes a fraction of a millisecond. Values agree with those of
        `predict` and `sample` up to the rounding of float32.

        Args:
            X: Inputs [n, features], dense or sparse.
            member: Number of the member, from 0; None evaluates all of them.

        Returns:
            Values [members, n] or [members, n, outputs]; of one member [n] or [n, outputs].

        Raises:
            ValueError: If there is no such member, or X does not match the model.
        """
        out = self._member_outputs(self._asked(X), member)
        values = self._flat(self._unscale(out[..., 0]))
        return values if member is None else values[0]

    def _members(self, X: Any) -> np.ndarray:
        """Compute the standardised mean of every member on X, [member, n, output]."""
        return np.moveaxis(self._chunks(X, _values_and_noise, _only_values)[0], 0, 1)

    def _doubt(self, X: np.ndarray) -> np.ndarray:
        std = self._chunks(X, _values_and_noise, _moments)[1]
        return std[:, 0] * self.y_scale_[0] if self.flat_y_ else np.sqrt(np.mean(std**2, axis=1))

    def _centre(self, X: np.ndarray) -> np.ndarray:
        return self._chunks(X, _values_and_noise, _moments)[0]

    def _y_variance(self) -> np.ndarray:
        """Get the variance of y, the unit of covariances."""
        with np.errstate(over="ignore", under="ignore"):
            variance = self.y_scale_**2
        for scale in self.y_scale_[~np.isfinite(variance) | (variance < np.finfo(np.float64).tiny)]:
            raise ValueError(
                f"return_cov=True, but the square of y's scale {scale:.3g} is outside the range of float64; pass "
                "return_std=True, or fit to y times a constant"
            )
        return variance

    def _unscale(self, values: np.ndarray) -> np.ndarray:
        return values * self.y_scale_ + self.y_mean_

    def _shown(self, X: Any, values: np.ndarray) -> Any:
        """Convert values [row, output] for the rows of X to what is returned."""
        return self._said(X, self._flat(values), self._output_names(self.n_outputs_))

    def _flat(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self.flat_y_ else values


@jax.jit
def _values_and_noise(belief: Ensemble, state: BeliefState, x: Any) -> tuple[Array, Array]:
    """Compute the standardised mean and noise of every member, [member, row, output]."""
    out = outputs(belief, state, x)
    values, noise = (jax.vmap(jax.vmap(jax.vmap(read)))(out) for read in (belief.head.value, belief.head.noise))
    return values, noise if belief.head.knows_noise else jnp.ones_like(noise)


def _by_row(values: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.moveaxis(values, 0, 1), np.moveaxis(noise, 0, 1)


def _only_values(values: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray]:
    return (np.moveaxis(values, 0, 1),)


def _moments(values: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute mean, epistemic std (unbiased) and aleatoric std (root of the mean variance), [row, output]."""
    mean = mean_of(values)
    std = np.sqrt(sum((values - mean) ** 2) / max(len(values) - 1, 1))
    return mean, std, np.sqrt(mean_of(noise**2))
