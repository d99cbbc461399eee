"""Lemmas 1 and 4 and appendix C.1: dropout as a posterior does not concentrate."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from priorax.agents.bandit import ensemble_sampler
from priorax.beliefs import L2, method
from priorax.fitting import fit
from priorax.networks import MLP
from priorax.sanity.bandit import beta_sampler, dropout_sampler, mean_regret
from priorax.sanity.check import Check

COPIES, EXAMPLES = 8, 40
PENALTY, TOLERANCE = 0.03, 0.15


def lemma_1() -> Iterator[Check]:
    """Fit a data set and the same data repeated.

    The spread of dropout does not change, with or without regularisation; that of the bootstrap with priors shrinks by
    1/sqrt(copies).

    Yields:
        The checks.
    """
    for weight in (0.0, PENALTY):
        ratio = duplicate_ratio("dropout", p_keep=0.5, l2=L2(weight, to="zero"))
        claim = f"dropout, R = {weight}|θ|²: spread on {COPIES} copies / on 1"
        yield Check("lemma 1", claim, ratio, f"1 ± {TOLERANCE}", abs(ratio - 1) < TOLERANCE)
    ratio = duplicate_ratio("bsp", num_members=30, prior_scale=1.0)
    limit = 2 / COPIES**0.5
    theory = f"about {COPIES**-0.5:.2f}, < {limit:.2f}"
    yield Check("lemma 1", f"bootstrap + prior: spread on {COPIES} copies / on 1", ratio, theory, ratio < limit)


def duplicate_ratio(name: str, **settings: Any) -> float:
    """Return the ratio of the mean spread after fitting repeated data to that after fitting the data once.

    Args:
        name: Name of the method.
        **settings: Settings of the method.

    Returns:
        The ratio.
    """
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, (EXAMPLES, 1)).astype(np.float32)
    y = x[:, 0] + random.standard_normal(EXAMPLES)
    spreads = []
    for copies in (1, COPIES):
        belief, noise = method(name, network=MLP((20, 20)), **settings)
        data = (np.tile(x, (copies, 1)), np.tile(y, copies))
        state = fit(belief, data, key=jax.random.key(1), noise=noise, steps=2500, batch_size=None).state
        spreads.append(float(jnp.mean(belief.spread(state, jax.random.key(2), x, num_draws=1000))))
    return spreads[1] / spreads[0]


def appendix_c1() -> Iterator[Check]:
    """Compare the closed form of the dropout optimum, its mean and its spread with numerical values, over (d, p,
    lambda).

    Yields:
        The checks.
    """
    worst, worst_printed, worst_moments = 0.0, 0.0, 0.0
    mean_y = 1.7
    for d, p, penalty in itertools.product((1, 3, 6), (0.2, 0.5, 0.9), (0.1, 1.0)):
        masks = np.array(list(itertools.product((0, 1), repeat=d)), dtype=float)
        chance = np.prod(np.where(masks == 1, p, 1 - p), axis=1)

        def loss(
            theta: np.ndarray, masks: np.ndarray = masks, chance: np.ndarray = chance, lam: float = penalty
        ) -> float:
            return float(chance @ (mean_y - masks @ theta) ** 2 + lam * theta @ theta)

        found = optimize.minimize(loss, np.zeros(d), tol=1e-12).x
        ours = mean_y / (1 + p * (d - 1) + penalty / p)
        printed = mean_y / (1 + p * (d - 1) + penalty / d)
        worst = max(worst, float(np.max(np.abs(found - ours))))
        worst_printed = max(worst_printed, float(np.max(np.abs(found - printed))))
        outputs = masks @ found
        mean = chance @ outputs
        std = np.sqrt(chance @ (outputs - mean) ** 2)
        worst_moments = max(worst_moments, abs(mean - ours * d * p), abs(std - ours * np.sqrt(d * p * (1 - p))))
    yield Check(
        "appendix C.1",
        "largest gap of θ* to ȳ/(1 + p(d-1) + λ/p)",
        worst,
        "0 ± 1e-4",
        worst < 1e-4,
        f"erratum: the paper prints λ/d, which is off by up to {worst_printed:.2f}",
    )
    yield Check(
        "appendix C.1", "largest gap of μ, σ to θ̄dp, θ̄√(dp(1-p))", worst_moments, "0 ± 1e-3", worst_moments < 1e-3
    )


EPSILON, UNITS, P, STEPS, SEEDS, MEMBERS = 0.2, 5, 0.5, 4000, 200, 30


def lemma_4() -> Iterator[Check]:
    """Measure the regret on the two-armed bandit.

    It is linear for dropout, logarithmic for exact Thompson sampling, and close to that for ensemble sampling.
    Doubling the time doubles linear regret, and adds a constant to logarithmic regret.

    Yields:
        The checks.
    """
    bound = EPSILON * (1 - P) ** UNITS / 2
    where = f"ε={EPSILON}, T={STEPS}"
    curves = {
        "dropout": mean_regret(dropout_sampler(UNITS, P, 0.1), EPSILON, STEPS, SEEDS),
        "exact": mean_regret(beta_sampler(), EPSILON, STEPS, SEEDS),
        "ensemble": mean_regret(ensemble_sampler(MEMBERS), EPSILON, STEPS, SEEDS),
    }
    final = {name: float(curve[-1]) for name, curve in curves.items()}
    growth = {name: float(curve[-1] / curve[STEPS // 2 - 1]) for name, curve in curves.items()}
    yield Check(
        "lemma 4",
        f"dropout: regret, {where}, d={UNITS}, p={P}",
        final["dropout"],
        f"> ε(1-p)^d T/2 = {bound * STEPS:.1f}",
        final["dropout"] > bound * STEPS,
        "erratum: all d units are off with probability (1-p)^d, not p^d",
    )
    yield Check(
        "lemma 4",
        f"dropout: regret at T / at T/2, {where}",
        growth["dropout"],
        "linear: 2 ± 0.2",
        abs(growth["dropout"] - 2) < 0.2,
    )
    yield Check(
        "lemma 4",
        f"exact Beta: regret at T / at T/2, {where}",
        growth["exact"],
        "logarithmic: < 1.3",
        growth["exact"] < 1.3,
    )
    ratio = final["ensemble"] / final["exact"]
    yield Check(
        "lemma 4", f"ensemble sampling with prior, K={MEMBERS}: regret / exact's, {where}", ratio, "< 2", ratio < 2
    )
