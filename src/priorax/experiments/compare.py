"""Any agents side by side: time to learn against size, over seeds, each run once whatever interrupts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from priorax.agents import known_agent
from priorax.checks import positive_int
from priorax.envs import ENVIRONMENTS, make_environment
from priorax.envs.registry import lives_on_host
from priorax.experiments import Report, Result, prepare_folder
from priorax.experiments.sweep import hours, run_sweep, task
from priorax.report.learning_times import median_table, times_to_learn
from priorax.report.plots import panels, save_figure
from priorax.report.rows import Row

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
    """Compare agents by how many episodes they take to learn, against size.

    Every agent climbs the sizes until all its seeds fail. Rows of earlier comparisons in the folder are used again and
    kept; the table and the picture show what was asked for.

    Args:
        agents: Their names.
        env: An environment that measures regret, which says when an agent has learned.
        sizes: Of the environment.
        seeds: How many, from 0.
        episodes: Of a run, at most.
        preset: Of hyperparameters.
        out: The folder to write to.
        report: Hears of the share of runs that are done.
        announce: Hears how long it may take.

    Returns:
        Rows, files and a table of medians.

    Raises:
        ValueError: If a name is unknown, a number is below 1, or the environment measures no regret.
    """
    for agent in agents:
        known_agent(agent)
    positive_int("seeds", seeds)
    for size in sizes:
        positive_int("size", size)
    _refuse_without_regret(env)
    prepare_folder(out)
    path = out / f"compare_{preset}.csv"
    ladders = [
        [
            [task(agent, agent, size, seed, episodes, env).asking(preset=preset) for seed in range(seeds)]
            for size in sorted(set(sizes))
        ]
        for agent in dict.fromkeys(agents)
    ]
    announce(f"at most about {hours(ladders):.1f} hours on two cores; stop it when you like, it goes on from {path}")
    rows = run_sweep("compare", preset, ladders, path, report, only=False)
    paths = [path, *save_figure(figure(rows), out, path.stem)]
    return Result(rows, paths, median_table(rows, {agent: agent for agent in dict.fromkeys(agents)}))


def _refuse_without_regret(env: str) -> None:
    def told(name: str) -> bool:
        return not lives_on_host(name) and getattr(make_environment(name, 4), "tells_regret", False)

    if not told(env):
        known = [name for name in ENVIRONMENTS if told(name)]
        raise ValueError(
            f"env={env!r} has no measure of regret, by which a comparison says when an agent has learned; use one of "
            f"{', '.join(known)}; or train agents with `priorax train` and compare their returns with `priorax report`"
        )


def figure(rows: Sequence[Row]) -> Figure:
    """Time to learn against size."""
    drawing, axes = panels(1, 1, width=7.0, height=4.6)
    colors = colormaps["tab10"]
    names = list(dict.fromkeys(row["name"] for row in rows))
    looks = {name: (name, to_hex(colors(i % 10)), MARKERS[i % len(MARKERS)]) for i, name in enumerate(names)}
    times_to_learn(axes[0, 0], rows, looks, beside=True)
    return drawing
