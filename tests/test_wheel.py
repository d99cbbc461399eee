"""What users install: the wheel alone, without extras, in an environment and a folder of its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import priorax
from priorax import PriorEnsembleRegressor, train

assert Path(priorax.__file__).is_relative_to(sys.prefix), priorax.__file__
assert not any(find_spec(name) for name in ("ray", "gymnasium", "gymnax", "bsuite", "mujoco", "ale_py", "beartype"))
x = np.linspace(-1, 1, 60)[:, None]
model = PriorEnsembleRegressor(num_members=5, steps=300).fit(x, np.sin(3 * x[:, 0]))
mean, std = model.predict([[0.0], [9.0]], return_std=True)
assert abs(mean[0]) < 0.2 and std[1] > 3 * std[0], (mean, std)
result = train("bsp", "deep_sea", size=5, episodes=300, out="run", stop_when_learned=True)
assert result.episodes_to_learn is not None and Path("run/episodes.csv").is_file()
"""


def run(*words, cwd, code=0):
    """Away from the repository and from what the tests' own environment says; gives what was printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return " ".join(f"{done.stdout} {done.stderr}".split())


def build(out, *words):
    """With Python's own path as it is: the builder is one of the tools for development."""
    command = [sys.executable, "-m", "build", *words, "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return next(out.glob("*.whl"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the source distribution, which is built from the repository."""
    out = tmp_path_factory.mktemp("dist") / "both"
    out.mkdir()
    return build(out)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of programs of an environment that has the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return programs


def test_the_wheel_from_the_source_distribution_is_that_of_the_repository(wheel, tmp_path):
    out = tmp_path / "direct"
    out.mkdir()
    ours, theirs = contents(build(out, "--wheel")), contents(wheel)
    assert sorted(ours) == sorted(theirs)
    assert ours == theirs
    files = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "priorax").rglob("*")}
    wanted = {name for name in files if (ROOT / "src" / name).is_file() and "__pycache__" not in name}
    assert wanted <= set(ours)


def test_alone_it_fits_and_trains(installed, tmp_path):
    run(installed / "python", "-c", PROGRAM, cwd=tmp_path)


def test_alone_it_has_its_demo(installed, tmp_path):
    said = run(installed / "priorax", "demo", "--out", tmp_path / "demo", cwd=tmp_path)
    assert "figure13_quick.png" in said
    for name in ("figure13", "figure12", "curves"):
        for ending in ("csv", "png", "svg"):
            assert (tmp_path / "demo" / f"{name}_quick.{ending}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["train", "--env", "gymnasium:CartPole-v1"], "gymnasium"),
        (["train", "--env", "gymnax:CartPole-v1"], "gymnax"),
        (["train", "--env", "bsuite:catch/0"], "bsuite"),
        (["train", "--env", "atari", "--game", "Freeway"], "atari"),
        (["apex", "--env", "pixel_deep_sea", "--size", "3"], "cluster"),
    ],
)
def test_what_needs_an_extra_says_which(installed, words, extra, tmp_path):
    said = run(installed / "priorax", *words, "--steps", "10", "--out", tmp_path / "run", cwd=tmp_path, code=2)
    assert f'pip install "priorax[{extra}]"' in said
    assert "Traceback" not in said


def test_mujoco_is_an_extra_too(installed, tmp_path):
    said = run(installed / "python", "-c", "import priorax.envs.host.control", cwd=tmp_path, code=1)
    assert "pip install 'priorax[control]'" in said
