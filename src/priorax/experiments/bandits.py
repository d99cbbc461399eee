"""Bandits (section 2 and appendix C): the regret of every belief compared with exact Thompson sampling, 100 seeds each.

Three bandits (`envs/jax/bandits.py`): Bernoulli with two arms, linear, and a Gaussian process over contexts. All
methods use the same kind of network on a bandit: linear for the first two (dropout needs hidden units: one layer of
20), (20,20) for the third. The growth of regret is fitted over the last nine tenths: a + b log t against a + b t.

Also measured: regret against the number of members in ensemble sampling (Lu & Van Roy: K need not exceed the number of
arms, up to logarithms), and appendix C.4: how many measurements resolve a linear bandit in d dimensions, by counts and
by the posterior.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.agents.bandit import Sampler, belief_sampler, ensemble_sampler
from priorax.beliefs import Adam, Counts, Ensemble, GaussianCount, Method, OneHotCount, method
from priorax.envs.jax.bandits import Bandit, BernoulliBandit, GaussianProcessBandit, LinearBandit
from priorax.experiments import Report
from priorax.heads import C51, Quantiles
from priorax.networks import MLP
from priorax.noise import NOISES
from priorax.priors import Linear, RandomFourier
from priorax.report.looks import LOOKS
from priorax.report.plots import panels
from priorax.report.rows import Row, column, where
from priorax.training.bandits import cumulative_regret

BANDITS: dict[str, Any] = {
    "bernoulli": BernoulliBandit(0.2),
    "linear": LinearBandit(),
    "gp": GaussianProcessBandit(),
}
TITLES = {
    "bernoulli": "Bernoulli, 2 arms",
    "linear": "linear, 30 arms in R⁵, noise 1",
    "gp": "Gaussian process over contexts, 4 arms",
}
METHODS = {
    "exact": ("exact Thompson", "#000000", "-"),
    "bsp": ("bootstrap + prior", LOOKS["bsp"].color, "-"),
    "bs": ("bootstrap", LOOKS["bs"].color, "-"),
    "ensemble": ("ensemble", LOOKS["ensemble"].color, "-"),
    "dropout": ("dropout", LOOKS["dropout"].color, "--"),
    "noisy": ("NoisyNet", LOOKS["noisy"].color, "--"),
    "bbb": ("Bayes by Backprop", LOOKS["bbb"].color, "--"),
    "count": ("count bonus", LOOKS["ucb"].color, "-."),
    "c51": ("outcomes of C51", LOOKS["c51"].color, ":"),
    "qr": ("outcomes of QR", LOOKS["qr"].color, ":"),
    "greedy": ("one network, greedy", "#555555", (0, (1, 3))),
}
STEPS = {"quick": 1000, "full": 5000}
SEEDS = {"quick": 100, "full": 200}
NOISE = {"bernoulli": 0.5, "linear": 1.0, "gp": 0.3}
"""Standard deviation of rewards, known to exact Bayes (for Bernoulli, that of the Gaussian model)."""
K, BATCH = 10, 32
RATE = {"bernoulli": 0.05, "linear": 0.05, "gp": 0.01}
UPDATES = {"bernoulli": 4, "linear": 4, "gp": 1}
"""Gradient steps after each round."""
MEMBERS = (1, 2, 4, 8, 16, 32, 64, 128)
ARMS = (5, 20, 80)
DIMENSIONS = {"quick": (1, 2, 3, 4), "full": (1, 2, 3, 4, 5)}
RADIUS = 0.5
"""epsilon of appendix C.4."""


def make(name: str, bandit: str) -> Method:
    """Build a method for a bandit.

    Args:
        name: Name of the method.
        bandit: Name of the bandit.

    Returns:
        The belief and its data noise.
    """
    deep = bandit == "gp"
    network = MLP((20, 20)) if deep else MLP((), use_bias=False)
    common: dict[str, Any] = {"network": network, "optimizer": Adam(RATE[bandit])}
    online = NOISES["double_or_nothing"]
    if name == "exact":
        prior_mean = 0.5 if bandit == "bernoulli" else 0.0
        variance = 0.25 if bandit == "bernoulli" else 1.0
        features = {"features": BANDITS[bandit].features} if deep else {}
        return method("exact", noise_std=NOISE[bandit], prior_variance=variance, prior_mean=prior_mean, **features)
    if name == "bsp":
        prior: Any = RandomFourier(0.7) if deep else Linear()
        scale = 0.5 if bandit == "bernoulli" else 1.0
        return Method(Ensemble(K, prior=prior, prior_scale=scale, **common), online)
    if name == "bs":
        return Method(Ensemble(K, **common), online)
    if name == "ensemble":
        return Method(Ensemble(K, **common), NOISES["none"])
    if name == "greedy":
        return Method(Ensemble(1, **common), NOISES["none"])
    if name == "dropout":
        return method("dropout", p_keep=0.5, **{**common, "network": network if deep else MLP((20,), use_bias=False)})
    if name in ("c51", "qr"):
        return method(name, head=C51(-4.0, 4.0) if name == "c51" else Quantiles(21), **common)
    if name == "count":
        density: Any = OneHotCount() if bandit == "bernoulli" else GaussianCount()
        return Method(Counts(Ensemble(1, **common), density, NOISE[bandit], first_count=1.0), NOISES["none"])
    if name == "bbb":
        # the loss is (y - f)²: with this weight of the KL divergence it is the evidence lower bound, up to a factor
        return method("bbb", kl_weight=2 * NOISE[bandit] ** 2, **common)
    return method(name, **common)


def regret_curve(name: str, bandit: str, steps: int, seeds: int) -> np.ndarray:
    """Measure the cumulative regret of a method.

    Args:
        name: Name of the method.
        bandit: Name of the bandit.
        steps: Number of rounds.
        seeds: Number of seeds.

    Returns:
        Cumulative regret [seed, step].
    """
    return _regret(BANDITS[bandit], belief_sampler(make(name, bandit), steps, BATCH, UPDATES[bandit]), steps, seeds)


def _regret(bandit: Bandit, sampler: Sampler, steps: int, seeds: int) -> np.ndarray:
    return np.asarray(cumulative_regret(bandit, sampler, steps=steps, seeds=seeds))


def growth(curve: np.ndarray) -> tuple[str, float, float]:
    """Determine how a curve grows.

    Args:
        curve: Mean cumulative regret.

    Returns:
        The better fit (logarithmic or linear), and the fractions of variance explained by a + b log t and by a + b t.
    """
    t = np.arange(1, len(curve) + 1)
    late = t > len(t) // 10

    def explained(x: np.ndarray) -> float:
        return float(np.corrcoef(x[late], curve[late])[0, 1] ** 2) if np.std(curve[late]) > 0 else 1.0

    log, line = explained(np.log(t)), explained(t.astype(float))
    return ("logarithmic" if log >= line else "linear"), log, line


def run(budget: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield rows of three kinds: regret over time, regret by number of members, measurements to resolve a bandit.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        report: Called with the fraction of work done and a word on the current work.

    Yields:
        The rows.
    """
    steps, seeds = STEPS[budget], SEEDS[budget]
    work = [(bandit, name) for bandit in BANDITS for name in METHODS]
    shown = np.unique(np.round(np.geomspace(1, steps, 60)).astype(int))
    for done, (bandit, name) in enumerate(work):
        report(0.8 * done / len(work), f"{TITLES[bandit]}: {METHODS[name][0]}")
        curves = regret_curve(name, bandit, steps, seeds)
        mean, error = curves.mean(0), curves.std(0) / seeds**0.5
        kind, log, line = growth(mean)
        stamp = {"kind": "regret", "bandit": bandit, "method": name, "seeds": seeds}
        for t in shown:
            yield {**stamp, "step": int(t), "regret": float(mean[t - 1]), "error": float(error[t - 1])}
        yield {**stamp, "kind": "growth", "growth": kind, "log": log, "linear": line, "regret": float(mean[-1])}
    for done, arms in enumerate(ARMS):
        report(0.8 + 0.15 * done / len(ARMS), f"ensemble sampling, {arms} arms")
        many = LinearBandit(num_arms=arms, dim=10)
        stamp = {"kind": "members", "arms": arms, "seeds": seeds, "step": steps}
        exact = method("exact", noise_std=1.0, prior_variance=1.0)
        best = _regret(many, belief_sampler(exact, steps), steps, seeds)[:, -1]
        yield {**stamp, "members": 0, "regret": float(best.mean()), "error": float(best.std() / seeds**0.5)}
        for members in MEMBERS:
            last = _regret(many, ensemble_sampler(members, 1.0, 1.0, 0.0), steps, seeds)[:, -1]
            yield {**stamp, "members": members, "regret": float(last.mean()), "error": float(last.std() / seeds**0.5)}
    for dim in DIMENSIONS[budget]:
        report(0.95, f"appendix C.4 in {dim} dimensions")
        counts, posterior = measurements(dim)
        yield {"kind": "resolve", "dim": dim, "counts": counts, "posterior": posterior}
    report(1.0, "done")


