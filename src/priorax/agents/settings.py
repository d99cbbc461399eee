"""Hyperparameters as frozen dataclasses: `Settings` for every agent, `QSettings` for every gradient Q-learner, and one
small class for each kind of agent. A setting without meaning for an agent does not exist in its class.

Values from the command line and from run.json are converted by the fields' type hints (`setting_values.py`).
"""

import dataclasses
from dataclasses import dataclass, field

from priorax.checks import non_negative, one_of, positive, positive_int
from priorax.hardware import updates_sparse_rows
from priorax.networks import ACTIVATIONS

PRIORS = ("none", "network", "linear", "constant", "optimal", "learned")
INDEX_PRIORS = ("network", "linear")
HEADS = ("scalar", "c51", "qr")
TORSOS = ("none", "small", "nature")
OPTIMIZERS = ("adam", "rmsprop", "langevin")
PRECISIONS = ("float32", "bfloat16")
BONUSES = ("counts", "distillation")
BONUS_AT = ("insertion", "learning")
L2_READINGS = ("posterior", "coefficient")
TARGET_INDICES = ("fresh", "same")

_ONLY_RANDOM_NETWORKS = (("prior", ("none", "linear", "constant", "optimal")),)
_NO_BONUS = ("bonus_scale", (0.0,))
INERT: dict[str, tuple[tuple[str, tuple[object, ...]], ...]] = {
    "prior_scale": (("prior", ("none",)),),
    **dict.fromkeys(("prior_gain", "prior_bias", "prior_widths", "prior_activation"), _ONLY_RANDOM_NETWORKS),
    **dict.fromkeys(("prior_unit", "prior_ratio"), (("prior", ("none", "optimal")),)),
    "prior_advantage": (("dueling", (False,)),),
    "fourier_lengthscale": (("fourier_features", (0,)),),
    "fourier_grouped": (("fourier_features", (0,)),),
    "importance": (("priority", (0.0,)),),
    "inverse_temperature": (("optimizer", ("adam", "rmsprop")),),
    "bias_factor": (("optimizer", ("adam", "rmsprop")),),
    "lowest": (("head", ("scalar", "qr")),),
    "highest": (("head", ("scalar", "qr")),),
    "epsilon_episodes": (("epsilon", (None,)),),
    "epsilon_ladder": (("epsilon", (None,)),),
    "shared_torso": (("torso", ("none",)),),
    "features": (("torso", ("none",)),),
    "precision": (("torso", ("none",)),),
    "l2_reading": (("l2", (0.0,)),),
    "bonus": (_NO_BONUS,),
    "bonus_at": (_NO_BONUS,),
    "first_count": (_NO_BONUS, ("bonus", ("distillation",))),
    "predictor_rate": (_NO_BONUS, ("bonus", ("counts",))),
    "predictor_outputs": (_NO_BONUS, ("bonus", ("counts",))),
}
"""Settings that have no effect while another one has one of these values: by name, the others and their values."""


def check_widths(name: str, widths: tuple[int, ...]) -> None:
    """Check the units of hidden layers.

    Args:
        name: Name of the setting.
        widths: Its value.

    Raises:
        ValueError: If a number is below 1.
    """
    if any(width < 1 for width in widths):
        raise ValueError(f"{name}={widths} must be whole numbers of at least 1; pass for example 50,50")


