"""Agents: one Q-learner over any belief, exact planners for finite states, and a registry of them by name."""

from priorax.agents.base import Agent, AgentDefaults, Choice
from priorax.agents.members import check_members_differ, nearby
from priorax.agents.presets import PRESETS
from priorax.agents.q_learner import AgentState, QLearner
from priorax.agents.registry import AgentSpec, agent_spec, agents, build, register, setting_of, settings
from priorax.agents.settings import EnsembleSettings, QSettings, Settings
from priorax.agents.tabular import PSRL, RLSVI, UCRL, Tabular

__all__ = [
    "PRESETS",
    "PSRL",
    "RLSVI",
    "UCRL",
    "Agent",
    "AgentDefaults",
    "AgentSpec",
    "AgentState",
    "Choice",
    "EnsembleSettings",
    "QLearner",
    "QSettings",
    "Settings",
    "Tabular",
    "agent_spec",
    "agents",
    "build",
    "check_members_differ",
    "nearby",
    "register",
    "setting_of",
    "settings",
]
