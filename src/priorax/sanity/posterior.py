"""Lemma 3: fitting perturbed data with a random regulariser samples from the exact linear-Gaussian posterior."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from scipy import stats

from priorax.beliefs import L2, Ensemble, Epinet, ExactBayes, Hypermodel, plain_batch
from priorax.beliefs.indexed import Indexed
from priorax.fitting import fit
from priorax.networks import MLP
from priorax.noise import Gaussian
from priorax.priors import Linear
from priorax.sanity.check import Check

NUM_MEMBERS = 2000
"""Number of members, each one sample."""
INDEX_DIM = 32
"""Dimension of the index of hypermodels and epinets."""
STEPS = 1000
SMALLEST_P = 1e-3
"""A correct sampler fails a row with this probability; seeds are fixed, so results do not vary."""

OPTIMIZER = optax.adam(optax.cosine_decay_schedule(0.05, STEPS))


class Problem(NamedTuple):
    """A random linear-Gaussian regression."""

    x: np.ndarray
    """Inputs [n, dim]."""
    y: np.ndarray
    """Targets [n]."""
    noise_std: float
    """Standard deviation of the noise, sigma."""
    prior_variance: float
    """Variance of the prior, lambda."""


PROBLEMS = ((1, 5, 0.5, 1.0), (3, 20, 1.0, 0.5), (8, 12, 0.3, 2.0), (8, 40, 2.0, 1.0))
"""Dimension, number of examples, sigma and lambda of each problem."""


def lemma_3() -> Iterator[Check]:
    """Compare mean and covariance of the members with equation (3), within sampling error, for both forms of the lemma.

    Yields:
        The checks.
    """
    for i, (dim, n, noise_std, prior_variance) in enumerate(PROBLEMS):
        problem = random_problem(i, dim, n, noise_std, prior_variance)
        for form in (1, 2):
            theta = member_weights(problem, form, jax.random.key(100 + i))
            p_mean, p_cov = agreement(theta, *exact_posterior(problem))
            where = f"form {form}, d={dim}, n={n}, σ={noise_std}, λ={prior_variance}"
            for what, p in (("mean", p_mean), ("covariance", p_cov)):
                yield Check("lemma 3", f"{what} of members, {where}", p, f"p-value > {SMALLEST_P}", p > SMALLEST_P)


def index_posterior(name: str) -> Iterator[Check]:
    """Compare the functions of linear beliefs with a random index with equation (3), as for `lemma_3`.

    The functions are those at the indices along the axes, of root-mean-square length.

    Args:
        name: hypermodel or epinet.

    Yields:
        The checks.
    """
    for i, (dim, n, noise_std, prior_variance) in enumerate(PROBLEMS):
        problem = random_problem(i, dim, n, noise_std, prior_variance)
        theta = index_weights(name, problem, jax.random.key(200 + i))
        p_mean, p_cov = agreement(theta, *exact_posterior(problem))
        where = f"d={dim}, n={n}, σ={noise_std}, λ={prior_variance}"
        for what, p in (("mean", p_mean), ("covariance", p_cov)):
            yield Check(name, f"{what} over indices, {where}", p, f"p-value > {SMALLEST_P}", p > SMALLEST_P)


def index_weights(name: str, problem: Problem, key: jax.Array, num_models: int = 20) -> np.ndarray:
    """Fit linear hypermodels or epinets to a problem.

    The covariance over the indices of one of them has only `INDEX_DIM` degrees of freedom; several have more.

    Args:
        name: hypermodel or epinet.
        problem: The problem.
        key: A PRNG key.
        num_models: Number of models.

    Returns:
        Theta at the axes of each index, [num_models * INDEX_DIM, dim]: for a hypermodel, b + W_k + scale * P_k.
    """
    std, linear = float(np.sqrt(problem.prior_variance)), MLP((), use_bias=False)
    shared: dict[str, Any] = {
        "network": linear,
        "prior": Linear(),
        "perturbed": True,
        "l2": L2(problem.noise_std**2 / problem.prior_variance, to="zero"),
        "optimizer": OPTIMIZER,
    }
    belief: Indexed
    if name == "hypermodel":
        belief = Hypermodel(INDEX_DIM, 2 * INDEX_DIM, prior_scale=std, **shared)
    else:  # its index is longer by sqrt(INDEX_DIM)
        scale = std / INDEX_DIM**0.5
        belief = Epinet(INDEX_DIM, 2 * INDEX_DIM, prior_scale=scale, epinet=linear, sees_index=False, **shared)
    found = []
    for key_model in jax.random.split(key, num_models):
        data = (problem.x, problem.y)
        noise = Gaussian(problem.noise_std)
        state = fit(belief, data, key=key_model, noise=noise, steps=STEPS, batch_size=None).state
        axes = np.eye(problem.x.shape[1], dtype=np.float32)
        found.append(np.asarray(belief.forward(state, key_model, axes, shared=True))[:, :, 0, 0])
    return np.concatenate(found)


def random_problem(seed: int, dim: int, n: int, noise_std: float, prior_variance: float) -> Problem:
    """Draw inputs, a true theta from the prior, and noisy targets.

    Args:
        seed: Random seed.
        dim: Number of features.
        n: Number of examples.
        noise_std: Standard deviation of the noise.
        prior_variance: Variance of the prior.

    Returns:
        The problem.
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal((n, dim))
    theta = np.sqrt(prior_variance) * random.standard_normal(dim)
    return Problem(x, x @ theta + noise_std * random.standard_normal(n), noise_std, prior_variance)


