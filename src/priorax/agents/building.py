"""From settings to an agent: its belief, its prior, its replay."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from priorax.agents.base import Agent
from priorax.agents.d4pg import D4PG
from priorax.agents.q_learner import QLearner
from priorax.agents.registry import BELIEFS, HEADS, PLANNERS, PRIORS, TORSOS, Settings
from priorax.agents.tabular import PSRL, RLSVI, UCRL, Planner, Tabular
from priorax.beliefs import (
    L2,
    Adam,
    Belief,
    BeliefState,
    Counts,
    Density,
    Dropout,
    Ensemble,
    GaussianCount,
    HashCount,
    Outcomes,
    RMSProp,
    SharedTorso,
    TableCount,
    bayes_by_backprop,
    belief_values,
    ensemble_of,
    noisy,
)
from priorax.checks import one_of
from priorax.heads import C51, Head, Quantiles, Scalar
from priorax.networks import MLP, NATURE, SMALL_NET, Convnet, Dueling, Network, Table
from priorax.priors import Around, Linear, Tabulated
from priorax.replay import EnsembleBuffer


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
    one_of("torso", settings.torso, TORSOS)
    one_of("optimizer", settings.optimizer, ("adam", "rmsprop"))
    if settings.sample_outcomes and settings.head == "scalar":
        raise ValueError("sample_outcomes=True needs a distribution of returns; use head='c51' or head='qr'")
    if settings.torso != "none" and (num_states is not None or settings.belief != "ensemble"):
        raise ValueError(f"torso={settings.torso!r} is for ensembles that look at pictures; use torso='none' here")
    if (settings.belief == "d4pg") != (bound is not None):
        if bound is None:
            raise ValueError("d4pg needs continuous actions; use another agent here, or an environment that has them")
        raise ValueError(f"belief={settings.belief!r} needs finitely many actions, and these are continuous; use d4pg")
    if settings.belief in PLANNERS:
        if num_states is None:
            raise ValueError(
                f"{settings.belief} needs finite states, observed by index; use an ensemble here, such as bsp"
            )
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
        settings.epsilon_ladder,
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
    network: Network
    if num_states is None:
        network = _member(settings, input_scale)
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
        "optimizer": (RMSProp if settings.optimizer == "rmsprop" else Adam)(rate, clip=settings.clip),
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
    members: Ensemble | SharedTorso = ensemble
    if settings.torso != "none" and settings.shared_torso:
        members = SharedTorso(ensemble, _torso(settings), settings.features, common["optimizer"])
    belief: Belief = Outcomes(members) if settings.sample_outcomes else members
    if settings.bonus_scale > 0:
        belief = Counts(belief, _density(settings, num_states), settings.bonus_scale, settings.first_count)
    return belief


def _density(settings: Settings, num_states: int | None) -> Density:
    """What counts visits: of states, of pictures, of other arrays."""
    if num_states is not None:
        return TableCount(num_states)
    return GaussianCount() if settings.torso == "none" else HashCount()


def _refuse_for_one_network(settings: Settings) -> None:
    """What an ensemble has and this belief has not."""
    wanted = {"num_members": 1, "prior": "none", "mask_prob": 1.0, "sample_outcomes": False, "bonus_scale": 0.0}
    if settings.belief != "dropout":
        wanted["l2"] = 0.0
    for name, value in wanted.items():
        if getattr(settings, name) != value:
            raise ValueError(
                f"{name}={getattr(settings, name)!r} does not go with belief={settings.belief!r}, one network; "
                f"leave it at {value!r}, or use belief='ensemble'"
            )


def _torso(settings: Settings, *rest: int) -> Convnet:
    return Convnet(NATURE if settings.torso == "nature" else SMALL_NET, rest, precision=settings.precision)


def _member(settings: Settings, gain: tuple[float, ...], bias: float = 0.0) -> Network:
    """One member's network, or its prior's."""
    if settings.torso == "none" or settings.shared_torso:  # on a torso it sees features, which are about one
        return MLP(settings.widths, gain=gain or 1.0, bias_scale=bias)
    return dataclasses.replace(_torso(settings, settings.features, *settings.widths), bias_scale=bias)


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
    gain = tuple(settings.prior_gain * each for each in input_scale or (1.0,) * (settings.prior_gain != 1))
    prior = _member(settings, gain, settings.prior_bias)
    return Dueling(prior, _head(settings).prior_size, settings.prior_advantage) if settings.dueling else prior


def nearby(obs: Any, count: int = 8) -> Any:
    """A batch of observations to look at functions with, made of one: noise around numbers, the indices after an index,
    random pictures in place of a picture (a dark one would tell nothing)."""

    def around(leaf: Any) -> Array:
        key, shape = jax.random.key(0), (count, *jnp.shape(leaf))
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf + jax.random.normal(key, shape, leaf.dtype)
        if jnp.ndim(leaf) == 0:
            return leaf + jnp.arange(count, dtype=leaf.dtype)
        return jax.random.randint(key, shape, 0, 256).astype(leaf.dtype)

    return jax.tree.map(around, obs)


def check_members_differ(agent: QLearner, state: BeliefState, obs: Any) -> None:
    """Refuse an ensemble whose members, or whose priors, are all the same function: it would explore like one network.

    `obs`: a batch of observations to look at. Every run begins with it.
    """
    belief = ensemble_of(agent.belief)
    if belief is None or belief.num_members == 1:
        return
    for what, found in zip(("members", "priors"), _functions(belief, state, obs), strict=True):
        if found is not None and bool(jnp.all(found == found[0])):
            raise ValueError(f"all {what} of the ensemble are the same function; give them different keys or a scale")


@eqx.filter_jit
def _functions(belief: Ensemble | SharedTorso, state: BeliefState, obs: Any) -> tuple[Array, Array | None]:
    return belief_values(belief, state, jax.random.key(0), obs), belief.prior_values(state, obs)
