"""Active learning: which rows of a pool to label next, as a batch whose rows do not repeat each other.

The members of an ensemble predict jointly, so the value of a row is computed given the rows picked before it. For
classifications this is the greedy step of BatchBALD (Kirsch et al. 2019): the mutual information between the member and
the label, given the labels of the batch so far. For regressions it is the conditional variance of a Gaussian with the
members' covariance, or how much a label would reduce the variance of all rows (Cohn 1996).
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import entr

from priorax.checks import checked_seed, one_of, positive_int
from priorax.estimators import PriorEnsembleClassifier, PriorEnsembleRegressor

CONFIGURATIONS = 256
"""Joint labels of the batch so far: all of them if there are at most so many, else so many drawn at random."""
ROWS = 4096
"""Rows of the pool whose gains are computed at once, to bound memory."""
METHODS = {"bald": PriorEnsembleClassifier, "reduction": PriorEnsembleRegressor, "variance": PriorEnsembleRegressor}
"""Methods, and the estimators that they are for."""


def query(
    model: Any, pool: Any, n: int = 1, *, method: str = "auto", target: Any = None, seed: int = 0
) -> Int[np.ndarray, " n"]:
    """Choose rows of a pool to label next.

    Args:
        model: A fitted `PriorEnsembleClassifier` or `PriorEnsembleRegressor` with one output.
        pool: Inputs without labels [rows, features].
        n: Number of rows to choose, at most the size of the pool.
        method: "bald" for classifiers: the mutual information between the members and the labels of the batch. For
            regressors "reduction": the expected reduction of the mean variance over `target`; or "variance": the
            highest variance given the rows picked before. "auto" is "bald" or "reduction".
        target: Inputs [rows, features] where predictions matter, for "reduction"; None is the pool.
        seed: Seed of the joint labels that "bald" draws when there are too many to enumerate.

    Returns:
        Indices of different rows of the pool, the most useful first.

    Raises:
        ValueError: If the model is none of ours or has several outputs, the method is not for it, the pool has fewer
            than `n` rows, or `target` is passed for a method that does not use it.
        NotFittedError: If the model is not fitted.
    """
    if not isinstance(model, PriorEnsembleClassifier | PriorEnsembleRegressor):
        raise ValueError(
            f"model={model!r:.100} must be a PriorEnsembleClassifier or PriorEnsembleRegressor; pass one that is fitted"
        )
    classifies = isinstance(model, PriorEnsembleClassifier)
    if one_of("method", method, ("auto", *METHODS)) == "auto":
        method = "bald" if classifies else "reduction"
    if not isinstance(model, METHODS[method]):
        other = "'bald'" if classifies else "'reduction' or 'variance'"
        raise ValueError(f"method={method!r} is not for a {type(model).__name__}; pass {other}")
    if target is not None and method != "reduction":
        raise ValueError(f"target is not used by method={method!r}; leave it out, or pass method='reduction'")
    members = model.members(pool)
    if not model.flat_y_:
        raise ValueError(f"model has {model.n_outputs_} outputs, but query needs one; fit a model for each output")
    size = members.shape[1]
    if positive_int("n", n) > size:
        raise ValueError(f"n={n} must be at most the {size} rows of pool; pass a smaller n or more rows")
    if method == "bald":
        return bald(members, n, np.random.default_rng(checked_seed(seed)))
    noise = np.asarray(model.predict_uncertainty(pool).aleatoric) ** 2
    if method == "variance":
        return by_variance(members, noise, n)
    return by_reduction(members, noise, n, members if target is None else model.members(target))


def bald(
    proba: Float[np.ndarray, "member row label"], n: int, random: np.random.Generator, most: int = CONFIGURATIONS
) -> Int[np.ndarray, " n"]:
    """Choose rows greedily by the mutual information between the member and the joint labels of the batch.

    Args:
        proba: Probabilities of each member.
        n: Number of rows to choose.
        random: Random numbers, for joint labels that are drawn.
        most: Maximum number of joint labels of the batch so far; if there are more, so many are drawn.

    Returns:
        Indices of the rows.
    """
    noise = entr(proba).sum(axis=-1).mean(axis=0)
    size, labels = len(proba), proba.shape[-1]
    # for joint labels of the batch so far: their log likelihood under each member, and their weight
    likelihood, share = np.zeros((1, size)), np.ones(1)
    exact, picked = True, list[int]()
    for _ in range(n):
        posterior = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        gain = _label_entropy(posterior, share, proba) - noise
        gain[picked] = -np.inf
        row = int(np.argmax(gain))
        picked.append(row)
        log_proba = np.log(np.maximum(proba[:, row], 1e-300))  # [member, label]
        if exact and len(likelihood) * labels <= most:
            likelihood = (likelihood[:, None, :] + log_proba.T).reshape(-1, size)
            share = np.exp(likelihood).mean(axis=1)
        elif exact:  # from now on joint labels are drawn: a member, and its labels of all picked rows
            exact = False
            member = np.arange(most) % size
            likelihood, share = np.zeros((most, size)), np.full(most, 1 / most)
            for each in picked:
                likelihood += _drawn(proba[:, each], member, random)
        else:
            likelihood += _drawn(proba[:, row], member, random)
    return np.array(picked)


def by_variance(
    members: Float[np.ndarray, "member row"], noise: Float[np.ndarray, " row"], n: int
) -> Int[np.ndarray, " n"]:
    """Choose rows greedily by their variance given the labels of the rows picked before.

    Args:
        members: Predictions of each member.
        noise: Variance of the noise of a label.
        n: Number of rows to choose.

    Returns:
        Indices of the rows.
    """
    return _greedy(members, noise, n, lambda spread, a: np.einsum("in,ij,jn->n", a, spread, a, optimize=True))


def by_reduction(
    members: Float[np.ndarray, "member row"],
    noise: Float[np.ndarray, " row"],
    n: int,
    target: Float[np.ndarray, "member other"],
) -> Int[np.ndarray, " n"]:
    """Choose rows greedily by how much their labels reduce the mean variance of other rows.

    Args:
        members: Predictions of each member.
        noise: Variance of the noise of a label.
        n: Number of rows to choose.
        target: Predictions of each member for the rows whose variance matters.

    Returns:
        Indices of the rows.
    """
    centred = _centred(target)
    inner = centred @ centred.T / centred.shape[1]

    def reduction(spread: np.ndarray, a: np.ndarray) -> np.ndarray:
        along = spread @ a
        variance = np.einsum("in,in->n", a, along)
        return np.einsum("in,in->n", along, inner @ along) / np.maximum(variance + noise, np.finfo(float).tiny)

    return _greedy(members, noise, n, reduction)


def _greedy(members: np.ndarray, noise: np.ndarray, n: int, score: Any) -> np.ndarray:
    """Pick the row of the highest score, condition on its label, and repeat.

    The covariance of rows i and j is a_i S a_j, where a are the members' deviations from their mean and S, at first the
    identity, has as many rows as there are members: conditioning changes S only.
    """
    a, spread, picked = _centred(members), np.eye(len(members)), list[int]()
    for _ in range(n):
        found = score(spread, a)
        found[picked] = -np.inf
        row = int(np.argmax(found))
        picked.append(row)
        along = spread @ a[:, row]
        total = a[:, row] @ along + noise[row]
        if total > np.finfo(float).tiny:
            spread = spread - np.outer(along, along) / total
    return np.array(picked)


def _centred(members: np.ndarray) -> np.ndarray:
    """Deviations from the mean of the members, such that their inner products are covariances."""
    return (members - members.mean(axis=0)) / np.sqrt(max(len(members) - 1, 1))


def _drawn(proba: np.ndarray, member: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draw a label of one row from some members, and compute its log likelihood under all members [drawn, member]."""
    below = np.cumsum(proba[member], axis=1) < random.random(len(member))[:, None]
    label = np.minimum(below.sum(axis=1), proba.shape[1] - 1)
    return np.log(np.maximum(proba[:, label], 1e-300)).T


def _label_entropy(posterior: np.ndarray, share: np.ndarray, proba: np.ndarray) -> np.ndarray:
    """Entropy of each row's label given the joint labels of the batch so far, [row]."""
    found = np.empty(proba.shape[1])
    for start in range(0, proba.shape[1], ROWS):
        rows = proba[:, start : start + ROWS]
        mixed = np.tensordot(posterior, rows, axes=1)  # [joint label, row, label]
        found[start : start + ROWS] = share @ entr(mixed).sum(axis=-1)
    return found
