"""Atari games (extra `atari`): the Arcade Learning Environment with the preprocessing of Mnih et al. (2015)."""

import difflib
from typing import Any

import numpy as np
from jaxtyping import UInt8

from priorax.checks import non_negative, positive_int
from priorax.envs.host.vector import NOT_RESET, VectorStep, checked_actions, first_seed


class Atari:
    """`num_envs` copies of a game, stepped on threads.

    A frame is grey, 84 x 84: the maximum of the last two of four screens, for which an action is repeated. An
    observation is a stack of four frames, padded with black ones at the start of an episode. An episode is a whole
    game: a lost life is reported (`VectorStep.life_lost`) but does not end it. Rewards are not clipped here.

    Actions are the game's minimal action set. Apart from the initial no-ops none is taken automatically: as in Mnih et
    al., games that wait for the fire button (Breakout) wait until the agent presses it. (In Montezuma's Revenge,
    pressing fire at the start is a jump.)

    Results depend on the seed but not on the number of threads.

    Args:
        game: Name of the game, such as "MontezumaRevenge" or "montezuma_revenge".
        num_envs: Number of copies.
        sticky: Probability of repeating the previous action instead (0.25 in Machado et al., 2018).
        noop_max: Maximum number of no-op screens at the start of an episode; the number is random.
        max_frames: Screens after which a game is truncated, not counting the no-ops; 108,000 are half an hour.
        num_threads: Number of threads; 0 uses one per core.

    Raises:
        ValueError: If the game is unknown, a number is out of range, or the extra is not installed.
    """

    stack = 4
    """Frames per observation."""
    frame_shape: tuple[int, ...] = (84, 84)
    """Shape of a frame."""
    frame_dtype = np.dtype(np.uint8)
    """Type of a frame."""

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        sticky: float = 0.0,
        noop_max: int = 30,
        max_frames: int = 108_000,
        num_threads: int = 0,
    ) -> None:
        try:
            from ale_py import roms
            from ale_py.vector_env import AtariVectorEnv
        except ImportError as error:
            raise ValueError(f'{error}; install it with: pip install "priorax[atari]"') from None
        self.game = rom_name(game, roms.get_all_rom_ids())
        self.num_envs = positive_int("num_envs", num_envs)
        if non_negative("sticky", sticky) >= 1:
            raise ValueError(
                f"sticky={sticky!r} must be below 1, or actions would have no effect; pass for example sticky=0.25"
            )
        for name, count in (("noop_max", noop_max), ("num_threads", num_threads)):
            if count < 0:
                raise ValueError(f"{name}={count!r} must be a whole number of at least 0; pass for example {name}=1")
        env: Any = AtariVectorEnv(
            self.game,
            self.num_envs,
            num_threads=num_threads,
            max_num_frames_per_episode=positive_int("max_frames", max_frames),
            repeat_action_probability=float(sticky),
            noop_max=noop_max + 1,  # exclusive upper bound
            reward_clipping=False,
            episodic_life=False,
            use_fire_reset=False,
        )
        self._env = env
        self.num_actions = int(env.single_action_space.n)
        self._lives: np.ndarray | None = None
        self._over = np.zeros(self.num_envs, bool)

    def reset(self, seed: int) -> UInt8[np.ndarray, "num_envs 4 84 84"]:
        """Start new games.

        Args:
            seed: Random seed.

        Returns:
            The first observations.
        """
        obs, info = self._open().reset(seed=first_seed(seed))
        self._lives, self._over = info["lives"], np.zeros(self.num_envs, bool)
        return obs

    def step(self, actions: np.ndarray) -> VectorStep:
        """Take one action in each game.

        Args:
            actions: One action index per game.

        Returns:
            Observations, rewards and ends of episodes.
        """
        chosen = checked_actions(actions, self.num_envs, self.num_actions)
        env = self._open()
        if self._lives is None:
            raise ValueError(NOT_RESET)
        obs, reward, terminated, truncated, info = env.step(chosen)
        lost = (info["lives"] < self._lives) & ~terminated & ~self._over  # a new game may start with fewer lives
        self._lives, self._over = info["lives"], terminated | truncated
        return VectorStep(obs, reward.astype(np.float32), terminated, truncated, lost)

    def close(self) -> None:
        """Stop the threads."""
        if self._env is not None:
            self._env.close()
            del self._env.ale  # stops its threads
        self._env = None

    def _open(self) -> Any:
        if self._env is None:
            raise ValueError(
                f"this Atari environment is closed; create another with Atari({self.game!r}, {self.num_envs})"
            )
        return self._env


def rom_name(game: str, known: list[str]) -> str:
    """Find a game by its name in CamelCase or snake_case.

    Args:
        game: The name.
        known: Names of the available games.

    Returns:
        The name among those available.

    Raises:
        ValueError: If it is unknown; the message suggests similar names.
    """
    plain = {name.replace("_", ""): name for name in known}
    plain_name = game.replace("_", "").lower()
    if plain_name in plain:
        return plain[plain_name]
    near = difflib.get_close_matches(plain_name, plain, n=3, cutoff=0.0)
    names = ", ".join(repr(plain[name]) for name in near)
    raise ValueError(f"game={game!r} is not one of the {len(known)} known games; did you mean one of {names}?")


def cells(
    frames: UInt8[np.ndarray, "num height width"], *, rows: int = 8, columns: int = 11, levels: int = 8
) -> list[bytes]:
    """Map frames to Go-Explore's cells (Ecoffet et al., 2021), to count distinct states.

    A cell is the frame downsampled to `columns` x `rows` pixels by averaging, in `levels` grey levels. All sums are
    exact, so equal frames always have equal cells.

    Args:
        frames: Grey frames.
        rows: Rows of a cell.
        columns: Columns of a cell.
        levels: Grey levels.

    Returns:
        The cell of each frame, as bytes.
    """
    _, height, width = frames.shape
    total = _shares(rows, height) @ frames.astype(np.float64) @ _shares(columns, width).T  # exact: far below 2^53
    shades = (total.astype(np.int64) * levels) // (256 * height * width)
    return [shade.tobytes() for shade in shades.astype(np.uint8)]


def _shares(parts: int, length: int) -> np.ndarray:
    """Compute the fraction of each pixel in each part, [parts, length], in units of 1/parts; rows sum to `length`."""
    part, pixel = np.arange(parts)[:, None], np.arange(length)
    end = np.minimum((part + 1) * length, (pixel + 1) * parts)
    begin = np.maximum(part * length, pixel * parts)
    return np.maximum(end - begin, 0).astype(np.float64)
