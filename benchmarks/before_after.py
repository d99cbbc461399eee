"""Compare the speed of two checkouts: `python -m benchmarks.before_after OLD NEW`.

One process per checkout compiles every piece of work of the benchmarks, only our side of it; then the two take turns,
piece by piece, so that a busy moment of the machine hits both alike. Prints the medians of the rounds' times and their
ratio.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def pieces() -> dict[str, Callable[[], Callable[[], Any]]]:
    """List what is timed: functions that build a piece of work, with the modules of the checkout that is imported."""
    import jax
    import numpy as np

    from benchmarks import control, deep_sea, pixels, rivals
    from priorax import PriorEnsembleRegressor, train
    from priorax.agents.bandit import belief_sampler
    from priorax.experiments.bandits import BANDITS, BATCH, UPDATES, make

    wide = {"widths": (50, 50), "batch_size": 128}
    random = np.random.default_rng(0)
    x = random.standard_normal((1000, 10)).astype(np.float32)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    many = random.standard_normal((100_000, 10)).astype(np.float32)

    def fitted(widths: tuple[int, ...]) -> Any:
        # patience stops a fit early, in checkouts that have it; here every fit takes all of its steps
        return PriorEnsembleRegressor(
            20, hidden_widths=widths, steps=2000, batch_size=128, learning_rate=1e-3, patience=2000, random_state=0
        )

    def updates(members: int) -> Callable[[], Any]:
        update = pixels.learning(members)[0]
        return lambda: [update() for _ in range(10)]

    def predict() -> Callable[[], Any]:
        model = fitted((50, 50)).fit(x, y)
        return lambda: model.predict(many, return_std=True)

    def bandit() -> Callable[[], Any]:
        keys = jax.random.split(jax.random.key(0), 100)
        sampler = belief_sampler(make("bsp", "linear"), 1000, BATCH, UPDATES["linear"])
        regret = rivals.compiled_regret(BANDITS["linear"], sampler, 1000)
        return lambda: jax.block_until_ready(regret(keys))

    return {
        "DeepSea 10, (50, 50): 1,000 steps": lambda: deep_sea.stepper(10, **wide),
        "DeepSea 50, (50, 50): 1,000 steps": lambda: deep_sea.stepper(50, **wide),
        "DeepSea 10, tuned: 1,000 steps": lambda: deep_sea.stepper(10),
        "DeepSea 100, tuned: 1,000 steps": lambda: deep_sea.stepper(100),
        **{
            f"DeepSea 20, {name}: 1,000 steps": lambda name=name: deep_sea.stepper(20, agent=name)
            for name in rivals.RIVALS
        },
        "swing-up, compiled: 1,000 steps": control.compiled,
        "swing-up, from Python over dm_control: 1,000 steps": control.driven,
        "swing-up, physics alone: 1,000 steps": lambda: control.physics()["port"],
        "pixels, acting: 50 rounds of 8 lanes": lambda: pixels.acting()["play"],
        "pixels, 10 updates of 10 heads": lambda: updates(10),
        "pixels, 10 updates of 1 head": lambda: updates(1),
        "fit (50, 50): 2,000 steps": lambda: lambda: fitted((50, 50)).fit(x, y),
        "fit (20, 20): 2,000 steps": lambda: lambda: fitted((20, 20)).fit(x, y),
        "predict with std: 100,000 rows": predict,
        "linear bandit, bsp: 1,000 steps, 100 seeds": bandit,
        "host, gymnasium:CartPole-v1: 3,000 actions, compilation included": lambda: (
            lambda: train("bsp", "gymnasium:CartPole-v1", steps=3000)
        ),
    }


def serve(only: str) -> None:
    """Build the pieces whose names match, print the names, then time each that is asked for on standard input."""
    from benchmarks.base import seconds

    works = {name: build() for name, build in pieces().items() if re.search(only, name)}
    for work in works.values():
        work()  # compiles
    print(json.dumps(list(works)), flush=True)
    for line in sys.stdin:
        print(seconds(works[line.rstrip("\n")]), flush=True)


def worker(tree: Path, only: str) -> Any:
    """Start a process that imports this checkout's modules."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", only]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=tree, **pipes)


def answer(process: Any) -> Any:
    """Read lines until one is JSON: a library may print something of its own."""
    for line in process.stdout:
        try:
            return json.loads(line)
        except ValueError:
            continue
    raise SystemExit("a worker ended early: see its message above")


def main() -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--out", type=Path, help="a JSON file for all times")
    parser.add_argument("--only", default="", help="a regular expression that names of pieces must contain")
    parser.add_argument("--rounds", type=int, default=5, help="number of turns of each piece on each side")
    asked = parser.parse_args()
    trees = {"old": asked.old, "new": asked.new}
    workers = {side: worker(tree.resolve(), asked.only) for side, tree in trees.items()}
    names = {side: answer(process) for side, process in workers.items()}
    times: dict[str, dict[str, list[float]]] = {}
    for turn in range(asked.rounds):
        for name in (name for name in names["old"] if name in names["new"]):
            for side in ("old", "new") if turn % 2 == 0 else ("new", "old"):
                workers[side].stdin.write(name + "\n")
                workers[side].stdin.flush()
                times.setdefault(name, {}).setdefault(side, []).append(answer(workers[side]))
    for process in workers.values():
        process.stdin.close()
    for name, sides in times.items():
        old, new = statistics.median(sides["old"]), statistics.median(sides["new"])
        print(f"{name:60s} {old:8.3f} s {new:8.3f} s  x{new / old:.2f}")
    if asked.out:
        asked.out.write_text(json.dumps(times, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.path[0] = str(Path.cwd())
        serve(sys.argv[2])
    else:
        main()
