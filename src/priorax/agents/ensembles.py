"""Q-learners over an ensemble: bsp, bsr, bs, ensemble; with a single member: eps_greedy, c51, qr, ucb, rnd, lmcdqn."""

import dataclasses
from typing import Any

import numpy as np

from priorax.agents.q_learner import QLearner
from priorax.agents.q_networks import (
    has_sparse_rows,
    head_of,
    linear_prior_of,
    network_of,
    optimizer_of,
    prior_network_of,
    prior_scale_of,
    q_learner,
    unit_prior_of,
)
from priorax.agents.registry import AgentSpec
from priorax.agents.settings import EnsembleSettings
from priorax.beliefs import (
    L2,
    Adam,
    Belief,
    Bonus,
    Counts,
    Density,
    Distillation,
    Ensemble,
    GaussianCount,
    HashCount,
    Outcomes,
    SharedTorso,
    TableCount,
)
from priorax.convnets import NATURE, SMALL_NET, Convnet
from priorax.envs.interface import TaskSpec
from priorax.family import Learned
from priorax.hardware import updates_sparse_rows
from priorax.networks import Dueling, Network, Table
from priorax.priors import Around, Constant, RandomSize, Tabulated
from priorax.storage import load_prior


def build(settings: EnsembleSettings, task: TaskSpec) -> QLearner:
    """Build a Q-learner over an ensemble.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.

    Raises:
        ValueError: If settings are incompatible with the environment or with each other.
    """
    if settings.torso != "none" and task.num_states is not None:
        raise ValueError(f"torso={settings.torso!r} needs image observations; use torso='none' here")
    if settings.torso != "none" and (settings.prior_widths is not None or settings.prior_unit):
        raise ValueError(
            f"prior_widths={settings.prior_widths} and prior_unit={settings.prior_unit} are for states and vectors, "
            f"and torso={settings.torso!r} sees images; pass none and False"
        )
    if settings.torso != "none" and settings.shared_torso and settings.prior == "learned":
        raise ValueError(
            "prior='learned' is a function of images, and with shared_torso=True members see features of them; pass "
            "shared_torso=False"
        )
    if settings.torso != "none" and (settings.fourier_features > 0 or settings.squash_inputs):
        raise ValueError(
            f"fourier_features={settings.fourier_features} and squash_inputs={settings.squash_inputs} encode vectors, "
            f"and torso={settings.torso!r} sees images; pass 0 and False"
        )
    ensemble = _ensemble(settings, task)
    members: Ensemble | SharedTorso = ensemble
    if settings.torso != "none" and settings.shared_torso:
        members = SharedTorso(ensemble, _torso(settings), settings.features, optimizer_of(settings, task))
    belief: Belief = Outcomes(members) if settings.sample_outcomes else members
    if settings.bonus_scale > 0:
        belief = _with_bonus(settings, task, belief)
    return q_learner(settings, belief, settings.mask_prob, settings.bonus_at)


def _with_bonus(settings: EnsembleSettings, task: TaskSpec, belief: Belief) -> Bonus:
    if settings.bonus == "counts":
        return Counts(belief, _density(settings, task), settings.bonus_scale, settings.first_count)
    network: Network = network_of(dataclasses.replace(settings, dueling=False), task)
    if settings.torso != "none":
        network = _convolved(settings)
    predictor = Ensemble(
        1,
        network=network,
        prior=network if task.num_states is None else Tabulated(network, task.num_states),
        num_outputs=settings.predictor_outputs,
        optimizer=Adam(settings.predictor_rate),
        sparse_rows="shared" if task.num_states is not None and updates_sparse_rows(settings.sparse_rows) else "no",
    )
    return Distillation(belief, predictor, settings.bonus_scale)


def _ensemble(settings: EnsembleSettings, task: TaskSpec) -> Ensemble:
    own_torso = settings.torso != "none" and not settings.shared_torso
    network = (
        _dueling(settings, _convolved(settings), head_of(settings).size) if own_torso else network_of(settings, task)
    )
    sparse = has_sparse_rows(settings, task) and settings.l2 == 0
    return Ensemble(
        settings.num_members,
        network=network,
        prior=_prior(settings, task),
        prior_scale=_prior_scale(settings, task),
        l2=L2(settings.l2, reading=settings.l2_reading) if settings.l2 > 0 else None,
        head=head_of(settings),
        num_outputs=task.num_actions,
        optimizer=optimizer_of(settings, task),
        sparse_rows=("shared" if settings.shared_batch else "own") if sparse else "no",
    )


def _prior_scale(settings: EnsembleSettings, task: TaskSpec) -> float:
    if settings.prior in ("optimal", "learned"):
        return 1.0
    return prior_scale_of(settings, task) if settings.prior == "network" else settings.prior_scale


def _prior(settings: EnsembleSettings, task: TaskSpec) -> Network | None:
    if settings.prior == "none":
        return None
    if settings.prior == "optimal":
        if task.optimal_values is None:
            raise ValueError("prior='optimal' needs an environment that knows its optimal values; use prior='network'")
        return Around(tuple(map(tuple, task.optimal_values.tolist())), settings.prior_scale)
    prior = unit_prior_of(settings, task, _prior_network(settings, task))
    if settings.prior_ratio > 1:
        prior = RandomSize(prior, settings.prior_ratio)
    if settings.prior == "learned":
        prior = _learned(settings, task, prior)
    return prior if task.num_states is None else Tabulated(prior, task.num_states)


