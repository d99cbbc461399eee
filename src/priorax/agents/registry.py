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

They differ in nothing else. `settings(name, preset)` says all of it; `build` (`building.py`) makes the agent.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from priorax.checks import one_of

PRIORS = ("none", "network", "linear", "optimal")
BELIEFS = ("ensemble", "dropout", "noisy", "bbb", "d4pg")
PLANNERS = ("rlsvi", "psrl", "ucrl")
HEADS = ("scalar", "c51", "qr")
TORSOS = ("none", "small", "nature")


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
    torso: str = "none"
    """Convolutions for pictures: small (16 and 32 filters), nature (those of Mnih et al. 2015), or none."""
    shared_torso: bool = True
    """One for all members; else each has its own."""
    features: int = 256
    """What a torso gives."""
    precision: str = "float32"
    """What convolutions are computed in: float32 or bfloat16."""
    dueling: bool = False
    """Of array observations: let actions have a part of their values in common, v(s) + a(s, action)."""
    scale_inputs: bool = True
    """Multiply each number of an observation by what the environment says brings it to about one."""
    optimizer: str = "adam"
    """adam, or rmsprop (centred, as Ape-X has it)."""
    learning_rate: float = 2e-3
    """Of the optimizer."""
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
    """lambda of BSR's pull towards the initial weights (over the member's own n); of dropout's R = lambda |theta|²
    beside the mean loss; 0: none."""
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
    learn_after: int = 1
    """Transitions in replay before the first update."""
    lanes: int = 1
    """Environments that are stepped together, each following its own draw; on the host. The compiled loop has one,
    whatever the preset says, and refuses to be asked for more; so do the exact planners."""
    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1]; rows have them as they are, and a count's bonus is added to them."""
    draw_each_step: bool = False
    """Draw a member at each step instead of each episode."""
    epsilon: float | None = None
    """The chance of a random action in the first episode; None: no dithering."""
    epsilon_episodes: int = 2000
    """Over so many episodes, of all lanes, it falls linearly to zero; 0: it stays."""
    epsilon_ladder: float = 0.0
    """How far lanes differ in it: epsilon^(1 + epsilon_ladder * i/(N-1)) for lane i of N, so that some explore and some
    are nearly greedy. 0: not at all; 7 is Ape-X's. Where there is one lane it changes nothing."""
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
APEX = Settings(
    num_members=10,
    torso="nature",
    features=512,
    widths=(),
    dueling=True,
    optimizer="rmsprop",
    learning_rate=6.25e-5,
    clip=40.0,
    batch_size=512,
    capacity=2_000_000,
    priority=0.6,
    discount=0.99,
    target_period=2500,
    double_q=True,
    n_step=3,
    learn_every=640,
    learn_after=50_000,
    lanes=16,
    clip_rewards=True,
    epsilon_episodes=0,
    epsilon_ladder=7.0,
    prior_bias=1.0,
)
SMALL = dataclasses.replace(
    APEX,
    torso="small",
    features=256,
    optimizer="adam",
    learning_rate=2.5e-4,
    batch_size=32,
    capacity=200_000,
    target_period=500,
    learn_every=4,
    learn_after=2_000,
    lanes=8,
)
GYMNASIUM = Settings(
    widths=(50, 50),
    learning_rate=1e-3,
    batch_size=128,
    priority=0.6,
    prior_scale=10.0,
    prior_gain=3.0,
    prior_bias=1.0,
    target_rate=0.02,
    double_q=True,
    n_step=3,
    learn_every=4,
    learn_after=200,
    lanes=8,
)
FINITE = dataclasses.replace(
    GYMNASIUM,
    widths=(),
    learning_rate=2e-3,
    batch_size=256,
    priority=0.0,
    prior_scale=3.0,
    target_period=4,
    target_rate=1.0,
    n_step=1,
)
PRESETS = {
    "tuned": TUNED,
    "paper": PAPER,
    "swingup": SWINGUP,
    "apex": APEX,
    "small": SMALL,
    "gymnasium": GYMNASIUM,
    "finite": FINITE,
}
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
errors are large.

`apex` is Horgan et al. 2018 as published, with ten heads on one torso: 19 updates of 512 a second beside 12,500 actions
make one update for each 640 or so. `small` is the same agent for two cores: the net of Mnih et al. 2013, batches
of 32, an update for each 4 actions, Adam.

`gymnasium` is for environments of others that show numbers, chosen on CartPole and MountainCar: targets that follow
slowly, or values grow without end; a prior that sees three times the (scaled) observation. `finite` is for theirs that
show an index, chosen on slippery FrozenLake: a value for each state, no hidden layer that would carry what is bad in
one state over to others. Where nothing is luck (Taxi), take larger steps: learning_rate=0.1."""

_ONE: dict[str, Any] = {"prior": "none", "mask_prob": 1.0, "num_members": 1}
_PLANS: dict[str, Any] = {**_ONE, "learn_every": 0, "lanes": 1}

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
    "rlsvi": {**_PLANS, "belief": "rlsvi"},
    "psrl": {**_PLANS, "belief": "psrl"},
    "ucrl": {**_PLANS, "belief": "ucrl", "confidence": 0.003},
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


ELSEWHERE = {
    **dict.fromkeys(("rpf", "bootdqnrpf", "bootdqnprior", "bdqnp", "randomizedpriors"), "bsp"),
    **dict.fromkeys(("bootdqn", "bootstrappeddqn", "bdqn"), "bs"),
    **dict.fromkeys(("dqn", "doubledqn", "ddqn", "egreedy", "epsilongreedy"), "eps_greedy"),
    **dict.fromkeys(("mcdropout", "dropoutdqn"), "dropout"),
    **dict.fromkeys(("noisynet", "noisynets", "noisydqn"), "noisy"),
    **dict.fromkeys(("countbased", "counts"), "ucb"),
    "bayesbybackprop": "bbb",
    "categoricaldqn": "c51",
    "qrdqn": "qr",
    "ucrl2": "ucrl",
}
"""What the literature calls them (`checks.one_of`)."""


def known_agent(agent: str) -> str:
    """That name, or a ValueError that gives the one it has here, or the nearest."""
    return one_of("agent", agent, AGENTS, ELSEWHERE)


def settings(agent: str, preset: str = "tuned", **changes: Any) -> Settings:
    """The hyperparameters of an agent: its preset, what its name means, and your changes on top."""
    base = PRESETS[one_of("preset", preset, PRESETS)]
    named = AGENTS[known_agent(agent)]
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    for name in changes:
        one_of("setting", name, defaults)
    if changes.get("prior_scale") == "auto":
        raise ValueError("prior_scale='auto' is not known here; ask `priorax scale` for one, and pass the number")
    whole = {n: v for n, v in changes.items() if isinstance(v, int) and isinstance(defaults[n], float)}
    return dataclasses.replace(base, **{**named, **changes, **{name: float(value) for name, value in whole.items()}})
