"""One try at cartpole swing-up in the paper's form: `python -m tools.swingup_search NAME '{"json": "configuration"}'`.

Rows go to results/swingup_search/NAME.csv, the configuration to NAME.json: what each column means, and what came of the
tries so far, is in the README there. A configuration may have

- `seed`, `episodes`, `every` (episodes between rows), `agent`;
- `share`: for diagnosis, the share of episodes that start upright; evaluations always start at rest;
- `env`: fields of `CartpoleSwingup`; `set`: changes to the preset `swingup`.
"""

import csv
import dataclasses
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from priorax.agents import build, settings
from priorax.caching import enable_compilation_cache
from priorax.envs import Held
from priorax.envs.interface import task_spec_of
from priorax.envs.jax.cartpole import CartpoleState, CartpoleSwingup
from priorax.experiments.swingup.runs import CELL
from priorax.training.backends.loop import loop_of, run_chunk, start

FOLDER = Path(__file__).parent.parent / "results" / "swingup_search"
DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "episodes": 1500,
    "every": 20,
    "agent": "bsp",
    "share": 0.0,
    "env": {},
    "set": {},
}
PLACES = {
    "rest": (0, np.pi, 0, 0),
    "top": (0, 0, 0, 0),
    "near": (0, 0.2, 0, -0.5),
    "falling": (0.3, 0.2, 0.5, 2.0),
    "swing": (0, np.pi / 2, 0, -4.0),
}
"""States (x, theta, x', theta') at which rows have the mean value and the spread over members."""


@dataclass(frozen=True)
class MixedStart(CartpoleSwingup):
    """Cartpole swing-up in which a fraction of the episodes starts upright, for diagnosis."""

    share: float = 0.2

    def reset(self, key: Any, params: Any) -> Any:
        """Start an episode."""
        key_down, key_up, key_pick = jax.random.split(key, 3)
        down, up = (
            CartpoleSwingup.reset(dataclasses.replace(self, upright=upright), own, params)
            for upright, own in ((False, key_down), (True, key_up))
        )
        pick = jax.random.uniform(key_pick) < self.share
        return jax.tree.map(lambda a, b: jnp.where(pick, a, b), up, down)


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def observation(state: tuple[float, ...]) -> Any:
    """Return the observation of a state."""
    parts = (jnp.asarray(part, jnp.float32) for part in state)
    return CartpoleSwingup().observe(CartpoleState(*parts, jnp.zeros((), int)))


def search(name: str, config: dict[str, Any]) -> None:
    """Train one configuration and write its rows."""
    config = {**DEFAULTS, **config}
    chosen: Any = settings(config["agent"], "swingup", **{"capacity": 1_000_000, **_tuples(config["set"])})
    at_rest = Held(CartpoleSwingup(**config["env"]), chosen.hold)
    env = Held(MixedStart(**config["env"], share=config["share"]), chosen.hold) if config["share"] else at_rest
    agent: Any = build(config["agent"], chosen, task_spec_of(at_rest, ()))
    loop = loop_of(agent, env, chosen)
    described = {**config, "settings": dataclasses.asdict(chosen)}
    (FOLDER / f"{name}.json").write_text(json.dumps(described, indent=1) + "\n")
    seen = jnp.stack([observation(state) for state in PLACES.values()])

    @eqx.filter_jit
    def look(agent: Any, state: Any) -> Any:
        return jnp.max(agent.values(agent.deployed(state, jax.random.key(0)), jax.random.key(0), seen)[1], axis=-1)

    @eqx.filter_jit
    def greedy(agent: Any, state: Any, key: Any) -> Any:
        def step(carry: Any, none: None) -> Any:
            obs, inside, reward, *_ = at_rest.step(key, carry[1], agent.exploit(state, key, carry[0]), ())
            return (obs, inside), reward

        return jax.lax.scan(step, at_rest.reset(key, ()), None, length=1000 // chosen.hold)[1].sum()

    key = jax.random.key(config["seed"])
    live = start(loop, key, ())
    cells: set[bytes] = set()
    returns: list[float] = []
    paid, first, total, looked, began = 0, None, 0.0, 0, time.time()
    row_due = config["every"]
    while len(returns) < config["episodes"]:
        live, steps = run_chunk(loop, key, (), live, 1000)
        reward = np.asarray(steps.reward)
        if not np.isfinite(np.asarray(steps.loss)).all():
            print("the loss is not finite")
            return
        paid += int((reward > 0).sum())
        for one, done in zip(reward, np.asarray(steps.done), strict=True):
            total += float(one)
            if one > 0 and first is None:
                first = len(returns) + 1
            if done:
                returns.append(total)
                total = 0.0
        inserted = int(live.replay.time)
        slots = np.arange(max(looked, inserted - chosen.capacity), inserted) % chosen.capacity
        looked = inserted
        obs = np.asarray(live.replay.data.transition.next_obs[slots], float)
        place = np.stack([np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2], obs[:, 3], obs[:, 4]], 1)
        cells.update(row.tobytes() for row in np.floor(place / CELL).astype(np.int16))
        if len(returns) < row_due:
            continue
        row_due += config["every"]
        values = np.asarray(look(agent, live.agent))
        tried = [float(greedy(agent, live.agent, jax.random.key(i))) for i in range(3)]
        row: dict[str, Any] = {
            "name": name,
            "seed": config["seed"],
            "episode": len(returns),
            "mean_return": round(float(np.mean(returns[-config["every"] :])), 2),
            "best": round(max(returns), 2),
            "greedy": round(float(np.mean(tried)), 1),
            "paid": paid,
            "first_paid": first or "",
            "cells": len(cells),
            "loss": round(float(np.mean(np.asarray(steps.loss))), 4),
            "minutes": round((time.time() - began) / 60, 2),
        }
        for where, found in zip(PLACES, values.T, strict=True):
            row |= {f"value_{where}": round(float(found.mean()), 2), f"spread_{where}": round(float(found.std()), 2)}
        path = FOLDER / f"{name}.csv"
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)
        print(row, flush=True)


if __name__ == "__main__":
    enable_compilation_cache()
    search(sys.argv[1], json.loads(sys.argv[2]))
