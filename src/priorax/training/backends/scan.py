"""`live` (algorithm 3) for compiled environments: a run is one scan, cut into chunks of steps.

Step t depends on the run's key and t only, so chunks can be cut anywhere; metrics, bars, checkpoints and early stops
live between them. Seeds are separate runs (`parallel.py`): a vmap over seeds would turn every condition into both of
its branches, and make a seed's rows depend on its companions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from priorax.agents import Agent, Tabular
from priorax.checks import NonFinite, positive_int
from priorax.envs import Environment
from priorax.fitting import NonFiniteLoss
from priorax.replay import Transition


class Live(NamedTuple):
    """A run between two steps."""

    agent: Any
    """Its state."""
    env: PyTree
    obs: PyTree
    step: Array
    due: Array
    """Whether to learn before the next action."""


class Steps(NamedTuple):
    """What each step of a chunk gave."""

    reward: Array
    done: Array
    bad: Array
    """The environment's own word that this episode cannot be optimal, where it says so."""
    solved: Array
    """At an episode's end: whether the greedy policy of the mean is optimal, where the environment knows its path."""
    loss: Array
    """Mean over the members, zero where nothing was learned."""
    taken: Array
    """Steps of the environment: more than one where actions are held."""
    odd: Array
    """Of the observation that followed: the sum of what is NaN or infinite in it, else zero."""


class Episode(NamedTuple):
    """One finished episode."""

    episode: int
    """From 1."""
    total_return: float
    length: int
    """In steps of the environment."""
    bad: bool
    """Whether it was surely not optimal, where the environment says so (DeepSea: left the diagonal by choice)."""
    solved: bool
    """Whether at its end the greedy policy of the ensemble's mean was optimal, where the environment knows."""
    loss: float
    """Of the last update, mean over members."""
    average_regret: float
    """The paper's regret per episode so far: the share of bad ones."""


class Tally(NamedTuple):
    """What the loop counts: finished and bad episodes, and the return and length of the one under way."""

    finished: int = 0
    bad: int = 0
    total: float = 0.0
    length: int = 0


class Snapshot(NamedTuple):
    """A run between two chunks: all that is needed to go on."""

    live: Live
    tally: Tally


