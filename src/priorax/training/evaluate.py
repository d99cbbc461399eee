"""What would be deployed, tried on the way: in episodes of its own, from which nothing is learned."""

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from priorax.agents import QLearner
from priorax.agents.deploy import DEPLOY, Values, best
from priorax.beliefs import belief_values
from priorax.checks import one_of, positive_int
from priorax.storage import write_atomically
from priorax.training.backends.scan import Live, Loop

HEAD = "step,episode,total_return"
LONGEST = 10_000
"""Actions after which an episode is left, where the environment says nothing of how long it may be."""


class Evaluations(NamedTuple):
    """How often what is deployed is tried, in episodes of its own, and what it is."""

    evaluate_every: int | None = None
    """Actions between two; never, where there is none."""
    evaluation_episodes: int = 10
    deploy: str = "mean"

    def checked(self) -> "Evaluations":
        """The same, or a ValueError that says what is wrong."""
        if self.evaluate_every is not None:
            positive_int("evaluate_every", self.evaluate_every)
        positive_int("evaluation_episodes", self.evaluation_episodes)
        one_of("deploy", self.deploy, DEPLOY)
        return self


class Scores:
    """Evaluations so far; in a run's folder, if there is one, as rows and as events of TensorBoard."""

    def __init__(self, folder: Path | None, since: int) -> None:
        """Begin, or go on.

        Args:
            folder: Of the run.
            since: Actions after which the run goes on; what is beyond is cut off.
        """
        self.folder = folder
        self.last: float | None = None
        """The mean of the last one."""
        self._events: Any = None
        if folder is None:
            return
        path = folder / "evaluations.csv"
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]] if path.exists() else []
        kept = [row for row in rows if len(row) == 3 and int(row[0]) <= since]
        if not kept:
            path.unlink(missing_ok=True)
            return
        write_atomically(path, "".join(f"{line}\n" for line in [HEAD, *map(",".join, kept)]).encode())
        for step in dict.fromkeys(row[0] for row in kept):
            self._mark(int(step), [float(row[2]) for row in kept if row[0] == step])

    def add(self, step: int, returns: list[float]) -> None:
        """One more, after so many actions."""
        if self.folder is not None:
            path = self.folder / "evaluations.csv"
            before = path.read_text() if path.exists() else f"{HEAD}\n"
            rows = [f"{step},{i},{total}\n" for i, total in enumerate(returns, start=1)]
            write_atomically(path, (before + "".join(rows)).encode())
        self._mark(step, returns)

    def close(self) -> None:
        """Let go of the events' file."""
        if self._events is not None:
            with contextlib.suppress(OSError):
                self._events.close()

    def _mark(self, step: int, returns: list[float]) -> None:
        self.last = float(np.mean(returns))
        if self.folder is None:
            return
        if self._events is None:  # made from the rows, from the beginning
            folder = self.folder / "tensorboard" / "deployed"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self._events = EventsWriter(str(folder / "events"))
        event = Event(wall_time=time.time(), step=step)
        event.summary.MergeFrom(scalar("deployed_return", self.last))
        self._events.write_event(event)
        self._events.flush()


class Evaluator:
    """Evaluations of a compiled run, between chunks of its steps; they change nothing of it."""

    def __init__(self, asked: Evaluations, seed: int, folder: Path | None) -> None:
        self.asked, self.seed, self.folder, self.step = asked, seed, folder, 0
        self.scores = Scores(None, 0)

    def begin(self, since: int) -> None:
        """Begin, or go on after so many actions."""
        self.step, self.scores = since, Scores(self.folder, since)

    def close(self) -> None:
        """Let go of files."""
        self.scores.close()

    def chunk(self, most: int) -> int:
        """Steps between two looks, at most so many, that evaluations are due at the end of."""
        every = self.asked.evaluate_every
        return most if every is None else -(-every // -(-every // most))

    def look(self, loop: Loop, params: Any, live: Live) -> None:
        """Evaluate, if it is due."""
        every, before = self.asked.evaluate_every, self.step
        self.step = int(live.step)
        if every is None or self.step // every <= before // every:
            return
        key = jax.random.fold_in(jax.random.key(self.seed), self.step)
        self.scores.add(
            self.step, returns_of(loop, params, live.agent, self.asked.evaluation_episodes, self.asked.deploy, key)
        )


def returns_of(loop: Loop, params: Any, state: Any, episodes: int, deploy: str, key: PRNGKeyArray) -> list[float]:
    """Returns of what an agent would do if it were deployed.

    Args:
        loop: The agent and its compiled environment.
        params: Of the environment.
        state: Of the agent.
        episodes: How many, all at once.
        deploy: As `Policy.predict` has it.
        key: Of where episodes begin, and what happens in them.

    Returns:
        One for each episode; of what never ends, up to `LONGEST` actions.
    """
    limit = getattr(loop.env, "horizon", None) or getattr(params, "max_steps_in_episode", None) or LONGEST
    return np.asarray(_returns(loop, params, state._replace(buffer=()), key, episodes, deploy, int(limit))).tolist()


@eqx.filter_jit
def _returns(loop: Loop, params: Any, state: Any, key: PRNGKeyArray, episodes: int, deploy: str, limit: int) -> Array:
    agent, env = loop.agent, loop.env
    key_start, key_member, key_steps = jax.random.split(key, 3)
    obs, inside = jax.vmap(lambda key: env.reset(key, params))(jax.random.split(key_start, episodes))

    def actions(obs: Any) -> Array:
        if not isinstance(agent, QLearner) or deploy == "mean":
            return jax.vmap(lambda one: agent.exploit(state, jax.random.key(0), one))(obs)
        members = belief_values(agent.belief, state.belief, jax.random.key(0), obs)
        drawn = jax.random.randint(key_member, (episodes,), 0, len(members))
        return best(Values(members.mean(axis=0), members.std(axis=0), members), deploy, drawn)

    def going(carry: Any) -> Array:
        t, *_, over = carry
        return (t < limit) & ~jnp.all(over)

    def step(carry: Any) -> Any:
        t, obs, inside, total, over = carry
        keys = jax.random.split(jax.random.fold_in(key_steps, t), episodes)
        after = jax.vmap(env.step, (0, 0, 0, None))(keys, inside, actions(obs), params)
        obs, inside, reward, terminated, truncated, _ = after
        total = total + jnp.where(over, 0.0, reward)
        return t + 1, obs, inside, total, over | terminated | truncated

    first = (jnp.zeros((), int), obs, inside, jnp.zeros(episodes), jnp.zeros(episodes, bool))
    return jax.lax.while_loop(going, step, first)[3]
