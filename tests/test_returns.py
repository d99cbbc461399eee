"""N-step returns and the tree of sums: each written once, for NumPy and for JAX."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.replay import sum_tree
from priorax.replay.base import Window, n_step_return

BOTH = pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])


@BOTH
@pytest.mark.parametrize("n", [1, 3, 5])
def test_a_return_is_what_summing_step_by_step_gives(xp, n):
    rng = np.random.default_rng(0)
    reward = rng.normal(size=(n, 200))
    terminated = rng.random((n, 200)) < 0.15
    ended = terminated | (rng.random((n, 200)) < 0.15)
    stored = rng.integers(1, n + 1, 200)
    rows = tuple(xp.asarray(part) for part in (reward, terminated, ended))
    found = n_step_return(xp, n, 0.9, lambda j: Window(*(part[j] for part in rows)), lambda j: xp.asarray(stored > j))
    for i in range(200):
        total, left, j = 0.0, 0.0, 0
        while True:
            total, left = total + 0.9**j * reward[j, i], 0.0 if terminated[j, i] else 0.9 ** (j + 1)
            if ended[j, i] or j + 1 == n or stored[i] <= j + 1:
                break
            j += 1
        np.testing.assert_allclose([found.reward[i], found.discount[i], found.last[i]], [total, left, j], rtol=1e-5)


@BOTH
def test_sums_stay_true_through_many_changes(xp):
    rng, levels, truth = np.random.default_rng(0), sum_tree.empty(xp, 10_000), np.zeros(10_000)
    write = functools.partial(sum_tree.write, xp)
    write = jax.jit(write) if xp is jnp else write
    for _ in range(200):
        place = rng.choice(10_000, 50, replace=False)
        value = rng.random(50) * (rng.random(50) < 0.8)
        levels = write(levels, xp.asarray(place), xp.asarray(value))
        truth[place] = value
    np.testing.assert_allclose(sum_tree.read(levels, np.arange(10_000)), truth, rtol=1e-6)
    for below, above in itertools.pairwise(levels):
        np.testing.assert_allclose(above.ravel()[: len(below)], below.sum(axis=1), rtol=1e-5)
    places, share = (np.asarray(part) for part in sum_tree.draw(xp, levels, xp.asarray(rng.random(1000))))
    np.testing.assert_allclose(share, truth[places] / truth.sum(), rtol=1e-4)
    ends = np.array([0.0, 1 - 2**-24 if xp is jnp else 1 - 1e-16])
    assert np.all(truth[np.asarray(sum_tree.draw(xp, levels, xp.asarray(ends))[0])] > 0)


@BOTH
def test_draws_are_in_proportion(xp):
    values = np.array([1.0, 0.0, 2.0, 5.0] * 50)
    levels = sum_tree.write(xp, sum_tree.empty(xp, 200), xp.arange(200), xp.asarray(values))
    uniform = xp.asarray((np.arange(40_000) + 0.5) / 40_000)
    counts = np.bincount(np.asarray(sum_tree.draw(xp, levels, uniform)[0]), minlength=200)
    np.testing.assert_allclose(counts, 40_000 * values / values.sum(), atol=2)
