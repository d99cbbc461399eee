import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.agents import settings
from priorax.replay import DeviceReplay, Replay, Stored, Transition
from priorax.training.backends.loop import compiled_chunk, prepare, start, without_transitions
from priorax.training.backends.scan import ScanBackend

KEY = jax.random.key(0)


def transition(t):
    """Everything about it tells its time; observations are a pytree of odd dtypes."""
    t = jnp.asarray(t)
    obs = {"pixels": jnp.full((2, 2), t % 256).astype(jnp.uint8), "place": t.astype(jnp.int16)}
    return Transition(obs, t % 3, t.astype(float), obs, t % 2 == 0)


def make(capacity, num_streams, mask_prob, **more):
    return DeviceReplay(Replay(capacity, num_streams, capacity, mask_prob=mask_prob, **more))


def filled(replay, count):
    def add(buffer, t):
        return replay.add(buffer, Stored(transition(t)), jax.random.fold_in(KEY, t)), None

    return jax.jit(lambda: jax.lax.scan(add, replay.init(Stored(transition(0))), jnp.arange(count))[0])()


def masks_of(settings, count):
    keys = [jax.random.fold_in(KEY, t) for t in range(count)]
    return np.stack([jax.random.bernoulli(k, settings.mask_prob, (settings.num_streams,)) for k in keys])


def often(draw, buffer, times):
    """What that many minibatches give, one after the other along their last axis."""
    found = jax.jit(jax.vmap(lambda key: draw(buffer, key)))(jax.random.split(jax.random.key(1), times))
    return jax.tree.map(lambda leaf: jnp.concatenate(list(leaf), axis=-1), found)


@pytest.mark.parametrize("count", [3, 16, 17, 45])
@pytest.mark.parametrize("mask_prob", [0.5, pytest.param(0.2, marks=pytest.mark.slow), 1.0])
def test_each_stream_samples_exactly_its_own_stored_transitions(count, mask_prob):
    """Against the paper's K separate buffers: every own transition turns up, nothing else does, alike often."""
    replay = make(16, 4, mask_prob, shared_batch=False)
    buffer = filled(replay, count)
    mask = masks_of(replay.settings, count) if mask_prob < 1 else np.ones((count, 4), bool)
    times = np.asarray(replay.get(buffer, often(replay.own_slots, buffer, 250)).transition.reward)
    assert times.shape == (4, 4000)
    for k in range(4):
        own = {t for t in range(max(0, count - 16), count) if mask[t, k]}
        assert int(replay.counts(buffer)[k]) == len(own)
        if own:
            found, counts = np.unique(times[k], return_counts=True)
            assert set(found.astype(int)) == own
            assert counts.std() < 6 * np.sqrt(4000 / len(own))


def test_what_is_read_is_what_was_inserted():
    replay = make(8, 2, 0.5)
    got = replay.get(filled(replay, 13), jnp.arange(8)).transition
    times = np.asarray(got.reward).astype(int)
    assert sorted(times) == list(range(5, 13))
    assert got.obs["pixels"].dtype == jnp.uint8
    np.testing.assert_array_equal(got.obs["pixels"][:, 0, 0], times)
    np.testing.assert_array_equal(got.obs["place"], times)
    np.testing.assert_array_equal(got.terminated, times % 2 == 0)


def test_shared_minibatches_carry_weights_of_mean_one():
    replay = make(500, 6, 0.5)
    slots, weight = often(replay.shared_slots, filled(replay, 400), 8)
    assert slots.shape == (4000,) and int(slots.max()) < 400
    assert set(np.unique(weight)) == {0.0, 2.0}
    np.testing.assert_allclose(np.asarray(weight).mean(axis=1), 1, atol=0.2)


def test_masks_are_drawn_once_and_memory_of_observations_does_not_grow_with_k():
    small, large = (make(64, k, 0.5).init(Stored(transition(0))) for k in (1, 20))
    sizes = [sum(leaf.nbytes for leaf in jax.tree.leaves(b.data.transition)) for b in (small, large)]
    assert sizes[0] == sizes[1]
    a, b = filled(make(64, 3, 0.5), 50), filled(make(64, 3, 0.5), 50)
    np.testing.assert_array_equal(a.data.mask, b.data.mask)


