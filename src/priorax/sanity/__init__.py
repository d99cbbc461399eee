"""The paper's lemmas as executable checks: measurements against theory, one row each."""

import functools
from collections.abc import Callable, Iterator

from priorax.sanity.check import Check
from priorax.sanity.distributional import lemma_5
from priorax.sanity.dropout import appendix_c1, lemma_1, lemma_4
from priorax.sanity.posterior import index_posterior, lemma_3
from priorax.sanity.variational import lemma_2

__all__ = ["LEMMAS", "Check", "run_checks"]

LEMMAS: dict[str, Callable[[], Iterator[Check]]] = {
    "lemma 1": lemma_1,
    "appendix C.1": appendix_c1,
    "lemma 2": lemma_2,
    "lemma 3": lemma_3,
    "hypermodel": functools.partial(index_posterior, "hypermodel"),
    "epinet": functools.partial(index_posterior, "epinet"),
    "lemma 4": lemma_4,
    "lemma 5": lemma_5,
}
"""The checks of each lemma, and of the posteriors of hypermodels and epinets."""


def run_checks(report: Callable[[float, str], None] = lambda share, what: None) -> list[Check]:
    """Run the checks of all lemmas.

    Args:
        report: Called with the fraction of work done and the current lemma.

    Returns:
        The checks.
    """
    checks: list[Check] = []
    for done, (name, lemma) in enumerate(LEMMAS.items()):
        report(done / len(LEMMAS), name)
        checks.extend(lemma())
    report(1.0, "done")
    return checks
