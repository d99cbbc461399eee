"""`train` and its folder: rows, checkpoints, resume to the bit, refusals."""

import json
import resource
import signal
import subprocess
import sys
import time

import gymnax
import pytest

from priorax import train
from priorax.cli import main
from priorax.loops import training
from priorax.loops.run_folder import read_episodes
from priorax.storage import BadFile

SMALL = {"num_members": 4, "widths": (8,), "batch_size": 16, "capacity": 300}
RUN = {"agent": "bsp", "env": "deep_sea", "size": 5, "seed": 1, "changes": SMALL}
WORDS = ["--set", "num_members=4", "widths=8", "batch_size=16", "capacity=300"]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(training, "CHUNK", 100)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run never stopped: 120 episodes."""
    return train(**RUN, episodes=120)


def interrupt_after(count):
    """A Ctrl-C at the count-th report."""
    reports = []

    def report(progress):
        reports.append(progress)
        if len(reports) == count:
            raise KeyboardInterrupt

    return report


def test_a_run_is_its_seed(whole):
    assert train(**RUN, episodes=120).history == whole.history
    other = train(**{**RUN, "seed": 2}, episodes=20)
    assert other.history != whole.history[:20]
    assert whole.episodes == len(whole.history) == 120
    assert whole.env_steps == 600
    assert whole.total_return == pytest.approx(sum(row.total_return for row in whole.history))


@pytest.mark.parametrize("changes", [{}, {"mask_prob": 0.5, "shared_batch": False, "learn_every": 0, "capacity": 70}])
def test_an_interrupted_run_goes_on_to_the_bit(changes, tmp_path):
    """Interrupted twice, with checkpoints in between that write replay bit by bit, and a ring that wraps."""
    run = {**RUN, "changes": {**SMALL, **changes}}
    plain = train(**run, episodes=120)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(
                **run,
                episodes=120,
                out=tmp_path,
                resume=(tmp_path / "run.json").exists(),
                checkpoint_seconds=0.0,
                report=interrupt_after(2),
            )
    result = train(**run, episodes=120, out=tmp_path, resume=True)
    assert result.history == plain.history
    assert read_episodes(tmp_path) == plain.history
    assert len(list((tmp_path / "checkpoint").glob("commit-*.json"))) == 2
    assert json.loads((tmp_path / "result.json").read_text())["episodes_to_learn"] == plain.episodes_to_learn


def test_a_finished_run_can_be_made_longer(whole, tmp_path):
    train(**RUN, episodes=50, out=tmp_path)
    assert train(**RUN, episodes=120, out=tmp_path, resume=True).history == whole.history


def test_killed_at_any_moment_it_resumes_to_the_bit(whole, tmp_path):
    """A real kill -9 of a real process in mid-run."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "priorax.cli", "train", "--size", "5", "--seed", "1", "--out", str(out)]
    options = ["--episodes", "20000", "--checkpoint-seconds", "0", *WORDS]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((out / "checkpoint").glob("commit-*.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = [sys.executable, "-m", "priorax.cli", "train", "--resume", str(out), "--episodes", "400", "--json"]
    done = subprocess.run(resumed, capture_output=True, text=True, check=False)
    # more than 400 may have been done before the kill: then nothing is left to do
    assert done.returncode == 0, done.stderr
    rows = read_episodes(out)
    assert len(rows) >= 400
    assert rows[:120] == whole.history
    said = json.loads(done.stdout.splitlines()[-1])
    assert {"agent", "env", "size", "seed", "episodes", "episodes_to_learn", "total_return"} <= set(said)
    assert "env_steps_per_second" in said


def test_a_damaged_checkpoint_is_told_and_the_one_before_still_serves(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(**RUN, episodes=120, out=tmp_path, checkpoint_seconds=0.0, report=interrupt_after(4))
    folder = tmp_path / "checkpoint"
    newest = max(folder.glob("commit-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    state = folder / json.loads(newest.read_text())["state"]
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(BadFile, match=rf"is damaged.*delete .*{newest.name} to go on from step"):
        train(**RUN, episodes=120, out=tmp_path, resume=True)
    newest.unlink()
    assert train(**RUN, episodes=120, out=tmp_path, resume=True).history == whole.history
    newest = max(folder.glob("commit-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    newest.write_text("{")
    with pytest.raises(BadFile, match="is damaged"):
        train(**RUN, episodes=130, out=tmp_path, resume=True)


# tensorboardX leaves its file to the garbage collector when its last flush fails
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_leaves_the_last_checkpoint(whole, tmp_path):
    """Files may grow to 2 kB only: the kernel refuses the write, as on a full disk."""
    with pytest.raises(KeyboardInterrupt):
        train(**RUN, episodes=120, out=tmp_path, checkpoint_seconds=0.0, report=interrupt_after(2))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write to .*checkpoint of step 200 is still there; make room"):
            train(**RUN, episodes=120, out=tmp_path, resume=True, checkpoint_seconds=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert train(**RUN, episodes=120, out=tmp_path, resume=True).history == whole.history


def test_a_folder_with_a_run_is_not_overwritten_by_accident(tmp_path, capsys):
    train(**RUN, episodes=5, out=tmp_path)
    with pytest.raises(ValueError, match="already holds a run; pass --resume to go on or --overwrite"):
        train(**RUN, episodes=5, out=tmp_path)
    with pytest.raises(ValueError, match=r"another configuration: seed was 1, is 2; num_members was 4, is 3"):
        train(**{**RUN, "seed": 2, "changes": {**SMALL, "num_members": 3}}, episodes=5, out=tmp_path, resume=True)
    assert main(["train", "--resume", str(tmp_path), "--agent", "bs"]) == 2
    assert "agent was 'bsp', is 'bs'" in capsys.readouterr().err.replace("\n", " ")
    train(**{**RUN, "seed": 2}, episodes=5, out=tmp_path, overwrite=True)
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 2
    with pytest.raises(ValueError, match="holds no run to resume"):
        train(**RUN, episodes=5, out=tmp_path / "nothing", resume=True)


def test_the_folder_holds_events_for_tensorboard(tmp_path):
    train(**RUN, episodes=30, out=tmp_path)
    (events,) = (tmp_path / "tensorboard").glob("events.*")
    assert events.stat().st_size > 1000
    assert b"average_regret" in events.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "0"], "size=0 must be"),
        (["--size", "-3"], "size=-3 must be"),
        (["--agent", "bspp"], "did you mean 'bsp'"),
        (["--set", "batch_size=2000", "capacity=1000"], "batch_size=2000 exceeds capacity=1000"),
        (["--set", "prior_scale=many"], "prior_scale='many' must be like 10.0"),
        (["--set", "prior_scale"], "must be NAME=VALUE"),
        (["--set", "kay=3"], "setting='kay' is unknown"),
    ],
)
def test_bad_words_are_one_line_and_exit_code_2(words, message, tmp_path, capsys):
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert message in error
    assert "Traceback" not in error


def test_any_gymnax_environment_with_discrete_actions_can_be_trained_in():
    env, _ = gymnax.make("CartPole-v1")
    result = train("bsp", env, seed=0, episodes=8, changes={**SMALL, "prior_scale": 1.0})
    assert result.env_steps == sum(row.length for row in result.history)
    assert all(row.total_return == row.length for row in result.history), "CartPole pays 1 per step"
    assert result.episodes_to_solve is None
    assert result.episodes_to_learn is None, "what would be optimal, nobody told"
    assert not result.tells_regret
    continuous, _ = gymnax.make("Pendulum-v1")
    with pytest.raises(ValueError, match="these are continuous; use d4pg"):
        train("bsp", continuous, episodes=2)
    small = {"widths": (8,), "batch_size": 8, "capacity": 500, "lowest": -100.0, "highest": 0.0}
    assert train("d4pg", continuous, episodes=1, changes=small).history[0].length == 200
    with pytest.raises(ValueError, match="d4pg needs continuous actions"):
        train("d4pg", env, episodes=1, changes=small)
