"""From pixels on two cores: DeepSea as a picture, where exploration is the point, and Freeway, a small Atari game.

The same convnet, replay and loop as for Montezuma's Revenge (figure 6), where the paper's lengths cannot be had.
"""

from typing import Any

from matplotlib.figure import Figure

from priorax.experiments.from_pixels import curves, found_treasure, host_task, last, words
from priorax.experiments.from_pixels import outcome as outcome
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
"""Episodes are short: learn from the first, at each step. DQN gets the same."""
FREEWAY: dict[str, Any] = {
    "prior_scale": 0.3,
    "learn_after": 1000,
    "learning_rate": 5e-4,
    "target_period": 50,
}
"""Of the preset `small`, whose target network is copied too seldom for so short a run, and whose prior is too large for
what a crossing is worth: at a scale of 3 nothing is learned in it."""
SEEDS = {"quick": 3, "paper": 5}
DEEP_SEA_STEPS = {"quick": 15_000, "paper": 50_000}
FREEWAY_STEPS = {"quick": 60_000, "paper": 1_000_000}
FREEWAY_SEEDS = {"quick": 1, "paper": 3}


def ladders(preset: str) -> list[Any]:
    """Every run by itself."""
    found = []
    for seed in range(SEEDS[preset]):
        for agent in LOOKS:
            changes = _changes(agent, DEEP_SEA)
            steps = DEEP_SEA_STEPS[preset]
            found.append(
                [[host_task(agent, agent, "pixel_deep_sea", seed, steps, SIZE, stop=found_treasure, **changes)]]
            )
    for seed in range(FREEWAY_SEEDS[preset]):
        for agent in LOOKS:
            changes = _changes(agent, FREEWAY)
            found.append([[host_task(agent, agent, "atari", seed, FREEWAY_STEPS[preset], game="Freeway", **changes)]])
    return found


def _changes(agent: str, both: dict[str, Any]) -> dict[str, Any]:
    """One network has neither members nor priors."""
    return {key: value for key, value in both.items() if agent == "bsp" or key not in ("prior_scale", "num_members")}


def figure(rows: list[Row]) -> Figure:
    """Returns against actions, both tasks."""
    drawing, axes = panels(1, 2, width=4.6, height=3.4, share=False)
    curves(axes[0, 0], where(rows, env="pixel_deep_sea"), "mean_return", LOOKS)
    axes[0, 0].set(title=f"DeepSea {SIZE} from pixels", ylabel="return of an episode", xlabel="actions, all lanes")
    curves(axes[0, 1], where(rows, env="Freeway"), "mean_return", LOOKS)
    axes[0, 1].set(title="Freeway", ylabel="return of a game", xlim=(0, None), ylim=(0, None))
    legend_below(drawing, axes[0, 0])
    return drawing


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """What each agent came to."""
    table: list[tuple[str, ...]] = [("task", "agent", "return at the end, by seed", "actions, by seed")]
    for env in ("pixel_deep_sea", "Freeway"):
        for name, (label, _) in LOOKS.items():
            mine = where(rows, env=env)
            returns, steps = last(mine, name, "mean_return"), last(mine, name, "step")
            table.append((env, label, words(returns), words(steps)))
    return table
