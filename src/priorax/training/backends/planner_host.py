"""Exact planners (RLSVI, PSRL, UCRL) in an environment that is not compiled: one lane, the functions of `Agent`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from priorax.agents import Tabular
from priorax.agents.tabular import Plans, TabularState
from priorax.envs.host.vector import VectorWorld
from priorax.replay import Transition
from priorax.training.backends.lanes import Lanes, Played, seed_for


class PlannerHost:
    """An agent that plans, living in one lane; what drives it sees the same as of a `Host`, without replay."""

    buffer = None
    """There is no replay: counts are all that it needs."""
    begun = 0
    """Nor are there updates by gradient."""
    updates = 0
    loss = 0.0

    def __init__(
        self,
        agent: Tabular,
        world: VectorWorld,
        seed: int = 0,
        *,
        clip_rewards: bool = False,
        look: Callable[[np.ndarray], None] = lambda frames: None,
        since: int = 0,
    ) -> None:
        """Begin in the world's one lane.

        Args:
            agent: what plans.
            world: one environment with finite states.
            seed: everything random follows from it, but for what the environment draws by itself.
            clip_rewards: clip what is learned from to [-1, 1].
            look: sees every observation.
            since: rounds that were played before (after a resume, so that other random numbers follow).

        Raises:
            ValueError: the world has several lanes.
        """
        if world.num_envs != 1:
            raise ValueError(
                f"lanes={world.num_envs}: a planner has one plan at a time, and one lane to follow it; pass lanes=1"
            )
        self.agent, self.world, self.clip_rewards, self.look = agent, world, clip_rewards, look
        self.key = jax.random.key(seed_for(seed, "acting", since))
        self.seeds = np.random.default_rng(seed_for(seed, "resets", since))
        self.lanes = Lanes(world, self._reset_seed(), since=since)
        self.state: TabularState = _init(agent, jax.random.key(seed_for(seed, "start")), self.lanes.obs[0])
        self.rounds = since
        self._plans: Plans | None = None

    @property
    def steps(self) -> int:
        """Actions so far."""
        return self.rounds

    @property
    def belief(self) -> Plans:
        """What is deployed."""
        if self._plans is None:
            self._plans = _plans(self.agent, self.state, self.key)
        return self._plans

    def resume(self, state: TabularState) -> None:
        """Go on with what was learned before."""
        self.state, self._plans = state, None

    def begin_anew(self) -> None:
        """A new episode; the one under way is left as it is."""
        self.lanes.begin(self._reset_seed())

    def round(self) -> list[Played]:
        """Act, count; plan anew where an episode ended. Gives that episode."""
        obs, over = self.lanes.obs, bool(self.lanes.over[0])
        self.rounds += 1
        time = np.asarray(self.rounds)  # a plain number would compile anew
        action = np.zeros(1, np.int64) if over else np.asarray(_act(self.agent, self.state, self.key, time, obs))
        turn, played = self.lanes.step(action)
        self.look(obs)
        if not over:
            reward = np.clip(turn.reward, -1, 1) if self.clip_rewards else turn.reward
            ended = turn.terminated | turn.truncated
            seen = Transition(obs[0], action[0], reward[0], turn.obs[0], turn.terminated[0], ended[0])
            self.state = _remember(self.agent, self.state, self.key, time, seen)
            self._plans = None
            if ended[0]:
                self.state = _begin(self.agent, self.state, self.key, time)
        return played

    def _reset_seed(self) -> int:
        return int(self.seeds.integers(2**30))


@eqx.filter_jit
def _init(agent: Tabular, key: PRNGKeyArray, obs: Any) -> TabularState:
    return agent.init(key, obs)


@eqx.filter_jit
def _plans(agent: Tabular, state: TabularState, key: PRNGKeyArray) -> Plans:
    return agent.plans(state, jax.random.fold_in(key, 0))


@eqx.filter_jit
def _act(agent: Tabular, state: TabularState, key: PRNGKeyArray, time: Any, obs: Any) -> Array:
    return agent.act(state, _keys(key, time)[0], obs[0])[None]


@eqx.filter_jit
def _remember(agent: Tabular, state: TabularState, key: PRNGKeyArray, time: Any, seen: Transition) -> TabularState:
    return agent.update_buffer(state, _keys(key, time)[1], seen)


@eqx.filter_jit
def _begin(agent: Tabular, state: TabularState, key: PRNGKeyArray, time: Any) -> TabularState:
    """Learn from all that was counted, and plan the next episode."""
    _, _, key_learn, key_draw = _keys(key, time)
    state, _ = agent.learn_from_buffer(state, key_learn)
    return agent.start_episode(state, key_draw)


def _keys(key: PRNGKeyArray, time: Any) -> Array:
    return jax.random.split(jax.random.fold_in(key, time), 4)
