"""From pixels on two cores: DeepSea as an image, where exploration matters, and Freeway, a simple Atari game.

Network, replay and training loop are those of Montezuma's Revenge (figure 6), where the paper's lengths are out of
reach.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.pixels.runs import curves, found_treasure, host_task, last, words
from priorax.experiments.pixels.runs import outcome as outcome
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, where

SIZE = 14
LOOKS = {"bsp": ("BSP", "#1f5fb4"), "eps_greedy": ("eps-greedy: double dueling prioritised DQN", "#8a8f98")}
DEEP_SEA: dict[str, Any] = {
    "prior_scale": 1.0,
    "num_members": 20,
    "lanes": 4,
    "learn_after": 64,
    "learn_every": 1,
    "learning_rate": 1e-3,
    "target_period": 50,
}
"""Settings for DeepSea. Episodes are short: learn from the first, at each step. DQN has the same."""
FREEWAY: dict[str, Any] = {
    "prior_scale": 0.3,
    "learn_after": 1000,
    "learning_rate": 5e-4,
    "target_period": 50,
}
"""Changes to the preset `small`, whose target network is updated too rarely for so short a run, and whose prior is too
large for the reward of a crossing: with a scale of 3 nothing is learned.
"""
SEEDS = {"quick": 3, "full": 5}
DEEP_SEA_STEPS = {"quick": 15_000, "full": 50_000}
FREEWAY_STEPS = {"quick": 60_000, "full": 1_000_000}
FREEWAY_SEEDS = {"quick": 1, "full": 3}


def ladders(budget: str) -> list[Any]:
    """List every run separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    found = []
    for seed in range(SEEDS[budget]):
        for agent in LOOKS:
            changes = _changes(agent, DEEP_SEA)
            steps = DEEP_SEA_STEPS[budget]
            found.append(
                [[host_task(agent, agent, "pixel_deep_sea", seed, steps, SIZE, stop=found_treasure, **changes)]]
            )
    for seed in range(FREEWAY_SEEDS[budget]):
        for agent in LOOKS:
            changes = _changes(agent, FREEWAY)
            found.append([[host_task(agent, agent, "atari", seed, FREEWAY_STEPS[budget], game="Freeway", **changes)]])
    return found


def _changes(agent: str, both: dict[str, Any]) -> dict[str, Any]:
    """One network has neither members nor priors."""
    return {key: value for key, value in both.items() if agent == "bsp" or key not in ("prior_scale", "num_members")}


def figure(rows: list[Row]) -> Figure:
    """Plot returns against environment steps for both tasks.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=4.6, height=3.4, share=False)
    curves(axes[0, 0], where(rows, env="pixel_deep_sea"), "mean_return", LOOKS)
    axes[0, 0].set(title=f"DeepSea {SIZE} from pixels", ylabel="return of an episode", xlabel="actions, all lanes")
    curves(axes[0, 1], where(rows, env="Freeway"), "mean_return", LOOKS)
    axes[0, 1].set(title="Freeway", ylabel="return of a game", xlim=(0, None), ylim=(0, None))
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the final results of each agent.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("task", "agent", "return at the end, by seed", "actions, by seed")]
    for env in ("pixel_deep_sea", "Freeway"):
        for name, (label, _) in LOOKS.items():
            mine = where(rows, env=env)
            returns, steps = last(mine, name, "mean_return"), last(mine, name, "step")
            table.append((env, label, words(returns), words(steps)))
    return table
