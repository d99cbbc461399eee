"""Distillation: one network in place of a trained ensemble, for deployment.

The network has the ensemble's mean, and the D principal directions of the members' deviations from it: with members
Q_k = mean + deviation_k at the given observations, the leading D singular vectors of the deviations over members give
functions u_1, ..., u_D whose squares add up to the variance over members, except for what the other directions have.
It is a hypermodel, mean + sum_d z_d u_d with a random index z, trained by regression on the ensemble's values. With
`directions=0` it is a network of the mean alone.
"""

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree
from scipy import stats

from priorax.agents.deploy import Values, best
from priorax.beliefs import Adam, Belief, BeliefState, Ensemble, Hypermodel
from priorax.checks import checked_seed, positive_int
from priorax.convnets import Convnet, Convolutions
from priorax.envs import make_world
from priorax.envs.host.vector import VectorWorld
from priorax.fitting import fit
from priorax.networks import MLP, Dueling, Layer, Network, Table, as_network
from priorax.training.policy import Policy, load, q_policy
from priorax.training.request import resumed

HELD = 0.1
"""Fraction of the observations on which the distilled policy is compared with the ensemble, not trained on."""
LANES = 8
"""Environments in which observations of a run are collected."""
DIRECTIONS = 4
"""Directions of spread that are kept by default."""
CHUNK = 4096
"""Observations for which all members are evaluated at once."""


class Distilled(NamedTuple):
    """A distilled policy, and how it compares with its ensemble."""

    policy: Policy
    """The policy of one network."""
    agreement: float
    """Fraction of observations at which both choose the same action."""
    spread_correlation: float
    """Spearman's rank correlation of the standard deviations of both, over observations and actions; NaN with
    `directions=0`."""
    explained: float
    """Fraction of the members' variance that the directions have."""
    observations: int
    """Number of observations that were distilled at."""

    def summary(self) -> list[tuple[str, ...]]:
        """Format the comparison as a table.

        Returns:
            Rows of the table.
        """
        kept = np.isfinite(self.spread_correlation)
        return [
            ("quantity", "value"),
            ("observations", f"{self.observations:,}"),
            ("same action as the ensemble", f"{self.agreement:.1%}"),
            ("rank correlation of uncertainties", f"{self.spread_correlation:.3f}" if kept else "none: directions 0"),
            ("variance over members that is kept", f"{self.explained:.1%}"),
        ]


def distil_run(path: Path, *, visits: int = 1000, seed: int = 0, **options: Any) -> Distilled:
    """Distil the last checkpoint of a run at observations that its members visit in its environment.

    Args:
        path: Folder of the run.
        visits: Steps of each of eight environments in which observations are collected.
        seed: Random seed.
        **options: Further arguments of `distil`.

    Returns:
        The distilled policy, and the comparison.

    Raises:
        ValueError: If the agent has no belief over discrete actions, or an argument is out of range.
    """
    policy, run = load(path), resumed(path, {}, {})
    _student(options.get("network"), _check(policy))  # before the work
    place = {name: run[name] for name in ("size", "game", "seed")}
    with contextlib.closing(make_world(run["env"], LANES, **place, hold=run["changes"]["hold"])) as world:
        obs = visited(policy, world, visits, seed)
    return distil(policy, obs, seed=seed, **options)


