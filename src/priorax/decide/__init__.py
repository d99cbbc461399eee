"""Decisions over our estimators: contextual bandits, Bayesian optimisation and active learning."""

from priorax.decide.active import query
from priorax.decide.logs import Estimate, Logs, PolicyValue, policy_value
from priorax.decide.optimizer import Evaluation, Optimizer
from priorax.decide.space import Choice, Integer, Real
from priorax.decide.thompson import Decision, ThompsonSampler

__all__ = [
    "Choice",
    "Decision",
    "Estimate",
    "Evaluation",
    "Integer",
    "Logs",
    "Optimizer",
    "PolicyValue",
    "Real",
    "ThompsonSampler",
    "policy_value",
    "query",
]
