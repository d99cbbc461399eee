"""Building blocks of Q-learners: heads, optimizers, networks, replay."""

from priorax.agents.q_learner import QLearner
from priorax.agents.settings import GradientSettings, PriorSettings, QSettings
from priorax.beliefs import Adam, Belief, Langevin, RMSProp
from priorax.envs.interface import TaskSpec
from priorax.hardware import updates_sparse_rows
from priorax.heads import C51, Head, Quantiles, Scalar
from priorax.networks import MLP, Dueling, FourierCode, Network, Table
from priorax.priors import Linear, UnitSize
from priorax.replay import Replay


def head_of(settings: QSettings) -> Head:
    """Create the head: the interpretation of the network's output for each action.

    Args:
        settings: Hyperparameters of the agent.

    Returns:
        The head.
    """
    if settings.head == "c51":
        return C51(settings.lowest, settings.highest)
    return Quantiles(21) if settings.head == "qr" else Scalar()


def optimizer_of(settings: QSettings, task: TaskSpec) -> Adam | RMSProp | Langevin:
    """Create the optimizer, with a smaller learning rate for many states.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The optimizer.
    """
    rate = settings.learning_rate
    if settings.scale_with_states and task.num_states is not None:
        rate *= min(1.0, (2500 / task.num_states) ** 0.5)
    if settings.optimizer == "langevin":
        return Langevin(rate, settings.inverse_temperature, settings.bias_factor, clip=settings.clip)
    return (RMSProp if settings.optimizer == "rmsprop" else Adam)(rate, clip=settings.clip)


def prior_scale_of(settings: PriorSettings, task: TaskSpec) -> float:
    """Get the prior scale of a network on an environment: larger for many states, if so set and if priors are not
    divided by their size.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The prior scale.
    """
    grows = settings.scale_with_states and task.num_states is not None and not settings.prior_unit
    return settings.prior_scale * ((task.num_states or 0) / 400) ** 0.5 if grows else settings.prior_scale


def scale_of(settings: GradientSettings, task: TaskSpec) -> tuple[float, ...]:
    """Get the factors by which observations are multiplied.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        One factor per component; empty: no scaling.

    Raises:
        ValueError: If observations are to be squashed, and the environment does not say where.
    """
    scale = tuple(task.inputs.scale) if settings.scale_inputs else ()
    if not settings.squash_inputs:
        return scale
    if not task.inputs.knees:
        raise ValueError("squash_inputs=True needs an environment with `inputs.knees`; pass squash_inputs=False")
    plain = scale or (1.0,) * len(task.inputs.knees)
    return tuple(1 / knee if knee > 0 else factor for knee, factor in zip(task.inputs.knees, plain, strict=True))


def code_of(settings: GradientSettings, task: TaskSpec) -> FourierCode | None:
    """Create the code of array observations that networks and priors share.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The code; None if observations are not encoded.

    Raises:
        ValueError: If observations have no such code, or the environment does not say what it needs.
    """
    if settings.fourier_features == 0 and not settings.squash_inputs:
        return None
    if task.num_states is not None:
        raise ValueError(
            f"fourier_features={settings.fourier_features} and squash_inputs={settings.squash_inputs} need array "
            "observations, and this environment has state indices; pass 0 and False"
        )
    if settings.fourier_grouped > 0 and not task.inputs.groups:
        raise ValueError(
            f"fourier_grouped={settings.fourier_grouped} needs an environment with `inputs.groups`; pass "
            "fourier_grouped=0"
        )
    return FourierCode(
        settings.fourier_features,
        settings.fourier_lengthscale,
        task.inputs.groups if settings.fourier_grouped > 0 else (),
        settings.fourier_grouped,
        tuple(i for i, knee in enumerate(task.inputs.knees) if knee > 0) if settings.squash_inputs else (),
    )


def network_of(settings: QSettings, task: TaskSpec) -> Network:
    """Create the value network: a table with hidden layers for finite states, else a multilayer perceptron.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        The network.
    """
    code = code_of(settings, task)
    if task.num_states is not None:
        return Table(task.num_states, settings.widths)
    network = MLP(settings.widths, gain=scale_of(settings, task) or 1.0, code=code)
    return Dueling(network, head_of(settings).size) if settings.dueling else network


