"""Q-learners over one network with a random index: hypermodel, epinet."""

import dataclasses
from typing import Any

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
from priorax.agents.settings import EpinetSettings, HypermodelSettings, IndexedSettings
from priorax.beliefs import Epinet, Hypermodel
from priorax.envs.interface import TaskSpec
from priorax.networks import MLP, Dueling, Network
from priorax.priors import Independent, Tabulated, UnitRows


def build_hypermodel(settings: HypermodelSettings, task: TaskSpec) -> QLearner:
    """Build a Q-learner over a hypermodel.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.
    """
    network = network_of(settings, task)
    if isinstance(network, Dueling):
        network = dataclasses.replace(network, size=head_of(settings).size * (settings.index_dim + 1))
    if settings.prior_widths == ():
        raise ValueError("prior_widths=() leaves the prior of a hypermodel without features; pass at least one width")
    *hidden, last = settings.prior_widths or settings.widths or (20,)
    features = prior_network_of(dataclasses.replace(settings, prior_widths=None), task, tuple(hidden))
    prior = _prior(settings, task, UnitRows(features, last, settings.index_dim, settings.prior_activation))
    sparse = has_sparse_rows(settings, task)
    return q_learner(settings, Hypermodel(**_common(settings, task), network=network, prior=prior, sparse_rows=sparse))


def build_epinet(settings: EpinetSettings, task: TaskSpec) -> QLearner:
    """Build a Q-learner over an epinet.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.
    """
    common = _common(settings, task)
    if settings.prior == "linear":
        each, common["prior_scale"] = linear_prior_of(task), settings.prior_scale  # it spreads alike for all sizes
    else:
        each = prior_network_of(settings, task, settings.widths)
    if settings.prior_unit:  # the index has this radius, by which the prior is multiplied
        common["prior_scale"] /= settings.index_dim**0.5
    belief = Epinet(
        **common,
        network=network_of(settings, task),
        prior=_prior(settings, task, Independent(each, settings.index_dim)),
        sparse_rows=has_sparse_rows(settings, task) and bool(settings.widths),
        epinet=MLP(settings.epinet_widths),
        input_features=settings.input_features,
    )
    return q_learner(settings, belief)


def _common(settings: IndexedSettings, task: TaskSpec) -> dict[str, Any]:
    """Fields of the belief that do not depend on its class."""
    return {
        "index_dim": settings.index_dim,
        "num_indices": settings.num_indices,
        "prior_scale": prior_scale_of(settings, task),
        "target_index": settings.target_index,
        "head": head_of(settings),
        "num_outputs": task.num_actions,
        "optimizer": optimizer_of(settings, task),
    }


def _prior(settings: IndexedSettings, task: TaskSpec, prior: Network) -> Network | None:
    """The prior function as its settings ask: none, looked up, dueling, or as it is."""
    if settings.prior_scale == 0:
        return None
    if settings.dueling and task.num_states is None:
        prior = Dueling(prior, head_of(settings).prior_size * settings.index_dim, settings.prior_advantage)
    prior = unit_prior_of(settings, task, prior)
    return prior if task.num_states is None else Tabulated(prior, task.num_states)


_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"shared_batch": True},
    "swingup": {"prior_scale": 2.0},
    "gymnasium": {"prior_scale": 4.0},
    "finite": {"prior_scale": 2.0},
}
"""One network has one minibatch. Prior scales give about the spread that the same preset has for BSP, whose last layer
is Glorot's."""
HYPERMODEL = AgentSpec(
    "hypermodel", HypermodelSettings, build_hypermodel, presets=_PRESETS, aliases=("hyperagent", "hyperdqn", "hyperfqi")
)
_EPINET_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"shared_batch": True},
    "swingup": {"prior_scale": 2.5},
    "gymnasium": {"prior_scale": 5.0},
    "finite": {"prior_scale": 1.5, "widths": (50,)},
}
"""One network has one minibatch. Prior scales give about the spread that the same preset has for BSP, whose scale is
sqrt(index_dim) times as large. The features of an epinet are a hidden layer."""
EPINET = AgentSpec("epinet", EpinetSettings, build_epinet, presets=_EPINET_PRESETS, aliases=("enn", "epistemicnetwork"))
