"""Figure 4: the largest DeepSea solved, by l2 scale and K for BSR, by prior scale and K for BSP.

The paper counts what is solved within 50,000 episodes; here within MOST_EPISODES.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.sweep import task
from priorax.report.plots import panels
from priorax.report.rows import Row

SCALES: dict[str, dict[str, tuple[float, ...]]] = {
    "quick": {"bsr": (0.01, 0.1, 1.0), "bsp": (0.1, 1.0, 10.0, 100.0, 1000.0)},
    "full": {"bsr": (0.01, 0.1, 1.0, 10.0), "bsp": (0.1, 1.0, 10.0, 100.0, 1000.0)},
}
MEMBERS = {"quick": (1, 5, 20), "full": (1, 3, 10, 20, 40)}
SIZES = {"quick": (5, 10, 20), "full": (5, 10, 15, 20, 30)}
MOST_EPISODES = {"quick": 400, "full": 1000}
SEEDS = {"quick": 1, "full": 1}
KNOB = {"bsr": "l2", "bsp": "prior_scale"}
LABEL = {"bsr": "BSR: l2 scale λ", "bsp": "BSP: prior scale β"}


def ladders(budget: str) -> list[Any]:
    """List a ladder of sizes for each method, scale and K.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [
            [
                task(method, method, size, seed, MOST_EPISODES[budget], **_changes(method, scale, members))
                for seed in range(SEEDS[budget])
            ]
            for size in SIZES[budget]
        ]
        for method, scales in SCALES[budget].items()
        for members in MEMBERS[budget]
        for scale in scales
    ]


def _changes(method: str, scale: float, members: int) -> dict[str, Any]:
    return {KNOB[method]: scale, "num_members": members}


def largest(rows: list[Row]) -> dict[tuple[str, float, int], int]:
    """Determine the largest size that every seed learned.

    Args:
        rows: Rows of the experiment.

    Returns:
        The size by method, scale and K; 0 if none.
    """
    found: dict[tuple[str, float, int], dict[int, bool]] = {}
    for row in rows:
        changes = dict(part.split("=") for part in row["changes"].split())
        name = (row["name"], float(changes[KNOB[row["name"]]]), int(changes["num_members"]))
        sizes = found.setdefault(name, {})
        sizes[row["size"]] = sizes.get(row["size"], True) and "episodes_to_learn" in row
    return {name: max((size for size, learned in sizes.items() if learned), default=0) for name, sizes in found.items()}


def figure(rows: list[Row]) -> Figure:
    """Plot one panel per method and one line per K.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=4.4, height=3.8, share=False)
    best = largest(rows)
    members = sorted({k for _, _, k in best})
    top = max(best.values()) * 1.1 + 1
    for axis, method in zip(axes[0], LABEL, strict=True):
        for i, k in enumerate(members):
            line = sorted((scale, size) for (name, scale, count), size in best.items() if name == method and count == k)
            places = range(len(line))
            shade = str(0.75 - 0.75 * i / max(len(members) - 1, 1))
            axis.plot(places, [size for _, size in line], "o-", color=shade, ms=4, label=f"K={k}")
            axis.set_xticks(list(places), [f"{scale:g}" for scale, _ in line])
        axis.set(xlabel=LABEL[method], ylim=(-0.04 * top, top))
    axes[0, 0].set_ylabel(f"largest N learned in {max(row['most_episodes'] for row in rows)} episodes")
    axes[0, 1].legend(fontsize=8)
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
