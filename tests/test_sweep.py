"""Ladders of runs over processes, and the experiments made of them."""

import contextlib
import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from conftest import sweep_row, until, write_sweep
from priorax.analysis import parallel
from priorax.analysis.parallel import Task, climb
from priorax.doctor import EXTRAS
from priorax.experiments import controls, experiment, reproduce, sweep
from priorax.experiments.bsuite import deep_sea as bsuite
from priorax.experiments.compare import compare
from priorax.experiments.deep_sea import (
    ablation,
    curves,
    figure3,
    figure4,
    figure8,
    figure9,
    figure10,
    masks,
    novelty,
    one_network,
    search,
)
from priorax.experiments.sweep import hours, task
from priorax.fitting import NonFiniteLoss
from priorax.report.intervals import median_interval
from priorax.report.rows import read_rows, write_rows
from priorax.training.records import Result
from priorax.training.trainer import train

SMALL = {"num_members": 10, "widths": (16,), "batch_size": 32, "capacity": 300}


def ladder(name, agent, sizes, episodes):
    return [[task(name, agent, size, 0, episodes, **SMALL)] for size in sizes]


@pytest.mark.slow
def test_ladders_stop_where_all_seeds_fail_and_go_on_where_they_were_stopped(tmp_path):
    """Two real processes. The easy ladder is climbed to its top, the hopeless one only to its first step."""
    path = tmp_path / "rows.csv"
    ladders = [ladder("easy", "bsp", (3, 4), 300), ladder("hopeless", "eps_greedy", (12, 13), 3)]
    said = []
    sweep.run_sweep("test", "quick", ladders, path, lambda share, what: said.append(share))
    rows = read_rows(path)
    assert sorted((row["name"], row["size"]) for row in rows) == [("easy", 3), ("easy", 4), ("hopeless", 12)]
    assert all(("episodes_to_learn" in row) == (row["name"] == "easy") for row in rows)
    before = path.read_bytes()
    started = []
    sweep.run_sweep("test", "quick", ladders, path, lambda share, what: started.append(what))
    assert len(started) == 1, "nothing was run again"
    assert path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are listed as on Linux")
def test_workers_end_when_the_process_that_started_them_is_killed():
    program = "import signal; from priorax.analysis.parallel import *; "
    program += "list(climb([[[Task('waits', {}, signal.pause)]]], lambda item: None, 1))"
    parent = subprocess.Popen([sys.executable, "-c", program])
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    try:
        until(lambda: len(children.read_text().split()) == 2, seconds=120)  # the worker, and what tracks its resources
        started = [Path("/proc", child) for child in children.read_text().split()]
        # the worker has its threads
        until(lambda: any(len(list((child / "task").iterdir())) > 1 for child in started), seconds=120)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(map(_lives, started)), seconds=120)


def _lives(process):
    try:
        return "\nState:\tZ" not in (process / "status").read_text()
    except OSError:
        return False


def test_what_is_known_is_not_run():
    ladders = [ladder("known", "bsp", (3, 4), 5)]
    assert list(climb(ladders, lambda item: True)) == []
    assert list(climb(ladders, lambda item: False)) == []


@pytest.mark.parametrize(
    "module", [figure3, figure4, figure8, figure9, figure10, masks, search, ablation, bsuite, one_network]
)
def test_pictures_and_tables_are_made_from_rows_of_any_part_of_a_sweep(module, tmp_path):
    """As if a third of the runs had not learned: nothing is trained."""
    rows = []
    for ladder_ in module.ladders("quick"):
        for item in (item for level in ladder_ for item in level):
            row = {"experiment": "x", **sweep_row(item), "episodes": 50}
            if len(rows) % 3 or row["size"] == 10:
                row["episodes_to_learn"] = row["size"] * 3 + row["seed"] % 7
                row["updates"] = row["episodes_to_learn"] * row["size"]
            rows.append(row)
    assert module.figure(rows).axes
    header, *body = module.summary(rows)
    assert body
    assert all(len(line) == len(header) for line in body)
    assert 0 < hours(module.ladders("quick")) < 0.3, "quick is quick"
    assert hours(module.ladders("full")) > hours(module.ladders("quick"))


def test_rows_of_other_settings_are_kept_and_not_shown_and_known_runs_are_not_repeated(tmp_path):
    path = tmp_path / "rows.csv"
    (item,) = ladder("asked", "eps_greedy", (12,), 3)[0]
    row = {"experiment": "test", "budget": "quick", **sweep_row(item), "episodes": 3}
    others = [{**row, "settings": "s0"}, {**row, "rows_version": 1}]
    write_sweep(path, [row, *others], [item])
    before = path.read_bytes()
    shown = sweep.run_sweep("test", "quick", [[[item]]], path, lambda share, what: None)
    assert len(shown) == 1 and shown[0]["settings"] == row["settings"]
    assert path.read_bytes() == before, "nothing is rewritten"


