"""Dates in tables: read from text, counted in days since 1970-01-01 (UTC), and encoded as positions in cycles."""

import datetime
import math
import re
from collections.abc import Collection

import numpy as np

ISO = "iso"
"""The format of ISO 8601: 2024-01-31, 2024-01-31 12:30, 2024-01-31T12:30:45Z."""
DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
FORMATS = (ISO, *(day + time for day in DAYS for time in ("", " %H:%M", " %H:%M:%S")))
"""Formats in which dates are read from text; but for ISO 8601, those of `datetime.strptime`."""
AMBIGUOUS = "day or month first"
"""Stands for the format of dates that could be read with the day or with the month first."""
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}
"""Cycles that dates have a position in, and their lengths in days."""
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ].+)?", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def days(word: str, format: str) -> float | None:
    """Read a date.

    Args:
        word: The text.
        format: One of `FORMATS`.

    Returns:
        Days since 1970-01-01; None if it is not a date in that format. A time without a zone counts as UTC.
    """
    try:
        if format == ISO:
            found = datetime.datetime.fromisoformat(word) if _ISO.fullmatch(word) else None
        else:
            found = datetime.datetime.strptime(word, format)
    except (ValueError, OverflowError):
        return None
    return None if found is None else days_of(found)


def days_of(moment: datetime.date) -> float:
    """Count the days since 1970-01-01.

    Args:
        moment: A date, or a date with a time.

    Returns:
        The days, with a fraction for the time of day.
    """
    if not isinstance(moment, datetime.datetime):
        moment = datetime.datetime(moment.year, moment.month, moment.day)
    aware = moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment
    return (aware - _EPOCH) / datetime.timedelta(days=1)


def as_text(number: float) -> str:
    """Write a date in ISO 8601.

    Args:
        number: Days since 1970-01-01.

    Returns:
        The date, with the time to the minute unless it is midnight; the number itself if there is no such date.
    """
    try:
        moment = _EPOCH + datetime.timedelta(minutes=round(number * 24 * 60))
    except (OverflowError, ValueError):
        return f"day {number:g}"
    return moment.strftime("%Y-%m-%d" if moment.time() == datetime.time() else "%Y-%m-%d %H:%M")


def as_written(format: str) -> str:
    """Show what a format looks like.

    Args:
        format: One of `FORMATS`.

    Returns:
        A date in that format.
    """
    example = datetime.datetime(2024, 1, 31, 12, 30)
    return example.strftime("%Y-%m-%d" if format == ISO else format)


def format_of(words: Collection[str]) -> str | None:
    """Find the format in which all texts, or at least nine tenths of them, are dates.

    Args:
        words: The texts, none of them empty.

    Returns:
        The format, or the one in which most are dates; None if they are no dates, `AMBIGUOUS` if all are dates with the
        day first and with the month first.
    """
    best, least = None, math.inf
    for format in FORMATS:
        wrong = 0
        for word in words:
            wrong += days(word, format) is None
            if wrong > 0.1 * len(words):
                break
        else:
            if wrong == least == 0:
                return AMBIGUOUS
            if words and wrong < least:
                best, least = format, wrong
    return best


def cycles_of(numbers: np.ndarray) -> tuple[str, ...]:
    """Choose the cycles that dates tell something about.

    Args:
        numbers: Days since 1970-01-01, all finite.

    Returns:
        `year` if they span more than a year, `week` if they are on all seven days of the week, and `day` if they have
        times of day.
    """
    whole = np.floor(numbers)
    chosen = {
        "year": np.ptp(numbers) > CYCLES["year"],
        "week": len(np.unique(whole % 7)) == 7,
        "day": len(np.unique(numbers - whole)) > 1,
    }
    return tuple(name for name, fits in chosen.items() if fits)


def positions(numbers: np.ndarray, cycle: str) -> np.ndarray:
    """Compute the positions of dates in a cycle.

    Args:
        numbers: Days since 1970-01-01 [row]; NaN where missing.
        cycle: `year`, `week` or `day`.

    Returns:
        Sine and cosine of the position [row, 2]; zeros where the date is missing.
    """
    angle = 2 * math.pi * (numbers % CYCLES[cycle]) / CYCLES[cycle]
    return np.nan_to_num(np.stack([np.sin(angle), np.cos(angle)], axis=1), nan=0.0)
