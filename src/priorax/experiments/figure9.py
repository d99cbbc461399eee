"""Figure 9: NoisyNet and dropout on DeepSea, tuned, compared with BSP.

Tuned by grid search: for both, sampling by step or by episode; for dropout, with (50,50) units, the keep probability:
two values in `quick`, four in `paper`. NoisyNet has the (20,20) units of BSP. The paper tunes up to 50,000 episodes,
`paper` here up to 3,000.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.sweep import task
from priorax.report.learning_times import median_table, times_to_learn
from priorax.report.plots import panels
from priorax.report.rows import Row

SIZES = {"quick": (6, 8, 10, 12, 16), "paper": (6, 8, 10, 12, 14, 16, 20, 24, 28, 32)}
SEEDS = {"quick": 2, "paper": 3}
MOST_EPISODES = {"quick": 1000, "paper": 3000}
LEARNED_AFTER = 30
"""First episode that can count as learned: on small grids luck makes the first few look learned."""
KEPT = {"quick": (0.1, 0.5), "paper": (0.1, 0.3, 0.5, 0.8)}
EACH = {"step": True, "episode": False}


def variants(preset: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """List the variants.

    Args:
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        Agent and changed settings of each variant, by name.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {"BSP": ("bsp", {})}
    for when, each in EACH.items():
        found[f"NoisyNet, noise per {when}"] = ("noisy", {"draw_each_step": each})
        for kept in KEPT[preset]:
            changes = {"p_keep": kept, "draw_each_step": each, "widths": (50, 50)}
            found[f"dropout, keep {kept:g}, mask per {when}"] = ("dropout", changes)
    return found


def ladders(preset: str) -> list[Any]:
    """List a ladder of sizes for each variant.

    Args:
        preset: Size of the experiment, `quick` or `paper`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [
            [
                task(name, agent, size, seed, MOST_EPISODES[preset], **changes).asking(learned_after=LEARNED_AFTER)
                for seed in range(SEEDS[preset])
            ]
            for size in SIZES[preset]
        ]
        for name, (agent, changes) in variants(preset).items()
    ]


def _looks(rows: list[Row]) -> dict[str, tuple[str, str, str]]:
    shades = {"NoisyNet": ("#b79ad6", "#6a3d9a"), "dropout": ("#e3c4b5", "#cf9a80", "#a65f3e", "#6b3316")}
    looks = {"BSP": ("BSP", "#1f5fb4", "o")}
    used: dict[str, int] = {}
    for name in sorted({row["name"] for row in rows} - {"BSP"}):
        family = "NoisyNet" if name.startswith("NoisyNet") else "dropout"
        shade = shades[family][used.get(family, 0) % len(shades[family])]
        used[family] = used.get(family, 0) + 1
        looks[name] = (name, shade, "v" if name.endswith("step") else "D")
    return looks


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time against N.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=7.4, height=4.6)
    times_to_learn(axes[0, 0], rows, _looks(rows), beside=True)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the median learning time by variant and size.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    return median_table(rows, {name: name for name in dict.fromkeys(row["name"] for row in rows)})