class Loop(eqx.Module):
    """How an agent lives in an environment."""

    env: Environment = eqx.field(static=True)
    agent: Agent
    learn_every: int = eqx.field(static=True, default=1)
    """Actions between two times of learning; 0 learns at episode ends only, as the paper's `live` has it."""
    updates: int = eqx.field(static=True, default=1)
    """Updates each time."""
    learn_after: int = eqx.field(static=True, default=1)
    """Transitions in replay before the first."""
    clip_rewards: bool = eqx.field(static=True, default=False)
    """Learn from rewards clipped to [-1, 1]; episodes have them as they are."""

    def __check_init__(self) -> None:
        positive_int("learn_after", self.learn_after)
        if self.learn_after > self.agent.buffer.capacity and not isinstance(self.agent, Tabular):
            raise ValueError(
                f"learn_after={self.learn_after} exceeds capacity={self.agent.buffer.capacity}, so nothing would ever "
                "be learned; raise capacity or lower learn_after"
            )
        if not isinstance(self.learn_every, int) or self.learn_every < 0:
            raise ValueError(f"learn_every={self.learn_every!r} must be a whole number; pass 1, or 0 for episode ends")
        positive_int("updates", self.updates)
        found = getattr(self.env, "num_actions", None)
        if found != self.agent.num_actions:
            raise ValueError(
                f"the agent has {self.agent.num_actions} actions, the environment {found}; "
                "give the belief num_outputs=env.num_actions"
            )

    def init(self, key: PRNGKeyArray, params: Any) -> Live:
        """The run's start."""
        key_env, key_agent = jax.random.split(jax.random.fold_in(key, 0))
        obs, state = self.env.reset(key_env, params)
        return Live(self.agent.init(key_agent, obs), state, obs, jnp.zeros((), int), jnp.zeros((), bool))

    def step(self, key: PRNGKeyArray, params: Any, live: Live) -> tuple[Live, Steps]:
        """Learn from what the last step left, then act, step, remember.

        Learning comes first since it reads replay and remembering writes it: in this order, and with its place made to
        wait for the action, every write has to wait for the reads, and the compiler needs no copy of replay.
        """
        t = live.step + 1
        key_act, key_env, key_mask, key_learn, key_draw, key_mean = jax.random.split(jax.random.fold_in(key, t), 6)

        def once(state: Any, key: PRNGKeyArray) -> tuple[Any, Array]:
            state, info = self.agent.learn_from_buffer(state, key)
            return state, jnp.mean(info.loss)

        def learn(state: Any) -> tuple[Any, Array]:
            if self.updates == 1:
                return once(state, key_learn)
            state, losses = jax.lax.scan(once, state, jax.random.split(key_learn, self.updates))
            return state, losses[-1]

        if self.learn_every == self.learn_after == 1:  # before the first step there is nothing, and nothing is learned
            agent, loss = learn(live.agent)
        else:
            due = live.due & (live.agent.buffer.time >= self.learn_after)
            agent, loss = jax.lax.cond(due, learn, lambda state: (state, jnp.zeros(())), live.agent)
        action = self.agent.act(agent, key_act, live.obs)
        obs, env, reward, terminated, truncated, info = self.env.step(key_env, live.env, action, params)
        done = terminated | truncated
        learned_from = jnp.clip(reward, -1, 1) if self.clip_rewards else reward
        transition = Transition(live.obs, action, learned_from, info["final_observation"], terminated, done)
        place = jnp.where(_never(action), 0, agent.buffer.time)  # always its time, but not known before the action is
        agent = agent._replace(buffer=agent.buffer._replace(time=place))
        agent = self.agent.update_buffer(agent, key_mask, transition)

        def begin() -> tuple[PyTree, Array]:
            begun = self.agent.start_episode(agent, key_draw)
            return begun.index, begun.episodes

        index, episodes = jax.lax.cond(done, begin, lambda: (agent.index, agent.episodes))
        solved = jax.lax.cond(done, lambda: self.solved(agent, key_mean, params), lambda: jnp.zeros((), bool))
        after = agent._replace(index=index, episodes=episodes)
        due = done if self.learn_every == 0 else t % self.learn_every == 0
        bad = info.get("bad", jnp.zeros((), bool))
        taken = info.get("steps", jnp.ones((), int))
        odd = _odd((info["final_observation"], obs))
        return Live(after, env, obs, t, due), Steps(reward, done, bad, solved, loss, taken, odd)

    def solved(self, agent: Any, key: PRNGKeyArray, params: Any) -> Array:
        """Whether the greedy policy of the mean takes the optimal path, where the environment knows one."""
        if not hasattr(self.env, "optimal_path"):
            return jnp.zeros((), bool)
        obs, actions = self.env.optimal_path(params)
        return jnp.all(jnp.argmax(self.agent.mean_values(agent, key, obs), axis=-1) == actions)


def _never(action: Array) -> Array:
    """False, as only an action can tell."""
    first = jnp.ravel(action)[0]
    return first < 0 if jnp.issubdtype(first.dtype, jnp.integer) else jnp.isnan(first)


