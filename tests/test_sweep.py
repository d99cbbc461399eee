"""Ladders of runs over processes, and the experiments made of them."""

import pytest

from conftest import sweep_row
from priorax import __version__
from priorax.analysis.parallel import climb
from priorax.experiments import (
    ablation,
    bsuite,
    curves,
    figure3,
    figure4,
    figure8,
    figure9,
    figure10,
    novelty,
    reproduce,
    sweep,
)
from priorax.experiments.compare import compare
from priorax.experiments.sweep import hours, task
from priorax.report.rows import read_rows, write_rows

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


def test_what_is_known_is_not_run():
    ladders = [ladder("known", "bsp", (3, 4), 5)]
    assert list(climb(ladders, lambda item: True)) == []
    assert list(climb(ladders, lambda item: False)) == []


@pytest.mark.parametrize("module", [figure3, figure4, figure8, figure9, figure10, ablation, bsuite])
def test_pictures_and_tables_are_made_from_rows_of_any_part_of_a_sweep(module, tmp_path):
    """As if a third of the runs had not learned: nothing is trained."""
    rows = []
    for ladder_ in module.ladders("quick"):
        for item in (item for level in ladder_ for item in level):
            row = {"experiment": "x", **sweep_row(item), "episodes": 50}
            if len(rows) % 3 or row["size"] == 10:
                row["episodes_to_learn"] = row["size"] * 3 + row["seed"] % 7
            rows.append(row)
    assert module.figure(rows).axes
    header, *body = module.summary(rows)
    assert body
    assert all(len(line) == len(header) for line in body)
    assert 0 < hours(module.ladders("quick")) < 0.3, "quick is quick"
    assert hours(module.ladders("paper")) > hours(module.ladders("quick"))


def test_rows_of_other_settings_are_dropped_and_those_asked_for_are_not_run(tmp_path):
    path = tmp_path / "rows.csv"
    (item,) = ladder("asked", "eps_greedy", (12,), 3)[0]
    row = {"experiment": "test", "preset": "quick", "version": __version__, **sweep_row(item), "episodes": 3}
    write_rows(path, [row, {**row, "settings": "s0"}])
    sweep.run_sweep("test", "quick", [[[item]]], path, lambda share, what: None, only=False)
    assert len(read_rows(path)) == 2
    sweep.run_sweep("test", "quick", [[[item]]], path, lambda share, what: None)
    assert [found["settings"] for found in read_rows(path)] == [row["settings"]]


def test_compare_is_one_table_one_picture_and_goes_on(tmp_path):
    """Real processes; a second call with another agent runs that one only and shows both."""
    common = {"sizes": (4,), "seeds": 1, "episodes": 60, "out": tmp_path}
    first = compare(["rlsvi"], **common)
    assert first.summary[0] == ("method", "N=4")
    assert first.summary[1][0] == "rlsvi" and first.summary[1][1].isdigit()
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
    rows = [{"size": n, "seed": s, "episodes_to_learn": 0.5 * n**2.5} for n in (10, 20, 40) for s in range(3)]
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


@pytest.mark.parametrize("module", [curves, novelty])
def test_small_experiments_give_rows_and_pictures(module, monkeypatch):
    """One agent only, the one that is quickest to compile."""
    monkeypatch.setattr(module, "SIZE", 4)
    monkeypatch.setattr(module, "EPISODES", {"quick": 65})
    monkeypatch.setattr(module, "AGENTS", {"eps_greedy": module.AGENTS["eps_greedy"]})
    rows = list(module.run("quick", lambda share, what: None))
    assert {row["agent"] for row in rows} == set(module.AGENTS)
    assert module.figure(rows).axes
    assert len(module.summary(rows)) == 1 + len(module.AGENTS)
