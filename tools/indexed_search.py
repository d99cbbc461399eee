"""Tries of one-network agents on DeepSea: `python -m tools.indexed_search '{"prior_scale": [3, 10]}' --sizes 10 20`.

The argument has lists of values by setting; every combination is run with seeds 0 to 2, on which settings are chosen. A
combination goes on to the next size only if all its seeds learned the last one within the budget. Rows are appended to
results/AGENT_search.csv; a run that has a row is not repeated. With `--steps`, the time of a step against BSP's
with K=20 is measured instead, both in turns in one process, with rows in results/AGENT_steps.csv.
"""

import argparse
import csv
import itertools
import json
from pathlib import Path
from typing import Any

from benchmarks.base import best_interleaved
from benchmarks.deep_sea import STEPS, stepper
from priorax import train
from priorax.caching import enable_compilation_cache
from priorax.experiments.sweep import LEARNED_AFTER

RESULTS = Path(__file__).parent.parent / "results"
COLUMNS = ("agent", "changes", "size", "seed", "most_episodes", "episodes_to_learn", "episodes", "steps_per_second")
BUDGET = {10: 400, 20: 800, 30: 1200, 40: 1300, 50: 1400, 100: 4000}
"""Most episodes by size."""


def one(agent: str, changes: dict[str, Any], size: int, seed: int, most: int) -> dict[str, Any]:
    """Run one seed of one combination.

    Args:
        agent: Name of the agent.
        changes: Changed settings.
        size: Size of DeepSea.
        seed: Seed of the run.
        most: Most episodes.

    Returns:
        The row.
    """
    result = train(
        agent=agent,
        env="deep_sea",
        size=size,
        seed=seed,
        episodes=most,
        changes=changes,
        stop_when_learned=True,
        learned_after=LEARNED_AFTER,
    )
    learned = "" if result.episodes_to_learn is None else result.episodes_to_learn
    words = json.dumps(changes, sort_keys=True)
    return dict(
        zip(
            COLUMNS,
            (agent, words, size, seed, most, learned, result.episodes, round(result.steps_per_second)),
            strict=True,
        )
    )


def step_times(agent: str, size: int, changes: dict[str, Any]) -> None:
    """Measure a step of an agent and of BSP, the best of seven turns of 1,000 steps each, and append two rows.

    Args:
        agent: Name of the agent.
        size: Size of DeepSea.
        changes: Changed settings of the agent.
    """
    works = {"bsp": stepper(size), agent: stepper(size, agent=agent, **changes)}
    times = best_interleaved(works, repeats=7)
    path = RESULTS / f"{agent}_steps.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(("agent", "changes", "size", "milliseconds_per_step", "over_bsp"))
        for name, time in times.items():
            words = json.dumps(changes if name == agent else {}, sort_keys=True)
            writer.writerow((name, words, size, round(1e3 * time / STEPS, 4), round(time / times["bsp"], 4)))
            print(name, size, 1e3 * time / STEPS, time / times["bsp"], flush=True)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", type=json.loads, help="lists of values by setting, as JSON")
    parser.add_argument("--agent", default="hypermodel")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--most", type=int, help="most episodes, whatever the size; by default as in BUDGET")
    parser.add_argument("--steps", action="store_true", help="measure the time of a step")
    given = parser.parse_args()
    enable_compilation_cache()
    if given.steps:
        for size in given.sizes:
            step_times(given.agent, size, {name: values[0] for name, values in given.grid.items()})
        return
    path = RESULTS / f"{given.agent}_search.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    known = {(row["agent"], row["changes"], int(row["size"]), int(row["seed"])): row for row in rows}
    most = {size: given.most or BUDGET[size] for size in given.sizes}
    for values in itertools.product(*given.grid.values()):
        changes = dict(zip(given.grid, values, strict=True))
        for size in given.sizes:
            found = []
            for seed in given.seeds:
                key = (given.agent, json.dumps(changes, sort_keys=True), size, seed)
                before = known.get(key)
                if before is None or (before["episodes_to_learn"] == "" and int(before["most_episodes"]) < most[size]):
                    known[key] = one(given.agent, changes, size, seed, most[size])
                    new = not path.exists()
                    with path.open("a", newline="") as file:
                        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                        if new:
                            writer.writeheader()
                        writer.writerow(known[key])
                found.append(known[key]["episodes_to_learn"])
            print(size, changes, found, flush=True)
            if "" in found:
                break


if __name__ == "__main__":
    main()