class Inline:
    """An executor that runs each task when its result is asked for, in order."""

    def __init__(self):
        self.begun = []

    def submit(self, function, item):
        self.begun.append(item.name)
        future = Future()
        try:
            future.set_result(function(item))
        except BaseException as error:
            future.set_exception(error)
        return future


def test_a_run_that_diverges_is_a_row_that_did_not_learn_and_ladders_are_climbed_in_order(tmp_path, monkeypatch):
    def trained(agent, **_):
        if agent == "eps_greedy":
            raise NonFiniteLoss("the loss became nan at step 7; lower the learning rate")
        numbers = {"size": 4, "steps_per_second": 1.0, "episodes": 3, "episodes_to_learn": 3, "tells_regret": True}
        return Result(**{**dict.fromkeys(Result._fields), **numbers})

    pool = Inline()
    monkeypatch.setattr(parallel, "train", trained)
    monkeypatch.setattr(parallel, "usable_cores", lambda: 1)
    monkeypatch.setattr(parallel, "_pool", lambda workers: contextlib.nullcontext(pool))
    ladders = [ladder("easy", "bsp", (3, 4), 300), ladder("diverges", "eps_greedy", (5, 6), 9)]
    path, said = tmp_path / "rows.csv", []
    sweep.run_sweep("test", "quick", [*ladders, *ladders], path, lambda share, what: said.append(what))
    rows = {(row["name"], row["size"]): row for row in read_rows(path)}
    assert set(rows) == {("easy", 3), ("easy", 4), ("diverges", 5)}, "a size at which all diverge is the last"
    assert "episodes_to_learn" not in rows["diverges", 5] and "at step 7" in rows["diverges", 5]["diverged"]
    assert any("diverges: the loss became nan" in words for words in said)
    assert pool.begun == ["easy", "easy", "diverges"], "a ladder ends before the next one begins"
    with pytest.raises(NonFiniteLoss):
        sweep.run_sweep("own", "quick", ladders[1:], tmp_path / "own.csv", lambda *_: None, lambda result: [{}])


def test_measurements_whose_packages_are_missing_are_left_out_with_a_word():
    ladders = [[[Task("ours", {}, count)]], [[Task("peer", {}, count, needs="no-such-package")]]]
    kept, told = sweep.runnable(ladders)
    assert [item.name for ladder_ in kept for level in ladder_ for item in level] == ["ours"]
    assert told == [
        "no-such-package is not installed, so 1 measurements with it are skipped; pip install no-such-package and run "
        "this again"
    ]
    peers = {item.needs for ladder_ in controls.ladders("full") for level in ladder_ for item in level} - {""}
    assert peers == {"stable-baselines3", "dm-haiku"} and peers <= set(EXTRAS["peers"])


def count(size, seed):
    """A measurement that gives two rows, with columns of its own."""
    return [{"env": "counted", "bandit": i, "number": size + seed} for i in range(2)]


def test_a_measurement_is_made_once_and_all_its_rows_are_shown(tmp_path, monkeypatch):
    def in_process(ladders, done):
        for (item,) in (level for ladder_ in ladders for level in ladder_):
            if done(item) is None:
                yield item, item.measure(**item.arguments)

    monkeypatch.setattr(sweep, "climb", in_process)
    ladders = [[[Task("counts", {"size": 3, "seed": seed}, count)]] for seed in range(2)]
    path, said = tmp_path / "rows.csv", []
    for _ in range(2):
        rows = sweep.run_sweep("test", "quick", ladders, path, lambda share, what: said.append(what))
    assert [(row["seed"], row["bandit"], row["number"]) for row in rows] == [(0, 0, 3), (0, 1, 3), (1, 0, 4), (1, 1, 4)]
    assert said[-1] == "2 of at most 2 runs" and len(said) == 4, "the second time nothing is measured"


def test_a_setting_that_is_new_since_a_row_was_made_counts_as_its_default(tmp_path):
    path = tmp_path / "rows.csv"
    (item,) = ladder("asked", "eps_greedy", (12,), 3)[0]
    chosen = sweep.hyperparameters(item)
    older = {name: value for name, value in chosen.items() if name != "l2_reading"}
    row = {**sweep_row(item), "settings": sweep.fingerprint(older), "episodes": 3}
    write_rows(path, [row])
    path.with_suffix(".settings.json").write_text(json.dumps({sweep.fingerprint(older): older}))
    assert len(sweep.select(path, [[[item]]])) == 1
    other = item._replace(arguments={**item.arguments, "changes": {**SMALL, "l2_reading": "coefficient"}})
    with pytest.warns(UserWarning, match="l2_reading='coefficient' has no effect"):
        assert sweep.select(path, [[[other]]]) == []


