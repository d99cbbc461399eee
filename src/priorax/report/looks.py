"""One label, colour and marker for each method, in all figures."""

from collections.abc import Iterable
from typing import NamedTuple


class Look(NamedTuple):
    """How a method is drawn."""

    label: str
    """Name in legends and tables."""
    color: str
    """Colour of lines and markers."""
    marker: str = "o"
    """Marker of single runs."""
    line: str = "-"
    """Line style."""

    @property
    def short(self) -> str:
        """The label without its addition."""
        return self.label.split(",")[0]


LOOKS: dict[str, Look] = {
    "bsp": Look("BSP: ensemble with priors", "#1f5fb4", "o"),
    "bsp paper": Look("BSP, the paper's settings", "#6baed6", "h", "--"),
    "bsp plain": Look("BSP on the plain observation", "#7fcdbb", "o", "--"),
    "bsr": Look("BSR: bootstrap with l2", "#c98a1b", "D"),
    "bs": Look("BS: bootstrap", "#d03a2b", "v"),
    "ensemble": Look("ensemble without priors", "#e377c2", "^"),
    "eps_greedy": Look("ε-greedy DQN, annealed over 2,000 episodes", "#8a8f98", "s"),
    "eps_greedy long": Look("ε-greedy DQN, annealed from 1 over 5,000", "#2f3237", "P", "--"),
    "ucb": Look("DQN with a count bonus", "#2e8b57", "X"),
    "noisy": Look("NoisyNet", "#9467bd", "<"),
    "dropout": Look("dropout", "#8c564b", ">"),
    "bbb": Look("Bayes by Backprop", "#17a2a2", "d"),
    "hypermodel": Look("hypermodel", "#3f007d", "H", "-."),
    "epinet": Look("epinet", "#fb9a99", "8", "-."),
    "c51": Look("C51", "#e6862b", "p"),
    "qr": Look("QR-DQN", "#bcbd22", "*"),
    "rnd": Look("DQN with random network distillation", "#66a61e", "P"),
    "lmcdqn": Look("Langevin Monte Carlo DQN", "#e7298a", "s", "--"),
    "rlsvi": Look("RLSVI, exact", "#000000", "+", "-"),
    "psrl": Look("PSRL, exact", "#555555", "x", "-"),
    "ucrl": Look("UCRL2, exact", "#4daf4a", "1", "-"),
    "d4pg": Look("D4PG", "#f0b400", "2"),
}
"""Looks by method."""


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Select looks.

    Args:
        names: Names of methods.

    Returns:
        Their looks, in the order of `LOOKS`.
    """
    wanted = set(names)
    return {name: look for name, look in LOOKS.items() if name in wanted}
