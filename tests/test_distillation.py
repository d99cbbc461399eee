"""Random network distillation: the bonus falls where inputs were seen, and there alone; agents that are paid it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_counting_on_host import FEW, Corridor

from conftest import init, observe
from priorax import Explorer, storage
from priorax.agents import build, settings
from priorax.beliefs import Adam, Distillation, Ensemble, ExactBayes, plain_batch
from priorax.envs.interface import TaskSpec
from priorax.networks import MLP, Table
from priorax.priors import Tabulated
from priorax.replay import Transition

KEY = jax.random.key(0)
STATES = jnp.arange(6)


def distillation(sparse_rows="shared", rate=0.01):
    network = Table(6, (8,))
    predictor = Ensemble(
        1, network, Tabulated(network, 6), num_outputs=4, optimizer=Adam(rate), sparse_rows=sparse_rows
    )
    return Distillation(Ensemble(1, Table(6, (3,)), num_outputs=2), predictor, bonus_scale=0.5)


@eqx.filter_jit
def seen(belief, state, x, times):
    """The state after a state was observed so many times, one by one."""
    batch = plain_batch(x[None], jnp.zeros((1, 2)))
    return jax.lax.fori_loop(0, times, lambda _, state: belief.observe(state, batch), state)


def test_the_bonus_falls_where_inputs_were_seen_and_the_more_often_the_more():
    belief = distillation()
    start = init(belief, KEY, jnp.asarray(0))
    before = belief.error(start, STATES)
    few, many = (seen(belief, start, jnp.asarray(2), times) for times in (20, 300))
    after, late = belief.error(few, STATES), belief.error(many, STATES)
    assert after[2] < before[2] and late[2] < 0.05 * before[2]
    others = np.delete(np.arange(6), 2)
    assert np.median(np.asarray(late)[others]) > 10 * late[2]
    bonus = belief.reward_bonus(many, STATES)
    assert np.all(np.asarray(bonus)[others].max() > 20 * bonus[2]) and float(many.aux.visits) == 300


def test_the_bonus_is_the_error_over_the_root_mean_square_of_errors_at_their_first_sight():
    belief = distillation()
    start = init(belief, KEY, jnp.asarray(0))
    errors = np.asarray(belief.error(start, STATES[:2]))
    state = observe(belief, start, plain_batch(STATES[:2], jnp.zeros((2, 2))))
    scale = np.sqrt(np.mean(errors**2))
    expected = 0.5 * np.asarray(belief.error(state, STATES)) / scale
    np.testing.assert_allclose(belief.reward_bonus(state, STATES), expected, rtol=1e-5)
    np.testing.assert_allclose(belief.spread(state, KEY, STATES), np.tile(expected[:, None], 2), rtol=1e-5)
    plain = belief.base.functions(state, KEY, STATES)
    np.testing.assert_allclose(belief.functions(state, KEY, STATES), plain + expected[:, None], rtol=1e-5)
    fresh = 0.5 * np.asarray(belief.error(start, STATES))
    np.testing.assert_allclose(belief.reward_bonus(start, STATES), fresh, rtol=1e-5, err_msg="nothing was met yet")


def test_the_fixed_network_stays_and_values_do_not_see_the_predictor():
    belief = distillation()
    start = init(belief, KEY, jnp.asarray(0))
    state = seen(belief, start, jnp.asarray(1), 10)
    fixed, now = (jax.tree.leaves(each.aux.predictor.frozen) for each in (start, state))
    assert all(bool(jnp.all(a == b)) for a, b in zip(fixed, now, strict=True))
    same = zip(jax.tree.leaves(start.params), jax.tree.leaves(state.params), strict=True)
    assert all(bool(jnp.all(a == b)) for a, b in same)


def test_a_lane_without_a_transition_teaches_nothing():
    belief = distillation()
    start = seen(belief, init(belief, KEY, jnp.asarray(0)), jnp.asarray(1), 5)
    batch = plain_batch(STATES[:3], jnp.zeros((3, 2)))
    nothing = observe(belief, start, eqx.tree_at(lambda b: b.weight, batch, jnp.zeros((1, 3))))
    pairs = zip(jax.tree.leaves(nothing), jax.tree.leaves(start), strict=True)
    assert all(bool(jnp.all(a == b)) for a, b in pairs)


def test_sparse_rows_predict_as_dense_ones():
    states = []
    for sparse in ("no", "shared"):
        belief = distillation(sparse)
        state = init(belief, KEY, jnp.asarray(0))
        for x, times in ((1, 5), (2, 3), (1, 4)):
            state = seen(belief, state, jnp.asarray(x), times)
        states.append(belief.error(state, STATES))
    np.testing.assert_allclose(*states, rtol=0.05)


def test_a_bonus_at_insertion_is_that_of_the_predictor_before():
    agent = build("rnd", settings("rnd", bonus_at="insertion"), TaskSpec(2, 6))
    state = jax.jit(agent.init)(KEY, jnp.asarray(0))
    zero = jnp.zeros(1)
    ends = zero.astype(bool)
    step = Transition(jnp.array([3]), zero.astype(int), zero, jnp.array([4]), ends, ends)
    after, bonus = jax.jit(agent.observe)(state, step, jnp.ones(1))
    np.testing.assert_allclose(bonus, agent.belief.reward_bonus(state.belief, jnp.array([3])), rtol=1e-5)
    assert float(after.belief.aux.visits) == 1


def test_on_the_host_every_visit_is_learned_from_and_goes_on_from_a_checkpoint(tmp_path):
    agent = Explorer(Corridor, "rnd", **FEW).learn(100)
    assert float(agent.state.belief.aux.visits) == agent.steps == 100
    agent.save(tmp_path)
    again = Explorer.load(tmp_path, Corridor)
    pairs = zip(jax.tree.leaves(again.state.belief.aux), jax.tree.leaves(agent.state.belief.aux), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert float(again.learn(20).state.belief.aux.visits) == 120


@pytest.mark.slow
def test_from_pixels_the_predictor_has_a_torso_of_its_own():
    pictures = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 1, 24, 24)), jnp.uint8)
    chosen = settings("rnd", torso="small", features=8, widths=(), batch_size=4, capacity=16, predictor_rate=0.01)
    belief = build("rnd", chosen, TaskSpec(2)).belief
    state = jax.jit(belief.init)(KEY, pictures[0])
    before = belief.error(state, pictures)
    batch = plain_batch(pictures[:1], jnp.zeros((1, 2)))
    state = jax.jit(lambda state: jax.lax.fori_loop(0, 30, lambda _, s: belief.observe(s, batch), state))(state)
    assert belief.error(state, pictures)[0] < 0.5 * before[0]


def test_a_belief_with_distillation_is_stored(tmp_path):
    belief = distillation()
    state = seen(belief, init(belief, KEY, jnp.asarray(0)), jnp.asarray(2), 3)
    storage.save(tmp_path / "belief", belief, state, jnp.asarray(0))
    loaded, again = storage.load(tmp_path / "belief")
    np.testing.assert_array_equal(loaded.reward_bonus(again, STATES), belief.reward_bonus(state, STATES))


def test_bad_settings_are_refused_by_name():
    with pytest.raises(ValueError, match="predictor=Ensemble with prior=None has no fixed network to predict; pass"):
        Distillation(Ensemble(1), Ensemble(1, MLP((3,))))
    with pytest.raises(ValueError, match="base=ExactBayes stores its data in aux, where predictors are stored"):
        Distillation(ExactBayes(), Ensemble(1, MLP((3,)), MLP((3,))))
    with pytest.raises(ValueError, match="bonus='count' is unknown; did you mean 'counts'"):
        settings("rnd", bonus="count")
    with pytest.raises(ValueError, match=r"predictor_rate=0\.0.*above 0; pass"):
        settings("rnd", predictor_rate=0)
    with pytest.raises(ValueError, match="predictor_outputs=0 must be a whole number of at least 1"):
        settings("rnd", predictor_outputs=0)
