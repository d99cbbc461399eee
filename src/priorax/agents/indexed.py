"""Q-learners over one network with a random index: hypermodel."""

import dataclasses
from typing import Any

from priorax.agents.q_learner import QLearner
from priorax.agents.q_networks import (
    head_of,
    network_of,
    optimizer_of,
    prior_network_of,
    prior_scale_of,
    q_learner,
    touches_all_rows,
)
from priorax.agents.registry import AgentSpec
from priorax.agents.settings import HypermodelSettings
from priorax.beliefs import Hypermodel
from priorax.envs.interface import TaskSpec
from priorax.networks import Dueling, Network, Table
from priorax.priors import Tabulated, UnitRows


def build(settings: HypermodelSettings, task: TaskSpec) -> QLearner:
    """Build a Q-learner over a hypermodel.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.
    """
    head, network = head_of(settings), network_of(settings, task)
    if isinstance(network, Dueling):
        network = dataclasses.replace(network, size=head.size * (settings.index_dim + 1))
    sparse = task.num_states is not None and settings.optimizer == "adam" and not touches_all_rows(settings)
    belief = Hypermodel(
        settings.index_dim,
        settings.num_indices,
        network=network,
        prior=_prior(settings, task),
        prior_scale=prior_scale_of(settings, task),
        target_index=settings.target_index,
        head=head,
        num_outputs=task.num_actions,
        optimizer=optimizer_of(settings, task),
        sparse_rows=sparse,
    )
    return q_learner(settings, belief)


def _prior(settings: HypermodelSettings, task: TaskSpec) -> Network | None:
    if settings.prior_scale == 0:
        return None
    *hidden, last = settings.widths or (20,)
    features: Network
    if task.num_states is not None:
        features = Table(task.num_states, tuple(hidden))
        return Tabulated(UnitRows(features, last, settings.index_dim), task.num_states)
    features = prior_network_of(settings, task, tuple(hidden))
    prior = UnitRows(features, last, settings.index_dim)
    if not settings.dueling:
        return prior
    return Dueling(prior, head_of(settings).prior_size * settings.index_dim, settings.prior_advantage)


_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"shared_batch": True},
    "swingup": {"prior_scale": 2.0},
    "gymnasium": {"prior_scale": 4.0},
    "finite": {"prior_scale": 2.0},
}
"""One network has one minibatch. Prior scales give about the spread that the same preset has for BSP, whose last layer
is Glorot's."""
HYPERMODEL = AgentSpec(
    "hypermodel", HypermodelSettings, build, presets=_PRESETS, aliases=("hyperagent", "hyperdqn", "hyperfqi")
)
