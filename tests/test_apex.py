"""Ape-X on a real Ray session: it keeps the pace, survives the death of any of its processes, and goes on."""

import contextlib
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
from priorax.replay import FrameLayout, LaneStep, Replay
from priorax.training import trainer
from priorax.training.backends.host import Learner, build_for, frame_layout
from priorax.training.backends.ray.cluster import PATIENCE, Calls, Worker, session
from priorax.training.backends.ray.rollout import Rollout, RolloutPlan, Weights
from priorax.training.backends.ray.shard import Chunk, Shard, ShardPlan
from priorax.training.checkpoint import Checkpoints
from priorax.training.run_files import read_episodes
from priorax.training.setup import Workers, set_up
from priorax.training.trainer import train

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
    with session(None, 4) as ray, pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "REPORT_SECONDS", 0.0)  # tests look at every turn
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
    """Kills or stops processes of workers once learning is under way, and sees what comes of it."""

    def __init__(self, *victims, number=signal.SIGKILL):
        self.victims, self.number, self.before, self.after = victims, number, None, None
        self.seen = {}

    def __call__(self, progress):
        processes = progress.cluster.processes
        self.seen.update({pid: name for name, pid in processes.items()})
        if self.before is None and progress.updates > 5:
            self.before = progress
            for victim in self.victims:
                os.kill(processes[victim], self.number)
        elif self.before is not None:
            self.after = progress

    @property
    def noticed(self):
        return self.after is not None and self.after.cluster.restarts >= len(self.victims)


def test_a_run_reaches_its_steps_at_the_pace_of_its_settings(ray, tmp_path):
    result = train(**TASK, steps=600, workers=Workers(2, 2), out=tmp_path / "run")
    cluster = result.cluster
    assert result.backend == "ray" and 600 <= result.steps < 600 + LANES
    assert {row.lane for row in result.history} == set(range(2 * LANES))
    assert [row.episode for row in result.history] == list(range(1, result.episodes + 1))
    steps = [row.step for row in result.history]
    assert steps == sorted(steps) and steps[-1] <= result.steps
    slack = 1 + 2 * 16 * LANES * 2 / EVERY
    assert (result.steps - 200) / EVERY - slack <= result.updates <= result.steps / EVERY
    assert min(cluster.acted_on) >= result.updates - 2 * slack  # weights reached all actors
    assert min(cluster.acted_on) > 0
    assert (cluster.actors, cluster.shards, cluster.restarts) == (2, 2, 0)
    assert 0 <= cluster.idle_share <= 1 and 0 <= cluster.spare_share <= 1
    assert np.isfinite(result.history[-1].loss) and result.history[-1].loss > 0
    saved = json.loads((tmp_path / "run" / "result.json").read_text())
    assert saved["steps"] == result.steps and saved["cluster"]["acted_on"] == cluster.acted_on
    assert result.policy.predict(make_world("pixel_deep_sea", 1, size=4).reset(0)[0]) in (0, 1)


def test_updates_may_be_rarer_than_what_an_actor_plays_at_once(ray):
    arguments = {**TASK, "changes": {**CHANGES, "learn_every": 150, "updates": 1}}
    result = train(**arguments, steps=600, workers=Workers(1))
    assert result.steps >= 600 and 1 <= result.updates <= 4


def test_updates_keep_step_with_actions(ray):
    """Of actions: where episodes are of one, every other round of a lane only begins another."""
    arguments = {**TASK, "size": 1, "changes": {**CHANGES, "learn_every": 1, "updates": 1}}
    result = train(**arguments, steps=400, workers=Workers(1))
    slack, before = 1 + 2 * 16 * LANES, 32 + 16 * LANES  # due at the end; played before learning began
    assert 400 - before - slack <= result.updates <= 400 - 32


def test_evaluations_are_played_where_they_are_due(ray, tmp_path):
    """No actor plays beyond one before it was played."""
    result = train(**TASK, steps=200, evaluate_every=64, evaluation_episodes=3, workers=Workers(2), out=tmp_path)
    with (tmp_path / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["episode"]) for row in rows] == [1, 2, 3] * 3
    steps = [int(row["step"]) for row in rows[::3]]
    assert all(due <= step < due + LANES for due, step in zip((64, 128, 192), steps, strict=True))
    assert result.evaluation == pytest.approx(np.mean([float(row["total_return"]) for row in rows[-3:]]))