@dataclass(frozen=True)
class Settings:
    """Hyperparameters common to all agents: those that the training loop itself reads.

    The defaults, here and in subclasses, are the preset `tuned`.
    """

    discount: float = 0.99
    """Discount factor gamma."""
    hold: int = 1
    """Environment steps for which each action is repeated."""
    learn_every: int = 1
    """Environment steps between updates; 0: learn at the end of each episode."""
    updates: int = 1
    """Gradient updates at each of these times."""
    learn_after: int = 1
    """Transitions in replay before the first update."""
    lanes: int = 1
    """Environments stepped together on the host, each following its own draw. A compiled scan always has one lane,
    whatever the preset, and refuses larger numbers."""
    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1]. Logs keep the raw rewards; a count bonus is added after clipping."""
    devices: int = 1
    """Devices over which the members of an ensemble are spread; K must be a multiple of it. 0: as many of those that
    JAX sees as divide K. Results agree within rounding, and a run may be resumed with another number."""

    def __post_init__(self) -> None:
        """Check choices and ranges.

        Raises:
            ValueError: If a value is not allowed; the message names the setting, its value, the limit and the remedy.
        """
        for name, least in (("hold", 1), ("updates", 1), ("learn_after", 1), ("lanes", 1)):
            if getattr(self, name) < least:
                positive_int(name, getattr(self, name))
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount={self.discount} must be between 0 and 1; pass for example 0.99")
        if self.learn_every < 0:
            raise ValueError(f"learn_every={self.learn_every} must be at least 0; pass 0 to learn at episode ends")
        if self.devices < 0:
            raise ValueError(f"devices={self.devices} must be at least 0; pass 1, or 0 for all that JAX sees")

    @property
    def wants_optimal_values(self) -> bool:
        """Whether building the agent needs the environment's optimal values."""
        return False

    def settled(self) -> "Settings":
        """Make the choices that are left to the hardware, so that a run can be resumed on other hardware.

        Returns:
            The settings with these choices.
        """
        return self


@dataclass(frozen=True)
class GradientSettings(Settings):
    """Hyperparameters common to agents that train networks by gradient from replay."""

    widths: tuple[int, ...] = (20, 20)
    """Units of each hidden layer; () is linear."""
    scale_inputs: bool = True
    """Scale each component of an observation by the factor that the environment declares for it."""
    fourier_features: int = 0
    """Number of random Fourier features of an array observation that networks and priors see beside it; 0: none."""
    fourier_lengthscale: float = 0.5
    """Fourier features: distance over which they vary, in units of the scaled (or squashed) observation."""
    fourier_grouped: float = 0.0
    """Fourier features: share of them that depend on one group of components alone (as the environment groups them: the
    pole, the cart)."""
    squash_inputs: bool = False
    """Replace components x of an array observation by asinh(x / knee) where the environment has a knee for them, so
    that small values are resolved more finely than large ones."""
    learning_rate: float = 2e-3
    """Learning rate of the optimizer."""
    clip: float | None = None
    """Maximum gradient norm, for each member separately; none: no clipping."""
    batch_size: int = 256
    """Minibatch size (per member, unless shared)."""
    capacity: int = 100_000
    """Capacity of the replay buffer, in transitions."""
    priority: float = 0.0
    """Priority exponent alpha of prioritized replay; 0: uniform sampling. Needs shared_batch."""
    importance: float = 0.4
    """Importance-sampling exponent beta of prioritized replay: 0 no correction, 1 full correction."""
    target_period: int = 1
    """Updates between updates of the target network."""
    n_step: int = 1
    """Number of rewards in n-step returns."""
    lowest: float = -1.0
    """Lowest of the 51 atoms of a categorical (c51) distribution of returns."""
    highest: float = 2.0
    """Highest of the 51 atoms; lowest and highest should cover the task's returns."""

    def __post_init__(self) -> None:
        """Check choices and ranges."""
        super().__post_init__()
        check_widths("widths", self.widths)
        for name in ("batch_size", "capacity", "target_period", "n_step"):
            positive_int(name, getattr(self, name))
        for name in ("priority", "importance"):
            non_negative(name, getattr(self, name))
        if self.fourier_features != 0:
            positive_int("fourier_features", self.fourier_features)
        positive("fourier_lengthscale", self.fourier_lengthscale)
        if not 0 <= self.fourier_grouped <= 1:
            raise ValueError(f"fourier_grouped={self.fourier_grouped} must be between 0 and 1; pass for example 0.5")
        if not self.lowest < self.highest:
            raise ValueError(f"lowest={self.lowest} must be below highest={self.highest}; widen the atoms' range")


