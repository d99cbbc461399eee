"""The result of a check."""

from typing import NamedTuple


class Check(NamedTuple):
    """Numerical check of one claim of the paper."""

    lemma: str
    """The lemma."""
    claim: str
    """The claim."""
    measured: float
    """The measured value."""
    theory: str
    """The theoretical value and the tolerance."""
    passed: bool
    """Whether the measured value is within the tolerance."""
    note: str = ""
    """A remark."""
