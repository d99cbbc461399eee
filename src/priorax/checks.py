"""Errors are part of the interface: each names the argument, its value, the limit and the remedy."""

import difflib
import math
import numbers
from collections.abc import Callable, Iterable


def positive_int(name: str, value: object) -> int:
    """An integer of at least one, or a ValueError that says so."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1; pass for example {name}=20")
    return int(value)


def non_negative(name: str, value: object) -> float:
    """A finite number of at least zero, or a ValueError that says so."""
    return _in_range(name, value, lambda v: v >= 0, "a finite number of at least 0", 1.0)


def positive(name: str, value: object, example: float = 1.0) -> float:
    """A finite number above zero, or a ValueError that says so and gives the example."""
    return _in_range(name, value, lambda v: v > 0, "a finite number above 0", example)


def fraction(name: str, value: object) -> float:
    """A number in (0, 1), or a ValueError that says so."""
    return _in_range(name, value, lambda v: 0 < v < 1, "a number above 0 and below 1", 0.5)


def one_of(name: str, value: object, valid: Iterable[str]) -> str:
    """One of the valid names, or a ValueError that gives the nearest one."""
    names = list(valid)
    if value in names:
        return str(value)
    close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.0)
    raise ValueError(f"{name}={value!r} is unknown; did you mean {close[0]!r}? Known: {', '.join(names)}")


def _in_range(name: str, value: object, holds: Callable[[float], bool], limit: str, example: float) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and holds(number):
            return number
    raise ValueError(f"{name}={value!r} must be {limit}; pass for example {name}={example}")
