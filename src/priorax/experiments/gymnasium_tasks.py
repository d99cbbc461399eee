"""Four tasks of Gymnasium: CartPole, MountainCar, FrozenLake and Taxi.

BSP and epsilon-greedy with the same network, replay and number of updates, in eight lanes on the host; one preset for
arrays, one for state indices.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.envs.catalogue import GYMNASIUM
from priorax.experiments.pixels.runs import last, words
from priorax.report.looks import LOOKS as ALL_LOOKS
from priorax.report.plots import legend_below, panels
from priorax.report.rows import Row, where
from priorax.training.records import Episode, Result


class Game(NamedTuple):
    """One task, and how to plot it."""

    env: str
    """Name of the environment."""
    words: str
    """The task in a few words."""
    steps: int
    """Environment steps of a run, over all lanes."""
    solved: float
    """Mean return from which Gymnasium considers it solved."""
    lowest: float
    """Lower limit of the plot."""
    highest: float
    """Upper limit of the plot."""
    preset: str
    """Preset of hyperparameters."""
    changes: dict[str, Any]
    """Changes to the preset."""


LOOKS = {
    "bsp": ("BSP (20 members, priors)", ALL_LOOKS["bsp"].color),
    "eps_greedy": ("ε-greedy (double DQN), lanes of ε ≤ 1%", ALL_LOOKS["eps_greedy"].color),
}
OWN: dict[str, dict[str, Any]] = {
    "bsp": {},
    "eps_greedy": {"epsilon": 0.4, "epsilon_episodes": 0, "epsilon_ladder": 7.0},
}
"""Settings of each agent; epsilon is Ape-X's. With 0.1 (on the same seeds) FrozenLake was learned worse, and the other
tasks about equally.
"""
CALM = {"eps_greedy": 4}
"""First lane that is counted: from there on epsilon is at most 1%, so that dithering itself does not lower the returns.
"""
PRIORS = ("prior_scale",)
"""Settings that do not apply to a single network."""
TAXI: dict[str, Any] = {"learning_rate": 0.1, "prior_scale": 10.0, "priority": 0.6}
"""Settings for Taxi, which is deterministic and has large rewards: a large learning rate."""
GAMES = (
    Game("CartPole-v1", "keep a pole upright", 30_000, 475, 0, 510, "gymnasium", {}),
    Game("MountainCar-v0", "gain speed, reach the flag", 50_000, -110, -205, -90, "gymnasium", {}),
    Game("FrozenLake8x8-v1", "cross slippery ice", 40_000, 0.85, -0.02, 1.0, "finite", {}),
    Game("Taxi-v4", "fetch and deliver", 60_000, 8, -700, 50, "finite", TAXI),
)
SEEDS = {"quick": range(100, 103), "full": range(100, 110)}
"""Seeds of each preset. Settings were chosen on seeds 0 to 2, except that Taxi's were chosen again on those after the
first choice had failed on seed 100, and epsilon after all seeds had been run with 0.1.
"""
BLOCKS = 40
"""Rows per run."""
SMOOTHED = 3
"""Rows over which drawn returns are averaged."""
LINEAR = 50
"""Returns up to this size are on a linear scale where others are far larger."""
FEWEST = 20
"""Fewest episodes over which the return of a row is averaged."""


def ladders(budget: str) -> list[Any]:
    """List every run separately: all tasks with one seed, then with the next.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    runs = itertools.product(SEEDS[budget], LOOKS, GAMES)
    return [[[game_task(agent, game, seed)]] for seed, agent, game in runs]


def game_task(agent: str, game: Game, seed: int) -> Task:
    """Define one run.

    Args:
        agent: Name of the agent.
        game: The task.
        seed: Random seed.

    Returns:
        The task to run.
    """
    own = {name: value for name, value in game.changes.items() if agent == "bsp" or name not in PRIORS}
    return Task(
        agent,
        {
            "agent": agent,
            "env": GYMNASIUM + game.env,
            "size": 1,
            "seed": seed,
            "steps": game.steps,
            "preset": game.preset,
            "changes": {**OWN[agent], **own},
        },
    )