def _odd(obs: PyTree) -> Array:
    """The sum of what is NaN or infinite; indices and pictures never are."""
    numbers = [leaf for leaf in jax.tree.leaves(obs) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return sum((jnp.sum(jnp.where(jnp.isfinite(leaf), 0.0, leaf)) for leaf in numbers), jnp.zeros(()))


def _refuse_non_finite(first: int, steps: Steps) -> None:
    """What is NaN or infinite in a chunk whose first step that is: the first of it is named."""
    found = {"reward": steps.reward, "observation": steps.odd, "loss": steps.loss}
    wrong = {what: np.flatnonzero(~np.isfinite(np.asarray(part))) for what, part in found.items()}
    at = {what: int(places[0]) for what, places in wrong.items() if len(places)}
    if not at:
        return
    what = min(at, key=at.__getitem__)
    value, step = np.asarray(found[what])[at[what]], first + at[what]
    if what == "loss":
        raise NonFiniteLoss(f"the loss became {value} at step {step}; lower the learning rate")
    raise NonFinite(
        f"the environment gave the {what} {value} at step {step} in lane 0; mend the environment, or wrap it so that "
        "rewards and observations are finite"
    )


@eqx.filter_jit
def run_chunk(
    loop: Loop, key: PRNGKeyArray, params: Any, live: Live, size: int, length: Int[Array, ""] | None = None
) -> tuple[Live, Steps]:
    """Run a number of steps in one compiled call.

    Args:
        loop: Agent and environment.
        key: Key of the run.
        params: Parameters of the environment.
        live: Where the run is.
        size: Steps that the program has room for; a new value compiles a new program.
        length: Steps to run, at most `size`, which compiles nothing anew; all of `size` unless given.

    Returns:
        Where the run is then, and what each step gave; entries beyond `length` are zero.
    """
    shapes = jax.eval_shape(lambda live: loop.step(key, params, live)[1], live)
    room = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def body(i: Array, carry: tuple[Live, Steps]) -> tuple[Live, Steps]:
        live, steps = carry
        live, step = loop.step(key, params, live)
        return live, jax.tree.map(lambda ring, value: ring.at[i].set(value), steps, step)

    return jax.lax.fori_loop(0, size if length is None else length, body, (live, room))


@eqx.filter_jit
def _init(loop: Loop, key: PRNGKeyArray, params: Any) -> Live:
    return loop.init(key, params)


def start(loop: Loop, key: PRNGKeyArray, params: Any) -> Snapshot:
    """A run before its first step."""
    return Snapshot(_init(loop, key, params), Tally())


class Chunk(NamedTuple):
    """Some steps of a run."""

    snapshot: Snapshot
    """Where the run is after them."""
    episodes: list[Episode]
    """Those that ended."""
    ends: list[int]
    """For each of these, the step of the run at which it ended."""


def advance(
    loop: Loop, key: PRNGKeyArray, params: Any, snapshot: Snapshot, size: int = 1000, until: int | None = None
) -> Chunk:
    """Go on from a snapshot.

    Step t depends on the run's key and t only, so the same steps come out however they are cut into chunks.

    Args:
        loop: Agent and environment.
        key: Key of the run.
        params: Parameters of the environment.
        snapshot: Where the run is.
        size: Environment steps per compiled call.
        until: Stop at this step of the run, at most `size` steps away; unless given, go on for `size` steps.

    Returns:
        The snapshot after these steps, and the episodes that ended in them.

    Raises:
        NonFinite: If the environment gave a NaN or infinite reward or observation, or the loss became such.
    """
    positive_int("size", size)
    first = int(snapshot.live.step)
    length = size if until is None else until - first
    state, steps = run_chunk(loop, key, params, snapshot.live, size, jnp.asarray(length))
    _refuse_non_finite(first + 1, steps)
    finished, count, total, taken_so_far = snapshot.tally
    episodes, ends = [], []
    columns = zip(*(np.asarray(part)[:length] for part in steps), strict=True)
    for t, (reward, done, bad, solved, loss, taken, _) in enumerate(columns, start=first + 1):
        total, taken_so_far = total + float(reward), taken_so_far + int(taken)
        if done:
            finished, count = finished + 1, count + int(bad)
            row = Episode(finished, total, taken_so_far, bool(bad), bool(solved), float(loss), count / finished)
            episodes.append(row)
            ends.append(t)
            total, taken_so_far = 0.0, 0
    return Chunk(Snapshot(state, Tally(finished, count, total, taken_so_far)), episodes, ends)


def live(loop: Loop, key: PRNGKeyArray, params: Any, *, episodes: int, chunk: int = 1000) -> Iterator[Episode]:
    """Run for a number of episodes, one at a time as they finish. A generator: logging and stopping are the caller's.

    Args:
        loop: Agent and environment.
        key: Key of the run.
        params: Parameters of the environment.
        episodes: How many.
        chunk: Environment steps per compiled call; it changes no bit of the result.

    Yields:
        Each episode that ended.
    """
    positive_int("episodes", episodes)
    snapshot = start(loop, key, params)
    while True:
        snapshot, ended, _ = advance(loop, key, params, snapshot, chunk)
        for episode in ended:
            yield episode
            if episode.episode == episodes:
                return


def episodes_to_learn(episodes: Iterable[Episode], below: float = 0.9, after: int = 1) -> int | None:
    """The paper's measure: the first episode at which the average regret per episode is below 0.9, on DeepSea the share
    of bad episodes so far (as bsuite); None if it never is."""
    return next((row.episode for row in episodes if row.average_regret < below and row.episode >= after), None)


def episodes_to_solve(episodes: Sequence[Episode]) -> int | None:
    """The first episode from which the greedy policy of the mean stays optimal; None if it is not at the end."""
    first = 1 + max((episode.episode for episode in episodes if not episode.solved), default=0)
    return first if first <= len(episodes) else None
