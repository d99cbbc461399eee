"""What was learned, to use without the environment: `load(path).predict(obs)`, of compiled runs and of the host's."""

import functools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import numpy as np

from priorax import storage
from priorax.agents import Agent, QLearner, Settings, Tabular, build
from priorax.agents.d4pg import D4PG
from priorax.agents.deploy import Values, best, values
from priorax.checks import one_of
from priorax.envs.interface import Interface
from priorax.storage import BadFile, restore_tree
from priorax.training.checkpoint import Commits
from priorax.training.folder import read_config


class Policy:
    """An agent as it was when it was taken, without its replay and its environment."""

    def __init__(self, agent: Agent, state: Any, interface: Interface, rng: np.random.Generator | None = None) -> None:
        """Take an agent.

        Args:
            agent: Any agent of ours.
            state: What it carries.
            interface: What its environment shows and takes.
            rng: Draws the member where one is to be followed.
        """
        self.agent, self.state, self.interface = agent, state._replace(buffer=()), interface
        self._rng = rng or np.random.default_rng(0)

    @property
    def num_members(self) -> int:
        """K; 1 where there is no ensemble."""
        return self.agent.belief.num_streams if isinstance(self.agent, QLearner) else 1

    def predict(self, obs: Any, deploy: str | int = "mean") -> Any:
        """The action for an observation.

        Args:
            obs: One observation, or a batch of them, as the environment gives them.
            deploy: "mean" of all members, "vote" of the majority, "member": one drawn at each call; or the number of a
                member, to follow one through an episode.

        Returns:
            The action, or an array of them, as the environment takes them.

        Raises:
            ValueError: If observations have another shape than the environment's, or there is no such member.
        """
        if isinstance(self.agent, D4PG):
            one_of("deploy", deploy, ("mean",))
            batch, single = self.interface.batch(obs)
            actions = np.asarray(_exploited(self.agent, self.state, batch))
            return actions[0] if single else actions
        batch, single = self.interface.batch(obs)
        found = self._values(batch)
        member = int(self._rng.integers(len(found.members))) if deploy == "member" else 0
        if isinstance(deploy, (int, np.integer)) and not isinstance(deploy, bool):
            if not 0 <= deploy < len(found.members):
                raise ValueError(f"deploy={deploy} must be at least 0 and below {len(found.members)}, or a name")
            deploy, member = "member", int(deploy)
        action = best(found, str(deploy), member) + self.interface.first_action
        return int(action[0]) if single else action

    def values(self, obs: Any) -> Values:
        """What the members say of an observation: the mean, spread and members' own values of each action.

        Args:
            obs: One observation, or a batch of them, as the environment gives them.

        Returns:
            Arrays over actions; for a batch with an axis for observations before. Of d4pg, which has no list of
            actions, the value of the one that it would take.

        Raises:
            ValueError: If observations have another shape than the environment's.
        """
        batch, single = self.interface.batch(obs)
        found = self._values(batch)
        return Values(found.mean[0], found.spread[0], found.members[:, 0]) if single else found

    @functools.cached_property
    def _plans(self) -> Any:
        return _planned(self.agent, self.state)

    def _values(self, batch: np.ndarray) -> Values:
        if isinstance(self.agent, QLearner):
            return values(self.agent, self.state.belief, batch)
        if isinstance(self.agent, Tabular):
            return values(self.agent, self._plans, batch)
        mean = np.asarray(_mean(self.agent, self.state, batch))
        return Values(mean, np.zeros_like(mean), mean[None])


@eqx.filter_jit
def _planned(agent: Any, state: Any) -> Any:
    return agent.plans(state, jax.random.key(0))


@eqx.filter_jit
def _exploited(agent: Agent, state: Any, batch: Any) -> Any:
    return jax.vmap(lambda obs: agent.exploit(state, jax.random.key(0), obs))(batch)


@eqx.filter_jit
def _mean(agent: Agent, state: Any, batch: Any) -> Any:
    return agent.mean_values(state, jax.random.key(0), batch)


def load(path: Path | str, **own: Any) -> Any:
    """Load what was learned.

    Args:
        path: The folder of a run (`priorax train`, `Explorer.save`), or a file of `priorax.save`.
        own: Of a file: the parts that are your own code, by field name.

    Returns:
        Of a run, its `Policy`, with `predict` and `values`; of a file, a belief and its state.

    Raises:
        BadFile: If files are damaged.
        ValueError: If there is no run in that folder, or it has no checkpoint yet.
    """
    path = Path(path)
    if not path.is_dir():
        return storage.load(path, **own)
    if not (path / "run.json").is_file():
        raise ValueError(f"{str(path)!r} holds no run (there is no run.json in it); pass the folder of one")
    config = read_config(path)
    interface = interface_in(config, path)
    agent = _rebuilt(config, interface, path)
    return Policy(agent, restored(path, agent, interface), interface)


def interface_in(config: Mapping[str, Any], path: Path) -> Interface:
    """What the environment of a run shows and takes."""
    try:
        return Interface.from_json(config["interface"])
    except (KeyError, TypeError) as error:
        raise BadFile(
            f"{path / 'run.json'} does not say what the environment looks like ({error!r}): it is damaged, or of an "
            "older version; use the release that wrote it"
        ) from None


def _rebuilt(config: Mapping[str, Any], interface: Interface, path: Path) -> Agent:
    """The agent of a run, without its numbers."""
    try:
        chosen = Settings(**{**config["settings"], "widths": tuple(config["settings"]["widths"])})
    except (KeyError, TypeError) as error:
        raise BadFile(f"{path / 'run.json'} has settings that this version does not know ({error})") from None
    values = None
    if chosen.prior == "optimal":  # draws around them are in the checkpoint
        values = np.zeros((interface.num_states or 1, interface.num_actions))
    return build(
        chosen,
        interface.num_actions,
        num_states=interface.num_states,
        horizon=interface.horizon,
        optimal_values=values,
        bound=interface.bound,
        input_scale=interface.input_scale,
    )


def restored(path: Path, agent: Agent, interface: Interface) -> Any:
    """The state of that agent, without replay, as the last checkpoint in a run's folder has it."""
    commits = Commits(path / "checkpoint", lambda **tally: SimpleNamespace(**tally))
    if commits.last is None:
        raise ValueError(f"{str(path)!r} has no checkpoint yet; let the run go on for a while")
    sight = interface.sight
    obs = jax.ShapeDtypeStruct(sight.frame_shape, np.dtype(sight.dtype))
    init = agent.init_without_buffer if isinstance(agent, QLearner) else agent.init
    shape = jax.eval_shape(functools.partial(init, jax.random.key(0)), obs)._replace(buffer=())
    with commits.explained():
        arrays = commits.state()
        inside = "state.agent."  # where the compiled loop has it, beside the environment
        if any(name.startswith(inside) for name in arrays):
            arrays = {f"state.{name.removeprefix(inside)}": array for name, array in arrays.items()}
        return restore_tree(shape, arrays)