@dataclass(frozen=True)
class QSettings(GradientSettings):
    """Hyperparameters common to all gradient Q-learners."""

    dueling: bool = False
    """Dueling architecture v(s) + a(s, action), for array observations."""
    optimizer: str = "adam"
    """adam, rmsprop (centred, as in Ape-X), or langevin: Adam Langevin Monte Carlo, which adds noise to every step."""
    inverse_temperature: float = 1e4
    """Langevin: inverse temperature; noise has variance 2 * learning_rate / inverse_temperature."""
    bias_factor: float = 0.1
    """Langevin: weight of Adam's direction beside the gradient; 0: plain Langevin dynamics."""
    shared_batch: bool = True
    """Share one minibatch between all members, with bootstrap masks as weights; else each samples its own."""
    scale_with_states: bool = True
    """For discrete states, interpret prior_scale as given for 400 states and multiply it by sqrt(states/400): N/2, not
    10, in an N x N DeepSea. This compensates Glorot initialisation, which shrinks the first layer with the number of
    its inputs although only one is ever active, so that the prior has the same spread at every size. Beyond 2,500
    states (N=50) the learning rate is multiplied by sqrt(2500/states), since longer chains need smaller steps."""
    target_rate: float = 1.0
    """Step size of the target network towards the online one (Polyak averaging); 1 copies it."""
    double_q: bool = False
    """Double Q-learning: the online network selects the next action."""
    draw_each_step: bool = False
    """Draw a new function from the belief at each step instead of each episode."""
    epsilon: float | None = None
    """Probability of a random action in the first episode (epsilon-greedy); none: no dithering."""
    epsilon_episodes: int = 2000
    """Episodes, over all lanes, over which epsilon is annealed linearly to zero; 0: it stays constant."""
    epsilon_ladder: float = 0.0
    """Spread of epsilon over lanes: epsilon^(1 + epsilon_ladder * i/(N-1)) in lane i of N. 0: the same in all; 7: as in
    Ape-X. No effect with one lane."""
    head: str = "scalar"
    """What the network predicts for each action: scalar (the mean return), c51 (51 atoms) or qr (21 quantiles)."""

    def __post_init__(self) -> None:
        """Check choices and ranges."""
        super().__post_init__()
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("head", self.head, HEADS)
        if not 0 < self.target_rate <= 1:
            raise ValueError(f"target_rate={self.target_rate} must be above 0 and at most 1; pass 1 for copies")
        if self.epsilon is not None and not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon={self.epsilon} must be between 0 and 1; pass for example 0.1")
        if self.epsilon_episodes < 0:
            positive_int("epsilon_episodes", self.epsilon_episodes)
        non_negative("epsilon_ladder", self.epsilon_ladder)
        positive("inverse_temperature", self.inverse_temperature)
        non_negative("bias_factor", self.bias_factor)
        if self.priority > 0 and not self.shared_batch:
            raise ValueError(f"priority={self.priority} draws one minibatch for all members; use shared_batch=True")


@dataclass(frozen=True)
class PriorSettings(QSettings):
    """Hyperparameters common to Q-learners with prior functions."""

    prior_scale: float = field(default=10.0, metadata={"words": ("auto",)})
    """Prior scale beta, which multiplies the prior function; 0: it has no effect."""
    prior_gain: float = 1.0
    """Input gain of the prior network, for array observations: the larger, the less is generalised between
    observations."""
    prior_bias: float = 0.0
    """Standard deviation of the prior network's biases; without biases the prior is linear along each ray from the
    origin."""
    prior_advantage: float = 1.0
    """Multiplies the advantages of a dueling prior."""
    prior_widths: tuple[int, ...] | None = None
    """Units of each hidden layer of the prior network; none: those of the value network."""
    prior_activation: str = "relu"
    """Activation function of the prior network: relu, tanh, gelu or silu."""
    prior_unit: bool = False
    """Divide each prior function by its root mean square, so that prior_scale is the size of the priors in units of
    return, whatever their form: over all states, or over vectors whose scaled components are standard normal."""
    sparse_rows: bool | None = None
    """For discrete states: update only the rows of a table that occur in a minibatch, if all else allows it (Adam
    without l2, clipping, target network and priorities). Equal to dense updates to first order. none: on CPUs, where it
    is faster, but not on accelerators."""

    def __post_init__(self) -> None:
        """Check choices and ranges."""
        super().__post_init__()
        if self.prior_scale != "auto":
            non_negative("prior_scale", self.prior_scale)
        check_widths("prior_widths", self.prior_widths or ())
        one_of("prior_activation", self.prior_activation, tuple(ACTIVATIONS))

    def settled(self) -> "Settings":
        return dataclasses.replace(self, sparse_rows=updates_sparse_rows(self.sparse_rows))


