"""Vectors of `dm_env` environments, and bsuite's environments by their id."""

import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from priorax.checks import checked_seed, one_of, positive_int
from priorax.envs.host.vector import NOT_RESET, VectorStep, channels_first, checked_actions, first_seed
from priorax.envs.inputs import UNKNOWN, Inputs
from priorax.envs.interface import Sight, is_picture
from priorax.envs.jax.bsuite_cartpole import BsuiteCartpole

ONE_HOT = ("deep_sea", "deep_sea_stochastic")
"""bsuite experiments with one-hot observations."""
COMPILED = {"cartpole_swingup": BsuiteCartpole()}
"""Compiled versions of bsuite experiments, which know the scales, groups and knees of observations."""


class DmEnvWorld:
    """A vector of `dm_env` environments with discrete actions and identical specs.

    Observations become state indices (DiscreteArray), images [channel, height, width] of bytes (an array of bytes with
    two or three dimensions, channels first or last), or float32 numbers (any other array): (1, n), as in bsuite, is
    flattened to (n,), and a scalar to (1,).

    An episode that ends is terminated if its last discount is 0, else truncated. A discount of 0 before the end counts
    as a lost life; other discounts are ignored.

    Environments of `dm_env` cannot be seeded after their creation: `reset(seed)` starts new episodes regardless of the
    seed, unless `make` is given (as by `bsuite_world`).

    Args:
        envs: The environments, one per lane.
        one_hot: Whether observations are one-hot arrays, to be converted to state indices; an array of zeros becomes 0.
        hold: Steps for which each action is repeated (frame skip); rewards are summed.
        make: Creates environments like `envs` from a seed, which replace them at `reset(seed)`.

    Raises:
        ValueError: If there are no environments, one occurs twice, or their specs differ or are not supported.
    """

    stack = 1
    """Frames per observation."""

    def __init__(
        self,
        envs: Sequence[Any],
        *,
        one_hot: bool = False,
        hold: int = 1,
        make: Callable[[int], Sequence[Any]] | None = None,
    ) -> None:
        specs = imported("dm_env.specs")
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        acts, sees = _checked_specs(specs, self.envs)
        self.hold, self.make = positive_int("hold", hold), make
        self.first_action = int(acts.minimum)
        """Number that the environment uses for action 0."""
        self._action_type = acts.dtype.type
        self.num_actions = int(acts.maximum) - self.first_action + 1
        self.num_states: int | None = None
        """Number of states, if observations are state indices."""
        self.inputs = UNKNOWN
        """Scale and structure of the components of an observation; without a scale if its bounds are unknown."""
        self.frame_shape: tuple[int, ...] = ()
        self.frame_dtype: np.dtype = np.dtype(np.int32)
        shape, channels_last = tuple(sees.shape), False
        if one_hot:
            self.num_states = int(np.prod(sees.shape))
        elif isinstance(sees, specs.DiscreteArray):
            self.num_states = int(sees.num_values)
        else:
            channels_last = self._see_arrays(sees, isinstance(sees, specs.BoundedArray))
        self.sight = Sight(shape, self.frame_shape, self.frame_dtype.name, one_hot=one_hot, channels_last=channels_last)
        self._over: np.ndarray | None = None

    def _see_arrays(self, sees: Any, bounded: bool) -> bool:
        """Set shape and type of frames; return whether channels are last."""
        self.frame_dtype, channels_last = np.dtype(np.float32), False
        rows = len(sees.shape) == 2 and sees.shape[0] == 1
        self.frame_shape = tuple(sees.shape[1:] if rows else sees.shape or (1,))
        if sees.dtype == np.uint8 and len(self.frame_shape) in (2, 3):
            self.frame_dtype = np.dtype(np.uint8)
            self.frame_shape, channels_last = channels_first(self.frame_shape)
            if not is_picture(self.frame_shape, self.frame_dtype):
                self.inputs = Inputs((1 / 255,))
        elif bounded and len(self.frame_shape) == 1:
            bounds = (np.broadcast_to(bound, sees.shape) for bound in (sees.minimum, sees.maximum))
            self.inputs = Inputs.from_bounds(*(bound.reshape(self.frame_shape) for bound in bounds))
        return channels_last

    def reset(self, seed: int) -> np.ndarray:
        """Start a new episode in every environment.

        Args:
            seed: Random seed; used only if the environments can be created from a seed.

        Returns:
            The first observations.
        """
        checked_seed(seed)
        if self.make is not None:
            self.envs = list(self.make(seed))
        self._over = np.zeros(self.num_envs, bool)
        return np.stack([self.sight(env.reset().observation) for env in self.envs])

    def step(self, actions: np.ndarray) -> VectorStep:
        """Take one action in each environment.

        Args:
            actions: One action index per environment.

        Returns:
            Observations, rewards and ends of episodes.
        """
        chosen = checked_actions(actions, self.num_envs, self.num_actions) + self.first_action
        if self._over is None:
            raise ValueError(NOT_RESET)
        reward = np.zeros(self.num_envs, np.float32)
        obs, last, ended = [], np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for i, env in enumerate(self.envs):
            if self._over[i]:
                obs.append(self.sight(env.reset().observation))
                continue
            reward[i], stopped, moment = self._held(env, self._action_type(chosen[i]))
            obs.append(self.sight(moment.observation))
            last[i], ended[i] = moment.last(), stopped
        self._over = last
        return VectorStep(np.stack(obs), reward, last & ended, last & ~ended, ended & ~last)

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()
        self._over = None

    def _held(self, env: Any, action: Any) -> tuple[float, bool, Any]:
        """Repeat an action; get the sum of rewards, whether a discount was 0, and the last time step."""
        reward, stopped = 0.0, False
        for _ in range(self.hold):
            moment = env.step(action)
            reward += 0.0 if moment.reward is None else float(moment.reward)
            stopped = stopped or moment.discount == 0
            if moment.last():
                break
        return reward, stopped, moment


