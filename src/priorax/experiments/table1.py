"""Table 1: important issues in posterior approximations, each cell measured and compared with the paper's mark.

THRESHOLDS were committed before the first run of their columns; appendix C.6 itself calls its table "a rough summary".

- *data concentration*: linear regression in R² with N(0,1) noise; mean spread at new inputs after n = 100, 1,000 and
  10,000 examples, and the ratio of the last to the first (exact Bayes: 0.1). A spread at n = 100 below a quarter of
  that of exact Bayes is a cross: there is nothing to concentrate.
- *learned metric*: the linear bandit of figure 2 with 100 actions; correlation over the map of the method's spread with
  the exact posterior's.
- *multi step*: Q-learning on a chain of 10 states with known transitions, where the value of the last state is unknown
  (it is never left); the spread at the first state over that at the last, or its inverse if that is smaller. At 1
  uncertainty propagates undiminished. A count can be uncertain only about stored states, so its last state is left
  once, and the optimism in Q is measured. Exact Bayes is RLSVI.
- *works in noise*: regret on the linear bandit with N(0,1) noise after 1,000 steps over that of exact Thompson sampling
  (`experiments/bandits.py`, 100 seeds).
- *prior effect*: 100 examples on [-1, 1] with targets of zero; spread at 1.5 <= |x| <= 2.5. If the agent does not learn
  DeepSea 10 within 1,000 episodes, fewer than the 2^10 of dithering, on 2 of 3 seeds (exact Bayes: RLSVI), the mark is
  one worse.
- *cheap compute*: floating-point operations of one update over those of a single network's update.

Two measurements changed after a first run, no threshold did: prior effect had its data on [-1, 0] and measured [0.5,
1.5], where half the units of a network without biases had never been active, so that every network looked uncertain;
and multi step had PSRL for exact Bayes, whose last state may lead anywhere, so that its value grows with the remaining
steps.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from priorax.agents import RLSVI, QLearner, Tabular, build, settings
from priorax.agents.tabular import Model
from priorax.beliefs import Belief, BeliefState, Method, method, plain_batch, values_of
from priorax.envs.interface import TaskSpec
from priorax.experiments import Report
from priorax.experiments.bandits import regret_curve
from priorax.experiments.figure2 import actions
from priorax.fitting import fit
from priorax.heads import C51
from priorax.networks import MLP
from priorax.replay import Transition
from priorax.report.plots import panels
from priorax.report.rows import Row, where
from priorax.training.backends.loop import empty_replay, learn_once, remember
from priorax.training.trainer import train

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

STEPS = {"quick": 3000, "paper": 10000}
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
    return method(name) if name == "exact" else method(name, network=NETWORK, **SETTINGS.get(name, {}))


def fitted_spread(name: str, x: np.ndarray, y: np.ndarray, at: np.ndarray, steps: int) -> np.ndarray:
    """Fit a method and return its spread.

    Args:
        name: Name of the method.
        x: Training inputs.
        y: Training targets.
        at: Inputs at which to evaluate the spread.
        steps: Number of optimiser steps.

    Returns:
        The spread at each input.
    """
    belief, noise = make(name)
    data = (x.astype(np.float32), y.astype(np.float32))
    state = fit(belief, data, key=jax.random.key(1), noise=noise, steps=steps).state
    return np.asarray(belief.spread(state, jax.random.key(2), at.astype(np.float32), num_draws=500))[:, 0]


class Measured(NamedTuple):
    """The measurement of a cell."""

    number: float
    """The measured number."""
    spoilt: int = 0
    """How many marks worse than the number says."""
    more: dict[str, float] = {}  # noqa: RUF012
    """Further numbers."""


def data_concentration(name: str, preset: str) -> Measured:
    """Measure the spread after 10,000 examples over that after 100.

    Args:
        name: Name of the method.
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        The measurement.
    """
    steps = STEPS[preset]
    random = np.random.default_rng(1)
    x = random.standard_normal((10_000, 2))
    y = x @ THETA + random.standard_normal(len(x))
    at = random.standard_normal((50, 2))
    few, more, many = (float(fitted_spread(name, x[:n], y[:n], at, steps).mean()) for n in (100, 1000, 10_000))
    exact = float(fitted_spread("exact", x[:100], y[:100], at, steps).mean())
    shown = {"spread_100": few, "ratio_10x": more / max(few, 1e-9), "spread_of_exact": few / exact}
    return Measured(many / max(few, 1e-9), 2 if few / exact < LEAST_SPREAD else 0, shown)


def learned_metric(name: str, preset: str) -> Measured:
    """Measure the correlation of the spread with the exact posterior's over the map of figure 2.

    Args:
        name: Name of the method.
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        The measurement.
    """
    random = np.random.default_rng(2)
    x = np.concatenate([actions() for _ in range(4)])[:100] + 0.02 * random.standard_normal((100, 2))
    y = x @ THETA + random.standard_normal(len(x))
    side = np.linspace(-2.5, 2.5, 21)
    at = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    ours, exact = (fitted_spread(which, x, y, at, STEPS[preset]) for which in (name, "exact"))
    return Measured(float(np.corrcoef(ours, exact)[0, 1]) if ours.std() > 0 else 0.0)


def multi_step(name: str, preset: str) -> Measured:
    """Measure how much of the uncertainty at the end of a chain remains at its start.

    Args:
        name: Name of the method.
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        The measurement.
    """
    last = CHAIN - 1
    if name == "exact":
        moves = jnp.zeros((CHAIN, 1, CHAIN + 1)).at[jnp.arange(last), 0, jnp.arange(1, CHAIN)].set(float(REPEATS))
        chain = Tabular(RLSVI(), CHAIN, 1, CHAIN, 1.0)
        plans = jax.vmap(lambda key: chain.plan(Model(moves, jnp.zeros((CHAIN, 1))), key))
        doubt = np.std(plans(jax.random.split(jax.random.key(0), 2000)), axis=0)[:, 0]
        return _travelled(doubt[0], doubt[last])
    changes: dict[str, Any] = {"sample_outcomes": True, "epsilon": None} if name == "c51" else {}
    known = AGENT.get(name, name)
    chosen = settings(known, discount=1.0, capacity=CHAIN * REPEATS, **changes)
    agent = build(known, chosen, TaskSpec(1, CHAIN))
    assert isinstance(agent, QLearner)
    state = _chain_learned(agent, STEPS[preset], leave_last=name == "count")
    ends = jnp.array([0, last])
    if agent.belief.pays_bonus:
        optimism = np.asarray(
            values_of(agent.belief.head, agent.belief.forward(state, jax.random.key(2), ends, None, True))
        )
        return _travelled(*optimism[0, :, 0])
    return _travelled(*np.asarray(agent.belief.spread(state, jax.random.key(2), ends, num_draws=500))[:, 0])


def _travelled(start: Any, end: Any) -> Measured:
    ratio = abs(float(start)) / max(abs(float(end)), 1e-9)
    return Measured(min(ratio, 1 / max(ratio, 1e-9)), 0, {"spread_start": float(start), "spread_end": float(end)})


def _chain_learned(agent: QLearner, steps: int, leave_last: bool) -> BeliefState:
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

    return run(jax.random.key(0))


def works_in_noise(name: str, preset: str) -> Measured:
    """Measure the regret on a noisy linear bandit over that of exact Thompson sampling.

    Args:
        name: Name of the method.
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        The measurement.
    """
    ours, exact = (float(regret_curve(which, "linear", 1000, 100)[:, -1].mean()) for which in (name, "exact"))
    return Measured(ours / exact, 0, {"regret": ours})


def prior_effect(name: str, preset: str) -> Measured:
    """Measure the mean spread away from data with targets of zero, and whether DeepSea is learned.

    Args:
        name: Name of the method.
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        The measurement.
    """
    x = np.random.default_rng(3).uniform(-1, 1, (100, 1))
    right = np.linspace(1.5, 2.5, 21)
    at = np.concatenate([-right, right])[:, None]
    agent = {**AGENT, "exact": "rlsvi"}.get(name, name)
    runs = [train(agent, size=10, seed=seed, episodes=1000, stop_when_learned=True) for seed in range(3)]
    learned = sum(run.episodes_to_learn is not None for run in runs)
    number = float(fitted_spread(name, x, np.zeros(100), at, STEPS[preset]).mean())
    return Measured(number, 0 if learned >= 2 else 1, {"deep_sea_10_learned_of_3": learned})


def cheap_compute(name: str, preset: str) -> Measured:
    """Measure the floating-point operations of one update on 128 examples over those of a single network.

    Exact Bayes has as many features as that network has weights, and conditions and draws once.

    Args:
        name: Name of the method.
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        The measurement.
    """
    reference = update_flops(method("ensemble", num_members=1, network=NETWORK).belief)
    if name != "exact":
        return Measured(update_flops(make(name).belief) / reference)
    weights = sum(leaf.size for leaf in jax.tree.leaves(NETWORK.init(jax.random.key(0), jnp.zeros(2), 1)))
    # conditioning: 2 n P² for the Gram matrix; a draw: P³/3 for its Cholesky factor and 3 P² to solve
    return Measured((2 * 128 * weights**2 + weights**3 / 3 + 3 * weights**2) / reference)


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


def run(preset: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield one row per cell.

    Args:
        preset: Size of the experiment, `quick` or `paper`.
        report: Called with the fraction of work done and a word on the current work.

    Yields:
        The rows.
    """
    for done, name in enumerate(ROWS):
        for i, (column_name, paper) in enumerate(zip(COLUMNS, PAPER[name], strict=True)):
            report((done + i / len(COLUMNS)) / len(ROWS), f"{ROWS[name]}: {column_name}")
            number, spoilt, more = MEASURES[column_name](name, preset)
            mark = THRESHOLDS[column_name].mark(number)
            ours = MARKS[min(MARKS.index(mark) + spoilt, 2)]
            yield {"method": name, "column": column_name, "paper": paper, "ours": ours, "number": number, **more}
    report(1.0, "done")


