"""Ape-X on a real Ray session: it keeps the pace, survives the death of any of its processes, and goes on."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from priorax.agents import settings
from priorax.envs.registry import make_world
from priorax.replay import LaneStep, SequenceSettings
from priorax.training.backends.host import BufferPlan, Learner, buffer_plan, build_for
from priorax.training.backends.host_files import HostCheckpoints, HostEpisode
from priorax.training.backends.ray import run_apex
from priorax.training.backends.ray.cluster import PATIENCE, Worker, session
from priorax.training.backends.ray.rollout import Rollout, RolloutPlan, Weights
from priorax.training.backends.ray.shard import Chunk, Shard

pytestmark = pytest.mark.xdist_group("ray")  # one session serves all

LANES, EVERY = 2, 4
CHANGES = {
    "torso": "small",
    "features": 32,
    "lanes": LANES,
    "batch_size": 16,
    "learn_every": EVERY,
    "learn_after": 32,
    "capacity": 2000,
    "num_members": 3,
}
TASK = {"env": "pixel_deep_sea", "size": 4, "changes": CHANGES}


@pytest.fixture(scope="module")
def ray():
    with session(None, 4) as ray:
        yield ray


def gone(pid):
    """Whether that process is, or soon is, no more."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


class Assassin:
    """Kills a worker's process once learning is under way, and sees what comes of it."""

    def __init__(self, victim):
        self.victim, self.before, self.after = victim, None, None
        self.seen = {}

    def __call__(self, progress):
        self.seen.update({pid: name for name, pid in progress.processes.items()})
        if self.before is None and progress.updates > 5:
            self.before = progress
            os.kill(progress.processes[self.victim], signal.SIGKILL)
        elif self.before is not None:
            self.after = progress

    @property
    def noticed(self):
        return self.after is not None and self.after.restarts > 0


def test_a_run_reaches_its_steps_at_the_pace_of_its_settings(ray, tmp_path):
    result = run_apex(**TASK, steps=600, actors=2, shards=2, out=tmp_path / "run")
    assert 600 <= result.steps < 600 + LANES
    assert {row.lane for row in result.history} == set(range(2 * LANES))
    assert [row.episode for row in result.history] == list(range(1, result.episodes + 1))
    steps = [row.step for row in result.history]
    assert steps == sorted(steps) and steps[-1] <= result.steps
    slack = 2 * 16 * LANES * 2 / EVERY
    assert (result.steps - 200) / EVERY - slack <= result.updates <= result.steps / EVERY
    assert min(result.acted_on) >= result.updates - 2 * slack  # weights reached all actors
    assert min(result.acted_on) > 0
    assert result.restarts == 0 and 0 <= result.idle_share <= 1 and 0 <= result.spare_share <= 1
    assert np.isfinite(result.history[-1].loss) and result.history[-1].loss > 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == result.steps


def test_what_an_actor_plays_with_and_sends(ray):
    chosen = settings("bsp", "small", **CHANGES)
    world = make_world("pixel_deep_sea", LANES, size=4)
    agent = build_for(chosen, world)
    shard = Worker("replay shard 0", Shard, lambda _: (buffer_plan(agent, world, 2 * LANES, 400), LANES, 0))
    state = Learner(agent, world.reset(0)[0], 0).state.belief
    weights = Weights(7, *jax.device_get((state.params, state.aux)))
    rollout = Rollout(RolloutPlan(chosen, "pixel_deep_sea", None, 4, 0, 1, 2, 1, 0), 0)
    answer = rollout.play(weights, jax.device_get(state.frozen), shard.handle, 10)
    assert answer.rounds == 10 and answer.updates == 7
    # of 10 moments, 3 wait for their errors and 3 more of the 7 sent for their returns; the fifth began nothing
    assert answer.size == ray.get(shard.handle.size.remote()) == LANES * 4
    assert {played.lane for _, played in answer.ended} == {2, 3}
    same = jax.tree.map(np.array_equal, (rollout.belief.params, rollout.belief.frozen), (state.params, state.frozen))
    assert all(jax.tree.leaves(same))
    for _ in range(PATIENCE - 1):
        shard.revive("a test")
    with pytest.raises(OSError, match="replay shard 0 died 5 times in a row, at last of: a test; see whether"):
        shard.revive("a test")
    shard.end()
    lost = rollout.play(weights, state.frozen, shard.handle, 10)
    assert lost.size is None and lost.rounds == 10 and len(rollout.unsent.moments.action) == 10
    again = rollout.play(weights, state.frozen, shard.handle, 10)  # it does not go on before that is sent
    assert again.size is None and again.rounds == 0 and len(rollout.unsent.moments.action) == 10


def test_a_killed_rollout_actor_comes_back_to_its_lanes(ray):
    assassin = Assassin("rollout actor 1")
    later = []

    def stop(history):
        if assassin.noticed and not later:
            later.append(len(history))
        return bool(later) and {row.lane for row in history[later[0] :]} >= {2, 3}

    result = run_apex(**TASK, steps=100_000, actors=2, report=assassin, stop=stop)
    assert result.restarts == 1 and result.steps < 100_000
    assert result.updates > assassin.before.updates  # the learner went on
    again = [pid for pid, name in assassin.seen.items() if name == "rollout actor 1"]
    assert len(again) == 2
    assert all(gone(pid) for pid in assassin.seen)


