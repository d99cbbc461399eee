"""The measurements of table 1: one function per column, for one method and one seed.

- *data concentration*: linear regression in R² with N(0,1) noise; mean spread at new inputs after n = 100, 1,000 and
  10,000 examples, and the ratio of the last to the first (exact Bayes: 0.1).
- *learned metric*: the linear bandit of figure 2 with 100 actions; correlation, over a grid of actions, of the method's
  spread with the exact posterior's.
- *multi step*: Q-learning on a chain of 10 states with known transitions, where the value of the last state is unknown
  (no transition from it is stored); the spread at the first state over that at the last, or the inverse ratio if that
  is smaller. A ratio of 1 means that uncertainty propagates undiminished. A count is uncertain about stored states
  only, so for counts one transition from the last state is stored, and the optimism of Q is measured. Exact Bayes is
  RLSVI.
- *works in noise*: regret on the linear bandit with N(0,1) noise after 1,000 steps (`experiments/bandits.py`); the
  table divides it by that of exact Thompson sampling.
- *prior effect*: 100 examples on [-1, 1] with targets of zero; mean spread at 1.5 <= |x| <= 2.5.
- *cheap compute*: floating-point operations of one update over those of a single network's update.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from priorax.agents import RLSVI, QLearner, Tabular, build, settings
from priorax.agents.tabular import Model
from priorax.beliefs import Belief, BeliefState, Method, plain_batch, values_of
from priorax.beliefs import method as make_method
from priorax.envs.interface import TaskSpec
from priorax.experiments.bandits import regret_curve
from priorax.experiments.regression.figure2 import actions
from priorax.fitting import fit
from priorax.heads import C51
from priorax.networks import MLP
from priorax.replay import Transition
from priorax.training.backends.loop import empty_replay, learn_once, remember

CHAIN, REPEATS = 10, 1000
"""States of the chain of *multi step*, and how often each transition is stored."""
AGENT = {"count": "ucb"}
"""Agents whose name differs from that of their belief."""
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
"""Rows of one measurement: the result, `number`, and the quantities that it was computed from."""


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
        spread = np.std(plans(jax.random.split(key_spread, 2000)), axis=0)[:, 0]
        return _propagated(spread[0], spread[last], 1.0)
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
        return _propagated(start, end, 1.0)
    before, after = (
        np.asarray(belief.spread(state, key_spread, ends, num_draws=500))[:, 0] for state in (first, learned)
    )
    return _propagated(after[0], after[1], float(after[1] / max(before[1], 1e-9)))


def _propagated(start: Any, end: Any, left: float) -> Measured:
    ratio = abs(float(start)) / max(abs(float(end)), 1e-9)
    shown = {"spread_start": float(start), "spread_end": float(end), "left_of_first": left}
    return [{"number": min(ratio, 1 / max(ratio, 1e-9)), **shown}]


def _chain_learned(agent: QLearner, key: Any, steps: int, leave_last: bool) -> BeliefState:
    """Train on the chain's transitions, each of which is stored REPEATS times.

    Args:
        agent: The agent.
        key: PRNG key.
        steps: Number of updates.
        leave_last: Whether one transition from the last state is stored as well.

    Returns:
        The state of its belief.
    """

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
