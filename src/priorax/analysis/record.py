"""Recording of an episode of a trained agent: greedy with respect to the mean, without exploration or learning."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from priorax.agents import Agent, settings
from priorax.agents.deploy import deploy
from priorax.checks import checked_seed
from priorax.envs import GYMNASIUM, Environment, Held
from priorax.envs.jax.cartpole import CartpoleSwingup
from priorax.training.backends.loop import prepare
from priorax.training.policy import interface_in, restored
from priorax.training.policy import load as load_policy
from priorax.training.request import resumed
from priorax.training.run_files import read_config

FRAMES = 25
"""Maximum number of frames per second of an animation."""


class RecordedEpisode(NamedTuple):
    """One episode: the environment, its state before each step, and the rewards."""

    env: Environment
    states: PyTree
    """States before each step, [step, ...]."""
    rewards: np.ndarray


class Learned(NamedTuple):
    """The agent of a run's last checkpoint, and its environment."""

    agent: Agent
    state: Any
    env: Environment
    """The environment without action repeat."""
    hold: int
    params: Any


def load(path: Path) -> Learned:
    """Load the agent of the last checkpoint of a run.

    Args:
        path: Folder of the run.

    Returns:
        The agent and its environment.
    """
    arguments = resumed(path, {}, {})
    chosen = settings(
        arguments["agent"], arguments["preset"], **{**arguments["changes"], "lanes": 1}
    )  # one lane suffices
    loop, _, params = prepare(arguments["agent"], chosen, arguments["env"], arguments["size"], arguments["seed"])
    state = restored(path, loop.agent, interface_in(read_config(path), path))
    env: Any = loop.env
    hold = env.times if isinstance(env, Held) else 1
    return Learned(loop.agent, state, env.env if isinstance(env, Held) else env, hold, params)


def record(learned: Learned, seed: int = 0) -> RecordedEpisode:
    """Record one episode in the compiled environment.

    Args:
        learned: The agent and its environment.
        seed: Seed of the initial state.

    Returns:
        The episode.
    """
    key = jax.random.key(checked_seed(seed))
    limit = getattr(learned.env, "horizon", 1000)
    states, rewards, ended = jax.tree.map(np.asarray, _roll(learned, key, limit))
    length = int(np.argmax(ended)) + 1 if ended.any() else limit
    return RecordedEpisode(learned.env, jax.tree.map(lambda leaf: leaf[:length], states), rewards[:length])


@eqx.filter_jit
def _roll(learned: Learned, key: PRNGKeyArray, limit: int) -> tuple[PyTree, Any, Any]:
    agent, state, env, hold, params = learned
    deployed = agent.deployed(state, jax.random.key(0))
    key_start, key_steps = jax.random.split(key)
    obs, begun = env.reset(key_start, params)

    def step(carry: Any, t: Any) -> Any:
        obs, inside, action = carry
        key_act, key_env = jax.random.split(jax.random.fold_in(key_steps, t))
        action = jax.lax.cond(t % hold == 0, lambda: agent.exploit(deployed, key_act, obs), lambda: action)
        obs, after, reward, terminated, truncated, _ = env.step(key_env, inside, action, params)
        return (obs, after, action), (inside, reward, terminated | truncated)

    first = agent.exploit(deployed, key, obs)
    return jax.lax.scan(step, (obs, begun, first), jnp.arange(limit))[1]


class Film(NamedTuple):
    """One rendered episode."""

    pictures: list[np.ndarray]
    milliseconds: int
    """Duration of a frame in milliseconds."""
    total: float
    """Return of the episode."""


def record_in_gymnasium(path: Path, seed: int = 0) -> Film:
    """Record one rendered episode of a run in Gymnasium.

    Args:
        path: Folder of the run.
        seed: Seed of the environment.

    Returns:
        The episode, with at most 25 images per second.

    Raises:
        ValueError: If the run was in another kind of environment, or the environment cannot be rendered.
    """
    env_id = str(read_config(path)["env"]).removeprefix(GYMNASIUM)
    policy = load_policy(path)
    try:
        import gymnasium
    except ImportError as error:
        raise ValueError(f'{error}; install Gymnasium with: pip install "priorax[gymnasium]"') from None
    with _drawable(env_id), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unsupported render mode is refused below
        env: Any = gymnasium.make(env_id, render_mode="rgb_array")
    with contextlib.closing(env), _drawable(env_id):
        if "rgb_array" not in env.metadata.get("render_modes", []):
            raise ValueError(
                f"{GYMNASIUM}{env_id} cannot be rendered: it has no render mode 'rgb_array'; run the policy in "
                f"your own code: priorax.load({str(path)!r}).predict(obs)"
            )
        speed = env.metadata.get("render_fps") or FRAMES
        every = max(1, round(speed / FRAMES))
        obs, _ = env.reset(seed=checked_seed(seed))
        pictures, total, ended, t = [], 0.0, False, 0
        while not ended:
            if t % every == 0:
                pictures.append(np.asarray(env.render(), np.uint8))
            obs, reward, terminated, truncated, _ = env.step(policy.predict(obs))
            total, ended, t = total + float(reward), terminated or truncated, t + 1
        pictures.append(np.asarray(env.render(), np.uint8))
    return Film(pictures, max(20, round(1000 * every / speed)), total)


@contextlib.contextmanager
def _drawable(env_id: str) -> Iterator[None]:
    import gymnasium

    try:
        yield
    except gymnasium.error.Error as error:
        raise ValueError(f"{GYMNASIUM}{env_id} cannot be rendered on this machine: {error}") from None


def record_in_mujoco(learned: Learned, seed: int = 0, every: int = 4) -> tuple[list[np.ndarray], float]:
    """Record one rendered episode of the same agent in `dm_control`.

    Args:
        learned: The agent and its environment.
        seed: Seed of the initial state.
        every: Steps between rendered images.

    Returns:
        The images, and the return.

    Raises:
        ValueError: If the environment has no counterpart in MuJoCo.
    """
    from priorax.envs.host.control import ControlCartpole

    if not isinstance(learned.env, CartpoleSwingup):
        raise ValueError(f"{type(learned.env).__name__} has no MuJoCo version; watch it without --mujoco")
    env = ControlCartpole(learned.env)
    exploit = eqx.filter_jit(lambda agent, deployed, obs: agent.exploit(deployed, jax.random.key(0), obs))
    deployed = deploy(learned.agent, learned.state)
    obs, _ = env.reset(seed=seed)
    pictures, total, ended, t = [], 0.0, False, 0
    action: Any = None
    while not ended:
        if t % every == 0:
            pictures.append(env.render())
        if t % learned.hold == 0:
            action = np.asarray(exploit(learned.agent, deployed, jnp.asarray(obs, jnp.float32)))
        obs, reward, _, ended, _ = env.step(action)
        total, t = total + reward, t + 1
    return pictures, total
