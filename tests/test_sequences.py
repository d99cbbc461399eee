"""Replay on the host, against a plain record of everything that happened."""

import numpy as np
import pytest

from priorax.replay import FrameLayout, FrameReplay, LaneStep, Replay, sum_tree

LANES, STREAMS = 3, 3


def settings_of(capacity=3000, n_step=1, mask_prob=0.5, **more):
    return Replay(capacity, STREAMS, batch_size=50, mask_prob=mask_prob, n_step=n_step, discount=0.9, **more)


def empty(settings, stack=1, seed=0):
    return FrameReplay(settings, FrameLayout(LANES, (), np.dtype(np.int64), stack), seed)


class Record:
    """A random life of several lanes: episodes end, are cut, lives are lost; all of it is remembered in lists."""

    def __init__(self, rounds, seed, restart=None):
        lanes, rng = LANES, np.random.default_rng(seed)
        self.moments = []
        over, first, number = np.zeros(lanes, bool), np.ones(lanes, bool), 0
        for t in range(rounds):
            if restart is not None and t == restart:  # the environments are gone, others begin
                over, first = np.zeros(lanes, bool), np.ones(lanes, bool)
            frame = np.arange(number + 1, number + 1 + lanes)  # every frame its own number, none zero
            number += lanes
            acted = ~over
            terminated = acted & (rng.random(lanes) < 0.15)
            lost = acted & ~terminated & (rng.random(lanes) < 0.1)
            ended = terminated | (acted & (rng.random(lanes) < 0.1))
            reward = np.where(acted, rng.normal(size=lanes), 0).astype(np.float32)
            mask = rng.random((lanes, STREAMS)) < 0.5
            moment = LaneStep(frame, first, rng.integers(0, 4, lanes), reward, terminated | lost, ended, acted, mask)
            self.moments.append(moment)
            first, over = over, ended

    def transitions(self, settings, stack=1):
        """Every transition with a whole return: by the number of its frame."""
        found = {}
        for lane in range(LANES):
            line = [LaneStep(*(None if part is None else part[lane] for part in moment)) for moment in self.moments]
            for t, now in enumerate(line):
                if not now.acted:
                    continue
                total, discount, steps = 0.0, 1.0, 0
                while True:
                    at = line[t + steps]
                    total += discount * at.reward
                    discount *= settings.discount
                    steps += 1
                    if t + steps >= len(line) or line[t + steps].first:
                        break  # the life broke off here
                    if at.terminated or at.ended or steps == settings.n_step:
                        left = 0.0 if at.terminated else discount
                        ends = [self._stack(line, t, stack), self._stack(line, t + steps, stack)]
                        found[int(now.frame)] = (now, total, left, *ends)
                        break
        return found

    @staticmethod
    def _stack(line, t, size):
        frames = []
        while len(frames) < size:
            frames.append(line[t].frame)
            if line[t].first:
                break
            t -= 1
        return ([0] * (size - len(frames)) + frames[::-1]) if size > 1 else frames[0]


def fill(settings, record, stack=1, seed=0):
    replay = empty(settings, stack, seed)
    for moment in record.moments:
        replay.add(moment)
    return replay