def test_advice_is_by_what_was_learned_from_last(ray):
    setup = set_up("bsp", TASK["env"], size=4, changes=CHANGES, workers=Workers(1))
    with contextlib.closing(setup.backend) as backend:
        assert backend.recent(8) is None
        run = trainer.Trainer(setup)
        while backend.updates < 3:
            run.advance()
        obs, action = backend.recent(8)
    assert obs.shape == (8, *backend.interface.sight.frame_shape) and action.shape == (8,) and obs.any()


def test_what_an_actor_plays_with_and_sends(ray):
    chosen = settings("bsp", "small", **CHANGES)
    world = make_world("pixel_deep_sea", LANES, size=4)
    agent = build_for("bsp", chosen, world)
    learner = Learner(agent, world.reset(0)[0], 0)
    plan = ShardPlan(agent.replay, frame_layout(agent, learner.state, world, 2 * LANES))
    shard = Worker("replay shard 0", Shard, lambda _: (plan, LANES, 0))
    state = learner.state.belief
    weights = Weights(7, *jax.device_get((state.params, state.aux)))
    rollout = Rollout(RolloutPlan("bsp", chosen, "pixel_deep_sea", None, 4, 0, 1, 2, 1, 0, 60.0), 0)
    answer = rollout.play(weights, jax.device_get(state.frozen), shard.handle, 10, episodes=100)
    assert answer.rounds == 10 and answer.actions == 8 * LANES and answer.updates == 7
    assert rollout.actor.episodes == 100 + len(answer.ended) == 100 + 2 * LANES
    # of 10 moments, 3 wait for their errors and 3 more of the 7 sent for their returns; the fifth began nothing
    assert answer.size == ray.get(shard.handle.size.remote()) == LANES * 4
    assert {ended.lane for _, ended in answer.ended} == {2, 3}
    played = rollout.state.belief
    same = jax.tree.map(np.array_equal, (played.params, played.frozen), (state.params, state.frozen))
    assert all(jax.tree.leaves(same))
    for _ in range(PATIENCE - 1):
        shard.revive("a test")
    with pytest.raises(OSError, match="replay shard 0 died 5 times in a row, last with: a test; check whether"):
        shard.revive("a test")
    shard.end()
    lost = rollout.play(weights, state.frozen, shard.handle, 10)
    assert lost.size is None and lost.rounds == 10 and len(rollout.unsent.steps.action) == 10

    class Stuck:
        def add(self, *arguments):
            time.sleep(1000)

    rollout.plan, stuck = rollout.plan._replace(timeout=1.0), Worker("replay shard 0", Stuck, lambda _: ())
    for each in (shard, stuck):
        again = rollout.play(weights, state.frozen, each.handle, 10)  # it does not go on before that is sent
        assert again.size is None and again.rounds == again.actions == 0 and len(rollout.unsent.steps.action) == 10
    stuck.end()


def test_a_killed_rollout_actor_comes_back_to_its_lanes(ray):
    assassin = Assassin("rollout actor 1")
    later = []

    def stop(history):
        if assassin.noticed and not later:
            later.append(len(history))
        return bool(later) and {row.lane for row in history[later[0] :]} >= {2, 3}

    result = train(**TASK, steps=100_000, workers=Workers(2), report=assassin, stop=stop)
    assert result.cluster.restarts == 1 and result.steps < 100_000
    assert result.updates > assassin.before.updates  # the learner went on
    again = [pid for pid, name in assassin.seen.items() if name == "rollout actor 1"]
    assert len(again) == 2
    assert all(gone(pid) for pid in assassin.seen)


def test_a_killed_replay_shard_is_filled_anew(ray):
    assassin = Assassin("replay shard 0")

    def stop(history):
        learned = assassin.noticed and assassin.after.updates > assassin.before.updates + 60
        return learned and {row.lane for row in history[-20:]} == set(range(2 * LANES))  # one actor may begin late

    result = train(**TASK, steps=100_000, workers=Workers(2), report=assassin, stop=stop)
    assert result.cluster.restarts == 1 and result.steps < 100_000


