"""The site builds strictly, needs no network and has its pictures; its commands exist; examples and notebooks run."""

import ast
import html.parser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import gymnasium
import pytest
import test_readme

from conftest import FOLDER

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def blocks(language):
    """Every block of code of that language in the site's pages, with its page; what is included from a file apart."""
    for page in PAGES:
        for found, code in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
            if found == language and "--8<--" not in code:
                yield page.relative_to(DOCS).as_posix(), code


COMMANDS = sorted({line for _, code in blocks("console") for line in code.replace("\\\n", "").splitlines() if line})


def run(*words, cwd):
    """In a process of its own, which shares the tests' compiled programs."""
    env = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": FOLDER,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "NO_MKDOCS_2_WARNING": "1",
    }
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.slow
def test_example_runs(path, tmp_path):
    assert run(path, cwd=tmp_path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_in_a_page(path):
    assert any(f'"examples/{path.name}"' in page.read_text() for page in PAGES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_notebook_runs_and_is_kept_without_outputs(path, tmp_path):
    text = path.read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    (tmp_path / path.name).write_text(text)
    run("-c", "from nbclient.cli import main; main()", "--inplace", path.name, cwd=tmp_path)
    after = json.loads((tmp_path / path.name).read_text())["cells"]
    kinds = {kind for cell in after for output in cell.get("outputs", ()) for kind in output.get("data", ())}
    assert "image/png" in kinds


@pytest.mark.parametrize("line", COMMANDS)
def test_command_in_the_docs_exists(line):
    line = re.sub(r"^(export )?(\w+=\S+ +)+(#.*)?", "", line)  # variables of the environment
    ray, _, ours = line.partition(" -- ")
    if ray.startswith("ray "):
        parse_ray(shlex.split(line, comments=True)[1:])
    else:
        ours = line
    if ours:
        test_readme.test_command_exists(ours)


def parse_ray(words):
    """As Ray's own command line does, without running it."""
    from ray.scripts.scripts import cli as command

    while hasattr(command, "commands"):
        command, *words = command.commands[words[0]], *words[1:]
    command.make_context("ray", words)


@pytest.mark.slow
def test_python_in_the_guides_runs(tmp_path, monkeypatch):
    """What is no file of its own: the few lines that go on with an agent. Thousands of steps become ones."""
    from priorax import Explorer

    monkeypatch.chdir(tmp_path)
    small = {"num_members": 3, "lanes": 2, "batch_size": 8, "learn_after": 8, "widths": (8,)}
    agent = Explorer("gymnasium:CartPole-v1", seed=0, **small)
    known = {"Explorer": Explorer, "agent": agent, "obs": gymnasium.make("CartPole-v1").reset(seed=0)[0]}
    found = list(blocks("python"))
    for page, code in found:
        exec(compile(code.replace("_000", ""), page, "exec"), known)
    assert len(found) >= 4
    known["agent"].close()
    agent.close()


class Links(html.parser.HTMLParser):
    """What a page loads by itself, and where it leads."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.leads = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag in ("img", "script", "source", "iframe") and found.get("src"):
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(found["href"])
        if tag == "a" and found.get("href"):
            self.leads.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    run("-m", "mkdocs", "build", "--strict", "--quiet", "-f", ROOT / "mkdocs.yml", "-d", folder, cwd=folder)
    return folder


@pytest.mark.xdist_group("site")
def test_every_page_is_built_and_all_it_loads_is_there(site):
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > len(PAGES)
    for path in pages:
        links = Links(path.read_text())
        here = [link for link in links.leads if not re.match(r"https?:|mailto:|#", link)]
        for link in links.loads + here:
            assert not re.match(r"https?:|//", link), f"{path} loads {link} from the network"
            assert (path.parent / unquote(link.split("#")[0].split("?")[0])).exists(), f"{path}: {link}"


@pytest.mark.xdist_group("site")
def test_every_result_is_in_the_gallery(site):
    shown = {link.removeprefix("results/") for link in Links((site / "gallery.html").read_text()).loads}
    for picture in (ROOT / "results").glob("*.png"):
        assert picture.name in shown


@pytest.mark.xdist_group("site")
def test_fields_and_their_words_are_in_the_reference(site):
    """Of a dataclass, an Equinox module, a named tuple, a command."""
    for page, name, words in (
        ("agents", "prior_scale", "multiplies the prior function"),
        ("beliefs", "num_members", "f: the trainable function"),
        ("training", "total_return", "Actions so far, over all lanes"),
        ("cli", "held_out", "Fraction of rows held out"),
    ):
        text = re.sub(r"<[^>]+>", "", (site / "reference" / f"{page}.html").read_text())
        assert name in text
        assert words in text


@pytest.mark.xdist_group("site")
def test_parameters_are_tables_in_the_reference(site):
    """Of a function, a method, a constructor; with the text of their docstrings."""
    for page, name, words in (
        ("beliefs", "sample_weight", "None weighs all rows equally"),
        ("estimators", "return_std", "Whether to return the epistemic standard deviation as well"),
        ("environments", "max_frames", "Screens after which a game is truncated"),
    ):
        tables = re.findall(r"<table>.*?</table>", (site / "reference" / f"{page}.html").read_text(), flags=re.DOTALL)
        assert any(f"<code>{name}</code>" in table and words in re.sub(r"\s+", " ", table) for table in tables), name


@pytest.mark.xdist_group("site")
def test_fields_show_their_default_and_not_the_call(site):
    text = re.sub(r"<[^>]+>", "", (site / "reference" / "beliefs.html").read_text())
    assert re.search(r"num_members: int = 20", text)
    assert "eqx.field" not in text


def public_functions(path):
    """Documented functions and methods without a leading underscore, by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        for part in getattr(node, "body", ()) if isinstance(node, (ast.Module, ast.ClassDef)) else ():
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and ast.get_docstring(part):
                yield part


def unconverted():
    """Folders whose docstrings ruff does not check yet."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    return tuple(pattern.removesuffix("**") for pattern, codes in settings.items() if "D417" in codes)


def test_public_docstrings_have_a_section_for_arguments():
    """Ruff's D417 says which argument a section lacks, but not that there is no section."""
    paths = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "src").rglob("*.py"))]
    checked = [path for path in paths if not path.startswith(unconverted())]
    assert len(checked) > 70
    for path in checked:
        for function in public_functions(ROOT / path):
            given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            takes = [argument.arg for argument in given if argument.arg not in ("self", "cls")]
            assert not takes or "Args:\n" in ast.get_docstring(function), f"{path}: {function.name}: no Args"


@pytest.mark.xdist_group("site")
def test_nothing_is_left_unfilled(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<!-- (result|section|other)|--8&lt;--|:::", text), path


def test_pictures_of_the_docs_are_drawn_by_a_script():
    for picture in (DOCS / "pictures").glob("*.png"):
        assert picture.with_suffix(".py").is_file()
        assert picture.stat().st_size < 200_000
