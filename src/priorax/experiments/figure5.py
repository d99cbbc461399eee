"""Figure 5: learning curves of DQN, BS, BSP and D4PG on cartpole swing-up with sparse reward, and the first 500
episodes.

Besides the paper's task there is a variant with a wider rewarded region (cos theta > 0.8, |x| < 0.5) and, for D4PG, one
with the control suite's smooth reward, which shows that D4PG fails at exploration and not at learning.

All agents share the preset `swingup` (network, discount, n-step, replay, action repeat); BS is BSP without priors and
with the bootstrap; D4PG has continuous pushes and its own learning rates. The paper states neither the number of
episodes nor the hyperparameters.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments import swingup
from priorax.experiments.swingup import learning_curves, swingup_task
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, where

LOOKS = {
    "bsp": ("BSP: bootstrap with priors", "#1f5fb4"),
    "bs": ("BS: bootstrap", "#d03a2b"),
    "eps_greedy": ("ε-greedy DQN", "#8a8f98"),
    "d4pg": ("D4PG", "#4daf4a"),
}
FORMS = {
    "cartpole_swingup_wide": ("wider rewarded region", tuple(LOOKS)),
    "cartpole_swingup": ("the paper's task", tuple(LOOKS)),
    "cartpole_swingup_smooth": ("dense reward", ("d4pg",)),
}
"""Title and agents of each variant."""
EPISODES = {
    "quick": {"cartpole_swingup_wide": 250, "cartpole_swingup": 300, "cartpole_swingup_smooth": 150},
    "full": dict.fromkeys(FORMS, 2000),
}
SEEDS = {"quick": 3, "full": 5}
ZOOM = 500
outcome = swingup.outcome


def ladders(budget: str) -> list[Any]:
    """List all seeds of all agents, variant by variant.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [[swingup_task(agent, agent, seed, EPISODES[budget][form], form)]]
        for form, (_, agents) in FORMS.items()
        for agent in agents
        for seed in range(SEEDS[budget])
    ]


def figure(rows: list[Row]) -> Figure:
    """Plot a column for each variant: all episodes, and the first 500 if there are more.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    more = any(row["episode"] > ZOOM for row in rows)
    drawing, axes = panels(1 + more, len(FORMS), width=4.0, height=3.4, share=False)
    for column, (form, (title, _)) in enumerate(FORMS.items()):
        for line, until in enumerate((None, ZOOM)[: 1 + more]):
            learning_curves(axes[line, column], where(rows, env=form), LOOKS, until)
        axes[0, column].set_title(title)
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate when each run first balanced the pole, and its final return.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    return [
        ("reward", *swingup.HEADER),
        *((title, *line) for form, (title, _) in FORMS.items() for line in swingup.lines(where(rows, env=form), LOOKS)),
    ]
