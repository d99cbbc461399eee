"""Exact planners for finite states: the named agents rlsvi, psrl and ucrl."""

from collections.abc import Callable
from typing import Any

from priorax.agents.registry import AgentSpec
from priorax.agents.settings import PSRLSettings, RLSVISettings, Settings, UCRLSettings
from priorax.agents.tabular import PSRL, RLSVI, UCRL, Planner, Tabular
from priorax.envs.interface import TaskSpec

HORIZON = 200
"""Planning horizon in steps, if the environment declares none."""


def _planner(
    name: str, kind: type[Settings], make: Callable[[Any], Planner], more: dict[str, Any], *aliases: str
) -> AgentSpec:
    def build(settings: Settings, task: TaskSpec) -> Tabular:
        if task.num_states is None:
            raise ValueError(f"{name} needs finite states, observed by index; use an ensemble here, such as bsp")
        return Tabular(make(settings), task.num_states, task.num_actions, task.horizon or HORIZON, settings.discount)

    return AgentSpec(name, kind, build, changes={"learn_every": 0, "lanes": 1, **more}, aliases=aliases)


RLSVI_AGENT = _planner("rlsvi", RLSVISettings, lambda chosen: RLSVI(chosen.noise_std, chosen.prior_std), {})
PSRL_AGENT = _planner(
    "psrl", PSRLSettings, lambda chosen: PSRL(chosen.noise_std, chosen.prior_std, chosen.concentration), {}
)
UCRL_AGENT = _planner("ucrl", UCRLSettings, lambda chosen: UCRL(chosen.confidence), {"confidence": 0.003}, "ucrl2")
