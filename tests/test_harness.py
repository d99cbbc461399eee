"""The tests' own set-up: what is kept between runs, and who runs what."""

import os

import pytest

from conftest import FOLDER, prune


def test_the_cache_is_bounded_and_what_was_used_last_stays(tmp_path):
    for age, name in enumerate(("new", "middle", "old")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    os.utime(tmp_path / "old", (2e9, 1e9 - 9))  # written first, read last
    assert prune(tmp_path, 300) == 0
    assert prune(tmp_path, 250) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_processes_that_tests_start_find_the_cache():
    assert os.environ["PRIORAX_CACHE"] == FOLDER


def test_one_worker_runs_a_file(request):
    here = [item for item in request.session.items if item.path == request.path]
    assert {item.get_closest_marker("xdist_group").args for item in here} == {("test_harness",)}
    if request.config.getoption("loadgroup", False):  # in a worker, whose groups are told by names
        assert request.node.nodeid.endswith("@test_harness"), (
            "pytest-xdist does not group; see pytest in pyproject.toml"
        )


@pytest.fixture
def browser():
    """As those that start one are called."""


def test_what_needs_a_browser_is_slow(browser, request):
    assert request.node.get_closest_marker("slow") is not None
