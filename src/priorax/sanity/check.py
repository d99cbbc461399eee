"""What a check says."""

from typing import NamedTuple


class Check(NamedTuple):
    """One measured statement of the paper."""

    lemma: str
    claim: str
    measured: float
    theory: str
    """The theoretical value and the tolerance, in words."""
    passed: bool
    note: str = ""
