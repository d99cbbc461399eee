"""Q-learners over one network with a random index: hypermodel."""

import dataclasses
from typing import Any

from priorax.agents.q_learner import QLearner
from priorax.agents.q_networks import code_of, head_of, network_of, optimizer_of, prior_scale_of, q_learner, scale_of
from priorax.agents.registry import AgentSpec
from priorax.agents.settings import HypermodelSettings
from priorax.beliefs import Hypermodel
from priorax.envs.interface import TaskSpec
from priorax.networks import MLP, Dueling, Network, Table
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
    dense = settings.target_period > 1 or settings.target_rate < 1 or settings.clip is not None or settings.priority > 0
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
        sparse_rows=task.num_states is not None and not dense and settings.optimizer == "adam",
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
    gain = tuple(settings.prior_gain * each for each in scale_of(settings, task) or (1.0,) * (settings.prior_gain != 1))
    code = code_of(settings, task)
    features = MLP(tuple(hidden), gain=gain or 1.0, bias_scale=settings.prior_bias, code=code)
    prior = UnitRows(features, last, settings.index_dim)
    if not settings.dueling:
        return prior
    return Dueling(prior, head_of(settings).prior_size * settings.index_dim, settings.prior_advantage)


_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"shared_batch": True},
    "swingup": {"prior_scale": 6.0},
    "gymnasium": {"prior_scale": 4.0},
    "finite": {"prior_scale": 2.0},
}
"""One network has one minibatch. Prior scales give about the spread that the same preset has for BSP, whose last layer
is Glorot's."""
HYPERMODEL = AgentSpec(
    "hypermodel", HypermodelSettings, build, presets=_PRESETS, aliases=("hyperagent", "hyperdqn", "hyperfqi")
)
