"""Errors are part of the interface: each names the argument, its value, the limit and the remedy."""

import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping


class NonFinite(FloatingPointError):
    """A number is NaN or infinite; the message says which, where, and what to do."""


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


def checked_seed(value: object, name: str = "seed") -> int:
    """A whole number of 32 bits, or a ValueError that says so."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= int(value) < 2**32:
        raise ValueError(
            f"{name}={value!r} must be a whole number of at least 0 and below 2**32; pass for example {name}=0"
        )
    return int(value)


def one_of(name: str, value: object, valid: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Check a name.

    Args:
        name: Of the argument.
        value: The name to check.
        valid: Names that are known.
        elsewhere: What others call them, in lower case and letters and digits only, and what they are called here.

    Returns:
        The value.

    Raises:
        ValueError: If it is unknown; with the name that it has here, or the nearest one.
    """
    names = list(valid)
    if value in names:
        return str(value)
    close = [each for each in names if _plain(each) == _plain(value)]
    here = (elsewhere or {}).get(_plain(value))
    if here is not None and not close:
        raise ValueError(f"{name}={value!r} is called {here!r} here; pass {name}={here!r}")
    close = close or difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    meant = f"did you mean {close[0]!r}? Known: " if close else "known are "
    raise ValueError(f"{name}={value!r} is unknown; {meant}{', '.join(names)}")


def _plain(name: object) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def _in_range(name: str, value: object, holds: Callable[[float], bool], limit: str, example: float) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and holds(number):
            return number
    raise ValueError(f"{name}={value!r} must be {limit}; pass for example {name}={example}")