@dataclass(frozen=True)
class EnsembleSettings(PriorSettings):
    """Hyperparameters of Q-learners over an ensemble: bsp, bsr, bs, ensemble, and those with a single member."""

    num_members: int = 20
    """Ensemble size K."""
    torso: str = "none"
    """Convolutional torso for images: small (16 and 32 filters), nature (Mnih et al. 2015), or none."""
    shared_torso: bool = True
    """Share one torso between all members; else each member has its own."""
    features: int = 256
    """Number of outputs of the torso."""
    precision: str = "float32"
    """Floating-point precision of the convolutions: float32 or bfloat16."""
    mask_prob: float = 1.0
    """Bootstrap probability that a transition belongs to a member; 1: no bootstrap."""
    prior: str = "network"
    """Prior function: none; network: a random network, by default with the member's architecture; linear: on states,
    independent values of all of them; constant: one number per action; optimal: draws around the optimal values with
    standard deviation prior_scale, if the environment knows them (the paper's task-specific knowledge); learned: draws
    of the prior in prior_file, to which the random network is added, times prior_scale."""
    prior_file: str = ""
    """File of a learned prior (`priorax.save_prior`), for prior=learned. A run has a copy of it."""
    prior_ratio: float = 1.0
    """Multiply each member's random prior function by a factor, log-uniform between 1/prior_ratio and prior_ratio, for
    tasks whose scale of returns is not known; 1: no factor. The learned part of prior=learned has none."""
    l2: float = 0.0
    """L2 weight lambda towards the initial weights; 0: none."""
    l2_reading: str = "posterior"
    """Meaning of l2 beside the mean loss. posterior: it is divided by the member's number of transitions, as in
    equation (4), a sum over data; coefficient: it is not."""
    sample_outcomes: bool = False
    """Act on a sample from the return distribution, as if it were a posterior (lemma 5), instead of its mean."""
    bonus: str = "counts"
    """Bonus for novel states. counts: beta/sqrt(N(s)); distillation: beta times the normalised error of a predictor of
    a fixed random network (Burda et al. 2018)."""
    bonus_scale: float = 0.0
    """Scale beta of the bonus; 0: no bonus."""
    predictor_rate: float = 1e-3
    """Distillation bonus: learning rate of the predictor, which learns from each transition once."""
    predictor_outputs: int = 16
    """Distillation bonus: number of outputs of the predictor and of the fixed network."""
    first_count: float = 1.0
    """Count bonus: N(s) of an unvisited state."""
    bonus_at: str = "learning"
    """Bonus: when it is computed. insertion: once, by the visits before this one; learning: at each replay, by all
    visits so far."""

    def __post_init__(self) -> None:
        """Check choices and ranges."""
        super().__post_init__()
        positive_int("num_members", self.num_members)
        positive_int("features", self.features)
        positive_int("predictor_outputs", self.predictor_outputs)
        positive("predictor_rate", self.predictor_rate, example=1e-3)
        choices = {
            "prior": PRIORS,
            "torso": TORSOS,
            "precision": PRECISIONS,
            "bonus": BONUSES,
            "bonus_at": BONUS_AT,
            "l2_reading": L2_READINGS,
        }
        for name, valid in choices.items():
            one_of(name, getattr(self, name), valid)
        if (self.prior == "learned") != bool(self.prior_file):
            raise ValueError(
                f"prior={self.prior!r} with prior_file={self.prior_file!r}: a learned prior, and only that, is read "
                "from a file; pass prior=learned with the file of priorax.save_prior, or neither"
            )
        if not self.prior_ratio >= 1:
            raise ValueError(
                f"prior_ratio={self.prior_ratio} must be at least 1; pass 1 for the same scale in all members"
            )
        if not 0 < self.mask_prob <= 1:
            raise ValueError(f"mask_prob={self.mask_prob} must be above 0 and at most 1; pass 1 for no bootstrap")
        if self.sample_outcomes and self.head == "scalar":
            raise ValueError(
                "sample_outcomes=True needs a distribution of returns, and head='scalar' has none; use head='c51' or "
                "head='qr'"
            )

    @property
    def wants_optimal_values(self) -> bool:
        """Whether priors are drawn around the optimal values."""
        return self.prior == "optimal"


@dataclass(frozen=True)
class DropoutSettings(QSettings):
    """Hyperparameters of Q-learners that treat dropout as a posterior."""

    p_keep: float = 0.1
    """Probability that a unit is kept."""
    l2: float = 0.0
    """L2 weight lambda towards zero, added to the mean loss; 0: none."""


