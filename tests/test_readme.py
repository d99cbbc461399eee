"""The README's code runs, and its commands are ones that exist."""

import re
import shlex
from pathlib import Path

import pytest

from priorax.cli import parse

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]
COMMANDS = [line for language, code in BLOCKS if language == "console" for line in code.splitlines() if line]


@pytest.mark.slow
@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_python_block_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("line", COMMANDS)
def test_command_exists(line):
    words = shlex.split(line.removeprefix("$ ").split("#")[0])
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    elif words[0].endswith("priorax"):
        parse(words[1:])
    else:
        assert words[0] in ("git", "pip", "cd")


def test_no_number_is_left_blank():
    assert not re.findall(r"[A-Z]+_[A-Z0-9]+", README.replace("CPU", ""))


def test_there_is_something_to_run():
    assert len(PYTHON) >= 2
    assert len(COMMANDS) >= 4


def test_pictures_in_the_readme_exist():
    for path in re.findall(r"\]\(([^)]+\.png)\)", README):
        assert (ROOT / path).is_file(), path