def outcome(result: Result) -> list[dict[str, Any]]:
    """Make one row for each part of a run: the mean return of the episodes that ended in it, and of the last hundred.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    rows = []
    history = [row for row in result.history if row.lane >= CALM.get(result.agent, 0)]
    for begin, end in itertools.pairwise(np.linspace(0, result.steps, BLOCKS + 1)):
        until = [row for row in history if row.step <= end]
        here = len([row for row in until if row.step > begin])
        rows.append(
            {
                "step": round(end),
                "episodes": len(until),
                "mean_return": _mean(until, max(here, FEWEST)),
                "last_100": _mean(until, 100),
                "best": max((row.total_return for row in until), default=None),
            }
        )
    return rows


def _mean(episodes: Sequence[Episode], count: int) -> float | None:
    """Compute the mean return of the last `count` episodes; None if there are none."""
    returns = [row.total_return for row in episodes[-count:]]
    return round(float(np.mean(returns)), 3) if returns else None


def figure(rows: list[Row]) -> Figure:
    """Plot one panel for each task: returns against environment steps.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(2, 2, width=4.6, height=3.2, share=False)
    for axis, game in zip(axes.flat, GAMES, strict=True):
        _panel(axis, where(rows, env=GYMNASIUM + game.env), game)
    drawing.suptitle(
        f"Four tasks of Gymnasium: mean of all seeds, and their range; moving averages of {SMOOTHED} points",
        fontsize=12,
    )
    legend_below(drawing, axes[0, 0])
    return drawing


def _panel(axis: Axes, rows: list[Row], game: Game) -> None:
    axis.axhline(game.solved, color="k", lw=0.7, ls="--", label="solved, as defined by Gymnasium")
    for name, (label, color) in LOOKS.items():
        step, returns = by_seed(where(rows, name=name))
        returns = smoothed(returns)
        if len(returns):
            axis.fill_between(step, returns.min(axis=0), returns.max(axis=0), color=color, alpha=0.2, lw=0)
            axis.plot(step, returns.mean(axis=0), color=color, lw=1.8, label=label)
    axis.set(title=f"{game.env}: {game.words}", xlabel="actions, all lanes (thousands)", ylabel="return of an episode")
    if game.lowest < -LINEAR * 10:
        axis.set_yscale("symlog", linthresh=LINEAR)
    axis.set(ylim=(game.lowest, game.highest), xlim=(0, game.steps / 1000))


def by_seed(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Arrange the returns of one agent by seed.

    Args:
        rows: Rows of one agent and task.

    Returns:
        Thousands of environment steps [time], and returns [seed, time], from where every seed has finished an episode.
    """
    seeds = sorted({row["seed"] for row in rows})
    found = [[row.get("mean_return", np.nan) for row in where(rows, seed=seed)] for seed in seeds]
    if not found:
        return np.zeros(0), np.zeros((0, 0))
    steps = np.array([row["step"] for row in where(rows, seed=seeds[0])]) / 1000
    returns = np.array(found, float)
    known = ~np.isnan(returns).any(axis=0)
    return steps[known], returns[:, known]


def smoothed(returns: np.ndarray, count: int = SMOOTHED) -> np.ndarray:
    """Smooth returns with a trailing moving average.

    Args:
        returns: Returns [seed, time].
        count: Points to average over.

    Returns:
        The smoothed returns [seed, time].
    """
    parts = [returns[:, max(0, i - count + 1) : i + 1].mean(axis=1) for i in range(returns.shape[1])]
    return np.stack(parts, axis=1) if parts else returns


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the final results of each agent.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [
        ("task", "solved at", "agent", "mean at the end, by seed", "of the last 100 episodes")
    ]
    for game, (name, (label, _)) in itertools.product(GAMES, LOOKS.items()):
        mine = where(rows, env=GYMNASIUM + game.env)
        at_end, of_100 = last(mine, name, "mean_return"), last(mine, name, "last_100")
        table.append((game.env, f"{game.solved:g}", label, words(at_end), words(of_100)))
    return table