def measurements(dim: int, points: int = 20_000) -> tuple[int, int]:
    """Count the measurements until no point of the unit ball is more uncertain than RADIUS, measuring the most
    uncertain.

    By counts, a point is known once a point within RADIUS of it was measured (a packing). By the posterior of a linear
    model with prior N(0, I) and noise RADIUS/2, its standard deviation counts.

    Args:
        dim: Dimension of the ball.
        points: Number of candidate points.

    Returns:
        The numbers of measurements by counts and by the posterior.
    """
    random = np.random.default_rng(0)
    x = random.standard_normal((points, dim))
    x *= (random.uniform(size=points) ** (1 / dim) / np.linalg.norm(x, axis=1))[:, None]
    unknown, counts = np.ones(points, bool), 0
    while unknown.any():
        at = x[np.argmax(unknown)]
        unknown &= np.linalg.norm(x - at, axis=1) > RADIUS
        counts += 1
    precision, posterior = np.eye(dim), 0
    while True:
        variance = np.einsum("ij,jk,ik->i", x, np.linalg.inv(precision), x)
        if variance.max() <= RADIUS**2:
            return counts, posterior
        at = x[np.argmax(variance)]
        precision += np.outer(at, at) / (RADIUS / 2) ** 2
        posterior += 1


def figure(rows: list[Row]) -> Figure:
    """Plot regret on the three bandits, by number of members, and measurements.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(2, 3, width=4.2, height=3.5, share=False)
    for axis, bandit in zip(axes[0], BANDITS, strict=True):
        for name, (label, color, style) in METHODS.items():
            mine = where(rows, kind="regret", bandit=bandit, method=name)
            t, mean = (np.asarray(column(mine, part)) for part in ("step", "regret"))
            axis.plot(t, mean, color=color, ls=style, lw=2.2 if name in ("exact", "bsp") else 1.3, label=label)
        axis.set(title=TITLES[bandit], xlabel="step", ylabel="cumulative regret", yscale="log", xscale="log")
        worst = max(row["regret"] for row in where(rows, kind="regret", bandit=bandit))
        axis.set_ylim(worst / 300, worst * 1.5)
    members, resolve, legend = axes[1]
    for arms, color in zip(ARMS, ("#9ec3e6", "#4a8fd0", "#123f78"), strict=True):
        mine = where(rows, kind="members", arms=arms)
        exact = next(row["regret"] for row in mine if row["members"] == 0)
        points = [(row["members"], row["regret"] / exact) for row in mine if row["members"]]
        members.plot(*zip(*points, strict=True), "o-", ms=3, color=color, label=f"{arms} arms")
    members.axhline(1, color="k", lw=0.7)
    members.set(xscale="log", yscale="log", xlabel="members K", ylabel="regret / that of exact Thompson")
    members.set(title="ensemble sampling, linear in R¹⁰")
    members.legend(fontsize=8)
    mine = where(rows, kind="resolve")
    resolve.plot(column(mine, "dim"), column(mine, "counts"), "o-", color="#2e8b57", label="by counts: ~ε⁻ᵈ")
    resolve.plot(column(mine, "dim"), column(mine, "posterior"), "o-", color="k", label="by the posterior: ~d")
    resolve.set(yscale="log", xlabel="dimension d", ylabel="measurements", title="to resolve a linear bandit (ε = ½)")
    resolve.set_xticks(column(mine, "dim"))
    resolve.legend(fontsize=8)
    legend.axis("off")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    legend.legend(handles, labels, loc="center", fontsize=9, frameon=False)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the final regret, as a multiple of that of exact Thompson sampling, and its growth.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("regret / exact", *TITLES.values())]
    for name, (label, *_) in METHODS.items():
        cells = []
        for bandit in BANDITS:
            (mine,) = where(rows, kind="growth", bandit=bandit, method=name)
            (exact,) = where(rows, kind="growth", bandit=bandit, method="exact")
            cells.append(f"{mine['regret'] / exact['regret']:.1f}, {mine['growth']}")
        table.append((label, *cells))
    return table
