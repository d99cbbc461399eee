"""The report on runs: what it reads, what it says, and the page in a browser."""

import json
import re
import shlex
import shutil

import numpy as np
import pytest
from test_viewer import browser  # noqa: F401

from priorax import train
from priorax.agents import settings
from priorax.cli import parse
from priorax.report.runs import command, find_runs, group_runs
from priorax.report.runs_page import POINTS, write_report
from priorax.training.records import Episode
from priorax.training.request import parse_changes
from priorax.training.run_files import as_json

FEW = {"num_members": 10, "capacity": 500, "batch_size": 32}
EPISODES = {"bsp": 60, "eps_greedy": 12}
EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>{{common.css}}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two agents, two seeds each, two folders down."""
    top = tmp_path_factory.mktemp("runs")
    results = {}
    for agent, episodes in EPISODES.items():
        changes = FEW if agent == "bsp" else {name: FEW[name] for name in ("capacity", "batch_size")}
        for seed in (0, 1):
            arguments = {"size": 4, "seed": seed, "episodes": episodes, "changes": changes}
            results[agent, seed] = train(agent, "deep_sea", **arguments, out=top / "inner" / f"{agent}-{seed}")
    return top, results


@pytest.fixture
def copied(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / "runs")


@pytest.fixture(scope="module")
def page(made, tmp_path_factory):
    return write_report([made[0]], tmp_path_factory.mktemp("page") / "report.html")


def edit(folder, name="run.json", **values):
    found = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**found, **values}))


def host_run(folder, seed=0, episodes=1000, **config):
    """A run on the host that did not happen."""
    folder.mkdir(parents=True)
    chosen = as_json(settings("bsp", "small", prior_scale=2.5, widths=(), clip=None).settled())
    config_of_run = {"agent": "bsp", "env": "atari", "game": "Freeway", "size": 10, "seed": seed, "preset": "small"}
    config_of_run = {
        **config_of_run,
        "backend": "host",
        "settings": chosen,
        "version": "0.1.0",
        "steps": 90_000,
        **config,
    }
    (folder / "run.json").write_text(json.dumps(config_of_run))
    random = np.random.default_rng(seed)
    lengths = random.integers(20, 150, episodes)
    rows = [
        f"{i + 1},{s},0,{i / 100},{n},{0.5 if i else ''},{i},,,"
        for i, (n, s) in enumerate(zip(lengths, np.cumsum(lengths), strict=True))
    ]
    (folder / "episodes.csv").write_text("\n".join([",".join(Episode._fields), *rows]) + "\n")
    return folder


def data_of(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text()).group(1))


def commands_of(browser):  # noqa: F811
    return browser.value("[...document.querySelectorAll('.again')].map(c => c.textContent)")


def test_runs_are_read_as_they_were(made):
    top, results = made
    groups = group_runs(find_runs([top, top / "inner", top / "inner" / "bsp-0"]))
    assert [(group.first.agent, [run.config["seed"] for run in group.runs]) for group in groups] == [
        ("bsp", [0, 1]),
        ("eps_greedy", [0, 1]),
    ]
    for run in (run for group in groups for run in group.runs):
        result = results[run.agent, run.config["seed"]]
        assert run.finished
        assert (run.learned, run.solved) == (result.episodes_to_learn, result.episodes_to_solve)
        assert run.tells_regret is result.tells_regret is True
        np.testing.assert_allclose(run.rows["total_return"], [row.total_return for row in result.history])
        assert run.steps[-1] == result.steps
    assert groups[0].first.changes == FEW
    assert groups[0].first.name.endswith("inner/bsp-0")


def test_curves_are_the_runs_rows(made, page):
    (task,) = data_of(page)
    assert task["task"] == "deep_sea 4"
    assert [chart["title"] for chart in task["charts"]] == ["Return by episode", "Average regret by episode"]
    assert task["note"] == "Every episode has 4 steps, so curves by step are the same."
    for place, agent in enumerate(EPISODES):
        for seed in (0, 1):
            history = made[1][agent, seed].history
            for chart, column in zip(task["charts"], ("total_return", "average_regret"), strict=True):
                drawn = chart["curves"][place]["runs"][seed]
                assert drawn["seed"] == str(seed)
                np.testing.assert_allclose(drawn["values"], [getattr(row, column) for row in history], rtol=1e-5)


def test_long_runs_are_thinned(tmp_path):
    for seed, episodes in ((0, 1000), (1, 990)):
        host_run(tmp_path / "runs" / str(seed), seed, episodes)
    page = write_report([tmp_path / "runs"], tmp_path / "report.html")
    by_episode, by_step = data_of(page)[0]["charts"]
    assert (by_step["x"], len(data_of(page)[0]["charts"])) == ("step", 2)
    for chart in (by_episode, by_step):
        (curve,) = chart["curves"]
        assert [len(run["values"]) > POINTS / 2 for run in curve["runs"]] == [True, True]
        assert max(len(run["values"]) for run in curve["runs"]) <= POINTS
        values = curve["runs"][0]["values"]
        assert values == sorted(values)
        assert np.mean(values) == pytest.approx(9.99 / 2, rel=0.02)
    assert by_episode["curves"][0]["runs"][0]["values"][0] == pytest.approx(0.01)
    assert page.stat().st_size < 200_000


def test_bad_folders_are_named(copied, tmp_path):
    with pytest.raises(ValueError, match=r"folders=\[\] is empty"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(ValueError, match=r"folder '.*nowhere' does not exist"):
        write_report([tmp_path / "nowhere"], tmp_path / "report.html")
    (tmp_path / "empty" / "a" / "b").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"folder '.*empty' contains no run.*priorax train"):
        write_report([copied, tmp_path / "empty"], tmp_path / "report.html")
    bad = copied / "inner" / "bsp-0"
    for name, text, words in (
        ("result.json", "[]", "result.json is damaged"),
        ("episodes.csv", "episode,total_return\n1,x\n", "episodes.csv is damaged"),
        ("episodes.csv", "episode,length\n1,4\n", "no column total_return"),
        ("run.json", "{", "run.json is damaged"),
        ("run.json", "{}", "no agent, env"),
    ):
        (bad / name).write_text(text)
        with pytest.raises(ValueError, match=f"bsp-0/.*{words}"):
            write_report([copied], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_unfinished_runs_are_marked(copied, tmp_path):
    inner = copied / "inner"
    (inner / "eps_greedy-1" / "result.json").unlink()
    rows = (inner / "eps_greedy-1" / "episodes.csv").read_text().splitlines()[:6]
    (inner / "eps_greedy-1" / "episodes.csv").write_text("\n".join(rows) + "\n6,0.")  # killed while it wrote
    edit(inner / "bsp-1", "result.json", episodes=50)  # resumed since
    (inner / "eps_greedy-0" / "result.json").unlink()
    (inner / "eps_greedy-0" / "episodes.csv").write_text(rows[0] + "\n")
    runs = {run.name.split("/")[-1]: run for run in find_runs([copied])}
    assert {name for name, run in runs.items() if not run.finished} == {"eps_greedy-0", "eps_greedy-1", "bsp-1"}
    assert (runs["eps_greedy-1"].episodes, runs["eps_greedy-0"].episodes) == (5, 0)
    assert runs["eps_greedy-1"].tells_regret
    text = write_report([copied], tmp_path / "report.html").read_text()
    assert "3 of them not finished" in text
    assert text.count('<span class="open">not finished: ') == 3
    assert "not yet in 5" in text
    assert "2 not finished</span>" in text


def test_commands_repeat_runs(copied, tmp_path):
    host_run(copied / "host")
    host_run(copied / "apex", actors=3, shards=2)
    train("bsp", size=4, episodes=500, changes=FEW, stop_when_learned=True, out=copied / "stopped")
    for run in find_runs([copied]):
        words, note = command(run)
        assert note == ""
        command_line = parse(shlex.split(words)[1:])
        names = ["agent", "env", "game", "seed", "preset", "episodes", "steps", "actors", "shards"]
        assert command_line.size == (4 if run.config["env"] == "deep_sea" else None)
        for name in names:
            assert getattr(command_line, name, None) == run.config.get(name)
        assert (
            as_json(
                settings(
                    command_line.agent, command_line.preset, **parse_changes(command_line.agent, command_line.set)
                ).settled()
            )
            == run.config["settings"]
        )
        assert getattr(command_line, "stop_when_learned", False) is run.name.endswith("stopped")
        assert type(command_line).__name__ == ("Apex" if run.name.endswith("apex") else "Train")


def test_runs_that_repeat_a_seed_are_no_further_seeds(made, tmp_path):
    """The longest of each seed counts; short runs are not said to be long."""
    top = tmp_path / "runs"
    for i in range(3):
        shutil.copytree(made[0] / "inner" / "bsp-0", top / f"copy-{i}")
    train("bsp", size=4, episodes=2, seed=0, changes=FEW, out=top / "short")
    train("bsp", size=4, episodes=2, seed=1, changes=FEW, out=top / "other")
    (group,) = group_runs(find_runs([top]))
    assert [(run.config["seed"], run.episodes) for run in group.counted] == [(0, 60), (1, 2)]
    page = write_report([top], tmp_path / "report.html")
    text = page.read_text()
    assert "learned by 1 of 2 seeds, not in 2 episodes by the rest" in text
    assert "3 of them repeat a seed" in text and text.count("repeats a seed, not counted above") == 3
    assert "last 2 to 60 episodes" in text
    (task,) = data_of(page)
    assert task["groups"][0]["seeds"] == 2
    assert [run["seed"] for run in task["charts"][0]["curves"][0]["runs"]] == ["0", "1"]


def test_evaluations_are_shown_and_repeated(tmp_path):
    folder = host_run(tmp_path / "runs" / "a", 0, 5, evaluate_every=200, evaluation_episodes=2, deploy="vote")
    (folder / "evaluations.csv").write_text("step,episode,total_return\n200,1,10\n200,2,20\n400,1,440\n400,2,442\n")
    host_run(tmp_path / "runs" / "b", 1, 5)
    page = write_report([tmp_path / "runs"], tmp_path / "report.html")
    chart = next(chart for chart in data_of(page)[0]["charts"] if "deployed" in chart["title"])
    assert (chart["x"], chart["curves"][0]["width"]) == ("step", 200)
    assert [run["values"] for run in chart["curves"][0]["runs"]] == [[15.0, 441.0]]
    text = page.read_text()
    assert "over the last 5 episodes; deployed 441 in the last evaluation" in text
    assert "last 100" not in text
    command_line = parse(shlex.split(command(find_runs([folder])[0])[0])[1:])
    assert (command_line.evaluate_every, command_line.evaluation_episodes, command_line.deploy) == (200, 2, "vote")
    (folder / "evaluations.csv").write_text("step,episode\n200,1\n")
    with pytest.raises(ValueError, match=r"evaluations.csv is damaged \(no column total_return\)"):
        find_runs([folder])


def test_what_no_command_can_say_is_said(copied):
    folder = copied / "inner" / "bsp-0"
    before = json.loads((folder / "run.json").read_text())
    for values, words in (
        ({"env": "object:MyWorld"}, "MyWorld is a custom environment; pass it to priorax.train"),
        ({"agent": "bspp"}, "agent='bspp' is unknown"),
        ({"settings": {**before["settings"], "num_members": "many"}}, "num_members='many' must be"),
        ({"settings": {**before["settings"], "gone": 1}}, "has no setting gone"),
        ({"settings": {k: v for k, v in before["settings"].items() if k != "hold"}}, "had no setting hold"),
    ):
        edit(folder, **{**before, **values})
        (run,) = find_runs([folder])
        words_found, note = command(run)
        assert words in note
        assert bool(words_found) is note.startswith("Not identical")


def test_it_says_what_was_found(browser, made, page):  # noqa: F811
    browser.open(page)
    assert browser.complaints() == []
    results = made[1]
    table = browser.value(
        "[...document.querySelectorAll('#times tbody tr')].map(r => [...r.children].map(c => c.innerText))"
    )
    assert len(table) == 2
    for row, agent in zip(table, EPISODES, strict=True):
        for column, name in ((2, "episodes_to_learn"), (4, "episodes_to_solve")):
            times = [getattr(results[agent, seed], name) for seed in (0, 1)]
            median = np.median([np.inf if when is None else when for when in times])
            assert row[column] == (
                f"{median:,.1f}".removesuffix(".0")
                if np.isfinite(median)
                else ["", "", "not learned", "", "not solved"][column]
            )
            for seed, when in enumerate(times):
                assert f"{seed}: {when or f'not in {EPISODES[agent]}'}" in row[column + 1]
    assert results["bsp", 0].episodes_to_learn is not None
    assert "learned by 2 of 2 seeds" in browser.value("document.getElementById('summary').textContent")
    names = browser.value(
        "[...document.querySelectorAll('#settings table')]"
        ".map(t => [...t.querySelectorAll('tbody th')].map(c => c.textContent))"
    )
    assert names[1] == ["epsilon", "num_members", "prior"]
    assert len(names[2]) == len(as_json(settings("bsp")))
    assert len(commands_of(browser)) == 4


def test_curves_answer_to_pointer_keys_and_names(browser, made, page):  # noqa: F811
    browser.open(page)
    tip, first = "document.querySelector('.tip').innerText", "document.querySelector('figure svg')"
    browser.value("smooth.value = '1'; smooth.dispatchEvent(new Event('change'))")
    browser.value(f"{first}.focus()")
    browser.key("Home")
    starts = [made[1]["bsp", seed].history[0].total_return for seed in (0, 1)]
    said = browser.value(tip)
    assert said.startswith("episode 1\n")
    shown = re.search(r"bsp.*: (-?[\d.]+) \((-?[\d.]+) to (-?[\d.]+), 2 seeds\)", said)
    assert [float(v) for v in shown.groups()] == pytest.approx([np.mean(starts), min(starts), max(starts)], rel=0.01)
    assert "eps_greedy" in said
    browser.key("End")
    assert browser.value(tip).startswith("episode 60\n")
    assert "eps_greedy" not in browser.value(tip)
    x, y = browser.value(f"(b => [b.left + b.width / 2, b.top + 50])({first}.getBoundingClientRect())")
    browser.mouse("mouseMoved", x, y)
    assert re.match(r"episode (2|3)\d\n", browser.value(tip))
    lines = "document.querySelectorAll('figure:first-child .mean').length"
    assert browser.value(lines) == 2
    browser.value("document.querySelector('.legend button').click()")
    assert browser.value(lines) == 1
    assert browser.complaints() == []


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_it_loads_in_silence_and_fits(browser, copied, tmp_path, width, scheme):  # noqa: F811
    host_run(copied / "host")
    (copied / "inner" / "bsp-1" / "result.json").unlink()
    page = write_report([copied], tmp_path / "report.html")
    browser.open(page, width=width, scheme=scheme)
    assert browser.complaints() == []
    assert all(url.startswith(("file:", "data:")) for url in browser.asked_for())
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('figure').length") == 4
    assert not re.search(r"https?://|\bsrc=|\bhref=|@import|url\(|\{\{", page.read_text())


def test_words_from_files_stay_words(browser, copied, tmp_path):  # noqa: F811
    inner = copied / "inner"
    before = json.loads((inner / "bsp-0" / "run.json").read_text())
    evil = dict.fromkeys(("agent", "env", "preset", "size", "seed", "version", "game", "episodes"), EVIL)
    edit(inner / "bsp-0", **evil, settings={**before["settings"], EVIL: EVIL, "prior": [EVIL, "\ud800"]})
    edit(inner / "bsp-1", seed=EVIL, settings={**before["settings"], "prior": EVIL, "widths": {EVIL: EVIL}})
    (inner / "eps_greedy-0").rename(inner / "<img src=x onerror=alert(1)>")
    edit(inner / "eps_greedy-1", "result.json", episodes_to_learn=EVIL, tells_regret=EVIL)
    page = write_report([copied], tmp_path / "report.html")
    browser.open(page)
    assert browser.complaints() == []
    assert browser.value("window.hacked") is None
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.scripts.length") == 2
    assert EVIL in browser.value("document.querySelector('h1').textContent")
    browser.value("document.querySelector('figure svg').focus()")
    browser.key("Home")
    assert browser.value("window.hacked") is None