@pytest.mark.parametrize("stack, n_step", [(1, 1), (4, 3), (2, 5)])
def test_what_is_drawn_is_what_happened(stack, n_step):
    settings = settings_of(n_step=n_step)
    record = Record(300, seed=stack)
    replay, truth = fill(settings, record, stack), record.transitions(settings, stack)
    assert replay.size == len(truth)
    drawn = replay.sample(size=15_000)
    np.testing.assert_array_equal(drawn.counts, np.sum([now.mask for now, *_ in truth.values()], axis=0))
    newest = drawn.obs if stack == 1 else drawn.obs[:, -1]
    assert set(newest.tolist()) == set(truth)  # all of them, and nothing else
    now, total, left, obs, following = zip(*(truth[frame] for frame in newest.tolist()), strict=True)
    np.testing.assert_array_equal(drawn.action, [step.action for step in now])
    np.testing.assert_allclose(drawn.reward, total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(drawn.discount, left, rtol=1e-6)
    np.testing.assert_array_equal(drawn.obs, obs)
    goes_on = np.array(left) > 0
    assert goes_on.any()
    np.testing.assert_array_equal(drawn.next_obs[goes_on], np.array(following)[goes_on])
    np.testing.assert_allclose(drawn.weight.T, np.array([step.mask for step in now]) / 0.5)


def test_paths_tell_what_was_seen_before_every_step_and_what_it_counts_for():
    record = Record(100, seed=0)
    drawn = fill(settings_of(n_step=3, paths=True), record, stack=2).sample(size=500)
    path, weight = drawn.path
    assert path.shape == (3, 500, 2) and weight.shape == (3, 500)
    np.testing.assert_array_equal(path[0], drawn.obs)
    paid = {(int(frame)): reward for m in record.moments for frame, reward in zip(m.frame, m.reward, strict=True)}
    rewards = np.vectorize(paid.__getitem__)(np.maximum(path[:, :, -1], 1))
    np.testing.assert_allclose((weight * rewards).sum(axis=0), drawn.reward, rtol=1e-4, atol=1e-5)


def test_old_frames_are_forgotten_and_never_mixed_with_new_ones():
    settings = settings_of(60, n_step=3)
    record = Record(300, seed=5)
    replay, truth = fill(settings, record, stack=4), record.transitions(settings, stack=4)
    drawn = replay.sample(size=3000)
    for i, frame in enumerate(drawn.obs[:, -1].tolist()):
        np.testing.assert_array_equal(drawn.obs[i], truth[frame][3])
        assert frame > 3 * (300 - 20)
    assert replay.size == len(set(drawn.obs[:, -1].tolist()))


def test_a_life_that_breaks_off_leaves_nothing_across_the_break():
    settings = settings_of(n_step=3)
    record = Record(100, seed=7, restart=50)
    replay, truth = fill(settings, record, stack=4), record.transitions(settings, stack=4)
    assert replay.size == len(truth)
    assert set(replay.sample(size=15_000).obs[:, -1].tolist()) == set(truth)


def test_draws_are_in_proportion_to_priorities_and_weights_undo_them():
    record = Record(50, seed=1)
    replay = empty(settings_of(mask_prob=1.0, priority=0.5, importance=1.0))
    for t, moment in enumerate(record.moments):
        everyone = moment._replace(mask=np.ones_like(moment.mask))
        replay.add(everyone, np.full(LANES, float(t % 4)))
    drawn = replay.sample(size=200_000)
    frames, counts = np.unique(drawn.obs, return_counts=True)
    expected = ((((frames - 1) // 3) % 4) + 1e-3) ** 0.5
    np.testing.assert_allclose(counts / counts.sum(), expected / expected.sum(), atol=2e-3)
    once = dict(zip(drawn.obs.tolist(), drawn.weight[0].tolist(), strict=True))
    weights = np.array([once[frame] for frame in frames.tolist()])
    np.testing.assert_allclose(weights, (1 / expected) / (1 / expected).max(), rtol=1e-4)
    np.testing.assert_array_equal(drawn.weight[1:], drawn.weight[[0, 0]])


def test_new_priorities_go_to_what_is_still_there():
    record = Record(40, seed=2)
    replay = empty(settings_of(60, priority=1.0))
    for moment in record.moments[:20]:
        replay.add(moment)
    drawn = replay.sample(size=200)
    for moment in record.moments[20:30]:  # half of the ring is new
        replay.add(moment)
    replay.prioritise(drawn.place, np.full(200, 7.0))
    again = replay.sample(size=5000)
    high = sum_tree.read(replay.priorities, again.place[0]) > 6
    old = again.obs <= 60
    assert high[old].any() and not high[~old].any()


def test_same_seed_same_draws():
    settings, record = settings_of(n_step=3), Record(100, seed=3)
    one, two, other = (fill(settings, record, stack=4, seed=seed).sample().obs for seed in (0, 0, 1))
    assert len(one) == settings.batch_size
    np.testing.assert_array_equal(one, two)
    assert np.any(one != other)


def test_looking_with_another_generator_changes_no_draw():
    plain, looked = (fill(settings_of(), Record(100, seed=3)) for _ in range(2))
    looked.sample(np.random.default_rng(5), 70)
    np.testing.assert_array_equal(plain.sample().obs, looked.sample().obs)


def test_a_million_atari_transitions_fit_in_eight_gigabytes():
    """By the bytes of a hundredth of them: rings grow in proportion."""
    layout = FrameLayout(8, (84, 84), np.dtype(np.uint8), stack=4, prior=(10, 18, 1))
    assert FrameReplay(Replay(10_000, 10, n_step=3), layout).nbytes * 100 < 8e9


def test_too_small_a_ring_is_refused():
    with pytest.raises(ValueError, match="capacity=20 leaves 2 frames"):
        FrameReplay(Replay(20, batch_size=4, n_step=3), FrameLayout(8, (), np.dtype(int), stack=4))
    with pytest.raises(ValueError, match="no transitions to sample yet"):
        empty(settings_of()).sample(size=3)


def test_streams_with_minibatches_of_their_own_are_refused():
    with pytest.raises(ValueError, match="shared_batch=False is only for compiled environments"):
        empty(settings_of(shared_batch=False))