def test_every_method_of_the_search_has_twelve_settings_and_the_same_seeds_sizes_and_episodes():
    per_method = {}
    for ladder_ in search.ladders("full"):
        for item in (item for level in ladder_ for item in level):
            spec = item.arguments
            seen = per_method.setdefault(item.name, (set(), set()))
            seen[0].add(sweep_row(item)["settings"])
            seen[1].add((spec["size"], spec["seed"], spec["episodes"], spec["learned_after"]))
    assert set(per_method) == set(search.GRIDS)
    assert {len(settings) for settings, _ in per_method.values()} == {12}
    assert len({frozenset(runs) for _, runs in per_method.values()}) == 1
    shown = {item.arguments["seed"] for ladder_ in figure3.ladders("full") for level in ladder_ for item in level}
    searched = {seed for _, runs in per_method.values() for _, seed, *_ in runs}
    assert not shown & searched, "settings are chosen on some seeds and shown on others"


def test_the_search_prefers_what_all_seeds_learn_then_any_then_the_time():
    def rows(changes, times):
        common = {"name": "bs", "changes": search.words(changes), "most_episodes": 9}
        found = [{**common, "size": size, "seed": seed} for size, seed, _ in times]
        return [
            {**row, "episodes_to_learn": time} if time else row for row, (*_, time) in zip(found, times, strict=True)
        ]

    first, second, third, *_ = search.GRIDS["bs"]
    found = rows(first, [(5, 0, 3), (5, 1, 4), (8, 0, 5), (8, 1, None)])
    found += rows(second, [(5, 0, 9), (5, 1, 9), (8, 0, 9), (8, 1, 9), (10, 0, None)])
    assert search.best(found, "bs") == second, "all seeds at 8"
    found += rows(third, [(5, 0, 9), (5, 1, 9), (8, 0, 7), (8, 1, 8), (10, 0, None)])
    assert search.best(found, "bs") == third, "the same, sooner"
    assert search.figure(found).axes
    assert search.summary(found)[1][1] == search.words(third)


def test_the_chosen_settings_are_the_best_of_the_committed_rows():
    path = Path(__file__).parent.parent / "results" / "search_full.csv"
    rows = sweep.select(path, search.ladders("full")) if path.exists() else []
    found = {method for method in search.GRIDS if any(row["name"] == method for row in rows)}
    assert {method: search.best(rows, method) for method in search.CHOSEN if method in found} == search.CHOSEN


@pytest.mark.parametrize("name", ["figure3", "figure9", "figure10", "table1"])
def test_full_refuses_agents_without_a_choice_and_quick_says_that_they_have_defaults(name, tmp_path, monkeypatch):
    module, started = experiment(name), []
    monkeypatch.setattr("priorax.experiments.run_sweep", lambda *_: started.append(name))
    monkeypatch.setattr("priorax.experiments.rows_of", lambda *_: [])
    monkeypatch.setattr("priorax.experiments.save_figure", lambda *_: [])
    monkeypatch.setattr(module, "figure", lambda rows: None)
    monkeypatch.setattr(module, "summary", lambda rows: [])
    first, *others = module.SEARCHED
    monkeypatch.setattr(search, "CHOSEN", {})
    with pytest.raises(
        ValueError, match=rf"{name} needs settings .* {first}.*`priorax reproduce search --budget full`"
    ):
        reproduce(name, "full", tmp_path)
    assert not started
    said = []
    reproduce(name, "quick", tmp_path, announce=said.append)
    assert started == [name] and first in said[0] and "defaults" in said[0]
    monkeypatch.setattr(search, "CHOSEN", {agent: search.GRIDS[agent][0] for agent in others})
    with pytest.raises(ValueError, match=f"for {first};"):
        reproduce(name, "full", tmp_path)
    search.CHOSEN[first] = search.GRIDS[first][0]
    said.clear()
    reproduce(name, "full", tmp_path, announce=said.append)
    assert started == [name, name] and not any("defaults" in words for words in said)
    runs = [item for ladder_ in module.ladders("full") for level in ladder_ for item in level if not item.measure]
    changed = {item.arguments["agent"]: item.arguments["changes"] for item in runs if item.name != "eps_greedy long"}
    expected = {**search.CHOSEN, "bsp": {}}
    for agent, changes in changed.items():
        kept = {setting: value for setting, value in expected[agent].items() if setting != "bonus_scale"}
        assert kept.items() <= changes.items(), agent


def test_bsp_alone_needs_no_choice():
    assert search.chosen("bsp") == {}
    agents = {i.arguments["agent"] for ladder_ in figure8.ladders("full") for level in ladder_ for i in level}
    assert agents == {"bsp"} and not hasattr(figure8, "SEARCHED")


