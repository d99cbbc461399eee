"""Table 1: important issues in posterior approximations, each cell measured and compared with the paper's mark.

Each number is the median over seeds (data, initialisation and noise), with its 95% bootstrap interval. THRESHOLDS were
committed before the first run of their columns; appendix C.6 itself calls its table "a rough summary". A mark is *firm*
if the ends of the interval, and thresholds a quarter lower or higher, give the same.

- *data concentration*: linear regression in R² with N(0,1) noise; mean spread at new inputs after n = 100, 1,000 and
  10,000 examples, and the ratio of the last to the first (exact Bayes: 0.1). A spread at n = 100 below a quarter of
  that of exact Bayes is a cross: there is nothing to concentrate.
- *learned metric*: the linear bandit of figure 2 with 100 actions; correlation over the map of the method's spread with
  the exact posterior's.
- *multi step*: Q-learning on a chain of 10 states with known transitions, where the value of the last state is unknown
  (it is never left); the spread at the first state over that at the last, or its inverse if that is smaller. At 1
  uncertainty propagates undiminished. A count can be uncertain only about stored states, so its last state is left
  once, and the optimism in Q is measured. Exact Bayes is RLSVI. If learning from the other states makes the spread at
  the last one fall below a tenth of what it was before any learning, the mark is a cross: what arrives at the first
  state is no longer the uncertainty that was there.
- *works in noise*: regret on the linear bandit with N(0,1) noise after 1,000 steps over that of exact Thompson sampling
  (`experiments/bandits.py`).
- *prior effect*: 100 examples on [-1, 1] with targets of zero; spread at 1.5 <= |x| <= 2.5.
- *cheap compute*: floating-point operations of one update over those of a single network's update.

*prior effect* has a second form, shown beside it: if the agent, with the settings that the equal search chose for it,
does not learn DeepSea 10 within 1,000 episodes, fewer than the 2^10 of dithering, on half of the seeds (exact Bayes:
RLSVI), the mark is one worse.

What changed after looking at results: prior effect had its data on [-1, 0] and measured [0.5, 1.5], where half the
units of a network without biases had never been active, so that every network looked uncertain; multi step had PSRL for
exact Bayes, whose last state may lead anywhere, so that its value grows with the remaining steps. The second form of
prior effect came after its first measurements, and brought three marks to agreement with the paper: so both are shown.
The rule on a collapsed last state came after C51 had been seen to collapse there.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from priorax.agents import RLSVI, QLearner, Tabular, build, settings
from priorax.agents.tabular import Model
from priorax.analysis.parallel import Task
from priorax.beliefs import Belief, BeliefState, Method, plain_batch, values_of
from priorax.beliefs import method as make_method
from priorax.envs.interface import TaskSpec
from priorax.experiments.bandits import regret_curve
from priorax.experiments.figure2 import actions
from priorax.experiments.figure3 import FIRST_SEED
from priorax.experiments.search import CHOSEN
from priorax.experiments.sweep import task
from priorax.fitting import fit
from priorax.heads import C51
from priorax.networks import MLP
from priorax.replay import Transition
from priorax.report.intervals import Estimate, mean_interval, median_interval
from priorax.report.plots import panels
from priorax.report.rows import Row, where
from priorax.training.backends.loop import empty_replay, learn_once, remember

ROWS = {
    "dropout": "Dropout",
    "noisy": "NoisyNet",
    "bbb": "BBB / VI",
    "count": "Density count",
    "c51": "'Distributional' RL",
    "ensemble": "Ensemble",
    "bs": "Bootstrap",
    "bsp": "Bootstrap + prior",
    "exact": "Exact Bayes",
}
COLUMNS = ("data concentration", "learned metric", "multi step", "works in noise", "prior effect", "cheap compute")
TICK, CIRCLE, CROSS = MARKS = ("tick", "circle", "cross")
PAPER = {
    "dropout": (CROSS, TICK, CROSS, CIRCLE, CROSS, TICK),
    "noisy": (CIRCLE, TICK, CROSS, TICK, CROSS, TICK),
    "bbb": (CIRCLE, TICK, CROSS, TICK, CIRCLE, TICK),
    "count": (TICK, CROSS, TICK, CROSS, CIRCLE, TICK),
    "c51": (CROSS, CIRCLE, TICK, CIRCLE, CROSS, TICK),
    "ensemble": (CROSS, TICK, TICK, CROSS, CROSS, CROSS),
    "bs": (TICK, TICK, TICK, TICK, CROSS, CROSS),
    "bsp": (TICK, TICK, TICK, TICK, TICK, CROSS),
    "exact": (TICK, TICK, TICK, TICK, TICK, CROSS),
}


class Threshold(NamedTuple):
    """Thresholds of one column: a tick at or beyond `tick`, a cross beyond `cross`, else a circle."""

    tick: float
    """Threshold of a tick."""
    cross: float
    """Threshold of a cross."""
    low_is_good: bool
    """Whether lower numbers are better."""

    def mark(self, number: float) -> str:
        """Return the mark of a measurement.

        Args:
            number: The measured number.

        Returns:
            The mark.
        """
        sign = 1 if self.low_is_good else -1
        if sign * number <= sign * self.tick:
            return TICK
        return CROSS if sign * number > sign * self.cross else CIRCLE

    def moved(self) -> tuple["Threshold", "Threshold"]:
        """Move both thresholds by a quarter.

        Returns:
            The thresholds divided and multiplied by 1.25.
        """
        return self._replace(tick=self.tick / 1.25, cross=self.cross / 1.25), self._replace(
            tick=self.tick * 1.25, cross=self.cross * 1.25
        )


THRESHOLDS = {
    "data concentration": Threshold(tick=0.35, cross=0.75, low_is_good=True),
    "learned metric": Threshold(tick=0.7, cross=0.4, low_is_good=False),
    "prior effect": Threshold(tick=0.1, cross=0.01, low_is_good=False),
    "cheap compute": Threshold(tick=3.0, cross=10.0, low_is_good=True),
    "multi step": Threshold(tick=0.7, cross=0.3, low_is_good=False),
    "works in noise": Threshold(tick=2.0, cross=4.0, low_is_good=True),
}
CHAIN, REPEATS = 10, 1000
"""States of the chain of *multi step*, and how often each transition was seen."""
AGENT = {"count": "ucb"}
"""Agents whose name differs from that of their belief."""
LEAST_SPREAD = 0.25
"""Fraction of exact Bayes' spread at n = 100 below which data concentration is a cross."""
LEAST_LEFT = 0.1
"""Fraction of its first spread below which the last state of the chain has collapsed."""
STEPS = {"quick": 3000, "full": 10000}
SEEDS = {"quick": 2, "full": 20}
BANDITS = {"quick": 20, "full": 100}
"""Seeds of *works in noise*."""
SIZE, MOST_EPISODES = 10, 1000
"""Of DeepSea."""
NETWORK = MLP((20, 20))
THETA = np.array([1.0, -0.5])
SETTINGS: dict[str, dict[str, Any]] = {
    "bbb": {"kl_weight": 2.0},
    "c51": {"head": C51(-8.0, 8.0, 51)},
    "ensemble": {"num_members": 20},
    "bs": {"num_members": 20},
    "bsp": {"num_members": 20, "prior": MLP((20, 20), bias_scale=1.0), "prior_scale": 3.0},
}


