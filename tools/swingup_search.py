"""Hyperparameter search on the paper's form of cartpole swing-up; one run is
`python -m tools.swingup_search NAME '{"json": "configuration"}'`.

Rows are written to results/swingup_search/NAME.csv, the configuration to NAME.json; the README there describes the
columns and the results so far. A configuration may have

- `seed`, `episodes`, `every` (episodes between rows), `members`;
- `net`: fields of `Coded`; `prior`: changes to them for the prior (by default random biases);
- `dueling`: whether networks have separate value and advantage outputs; `prior_advantage`: scale of the prior of
  advantages relative to that of values;
- `share`: for diagnosis, the fraction of episodes that start upright; evaluations always start at rest;
- `env`: fields of `CartpoleSwingup`; `set`: changes to the preset `swingup`, in which `prior_scale` is the standard
  deviation of the prior over members.
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

from priorax.agents import settings
from priorax.agents.q_networks import q_learner
from priorax.beliefs import Adam, Ensemble
from priorax.caching import enable_compilation_cache
from priorax.envs import Held
from priorax.envs.jax.cartpole import CartpoleState, CartpoleSwingup
from priorax.experiments.swingup import CELL
from priorax.networks import MLP, Dueling, Network
from priorax.training.backends.loop import Loop, run_chunk, start

FOLDER = Path(__file__).parent.parent / "results" / "swingup_search"
DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "episodes": 1500,
    "every": 20,
    "members": 20,
    "net": {},
    "prior": {},
    "dueling": False,
    "prior_advantage": 1.0,
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
class Coded:
    """An MLP whose inputs are the observation and random Fourier features of it."""

    widths: tuple[int, ...] = (50, 50)
    features: int = 256
    length: float = 0.7
    """Lengthscale of the features."""
    warp: str = "none"
    """asinh: velocities and position are bent, so that slow and central states take up more of the space; asinh4: all
    components, scaled and times 4."""
    bias: float = 0.0
    """Standard deviation of the biases."""
    seed: int = 0
    """Seed of the features, which all members share."""
    pairs: float = 0.0
    """Share of the features that see pole or cart alone."""
    subset: float = 1.0
    """Probability that a feature sees a component of the observation."""

    def code(self, x: Any) -> Any:
        """Compute the features of one observation."""
        cos, sin, theta_dot, place, x_dot = x
        z = x * jnp.array([1.0, 1.0, 0.2, 1.0, 0.4])
        if self.warp == "asinh":
            z = jnp.stack([cos, sin, jnp.arcsinh(theta_dot), jnp.arcsinh(place / 0.3), jnp.arcsinh(x_dot)])
        if self.warp == "asinh4":
            z = jnp.arcsinh(4 * z)
        if not self.features:
            return z
        rng = np.random.default_rng(self.seed)
        frequency = rng.normal(size=(5, self.features)) / self.length
        phase = rng.uniform(0, 2 * np.pi, self.features)
        if self.pairs:
            kinds = rng.choice(3, self.features, p=[self.pairs * 2 / 3, self.pairs / 3, 1 - self.pairs])
            frequency *= np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])[kinds].T
        if self.subset < 1:
            frequency *= rng.uniform(size=frequency.shape) < self.subset
        cosines = jnp.cos(z @ jnp.asarray(frequency, jnp.float32) + jnp.asarray(phase, jnp.float32))
        return jnp.concatenate([np.sqrt(2) * cosines, z])

    def init(self, key: Any, x: Any, num_out: int) -> Any:
        """Draw parameters."""
        return MLP(self.widths, bias_scale=self.bias).init(key, jnp.zeros(self.features + 5), num_out)

    def apply(self, params: Any, x: Any) -> Any:
        """Evaluate at one observation."""
        return MLP(self.widths).apply(params, self.code(x))


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


def networks(config: dict[str, Any]) -> tuple[Network, Network, float]:
    """Build member, prior, and the spread over members that the prior has at a scale of one."""
    net: Any = Coded(**_tuples(config["net"]))
    prior: Any = dataclasses.replace(net, **{"bias": 1.0, **_tuples(config["prior"])})
    if config["dueling"]:
        net, prior = Dueling(net, 1), Dueling(prior, 1, config["prior_advantage"])
    rng = np.random.default_rng(1)
    theta = rng.uniform(-np.pi, np.pi, 200)
    parts = [np.cos(theta), np.sin(theta), *(rng.normal(size=200) * size for size in (4, 0.7, 1.5))]
    obs = jnp.asarray(np.stack(parts, 1), jnp.float32)
    members = jax.vmap(lambda key: jax.vmap(lambda o: prior.apply(prior.init(key, o, 3), o))(obs))
    return net, prior, float(members(jax.random.split(jax.random.key(9), 100)).std(0).mean())


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def observation(state: tuple[float, ...]) -> Any:
    """Return the observation of a state."""
    parts = (jnp.asarray(part, jnp.float32) for part in state)
    return CartpoleSwingup().observe(CartpoleState(*parts, jnp.zeros((), int)))


def search(name: str, config: dict[str, Any]) -> None:
    """Train one configuration and write its rows."""
    config = {**DEFAULTS, **config}
    more = {"capacity": 1_000_000, "num_members": config["members"], **_tuples(config["set"])}
    chosen: Any = settings("bsp", "swingup", **more)
    at_rest = Held(CartpoleSwingup(**config["env"]), chosen.hold)
    env = Held(MixedStart(**config["env"], share=config["share"]), chosen.hold) if config["share"] else at_rest
    net, prior, unit = networks(config)
    optimizer = Adam(chosen.learning_rate, clip=chosen.clip)
    belief = Ensemble(
        config["members"], net, prior, chosen.prior_scale / unit, None, num_outputs=3, optimizer=optimizer
    )
    agent = q_learner(chosen, belief, chosen.mask_prob)
    loop = Loop(env, agent, chosen.learn_every, chosen.updates)
    described = {**config, "unit": unit, "settings": dataclasses.asdict(chosen)}
    (FOLDER / f"{name}.json").write_text(json.dumps(described, indent=1) + "\n")
    seen = jnp.stack([observation(state) for state in PLACES.values()])

    @eqx.filter_jit
    def look(belief: Ensemble, state: Any) -> Any:
        member = lambda i: jax.vmap(lambda obs: jnp.max(belief.value(state, i, obs)))(seen)  # noqa: E731
        return jax.vmap(member)(jnp.arange(config["members"]))

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
        values = np.asarray(look(agent.belief, live.agent.belief))
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
