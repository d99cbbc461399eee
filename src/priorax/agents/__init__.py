"""Agents: one Q-learner over any belief, and its settings by name."""

from priorax.agents.named import AGENTS, PRESETS, Settings, build, check_members_differ, settings
from priorax.agents.q_learner import AgentState, QLearner

__all__ = [
    "AGENTS",
    "PRESETS",
    "AgentState",
    "QLearner",
    "Settings",
    "build",
    "check_members_differ",
    "settings",
]
