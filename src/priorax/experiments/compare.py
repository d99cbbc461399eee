"""Compare agents: learning time against size, over seeds. Interrupted comparisons continue where they stopped."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from priorax.agents import agent_spec
from priorax.checks import positive_int
from priorax.envs import environments, make_environment
from priorax.experiments import Report, Result, prepare_folder
from priorax.experiments.sweep import fresh_seeds, hours, ladder, run_sweep
from priorax.report.learning_times import median_table, times_figure
from priorax.report.looks import LOOKS, Look
from priorax.report.plots import save_figure
from priorax.report.rows import Row
from priorax.training.setup import choose_backend

MARKERS = "osvD^P*Xdph<>"


def compare(
    agents: Sequence[str],
    env: str = "deep_sea",
    sizes: Sequence[int] = (5, 10, 15, 20),
    seeds: int = 5,
    episodes: int = 1000,
    preset: str = "tuned",
    out: Path = Path("results"),
    report: Report = lambda share, what: None,
    announce: Any = lambda words: None,
) -> Result:
    """Compare agents by the number of episodes they take to learn, against size.

    Every agent goes through the sizes until all its seeds fail. Rows of earlier comparisons in the folder are reused
    and kept; the table and the figure show the requested ones only.

    Args:
        agents: Names of the agents.
        env: An environment that reports regret, which defines when an agent has learned.
        sizes: Sizes of the environment.
        seeds: Number of seeds, from 200 on, as in the figures: no setting of ours was chosen on them.
        episodes: Most episodes of a run.
        preset: Preset of hyperparameters.
        out: The folder to write to.
        report: Called with the fraction of runs done.
        announce: Called with the expected duration.

    Returns:
        Rows, files and a table of medians.

    Raises:
        ValueError: If a name is unknown, a number is below 1, or the environment does not report regret.
    """
    for agent in agents:
        agent_spec(agent)
    positive_int("seeds", seeds)
    for size in sizes:
        positive_int("size", size)
    _refuse_without_regret(env)
    prepare_folder(out)
    path = out / f"compare_{preset}.csv"
    ladders = [
        ladder(agent, agent, sorted(set(sizes)), fresh_seeds(seeds), episodes, env, preset)
        for agent in dict.fromkeys(agents)
    ]
    announce(
        f"at most about {hours(ladders):.1f} hours on two cores; it can be stopped at any time, and continues from "
        f"{path}"
    )
    rows = run_sweep("compare", "", ladders, path, report)
    paths = [path, *save_figure(figure(rows), out, path.stem)]
    return Result(rows, paths, median_table(rows, {agent: agent for agent in dict.fromkeys(agents)}))


def _refuse_without_regret(env: str) -> None:
    def reports_regret(name: str) -> bool:
        return choose_backend(name) == "scan" and getattr(make_environment(name, 4), "tells_regret", False)

    if not reports_regret(env):
        known = [name for name in environments() if reports_regret(name)]
        raise ValueError(
            f"env={env!r} does not report regret, which defines when an agent has learned; use one of "
            f"{', '.join(known)}; or train agents with `priorax train` and compare their returns with `priorax report`"
        )


def figure(rows: Sequence[Row]) -> Figure:
    """Plot the learning time against size.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    names = list(dict.fromkeys(row["name"] for row in rows))
    return times_figure(rows, {name: _look(name, i) for i, name in enumerate(names)})


def _look(name: str, place: int) -> Look:
    """Choose the look of an agent: for our own agents as in all figures, for others by their position."""
    return LOOKS.get(name) or Look(name, to_hex(colormaps["tab20"](place % 20)), MARKERS[place % len(MARKERS)])
