"""The command as a user meets it, in a process of its own where that matters."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings

import pytest
from PIL import Image

from priorax import __version__, sanity
from priorax.caching import enable_compilation_cache
from priorax.cli import main
from priorax.report.rows import read_rows
from priorax.sanity import Check

COMMAND = [sys.executable, "-m", "priorax.cli"]


def test_version_and_help_answer_at_once(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"priorax {__version__}\n"
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "reproduce" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["train", "apex", "watch", "scale", "bsuite", "fit"])
def test_help_says_each_default_once(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert "None" not in out and "(default: )" not in out
    assert main(["--version"]) == 0


def test_an_error_stands_without_the_bar_that_it_ended(tmp_path):
    command = [*COMMAND, "train", "--env", "gymnasium:Pendulum-v1", "--out", str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stdout == "" and result.stderr.startswith("error: ")


@pytest.mark.parametrize(
    "words", [["train"], ["train", "--env", "gymnasium:CartPole-v1"], ["scale", "--env", "deep_sea"]]
)
def test_a_seed_below_zero_is_refused(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--seed", "-1"]) == 2
    assert "--seed -1 must be a whole number of at least 0" in capsys.readouterr().err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_help_does_not_wait_for_jax():
    script = "import sys, priorax.cli; assert 'jax' not in sys.modules and 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_unknown_figure_is_one_line_and_exit_code_2(capsys, tmp_path):
    assert main(["reproduce", "figur13", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'figure13'" in error.replace("\n", " ")
    assert "Traceback" not in error
    with pytest.raises(ValueError, match="figur13"):
        main(["reproduce", "figur13", "--out", str(tmp_path), "--debug"])


def test_reproduce_writes_rows_and_pictures_and_says_where(capsys, tmp_path):
    assert main(["reproduce", "figure2", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for ending in ("csv", "png", "svg"):
        assert f"figure2_quick.{ending}" in out
        assert (tmp_path / f"figure2_quick.{ending}").stat().st_size > 1000


def test_an_unwritable_folder_is_exit_code_1(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert main(["reproduce", "figure2", "--out", str(tmp_path / "file")]) == 1
    assert "choose another folder" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("passed", [True, False])
def test_check_prints_a_table_and_fails_when_a_lemma_does(passed, capsys, monkeypatch):
    check = Check("lemma 9", "a claim", 1.5, "> 1", passed, "a note")
    monkeypatch.setattr(sanity, "run_checks", lambda report: [check])
    assert main(["check"]) == (0 if passed else 1)
    out = capsys.readouterr().out
    assert "lemma 9" in out
    assert "1.5" in out
    assert "a note" in out


@pytest.mark.slow
def test_ctrl_c_in_mid_experiment_keeps_whole_measurements(tmp_path):
    """A real SIGINT to a real run that is training."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and so by children
    process = subprocess.Popen(
        [*COMMAND, "reproduce", "figure13", "--budget", "full", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "FORCE_COLOR": "1"},
    )
    signal.signal(signal.SIGINT, before)
    shown, deadline = b"", time.monotonic() + 120
    while not re.search(rb"[1-9]\d*%", shown) and time.monotonic() < deadline:
        shown += process.stdout.read1()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted" in error
    rows = read_rows(tmp_path / "figure13_full.csv")
    whole = {(row["method"], row["seed"]): 0 for row in rows}
    assert 0 < len(whole) < 80
    assert len(rows) == 121 * len(whole), "rows of whole measurements, and no others"


@pytest.mark.slow
def test_without_a_place_for_the_cache_it_works_all_the_same(tmp_path):
    environment = {**os.environ, "PRIORAX_CACHE": "/proc/none"}
    out = tmp_path / "[odd] name"
    command = [*COMMAND, "reproduce", "figure2", "--out", str(out)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "no compilation cache" in result.stderr
    assert f"wrote {out}/figure2_quick.png" in result.stdout


def test_the_cache_is_the_users_own(tmp_path, monkeypatch):
    before = enable_compilation_cache()
    folder = enable_compilation_cache(tmp_path / "cache")
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="another user"):
        enable_compilation_cache(tmp_path / "cache")
    monkeypatch.undo()
    enable_compilation_cache(before)


FEW = ["num_members=3", "lanes=2", "batch_size=8", "learn_after=8", "widths=8", "capacity=500"]


