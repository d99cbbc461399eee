"""`python -m benchmarks.actors`: throughput of `priorax apex` by number of actors, with rows in results/actors.csv.

Each row is a run on Ray, measured from the time when all actors play and the learner has learned. A measurement that
has a row is not repeated, so that an interrupted run can be continued. Then the rows are printed beside the model of
docs/scaling.md, and the costs that follow; `python -m tools.numbers --write` puts both into that page. Run it on idle
cores.
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from priorax.analysis.parallel import usable_cores
from priorax.caching import enable_compilation_cache
from priorax.report.rows import read_rows, write_rows
from priorax.training.backends.base import Backend
from priorax.training.request import parse_changes
from priorax.training.setup import Workers
from priorax.training.trainer import train
from tools.sources import table, unit_costs
from tools.throughput import RATIOS, costs_by_rate, measured_beside_model

PATH = Path(__file__).parent.parent / "results" / "actors.csv"
ACTORS = (1, 2, 4, 8)
COMPILED = 2
"""Updates after which the learner has compiled."""
UNLIMITED = 10**9


class Window:
    """The part of a run that is measured: it begins when all actors play and the learner has learned."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.first: tuple[float, int, int] | None = None
        self.last = (0.0, 0, 0)

    def look(self, backend: Backend) -> dict[str, float]:
        """Note time, actions and updates, between turns of the driver."""
        assert backend.cluster is not None
        if backend.updates >= COMPILED and min(backend.cluster.acted_on, default=-1) >= 0:
            self.last = (time.perf_counter(), backend.steps, backend.updates)
            self.first = self.first or self.last
        return {}

    def over(self, history: Any) -> bool:
        """Whether it was long enough."""
        return self.first is not None and self.last[0] - self.first[0] >= self.seconds

    @property
    def passed(self) -> tuple[float, int, int]:
        """Seconds, actions and updates in the window."""
        assert self.first is not None
        seconds, steps, updates = (after - before for after, before in zip(self.last, self.first, strict=True))
        return seconds, int(steps), int(updates)


def measure(run: Mapping[str, Any], seconds: float, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Run `actors` actors with an update per `learn_every` actions, for some seconds; return the row."""
    window = Window(seconds)
    result = train(
        "bsp",
        run["env"],
        game=run.get("game"),
        preset=run["preset"],
        workers=Workers(run["actors"]),
        steps=UNLIMITED,
        changes={**changes, "learn_every": run["learn_every"]},
        probe=window.look,
        stop=window.over,
    )
    assert result.cluster is not None
    passed, steps, updates = window.passed
    return {
        **run,
        "cores": usable_cores(),
        "seconds": round(passed, 1),
        "actions": steps,
        "updates": updates,
        "actions_per_second": steps / passed,
        "idle_share": result.cluster.idle_share,
        "spare_share": result.cluster.spare_share,
    }


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", default=",".join(map(str, ACTORS)), help="numbers of actors, as in 1,2,4,8")
    parser.add_argument("--every", default=",".join(map(str, RATIOS)), help="numbers of actions per update")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each measurement")
    parser.add_argument("--env", default="atari")
    parser.add_argument("--game", default="Freeway", help="the game, for the environment atari")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, as of priorax apex"
    )
    parser.add_argument("--out", type=Path, default=PATH)
    given = parser.parse_args(words)
    enable_compilation_cache()
    changes = parse_changes("bsp", given.set)
    rows = read_rows(given.out) if given.out.exists() else []
    game = {"game": given.game} if given.env == "atari" else {}
    for every in map(int, given.every.split(",")):
        for actors in map(int, given.actors.split(",")):
            run = {"env": given.env, **game, "preset": "small", "set": " ".join(sorted(given.set))}
            run |= {"learn_every": every, "actors": actors}
            if not any(all(row.get(name, "") == value for name, value in run.items()) for row in rows):
                rows.append(measure(run, given.seconds, changes))
                write_rows(given.out, rows)
    for lines in (measured_beside_model(rows, *unit_costs()), costs_by_rate(rows, *unit_costs())):
        print(table(lines), end="\n\n")


if __name__ == "__main__":
    main()