def test_a_million_transitions_of_20_members_fit_in_a_gigabyte():
    state = jnp.zeros((), jnp.int32)
    example = Stored(Transition(state, state, jnp.zeros(()), state, jnp.zeros((), bool)))
    shape = jax.eval_shape(lambda: DeviceReplay(Replay(1_000_000, 20, mask_prob=0.5)).init(example))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shape)) < 0.2e9


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="capacity=0 must be"):
        Replay(0, 2)
    with pytest.raises(ValueError, match=r"mask_prob=1.5 must be above 0 and at most 1"):
        Replay(5, 2, 5, mask_prob=1.5)


@pytest.mark.parametrize("count", [100, pytest.param(150, marks=pytest.mark.slow), 400])
def test_prioritised_draws_are_in_proportion_to_error_to_a_power(count):
    """More transitions than a node of the tree has branches, before and after the ring is full."""
    replay = make(150, 2, 1.0, priority=0.5, importance=1.0)
    buffer = filled(replay, count)
    assert len(buffer.priority) == 2
    stored = min(count, 150)
    error = (1.0 + jnp.arange(stored) % 7) ** 2
    buffer = replay.prioritise(buffer, jnp.arange(stored), error)
    slots, weight = often(replay.shared_slots, buffer, 400)
    assert slots.shape == (60_000,)
    share = np.bincount(slots, minlength=150) / 60_000
    want = np.sqrt(np.asarray(error) + 1e-3)
    want = want / want.sum()
    assert share[stored:].sum() == 0
    np.testing.assert_allclose(share[:stored], want, atol=5 * np.sqrt(want.max() / 60_000))
    # with importance 1 the weights undo the priorities: weighted, every transition counts alike
    counted = np.bincount(slots, weight[0], minlength=150)[:stored]
    np.testing.assert_allclose(counted / counted.mean(), 1.0, atol=0.45)
    assert float(weight.max()) == 1.0


def test_a_new_transition_gets_the_highest_priority_so_far():
    replay = make(10, 1, 1.0, priority=1.0)
    buffer = replay.prioritise(filled(replay, 3), jnp.array([1]), jnp.array([9.0]))
    buffer = replay.add(buffer, Stored(transition(3)), KEY)
    np.testing.assert_allclose(buffer.priority[0].ravel()[:5], [1, 9.001, 1, 9.001, 0])


def test_a_run_cut_inside_a_chunk_equals_one_in_small_chunks_when_replay_is_full():
    """A chunk that goes too far is taken back, although its transitions had overwritten older ones."""

    def run(chunk):
        chosen = settings("bsp", num_members=2, capacity=50, batch_size=16, priority=0.6)
        backend = ScanBackend(*prepare("bsp", chosen, "deep_sea", 6, 0), chunk=chunk)
        done = False
        while not done:
            done = any(ended.step >= 90 for ended in backend.advance(None, lambda ended: ended.step >= 90))
        return backend.live

    long, short = run(1000), run(4)
    assert int(long.step) == 90
    for a, b in zip(jax.tree.leaves(long), jax.tree.leaves(short), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"mask_prob": 1.0}, {"mask_prob": 0.5}, {"mask_prob": 0.5, "shared_batch": False}])
def test_no_step_of_a_compiled_run_copies_what_replay_stores(changes):
    capacity = 4099
    own = {"priority": 0.0} if changes.get("shared_batch") is False else {}
    chosen = settings("bs", "swingup", num_members=3, capacity=capacity, **own, **changes)
    loop, key, params = prepare("bs", chosen, "cartpole_swingup", 1, 0)
    light, transitions = without_transitions(start(loop, key, params))
    program = compiled_chunk.lower((loop, key, params, light, None), transitions, 10).compile().compiled.as_text()
    in_loops = program[: program.index("\nENTRY ")]
    copied = re.findall(rf"= (\w+\[(?:\d+,)?{capacity}[,\]]\S*) copy\(", in_loops)
    assert f"[{capacity}" in in_loops
    assert not copied
