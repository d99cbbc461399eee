"""`train` and its folder: rows, checkpoints, resume to the bit, refusals."""

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time

import gymnax
import jax
import pytest

from priorax import Explorer, train
from priorax.agents import agent_spec, build, settings
from priorax.cli import main
from priorax.envs.interface import TaskSpec
from priorax.files import BadFile
from priorax.training import trainer
from priorax.training.backends import scan
from priorax.training.run_files import read_episodes

SMALL = {"num_members": 4, "widths": (8,), "batch_size": 16, "capacity": 300}
RUN = {"agent": "bsp", "env": "deep_sea", "size": 5, "seed": 1, "changes": SMALL}
WORDS = ["--set", "num_members=4", "widths=8", "batch_size=16", "capacity=300"]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(scan, "CHUNK", 100)
    monkeypatch.setattr(trainer, "REPORT_SECONDS", 0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run never stopped: 120 episodes."""
    return train(**RUN, episodes=120)


def interrupt_after(count, number=signal.SIGINT):
    """A real signal at the count-th report."""
    reports = []

    def report(progress):
        reports.append(progress)
        if len(reports) == count:
            os.kill(os.getpid(), number)

    return report


@pytest.fixture(autouse=True)
def hear_ctrl_c():
    """A process in the background ignores it, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_run_is_its_seed(whole):
    assert train(**RUN, episodes=120).history == whole.history
    other = train(**{**RUN, "seed": 2}, episodes=20)
    assert other.history != whole.history[:20]
    assert whole.episodes == len(whole.history) == 120
    assert whole.steps == 600
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


def test_a_folder_has_one_writer_and_one_that_was_killed_is_resumed_to_the_bit(whole, tmp_path, capsys):
    """A real process: others are refused while it runs; after a real kill -9 in mid-run its lock does not count."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "priorax.cli", "train", "--size", "5", "--seed", "1", "--out", str(out)]
    options = ["--episodes", "20000", "--checkpoint-seconds", "0", *WORDS]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not list((out / "checkpoint").glob("commit-*.json")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.05)
        for way in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(ValueError, match="is in use by another process"):
                train(**RUN, episodes=20000, out=out, **way)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wanted = max(400, len(read_episodes(out)))
    capsys.readouterr()
    assert main(["train", "--resume", str(out), "--episodes", str(wanted), "--json"]) == 0
    rows = read_episodes(out)
    assert len(rows) == wanted
    assert rows[:120] == whole.history
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"agent", "env", "size", "seed", "episodes", "episodes_to_learn", "total_return"} <= set(said)
    assert "steps_per_second" in said


def test_a_damaged_checkpoint_is_told_and_the_one_before_still_serves(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(**RUN, episodes=120, out=tmp_path, checkpoint_seconds=0.0, report=interrupt_after(4))
    folder = tmp_path / "checkpoint"
    newest = max(folder.glob("commit-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    state = folder / json.loads(newest.read_text())["state"]
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(BadFile, match=rf"is damaged.*delete .*{newest.name} to continue from step"):
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
        with pytest.raises(OSError, match=r"cannot write to .*checkpoint of step 200 is intact; free disk space"):
            train(**RUN, episodes=120, out=tmp_path, resume=True, checkpoint_seconds=0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    gc.collect()
    assert train(**RUN, episodes=120, out=tmp_path, resume=True).history == whole.history


def test_a_folder_with_a_run_is_not_overwritten_by_accident(tmp_path, capsys):
    train(**RUN, episodes=5, out=tmp_path)
    with pytest.raises(ValueError, match="already contains a run; pass --resume to continue it or --overwrite"):
        train(**RUN, episodes=5, out=tmp_path)
    with pytest.raises(ValueError, match=r"another configuration: seed was 1, is 2; num_members was 4, is 3"):
        train(**{**RUN, "seed": 2, "changes": {**SMALL, "num_members": 3}}, episodes=5, out=tmp_path, resume=True)
    assert main(["train", "--resume", str(tmp_path), "--agent", "bs"]) == 2
    assert "agent was 'bsp', is 'bs'" in capsys.readouterr().err.replace("\n", " ")
    train(**{**RUN, "seed": 2}, episodes=5, out=tmp_path, overwrite=True)
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 2
    with pytest.raises(ValueError, match="contains no run to resume"):
        train(**RUN, episodes=5, out=tmp_path / "nothing", resume=True)


@pytest.mark.slow
def test_what_a_finished_run_learned_is_what_it_saved(tmp_path, monkeypatch):
    """Whatever is left of the last chunk: 99 episodes of 10 steps are fewer than one."""
    monkeypatch.setattr(scan, "CHUNK", 1000)
    result = train("bsp", "deep_sea", size=10, seed=0, episodes=99, out=tmp_path)
    assert result.history[-1].total_return == pytest.approx(0.99)
    agent = Explorer.load(tmp_path)
    assert agent.evaluate(2) == pytest.approx([0.99, 0.99])
    agent.close()


def test_a_run_made_longer_is_saved_at_its_new_end(whole, tmp_path):
    for episodes in (7, 33, 120):
        train(**RUN, episodes=episodes, out=tmp_path, resume=episodes > 7)
        assert checkpoint_steps(tmp_path)[-1] == 5 * episodes
    assert read_episodes(tmp_path) == whole.history


def checkpoint_steps(out):
    return sorted(int(path.stem.split("-")[1]) for path in (out / "checkpoint").glob("commit-*.json"))


@pytest.mark.parametrize(("wanted", "least"), [({"episodes": 12}, 40), ({"steps": 60}, 200)])
def test_a_run_is_not_made_shorter_by_resuming(wanted, least, tmp_path):
    train(**RUN, episodes=40, out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.[cj]s*") if path.is_file()}
    with pytest.raises(
        ValueError, match=rf"is less than the {least} (episodes|steps) of the run .* pass at least {least}"
    ):
        train(**RUN, **wanted, out=tmp_path, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    assert train(**RUN, **dict.fromkeys(wanted, least), out=tmp_path, resume=True).episodes == 40


def test_a_run_that_ended_or_failed_lets_go_of_its_folder(tmp_path):
    train(**RUN, episodes=5, out=tmp_path)
    with pytest.raises(ValueError, match="already contains a run"):
        train(**RUN, episodes=5, out=tmp_path)
    assert train(**RUN, episodes=6, out=tmp_path, resume=True).episodes == 6


def test_only_resume_goes_on_from_what_is_in_a_folder(tmp_path):
    train(**RUN, episodes=20, out=tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match=r"contains parts of a run \(episodes.csv, result.json, checkpoint, "):
        train(**RUN, episodes=5, out=tmp_path)
    other = {**RUN, "seed": 9}
    (tmp_path / "notes.txt").write_text("mine")
    again = train(**other, episodes=5, out=tmp_path, overwrite=True)
    assert again.history == train(**other, episodes=5).history
    assert read_episodes(tmp_path) == again.history
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_old_run_that_cannot_be_removed_is_an_error(tmp_path, monkeypatch):
    train(**RUN, episodes=5, out=tmp_path)

    def refused(path, *args, **more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refused)
    with pytest.raises(OSError, match=r"cannot remove .*checkpoint of the old run \(Permission denied\)"):
        train(**RUN, episodes=5, out=tmp_path, overwrite=True)


def test_rows_that_do_not_number_their_episodes_are_refused(tmp_path):
    train(**RUN, episodes=20, out=tmp_path)
    rows = tmp_path / "episodes.csv"
    text = rows.read_text()
    rows.write_text(text.replace("\n12,", "\n13,", 1))
    with pytest.raises(BadFile, match="row 12 has the episode number 13"):
        train(**RUN, episodes=30, out=tmp_path, resume=True)
    rows.write_text(text[:-9])
    with pytest.raises(BadFile, match=r"episodes\.csv is truncated"):
        train(**RUN, episodes=30, out=tmp_path, resume=True)
    assert rows.read_text() == text[:-9], "what is refused is left as it was"
    rows.write_text(text)
    train(**RUN, episodes=30, out=tmp_path, resume=True)


def test_a_run_of_another_version_goes_on_by_force(whole, tmp_path, capsys):
    train(**RUN, episodes=20, out=tmp_path)
    config = json.loads((tmp_path / "run.json").read_text())
    newer = config["settings"].pop("hold")
    (tmp_path / "run.json").write_text(json.dumps({**config, "version": "0.0.1"}))
    assert main(["train", "--resume", str(tmp_path), "--episodes", "120"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "version was '0.0.1'" in said
    assert f"hold was None, is {newer}" in said
    assert "pass --force" in said
    with pytest.raises(ValueError, match="num_members was 4, is 3"):
        train(**{**RUN, "changes": {**SMALL, "num_members": 3}}, episodes=120, out=tmp_path, resume=True, force=True)
    assert main(["train", "--resume", str(tmp_path), "--episodes", "120", "--force"]) == 0
    assert read_episodes(tmp_path) == whole.history
    assert json.loads((tmp_path / "run.json").read_text())["earlier_versions"] == ["0.0.1"]


def test_a_run_of_another_format_is_refused_whatever_is_forced(tmp_path):
    train(**RUN, episodes=5, out=tmp_path)
    config = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**config, "format": 1, "version": "0.0.1"}))
    with pytest.raises(BadFile, match=r"file format 1, but priorax .* resume with priorax 0.0.1"):
        train(**RUN, episodes=9, out=tmp_path, resume=True, force=True)


def damaged(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def stopped_run(out):
    """With two checkpoints, of which the newer has one more segment of replay."""
    with pytest.raises(KeyboardInterrupt):
        train(**RUN, episodes=120, out=out, checkpoint_seconds=0.0, report=interrupt_after(2))
    older, newer = checkpoint_steps(out)
    return out / "checkpoint", older, newer


def test_a_changed_count_in_a_commit_is_noticed(whole, tmp_path):
    folder, older, newer = stopped_run(tmp_path)
    commit = folder / f"commit-{newer}.json"
    text = commit.read_text()
    assert '"episodes": ' in text
    commit.write_text(text.replace('"episodes": ', '"episodes": 1'))
    with pytest.raises(
        BadFile, match=rf"checksum differs\); delete .*commit-{newer}.json to continue from step {older}"
    ):
        train(**RUN, episodes=120, out=tmp_path, resume=True)
    commit.unlink()
    assert train(**RUN, episodes=120, out=tmp_path, resume=True).history == whole.history


def test_rows_that_were_cut_short_leave_the_older_checkpoint(whole, tmp_path):
    folder, older, newer = stopped_run(tmp_path)
    rows = tmp_path / "episodes.csv"
    rows.write_bytes(rows.read_bytes()[: json.loads((folder / f"commit-{older}.json").read_text())["rows_bytes"] + 9])
    with pytest.raises(BadFile, match=rf"is truncated.*; delete .*commit-{newer}.json to continue from step {older}"):
        train(**RUN, episodes=120, out=tmp_path, resume=True)
    (folder / f"commit-{newer}.json").unlink()
    assert train(**RUN, episodes=120, out=tmp_path, resume=True).history == whole.history


def test_a_segment_that_all_checkpoints_need_cannot_be_gone_back_from(tmp_path):
    folder, _, newer = stopped_run(tmp_path)
    damaged(folder / "replay-0-100.safetensors")
    with pytest.raises(BadFile, match=rf"step {newer} is damaged.*no older checkpoint is intact: start the run again"):
        train(**RUN, episodes=120, out=tmp_path, resume=True)


def test_a_damaged_older_commit_does_not_stop_a_run(whole, tmp_path):
    folder, older, _ = stopped_run(tmp_path)
    (folder / f"commit-{older}.json").write_text("")
    assert train(**RUN, episodes=120, out=tmp_path, resume=True).history == whole.history
    (folder / f"commit-{checkpoint_steps(tmp_path)[0]}.json").write_text("[" * 100_000)
    damaged(folder / f"commit-{checkpoint_steps(tmp_path)[-1]}.json")
    with pytest.raises(BadFile, match="no older checkpoint is intact"):
        train(**RUN, episodes=130, out=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_saves_and_stops(number, code, whole, tmp_path):
    """A real signal to a real process that saves once an hour."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "priorax.cli", "train", "--size", "5", "--seed", "1", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--episodes", "1000000", "--checkpoint-seconds", "3600", *WORDS], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not (out / "episodes.csv").exists() or (out / "episodes.csv").stat().st_size < 2000:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) == code
    rows = read_episodes(out)
    assert len(checkpoint_steps(out)) == 1
    assert checkpoint_steps(out)[0] // 5 == len(rows) >= 20
    assert rows[:20] == whole.history[:20]


