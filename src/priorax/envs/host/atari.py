"""Atari games (extra `atari`): the Arcade Learning Environment, with the frames of Mnih et al. (2015)."""

import difflib
from typing import Any

import numpy as np
from jaxtyping import UInt8

from priorax.checks import non_negative, positive_int
from priorax.envs.host.vector import NOT_RESET, VectorStep, checked_actions, first_seed


class Atari:
    """`num_envs` copies of a game, played on threads.

    A frame is grey, 84 x 84, the brighter of the last two of the four screens for which an action is held; four of them
    are an observation, of which three are black at an episode's start. An episode is a whole game: losing a life is
    told (`VectorStep.life_lost`) and ends nothing. Rewards are the game's own; clipping them is the learner's business.

    Actions are those that do something in this game (its minimal set). None is taken on the player's behalf but the
    no-ops of the start: as with Mnih et al., games that wait for the fire button (Breakout) wait for the player to
    press it, after every life. Pressing it at the start, as later work does, is a jump in Montezuma's Revenge.

    Seeds, not threads, say what happens: the same seed gives the same bits on any number of them.
    """

    stack = 4
    frame_shape: tuple[int, ...] = (84, 84)
    frame_dtype = np.dtype(np.uint8)

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
        """`game`: such as "MontezumaRevenge" or "montezuma_revenge".

        `sticky`: the probability that the game repeats the last action instead (0.25 with Machado et al., 2018).
        `noop_max`: an episode starts with a random number of screens without action, at most this one.
        `max_frames`: screens after which a game is cut short, not counting those; 108,000 are half an hour.
        `num_threads`: 0 takes one for each processor.
        """
        try:
            from ale_py import roms
            from ale_py.vector_env import AtariVectorEnv
        except ImportError as error:
            raise ValueError(f'{error}; install what it needs with: pip install "priorax[atari]"') from None
        self.game = rom_name(game, roms.get_all_rom_ids())
        self.num_envs = positive_int("num_envs", num_envs)
        if non_negative("sticky", sticky) >= 1:
            raise ValueError(
                f"sticky={sticky!r} must be below 1, or no action is ever taken; pass for example sticky=0.25"
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
            noop_max=noop_max + 1,  # it draws below this number
            reward_clipping=False,
            episodic_life=False,
            use_fire_reset=False,
        )
        self._env = env
        self.num_actions = int(env.single_action_space.n)
        self._lives: np.ndarray | None = None
        self._over = np.zeros(self.num_envs, bool)

    def reset(self, seed: int) -> UInt8[np.ndarray, "num_envs 4 84 84"]:
        obs, info = self._open().reset(seed=first_seed(seed))
        self._lives, self._over = info["lives"], np.zeros(self.num_envs, bool)
        return obs

    def step(self, actions: np.ndarray) -> VectorStep:
        chosen = checked_actions(actions, self.num_envs, self.num_actions)
        env = self._open()
        if self._lives is None:
            raise ValueError(NOT_RESET)
        obs, reward, terminated, truncated, info = env.step(chosen)
        lost = (info["lives"] < self._lives) & ~terminated & ~self._over  # a new game may have fewer than the last had
        self._lives, self._over = info["lives"], terminated | truncated
        return VectorStep(obs, reward.astype(np.float32), terminated, truncated, lost)

    def close(self) -> None:
        """End the threads."""
        if self._env is not None:
            self._env.close()
            del self._env.ale  # whose threads live as long as it does
        self._env = None

    def _open(self) -> Any:
        if self._env is None:
            raise ValueError(
                f"this game of {self.game} is closed; make another with Atari({self.game!r}, {self.num_envs})"
            )
        return self._env


def rom_name(game: str, known: list[str]) -> str:
    """The game's own name among those known, whether it is given in CamelCase or snake_case."""
    plain = {name.replace("_", ""): name for name in known}
    asked = game.replace("_", "").lower()
    if asked in plain:
        return plain[asked]
    near = difflib.get_close_matches(asked, plain, n=3, cutoff=0.0)
    names = ", ".join(repr(plain[name]) for name in near)
    raise ValueError(f"game={game!r} is none of the {len(known)} known games; did you mean one of {names}?")


def cells(
    frames: UInt8[np.ndarray, "num height width"], *, rows: int = 8, columns: int = 11, levels: int = 8
) -> list[bytes]:
    """Go-Explore's cells (Ecoffet et al., 2021), to count the distinct states that were reached: each frame as a
    picture of 11 x 8 pixels, the mean of what they cover, in 8 shades of grey.

    All sums are of whole numbers, so equal frames have equal cells wherever they stand.
    """
    _, height, width = frames.shape
    total = _shares(rows, height) @ frames.astype(np.float64) @ _shares(columns, width).T  # exact: far below 2^53
    shades = (total.astype(np.int64) * levels) // (256 * height * width)
    return [shade.tobytes() for shade in shades.astype(np.uint8)]


def _shares(parts: int, length: int) -> np.ndarray:
    """[parts, length]: how much of each pixel lies in each part, in units of 1/parts; a part's sum is `length`."""
    part, pixel = np.arange(parts)[:, None], np.arange(length)
    end = np.minimum((part + 1) * length, (pixel + 1) * parts)
    begin = np.maximum(part * length, pixel * parts)
    return np.maximum(end - begin, 0).astype(np.float64)
