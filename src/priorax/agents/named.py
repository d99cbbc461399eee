"""Agents by name: which belief, on which data, and with which hyperparameters.

    bsp          bootstrap with prior functions: the paper's agent
    bsr          bootstrap with an l2 pull towards the initial weights
    bs           bootstrap alone
    ensemble     neither bootstrap nor prior: members differ by their start
    eps_greedy   one network that dithers: DQN
    dropout      one network, a mask of its units drawn as if from a posterior
    noisy        NoisyNet: learned noise on every weight
    bbb          Bayes by Backprop: the same, with a prior over weights
    c51, qr      'distributional RL' by atoms or quantiles, greedy on the mean, dithering as DQN
    ucb          DQN paid a bonus for states seldom visited, by their true counts
    rlsvi, psrl  exact posterior sampling for finite states: of Q, of the environment
    ucrl         exact optimism for finite states
    d4pg         a deterministic policy and a distributional critic, for continuous actions

They differ in nothing else. `settings(name, preset)` says all of it; `build` makes the agent.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from priorax.agents.base import Agent
from priorax.agents.d4pg import D4PG
from priorax.agents.q_learner import QLearner
from priorax.agents.tabular import PSRL, RLSVI, UCRL, Planner, Tabular
from priorax.beliefs import (
    L2,
    Adam,
    Belief,
    Counts,
    Dropout,
    Ensemble,
    GaussianCount,
    Outcomes,
    State,
    TableCount,
    bayes_by_backprop,
    belief_values,
    noisy,
)
from priorax.checks import one_of
from priorax.heads import C51, Head, Quantiles, Scalar
from priorax.networks import MLP, Dueling, Network, Table
from priorax.priors import Around, Linear, Tabulated
from priorax.replay import EnsembleBuffer

PRIORS = ("none", "network", "linear", "optimal")
BELIEFS = ("ensemble", "dropout", "noisy", "bbb", "d4pg")
PLANNERS = ("rlsvi", "psrl", "ucrl")
HEADS = ("scalar", "c51", "qr")


@dataclass(frozen=True)
class Settings:
    """Hyperparameters. The defaults are the preset `tuned`, for `bsp`."""

    belief: str = "ensemble"
    """What represents uncertainty: ensemble, dropout, noisy, bbb; or, for finite states, an exact planner: rlsvi, psrl,
    ucrl, for which only discount, noise_std, prior_std, concentration and confidence mean anything; or d4pg."""
    num_members: int = 20
    """K; 1 for what is no ensemble."""
    widths: tuple[int, ...] = (20, 20)
    """Units of each hidden layer; () is linear."""
    dueling: bool = False
    """Of array observations: let actions have a part of their values in common, v(s) + a(s, action)."""
    scale_inputs: bool = True
    """Multiply each number of an observation by what the environment says brings it to about one."""
    learning_rate: float = 2e-3
    """Of Adam."""
    batch_size: int = 256
    """Transitions per update and member."""
    shared_batch: bool = True
    """One minibatch for all members, with masks as weights; else each draws from its own transitions."""
    capacity: int = 100_000
    """Transitions that replay keeps."""
    priority: float = 0.0
    """The power of its error that a transition is replayed in proportion to; 0: uniformly. Needs shared_batch."""
    importance: float = 0.4
    """How far weights undo that: 0 not at all, 1 wholly."""
    mask_prob: float = 1.0
    """The chance that a transition belongs to a member; 1: no bootstrap."""
    prior: str = "network"
    """none; network: a random one like the member's own; linear; optimal: draws around the true values, where the
    environment knows them (the paper's task-specific knowledge)."""
    prior_scale: float = 10.0
    """beta: multiplies the prior function; for `optimal`, the standard deviation of the draws."""
    prior_gain: float = 1.0
    """Multiplies, of array observations, what the prior network sees: the larger, the less does what was learned at one
    observation say about another."""
    prior_bias: float = 0.0
    """Standard deviation of that network's biases; without any it is linear along each ray from the origin."""
    prior_advantage: float = 1.0
    """Of a dueling prior: multiplies what actions do not have in common."""
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
    """Updates between moves of the target network to the online one."""
    target_rate: float = 1.0
    """How far it then moves: 1 is a copy."""
    double_q: bool = False
    """Let the online network choose the next action."""
    n_step: int = 1
    """Rewards summed before the bootstrap."""
    clip: float | None = None
    """The largest norm of a member's gradient; none: any."""
    hold: int = 1
    """Environment steps for which an action is held."""
    learn_every: int = 1
    """Actions between two times of learning; 0: at each episode's end."""
    updates: int = 1
    """Updates each time."""
    draw_each_step: bool = False
    """Draw a member at each step instead of each episode."""
    epsilon: float | None = None
    """The chance of a random action in the first episode; None: no dithering."""
    epsilon_episodes: int = 2000
    """Over so many episodes it falls linearly to zero."""
    head: str = "scalar"
    """What an output is: scalar; a distribution of returns: c51 (51 atoms) or qr (21 quantiles)."""
    lowest: float = -1.0
    """The lowest of c51's 51 atoms."""
    highest: float = 2.0
    """The highest: let them cover the task's returns."""
    sample_outcomes: bool = False
    """Follow a draw from the distribution of returns, as if it were a posterior (lemma 5), not its mean."""
    p_keep: float = 0.1
    """Of dropout: the chance that a unit stays."""
    initial_std: float | None = None
    """Of noisy and bbb: the noise at the start; none: as their authors have it."""
    kl_weight: float = 1.0
    """Of bbb: what the prior over weights counts for."""
    action_noise: float = 0.3
    """Of d4pg: the standard deviation of the noise on its actions, as a share of their bound."""
    actor_rate: float = 1e-4
    """Of d4pg: the policy's learning rate."""
    bonus_scale: float = 0.0
    """beta of a count bonus beta/sqrt(N(s)); 0: none."""
    first_count: float = 1.0
    """What N(s) is taken for where s was never visited."""
    bonus_at: str = "learning"
    """By which count a bonus is paid. insertion: of the visits before this one; learning: of all visits up to now."""
    noise_std: float = 0.1
    """Of rlsvi and psrl: the noise of rewards (targets) that they reckon with."""
    prior_std: float = 1.0
    """Of rlsvi, psrl (what is unseen) and bbb (weights)."""
    concentration: float = 0.1
    """Of psrl: what its Dirichlet prior counts for, in visits."""
    confidence: float = 1.0
    """Of ucrl: multiplies the widths of its confidence sets. 1 is the theory's, which does not learn DeepSea 10 in 600
    episodes; the agent `ucrl` takes 0.003, the best of 1, 0.05, 0.02, 0.01 and 0.003 there."""


TUNED = Settings()
PAPER = Settings(
    learning_rate=1e-3,
    batch_size=128,
    shared_batch=False,
    mask_prob=0.5,
    scale_with_states=False,
    learn_every=0,
)
SWINGUP = Settings(
    widths=(50, 50),
    learning_rate=3e-3,
    batch_size=128,
    capacity=250_000,
    priority=0.6,
    prior_scale=15.0,
    prior_gain=3.0,
    prior_bias=1.0,
    discount=0.98,
    target_period=10,
    double_q=True,
    n_step=3,
    clip=10.0,
    hold=4,
    lowest=-20.0,
    highest=200.0,
)
PRESETS = {"tuned": TUNED, "paper": PAPER, "swingup": SWINGUP}
"""`tuned`, the default, is the best found here on DeepSea, one rule for N=10 to 100 (see `scale_with_states`). It does
NOT bootstrap: every member sees every transition (mask 1), its prior and its start alone make it differ; halving the
data only slows members down. That holds in noise too, as far as measured: windy DeepSea is learned (`priorax reproduce
bsuite`), and on `bernoulli_bandit`, 2,000 steps, 4 seeds, regret is 4 to 11, with mask 0.5 11 to 55, at random 100. In
results/README.md: what gives most.

`paper` is appendix B: K=20, 20 units, Adam 1e-3, batch 128, prior scale 10, lambda 0.1, mask 0.5, each member its own
minibatch, learning at episode ends only, target period 1. What the paper leaves open and is our choice: discount 0.99,
two hidden layers, replay of 100,000 transitions, one update per episode.

`swingup` is for cartpole swing-up; results/README.md has the search that led to it. Actions are held for 0.04 s, so
that a discount of 0.98 looks two seconds ahead; the prior has random biases and sees three times the (scaled)
observation, since a smoother one is forgotten at the top as soon as it is known at rest; replay looks first where
errors are large."""

_ONE: dict[str, Any] = {"prior": "none", "mask_prob": 1.0, "num_members": 1}

AGENTS: dict[str, dict[str, Any]] = {
    "bsp": {},
    "bsr": {"prior": "none", "l2": 0.1, "mask_prob": 0.5},
    "bs": {"prior": "none", "mask_prob": 0.5},
    "ensemble": {"prior": "none", "mask_prob": 1.0},
    "eps_greedy": {**_ONE, "epsilon": 0.1},
    "dropout": {**_ONE, "belief": "dropout", "draw_each_step": True},
    "noisy": {**_ONE, "belief": "noisy", "draw_each_step": True},
    "bbb": {**_ONE, "belief": "bbb"},
    "c51": {**_ONE, "head": "c51", "epsilon": 0.1},
    "qr": {**_ONE, "head": "qr", "epsilon": 0.1},
    "ucb": {**_ONE, "bonus_scale": 0.1, "epsilon": 0.1},
    "rlsvi": {**_ONE, "belief": "rlsvi", "learn_every": 0},
    "psrl": {**_ONE, "belief": "psrl", "learn_every": 0},
    "ucrl": {**_ONE, "belief": "ucrl", "learn_every": 0, "confidence": 0.003},
    "d4pg": {
        **_ONE,
        "belief": "d4pg",
        "head": "c51",
        "learning_rate": 1e-3,
        "actor_rate": 3e-4,
        "target_period": 100,
        "priority": 0.0,
    },
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


def build(
    settings: Settings,
    num_actions: int,
    num_states: int | None = None,
    horizon: int | None = None,
    optimal_values: Any = None,
    bound: float | None = None,
    input_scale: tuple[float, ...] = (),
) -> Agent:
    """The agent with those hyperparameters. `num_states`: observations are indices below it, else arrays.

    `horizon`: steps of an episode at most, for planners; `optimal_values`: [state, action], for the prior `optimal`;
    `bound`: of continuous actions, which have `num_actions` dimensions; `input_scale`: what brings each number of an
    observation to about one.
    """
    one_of("belief", settings.belief, (*BELIEFS, *PLANNERS))
    one_of("prior", settings.prior, PRIORS)
    one_of("head", settings.head, HEADS)
    if (settings.belief == "d4pg") != (bound is not None):
        if bound is None:
            raise ValueError("d4pg needs continuous actions; use another agent here, or an environment that has them")
        raise ValueError(f"belief={settings.belief!r} needs finitely many actions, and these are continuous; use d4pg")
    if settings.belief in PLANNERS:
        if num_states is None:
            raise ValueError(f"belief={settings.belief!r} needs finite states, observed by index; use an ensemble here")
        return Tabular(_planner(settings), num_states, num_actions, horizon or 200, settings.discount)
    scale = input_scale if settings.scale_inputs else ()
    if bound is not None:
        return _d4pg(settings, num_actions, bound, scale)
    belief = _belief(settings, num_actions, num_states, optimal_values, scale)
    return QLearner(
        belief,
        _buffer(settings, belief.num_streams),
        settings.batch_size,
        settings.discount,
        settings.target_period,
        settings.target_rate,
        settings.double_q,
        settings.shared_batch,
        settings.draw_each_step,
        settings.epsilon,
        settings.epsilon_episodes,
        settings.n_step,
        settings.bonus_at,
    )


def _buffer(settings: Settings, num_streams: int) -> EnsembleBuffer:
    return EnsembleBuffer(settings.capacity, num_streams, settings.mask_prob, settings.priority, settings.importance)


def _d4pg(settings: Settings, num_actions: int, bound: float, input_scale: tuple[float, ...]) -> D4PG:
    _refuse_for_one_network(settings)
    head = _head(settings)
    if not isinstance(head, C51):
        raise ValueError(f"head={settings.head!r} does not go with d4pg, whose critic has atoms; leave it at 'c51'")
    return D4PG(
        num_actions,
        head,
        _buffer(settings, 1),
        bound,
        MLP(settings.widths),
        Adam(settings.actor_rate, clip=settings.clip),
        Adam(settings.learning_rate, clip=settings.clip),
        settings.batch_size,
        settings.discount,
        settings.n_step,
        settings.target_period,
        settings.action_noise,
        input_scale,
    )


def _planner(settings: Settings) -> Planner:
    if settings.belief == "rlsvi":
        return RLSVI(settings.noise_std, settings.prior_std)
    if settings.belief == "psrl":
        return PSRL(settings.noise_std, settings.prior_std, settings.concentration)
    return UCRL(settings.confidence)


def _belief(
    settings: Settings,
    num_actions: int,
    num_states: int | None,
    optimal_values: Any,
    input_scale: tuple[float, ...],
) -> Belief:
    head = _head(settings)
    network: MLP | Table | Dueling
    if num_states is None:
        network = MLP(settings.widths, gain=input_scale or 1.0)
        network = Dueling(network, head.size) if settings.dueling else network
    else:
        network = Table(num_states, settings.widths)
    scale, rate = settings.prior_scale, settings.learning_rate
    if settings.scale_with_states and num_states is not None:
        scale *= (num_states / 400) ** 0.5 if settings.prior == "network" else 1.0
        rate *= min(1.0, (2500 / num_states) ** 0.5)
    common: dict[str, Any] = {
        "network": network,
        "head": head,
        "num_outputs": num_actions,
        "optimizer": Adam(rate, clip=settings.clip),
    }
    if settings.belief != "ensemble":
        _refuse_for_one_network(settings)
        if settings.belief == "dropout":
            return Dropout(settings.p_keep, l2=L2(settings.l2, to="zero") if settings.l2 > 0 else None, **common)
        start: dict[str, Any] = {} if settings.initial_std is None else {"initial_std": settings.initial_std}
        if settings.belief == "noisy":
            return noisy(**start, **common)
        return bayes_by_backprop(settings.kl_weight, prior_std=settings.prior_std, **start, **common)
    dense = (
        settings.l2 > 0
        or settings.target_period > 1
        or settings.target_rate < 1
        or settings.clip is not None
        or settings.priority > 0
    )
    sparse = num_states is not None and not dense
    ensemble = Ensemble(
        settings.num_members,
        prior=_prior(settings, network, num_states, optimal_values, input_scale),
        prior_scale=1.0 if settings.prior == "optimal" else scale,
        l2=L2(settings.l2) if settings.l2 > 0 else None,
        sparse_rows=("shared" if settings.shared_batch else "own") if sparse else "no",
        **common,
    )
    if settings.bonus_scale > 0:
        density = GaussianCount() if num_states is None else TableCount(num_states)
        return Counts(ensemble, density, settings.bonus_scale, settings.first_count)
    return Outcomes(ensemble) if settings.sample_outcomes else ensemble


def _refuse_for_one_network(settings: Settings) -> None:
    """What an ensemble has and this belief has not."""
    wanted = {"num_members": 1, "prior": "none", "mask_prob": 1.0, "sample_outcomes": False, "bonus_scale": 0.0}
    for name, value in wanted.items():
        if getattr(settings, name) != value:
            raise ValueError(
                f"{name}={getattr(settings, name)!r} does not go with belief={settings.belief!r}, one network; "
                f"leave it at {value!r}, or use belief='ensemble'"
            )


def _head(settings: Settings) -> Head:
    if settings.head == "c51":
        return C51(settings.lowest, settings.highest)
    return Quantiles(21) if settings.head == "qr" else Scalar()


def _prior(
    settings: Settings,
    network: Network,
    num_states: int | None,
    optimal_values: Any,
    input_scale: tuple[float, ...],
) -> Network | None:
    if settings.prior == "none":
        return None
    if settings.prior == "optimal":
        if optimal_values is None:
            raise ValueError("prior='optimal' needs an environment that knows its optimal values; use prior='network'")
        return Around(tuple(map(tuple, optimal_values.tolist())), settings.prior_scale)
    if settings.prior == "linear":
        return Linear() if num_states is None else Tabulated(Table(num_states, (), weight_std=1.0), num_states)
    if num_states is not None:
        return Tabulated(network, num_states)
    gain = tuple(settings.prior_gain * each for each in input_scale) or settings.prior_gain
    prior = MLP(settings.widths, gain=gain, bias_scale=settings.prior_bias)
    return Dueling(prior, _head(settings).prior_size, settings.prior_advantage) if settings.dueling else prior


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