def test_an_actor_and_a_shard_that_hang_are_replaced(ray):
    """An actor is noticed by the driver, a shard also by its actors."""
    assassin = Assassin("rollout actor 1", "replay shard 0", number=signal.SIGSTOP)
    later = []

    def stop(history):
        if assassin.noticed and not later:
            later.append(len(history))
        return bool(later) and {row.lane for row in history[later[0] :]} == set(range(2 * LANES))

    def give_time(backend):
        """To compile, on a busy machine."""
        backend.driver.calls.timeout = 30.0 if assassin.before and not assassin.noticed else 600.0
        return {}

    workers = Workers(2, 2, timeout=30.0)
    result = train(**TASK, steps=1_000_000, workers=workers, report=assassin, stop=stop, probe=give_time)
    assert result.steps < 1_000_000 and result.updates > assassin.before.updates
    for name in assassin.victims:
        assert result.cluster.processes[name] != assassin.before.cluster.processes[name]
    assert all(gone(pid) for pid in assassin.before.cluster.processes.values())


def test_time_without_a_process_is_not_held_against_a_worker(ray):
    class Slow:
        def pid(self):
            time.sleep(3)
            return 1

        def sleep(self, seconds):
            time.sleep(seconds)

    worker, calls = Worker("rollout actor 0", Slow, lambda _: ()), Calls(timeout=1.0)
    calls.begin(worker, "pid")
    while worker.pid is None:
        calls.ended(0.1)
    assert calls.restarts == 0
    calls.begin(worker, "sleep", 1000)
    while not (ended := calls.ended(0.1)):
        pass
    assert ended[0][1] is None and calls.restarts == worker.incarnation == 1
    assert [call.method for call in calls.pending.values()] == ["pid"]
    for _ in range(PATIENCE - 2):
        worker.revive("a test")
    worker.pid = 1
    calls.begin(worker, "sleep", 1000)
    with pytest.raises(OSError, match=r"last with: no answer within timeout=1 seconds; a longer timeout gives"):
        while True:
            calls.ended(0.1)
    worker.end()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_leaves_a_checkpoint_and_no_process(number, error, ray, tmp_path):
    """In a run of the default length."""
    seen = {}

    def report(progress):
        seen.update(progress.cluster.processes)
        if progress.updates > 5:
            os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    with pytest.raises(error):
        train(**TASK, workers=Workers(1), out=tmp_path / "run", report=report)
    signal.signal(signal.SIGINT, before)
    commit = Checkpoints(tmp_path / "run" / "checkpoint").last
    assert commit.step > 0
    with (tmp_path / "run" / "episodes.csv").open() as file:
        assert len(list(csv.DictReader(file))) == commit.episodes > 0
    assert set(seen) == {"rollout actor 0", "replay shard 0"} and all(gone(pid) for pid in seen.values())
    assert ray.is_initialized()  # it was not begun by the run


