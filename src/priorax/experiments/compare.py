"""Any agents side by side: time to learn against size, over seeds, each run once whatever interrupts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from priorax.agents import AGENTS
from priorax.checks import one_of, positive_int
from priorax.envs import ENVIRONMENTS
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
    """Every agent climbs the sizes until all its seeds fail. Rows of earlier comparisons in the folder are used again
    and kept; the table and the picture show what was asked for."""
    for agent in agents:
        one_of("agent", agent, AGENTS)
    one_of("env", env, ENVIRONMENTS)
    positive_int("seeds", seeds)
    for size in sizes:
        positive_int("size", size)
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


def figure(rows: Sequence[Row]) -> Figure:
    """Time to learn against size."""
    drawing, axes = panels(1, 1, width=7.0, height=4.6)
    colors = colormaps["tab10"]
    names = list(dict.fromkeys(row["name"] for row in rows))
    looks = {name: (name, to_hex(colors(i % 10)), MARKERS[i % len(MARKERS)]) for i, name in enumerate(names)}
    times_to_learn(axes[0, 0], rows, looks, beside=True)
    return drawing