def distil(
    policy: Policy,
    obs: Any,
    *,
    directions: int | None = None,
    network: Any = None,
    steps: int = 5000,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> Distilled:
    """Distil the ensemble of a trained Q-learner into one network.

    Args:
        policy: The trained policy, of an agent with a belief over Q-values.
        obs: Observations to distil at, in the environment's format, such as those of `visited`. A tenth of them
            is set aside for the comparison, unless they are state indices, for which all are used for both.
        directions: Number of directions of spread that are kept; 0: the mean alone; None: four, if there are so many.
        network: Architecture of the network, an `MLP`, `Table` or `Convnet`; None: that of the members.
        steps: Number of optimiser steps.
        batch_size: Minibatch size.
        learning_rate: Learning rate of Adam.
        seed: Random seed.

    Returns:
        The distilled policy, and the comparison.

    Raises:
        ValueError: If the agent has no belief over discrete actions, or an argument is out of range.
    """
    belief = _check(policy)
    batch, single = policy.interface.batch(obs)
    if single or len(batch) < 10:
        raise ValueError(f"obs has {len(batch)} observations; pass at least 10, such as those of `visited`")
    found = _values(policy, batch)
    most = len(found.members) - 1
    directions = min(DIRECTIONS, most) if directions is None else directions
    if not 0 <= directions <= most:
        raise ValueError(f"directions={directions} must be at least 0 and at most {most}, one less than the functions")
    rng = np.random.default_rng(checked_seed(seed))
    order = rng.permutation(len(batch))
    is_table = policy.interface.num_states is not None
    rows = order if is_table else order[: len(batch) - max(1, int(HELD * len(batch)))]
    targets = _targets(Values(*(np.take(part, rows, axis=-2) for part in found)), directions)
    student = _student(network, belief)
    fitted = fit(
        Ensemble(1, network=student, num_outputs=targets.y.shape[1], optimizer=Adam(learning_rate)),
        (batch[rows], targets.y),
        key=jax.random.key(seed),
        steps=steps,
        batch_size=positive_int("batch_size", batch_size),
    )
    params = _unscaled(jax.tree.map(lambda leaf: leaf[0], fitted.state.params), targets)
    distilled, start = _belief(student, params, batch[0], policy.interface.num_actions, directions)
    result = q_policy(distilled, start, policy.interface)
    seen = rows if is_table else order[len(rows) :]
    mine, theirs = _values(result, batch[seen]), Values(*(np.take(part, seen, axis=-2) for part in found))
    agreement = float(np.mean(best(mine) == best(theirs)))
    ranks = stats.spearmanr(mine.spread.ravel(), theirs.spread.ravel()).statistic if directions else np.nan
    return Distilled(result, agreement, float(ranks), targets.explained, len(batch))


def _check(policy: Policy) -> Any:
    """Return the policy's belief, if it has one that can be distilled."""
    belief = getattr(policy.agent, "belief", None)
    if belief is None or policy.interface.bound is not None:
        raise ValueError(
            f"policy is that of a {type(policy.agent).__name__}, and distillation needs a Q-learner with a belief over "
            "discrete actions; pass for example the policy of bsp"
        )
    return belief


def visited(policy: Policy, world: VectorWorld, steps: int = 2000, seed: int = 0) -> np.ndarray:
    """Collect observations by following a member drawn for each episode, as in exploration.

    Args:
        policy: The trained policy.
        world: Environments to act in, as of `priorax.envs.make_world`.
        steps: Number of steps of each environment.
        seed: Random seed.

    Returns:
        Observations [n, ...] at which an action is chosen, for `distil`: those after the end of an episode are left
        out, so that n is at most the number of steps times that of environments.
    """
    rng = np.random.default_rng(checked_seed(seed))
    obs = world.reset(seed)
    member = np.full(world.num_envs, -1)
    seen, over = [], np.zeros(world.num_envs, bool)
    for _ in range(positive_int("steps", steps)):
        seen.append(np.array(obs)[~over])
        found = _values(policy, np.asarray(obs))
        member = np.where(member < 0, rng.integers(len(found.members), size=len(member)), member)
        step = world.step(best(found, "member", member))
        obs = step.obs
        over = step.terminated | step.truncated
        member = np.where(over, -1, member)
    return np.concatenate(seen)


def _values(policy: Policy, batch: np.ndarray) -> Values:
    """Evaluate all functions, a chunk of observations at a time; the batch is as the networks see it."""
    parts = [policy.values_of(batch[i : i + CHUNK]) for i in range(0, len(batch), CHUNK)]
    return Values(*(np.concatenate(part, axis=-2) for part in zip(*parts, strict=True)))


class _Targets(NamedTuple):
    """What to regress on: the value of a state, advantages and directions, each block scaled to unit size, so that
    small differences between actions count as much as large ones between states."""

    y: Float[np.ndarray, "n raw"]
    unscale: Float[np.ndarray, "raw final"]
    """Turns predictions of `y` into the outputs of a hypermodel: for each action its mean, then its directions."""
    offset: Float[np.ndarray, " final"]
    explained: float
    """Fraction of the variance over members that the directions have."""


def _targets(found: Values, directions: int) -> _Targets:
    count, n, actions = found.members.shape
    deviations = (found.members - found.mean).reshape(count, -1) / count**0.5
    variances, vectors = np.linalg.eigh(deviations @ deviations.T)  # ascending
    kept = vectors[:, ::-1][:, :directions].T
    along = (kept @ deviations).reshape(directions, n, actions)
    value = found.mean.mean(axis=1, keepdims=True)
    center = float(value.mean())
    blocks = [value - center, found.mean - value, *along]
    scales = [max(float(np.sqrt(np.mean(block**2))), 1e-8) for block in blocks]
    final = np.zeros((actions, directions + 1, sum(block.shape[1] for block in blocks)))
    final[:, 0, 0] = scales[0]
    for i, scale in enumerate(scales[1:]):  # advantages belong to the mean, as the value does
        first = 1 + i * actions
        final[:, i, first : first + actions] = scale * np.eye(actions)
    offset = np.zeros((actions, directions + 1))
    offset[:, 0] = center
    total = max(float(variances.sum()), 1e-30)
    return _Targets(
        np.concatenate([block / scale for block, scale in zip(blocks, scales, strict=True)], axis=1),
        final.reshape(-1, final.shape[-1]).T,
        offset.ravel(),
        float(variances[::-1][:directions].sum()) / total,
    )


def _student(network: Any, belief: Belief) -> Network:
    """Choose the architecture: that of the members, without the parts of a dueling network."""
    found: Any = getattr(belief, "network", None) if network is None else as_network(network)
    if network is None and isinstance(found, Dueling):
        found = found.network
    if found is None:
        raise ValueError(
            f"the policy's belief is a {type(belief).__name__}, which has no single network to take the architecture "
            "of; pass network=MLP(...), Table(...) or Convnet(...)"
        )
    if not isinstance(found, MLP | Table | Convnet):
        raise ValueError(
            f"network={type(found).__name__} cannot be distilled into; pass network=MLP(...), Table(...) or "
            "Convnet(...)"
        )
    if isinstance(found, MLP | Table) and not found.use_bias:
        raise ValueError("network has no biases, which the distilled outputs need; pass one with use_bias=True")
    return found


def _unscaled(params: PyTree, targets: _Targets) -> PyTree:
    """Turn the outputs of the fitted network into values, by its last layer."""
    if isinstance(params, Convolutions):
        return params._replace(rest=_unscaled(params.rest, targets))
    last = params[-1]
    unscale = jnp.asarray(targets.unscale, last.weight.dtype)
    offset = jnp.asarray(targets.offset, last.weight.dtype)
    return (*params[:-1], Layer(last.weight @ unscale, last.bias @ unscale + offset))


def _belief(
    network: Network, params: PyTree, x: np.ndarray | np.generic, num_actions: int, directions: int
) -> tuple[Belief, BeliefState]:
    """Put fitted parameters into a belief."""
    belief: Any
    if directions == 0:
        belief = Ensemble(1, network=network, num_outputs=num_actions)
        params = jax.tree.map(lambda leaf: leaf[None], params)
    else:
        belief = Hypermodel(directions, network=network, num_outputs=num_actions)
    state = belief.init(jax.random.key(0), x)
    return belief, state._replace(params=params)
