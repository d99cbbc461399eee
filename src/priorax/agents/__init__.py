"""Agents: one Q-learner over any belief."""

from priorax.agents.q_learner import AgentState, QLearner

__all__ = ["AgentState", "QLearner"]
