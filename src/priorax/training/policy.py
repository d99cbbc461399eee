"""Trained policies, usable without the environment: `load(path).predict(obs)`."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from priorax import storage
from priorax.agents import Agent, agent_spec, build
from priorax.agents.deploy import Values, best, values
from priorax.agents.deploy import deploy as deployed_of
from priorax.agents.q_learner import AgentState, QLearner
from priorax.agents.setting_values import from_json
from priorax.beliefs import Belief, BeliefState
from priorax.checks import one_of
from priorax.envs.interface import Interface
from priorax.files import BadFile, Content, read, reading, write
from priorax.replay import Replay
from priorax.storage import describe, rebuild, refuse_size, restore_state, restore_tree, state_arrays
from priorax.training.checkpoint import Checkpoints
from priorax.training.run_files import read_config

KIND = "policy"
"""Kind of the files of `Policy.save`."""


class Policy:
    """A trained agent, without its replay and its environment."""

    def __init__(self, agent: Agent, state: Any, interface: Interface, rng: np.random.Generator | None = None) -> None:
        """Create a policy.

        Args:
            agent: The agent.
            state: State of the agent.
            interface: Observations and actions of its environment.
            rng: Generator that draws members for deploy="member".
        """
        self.agent, self.state, self.interface = agent, state, interface
        self._rng = rng or np.random.default_rng(0)

    @property
    def num_members(self) -> int:
        """Ensemble size K; 1 without an ensemble."""
        belief = getattr(self.agent, "belief", None)
        return getattr(belief, "num_members", None) or 1

    def predict(self, obs: Any, deploy: str | int = "mean") -> Any:
        """Choose actions without exploration.

        Args:
            obs: One observation, or a batch of them, in the environment's format.
            deploy: "mean": greedy with respect to the mean over members; "vote": majority of members; "member": one
                drawn at each call; or the index of a member, to follow it through an episode.

        Returns:
            The action, or an array of actions, in the environment's format.

        Raises:
            ValueError: If an observation has the wrong shape, or there is no such member.
        """
        batch, single = self.interface.batch(obs)
        if self.interface.bound is not None:  # continuous actions
            one_of("deploy", deploy, ("mean",))
            actions = np.asarray(_exploited(self.agent, self._deployed, batch))
            return actions[0] if single else actions
        found = self.values_of(batch)
        member = int(self._rng.integers(len(found.members))) if deploy == "member" else 0
        if isinstance(deploy, (int, np.integer)) and not isinstance(deploy, bool):
            if not 0 <= deploy < len(found.members):
                raise ValueError(f"deploy={deploy} must be at least 0 and below {len(found.members)}, or a name")
            deploy, member = "member", int(deploy)
        action = best(found, str(deploy), member) + self.interface.first_action
        return int(action[0]) if single else action

    def values(self, obs: Any) -> Values:
        """Evaluate the Q-values of all members.

        Args:
            obs: One observation, or a batch of them, in the environment's format.

        Returns:
            Mean, standard deviation and each member's values by action, with a leading batch axis for a batch. For
            d4pg, whose actions are continuous, the value of the policy's action.

        Raises:
            ValueError: If an observation has the wrong shape.
        """
        batch, single = self.interface.batch(obs)
        found = self.values_of(batch)
        return Values(found.mean[0], found.spread[0], found.members[:, 0]) if single else found

    def values_of(self, batch: np.ndarray) -> Values:
        """Evaluate the Q-values of all members on a batch of observations as the networks see them.

        Args:
            batch: Observations, as of `interface.batch`.

        Returns:
            Mean, standard deviation and each member's values, [..., observation, action].
        """
        return values(self.agent, self._deployed, batch)

    def save(self, path: Path | str) -> None:
        """Write the policy alone to a file, without replay and target network; `priorax.load` reads it.

        Args:
            path: The file to write.

        Raises:
            ValueError: If the agent has no belief, as planners and d4pg, or holds NaN or infinity.
        """
        belief = getattr(self.agent, "belief", None)
        if belief is None:
            raise ValueError(
                f"a policy of a {type(self.agent).__name__} is saved with its run only; pass the folder of the run to "
                "priorax.load"
            )
        about = {"belief": describe(belief, "belief"), "interface": self.interface.as_json()}
        write(path, Content(KIND, about, state_arrays(self.state.belief)))

    @functools.cached_property
    def _deployed(self) -> Any:
        return deployed_of(self.agent, self.state)


@eqx.filter_jit
def _exploited(agent: Agent, deployed: Any, batch: Any) -> Any:
    return jax.vmap(lambda obs: agent.exploit(deployed, jax.random.key(0), obs))(batch)


def load(path: Path | str, **own: Any) -> Any:
    """Load a trained policy or a fitted belief.

    Args:
        path: Folder of a run (`priorax train`, `Explorer.save`), or a file of `Policy.save` or `priorax.save`.
        **own: For a file: the parts that are custom code, by field name.

    Returns:
        For a run or a file of `Policy.save`, the `Policy`, with `predict` and `values`; for a file of `priorax.save`, a
        belief and its state.

    Raises:
        BadFile: If files are damaged.
        ValueError: If the folder contains no run, or the run has no checkpoint yet.
    """
    path = Path(path)
    if not path.is_dir():
        content = read(path)
        return _from_file(path, content, own) if content.kind == KIND else storage.load(path, **own)
    if not (path / "run.json").is_file():
        raise ValueError(f"{str(path)!r} contains no run (no run.json); pass the folder of a run")
    config = read_config(path)
    interface = interface_in(config, path)
    agent = _rebuilt(config, interface, path)
    return Policy(agent, restored(path, agent, interface), interface)


def q_policy(belief: Belief, state: BeliefState, interface: Interface) -> Policy:
    """Create the policy of a belief over Q-values.

    Args:
        belief: The belief.
        state: Its state.
        interface: Observations and actions of the environment.

    Returns:
        The policy, of a Q-learner that has nothing to replay.
    """
    replay = Replay(1, belief.num_streams, batch_size=1, paths=belief.pays_bonus)
    return Policy(QLearner(belief, replay), AgentState(state, (), jnp.zeros((), int)), interface)


def _from_file(path: Path, content: Content, own: Mapping[str, Any]) -> Policy:
    """Build a policy from a file of `Policy.save`."""
    with reading(path):
        interface = Interface.from_json(content.description["interface"])
        belief = rebuild(content.description["belief"], own, content.largest)
        refuse_size("frame_shape", interface.sight.frame_shape, content.largest)
        obs = jax.ShapeDtypeStruct(interface.sight.frame_shape, np.dtype(interface.sight.dtype))
        return q_policy(belief, restore_state(belief, obs, content.arrays), interface)


def interface_in(config: Mapping[str, Any], path: Path) -> Interface:
    """Get the observations and actions of a run's environment.

    Args:
        config: Contents of run.json.
        path: Folder of the run, for messages.

    Returns:
        The interface.

    Raises:
        BadFile: If they are missing or damaged.
    """
    try:
        return Interface.from_json(config["interface"])
    except (KeyError, TypeError) as error:
        raise BadFile(
            f"{path / 'run.json'} does not describe observations and actions ({error!r}): it is damaged, or was "
            "written by an older version; load it with that version"
        ) from None


def _rebuilt(config: Mapping[str, Any], interface: Interface, path: Path) -> Agent:
    """Build the agent of a run, without its state."""
    try:
        spec = agent_spec(config["agent"])
        chosen = from_json(spec.settings, config["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(
            f"{path / 'run.json'} has a value unknown to this version ({error}); load it with the version that wrote it"
        ) from None
    values = None
    if chosen.wants_optimal_values:  # placeholder: the checkpoint contains the values drawn
        values = np.zeros((interface.num_states or 1, interface.num_actions))
    return build(spec, chosen, interface, values)


def restored(path: Path, agent: Agent, interface: Interface) -> Any:
    """Load the state of an agent from the last checkpoint of a run.

    Args:
        path: Folder of the run.
        agent: The agent.
        interface: Observations and actions of its environment.

    Returns:
        The state.

    Raises:
        ValueError: If there is no checkpoint yet.
    """
    checkpoints = Checkpoints(path / "checkpoint")
    if checkpoints.last is None:
        raise ValueError(f"{str(path)!r} has no checkpoint yet; wait until the run has written one")
    sight = interface.sight
    obs = jax.ShapeDtypeStruct(sight.frame_shape, np.dtype(sight.dtype))
    shape = jax.eval_shape(functools.partial(agent.init, jax.random.key(0)), obs)
    with checkpoints.explained():
        arrays = checkpoints.state()
        inside = "state.agent."  # prefix in checkpoints of the scan backend
        if any(name.startswith(inside) for name in arrays):
            arrays = {f"state.{name.removeprefix(inside)}": array for name, array in arrays.items()}
        return restore_tree(shape, arrays)