def make(name: str) -> Method:
    """Build the method of a row: exact Bayes is linear in x, the others are (20,20)-MLPs.

    Args:
        name: Name of the method.

    Returns:
        The belief and its data noise.
    """
    return make_method(name) if name == "exact" else make_method(name, network=NETWORK, **SETTINGS.get(name, {}))


def fitted_spread(name: str, x: np.ndarray, y: np.ndarray, at: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """Fit a method and return its spread.

    Args:
        name: Name of the method.
        x: Training inputs.
        y: Training targets.
        at: Inputs at which to evaluate the spread.
        steps: Number of optimiser steps.
        seed: Random seed.

    Returns:
        The spread at each input.
    """
    belief, noise = make(name)
    data = (x.astype(np.float32), y.astype(np.float32))
    key_fit, key_spread = jax.random.split(jax.random.key(seed))
    state = fit(belief, data, key=key_fit, noise=noise, steps=steps).state
    return np.asarray(belief.spread(state, key_spread, at.astype(np.float32), num_draws=500))[:, 0]


Measured = list[dict[str, Any]]
"""Rows of one measurement: `number`, and what it was made of."""


def data_concentration(method: str, seed: int, steps: int) -> Measured:
    """Measure the spread after 10,000 examples over that after 100.

    Args:
        method: Name of the method.
        seed: Random seed.
        steps: Number of optimiser steps.

    Returns:
        The rows.
    """
    random = np.random.default_rng(seed)
    x = random.standard_normal((10_000, 2))
    y = x @ THETA + random.standard_normal(len(x))
    at = random.standard_normal((50, 2))
    few, more, many = (float(fitted_spread(method, x[:n], y[:n], at, steps, seed).mean()) for n in (100, 1000, 10_000))
    exact = float(fitted_spread("exact", x[:100], y[:100], at, steps, seed).mean())
    shown = {"spread_100": few, "ratio_10x": more / max(few, 1e-9), "spread_of_exact": few / exact}
    return [{"number": many / max(few, 1e-9), **shown}]


def learned_metric(method: str, seed: int, steps: int) -> Measured:
    """Measure the correlation of the spread with the exact posterior's over the map of figure 2.

    Args:
        method: Name of the method.
        seed: Random seed.
        steps: Number of optimiser steps.

    Returns:
        The rows.
    """
    random = np.random.default_rng(seed)
    x = np.concatenate([actions() for _ in range(4)])[:100] + 0.02 * random.standard_normal((100, 2))
    y = x @ THETA + random.standard_normal(len(x))
    side = np.linspace(-2.5, 2.5, 21)
    at = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    ours, exact = (fitted_spread(which, x, y, at, steps, seed) for which in (method, "exact"))
    return [{"number": float(np.corrcoef(ours, exact)[0, 1]) if ours.std() > 0 else 0.0}]


def multi_step(method: str, seed: int, steps: int) -> Measured:
    """Measure how much of the uncertainty at the end of a chain remains at its start.

    Args:
        method: Name of the method.
        seed: Random seed.
        steps: Number of optimiser steps.

    Returns:
        The rows.
    """
    last = CHAIN - 1
    key_learn, key_spread = jax.random.split(jax.random.key(seed))
    if method == "exact":
        moves = jnp.zeros((CHAIN, 1, CHAIN + 1)).at[jnp.arange(last), 0, jnp.arange(1, CHAIN)].set(float(REPEATS))
        chain = Tabular(RLSVI(), CHAIN, 1, CHAIN, 1.0)
        plans = jax.vmap(lambda key: chain.plan(Model(moves, jnp.zeros((CHAIN, 1))), key))
        doubt = np.std(plans(jax.random.split(key_spread, 2000)), axis=0)[:, 0]
        return _travelled(doubt[0], doubt[last], 1.0)
    changes: dict[str, Any] = {"sample_outcomes": True, "epsilon": None} if method == "c51" else {}
    known = AGENT.get(method, method)
    chosen = settings(known, discount=1.0, capacity=CHAIN * REPEATS, **changes)
    agent = build(known, chosen, TaskSpec(1, CHAIN))
    assert isinstance(agent, QLearner)
    first, learned = (_chain_learned(agent, key_learn, count, leave_last=method == "count") for count in (0, steps))
    ends = jnp.array([0, last])
    belief = agent.belief
    if belief.pays_bonus:
        optimism = np.asarray(values_of(belief.head, belief.forward(learned, key_spread, ends, None, True)))
        start, end = optimism[0, :, 0]
        return _travelled(start, end, 1.0)
    before, after = (
        np.asarray(belief.spread(state, key_spread, ends, num_draws=500))[:, 0] for state in (first, learned)
    )
    return _travelled(after[0], after[1], float(after[1] / max(before[1], 1e-9)))


def _travelled(start: Any, end: Any, left: float) -> Measured:
    ratio = abs(float(start)) / max(abs(float(end)), 1e-9)
    shown = {"spread_start": float(start), "spread_end": float(end), "left_of_first": left}
    return [{"number": min(ratio, 1 / max(ratio, 1e-9)), **shown}]


def _chain_learned(agent: QLearner, key: Any, steps: int, leave_last: bool) -> BeliefState:
    """The belief after so many updates on the chain's transitions, each seen REPEATS times."""

    def keep(carry: Any, item: tuple[Any, Any]) -> tuple[Any, None]:
        (state, buffer), (at, key) = carry, item
        zero = jnp.zeros(())
        last = at == CHAIN - 1
        step = Transition(at, zero.astype(int), zero, at + 1, last, last)
        return remember(agent, state, buffer, key, step), None

    @jax.jit
    def run(key: Any) -> BeliefState:
        key_init, key_mask, key_learn = jax.random.split(key, 3)
        seen = jnp.tile(jnp.arange(CHAIN - 1), REPEATS)
        if leave_last:
            seen = jnp.append(seen, CHAIN - 1)
        nowhere = jnp.zeros((), int)
        state = agent.init(key_init, nowhere)
        carry = (state, empty_replay(agent, state, nowhere, nowhere))
        carry, _ = jax.lax.scan(keep, carry, (seen, jax.random.split(key_mask, len(seen))))
        learn = lambda carry, key: (learn_once(agent, carry[0], carry[1], key)[:2], None)  # noqa: E731
        return jax.lax.scan(learn, carry, jax.random.split(key_learn, steps))[0][0].belief

    return run(key)


def works_in_noise(method: str, seeds: int, steps: int) -> Measured:
    """Measure the regret on a noisy linear bandit.

    Args:
        method: Name of the method.
        seeds: Number of bandits.
        steps: Number of rounds.

    Returns:
        The rows: one for each bandit, with its regret.
    """
    last = regret_curve(method, "linear", steps, seeds)[:, -1]
    return [{"bandit": i, "number": float(regret)} for i, regret in enumerate(last)]


def prior_effect(method: str, seed: int, steps: int) -> Measured:
    """Measure the mean spread away from data with targets of zero.

    Args:
        method: Name of the method.
        seed: Random seed.
        steps: Number of optimiser steps.

    Returns:
        The rows.
    """
    x = np.random.default_rng(seed).uniform(-1, 1, (100, 1))
    right = np.linspace(1.5, 2.5, 21)
    at = np.concatenate([-right, right])[:, None]
    return [{"number": float(fitted_spread(method, x, np.zeros(100), at, steps, seed).mean())}]


def cheap_compute(method: str) -> Measured:
    """Measure the floating-point operations of one update on 128 examples over those of a single network.

    Exact Bayes has as many features as that network has weights, and conditions and draws once.

    Args:
        method: Name of the method.

    Returns:
        The rows.
    """
    reference = update_flops(make_method("ensemble", num_members=1, network=NETWORK).belief)
    if method != "exact":
        return [{"number": update_flops(make(method).belief) / reference}]
    weights = sum(leaf.size for leaf in jax.tree.leaves(NETWORK.init(jax.random.key(0), jnp.zeros(2), 1)))
    # conditioning: 2 n P² for the Gram matrix; a draw: P³/3 for its Cholesky factor and 3 P² to solve
    return [{"number": (2 * 128 * weights**2 + weights**3 / 3 + 3 * weights**2) / reference}]


def update_flops(belief: Belief) -> float:
    """Return the compiler's count of floating-point operations of one update, including counting examples if the
    belief does.

    Args:
        belief: The belief.

    Returns:
        The number of operations.
    """
    state = belief.init(jax.random.key(0), jnp.zeros(2))
    x, y = jnp.zeros((128, 2)), jnp.zeros((128, 1))
    target = jax.vmap(jax.vmap(belief.head.encode))(y)
    batch = plain_batch(x, target, belief.num_streams)
    if belief.has_prior:
        batch = eqx.tree_at(lambda b: b.prior, batch, belief.prior_values(state, x), is_leaf=lambda leaf: leaf is None)

    def step(state: Any, batch: Any, key: Any) -> Any:
        return belief.update(belief.observe(state, batch), batch, key)

    analysis: Any = jax.jit(step).lower(state, batch, jax.random.key(0)).compile().cost_analysis()
    return float(analysis["flops"])


BY_SEED: dict[str, Callable[..., Measured]] = {
    "data concentration": data_concentration,
    "learned metric": learned_metric,
    "multi step": multi_step,
    "prior effect": prior_effect,
}
"""Measurements of one seed."""


def ladders(budget: str) -> list[Any]:
    """List every measurement separately, and the runs on DeepSea.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds, steps = range(SEEDS[budget]), STEPS[budget]
    found: list[Task] = []
    for name in ROWS:
        for column_name, measure in BY_SEED.items():
            found += [Task(column_name, {"method": name, "seed": seed, "steps": steps}, measure) for seed in seeds]
        found.append(Task("works in noise", {"method": name, "seeds": BANDITS[budget], "steps": 1000}, works_in_noise))
        found.append(Task("cheap compute", {"method": name}, cheap_compute))
        agent = {**AGENT, "exact": "rlsvi"}.get(name, name)
        changes = {} if agent == "bsp" else CHOSEN.get(agent, {})
        found += [task(f"deep sea {name}", agent, SIZE, FIRST_SEED + i, MOST_EPISODES, **changes) for i in seeds]
    return [[[run]] for run in found]


class Cell(NamedTuple):
    """A cell of the table."""

    number: Estimate
    """The median with its interval."""
    mark: str
    """Our mark."""
    firm: bool
    """Whether the ends of the interval, and moved thresholds, give the same mark."""
    demoted: str | None = None
    """The mark by the second form of *prior effect*, if it is another."""


def cell(rows: list[Row], name: str, column_name: str) -> Cell:
    """Compute a cell of the table from its rows.

    Args:
        rows: Rows of the experiment.
        name: Name of the method.
        column_name: Name of the column.

    Returns:
        The cell.
    """
    mine = [row for row in where(rows, name=column_name) if row.get("method") == name]
    number = median_interval([row["number"] for row in mine])
    if column_name == "works in noise":
        exact = [row["number"] for row in where(rows, name=column_name) if row.get("method") == "exact"]
        ratios = [row["number"] for row in mine]
        mean = float(np.mean(exact))
        number = Estimate(*(part / mean for part in mean_interval(ratios)))
    threshold = THRESHOLDS[column_name]
    worst = _collapsed(mine, column_name)
    mark = CROSS if worst else threshold.mark(number.value)
    others = {threshold.mark(part) for part in number} | {t.mark(number.value) for t in threshold.moved()}
    demoted = None
    if column_name == "prior effect":
        seen = where(rows, name=f"deep sea {name}")
        learned = sum("episodes_to_learn" in row for row in seen)
        if 2 * learned < len(seen):
            demoted = MARKS[min(MARKS.index(mark) + 1, 2)]
    return Cell(number, mark, worst or others == {mark}, demoted if demoted != mark else None)


def _collapsed(rows: list[Row], column_name: str) -> bool:
    """Whether there is no spread to measure."""
    limits = {"data concentration": ("spread_of_exact", LEAST_SPREAD), "multi step": ("left_of_first", LEAST_LEFT)}
    if column_name not in limits:
        return False
    name, least = limits[column_name]
    return float(np.median([row[name] for row in rows])) < least


def short(number: float) -> str:
    """Format a number with two digits.

    Args:
        number: The number.

    Returns:
        The text.
    """
    if abs(number) < 1e-3:
        return "0"
    return f"{number:.0f}" if abs(number) >= 10 else f"{number:.2g}"


SIGNS = {TICK: ("✓", "#2a8f3c"), CIRCLE: ("●", "#e0a100"), CROSS: ("✗", "#c0332b")}


def figure(rows: list[Row]) -> Figure:
    """Draw the table: our marks large with their numbers, the paper's marks small behind them.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=11.5, height=5.0)
    axis = axes[0, 0]
    axis.set(xlim=(0, len(COLUMNS)), ylim=(len(ROWS), 0))
    axis.set_xticks(np.arange(len(COLUMNS)) + 0.5, COLUMNS)
    axis.set_yticks(np.arange(len(ROWS)) + 0.5, list(ROWS.values()))
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    for i, name in enumerate(ROWS):
        axis.axhline(i, color="#dddddd", lw=0.8)
        for j, column_name in enumerate(COLUMNS):
            found = cell(rows, name, column_name)
            sign, colour = SIGNS[found.mark]
            axis.text(j + 0.2, i + 0.5, sign, color=colour, ha="center", va="center", fontsize=14)
            if found.demoted:
                sign, colour = SIGNS[found.demoted]
                axis.text(j + 0.2, i + 0.8, f"→ {sign}", color=colour, ha="center", va="center", fontsize=8)
            tilde = "" if found.firm else "~"
            axis.text(j + 0.32, i + 0.38, tilde + short(found.number.value), va="center", fontsize=9, color="#444444")
            ends = f"[{short(found.number.low)}, {short(found.number.high)}]"
            axis.text(j + 0.32, i + 0.7, ends, va="center", fontsize=6.5, color="#888888")
            sign, colour = SIGNS[PAPER[name][j]]
            axis.text(j + 0.85, i + 0.5, sign, color=colour, ha="center", va="center", fontsize=9, alpha=0.7)
    words = (
        "large: measured here, median and 95% interval; small, right: the paper's mark; ~: the mark depends on the "
        "interval or the threshold; →: one worse, since the agent does not learn DeepSea 10"
    )
    drawing.supxlabel(words, fontsize=8)
    return drawing


def agreement(rows: list[Row], demoted: bool = False) -> int:
    """Count the cells whose mark is the paper's.

    Args:
        rows: Rows of the experiment.
        demoted: Whether to use the second form of *prior effect*.

    Returns:
        The number of cells, of 54.
    """
    pairs = [(cell(rows, name, c), paper) for name in ROWS for c, paper in zip(COLUMNS, PAPER[name], strict=True)]
    return sum(((demoted and found.demoted) or found.mark) == paper for found, paper in pairs)


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate where our marks agree with the paper's.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("ours | the paper's", *COLUMNS)]
    for name, title in ROWS.items():
        cells = []
        for column_name, paper in zip(COLUMNS, PAPER[name], strict=True):
            found = cell(rows, name, column_name)
            ours = SIGNS[found.mark][0] + (f"→{SIGNS[found.demoted][0]}" if found.demoted else "")
            tilde = "" if found.firm else "~"
            cells.append(f"{ours} {tilde}{short(found.number.value)} | {SIGNS[paper][0]}")
        table.append((title, *cells))
    total = len(ROWS) * len(COLUMNS)
    counts = f"{agreement(rows)} of {total}", f"{agreement(rows, demoted=True)} of {total} with the second form"
    return [*table, ("marks as in the paper", *counts, *[""] * (len(COLUMNS) - 2))]