def prior_network_of(settings: PriorSettings, task: TaskSpec, widths: tuple[int, ...]) -> Network:
    """Create the random network of priors, on array observations with the code of the value network.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.
        widths: Units of each hidden layer, unless the settings have others for priors.

    Returns:
        The network.
    """
    widths = widths if settings.prior_widths is None else settings.prior_widths
    if task.num_states is not None:
        return Table(task.num_states, widths, settings.prior_activation, bias_scale=settings.prior_bias)
    gain = tuple(settings.prior_gain * each for each in scale_of(settings, task) or (1.0,) * (settings.prior_gain != 1))
    code = code_of(settings, task)
    return MLP(widths, settings.prior_activation, gain=gain or 1.0, bias_scale=settings.prior_bias, code=code)


def unit_prior_of(settings: PriorSettings, task: TaskSpec, prior: Network) -> Network:
    """Divide a prior by its root mean square over observations, if so set.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.
        prior: The prior.

    Returns:
        The prior, with unit root mean square if so set.
    """
    if not settings.prior_unit:
        return prior
    if task.num_states is not None:
        return UnitSize(prior, num_rows=task.num_states)
    return UnitSize(prior, input_scale=tuple(1 / factor for factor in scale_of(settings, task)))


def linear_prior_of(task: TaskSpec) -> Network:
    """Create the distribution of linear priors: standard normal weights.

    Args:
        task: Description of the environment.

    Returns:
        The network: of one-hot states if they are finite.
    """
    return Linear() if task.num_states is None else Table(task.num_states, (), weight_std=1.0)


def has_sparse_rows(settings: PriorSettings, task: TaskSpec) -> bool:
    """Return whether an update changes only those rows of a table of states that occur in the minibatch.

    Args:
        settings: Hyperparameters of the agent.
        task: Description of the environment.

    Returns:
        Whether states are finite, the settings choose sparse rows, and nothing touches all rows: no target network,
        gradient clipping, prioritised replay or other optimizer than Adam.
    """
    lagged = settings.target_period > 1 or settings.target_rate < 1
    touches_all = lagged or settings.clip is not None or settings.priority > 0 or settings.optimizer != "adam"
    return task.num_states is not None and not touches_all and updates_sparse_rows(settings.sparse_rows)


def replay_of(
    settings: GradientSettings,
    num_streams: int = 1,
    *,
    mask_prob: float = 1.0,
    shared_batch: bool = True,
    paths: bool = False,
) -> Replay:
    """Create the replay settings.

    Args:
        settings: Hyperparameters of the agent.
        num_streams: Number of bootstrapped data streams: one per member.
        mask_prob: Probability that a transition belongs to a member.
        shared_batch: Whether all members share a minibatch.
        paths: Whether minibatches include all steps of their n-step returns.

    Returns:
        The replay settings.
    """
    return Replay(
        settings.capacity,
        num_streams,
        settings.batch_size,
        shared_batch,
        mask_prob,
        settings.n_step,
        settings.discount,
        settings.priority,
        settings.importance,
        paths,
    )


def q_learner(settings: QSettings, belief: Belief, mask_prob: float = 1.0, bonus_at: str = "learning") -> QLearner:
    """Create the Q-learner over a belief.

    Args:
        settings: Hyperparameters of the agent.
        belief: The belief over Q functions.
        mask_prob: Probability that a transition belongs to a member.
        bonus_at: When a count bonus is added to the reward: insertion or learning.

    Returns:
        The agent.
    """
    paths = belief.pays_bonus and bonus_at == "learning"
    replay = replay_of(
        settings, belief.num_streams, mask_prob=mask_prob, shared_batch=settings.shared_batch, paths=paths
    )
    return QLearner(
        belief,
        replay,
        settings.target_period,
        settings.target_rate,
        settings.double_q,
        settings.draw_each_step,
        settings.epsilon,
        settings.epsilon_episodes,
        settings.epsilon_ladder,
        bonus_at,
    )
