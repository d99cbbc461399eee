"""Counting beliefs: what is counted, and what a count is worth."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import init, observe
from priorax.beliefs import Counts, Ensemble, GaussianCount, HashCount, OneHotCount, TableCount, plain_batch
from priorax.networks import MLP, Table

KEY = jax.random.key(0)
spread = eqx.filter_jit(lambda belief, *rest: belief.spread(*rest))
X = jnp.asarray(np.random.default_rng(0).standard_normal((16, 3)))
Y = X[:, :2] ** 2


def test_table_counts_are_visits_and_the_bonus_falls_with_them():
    belief = Counts(Ensemble(num_members=1, network=Table(4, (3,))), TableCount(4), bonus_scale=2.0)
    state = observe(
        belief, init(belief, KEY, jnp.asarray(0)), plain_batch(jnp.array([1, 1, 1, 1, 3]), jnp.zeros((5, 1)))
    )
    np.testing.assert_array_equal(state.aux, [0, 4, 0, 1])
    bonus = [float(belief.bonus(state, jnp.asarray(s))) for s in range(4)]
    np.testing.assert_allclose(bonus, [2 / 0.1, 2 / 2, 2 / 0.1, 2 / 1], rtol=1e-6)
    np.testing.assert_allclose(spread(belief, state, KEY, jnp.arange(4))[:, 0], bonus, rtol=1e-6)


def test_gaussian_pseudocount_is_n_at_the_mean_and_falls_with_mahalanobis_distance():
    belief = Counts(Ensemble(num_members=1, network=MLP((3,))), GaussianCount(ridge=0.0))
    state = observe(belief, init(belief, KEY, X[0]), plain_batch(X, Y[:, :1]))
    mean, cov = X.mean(axis=0), np.cov(X.T, bias=True)
    gap = X[0] - mean
    expected = 16 * np.exp(-0.5 * gap @ np.linalg.solve(cov, gap))
    assert float(belief.density.count(state.aux, mean)) == pytest.approx(16, rel=1e-4)
    assert float(belief.density.count(state.aux, X[0])) == pytest.approx(expected, rel=1e-3)


def pseudocounts(density, x, at):
    """Counts at some inputs after all of x were seen, half of them at once and the others one by one."""
    half = len(x) // 2
    tally = jax.jit(density.add)(density.init(x[0]), x[:half], jnp.ones(half))
    tally = jax.lax.fori_loop(half, len(x), lambda i, tally: density.add(tally, x[i][None], jnp.ones(1)), tally)
    return np.asarray(jax.jit(jax.vmap(lambda row: density.count(tally, row)))(at))


@pytest.mark.parametrize("offset", [0.0, 1000.0, -3e4])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_a_gaussian_pseudocount_does_not_depend_on_where_the_origin_is(offset, scale):
    """Against float64, at inputs far from zero: in float32 sums of squares would lose the spread."""
    random = np.random.default_rng(1)
    x = (offset + scale * random.standard_normal((400, 3)) * [1.0, 0.5, 2.0]).astype(np.float32)
    wide = x.astype(float)
    gap = wide[:50] - wide.mean(axis=0)
    cov = np.cov(wide.T, bias=True) + 1e-3 * np.eye(3)
    expected = 400 * np.exp(-0.5 * np.einsum("ni,ij,nj->n", gap, np.linalg.inv(cov), gap))
    found = pseudocounts(GaussianCount(), jnp.asarray(x), jnp.asarray(x[:50]))
    np.testing.assert_allclose(found, expected, rtol=0.03)


def test_a_gaussian_pseudocount_never_exceeds_what_was_seen():
    """Inputs that hardly differ, or only along one line, however large they are."""
    random = np.random.default_rng(2)
    along = random.standard_normal((100, 1)) * [1000.0, 2000.0, -3000.0, 0.0]
    for x in (along + 1e4, 1e3 + 1e-3 * random.standard_normal((100, 4)), np.full((100, 4), 1e6)):
        x = jnp.asarray(x, jnp.float32)
        found = pseudocounts(GaussianCount(), x, jnp.concatenate([x, x + 5.0]))
        assert np.all(np.isfinite(found)) and np.all(found >= 0) and np.all(found <= 100 * (1 + 1e-5))


def test_an_index_outside_the_table_is_never_counted():
    density = TableCount(4)
    tally = density.add(density.init(jnp.asarray(0)), jnp.array([-1, 0, 4, -4, 99]), jnp.ones(5))
    np.testing.assert_array_equal(tally, [1, 0, 0, 0])
    assert [float(density.count(jnp.full(4, 7.0), jnp.asarray(i))) for i in (-1, 3, 4)] == [0, 7, 0]


def test_an_input_that_is_not_one_hot_is_never_counted():
    density = OneHotCount()
    seen = jnp.array([[0, 1, 0], [0, 0, 0], [0.5, 0.5, 0], [2, -1, 0], [1, 1, 0], [jnp.nan, 1, 0]])
    tally = density.add(density.init(seen[0]), seen[:-1], jnp.ones(5))
    np.testing.assert_array_equal(tally, [0, 1, 0])
    assert [float(density.count(jnp.full(3, 7.0), row)) for row in seen[:4]] == [7, 0, 0, 0]


def test_a_hash_tells_pictures_apart_and_counts_each():
    """One bright cell of a dark picture, at 25 places, visited once, twice, ...: few share a code."""
    pictures = jnp.asarray(255 * np.eye(25).reshape(25, 5, 5), jnp.uint8)
    visits = np.arange(1, 26)
    density = HashCount()
    tally = density.init(pictures[0])
    tally = density.add(tally, jnp.repeat(pictures, visits, axis=0), jnp.ones(visits.sum()))
    counts = np.asarray(jax.vmap(lambda picture: density.count(tally, picture))(pictures))
    assert np.sum(counts == visits) >= 23
    assert float(density.count(tally, jnp.full((5, 5), 255, jnp.uint8))) == 0


def test_a_covariance_of_a_whole_picture_is_refused():
    with pytest.raises(ValueError, match=r"x has 28224 components.*HashCount"):
        GaussianCount().init(jnp.zeros((4, 84, 84)))
    with pytest.raises(ValueError, match="bits=40"):
        HashCount(bits=40)