def test_a_killed_driver_is_resumed(ray, tmp_path):
    out = tmp_path / "run"
    arguments = {**TASK, "out": str(out)}
    code = (
        "from priorax.caching import enable_compilation_cache; from priorax.training.setup import Workers; "
        "from priorax.training.trainer import train; enable_compilation_cache(); "
        f"train(**{arguments!r}, workers=Workers(1), steps=100_000, checkpoint_seconds=0.2)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder, deadline, finished = out / "checkpoint", time.monotonic() + 300, 0
    while finished < 50 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
        last = Checkpoints(folder).last
        finished = last.episodes if last else 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    saved = Checkpoints(folder).last
    before, updates = saved.step, int(Checkpoints(folder).state()["state.updates"])
    assert updates > 0
    result = train(**arguments, workers=Workers(1), steps=before + 200, resume=True)
    assert before + 200 <= result.steps < before + 200 + LANES
    rows = read_episodes(out)
    assert [row.episode for row in rows] == list(range(1, result.episodes + 1))
    assert rows == list(result.history)
    assert updates < result.updates <= updates + 200 / EVERY, "updates go on being counted"
    old, new = result.history[: saved.episodes], result.history[saved.episodes :]
    assert len(old) >= 50 and max(row.step for row in old) <= before
    assert new and before < min(row.step for row in new) and {row.lane for row in new} == set(range(LANES))
    with pytest.raises(ValueError, match="actors was 1, is 2"):
        train(**arguments, workers=Workers(2), steps=before + 400, resume=True)


def chunk(first, count):
    """Of one actor with one lane, whose episode began there or before."""
    starts = np.zeros((count, 1), bool)
    starts[0] = first
    no, zero = np.zeros((count, 1), bool), np.zeros((count, 1))
    frames = np.arange(count, dtype=np.uint8)[:, None]
    return Chunk(LaneStep(frames, starts, zero.astype(int), zero, no, no, ~no, np.ones((count, 1, 1), bool)), zero + 1)


def test_a_shard_keeps_whole_stacks_of_the_newest_incarnation():
    def made():
        return Shard(ShardPlan(Replay(100, batch_size=4), FrameLayout(2, (), np.dtype(np.uint8), stack=4)), 1, 0)

    shard = made()
    assert shard.add(1, 0, chunk(True, 10)) == 9
    assert shard.draw(10) == (9, None)
    size, drawn = shard.draw(9)
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
        ({"workers": Workers(0)}, "actors=0 must be"),
        ({"workers": Workers(1, timeout=0.0)}, "timeout=0.0 must be"),
        ({"workers": Workers(2, 3)}, "shards=3 must be at most actors=2, or some stay empty; pass shards=2"),
        ({"seed": -1}, "seed=-1 must be"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds=-1.0 must be"),
        ({"changes": {"learn_every": 0}}, "learn_every=0 must be"),
        ({"changes": {"capacity": 3000}}, "capacity=3000 may never hold learn_after=2000 .* raise capacity to 4048"),
        ({"changes": {"shared_batch": False, "priority": 0.0}}, "shared_batch=False .* pass shared_batch=True on Ray"),
        (
            {"agent": "ucb", "changes": {"torso": "none"}},
            "agent='ucb' learns from each visit once.*priorax train.*bonus_scale=0",
        ),
        ({"game": "Freeway"}, "game='Freeway' is for env='atari'"),
        ({"env": "atari"}, "game=None: env='atari' needs the name of a game"),
        ({"agent": "rlsvi"}, "preset='small' is for agents with the setting torso"),
        ({"agent": "rlsvi", "preset": "tuned"}, "rlsvi needs finite states"),
        (
            {"agent": "rlsvi", "env": "gymnasium:FrozenLake-v1"},
            "does not learn Q-values from replay, so it cannot run on Ray",
        ),
        ({"backend": "host", "workers": Workers(1)}, "workers=.* are for backend='ray'"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        train(**{"env": "pixel_deep_sea", "steps": 100, "backend": "ray", **wrong})


def test_objects_are_refused():
    with pytest.raises(
        ValueError, match="backend='ray' needs the name of an environment, to create it in other processes"
    ):
        train("bsp", make_world(TASK["env"], 1, size=4), backend="ray", steps=10)
    agent = build_for("bsp", settings("bsp", "small", **CHANGES), make_world(TASK["env"], 1, size=4))
    with pytest.raises(ValueError, match="must be a name, since agents on Ray are built in other processes"):
        train(agent, TASK["env"], backend="ray", steps=10)


def test_what_a_worker_raises_is_told_in_its_own_words(ray):
    class Failing:  # in a function, or workers could not find it
        def fail(self):
            raise ValueError("the reward is nan")

    worker, calls = Worker("rollout actor 0", Failing, lambda _: ()), Calls()
    calls.begin(worker, "fail")
    with pytest.raises(ValueError, match=r"^the reward is nan$"):
        while not calls.ended(1.0):
            pass
    worker.end()


def test_too_many_workers_and_no_ray_are_refused(ray, monkeypatch):
    with pytest.raises(ValueError, match=r"actors \+ shards = 51 need a CPU each, and this Ray session has 4"):
        train(**TASK, steps=100, workers=Workers(50))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'pip install "priorax\[cluster\]"'):
        train(**TASK, steps=100, backend="ray")
