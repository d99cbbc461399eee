"""Q-learners over a single stochastic network: dropout, noisy and bbb."""

from typing import Any

from priorax.agents.q_learner import QLearner
from priorax.agents.q_networks import head_of, network_of, optimizer_of, q_learner
from priorax.agents.registry import AgentSpec
from priorax.agents.settings import BayesByBackpropSettings, DropoutSettings, NoisySettings, QSettings
from priorax.beliefs import L2, Dropout, bayes_by_backprop, noisy
from priorax.envs.interface import TaskSpec


def _parts(settings: QSettings, task: TaskSpec) -> dict[str, Any]:
    return {
        "network": network_of(settings, task),
        "head": head_of(settings),
        "num_outputs": task.num_actions,
        "optimizer": optimizer_of(settings, task),
    }


def _initial(std: float | None) -> dict[str, Any]:
    return {} if std is None else {"initial_std": std}


def build_dropout(settings: DropoutSettings, task: TaskSpec) -> QLearner:
    """Build a Q-learner over dropout.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.
    """
    l2 = L2(settings.l2, to="zero") if settings.l2 > 0 else None
    return q_learner(settings, Dropout(settings.p_keep, l2=l2, **_parts(settings, task)))


def build_noisy(settings: NoisySettings, task: TaskSpec) -> QLearner:
    """Build a Q-learner over a NoisyNet.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.
    """
    return q_learner(settings, noisy(**_initial(settings.initial_std), **_parts(settings, task)))


def build_bayes_by_backprop(settings: BayesByBackpropSettings, task: TaskSpec) -> QLearner:
    """Build a Q-learner over Bayes by Backprop.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.
    """
    more = {**_initial(settings.initial_std), **_parts(settings, task)}
    return q_learner(settings, bayes_by_backprop(settings.kl_weight, prior_std=settings.prior_std, **more))


_EACH_STEP = {"draw_each_step": True}
DROPOUT = AgentSpec("dropout", DropoutSettings, build_dropout, changes=_EACH_STEP, aliases=("mcdropout", "dropoutdqn"))
NOISY = AgentSpec(
    "noisy", NoisySettings, build_noisy, changes=_EACH_STEP, aliases=("noisynet", "noisynets", "noisydqn")
)
BBB = AgentSpec("bbb", BayesByBackpropSettings, build_bayes_by_backprop, aliases=("bayesbybackprop",))
