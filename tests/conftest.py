"""Compiled programs are kept in the checkout from one run to the next and shared by all workers; and whole calls are
compiled, since the parts one by one would cost a compilation each."""

import os
import time
from pathlib import Path

import equinox as eqx
import jax
import pytest

FOLDER = os.environ.setdefault("PRIORAX_CACHE", str(Path(__file__).parent.parent / ".cache" / "tests"))
"""Of compiled programs; processes that tests start find it in the environment."""
SLOW_FIXTURES = {"ray", "browser"}
MOST_BYTES = 2 * 2**30
"""A cache that holds more loses what was not used for longest when a run of the tests begins."""
MOST_MAPS = 10_000
"""A compiled program holds dozens of memory maps, and a process may have 65,530: past that the compiler crashes. A file
of tests adds up to 25,000, and 20,000 go with some 3.5 GB of memory."""


def prune(folder, most_bytes=MOST_BYTES):
    """Delete the files that were not read or written for longest, until the rest holds at most so many bytes.

    Args:
        folder: Where compiled programs are kept, directly and not in folders of it.
        most_bytes: What may stay.

    Returns:
        How many files were deleted.
    """
    found = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    found.sort(key=lambda pair: max(pair[1].st_atime, pair[1].st_mtime), reverse=True)
    total, deleted = 0, 0
    for path, status in found:
        total += status.st_size
        if total > most_bytes:
            path.unlink(missing_ok=True)
            deleted += 1
    return deleted


def pytest_configure(config):
    from priorax.caching import enable_compilation_cache

    folder = enable_compilation_cache(FOLDER)
    if not hasattr(config, "workerinput"):  # once, before there are workers
        prune(folder)


@pytest.hookimpl(tryfirst=True)  # before tests are selected, and groups become part of names
def pytest_collection_modifyitems(items):
    """What needs a cluster or a browser is slow. Tests of one file share what they compile and train, so that one
    worker runs them all, unless they say otherwise."""
    for item in items:
        if SLOW_FIXTURES & set(item.fixturenames):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """After a file of tests, if this process holds many memory maps; where they cannot be counted, after every one."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def compilations():
    """Names of the functions that are compiled during a test."""
    names = []

    def note(event, seconds, **about):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(about.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


def sweep_row(item):
    """How a sweep's rows file names a run (`experiments.sweep`)."""
    from priorax.experiments.sweep import ROWS_VERSION, fingerprint, hyperparameters

    spec = item.arguments
    return {
        "rows_version": ROWS_VERSION,
        "name": item.name,
        "agent": spec["agent"],
        "env": spec.get("game") or spec["env"],
        "size": spec["size"],
        "seed": spec["seed"],
        "most_episodes": spec["episodes"] if "episodes" in spec else f"{spec['steps']} steps",
        "learned_after": spec.get("learned_after", 1),
        "preset": spec.get("preset", "tuned"),
        "changes": " ".join(f"{name}={value}" for name, value in sorted(spec["changes"].items())),
        "settings": fingerprint(hyperparameters(item)),
    }


def write_sweep(path, rows, items):
    """Write rows and the settings of their runs, as a sweep does."""
    import json

    from priorax.experiments.sweep import fingerprint, hyperparameters
    from priorax.report.rows import write_rows

    write_rows(path, rows)
    known = {fingerprint(chosen): chosen for chosen in map(hyperparameters, items)}
    path.with_suffix(".settings.json").write_text(json.dumps(known))


@pytest.fixture
def key():
    return jax.random.key(0)


init = eqx.filter_jit(lambda belief, key, x: belief.init(key, x))
update = eqx.filter_jit(lambda belief, state, batch, key: belief.update(state, batch, key))
forward = eqx.filter_jit(lambda belief, state, x, key: belief.forward(state, key, x, shared=True))
observe = eqx.filter_jit(lambda belief, state, batch: belief.observe(state, batch))


def until(happens, process=None, seconds=600):
    """Wait for a condition, while a process runs."""
    deadline = time.monotonic() + seconds
    while not (found := happens()):
        assert time.monotonic() < deadline, "waited for too long"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.1)
    return found
