"""Figure 3: time to learn DeepSea against its size N, for eps-greedy, BS, BSR and BSP, with the 2^N of dithering.

Each method climbs N until all of its seeds fail. Same network, optimiser, minibatches and updates for all (the preset
`tuned`): they differ in what their names say. The paper goes on to 500,000 episodes; `paper` here stops at 3,000,
where the order is plain.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.sweep import seeds_of, task
from priorax.report.plots import panels
from priorax.report.rows import Row

METHODS = {
    "eps_greedy": ("ε-greedy DQN", "#8a8f98", "s"),
    "bs": ("BS: bootstrap", "#d03a2b", "v"),
    "bsr": ("BSR: bootstrap + l2", "#c98a1b", "D"),
    "bsp": ("BSP: with priors", "#1f5fb4", "o"),
}
SIZES = {"quick": (5, 10, 15, 20), "paper": tuple(range(5, 61, 5))}
SEEDS = {"quick": 2, "paper": 5}
MOST_EPISODES = {"quick": 1000, "paper": 3000}


def ladders(preset: str) -> list[Any]:
    """A ladder of sizes for each method."""
    return [
        [
            [task(method, method, size, seed, MOST_EPISODES[preset]) for seed in range(SEEDS[preset])]
            for size in SIZES[preset]
        ]
        for method in reversed(METHODS)
    ]


def figure(rows: list[Row]) -> Figure:
    """Median over seeds with every seed as a dot; hollow marks at the top: a seed that did not learn."""
    drawing, axes = panels(1, 1, width=6.4, height=4.4)
    axis = axes[0, 0]
    top = max(row["most_episodes"] for row in rows)
    for method, (label, color, marker) in METHODS.items():
        mine = [row for row in rows if row["name"] == method]
        sizes = sorted({row["size"] for row in mine})
        medians = [np.median(seeds_of(mine, size=size)) for size in sizes]
        axis.plot(sizes, [m if np.isfinite(m) else np.nan for m in medians], color=color, lw=1.5)
        for row in mine:
            learned = row.get("episodes_to_learn")
            face = color if learned else "none"
            axis.plot(row["size"], learned or top * 1.3, marker, color=color, mfc=face, ms=5, alpha=0.8)
        axis.plot([], [], marker, color=color, ls="-", label=label)
    n = np.arange(4, np.log2(top) + 1)
    axis.plot(n, 2**n, "k--", lw=1, label="2^N: dithering's lower bound")
    axis.axhline(top, color="k", lw=0.5, ls=":")
    widest = max(row["size"] for row in rows)
    axis.annotate(f"hollow: not learned in {top:,} episodes", (widest, top * 1.8), ha="right", va="center", size=8)
    axis.set(yscale="log", xlabel="DeepSea size N", ylabel="episodes to learn")
    axis.set_ylim(None, top * 2.4)
    axis.legend(loc="lower right", fontsize=8)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """The median time to learn of each method and size."""
    sizes = sorted({row["size"] for row in rows})
    table = [("method", *(f"N={size}" for size in sizes))]
    for method, (label, *_) in METHODS.items():
        cells = []
        for size in sizes:
            found = seeds_of(rows, name=method, size=size)
            middle = float(np.median(found)) if found else float("nan")
            cells.append(f"{middle:.0f}" if np.isfinite(middle) else ("not learned" if found else ""))
        table.append((label, *cells))
    return table