@dataclass(frozen=True)
class NoisySettings(QSettings):
    """Hyperparameters of NoisyNet DQN."""

    initial_std: float | None = None
    """Initial standard deviation of the noise on weights; none: the value of the NoisyNet paper."""


@dataclass(frozen=True)
class BayesByBackpropSettings(QSettings):
    """Hyperparameters of Bayes by Backprop DQN."""

    initial_std: float | None = None
    """Initial standard deviation of the posterior over weights; none: the default of `bayes_by_backprop`."""
    kl_weight: float = 1.0
    """Weight of the KL divergence from the prior over weights."""
    prior_std: float = 1.0
    """Standard deviation of the prior over weights."""


@dataclass(frozen=True)
class IndexedSettings(PriorSettings):
    """Hyperparameters common to Q-learners over one network with a random index."""

    widths: tuple[int, ...] = (64, 64)
    """Units of each hidden layer; () is linear."""
    learning_rate: float = 1e-3
    """Learning rate of the optimizer."""
    index_dim: int = 4
    """Dimension of the index."""
    num_indices: int = 8
    """Indices per update, over which the loss is averaged; 2 * index_dim of them average squared errors exactly."""
    target_index: str = "same"
    """Indices of targets. same: each index of an update has its own target, which carries uncertainty over many steps
    as the members of an ensemble do; fresh: one new index per transition, as in HyperAgent."""

    def __post_init__(self) -> None:
        """Check choices and ranges."""
        super().__post_init__()
        for name in ("index_dim", "num_indices"):
            positive_int(name, getattr(self, name))
        one_of("target_index", self.target_index, TARGET_INDICES)


@dataclass(frozen=True)
class HypermodelSettings(IndexedSettings):
    """Hyperparameters of Q-learners over a hypermodel: a network whose last layer is linear in the index."""


@dataclass(frozen=True)
class EpinetSettings(IndexedSettings):
    """Hyperparameters of Q-learners over an epinet: a small network of the index beside a base network."""

    learning_rate: float = 3e-3
    """Learning rate of the optimizer."""
    prior_scale: float = field(default=5.0, metadata={"words": ("auto",)})
    """Prior scale beta, which multiplies the prior functions of the index's components; their sum spreads by
    sqrt(index_dim) more than one. 0: no prior."""
    epinet_widths: tuple[int, ...] = (50,)
    """Units of each hidden layer of the epinet; () is linear."""
    input_features: bool = True
    """Whether the epinet sees the observation beside the base network's last hidden layer."""
    prior: str = "network"
    """Prior function of each component of the index. network: a random network with the base network's architecture;
    linear."""

    def __post_init__(self) -> None:
        """Check choices and ranges."""
        super().__post_init__()
        check_widths("epinet_widths", self.epinet_widths)
        one_of("prior", self.prior, INDEX_PRIORS)


@dataclass(frozen=True)
class RLSVISettings(Settings):
    """Hyperparameters of tabular randomized least-squares value iteration."""

    noise_std: float = 0.1
    """Assumed standard deviation of the noise in targets."""
    prior_std: float = 1.0
    """Standard deviation of the prior over values."""


@dataclass(frozen=True)
class PSRLSettings(Settings):
    """Hyperparameters of posterior sampling in finite environments."""

    noise_std: float = 0.1
    """Assumed standard deviation of the noise in rewards."""
    prior_std: float = 1.0
    """Standard deviation of the prior over mean rewards."""
    concentration: float = 0.1
    """Concentration of the Dirichlet prior over transitions, in visits."""


@dataclass(frozen=True)
class UCRLSettings(Settings):
    """Hyperparameters of UCRL2 in finite environments."""

    confidence: float = 1.0
    """Multiplies the widths of the confidence sets. 1 is the theoretical width, which does not solve DeepSea 10 within
    600 episodes; the agent `ucrl` uses 0.003, the best of 1, 0.05, 0.02, 0.01 and 0.003 there."""


@dataclass(frozen=True)
class D4PGSettings(GradientSettings):
    """Hyperparameters of D4PG, for continuous actions; learning_rate is the critic's."""

    action_noise: float = 0.3
    """Standard deviation of the exploration noise on actions, as a fraction of their bound."""
    actor_rate: float = 1e-4
    """Learning rate of the policy network."""