def test_a_killed_replay_shard_is_filled_anew(ray):
    assassin = Assassin("replay shard 0")
    result = run_apex(
        **TASK,
        steps=100_000,
        actors=2,
        report=assassin,
        stop=lambda history: assassin.noticed and assassin.after.updates > assassin.before.updates + 60,
    )
    assert result.restarts == 1 and result.steps < 100_000
    assert {row.lane for row in result.history[-20:]} == set(range(2 * LANES))


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_leaves_a_checkpoint_and_no_process(number, error, ray, tmp_path):
    """In a run of the default length."""
    seen = {}

    def report(progress):
        seen.update(progress.processes)
        if progress.updates > 5:
            os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    with pytest.raises(error):
        run_apex(**TASK, actors=1, out=tmp_path / "run", report=report)
    signal.signal(signal.SIGINT, before)
    commit = HostCheckpoints(tmp_path / "run" / "checkpoint").last
    assert commit.tally.rounds > 0
    with (tmp_path / "run" / "episodes.csv").open() as file:
        assert len(list(csv.DictReader(file))) == commit.tally.finished > 0
    assert set(seen) == {"rollout actor 0", "replay shard 0"} and all(gone(pid) for pid in seen.values())
    assert ray.is_initialized()  # it was not begun by the run


def test_a_killed_driver_is_resumed(ray, tmp_path):
    out = tmp_path / "run"
    asked = {**TASK, "actors": 1, "out": str(out)}
    code = (
        "from priorax.caching import enable_compilation_cache; from priorax.training.backends.ray import run_apex; "
        f"enable_compilation_cache(); run_apex(**{asked!r}, steps=100_000, checkpoint_seconds=0.2)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder, deadline, finished = out / "checkpoint", time.monotonic() + 300, 0
    while finished < 50 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
        last = HostCheckpoints(folder).last
        finished = last.tally.finished if last else 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    tally = HostCheckpoints(folder).last.tally
    before = tally.rounds * LANES
    result = run_apex(**asked, steps=before + 200, resume=True)
    assert before + 200 <= result.steps < before + 200 + LANES
    with (out / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["episode"]) for row in rows] == list(range(1, result.episodes + 1))
    assert [HostEpisode(*row.values()) for row in rows] == [HostEpisode(*map(str, row)) for row in result.history]
    old, new = result.history[: tally.finished], result.history[tally.finished :]
    assert len(old) >= 50 and max(row.step for row in old) <= before
    assert new and before < min(row.step for row in new) and {row.lane for row in new} == set(range(LANES))
    with pytest.raises(ValueError, match="actors was 1, is 2"):
        run_apex(**{**asked, "actors": 2}, steps=before + 400, resume=True)


def chunk(first, count):
    """Of one actor with one lane, whose episode began there or before."""
    starts = np.zeros((count, 1), bool)
    starts[0] = first
    no, zero = np.zeros((count, 1), bool), np.zeros((count, 1))
    frames = np.arange(count, dtype=np.uint8)[:, None]
    return Chunk(LaneStep(frames, starts, zero.astype(int), zero, no, no, ~no, np.ones((count, 1, 1), bool)), zero + 1)


def test_a_shard_keeps_whole_stacks_of_the_newest_incarnation():
    def made():
        return Shard(BufferPlan(SequenceSettings(100, 2, stack=4), (), np.dtype(np.uint8), None), 1, 0)

    shard = made()
    assert shard.add(1, 0, chunk(True, 10)) == 9
    assert shard.draw(4, 10) == (9, None)
    size, drawn = shard.draw(4, 9)
    assert size == 9 and drawn.obs.shape == (4, 4)
    shard = made()
    assert shard.add(1, 0, chunk(False, 10)) == 6  # three frames of the first stack were never seen
    assert shard.add(1, 1, chunk(True, 10)) == 15  # made anew: what was under way gets no end
    assert shard.add(1, 0, chunk(False, 10)) == 15


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"agent": "bpsp"}, "agent='bpsp' is unknown; did you mean 'bsp'"),
        ({"steps": 0}, "steps=0 must be a whole number of at least 1"),
        ({"actors": 0}, "actors=0 must be"),
        ({"shards": 3}, "shards=3 must be at most actors=2, or some get nothing; pass shards=2"),
        ({"seed": -1}, "seed=-1 must be"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds=-1.0 must be"),
        ({"changes": {"learn_every": 0}}, "learn_every=0 must be"),
        ({"changes": {"capacity": 3000}}, "capacity=3000 may never hold learn_after=2000 .* raise capacity to 4048"),
        ({"agent": "ucb", "changes": {"torso": "none"}}, "bonus_scale=0.1 needs one count of visits.*priorax train"),
        ({"game": "Freeway"}, "game='Freeway' is for env='atari'"),
        ({"env": "atari"}, "game=None: env='atari' needs the name of a game"),
        ({"agent": "rlsvi", "changes": {"torso": "none"}}, "rlsvi needs finite states"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        run_apex(**{"env": "pixel_deep_sea", "steps": 100, **wrong})


def test_too_many_workers_and_no_ray_are_refused(ray, monkeypatch):
    with pytest.raises(ValueError, match=r"actors \+ shards = 51 need a CPU each, and this Ray session has 4"):
        run_apex(**TASK, steps=100, actors=50)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'pip install "priorax\[cluster\]"'):
        run_apex(**TASK, steps=100)
