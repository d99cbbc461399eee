"""Ablation: `bsp` on DeepSea with one setting changed at a time, on seeds on which no setting was chosen."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.sweep import fresh_seeds, task
from priorax.report.learning_times import seeds_of
from priorax.report.plots import MEAN, panels
from priorax.report.rows import Row

SIZE = {"quick": 10, "full": 20}
SEEDS = {"quick": 2, "full": 5}
MOST_EPISODES = {"quick": 1000, "full": 3000}
VARIANTS: dict[str, dict[str, Any]] = {
    "tuned": {},
    "own minibatches": {"shared_batch": False},
    "mask 0.5": {"mask_prob": 0.5},
    "mask 0.5, own minibatches": {"mask_prob": 0.5, "shared_batch": False},
    "batch 64": {"batch_size": 64},
    "batch 128": {"batch_size": 128},
    "batch 512": {"batch_size": 512},
    "update every 2 steps": {"learn_every": 2},
    "update every 5 steps": {"learn_every": 5},
    "update at episode ends": {"learn_every": 0},
    "target period 4": {"target_period": 4},
    "target period 20": {"target_period": 20},
    "double Q": {"double_q": True},
    "K=5": {"num_members": 5},
    "K=10": {"num_members": 10},
    "K=40": {"num_members": 40},
    "prior scale / 10": {"prior_scale": 1.0},
    "prior scale / 3": {"prior_scale": 3.0},
    "prior scale x 3": {"prior_scale": 30.0},
    "prior scale x 10": {"prior_scale": 100.0},
    "linear prior": {"prior": "linear", "prior_scale": 0.5},
    "linear network and prior": {"prior": "linear", "prior_scale": 0.5, "widths": ()},
    "prior around Q*": {"prior": "optimal", "prior_scale": 0.1},
    "no prior": {"prior": "none"},
    "one hidden layer": {"widths": (20,)},
    "50 units": {"widths": (50, 50)},
    "learning rate 0.003": {"learning_rate": 3e-3},
    "learning rate 0.0003": {"learning_rate": 3e-4},
    "discount 1": {"discount": 1.0},
    "replay of 2,000": {"capacity": 2000},
    "a member per step": {"draw_each_step": True},
}


def ladders(budget: str) -> list[Any]:
    """List the runs of each variant.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    return [
        [[task(name, "bsp", SIZE[budget], seed, MOST_EPISODES[budget], **changes) for seed in seeds]]
        for name, changes in VARIANTS.items()
    ]


def _sorted(rows: list[Row]) -> list[tuple[str, list[float]]]:
    found = [(name, seeds_of(rows, name=name)) for name in VARIANTS]
    return sorted(((name, seeds) for name, seeds in found if seeds), key=lambda pair: float(np.median(pair[1])))


def figure(rows: list[Row]) -> Figure:
    """Plot one line per variant: seeds as dots, the median as a bar; crosses did not learn.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    table = _sorted(rows)
    drawing, axes = panels(1, 1, width=6.6, height=0.8 + 0.23 * len(table))
    axis, top = axes[0, 0], max(row["most_episodes"] for row in rows)
    for i, (_, seeds) in enumerate(reversed(table)):
        learned = [value for value in seeds if np.isfinite(value)]
        axis.plot(learned, [i] * len(learned), "o", color=MEAN, ms=4, alpha=0.7, label="a run" if i == 0 else None)
        axis.plot([top] * (len(seeds) - len(learned)), [i] * (len(seeds) - len(learned)), "x", color="#d03a2b", ms=5)
        if np.isfinite(np.median(seeds)):
            axis.plot([np.median(seeds)] * 2, [i - 0.35, i + 0.35], color="k", lw=2, label="median" if i == 0 else None)
    tuned = float(np.median(dict(table)["tuned"]))
    axis.axvline(tuned, color="k", lw=0.6, ls=":", label="median of tuned")
    axis.set_yticks(range(len(table)), [name for name, _ in reversed(table)], fontsize=8)
    size = max(row["size"] for row in rows)
    axis.set(xscale="log", xlabel=f"episodes to learn DeepSea {size} (cross: not in {top:,})")
    low, high = axis.get_xlim()
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=7, frameon=False, loc="lower right")
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate median and range of the learning time, fastest first.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("one change", "median", "least", "most", "learned")]
    for name, seeds in _sorted(rows):
        learned = sum(np.isfinite(seeds))
        shown = tuple("-" if not np.isfinite(v) else f"{v:.0f}" for v in (np.median(seeds), min(seeds), max(seeds)))
        table.append((name, *shown, f"{learned} of {len(seeds)}"))
    return table