def test_a_median_has_an_interval_and_runs_that_did_not_learn_count():
    assert median_interval([5.0]) == (5.0, 5.0, 5.0)
    found = median_interval([10.0, 12.0, 11.0, 13.0, 9.0])
    assert found.low <= found.value == 11.0 <= found.high
    assert found.low >= 9.0 and found.high <= 13.0
    lost = median_interval([10.0, 12.0, float("inf"), 11.0, float("inf")])
    assert lost.value == 12.0 and lost.high == float("inf")
    assert median_interval([float("inf")] * 3).words() == "∞ [∞, ∞]"
    with pytest.raises(ValueError, match="no runs"):
        median_interval([])


@pytest.mark.slow
def test_compare_is_one_table_one_picture_and_goes_on(tmp_path):
    """Real processes; a second call with another agent runs that one only and shows both."""
    common = {"sizes": (4,), "seeds": 1, "episodes": 60, "out": tmp_path}
    first = compare(["rlsvi"], **common)
    assert first.summary[0] == ("method", "N=4")
    assert first.summary[1][0] == "rlsvi" and first.summary[1][1].split()[0].isdigit()
    said = []
    both = compare(["rlsvi", "ucrl"], **common, report=lambda share, what: said.append(what))
    assert [row[0] for row in both.summary[1:]] == ["rlsvi", "ucrl"]
    assert not any("rlsvi" in what for what in said)
    assert sorted(path.suffix for path in both.paths) == [".csv", ".png", ".svg"]
    assert both.rows[0] == first.rows[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"agents": ["bsp", "dropuot"]}, "did you mean 'dropout'"),
        ({"agents": ["bsp", "dqn"]}, "agent='dqn' is called 'eps_greedy' here"),
        ({"env": "cartpole_swingup"}, "does not report regret.*priorax report"),
        ({"env": "gymnasium:CartPole-v1"}, "does not report regret"),
        ({"env": "pixel_deep_sea"}, "does not report regret"),
        ({"env": "deep_see"}, "did you mean 'deep_sea'"),
        ({"sizes": (5, 0)}, "size=0"),
        ({"seeds": 0}, "seeds=0"),
    ],
)
def test_compare_says_what_is_wrong_before_any_work(changed, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        compare(**{"agents": ["bsp"], "out": tmp_path, **changed})


def test_a_scaling_exponent_is_found():
    common = {"name": "bsp", "most_episodes": 9}
    rows = [{**common, "size": n, "episodes_to_learn": 0.5 * n**2.5} for n in (10, 20, 40) for s in range(3)]
    exponent, low, high = figure8.slope(rows)
    assert exponent == pytest.approx(2.5)
    assert low <= exponent <= high


def test_bsuites_score_counts_sizes_that_beat_dithering():
    rows = [{"name": "deep_sea", "size": n, "episodes_to_learn": t} for n, t in ((10, 1124), (12, 90), (14, 9000))]
    rows.append({"name": "deep_sea", "size": 16})
    assert bsuite.score(rows, "deep_sea") == 0.5


def test_drawing_alone_needs_rows(tmp_path):
    with pytest.raises(FileNotFoundError, match="no rows"):
        reproduce("figure3", "quick", tmp_path, draw_only=True)


def test_rows_of_a_measurement_are_found_whatever_its_arguments_are_called(tmp_path):
    made = Task("a", {"agent": "bsp", "seed": 0}, measured_with_an_agent)
    path = tmp_path / "rows.csv"
    rows = sweep.run_sweep("any", "quick", [[[made]]], path, lambda share, what: None)
    assert [row["value"] for row in rows] == [3]
    said = []
    sweep.run_sweep("any", "quick", [[[made]]], path, lambda share, what: said.append(what))
    assert said == ["1 of at most 1 runs"], "it is not run again"


def measured_with_an_agent(agent, seed):
    return [{"value": 3}]


@pytest.mark.parametrize("module", [curves, novelty])
def test_small_experiments_give_rows_and_pictures(module, monkeypatch):
    """One agent only, the one that is quickest to compile."""
    monkeypatch.setattr(module, "SIZE", 4)
    monkeypatch.setattr(module, "EPISODES", {"quick": 65})
    monkeypatch.setattr(module, "AGENTS", {"eps_greedy": module.AGENTS["eps_greedy"]})
    (((item,),),) = module.ladders("quick")
    found = item.measure(**item.arguments) if item.measure else module.outcome(train(**item.arguments))
    rows = [{"name": item.name, **item.arguments, **row} for row in found]
    assert rows[0]["seed"] == sweep.FIRST_SEED
    assert module.figure(rows).axes
    assert len(module.summary(rows)) == 1 + len(module.AGENTS)
