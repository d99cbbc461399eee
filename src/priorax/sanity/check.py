"""The result of a check."""

from typing import NamedTuple


class Check(NamedTuple):
    """One statement of the paper, measured."""

    lemma: str
    """The lemma."""
    claim: str
    """What is measured."""
    measured: float
    """The measured value."""
    theory: str
    """The theoretical value and the tolerance."""
    passed: bool
    """Whether the measured value is within the tolerance."""
    note: str = ""
    """A remark."""
