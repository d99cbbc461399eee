"""Agents: one Q-learner over any belief, exact planners for finite states, and their settings by name."""

from priorax.agents.base import Agent
from priorax.agents.building import build, check_members_differ, nearby
from priorax.agents.q_learner import AgentState, QLearner
from priorax.agents.registry import AGENTS, PRESETS, Settings, known_agent, settings
from priorax.agents.tabular import PSRL, RLSVI, UCRL, Tabular

__all__ = [
    "AGENTS",
    "PRESETS",
    "PSRL",
    "RLSVI",
    "UCRL",
    "Agent",
    "AgentState",
    "QLearner",
    "Settings",
    "Tabular",
    "build",
    "check_members_differ",
    "known_agent",
    "nearby",
    "settings",
]
