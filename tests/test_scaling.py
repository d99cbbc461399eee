"""The model of throughput and its costs; the commands that measure throughput and devices, in a small form."""

import math

import pytest

from benchmarks import actors, devices
from priorax.report.rows import read_rows
from tools import sources
from tools.throughput import ACTIONS, DOLLARS, Model, costs_by_rate, fitted, measured_beside_model

NUMBERS = (1, 2, 4, 8)


@pytest.mark.parametrize("model", [Model(100.0, 350.0), Model(100.0, 90.0), Model(100.0, math.inf)])
def test_a_fit_recovers_the_model_that_made_the_rates(model):
    rates = [model.rate(n) for n in NUMBERS]
    found = fitted(NUMBERS, rates)
    assert [found.rate(n) for n in NUMBERS] == pytest.approx(rates)
    assert found.limit == pytest.approx(model.limit)


def test_a_fit_is_nearer_to_noisy_rates_than_other_models():
    rates = [100.0, 190.0, 330.0, 360.0]
    found = fitted(NUMBERS, rates)
    others = [Model(found.one_actor * a, found.limit * b) for a in (0.97, 1, 1.03) for b in (0.97, 1, 1.03)]
    assert found.error(NUMBERS, rates) == min(other.error(NUMBERS, rates) for other in others) > 0


def row(every, number, rate):
    return {"learn_every": every, "actors": number, "actions_per_second": rate, "cores": 2}


def test_rows_stand_beside_both_models():
    header, *lines = measured_beside_model([row(4, 2, 150.0), row(4, 1, 100.0)], 120.0, 0.02)
    assert len(header) == 5
    assert lines == [("4", "1", "100", "100", "120"), ("4", "2", "150", "150", "200")]


def test_costs_are_by_the_model_and_by_the_fastest_measured_rate():
    _, *lines = costs_by_rate([row(4, 1, 100.0), row(4, 2, 200.0), row(4, 4, 150.0)], 100.0, 0.04)
    model, _, measured = lines
    assert model == (
        "model of unit costs",
        "4",
        "50",
        f"{ACTIONS / 50 / 3600:,.0f}",
        f"{ACTIONS / 50 / 1800 * DOLLARS:,.2f}",
    )
    assert measured[:3] == ("measured, 2 actors", "4", "200") and measured[3] == f"{ACTIONS / 200 / 3600:,.0f}"


def test_the_page_says_so_while_there_are_no_rows(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "benchmarks").mkdir()
    unit = (sources.ROOT / "benchmarks" / "results.json").read_bytes()
    (tmp_path / "benchmarks" / "results.json").write_bytes(unit)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    assert "no rows yet" in sources.actors() and "measured" not in sources.costs()
    (tmp_path / "results" / "actors.csv").write_text("learn_every,actors,actions_per_second,cores\n4,1,100.5,2\n")
    assert "| 4 | 1 | 100 | 100 |" in sources.actors() and "measured, 1 actors" in sources.costs()


@pytest.mark.slow
def test_throughput_is_measured_once_for_each_number_of_actors(tmp_path, capsys):
    out = tmp_path / "actors.csv"
    small = {"features": 16, "batch_size": 8, "learn_after": 32, "capacity": 2000, "lanes": 2, "num_members": 2}
    words = ["--env", "pixel_deep_sea", "--actors", "1,2", "--every", "4", "--seconds", "2", "--out", str(out)]
    words += [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    actors.main(words)
    found = read_rows(out)
    assert [(each["actors"], each["learn_every"]) for each in found] == [(1, 4), (2, 4)]
    for each in found:
        assert each["seconds"] >= 2 and each["actions_per_second"] == pytest.approx(
            each["actions"] / each["seconds"], rel=0.05
        )
        # in so short a time what is begun counts: chunks of actions that are not learned from yet, or were before
        assert each["updates"] == pytest.approx(each["actions"] / 4, abs=64 + 0.5 * each["actions"] / 4)
        assert each["updates"] > 0
    actors.main(words)
    assert read_rows(out) == found and "fitted model" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", devices.KINDS)
def test_an_update_is_measured_on_one_and_two_devices(kind, tmp_path, capsys):
    out = tmp_path / "devices.csv"
    words = ["--members", "2", "--kinds", kind, "--updates", "1", "--repeats", "1", "--out", str(out)]
    devices.main(words)
    assert [(each["kind"], each["members"], each["devices"]) for each in read_rows(out)] == [(kind, 2, 1), (kind, 2, 2)]
    assert "devices=2: " in capsys.readouterr().out
