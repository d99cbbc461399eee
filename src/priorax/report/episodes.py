"""Episodes as animated GIFs, drawn from the states of a compiled environment without display or GPU."""

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from priorax.files import write_atomically

WIDTH, HEIGHT, TIMES = 480, 270, 2
"""Width and height of a frame in pixels, and the factor by which it is drawn larger before downsampling."""
INK, CART, POLE, GOAL, PAID = "#30343b", "#30343b", "#d03a2b", "#bfe3c4", "#2e8b47"
LENGTH = 1.0
"""Length of the pole in metres."""


def draws(env: Any) -> bool:
    """Return whether episodes of an environment can be drawn.

    Args:
        env: The environment; it needs `reach`, and its state `x` and `theta`.

    Returns:
        Whether they can.
    """
    return hasattr(env, "reach") and hasattr(env, "height")


def cartpole_frames(env: Any, states: Any, rewards: np.ndarray, every: int = 4) -> Iterable[Image.Image]:
    """Draw cart, pole, the rewarded part of the rail, and the return so far.

    Args:
        env: A cartpole environment.
        states: States of an episode, stacked.
        rewards: Rewards of the episode.
        every: Steps from one frame to the next.

    Returns:
        The frames.
    """
    paid = np.cumsum(rewards)
    for t in range(0, len(rewards), every):
        yield _cartpole(float(states.x[t]), float(states.theta[t]), env.reach, t, float(paid[t]), bool(rewards[t] > 0))


def _cartpole(x: float, theta: float, reach: float, t: int, paid: float, now: bool) -> Image.Image:
    picture = Image.new("RGB", (WIDTH * TIMES, HEIGHT * TIMES), "white")
    pen = ImageDraw.Draw(picture)
    scale, ground = WIDTH * TIMES / 5.0, HEIGHT * TIMES * 0.62

    def at(across: float, up: float) -> tuple[float, float]:
        return WIDTH * TIMES / 2 + scale * across, ground - scale * up

    pen.rectangle((*at(-reach, 1.25), *at(reach, -0.12)), fill=GOAL)
    pen.line((*at(-1.8, 0.0), *at(1.8, 0.0)), fill=INK, width=2 * TIMES)
    pen.rectangle((*at(x - 0.2, 0.1), *at(x + 0.2, -0.1)), fill=CART)
    tip = at(x + LENGTH * math.sin(theta), LENGTH * math.cos(theta))
    pen.line((*at(x, 0.0), *tip), fill=PAID if now else POLE, width=6 * TIMES)
    words = f"{t / 100:.1f} s     return so far {paid:.1f}"
    pen.text((12 * TIMES, 10 * TIMES), words, fill=INK, font_size=14 * TIMES)
    return picture.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def array_frames(pictures: Sequence[np.ndarray]) -> Iterable[Image.Image]:
    """Convert rendered images to frames.

    Args:
        pictures: Images [height, width, 3] of bytes.

    Returns:
        The frames.
    """
    return (Image.fromarray(picture) for picture in pictures)


def write_gif(path: Path, frames: Iterable[Image.Image], milliseconds: int = 40) -> None:
    """Write an animated GIF atomically.

    Args:
        path: The file to write.
        frames: The frames.
        milliseconds: Duration of a frame.
    """
    few = [frame.quantize(32, dither=Image.Dither.NONE) for frame in frames]
    buffer = io.BytesIO()
    few[0].save(buffer, format="GIF", save_all=True, append_images=few[1:], duration=milliseconds, loop=0)
    write_atomically(path, buffer.getvalue())
