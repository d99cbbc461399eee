"""Names and one-line summaries of agents, presets, environments and experiments, without importing JAX: for `--help`.

Built-in agents are loaded on first use from the modules named here, those of other packages from their entry points. To
add a built-in agent or an experiment, add one file and one line here.
"""

import functools
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

AGENT_PLUGINS = "priorax.agents"
"""Entry-point group: name = "package.module:SPEC", an `agents.AgentSpec` of that name."""
ENVIRONMENT_PLUGINS = "priorax.environments"
"""Entry-point group: name = "package.module:make", a function of the size, or an `envs.catalogue.EnvironmentSpec`."""


class Ours(NamedTuple):
    """A built-in agent."""

    where: str
    """Location of the `AgentSpec`, as module:attribute."""
    summary: str
    """One-line description."""


AGENTS: dict[str, Ours] = {
    "bsp": Ours("priorax.agents.ensembles:BSP", "bootstrapped DQN with randomized prior functions: the paper's agent"),
    "bsr": Ours("priorax.agents.ensembles:BSR", "bootstrapped DQN with L2 regularisation to the initial weights"),
    "bs": Ours("priorax.agents.ensembles:BS", "bootstrapped DQN"),
    "ensemble": Ours("priorax.agents.ensembles:ENSEMBLE", "ensemble of DQNs that differ in their initial weights only"),
    "eps_greedy": Ours("priorax.agents.ensembles:EPS_GREEDY", "DQN, epsilon-greedy"),
    "dropout": Ours("priorax.agents.one_network:DROPOUT", "DQN that acts on a dropout sample"),
    "noisy": Ours("priorax.agents.one_network:NOISY", "NoisyNet DQN: learned noise on every weight"),
    "bbb": Ours("priorax.agents.one_network:BBB", "Bayes by Backprop DQN: a variational posterior over weights"),
    "hypermodel": Ours("priorax.agents.indexed:HYPERMODEL", "DQN with a random index instead of an ensemble"),
    "epinet": Ours("priorax.agents.indexed:EPINET", "DQN with an epinet: a small network of a random index beside it"),
    "c51": Ours("priorax.agents.ensembles:C51_AGENT", "categorical DQN with 51 atoms, epsilon-greedy on the mean"),
    "qr": Ours("priorax.agents.ensembles:QR", "quantile-regression DQN, epsilon-greedy on the mean"),
    "ucb": Ours("priorax.agents.ensembles:UCB", "DQN with a count-based exploration bonus"),
    "rnd": Ours("priorax.agents.ensembles:RND", "DQN with a bonus by random network distillation"),
    "lmcdqn": Ours("priorax.agents.ensembles:LMCDQN", "DQN by Adam Langevin Monte Carlo: noise on every step"),
    "rlsvi": Ours("priorax.agents.planners:RLSVI_AGENT", "exact posterior sampling of Q, finite states"),
    "psrl": Ours("priorax.agents.planners:PSRL_AGENT", "exact posterior sampling of the environment, finite states"),
    "ucrl": Ours("priorax.agents.planners:UCRL_AGENT", "exact optimism over confidence sets, finite states"),
    "d4pg": Ours("priorax.agents.continuous:D4PG_AGENT", "D4PG: distributional actor-critic, continuous actions"),
}
PRESETS: dict[str, str] = {
    "tuned": "tuned on DeepSea",
    "paper": "the paper's appendix B",
    "swingup": "cartpole swing-up",
    "apex": "Ape-X from pixels, for larger machines",
    "small": "from pixels, for two cores",
    "gymnasium": "third-party environments with array observations",
    "finite": "third-party environments with discrete observations",
}
ENVIRONMENTS: dict[str, str] = {
    "deep_sea": "N x N grid with one rewarding path",
    "deep_sea_stochastic": "DeepSea with stochastic transitions and rewards",
    "deep_sea_no_reward": "DeepSea without reward, to measure novelty seeking",
    "bsuite_deep_sea": "DeepSea with bsuite's action mask",
    "bsuite_deep_sea_stochastic": "stochastic DeepSea with bsuite's action mask",
    "pixel_deep_sea": "DeepSea with image observations",
    "bernoulli_bandit": "independent arms",
    "linear_bandit": "arms with features, of dimension SIZE",
    "gp_bandit": "SIZE arms drawn from a Gaussian process",
    "cartpole_swingup": "cartpole swing-up with sparse reward, as in the paper",
    "cartpole_swingup_wide": "cartpole swing-up with a wider rewarded region",
    "cartpole_swingup_smooth": "cartpole swing-up with dm_control's shaped reward",
    "cartpole_balance": "cartpole that starts upright",
    "bsuite_cartpole_swingup": "bsuite's cartpole swing-up, of difficulty SIZE - 1",
    "two_step": "minimal task with two states, for checks of agents",
    "atari": "Atari game, given by --game",
}
EXPERIMENTS: dict[str, str] = {
    "figure1": "regression.figure1",
    "figure2": "regression.figure2",
    "figure3": "deep_sea.figure3",
    "figure4": "deep_sea.figure4",
    "figure5": "swingup.figure5",
    "figure6": "pixels.figure6",
    "figure8": "deep_sea.figure8",
    "figure9": "deep_sea.figure9",
    "figure10": "deep_sea.figure10",
    "figure11": "swingup.figure11",
    "figure12": "regression.figure12",
    "figure13": "regression.figure13",
    "table1": "table1.table",
    "search": "deep_sea.search",
    "masks": "deep_sea.masks",
    "controls": "controls",
    "curves": "deep_sea.curves",
    "novelty": "deep_sea.novelty",
    "ablation": "deep_sea.ablation",
    "bsuite": "bsuite.deep_sea",
    "bsuite_swingup": "bsuite.swingup",
    "swingup_grid": "swingup.grid",
    "bandits": "bandits",
    "pixels": "pixels.two_cores",
    "gymnasium": "gymnasium_tasks",
    "tabular": "tabular.panel",
    "distillation": "priors.distillation",
    "testbed": "testbed.study",
    "priors": "priors.study",
    "learned_prior": "priors.learned",
    "one_network": "deep_sea.one_network",
}
"""Module of each experiment, in `priorax.experiments`."""


@functools.cache
def plugins(group: str) -> tuple[EntryPoint, ...]:
    """List entry points of other packages, by metadata only, without importing them.

    Args:
        group: `AGENT_PLUGINS` or `ENVIRONMENT_PLUGINS`.

    Returns:
        The entry points; several may have the same name.
    """
    return tuple(entry_points(group=group))


def distribution(point: EntryPoint) -> str:
    """Get the name of the distribution of an entry point, for messages.

    Args:
        point: The entry point.

    Returns:
        The name.
    """
    return point.dist.name if point.dist is not None else point.module


def agent_names() -> list[str]:
    """List the names of agents, built-in and from plug-ins.

    Returns:
        The names.
    """
    return list(dict.fromkeys([*AGENTS, *(point.name for point in plugins(AGENT_PLUGINS))]))


def environment_names() -> list[str]:
    """List the names of environments, built-in and from plug-ins.

    Returns:
        The names.
    """
    return list(dict.fromkeys([*ENVIRONMENTS, *(point.name for point in plugins(ENVIRONMENT_PLUGINS))]))


def listed(names: Iterable[str], default: str | None = None) -> str:
    """Join names as in a sentence: a, b (default) or c.

    Args:
        names: At least one name.
        default: The name to mark as the default.

    Returns:
        The joined names.
    """
    *most, last = [f"{name} (default)" if name == default else name for name in names]
    return f"{', '.join(most)} or {last}" if most else last
