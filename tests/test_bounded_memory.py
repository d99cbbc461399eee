"""What grows with a run is bounded in memory: the cells it has seen, and its rows."""

import pickle

import numpy as np
import pytest

from priorax.training.distinct import Distinct
from priorax.training.history import History
from priorax.training.records import Episode


def numbers(first, end):
    return [i.to_bytes(8) for i in range(first, end)]


def test_few_cells_are_counted_exactly():
    found = Distinct(exact=1000)
    found.update(numbers(0, 900))
    found.update(numbers(500, 1000))
    assert len(found) == 1000


@pytest.mark.parametrize("count", [1_200, 20_000, 300_000])
def test_many_cells_are_counted_to_three_percent_in_little_memory(count):
    found = Distinct(exact=1000)
    seen = []
    for first in range(0, count, 1000):
        found.update(numbers(first, min(first + 1000, count)))
        seen.append(len(found))
    assert len(found) == pytest.approx(count, rel=0.03)
    assert seen == sorted(seen)
    found.update(numbers(0, count))
    assert len(found) == seen[-1]
    assert len(pickle.dumps(found)) < 40_000


def row(i):
    """Of an environment on the host, which tells no regret."""
    loss = None if i < 5 else 0.1 * i
    return Episode(i, 10 * i, i % 3, float(np.sin(i)), i % 7, loss, 2 * i, None, None, None)


@pytest.mark.parametrize("count", [0, 500, 5000], ids=["none", "exact", "approximate"])
def test_what_was_seen_goes_on_from_a_file(count):
    found, again = Distinct(exact=1000), Distinct(exact=1000)
    found.update(str(i).encode() for i in range(count))
    again.restore(found.arrays())
    assert len(again) == len(found)
    for each in (found, again):
        each.update(str(i).encode() for i in range(count // 2, 2 * count))
    assert len(again) == len(found)


def test_a_history_is_a_list_whose_old_rows_are_in_a_file():
    rows = [row(i) for i in range(1, 96)]
    found = History(Episode, rows[:50], kept=10)
    for each in rows[50:]:
        found.append(each)
    assert len(found) == 95 and list(found) == rows and found == rows and rows == found
    assert all(found[i] == rows[i] for i in (0, 9, 10, 79, 80, 94, -1, -95))
    for part in (slice(None), slice(-20, None), slice(3, 90, 7), slice(70, 85), slice(90, 3, -5), slice(200, 300)):
        assert found[part] == rows[part]
    with pytest.raises(IndexError):
        found[95]
    assert found.ends(5) == rows[:5] + rows[-5:] and found.ends(50) == rows
    assert found.best == max(each.total_return for each in rows)
    assert isinstance(found[2], Episode) and isinstance(found[2].episode, int)
    assert found != rows[:-1] and found != History(Episode, rows[1:], kept=10)
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again.best == found.best
    assert "95 rows" in repr(found)


def test_rows_of_the_compiled_loop_come_back_to_the_bit():
    rows = [
        Episode(i, 5 * i, 0, 0.1 * i, 5, 0.3 / (i + 1), None, i % 2 == 0, i % 3 == 0, 1 / (i + 1)) for i in range(50)
    ]
    found = History(Episode, rows, kept=5)
    assert list(found) == rows and all(isinstance(each.bad, bool) for each in found)


def test_memory_holds_no_more_than_twice_what_is_kept():
    found = History(Episode, kept=10)
    for i in range(1000):
        found.append(row(i))
        assert len(found) == i + 1
    lists = [part for part in vars(found).values() if isinstance(part, list)]
    assert sum(isinstance(each, Episode) for part in lists for each in part) < 20
