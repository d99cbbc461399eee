"""Argument checks. Every message names the argument, its value, the limit and the remedy."""

import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping


class NonFinite(FloatingPointError):
    """A number is NaN or infinite."""


def positive_int(name: str, value: object) -> int:
    """Check that an argument is an integer of at least 1.

    Args:
        name: Name of the argument.
        value: The argument.

    Returns:
        The value.

    Raises:
        ValueError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        meant = _meant(value)
        example = f"{name}={round(meant)}" if meant is not None and meant >= 1 else f"for example {name}=20"
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1; pass {example}")
    return int(value)


def non_negative(name: str, value: object) -> float:
    """Check that an argument is a finite number of at least 0.

    Args:
        name: Name of the argument.
        value: The argument.

    Returns:
        The value.

    Raises:
        ValueError: If it is not.
    """
    return _in_range(name, value, lambda v: v >= 0, "a finite number of at least 0", 1.0)


def positive(name: str, value: object, example: float = 1.0) -> float:
    """Check that an argument is a finite number above 0.

    Args:
        name: Name of the argument.
        value: The argument.
        example: A valid value, for the message.

    Returns:
        The value.

    Raises:
        ValueError: If it is not.
    """
    return _in_range(name, value, lambda v: v > 0, "a finite number above 0", example)


def fraction(name: str, value: object, example: float = 0.5) -> float:
    """Check that an argument is a number strictly between 0 and 1.

    Args:
        name: Name of the argument.
        value: The argument.
        example: A valid value, for the message.

    Returns:
        The value.

    Raises:
        ValueError: If it is not; numbers above 1 and below 100 are taken for percent in the message.
    """
    meant = _meant(value)
    if meant is not None and 1 < meant < 100:
        share = short_number(meant / 100, 12)
        raise ValueError(f"{name}={value!r} must be a number above 0 and below 1; pass {share} for {meant:g}%")
    return _in_range(name, value, lambda v: 0 < v < 1, "a number above 0 and below 1", example)


def checked_seed(value: object, name: str = "seed") -> int:
    """Check that an argument is a valid random seed: an integer of at least 0 and below 2**32.

    Args:
        value: The argument.
        name: Name of the argument.

    Returns:
        The value.

    Raises:
        ValueError: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 0 <= int(value) < 2**32:
        meant = _meant(value)
        example = f"{name}={round(meant)}" if meant is not None and 0 <= meant < 2**32 else f"for example {name}=0"
        raise ValueError(f"{name}={value!r} must be a whole number of at least 0 and below 2**32; pass {example}")
    return int(value)


def one_of(name: str, value: object, valid: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Check that an argument is one of the valid names.

    Args:
        name: Name of the argument.
        value: The argument.
        valid: The valid names.
        elsewhere: Names in other libraries (in lower case, letters and digits only) and their equivalents here.

    Returns:
        The value.

    Raises:
        ValueError: If it is not; the message suggests the equivalent or the closest name.
    """
    names = list(valid)
    if value in names:
        return str(value)
    close = [each for each in names if _plain(each) == _plain(value)]
    here = (elsewhere or {}).get(_plain(value))
    if here is not None and not close:
        raise ValueError(f"{name}={value!r} is called {here!r} here; pass {name}={here!r}")
    close = close or difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    meant = f"did you mean {close[0]!r}? Known: " if close else "known: "
    raise ValueError(f"{name}={value!r} is unknown; {meant}{', '.join(names)}")


def _plain(name: object) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def _in_range(name: str, value: object, holds: Callable[[float], bool], limit: str, example: float) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and holds(number):
            return number
    meant = _meant(value)
    valid = f"{name}={meant:g}" if meant is not None and holds(meant) else f"for example {name}={example}"
    raise ValueError(f"{name}={value!r} must be {limit}; pass {valid}")


def _meant(value: object) -> float | None:
    """Get the finite number that a number or a text stands for, if any, to propose it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def short_number(value: float, digits: int = 4) -> str:
    """Write a number with few significant digits, and without an exponent unless it is very large or small.

    Args:
        value: The number.
        digits: Number of significant digits.

    Returns:
        The text, with commas between thousands.
    """
    plain = f"{value:.{digits}g}"
    if not 1e-4 <= abs(value) < 1e9 or ("e" not in plain and abs(value) < 1e4):
        return plain
    return f"{float(plain):,.0f}" if abs(value) >= 1e4 else f"{float(plain):.0f}"
