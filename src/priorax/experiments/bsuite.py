"""bsuite's own scores of `bsp` on DeepSea: the share of N = 10, 12, .. 50 learned within 10,000 episodes, with bsuite's
masks, and sooner than 2^N + 100.

Its stochastic form asks for less regret (0.8), from episode 100 on, since luck alone makes few episodes bad there.
bsuite's own analysis calls a pandas function that is gone, so its rule is written out here.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.sweep import task
from priorax.report.learning_times import seeds_of
from priorax.report.plots import panels
from priorax.report.rows import Row

SIZES = {"quick": (10, 14, 20), "paper": tuple(range(10, 51, 2))}
MOST_EPISODES = 10_000
FORMS = {
    "deep_sea": ("#1f5fb4", {"learned_below": 0.9, "learned_after": 1}),
    "deep_sea_stochastic": ("#c98a1b", {"learned_below": 0.8, "learned_after": 100}),
}
PUBLISHED = {"deep_sea": 1.0, "deep_sea_stochastic": 0.87}
"""bsuite's boot_dqn, read off a picture in its repository."""


def ladders(preset: str) -> list[Any]:
    """Every size of both forms by itself: one that is not learned does not spare the next."""
    return [[[_task(form, size)]] for size in SIZES[preset] for form in FORMS]


def _task(form: str, size: int) -> Any:
    return task(form, "bsp", size, 0, MOST_EPISODES, env=f"bsuite_{form}").asking(**FORMS[form][1])


def score(rows: list[Row], form: str) -> float:
    """bsuite's."""
    sizes = sorted({row["size"] for row in rows if row["name"] == form})
    return float(np.mean([seeds_of(rows, name=form, size=size)[0] < 2.0**size + 100 for size in sizes]))


def figure(rows: list[Row]) -> Figure:
    """Episodes to learn by size."""
    drawing, axes = panels(1, 1, width=5.6, height=3.8)
    axis = axes[0, 0]
    for form, (color, _) in FORMS.items():
        mine = sorted((row["size"], row.get("episodes_to_learn")) for row in rows if row["name"] == form)
        label = f"{form}: score {score(rows, form):.2f}"
        axis.plot([n for n, _ in mine], [t or np.nan for _, t in mine], "o-", color=color, ms=4, label=label)
        failed = [n for n, t in mine if not t]
        axis.plot(failed, [MOST_EPISODES] * len(failed), "x", color=color)
    axis.set(yscale="log", xlabel="size N", ylabel="episodes to learn (cross: not in 10,000)")
    axis.legend(fontsize=8)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """The scores."""
    table: list[tuple[str, ...]] = [("experiment", "bsp here", "bsuite's boot_dqn (off a picture)", "sizes")]
    for form, published in PUBLISHED.items():
        count = sum(row["name"] == form for row in rows)
        table.append((form, f"{score(rows, form):.2f}", f"{published:.2f}", str(count)))
    return table
