"""Hyperparameters as frozen dataclasses: `Settings` for every agent, `QSettings` for every gradient Q-learner, and one
small class for each kind of agent. A setting without meaning for an agent does not exist in its class.

Values from the command line and from run.json are converted by the fields' type hints (`parse`, `checked`,
`from_json`).
"""

import ast
import dataclasses
import inspect
import math
import numbers
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from priorax.checks import non_negative, one_of, positive_int

PRIORS = ("none", "network", "linear", "optimal")
HEADS = ("scalar", "c51", "qr")
TORSOS = ("none", "small", "nature")
OPTIMIZERS = ("adam", "rmsprop")
PRECISIONS = ("float32", "bfloat16")
BONUS_AT = ("insertion", "learning")
L2_READINGS = ("posterior", "coefficient")


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

    def __post_init__(self) -> None:
        """Check choices and ranges.

        Raises:
            ValueError: If a value is not allowed; the message names the setting, its value, the limit and the remedy.
        """
        for name, least in (("hold", 1), ("updates", 1), ("learn_after", 1), ("lanes", 1)):
            if getattr(self, name) < least:
                positive_int(name, getattr(self, name))
        if self.learn_every < 0:
            raise ValueError(f"learn_every={self.learn_every} must be at least 0; pass 0 to learn at episode ends")

    @property
    def wants_optimal_values(self) -> bool:
        """Whether building the agent needs the environment's optimal values."""
        return False


@dataclass(frozen=True)
class GradientSettings(Settings):
    """Hyperparameters common to agents that train networks by gradient from replay."""

    widths: tuple[int, ...] = (20, 20)
    """Units of each hidden layer; () is linear."""
    scale_inputs: bool = True
    """Scale each component of an observation by the factor that the environment declares for it."""
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
        if any(width < 1 for width in self.widths):
            raise ValueError(f"widths={self.widths} must be whole numbers of at least 1; pass for example 50,50")
        for name in ("batch_size", "capacity", "target_period", "n_step"):
            positive_int(name, getattr(self, name))
        for name in ("priority", "importance"):
            non_negative(name, getattr(self, name))
        if not self.lowest < self.highest:
            raise ValueError(f"lowest={self.lowest} must be below highest={self.highest}; widen the atoms' range")


@dataclass(frozen=True)
class QSettings(GradientSettings):
    """Hyperparameters common to all gradient Q-learners."""

    dueling: bool = False
    """Dueling architecture v(s) + a(s, action), for array observations."""
    optimizer: str = "adam"
    """adam, or rmsprop (centred, as in Ape-X)."""
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
        if self.priority > 0 and not self.shared_batch:
            raise ValueError(f"priority={self.priority} draws one minibatch for all members; use shared_batch=True")


@dataclass(frozen=True)
class EnsembleSettings(QSettings):
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
    """Prior function: none; network: a random network with the member's architecture; linear; optimal: draws around the
    optimal values, if the environment knows them (the paper's task-specific knowledge)."""
    prior_scale: float = field(default=10.0, metadata={"words": ("auto",)})
    """Prior scale beta, which multiplies the prior function; for prior=optimal, the standard deviation of the draws."""
    prior_gain: float = 1.0
    """Input gain of the prior network, for array observations: the larger, the less members generalise between
    observations."""
    prior_bias: float = 0.0
    """Standard deviation of the prior network's biases; without biases the prior is linear along each ray from the
    origin."""
    prior_advantage: float = 1.0
    """Multiplies the advantages of a dueling prior."""
    l2: float = 0.0
    """L2 weight lambda towards the initial weights; 0: none."""
    l2_reading: str = "posterior"
    """Meaning of l2 beside the mean loss. posterior: it is divided by the member's number of transitions, as in
    equation (4), a sum over data; coefficient: it is not."""
    sample_outcomes: bool = False
    """Act on a sample from the return distribution, as if it were a posterior (lemma 5), instead of its mean."""
    bonus_scale: float = 0.0
    """Scale beta of the count bonus beta/sqrt(N(s)); 0: no bonus."""
    first_count: float = 1.0
    """Count bonus: N(s) of an unvisited state."""
    bonus_at: str = "learning"
    """Count bonus: when it is computed. insertion: once, by the visits before this one; learning: at each replay, by
    all visits so far."""

    def __post_init__(self) -> None:
        """Check choices and ranges."""
        super().__post_init__()
        positive_int("num_members", self.num_members)
        positive_int("features", self.features)
        choices = {
            "prior": PRIORS,
            "torso": TORSOS,
            "precision": PRECISIONS,
            "bonus_at": BONUS_AT,
            "l2_reading": L2_READINGS,
        }
        for name, valid in choices.items():
            one_of(name, getattr(self, name), valid)
        if not 0 < self.mask_prob <= 1:
            raise ValueError(f"mask_prob={self.mask_prob} must be above 0 and at most 1; pass 1 for no bootstrap")
        if self.sample_outcomes and self.head == "scalar":
            raise ValueError("sample_outcomes=True needs a distribution of returns; use head='c51' or head='qr'")

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


def hints(kind: type[Settings]) -> dict[str, Any]:
    """Get the type hints of a class of settings.

    Args:
        kind: The class of settings.

    Returns:
        Type hints by name, in the order of the fields.
    """
    found = typing.get_type_hints(kind)
    return {each.name: found[each.name] for each in dataclasses.fields(kind)}