MEASURES: dict[str, Callable[[str, str], Measured]] = {
    "data concentration": data_concentration,
    "learned metric": learned_metric,
    "multi step": multi_step,
    "works in noise": works_in_noise,
    "prior effect": prior_effect,
    "cheap compute": cheap_compute,
}


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
    drawing, axes = panels(1, 1, width=10.5, height=4.6)
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
            (cell,) = where(rows, method=name, column=column_name)
            sign, colour = SIGNS[cell["ours"]]
            axis.text(j + 0.3, i + 0.5, sign, color=colour, ha="center", va="center", fontsize=14)
            axis.text(j + 0.42, i + 0.5, short(cell["number"]), va="center", fontsize=9, color="#444444")
            sign, colour = SIGNS[cell["paper"]]
            axis.text(j + 0.8, i + 0.5, sign, color=colour, ha="center", va="center", fontsize=9, alpha=0.7)
    drawing.supxlabel("large: measured here, with its number; small, right: the paper's mark", fontsize=9)
    return drawing


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
        for column_name in COLUMNS:
            (cell,) = where(rows, method=name, column=column_name)
            ours, theirs = SIGNS[cell["ours"]][0], SIGNS[cell["paper"]][0]
            cells.append(f"{ours} {short(cell['number'])} | {theirs}")
        table.append((title, *cells))
    return table