def test_a_run_in_gymnasium_is_evaluated_on_the_way_inspected_and_made_longer(capsys, tmp_path):
    out = tmp_path / "run"
    words = ["train", "--env", "gymnasium:CartPole-v1", "--episodes", "8", "--evaluate-every", "40", "--json"]
    assert main([*words, "--evaluation-episodes", "2", "--deploy", "vote", "--out", str(out), "--set", *FEW]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] >= 8 and told["evaluation"] > 5
    rows = (out / "evaluations.csv").read_text().splitlines()
    assert rows[0] == "step,episode,total_return"
    assert re.match("4[01],1,", rows[1]) and re.match("4[01],2,", rows[2]), "at the end of a round in two lanes"
    assert main(["inspect", str(out)]) == 0
    assert "gymnasium:CartPole-v1" in capsys.readouterr().out
    more = told["steps"] + 40
    assert main(["train", "--resume", str(out), "--steps", str(more), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] in (more, more + 1)


def test_a_compiled_run_can_be_as_long_as_so_many_steps(capsys, tmp_path):
    assert main(["train", "--size", "4", "--steps", "50", "--json", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 50


@pytest.mark.slow
def test_a_compiled_run_is_evaluated_on_the_way_without_changing_it(capsys, tmp_path):
    plain, tried = tmp_path / "plain", tmp_path / "tried"
    words = ["train", "--size", "4", "--episodes", "150", "--set", "num_members=3"]
    assert main([*words, "--out", str(plain)]) == 0
    assert "deployed" not in capsys.readouterr().out
    more = ["--evaluate-every", "200", "--evaluation-episodes", "2"]
    assert main([*words, *more, "--out", str(tried)]) == 0
    assert "in the last evaluation" in capsys.readouterr().out.replace("\n", " ")
    rows = [line.split(",") for line in (tried / "evaluations.csv").read_text().splitlines()[1:]]
    assert [(int(step), int(i)) for step, i, _ in rows][:4] == [(200, 1), (200, 2), (400, 1), (400, 2)]
    assert all(-0.011 <= float(total) <= 0.991 for *_, total in rows)
    assert (plain / "episodes.csv").read_bytes() == (tried / "episodes.csv").read_bytes()
    assert list((tried / "tensorboard" / "deployed").glob("events*")), "and TensorBoard has them"
    assert list((tried / "tensorboard").glob("events*"))
    assert main(["train", "--resume", str(tried), "--episodes", "300", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evaluation"] is not None
    again = [int(line.split(",")[0]) for line in (tried / "evaluations.csv").read_text().splitlines()[1:]]
    assert again == sorted(again) and set(again) >= {200, 400, 600, 800, 1000}


def test_an_episode_of_a_run_in_gymnasium_is_watched(capsys, tmp_path):
    out = tmp_path / "run"
    words = ["train", "--env", "gymnasium:CartPole-v1", "--steps", "40", "--out", str(out), "--set", *FEW]
    assert main(words) == 0
    assert main(["watch", str(out)]) == 0
    assert "wrote" in capsys.readouterr().out
    with Image.open(out / "episode.gif") as film:
        assert film.n_frames > 3 and film.size == (600, 400)
    host = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**host, "env": "bsuite:catch/0"}))
    assert main(["watch", str(out)]) == 2
    assert "bsuite:catch/0 cannot be rendered" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
def test_names_between_commas_may_have_spaces(capsys, tmp_path):
    words = ["compare", "--agents", "rlsvi, psrl", "--sizes", "3, 4", "--seeds", "1", "--episodes", "2"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "rlsvi" in out and "psrl" in out


def test_a_scale_is_proposed(capsys):
    assert main(["scale", "--env", "deep_sea", "--size", "6", "--steps", "200"]) == 0
    out = capsys.readouterr().out
    assert "proposed prior_scale" in out and "prior_scale=auto" in out


def test_what_has_no_effect_is_said_and_a_chosen_scale_is_told(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = ["train", "--env", "deep_sea", "--size", "3", "--episodes", "2", "--set"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main([*words, "prior_scale=3", "--agent", "bs", "--out", str(tmp_path / "bs")]) == 0
    error = capsys.readouterr().err
    assert error.startswith("warning: prior_scale=3.0 has no effect on agent='bs'") and ".py" not in error
    assert main([*words, "prior_scale=auto", "--out", str(tmp_path / "bsp")]) == 0
    assert re.search(r"prior_scale=auto: \d", capsys.readouterr().out)
    assert main(["train", "--env", "cartpole_swingup", "--size", "3"]) == 2
    assert "--size 3 has no effect on --env cartpole_swingup, which has no size" in capsys.readouterr().err


def test_bsuite_is_run_and_scored(capsys, tmp_path):
    words = ["bsuite", "--sweep", "bandit/0", "--episodes", "10", "--out", str(tmp_path)]
    assert main([*words, "--set", "num_members=3", "batch_size=8", "widths=8"]) == 0
    assert "bandit" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_completions(shell, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["completion", shell])
    assert stop.value.code in (0, None)
    assert "playground" in capsys.readouterr().out


def test_a_compiled_environment_can_be_run_on_the_host_and_its_report_says_so(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "--env", "deep_sea", "--size", "4", "--backend", "host", "--steps", "60", "--out", str(out)]
    small = ["--set", "num_members=2", "widths=4", "batch_size=4", "capacity=100"]
    assert main([*words, *small, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["backend"] == "host"
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert "--backend host" in (tmp_path / "report.html").read_text()
    assert main(["train", "--resume", str(out), "--backend", "scan"]) == 2
    assert "backend was 'host', is 'scan'" in capsys.readouterr().err.replace("\n", " ")