def _learned(settings: EnsembleSettings, task: TaskSpec, rest: Network) -> Network:
    """Read the learned prior, for what it does not contain with the random network of the settings."""
    found = load_prior(settings.prior_file)
    if not isinstance(found, Learned):
        raise ValueError(
            f"prior_file={settings.prior_file!r} holds a {type(found).__name__}, not a learned prior; pass a file with "
            "one of priorax.learn_prior"
        )
    if isinstance(found.network, Table) != (task.num_states is not None):
        raise ValueError(
            f"prior_file={settings.prior_file!r} was learned from {'states' if task.num_states is None else 'arrays'}, "
            f"which observations are not; learn it in environments that are observed alike"
        )
    has, asked = _num_inputs(found), task.num_states
    if asked is None and task.shape is not None:
        asked = int(np.prod(task.shape))
    if None not in (has, asked) and has != asked:
        kind = "states" if task.num_states is not None else "inputs"
        raise ValueError(
            f"prior_file={settings.prior_file!r} was learned from {has} {kind}, and this environment has {asked}; "
            "learn it in environments of the same form"
        )
    return dataclasses.replace(found, rest=rest, rest_scale=prior_scale_of(settings, task))


def _num_inputs(prior: Learned) -> int | None:
    """The number of states, or of components of an array, that a learned prior takes; None: it encodes arrays."""
    if isinstance(prior.network, Table):
        return prior.network.num_rows
    return None if prior.network.code is not None else len(prior.layers[0][0])


def _prior_network(settings: EnsembleSettings, task: TaskSpec) -> Network:
    if settings.prior == "constant":
        return Constant()
    if settings.prior == "linear":
        return linear_prior_of(task)
    if settings.torso != "none" and not settings.shared_torso:
        network: Network = dataclasses.replace(_convolved(settings), bias_scale=settings.prior_bias)
    else:
        network = prior_network_of(settings, task, settings.widths)
    if task.num_states is not None:
        return network
    return _dueling(settings, network, head_of(settings).prior_size, settings.prior_advantage)


def _dueling(settings: EnsembleSettings, network: Network, size: int, advantage: float = 1.0) -> Network:
    return Dueling(network, size, advantage) if settings.dueling else network


def _torso(settings: EnsembleSettings, *rest: int) -> Convnet:
    return Convnet(NATURE if settings.torso == "nature" else SMALL_NET, rest, precision=settings.precision)


def _convolved(settings: EnsembleSettings) -> Convnet:
    """Build a convolutional network with a torso of its own for each member."""
    return _torso(settings, settings.features, *settings.widths)


def _density(settings: EnsembleSettings, task: TaskSpec) -> Density:
    """Choose the density model for counts: by state index, by hashed image, or by a Gaussian for other arrays."""
    if task.num_states is not None:
        return TableCount(task.num_states)
    return GaussianCount() if settings.torso == "none" else HashCount()


_ONE: dict[str, Any] = {"prior": "none", "mask_prob": 1.0, "num_members": 1}


def _spec(name: str, changes: dict[str, Any], *aliases: str) -> AgentSpec:
    return AgentSpec(name, EnsembleSettings, build, changes=changes, aliases=aliases)


BSP = _spec("bsp", {}, "rpf", "bootdqnrpf", "bootdqnprior", "bdqnp", "randomizedpriors")
BSR = _spec("bsr", {"prior": "none", "l2": 0.1, "mask_prob": 0.5})
BS = _spec("bs", {"prior": "none", "mask_prob": 0.5}, "bootdqn", "bootstrappeddqn", "bdqn")
ENSEMBLE = _spec("ensemble", {"prior": "none", "mask_prob": 1.0})
EPS_GREEDY = _spec("eps_greedy", {**_ONE, "epsilon": 0.1}, "dqn", "doubledqn", "ddqn", "egreedy", "epsilongreedy")
C51_AGENT = _spec("c51", {**_ONE, "head": "c51", "epsilon": 0.1}, "categoricaldqn")
QR = _spec("qr", {**_ONE, "head": "qr", "epsilon": 0.1}, "qrdqn")
UCB = _spec("ucb", {**_ONE, "bonus_scale": 0.1, "epsilon": 0.1}, "countbased", "counts")
RND = _spec(
    "rnd",
    {**_ONE, "bonus": "distillation", "bonus_scale": 0.1, "epsilon": 0.1},
    "randomnetworkdistillation",
    "rnddqn",
    "dqnrnd",
)
LMCDQN = AgentSpec(
    "lmcdqn",
    EnsembleSettings,
    build,
    changes={**_ONE, "optimizer": "langevin", "clip": 10.0},
    presets={"tuned": {"widths": (), "learning_rate": 0.1}},
    aliases=("langevindqn", "adamlmcdqn", "lmc", "langevin"),
)
"""Its draw is the current weights. The gradient itself is part of a step, so that it is clipped. Without hidden layers,
noise accumulates in the values of states that are not visited; those of others are pulled back to their targets."""