def test_a_second_run_of_the_same_kind_compiles_nothing(tmp_path):
    train(**RUN, episodes=3)
    seen = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: seen.append(name))
    try:
        train(**{**RUN, "seed": 5}, episodes=3)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not [name for name in seen if "backend_compile" in name]


def test_the_folder_holds_events_for_tensorboard(tmp_path):
    train(**RUN, episodes=30, out=tmp_path)
    (events,) = (tmp_path / "tensorboard").glob("events.*")
    assert events.stat().st_size > 1000
    assert b"average_regret" in events.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "0"], "--size 0 must be"),
        (["--size", "-3"], "--size -3 must be"),
        (["--agent", "bspp"], "did you mean 'bsp'"),
        (["--set", "batch_size=2000", "capacity=1000"], "batch_size=2000 exceeds capacity=1000"),
        (["--set", "prior_scale=many"], "prior_scale='many' must be a number or 'auto'"),
        (["--set", "prior_scale"], "must be NAME=VALUE"),
        (["--set", "kay=3"], "setting='kay' is unknown"),
    ],
)
def test_bad_words_are_one_line_and_exit_code_2(words, message, tmp_path, capsys):
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert message in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_any_gymnax_environment_with_discrete_actions_can_be_trained_in():
    env, _ = gymnax.make("CartPole-v1")
    result = train("bsp", env, seed=0, episodes=8, changes={**SMALL, "prior_scale": 1.0})
    assert result.preset == "gymnasium", "as by its name, gymnax:CartPole-v1"
    assert result.steps == sum(row.length for row in result.history), "that preset holds no actions"
    assert all(row.total_return == row.length for row in result.history), "CartPole pays 1 per step"
    assert result.episodes_to_solve is None
    assert result.episodes_to_learn is None, "what would be optimal, nobody told"
    assert not result.tells_regret
    continuous, _ = gymnax.make("Pendulum-v1")
    with pytest.raises(ValueError, match="the environment has continuous ones; use agent='d4pg'"):
        train("bsp", continuous, episodes=2)
    small = {"widths": (8,), "batch_size": 8, "capacity": 500, "lowest": -100.0, "highest": 0.0}
    assert train("d4pg", continuous, episodes=1, changes=small).history[0].length == 200
    with pytest.raises(ValueError, match="agent='d4pg' needs continuous actions"):
        train("d4pg", env, episodes=1, changes=small)


@pytest.mark.parametrize("backend", ["scan", pytest.param("host", marks=pytest.mark.slow)])
def test_a_name_a_spec_and_an_agent_object_train_alike(backend, tmp_path):
    run = {"env": "deep_sea", "size": 4, "seed": 3, "episodes": 12, "backend": backend}
    changes = {**SMALL, "lanes": 1}
    named = train("bsp", **run, changes=changes)
    assert train(agent_spec("bsp"), **run, changes=changes).history == named.history
    built = build("bsp", settings("bsp", **changes), TaskSpec(2, num_states=16, horizon=4))
    mine = train(built, **run, out=tmp_path)
    assert mine.history == named.history and mine.agent == "object:QLearner"
    longer = {**run, "episodes": 20}
    assert train(built, **longer, out=tmp_path, resume=True).history[:12] == named.history
    with pytest.raises(ValueError, match="num_members"):
        train(built, **run, changes={"num_members": 3})
