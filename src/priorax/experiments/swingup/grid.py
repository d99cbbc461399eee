"""The equal search on cartpole swing-up: twelve settings of each agent of figure 5, one seed, the same episodes.

Learning rate and n-step returns have the same values for all agents; the third axis is each agent's own. All else is
the preset `swingup`, with the same code of observations for all; that preset was found for BSP, by an earlier search
whose rows are in results/swingup_search. Figure 5 shows the best setting of each agent on other seeds.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.grids import Changes, grid, words
from priorax.experiments.swingup import runs as swingup
from priorax.experiments.swingup.runs import swingup_task
from priorax.report.looks import LOOKS
from priorax.report.plots import panels
from priorax.report.rows import Row, where

FORM = "cartpole_swingup"
SEED = 0
EPISODES = {"quick": 100, "full": 1000}
_SHARED: dict[str, tuple[Any, ...]] = {"learning_rate": (1e-3, 3e-3), "n_step": (3, 5)}
GRIDS: dict[str, list[Changes]] = {
    "bsp": grid(prior_scale=(5.0, 9.0, 15.0), **_SHARED),
    "bs": grid(target_period=(10, 50, 200), **_SHARED),
    "eps_greedy": grid(epsilon=(0.1, 0.3, 1.0), **_SHARED),
    "d4pg": grid(action_noise=(0.1, 0.3, 1.0), **_SHARED),
}
"""Twelve settings of each agent. Epsilon is annealed to zero over 2,000 episodes."""
CHOSEN: dict[str, Changes] = {
    "bsp": {"prior_scale": 5.0, "learning_rate": 1e-3, "n_step": 3},
    "bs": {"target_period": 10, "learning_rate": 1e-3, "n_step": 3},
    "eps_greedy": {"epsilon": 1.0, "learning_rate": 1e-3, "n_step": 5},
    "d4pg": {"action_noise": 1.0, "learning_rate": 3e-3, "n_step": 5},
}
"""What `best` chooses from the committed rows (`results/swingup_grid_full.csv`), by agent; a test compares the two."""
FIXED: dict[str, Changes] = {"bsp": {"num_members": 10}, "bs": {"num_members": 10}}
"""Ensembles have half the members of the preset here, to save time."""
outcome = swingup.outcome


def ladders(budget: str) -> list[Any]:
    """List all settings of all agents.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    return [
        [[swingup_task(agent, agent, SEED, EPISODES[budget], FORM, **FIXED.get(agent, {}), **changes)]]
        for agent, settings in GRIDS.items()
        for changes in settings
    ]


def rows_with(rows: list[Row], agent: str, changes: Changes) -> list[Row]:
    """Select the rows of a setting.

    Args:
        rows: Rows of the experiment.
        agent: Name of the agent.
        changes: The setting.

    Returns:
        The rows.
    """
    wanted = set(words(changes).split())
    return [row for row in where(rows, name=agent) if wanted <= set(str(row["changes"]).split())]


def rank(rows: list[Row], agent: str, changes: Changes) -> tuple[float, float]:
    """Rank a setting: the return of the deployed policy at the end if it learned, then the rewarded decisions.

    Args:
        rows: Rows of the experiment.
        agent: Name of the agent.
        changes: The setting.

    Returns:
        Numbers to sort by; larger is better.
    """
    mine = rows_with(rows, agent, changes)
    if not mine:
        return 0.0, -1.0
    last = mine[-1]
    return float(last["greedy"]) if last["greedy"] > swingup.LEARNED else 0.0, float(last["rewarded"])


def best(rows: list[Row], agent: str) -> Changes:
    """Choose the best setting of an agent.

    Args:
        rows: Rows of the experiment.
        agent: Name of the agent.

    Returns:
        The setting; the first in the grid, of equals.
    """
    return max(GRIDS[agent], key=lambda changes: rank(rows, agent, changes))


def figure(rows: list[Row]) -> Figure:
    """Plot the number of rewarded decisions against episodes, one panel for each agent, one line for each setting.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    agents = [agent for agent in GRIDS if where(rows, name=agent)]
    drawing, axes = panels(1, len(agents), width=3.2, height=3.0)
    for axis, agent in zip(axes[0], agents, strict=True):
        chosen = best(rows, agent)
        for changes in GRIDS[agent]:
            mine = rows_with(rows, agent, changes)
            strong = changes == chosen
            axis.plot(
                [row["episode"] for row in mine],
                [row["rewarded"] + 1 for row in mine],
                color=LOOKS[agent].color,
                lw=2 if strong else 0.8,
                alpha=1 if strong else 0.5,
            )
        axis.set(xlabel="episode", yscale="log")
        axis.set_title(f"{LOOKS[agent].short}\nbest: {words(chosen)}", size=7)
    axes[0, 0].set_ylabel("rewarded decisions so far, plus one")
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate all settings.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("agent", "setting", "rewarded decisions", "return at the end", "best")]
    for agent, settings in GRIDS.items():
        if not where(rows, name=agent):
            continue
        chosen = best(rows, agent)
        for changes in settings:
            mine = rows_with(rows, agent, changes)
            if mine:
                last = mine[-1]
                mark = "best" if changes == chosen else ""
                table.append((agent, words(changes), f"{last['rewarded']:.0f}", f"{last['greedy']:.0f}", mark))
    return table
