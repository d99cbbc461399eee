"""Row-sparse Adam against dense Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conftest import init, update
from priorax.beliefs import L2, Adam, Batch, Ensemble
from priorax.beliefs.sparse_rows import Rows, fresh, read, write
from priorax.networks import MLP, Table

KEY = jax.random.key(0)
ADAM = Adam(1e-2)


@pytest.mark.parametrize("b1", [0.9, 0.0])
def test_a_table_touched_now_and_then_follows_dense_adam(b1):
    """400 steps, each touching 3 of 12 rows, some twice: always within half a step of Adam (the drift is of the first
    steps, where the bias correction changes fast), and at the end within 2% of the distance travelled."""
    random = np.random.default_rng(0)
    start = jnp.asarray(random.standard_normal((12, 4)))
    adam, optimizer = Adam(1e-2, b1=b1), optax.adam(1e-2, b1=b1)
    dense, opt, rows = start, optimizer.init(start), fresh(start)

    @jax.jit
    def step(dense, opt, rows, x, g, t):
        gradient = jnp.zeros_like(dense).at[x].add(g)
        updates, opt = optimizer.update(gradient, opt)
        rows = write(adam, rows, x, read(adam, rows, x, t), g, t + 1)
        return dense + updates, opt, rows, read(adam, rows, jnp.arange(12), t + 1)

    for t in range(400):
        x = jnp.asarray(random.integers(0, 12, 3))
        g = jnp.asarray(random.standard_normal((3, 4)) + 0.5)
        dense, opt, rows, seen = step(dense, opt, rows, x, g, jnp.asarray(t))
        assert float(jnp.abs(seen - dense).max()) < 0.5 * adam.learning_rate, t
    assert float(jnp.abs(seen - dense).max()) < 0.02 * float(jnp.abs(dense - start).max())


def test_rows_touched_at_every_step_are_dense_adam_exactly():
    random = np.random.default_rng(1)
    start = jnp.asarray(random.standard_normal((3, 2)))
    optimizer = optax.adam(1e-2)
    dense, opt, rows, x = start, optimizer.init(start), fresh(start), jnp.array([0, 1, 2, 1])
    for t in range(20):
        g = jnp.asarray(random.standard_normal((4, 2)))
        updates, opt = optimizer.update(jnp.zeros_like(dense).at[x].add(g), opt)
        dense = dense + updates
        rows = write(ADAM, rows, x, read(ADAM, rows, x, jnp.asarray(t)), g, jnp.asarray(t + 1))
    np.testing.assert_allclose(read(ADAM, rows, jnp.arange(3), jnp.asarray(20)), dense, atol=1e-5)


def test_outside_the_table_is_zero_and_cannot_be_written():
    rows = fresh(jnp.ones((3, 2)))
    assert isinstance(rows, Rows)
    np.testing.assert_array_equal(read(ADAM, rows, jnp.array([-1, 3]), jnp.asarray(5)), 0)
    x = jnp.array([3])
    after = write(ADAM, rows, x, read(ADAM, rows, x, jnp.asarray(0)), jnp.ones((1, 2)), jnp.asarray(1))
    np.testing.assert_array_equal(after.weight, rows.weight)


@pytest.mark.parametrize("sparse_rows", ["own", "shared"])
def test_an_ensemble_with_sparse_rows_learns_as_one_without(sparse_rows):
    shared = sparse_rows == "shared"
    network = Table(40, (6, 5))
    settings = {"num_members": 3, "network": network, "prior": network, "num_outputs": 2, "optimizer": ADAM}
    dense, sparse = Ensemble(**settings), Ensemble(**settings, sparse_rows=sparse_rows)
    states = [init(belief, KEY, jnp.asarray(0)) for belief in (dense, sparse)]
    random = np.random.default_rng(0)
    cells = jnp.arange(41)
    values = jax.jit(lambda b, s: b.forward(s, KEY, cells, shared=True))
    np.testing.assert_array_equal(values(dense, states[0]), values(sparse, states[1]))
    for _ in range(60):
        shape = (16,) if shared else (3, 16)
        batch = Batch(
            jnp.asarray(random.integers(0, 40, shape)),
            jnp.asarray(random.standard_normal((3, 16))),
            jnp.ones((3, 16)),
            jnp.full(3, 16.0),
            jnp.asarray(random.integers(0, 2, shape)),
            shared=shared,
        )
        (states[0], a), (states[1], b) = (
            update(belief, state, batch, KEY) for belief, state in zip((dense, sparse), states, strict=True)
        )
        np.testing.assert_allclose(a.loss, b.loss, rtol=0.05, atol=5e-3)
    np.testing.assert_allclose(values(dense, states[0]), values(sparse, states[1]), atol=0.05)


def test_it_is_refused_where_untouched_rows_have_a_gradient():
    table = {"network": Table(3)}
    for settings in ({"network": MLP((3,))}, {**table, "l2": L2()}, {**table, "optimizer": optax.sgd(1.0)}):
        with pytest.raises(ValueError, match="sparse_rows='own' needs"):
            Ensemble(**settings, sparse_rows="own")


def test_it_is_refused_where_rows_without_gradient_would_move_by_growing_steps():
    with pytest.raises(ValueError, match=r"b1=0\.9 is too large for b2=0\.5.*raise b2"):
        Ensemble(network=Table(3), optimizer=Adam(b2=0.5), sparse_rows="own")