def _checked_specs(specs: Any, envs: Sequence[Any]) -> tuple[Any, Any]:
    """Get the common action and observation specs; raise if environments differ or are not supported."""
    if not envs or len({id(env) for env in envs}) < len(envs):
        raise ValueError(f"envs={envs!r} must be distinct environments, at least one; create one for each lane")
    acts, sees, pays = envs[0].action_spec(), envs[0].observation_spec(), envs[0].reward_spec()
    for env in envs[1:]:
        if (env.action_spec(), env.observation_spec()) != (acts, sees):
            raise ValueError(
                f"envs differ in their specs, which must be equal: {acts} and {env.action_spec()}, {sees} and "
                f"{env.observation_spec()}; pass copies of one environment"
            )
    if not isinstance(acts, specs.BoundedArray) or acts.shape or not np.issubdtype(acts.dtype, np.integer):
        raise ValueError(
            f"envs have the action spec {acts}, which must be a DiscreteArray or a BoundedArray of one integer; choose "
            "another environment, or wrap this one"
        )
    if not isinstance(sees, specs.Array):
        raise ValueError(
            f"envs have the observation spec {sees}, which must be one array; concatenate the parts in a wrapper, for "
            "example with np.concatenate"
        )
    if sees.dtype.kind not in "fiub":
        raise ValueError(
            f"envs have observations of type {sees.dtype}, which must be numbers; wrap them to convert them"
        )
    if not isinstance(pays, specs.Array) or pays.shape:
        raise ValueError(f"envs have the reward spec {pays}, which must be one number; wrap them to convert it")
    return acts, sees


def bsuite_world(bsuite_id: str, results: Path | str | None = None, *, lanes: int = 1, hold: int = 1) -> DmEnvWorld:
    """Create a vector of one of bsuite's environments.

    DeepSea's N x N one-hot observations are converted to state indices; the final observation is all zero and becomes
    0, which is harmless since nothing follows it.

    The settings of a bsuite id fix the task (its mask, its scale), and `reset(seed)` does not change it. Other random
    numbers derive from the seed of `reset`; if the id fixes their seed too, lane i uses that seed plus i.

    Args:
        bsuite_id: The id, such as `deep_sea/3`.
        results: Folder for bsuite's own CSV log, if any; each reset replaces an earlier log of this id.
        lanes: Number of environments; 1 if results are logged.
        hold: Steps for which each action is repeated (frame skip).

    Returns:
        The environments.

    Raises:
        ValueError: If the id is unknown, bsuite is not installed, or results are requested for several lanes.
    """
    experiment = checked_bsuite_id(bsuite_id)
    positive_int("lanes", lanes)
    if results is not None and lanes > 1:
        raise ValueError(f"lanes={lanes} must be 1 if results are logged: bsuite logs one environment; pass lanes=1")

    def make(seed: int) -> list[Any]:
        envs = [_loaded(bsuite_id, experiment, first_seed(seed), lane) for lane in range(lanes)]
        if results is None:
            return envs
        return [imported("bsuite.logging.csv_logging").wrap_environment(envs[0], bsuite_id, str(results), True)]

    world = DmEnvWorld(make(0), one_hot=experiment in ONE_HOT, hold=hold, make=make)
    if experiment in COMPILED:
        world.inputs = COMPILED[experiment].inputs
    return world


def checked_bsuite_id(bsuite_id: str) -> str:
    """Check a bsuite id.

    Args:
        bsuite_id: The id.

    Returns:
        The experiment's name.

    Raises:
        ValueError: If it is unknown, or bsuite is not installed.
    """
    sweep = imported("bsuite.sweep")
    experiment, _, number = str(bsuite_id).partition("/")
    counts = bsuite_experiments()
    one_of("experiment", experiment, counts)
    if bsuite_id not in sweep.SETTINGS:
        raise ValueError(
            f"bsuite_id={bsuite_id!r} must end in a number from 0 to {counts[experiment] - 1}, not {number!r}; "
            f"pass for example {experiment}/0"
        )
    return experiment


def bsuite_experiments() -> dict[str, int]:
    """Return the number of ids of each bsuite experiment."""
    names = [bsuite_id.partition("/")[0] for bsuite_id in imported("bsuite.sweep").SWEEP]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def _loaded(bsuite_id: str, experiment: str, seed: int, lane: int) -> Any:
    loading = imported("bsuite.bsuite")
    settings = dict(imported("bsuite.sweep").SETTINGS[bsuite_id])
    if experiment == "deep_sea_stochastic":  # bsuite's loader has no seed argument
        env = loading.load("deep_sea", {**settings, "deterministic": False, "seed": seed + lane})
        env.bsuite_num_episodes = imported("bsuite.sweep").EPISODES[bsuite_id]
        return env
    takes = inspect.signature(loading.EXPERIMENT_NAME_TO_ENVIRONMENT[experiment]).parameters
    if "seed" in takes:
        fixed = settings.get("seed", takes["seed"].default)
        settings["seed"] = (seed if fixed in (None, inspect.Parameter.empty) else fixed) + lane
    try:
        return loading.load(experiment, settings)
    except OSError as error:
        raise ValueError(
            f"bsuite_id={bsuite_id!r} cannot be loaded: {error}; bsuite downloads MNIST to /tmp/mnist: put the files "
            "there, or choose another experiment"
        ) from None


def imported(name: str) -> Any:
    """Import a module of bsuite or `dm_env`.

    Args:
        name: Name of the module.

    Returns:
        The module.

    Raises:
        ValueError: If it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f'{error}; install it with: pip install "priorax[bsuite]"') from None
