"""The package in examples/plugin, installed: a belief, an agent and environments of someone else's, by name and through
the command line, with no file of ours changed."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "examples" / "plugin"
SMALL = ["--set", "num_members=5", "batch_size=16", "concentration=0.5"]


def built_wheel(folder):
    """A wheel as a build backend makes it, which would have to be fetched: the module, and metadata by pyproject."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    points = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items())
              for group, entries in project["entry-points"].items()]  # fmt: skip
    inside = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": (SOURCE / f"{name}.py").read_text(),
        f"{inside}/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n",
        f"{inside}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{inside}/entry_points.txt": "\n".join(points),
    }
    files[f"{inside}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{inside}/RECORD"])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment of a process in which the package is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", str(folder / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(built_wheel(folder))], check=True)
    paths = [str(folder / "site"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"}


@pytest.fixture
def priorax(installed, tmp_path):
    def run(*words, code=0):
        command = [sys.executable, "-m", "priorax.cli", *map(str, words)]
        found = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True)
        assert found.returncode == code, found.stdout + found.stderr
        return " ".join((found.stdout + found.stderr).split())

    return run


def rows(folder):
    return (folder / "episodes.csv").read_text().splitlines()


def test_it_is_listed_with_its_settings(priorax):
    assert "mixture random averages of an ensemble priorax-mixture" in priorax("agents").replace("│ ", "")
    shown = priorax("agents", "mixture").replace("│ ", "")
    assert "concentration 0.3 Concentration of the Dirichlet weights" in shown
    assert "learning_rate 0.002 Learning rate of the optimizer. float; in presets: paper 0.001" in shown, (
        "presets are ours, where it has the setting"
    )
    listed = priorax("environments").replace("│ ", "")
    assert "corridor corridor with a reward at the right end tuned priorax-mixture" in listed
    words = priorax("train", "--help")
    assert all(name in words for name in ("mixture", "corridor", "walk"))
    words = priorax("train", "--agent", "mixture", "--set", "mask_prob=0.5", code=2)
    assert "setting='mask_prob' does not exist for --agent mixture" in words
    assert "is called 'mixture' here" in priorax("train", "--agent", "bayesian_bootstrap", code=2)


def test_help_loads_no_plug_in(installed):
    script = (
        "import sys, priorax.cli; from priorax.names import agent_names; assert 'mixture' in agent_names();"
        "assert 'priorax_mixture' not in sys.modules and 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], env=installed, check=True)


def test_killed_and_resumed_in_the_compiled_loop_it_gives_the_same_rows(priorax, installed, tmp_path):
    training = ["train", "--agent", "mixture", "--env", "corridor", "--size", 6, "--episodes", 3000, *SMALL]
    priorax(*training, "--out", "whole")
    killed = tmp_path / "killed"
    command = [
        sys.executable,
        "-m",
        "priorax.cli",
        *map(str, training),
        "--out",
        "killed",
        "--checkpoint-seconds",
        "0",
    ]
    process = subprocess.Popen(command, env=installed, cwd=tmp_path, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list(killed.glob("checkpoint/*")) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was over before it could be killed"
    assert not (killed / "result.json").exists()
    priorax("train", "--resume", "killed")
    assert rows(killed) == rows(tmp_path / "whole")
    config = json.loads((killed / "run.json").read_text())
    assert config["agent"] == "mixture" and config["settings"]["concentration"] == 0.5
    assert "belief" not in config["settings"] and "mask_prob" not in config["settings"]
    learned = json.loads((killed / "result.json").read_text())
    assert learned["episodes_to_learn"] is not None, "and it learns"
    assert "mixture" in priorax("inspect", "killed") and "checksums" in priorax("inspect", "killed")
    priorax("report", "killed", "whole", "--out", "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "mixture" in page and "corridor 6" in page and "--set" in page and "concentration=0.5" in page
    assert "Corridor cannot be rendered" in priorax("watch", "killed", code=2)
    script = "import priorax; policy = priorax.load('killed'); print([policy.predict(place) for place in range(6)])"
    found = subprocess.run([sys.executable, "-c", script], env=installed, cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout.strip() == "[1, 1, 1, 1, 1, 1]", found.stderr


def test_it_is_compared_with_ours(priorax, tmp_path):
    words = ["--agents", "mixture,eps_greedy", "--env", "corridor", "--sizes", "4", "--seeds", 1, "--episodes", 60]
    assert "mixture" in priorax("compare", *words)
    assert any(
        "mixture,corridor,4" in row for row in (tmp_path / "results" / "compare_tuned.csv").read_text().splitlines()
    )


def test_it_trains_and_goes_on_on_the_host(priorax, tmp_path):
    training = ["train", "--agent", "mixture", "--env", "walk", "--size", 2, "--steps", 400, "--out", "run", *SMALL]
    priorax(*training, "learn_after=16")
    config = json.loads((tmp_path / "run" / "run.json").read_text())
    assert config["backend"] == "host" and config["preset"] == "finite"
    priorax("train", "--resume", "run", "--steps", 600)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 600
    assert "mixture" in priorax("inspect", "run")
    assert "hold=2 is not supported for --env walk" in priorax(*training, "hold=2", "--overwrite", code=2)
