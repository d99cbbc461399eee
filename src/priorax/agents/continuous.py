"""The named agent d4pg, for continuous actions."""

from priorax.agents.d4pg import D4PG
from priorax.agents.q_networks import code_of, replay_of, scale_of
from priorax.agents.registry import AgentSpec
from priorax.agents.settings import D4PGSettings
from priorax.beliefs import Adam
from priorax.envs.interface import TaskSpec
from priorax.heads import C51
from priorax.networks import MLP


def build(settings: D4PGSettings, task: TaskSpec) -> D4PG:
    """Build D4PG for a task with continuous actions.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The agent.
    """
    assert task.bound is not None  # the registry refuses it before
    return D4PG(
        task.num_actions,
        C51(settings.lowest, settings.highest),
        replay_of(settings),
        task.bound,
        MLP(settings.widths),
        Adam(settings.actor_rate, clip=settings.clip),
        Adam(settings.learning_rate, clip=settings.clip),
        settings.target_period,
        settings.action_noise,
        scale_of(settings, task),
        code_of(settings, task),
    )


D4PG_AGENT = AgentSpec(
    "d4pg",
    D4PGSettings,
    build,
    changes={"learning_rate": 1e-3, "actor_rate": 3e-4, "target_period": 100, "priority": 0.0},
    continuous=True,
)
