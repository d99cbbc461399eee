"""bsuite's score of `bsp` on DeepSea: the fraction of N = 10, 12, .. 50 learned within 10,000 episodes.

With bsuite's action masks, and learned sooner than 2^N + 100 episodes. The stochastic variant requires an average
regret below 0.8 from episode 100 on, since luck alone makes few episodes bad there. bsuite's own analysis calls a
pandas function that was removed, so its rule is implemented here.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.experiments.bsuite.rules import DEEP_SEA, learned_in_time, published_scores
from priorax.experiments.sweep import task
from priorax.report.learning_times import seeds_of
from priorax.report.plots import panels
from priorax.report.rows import Row

SIZES = {"quick": (10, 14, 20), "full": tuple(range(10, 51, 2))}
MOST_EPISODES = 10_000
FORMS = {
    form: (color, dict(zip(("learned_below", "learned_after"), DEEP_SEA[form], strict=True)))
    for form, color in (("deep_sea", "#1f5fb4"), ("deep_sea_stochastic", "#c98a1b"))
}


def ladders(budget: str) -> list[Any]:
    """List every size of both variants separately: a size that is not learned does not skip the next.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [[[_task(form, size)]] for size in SIZES[budget] for form in FORMS]


def _task(form: str, size: int) -> Any:
    return task(form, "bsp", size, 0, MOST_EPISODES, env=f"bsuite_{form}").asking(**FORMS[form][1])


def score(rows: list[Row], form: str) -> float:
    """Compute bsuite's score.

    Args:
        rows: Rows of the experiment.
        form: The variant, `deep_sea` or `deep_sea_stochastic`.

    Returns:
        The score.
    """
    sizes = sorted({row["size"] for row in rows if row["name"] == form})
    return float(np.mean([learned_in_time(seeds_of(rows, name=form, size=size)[0], size) for size in sizes]))


def figure(rows: list[Row]) -> Figure:
    """Plot the learning time against size.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 1, width=5.6, height=3.8)
    axis = axes[0, 0]
    for form, (color, _) in FORMS.items():
        mine = sorted((row["size"], row.get("episodes_to_learn")) for row in rows if row["name"] == form)
        whole = len(mine) == len(SIZES["full"])
        label = f"{form}: " + (f"score {score(rows, form):.2f}" if whole else f"{len(mine)} sizes run, no score")
        axis.plot([n for n, _ in mine], [t or np.nan for _, t in mine], "o-", color=color, ms=4, label=label)
        failed = [n for n, t in mine if not t]
        axis.plot(failed, [MOST_EPISODES] * len(failed), "x", color=color)
    axis.set(yscale="log", xlabel="size N", ylabel="episodes to learn (cross: not in 10,000)")
    axis.legend(fontsize=8)
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the scores.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("experiment", "bsp here", "bsuite's boot_dqn, published", "sizes run")]
    for form in DEEP_SEA:
        count = sum(row["name"] == form for row in rows)
        table.append((form, f"{score(rows, form):.2f}", published_scores(form), f"{count} of {len(SIZES['full'])}"))
    return table
