"""Figure 2: the posterior uncertainty of x'theta in a linear bandit, and the bonus of a Gaussian pseudocount.

Thirty actions near (1, 0.5) have been tried. The posterior is certain along that direction at any distance, and at the
origin, and uncertain across it; the pseudocount is uncertain wherever few actions have been tried, regardless of the
reward.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from priorax.beliefs import Belief, Counts, Ensemble, ExactBayes, GaussianCount, plain_batch
from priorax.experiments import Report
from priorax.networks import MLP
from priorax.report.plots import panels
from priorax.report.rows import Row, column, where

NUM_ACTIONS = 30
SIDE = {"quick": 81, "full": 161}
EXACT = ExactBayes()
COUNT = Counts(Ensemble(num_members=1, network=MLP(())), GaussianCount(), bonus_scale=1.0)
PANELS = {"posterior": "posterior std of x'θ", "count": "Gaussian pseudocount bonus"}


def actions() -> np.ndarray:
    """Return the actions tried so far, [NUM_ACTIONS, 2]: a cloud stretched along (1, 0.5), away from the origin."""
    random = np.random.default_rng(2)
    along, across = np.array([1.0, 0.5]), np.array([-0.5, 1.0])
    return np.outer(1 + 0.3 * random.standard_normal(NUM_ACTIONS), along) + np.outer(
        0.15 * random.standard_normal(NUM_ACTIONS), across
    )


def observe(belief: Belief, x: np.ndarray, reward: np.ndarray) -> Any:
    """Condition a belief on actions and their rewards.

    Args:
        belief: The belief.
        x: The actions.
        reward: The rewards.

    Returns:
        The state.
    """
    return belief.observe(belief.init(jax.random.key(0), jnp.zeros(x.shape[1])), plain_batch(x, reward[:, None]))


def run(budget: str, report: Report) -> Iterator[dict[str, Any]]:
    """Yield one row per grid point, and one per action tried.

    Args:
        budget: Size of the experiment, `quick` or `full`.
        report: Called with the fraction of work done and a word on the current work.

    Yields:
        The rows.
    """
    x = actions()
    for row in x:
        yield {"kind": "action", "x1": float(row[0]), "x2": float(row[1])}
    exact, count = (observe(belief, x, np.zeros(len(x))) for belief in (EXACT, COUNT))
    side = np.linspace(-2.5, 2.5, SIDE[budget])
    grid = jnp.asarray(np.stack(np.meshgrid(side, side), -1).reshape(-1, 2))
    _, cov = EXACT.posterior(exact)
    std = np.sqrt(np.einsum("ni,ij,nj->n", grid, cov, grid))
    bonus = np.asarray(jax.vmap(lambda row: COUNT.bonus(count, row))(grid))
    for i, (x1, x2) in enumerate(np.asarray(grid)):
        yield {"kind": "grid", "x1": float(x1), "x2": float(x2), "posterior": float(std[i]), "count": float(bonus[i])}
    report(1.0, "grid")


def figure(rows: list[Row]) -> Figure:
    """Plot two maps with the actions on them.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=4.0, height=3.6)
    tried, grid = where(rows, kind="action"), where(rows, kind="grid")
    side = round(len(grid) ** 0.5)
    x1, x2 = (np.reshape(column(grid, c), (side, side)) for c in ("x1", "x2"))
    for axis, (name, title) in zip(axes[0], PANELS.items(), strict=True):
        values = np.reshape(column(grid, name), (side, side))
        image = axis.contourf(x1, x2, values, levels=12, cmap="viridis")
        drawing.colorbar(image, ax=axis, shrink=0.85)
        axis.plot(column(tried, "x1"), column(tried, "x2"), "r.", ms=5, label="actions tried")
        axis.plot(0, 0, "w+", ms=9, label="origin: reward is known to be 0")
        axis.set(title=title, xlabel="x₁", aspect="equal")
    axes[0, 0].set_ylabel("x₂")
    drawing.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, facecolor="#777777")
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate both measures at three points, and their correlation.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    grid = where(rows, kind="grid")
    table: list[tuple[str, ...]] = [("where", PANELS["posterior"], PANELS["count"])]
    for name, point in {"origin": (0, 0), "twice as far out": (2, 1), "across": (-1, 2)}.items():
        distance = [np.hypot(row["x1"] - point[0], row["x2"] - point[1]) for row in grid]
        near = grid[int(np.argmin(distance))]
        table.append((f"{name} {point}", f"{near['posterior']:.2f}", f"{near['count']:.2f}"))
    r = np.corrcoef(column(grid, "posterior"), column(grid, "count"))[0, 1]
    return [*table, ("correlation over the map", f"{r:.2f}", "")]
