"""Compiled programs are kept for the length of a test run and shared by its workers; and whole calls are compiled,
since the parts one by one would cost a compilation each."""

import os
import tempfile

import equinox as eqx
import jax
import pytest

FOLDER = os.environ.setdefault("PRIORAX_CACHE", tempfile.mkdtemp(prefix="priorax-tests-"))


def pytest_configure(config):
    from priorax.caching import enable_compilation_cache

    enable_compilation_cache(FOLDER)


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """A compiled program holds dozens of memory maps, and a process may have 65,530: past that the compiler crashes."""
    yield
    jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(0)


init = eqx.filter_jit(lambda belief, key, x: belief.init(key, x))
update = eqx.filter_jit(lambda belief, state, batch, key: belief.update(state, batch, key))
forward = eqx.filter_jit(lambda belief, state, x, key: belief.forward(state, key, x, shared=True))
observe = eqx.filter_jit(lambda belief, state, batch: belief.observe(state, batch))
