"""Figure 4: the largest DeepSea solved, by l2 scale and K for BSR, by prior scale and K for BSP.

BSP is shown twice: with one prior scale at all sizes, as the paper means beta; and with the scale of `tuned`, given for
N=20 and multiplied by N/20 (`scale_with_states`), which keeps the prior's spread the same at every size. The paper
counts what is solved within 50,000 episodes; here within MOST_EPISODES.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.sweep import fresh_seeds, ladder
from priorax.report.plots import panels
from priorax.report.rows import Row

LAMBDAS = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0)
BETAS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
SCALES: dict[str, dict[str, tuple[float, ...]]] = {
    "quick": {"bsr": (0.01, 0.1, 1.0), "bsp": (0.1, 10.0, 1000.0), "bsp scaled": (0.1, 10.0, 1000.0)},
    "full": {"bsr": LAMBDAS, "bsp": BETAS, "bsp scaled": BETAS},
}
MEMBERS = {"quick": (1, 20), "full": (1, 3, 5, 10, 20)}
SIZES = {"quick": (5, 10, 15), "full": (5, 10, 15, 20, 30)}
MOST_EPISODES = {"quick": 300, "full": 1000}
SEEDS = {"quick": 1, "full": 3}
KNOB = {"bsr": "l2", "bsp": "prior_scale", "bsp scaled": "prior_scale"}
LABEL = {
    "bsr": "BSR: l2 scale λ",
    "bsp": "BSP: prior scale β, as in the paper",
    "bsp scaled": "BSP: prior scale β, times N/20",
}


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for each method, scale and K.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    seeds = fresh_seeds(SEEDS[budget])
    return [
        ladder(
            method, method.split()[0], SIZES[budget], seeds, MOST_EPISODES[budget], **_changes(method, scale, members)
        )
        for method, scales in SCALES[budget].items()
        for members in MEMBERS[budget]
        for scale in scales
    ]


def _changes(method: str, scale: float, members: int) -> dict[str, Any]:
    own = {"scale_with_states": method == "bsp scaled"} if method.startswith("bsp") else {}
    return {KNOB[method]: scale, "num_members": members, **own}


def largest(rows: list[Row]) -> dict[tuple[str, float, int], int]:
    """Determine the largest size that most seeds learned.

    Args:
        rows: Rows of the experiment.

    Returns:
        The size by method, scale and K; 0 if none.
    """
    found: dict[tuple[str, float, int], dict[int, list[bool]]] = {}
    for row in rows:
        changes = dict(part.split("=") for part in row["changes"].split())
        name = (row["name"], float(changes[KNOB[row["name"]]]), int(changes["num_members"]))
        found.setdefault(name, {}).setdefault(row["size"], []).append("episodes_to_learn" in row)

    def solved(sizes: dict[int, list[bool]]) -> int:
        return max((size for size, learned in sizes.items() if 2 * sum(learned) > len(learned)), default=0)

    return {name: solved(sizes) for name, sizes in found.items()}


def figure(rows: list[Row]) -> Figure:
    """Plot one panel per method and one line per K.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 3, width=3.9, height=3.8, share=False)
    best = largest(rows)
    members = sorted({k for _, _, k in best})
    top = max(best.values()) * 1.1 + 1
    for axis, method in zip(axes[0], LABEL, strict=True):
        for i, k in enumerate(members):
            line = sorted((scale, size) for (name, scale, count), size in best.items() if name == method and count == k)
            places = np.arange(len(line)) + 0.08 * (i - (len(members) - 1) / 2)  # side by side: none hides another
            shade = str(0.75 - 0.75 * i / max(len(members) - 1, 1))
            axis.plot(places, [size for _, size in line], "o-", color=shade, ms=4, label=f"K={k}")
            axis.set_xticks(range(len(line)), [f"{scale:g}" for scale, _ in line])
        axis.set(xlabel=LABEL[method], ylim=(-0.04 * top, top))
    episodes = max(row["most_episodes"] for row in rows)
    axes[0, 0].set_ylabel(f"largest N that most seeds learn in {episodes:,} episodes")
    axes[0, 0].legend(fontsize=8)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the largest size by method, K and scale.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    best = largest(rows)
    table: list[tuple[str, ...]] = []
    for method, label in LABEL.items():
        scales = sorted({scale for name, scale, _ in best if name == method})
        table.append((label, *(f"{scale:g}" for scale in scales)))
        for k in sorted({count for name, _, count in best if name == method}):
            table.append((f"K={k}", *(str(best.get((method, scale, k), "")) for scale in scales)))
    width = max(map(len, table))
    return [row + ("",) * (width - len(row)) for row in table]
