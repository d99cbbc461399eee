"""A plug-in for priorax: a belief, an agent that uses it, a compiled environment and a Gymnasium environment."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from priorax.agents import AgentSpec, QSettings
from priorax.agents.q_networks import head_of, network_of, optimizer_of, q_learner
from priorax.beliefs import Ensemble, Wrapper
from priorax.checks import positive, positive_int
from priorax.envs import EnvironmentSpec


# --8<-- [start:agent]
class Mixture(Wrapper):
    """An ensemble whose draws are random averages of all members (the Bayesian bootstrap), not single members."""

    base: Ensemble
    concentration: float = eqx.field(static=True, default=0.3)

    def draw(self, state, key):
        return jax.random.dirichlet(key, jnp.full(self.base.num_members, self.concentration))

    def value(self, state, index, x):
        members = jnp.arange(self.base.num_members)
        return index @ jax.vmap(lambda member: self.base.value(state, member, x))(members)


@dataclass(frozen=True)
class MixtureSettings(QSettings):
    """Settings of the agent, in addition to those of every Q-learner."""

    num_members: int = 10
    """Ensemble size K."""
    prior_scale: float = 10.0
    """Prior scale beta."""
    concentration: float = 0.3
    """Concentration of the Dirichlet weights: a draw is close to one member if small, to the mean if large."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_int("num_members", self.num_members)
        positive("concentration", self.concentration)


def build(settings, task):
    network = network_of(settings, task)
    ensemble = Ensemble(
        settings.num_members,
        network=network,
        prior=network,
        prior_scale=settings.prior_scale,
        head=head_of(settings),
        num_outputs=task.num_actions,
        optimizer=optimizer_of(settings, task),
    )
    return q_learner(settings, Mixture(ensemble, settings.concentration))


MIXTURE = AgentSpec("mixture", MixtureSettings, build, "random averages of an ensemble", aliases=("bayesianbootstrap",))

# --8<-- [end:agent]


class Walk(NamedTuple):
    place: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Corridor:
    """As many steps as places: only moving right at every step reaches the end, which has reward 1."""

    size: int = 10
    num_actions: int = 2
    default_params: Any = None
    tells_regret: bool = True

    @property
    def num_states(self):
        return self.size

    @property
    def horizon(self):
        return self.size

    def reset(self, key, params):
        return jnp.zeros((), int), Walk(jnp.zeros((), int), jnp.zeros((), int))

    def step(self, key, state, action, params):
        after = Walk(jnp.clip(state.place + 2 * action - 1, 0, self.size), state.time + 1)
        over, won = after.time == self.size, after.place == self.size
        first, start = self.reset(key, params)
        following = jax.tree.map(lambda a, b: jnp.where(over, a, b), start, after)
        info = {"final_observation": after.place, "bad": ~won}
        seen = jnp.where(over, first, after.place)
        return seen, following, jnp.where(over & won, 1.0, 0.0), over, jnp.zeros((), bool), info


# --8<-- [start:environments]
CORRIDOR = EnvironmentSpec("corridor", Corridor, "corridor with a reward at the right end", preset="tuned")


def make_walk(size: int):
    """A Gymnasium environment: any function of the size can be registered."""
    import gymnasium

    return gymnasium.make("CliffWalking-v1", max_episode_steps=10 * size)


# --8<-- [end:environments]
