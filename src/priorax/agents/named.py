"""Agents by name: which belief, on which data, and with which hyperparameters.

    bsp          bootstrap with prior functions: the paper's agent
    bsr          bootstrap with an l2 pull towards the initial weights
    bs           bootstrap alone
    ensemble     neither bootstrap nor prior: members differ by their start
    eps_greedy   one network that dithers: DQN

They differ in nothing else. `settings(name, preset)` says all of it; `build` makes the agent.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from priorax.agents.q_learner import QLearner
from priorax.beliefs import L2, Adam, Ensemble, State, belief_values
from priorax.checks import one_of
from priorax.networks import MLP, Network, Table
from priorax.priors import Around, Linear, Tabulated
from priorax.replay import EnsembleBuffer

PRIORS = ("none", "network", "linear", "optimal")


@dataclass(frozen=True)
class Settings:
    """Hyperparameters. The defaults are the preset `tuned`, for `bsp`."""

    num_members: int = 20
    """K."""
    widths: tuple[int, ...] = (20, 20)
    """Units of each hidden layer; () is linear."""
    learning_rate: float = 2e-3
    """Of Adam."""
    batch_size: int = 256
    """Transitions per update and member."""
    shared_batch: bool = True
    """One minibatch for all members, with masks as weights; else each draws from its own transitions."""
    capacity: int = 100_000
    """Transitions that replay keeps."""
    mask_prob: float = 1.0
    """The chance that a transition belongs to a member; 1: no bootstrap."""
    prior: str = "network"
    """none; network: a random one like the member's own; linear; optimal: draws around the true values, where the
    environment knows them (the paper's task-specific knowledge)."""
    prior_scale: float = 10.0
    """beta: multiplies the prior function; for `optimal`, the standard deviation of the draws."""
    scale_with_states: bool = True
    """Of discrete states, take prior_scale as meant for 400 of them and multiply it by sqrt(states/400): N/2, not 10,
    in an N x N DeepSea. Glorot's first layer shrinks with the number of its inputs though only one is ever on; this
    undoes it, and the prior's spread is the same at every size. And beyond 2,500 states (N=50) multiply the learning
    rate by sqrt(2500/states): 50/N; longer chains want smaller steps."""
    l2: float = 0.0
    """lambda of BSR's pull towards the initial weights; 0: none."""
    discount: float = 0.99
    """gamma."""
    target_period: int = 1
    """Updates between copies into the target network."""
    double_q: bool = False
    """Let the online network choose the next action."""
    learn_every: int = 1
    """Environment steps per update; 0: one update at each episode's end."""
    draw_each_step: bool = False
    """Draw a member at each step instead of each episode."""
    epsilon: float | None = None
    """The chance of a random action in the first episode; None: no dithering."""
    epsilon_episodes: int = 2000
    """Over so many episodes it falls linearly to zero."""


TUNED = Settings()
PAPER = Settings(
    learning_rate=1e-3,
    batch_size=128,
    shared_batch=False,
    mask_prob=0.5,
    scale_with_states=False,
    learn_every=0,
)
PRESETS = {"tuned": TUNED, "paper": PAPER}
"""`tuned`, the default, is the best found here on DeepSea from N=10 to 50 (see `scale_with_states`). At N=100 a
learning rate of 1e-3 did better. It does NOT bootstrap: every member sees every transition (mask 1), its prior and its
start alone make it differ; on DeepSea, where nothing is noisy, halving the data only slows members down. What it does
in noise is not measured yet. In results/README.md: what gives most.

`paper` is appendix B: K=20, 20 units, Adam 1e-3, batch 128, prior scale 10, lambda 0.1, mask 0.5, each member its own
minibatch, learning at episode ends only, target period 1. What the paper leaves open and is our choice: discount 0.99,
two hidden layers, replay of 100,000 transitions, one update per episode."""

AGENTS: dict[str, dict[str, Any]] = {
    "bsp": {},
    "bsr": {"prior": "none", "l2": 0.1, "mask_prob": 0.5},
    "bs": {"prior": "none", "mask_prob": 0.5},
    "ensemble": {"prior": "none", "mask_prob": 1.0},
    "eps_greedy": {"prior": "none", "mask_prob": 1.0, "num_members": 1, "epsilon": 0.1},
}
"""What each changes in a preset."""


def settings(agent: str, preset: str = "tuned", **changes: Any) -> Settings:
    """The hyperparameters of an agent: its preset, what its name means, and your changes on top."""
    base = PRESETS[one_of("preset", preset, PRESETS)]
    named = AGENTS[one_of("agent", agent, AGENTS)]
    known = [field.name for field in dataclasses.fields(Settings)]
    for name in changes:
        one_of("setting", name, known)
    return dataclasses.replace(base, **{**named, **changes})


def build(settings: Settings, num_actions: int, num_states: int | None = None, optimal_values: Any = None) -> QLearner:
    """The agent with those hyperparameters. `num_states`: observations are indices below it, else arrays.

    `optimal_values`: [state, action], for the prior `optimal`.
    """
    one_of("prior", settings.prior, PRIORS)
    network: Network = MLP(settings.widths) if num_states is None else Table(num_states, settings.widths)
    scale, rate = settings.prior_scale, settings.learning_rate
    if settings.scale_with_states and num_states is not None:
        scale *= (num_states / 400) ** 0.5 if settings.prior == "network" else 1.0
        rate *= min(1.0, (2500 / num_states) ** 0.5)
    sparse = num_states is not None and settings.l2 == 0 and settings.target_period == 1
    belief = Ensemble(
        settings.num_members,
        network,
        _prior(settings, network, num_states, optimal_values),
        1.0 if settings.prior == "optimal" else scale,
        L2(settings.l2) if settings.l2 > 0 else None,
        num_outputs=num_actions,
        optimizer=Adam(rate),
        sparse_rows=("shared" if settings.shared_batch else "own") if sparse else "no",
    )
    return QLearner(
        belief,
        EnsembleBuffer(settings.capacity, settings.num_members, settings.mask_prob),
        settings.batch_size,
        settings.discount,
        settings.target_period,
        settings.double_q,
        settings.shared_batch,
        settings.draw_each_step,
        settings.epsilon,
        settings.epsilon_episodes,
    )


def _prior(settings: Settings, network: Network, num_states: int | None, optimal_values: Any) -> Network | None:
    if settings.prior == "none":
        return None
    if settings.prior == "optimal":
        if optimal_values is None:
            raise ValueError("prior='optimal' needs an environment that knows its optimal values; use prior='network'")
        return Around(tuple(map(tuple, optimal_values.tolist())), settings.prior_scale)
    if settings.prior == "linear":
        return Linear() if num_states is None else Tabulated(Table(num_states, (), weight_std=1.0), num_states)
    return network if num_states is None else Tabulated(network, num_states)


def check_members_differ(agent: QLearner, state: State, obs: Any) -> None:
    """Refuse an ensemble whose members, or whose priors, are all the same function: it would explore like one network.

    `obs`: a batch of observations to look at. Every run begins with it.
    """
    belief = agent.belief
    if not isinstance(belief, Ensemble) or belief.num_members == 1:
        return
    for what, found in zip(("members", "priors"), _functions(belief, state, obs), strict=True):
        if found is not None and bool(jnp.all(found == found[0])):
            raise ValueError(f"all {what} of the ensemble are the same function; give them different keys or a scale")


@eqx.filter_jit
def _functions(belief: Ensemble, state: State, obs: Any) -> tuple[Array, Array | None]:
    return belief_values(belief, state, jax.random.key(0), obs), belief.prior_values(state, obs)