def member_weights(problem: Problem, form: int, key: jax.Array, num_members: int = NUM_MEMBERS) -> np.ndarray:
    """Fit an ensemble to a problem.

    Args:
        problem: The problem.
        form: Form of lemma 3: 1 (weights regularised towards an anchor) or 2 (additive prior).
        key: A PRNG key.
        num_members: Number of members.

    Returns:
        Theta of each member, [member, dim].
    """
    weight = problem.noise_std**2 / problem.prior_variance
    std = float(np.sqrt(problem.prior_variance))
    if form == 1:
        network = MLP((), use_bias=False, weight_std=std)
        belief = Ensemble(num_members, network, l2=L2(weight, to="prior"), optimizer=OPTIMIZER)
    else:
        network = MLP((), use_bias=False)
        belief = Ensemble(
            num_members, network, prior=Linear(), prior_scale=std, l2=L2(weight, to="zero"), optimizer=OPTIMIZER
        )
    noise = Gaussian(problem.noise_std)
    state = fit(belief, (problem.x, problem.y), key=key, noise=noise, steps=STEPS, batch_size=None).state
    theta = np.asarray(state.params[0].weight)[:, :, 0]
    return theta if form == 1 else theta + std * np.asarray(state.frozen.prior[0].weight)[:, :, 0]


def exact_posterior(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact posterior, equation (3).

    Args:
        problem: The problem.

    Returns:
        Its mean and covariance.
    """
    belief = ExactBayes(prior_variance=problem.prior_variance, noise_std=problem.noise_std)
    start = belief.init(jax.random.key(0), problem.x[0])
    state = belief.observe(start, plain_batch(problem.x, problem.y[:, None]))
    mean, cov = belief.posterior(state)
    return np.asarray(mean)[:, 0], np.asarray(cov)


def agreement(samples: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> tuple[float, float]:
    """Test whether samples come from N(mean, cov).

    Args:
        samples: Samples [sample, dim].
        mean: Mean of the distribution.
        cov: Covariance of the distribution.

    Returns:
        p-values of the sample mean (chi-squared test of its Mahalanobis distance) and of the sample covariance
        (likelihood ratio test, chi-squared with d(d+1)/2 degrees of freedom).
    """
    k, dim = samples.shape
    whitened = np.linalg.solve(np.linalg.cholesky(cov), (samples - mean).T).T
    p_mean = stats.chi2.sf(k * np.sum(whitened.mean(axis=0) ** 2), dim)
    scatter = np.atleast_2d(np.cov(whitened.T, bias=True))
    _, logdet = np.linalg.slogdet(scatter)
    p_cov = stats.chi2.sf(k * (np.trace(scatter) - logdet - dim), dim * (dim + 1) / 2)
    return float(p_mean), float(p_cov)