def checked(kind: type[Settings], name: str, value: Any) -> Any:
    """Convert a value to the type of a setting: lists to tuples, integers to floats.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.
        value: A value from Python or JSON.

    Returns:
        The converted value.

    Raises:
        ValueError: If the value has another type.
    """
    wanted, words = hints(kind)[name], _words(kind, name)
    if isinstance(value, str) and value in words:
        return value
    for option in _options(wanted):
        found = _converted(option, value)
        if found is not _WRONG:
            return found
    raise ValueError(f"{name}={value!r} must be {type_words(kind, name)}")


def parse(kind: type[Settings], name: str, text: str) -> Any:
    """Parse a setting's value from text: `3`, `1e-3`, `50,50`, `none`, `true`.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.
        text: The text, as on the command line.

    Returns:
        The value.

    Raises:
        ValueError: If the text does not represent a value of the setting's type.
    """
    if text in _words(kind, name):
        return text
    for option in _options(hints(kind)[name]):
        found = _read(option, text.strip())
        if found is not _WRONG:
            return found
    raise ValueError(f"{name}={text!r} must be {type_words(kind, name)}")


def checked_all(kind: type[Settings], found: Mapping[str, Any]) -> dict[str, Any]:
    """Check and convert settings that were read from JSON.

    Args:
        kind: The class of settings.
        found: Values by name.

    Returns:
        Converted values by name (`checked`).

    Raises:
        ValueError: If a setting is unknown or a value has the wrong type.
    """
    known = hints(kind)
    return {one_of("setting", name, known): checked(kind, name, value) for name, value in found.items()}


def from_json(kind: type[Settings], found: Mapping[str, Any]) -> Settings:
    """Create settings from values that were read from JSON; missing settings have their defaults.

    Args:
        kind: The class of settings.
        found: Values by name.

    Returns:
        An instance of that class.

    Raises:
        ValueError: If a setting is unknown, or a value has the wrong type or is not allowed.
    """
    return kind(**checked_all(kind, found))


def type_name(kind: type[Settings], name: str) -> str:
    """Format a setting's type as Python code.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.

    Returns:
        For example `float | None`.
    """
    hint = hints(kind)[name]
    written = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return " | ".join([written, *map(repr, _words(kind, name))])


def type_words(kind: type[Settings], name: str) -> str:
    """Format a setting's type in words, for messages.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.

    Returns:
        For example "a number or none".
    """
    options = [_kind_of(option).words for option in _options(hints(kind)[name])]
    return " or ".join([*options, *map(repr, _words(kind, name))])


def meanings(kind: type[Settings]) -> dict[str, str]:
    """Get the descriptions of all settings: the docstrings of the fields.

    Args:
        kind: The class of settings.

    Returns:
        Descriptions by name; empty for a field without docstring, or if the source is not available.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _docstrings(base)
    return {each.name: found.get(each.name, "") for each in dataclasses.fields(kind)}


def _docstrings(kind: type) -> dict[str, str]:
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[before.target.id] = " ".join(value.value.split())
    return found


_WRONG = object()


class _Kind(typing.NamedTuple):
    """Conversion, parser and name of a type."""

    convert: Callable[[Any], Any]
    read: Callable[[str], Any]
    words: str


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else _WRONG


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        return _WRONG
    return float(value)


def _wholes(value: Any) -> Any:
    found = tuple(map(_whole, value)) if isinstance(value, (list, tuple)) else (_WRONG,)
    return _WRONG if _WRONG in found else found


_KINDS: dict[Any, _Kind] = {
    bool: _Kind(
        lambda value: value if isinstance(value, bool) else _WRONG,
        lambda text: {"true": True, "false": False}.get(text.lower(), _WRONG),
        "true or false",
    ),
    int: _Kind(_whole, int, "a whole number"),
    float: _Kind(_number, lambda text: _number(float(text)), "a number"),
    str: _Kind(lambda value: value if isinstance(value, str) else _WRONG, str, "a word"),
    types.NoneType: _Kind(
        lambda value: None if value is None else _WRONG,
        lambda text: None if text.lower() == "none" else _WRONG,
        "none",
    ),
    tuple[int, ...]: _Kind(
        _wholes,
        lambda text: tuple(int(part) for part in text.strip("()").split(",") if part.strip()),
        "whole numbers with commas, as in 50,50, or () for none",
    ),
}


def _kind_of(hint: Any) -> _Kind:
    if hint not in _KINDS:
        known = ", ".join(getattr(each, "__name__", str(each)) for each in _KINDS)
        raise TypeError(f"a setting has type {hint}, which has no form on the command line; use one of {known}")
    return _KINDS[hint]


def _options(hint: Any) -> tuple[Any, ...]:
    """Get the alternatives of a union type."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if union else (hint,)


def _converted(hint: Any, value: Any) -> Any:
    return _kind_of(hint).convert(value)


def _read(hint: Any, text: str) -> Any:
    try:
        return _kind_of(hint).read(text)
    except ValueError:
        return _WRONG


def _words(kind: type[Settings], name: str) -> tuple[str, ...]:
    """Get words that stand for a value that is determined later."""
    (found,) = (each.metadata.get("words", ()) for each in dataclasses.fields(kind) if each.name == name)
    return tuple(found)
