"""Replay on the host, against a plain record of everything that happened."""

import numpy as np
import pytest

from priorax.replay import LaneStep, SequenceBuffer, SequenceSettings, sum_tree

STREAMS = 3


class Record:
    """A random life of several lanes: episodes end, are cut, lives are lost; all of it is remembered in lists."""

    def __init__(self, lanes, rounds, seed, restart=None):
        rng = np.random.default_rng(seed)
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

    def transitions(self, settings):
        """Every transition with a whole return: by the number of its frame."""
        found = {}
        for lane in range(settings.num_lanes):
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
                        stack = [self._stack(line, t, settings.stack), self._stack(line, t + steps, settings.stack)]
                        found[int(now.frame)] = (now, total, left, *stack)
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


def fill(settings, record, **more):
    buffer = SequenceBuffer(settings, (), np.dtype(np.int64), **more)
    for moment in record.moments:
        buffer.add(moment)
    return buffer


@pytest.mark.parametrize("stack, n_step", [(1, 1), (4, 3), (2, 5)])
def test_what_is_drawn_is_what_happened(stack, n_step):
    settings = SequenceSettings(3000, 3, stack, n_step, 0.9, STREAMS)
    record = Record(3, 300, seed=stack)
    buffer, truth = fill(settings, record), record.transitions(settings)
    assert buffer.size == len(truth)
    drawn = buffer.draw(15_000)
    newest = drawn.obs if stack == 1 else drawn.obs[:, -1]
    assert set(newest.tolist()) == set(truth)  # all of them, and nothing else
    for i, frame in enumerate(newest.tolist()):
        now, total, left, obs, following = truth[frame]
        assert drawn.action[i] == now.action
        np.testing.assert_allclose(drawn.reward[i], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(drawn.discount[i], left, rtol=1e-6)
        np.testing.assert_array_equal(drawn.obs[i], obs)
        if left > 0:
            np.testing.assert_array_equal(drawn.next_obs[i], following)
        np.testing.assert_array_equal(drawn.mask[:, i], now.mask)


def test_paths_tell_what_was_seen_before_every_step_and_what_it_counts_for():
    settings = SequenceSettings(3000, 3, 2, 3, 0.9, STREAMS, paths=True)
    record = Record(3, 100, seed=0)
    drawn = fill(settings, record).draw(500)
    assert drawn.path.shape == (3, 500, 2) and drawn.path_weight.shape == (3, 500)
    np.testing.assert_array_equal(drawn.path[0], drawn.obs)
    paid = {(int(frame)): reward for m in record.moments for frame, reward in zip(m.frame, m.reward, strict=True)}
    rewards = np.vectorize(paid.__getitem__)(np.maximum(drawn.path[:, :, -1], 1))
    np.testing.assert_allclose((drawn.path_weight * rewards).sum(axis=0), drawn.reward, rtol=1e-4, atol=1e-5)


def test_old_frames_are_forgotten_and_never_mixed_with_new_ones():
    settings = SequenceSettings(60, 3, 4, 3, 0.9, STREAMS)
    record = Record(3, 300, seed=5)
    buffer, truth = fill(settings, record), record.transitions(settings)
    drawn = buffer.draw(3000)
    for i, frame in enumerate(drawn.obs[:, -1].tolist()):
        np.testing.assert_array_equal(drawn.obs[i], truth[frame][3])
        assert frame > 3 * (300 - 20)
    assert buffer.size == len(set(drawn.obs[:, -1].tolist()))


def test_a_life_that_breaks_off_leaves_nothing_across_the_break():
    settings = SequenceSettings(3000, 3, 4, 3, 0.9, STREAMS)
    record = Record(3, 100, seed=7, restart=50)
    buffer, truth = fill(settings, record), record.transitions(settings)
    assert buffer.size == len(truth)
    assert set(buffer.draw(15_000).obs[:, -1].tolist()) == set(truth)


def test_draws_are_in_proportion_to_priorities_and_weights_undo_them():
    settings = SequenceSettings(3000, 3, 1, 1, 0.9, STREAMS, priority=0.5, importance=1.0)
    record = Record(3, 50, seed=1)
    buffer = SequenceBuffer(settings, (), np.dtype(np.int64))
    for t, moment in enumerate(record.moments):
        buffer.add(moment, np.full(3, float(t % 4)))
    drawn = buffer.draw(200_000)
    frames, counts = np.unique(drawn.obs, return_counts=True)
    expected = ((((frames - 1) // 3) % 4) + 1e-3) ** 0.5
    np.testing.assert_allclose(counts / counts.sum(), expected / expected.sum(), atol=2e-3)
    once = dict(zip(drawn.obs.tolist(), drawn.weight.tolist(), strict=True))
    weights = np.array([once[frame] for frame in frames.tolist()])
    np.testing.assert_allclose(weights, (1 / expected) / (1 / expected).max(), rtol=1e-4)


def test_new_priorities_go_to_what_is_still_there():
    settings = SequenceSettings(60, 3, 1, 1, 0.9, STREAMS, priority=1.0)
    record = Record(3, 40, seed=2)
    buffer = SequenceBuffer(settings, (), np.dtype(np.int64))
    for moment in record.moments[:20]:
        buffer.add(moment)
    drawn = buffer.draw(200)
    for moment in record.moments[20:30]:  # half of the ring is new
        buffer.add(moment)
    buffer.prioritise(drawn.place, np.full(200, 7.0))
    again = buffer.draw(5000)
    high = sum_tree.read(buffer.priorities, again.place[0]) > 6
    old = again.obs <= 60
    assert high[old].any() and not high[~old].any()


def test_same_seed_same_draws():
    settings = SequenceSettings(3000, 3, 4, 3, 0.9, STREAMS)
    record = Record(3, 100, seed=3)
    one, two, other = (fill(settings, record, seed=seed).draw(50).obs for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert np.any(one != other)


def test_a_million_atari_transitions_fit_in_eight_gigabytes():
    """By the bytes of a hundredth of them: rings grow in proportion."""
    settings = SequenceSettings(10_000, 8, 4, 3, 0.99, 10)
    buffer = SequenceBuffer(settings, (84, 84), np.dtype(np.uint8), prior_shape=(10, 18, 1))
    assert buffer.nbytes * 100 < 8e9


def test_too_small_a_ring_is_refused():
    with pytest.raises(ValueError, match="capacity=20 leaves 2 frames"):
        SequenceSettings(20, 8, 4, 3)
    with pytest.raises(ValueError, match="nothing to draw"):
        SequenceBuffer(SequenceSettings(100, 2), (), np.dtype(int)).draw(3)
