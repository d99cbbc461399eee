"""The experiments from pixels: their rows and pictures, from real runs of a few steps."""

import pytest
from test_gymnasium_tasks import episode, host_result

from priorax.experiments import reproduce
from priorax.experiments.pixels import figure6
from priorax.experiments.pixels import two_cores as pixels
from priorax.experiments.pixels.runs import BLOCKS, found_treasure, outcome
from priorax.experiments.sweep import run_sweep
from priorax.report.rows import read_rows

FEW = {"features": 8, "lanes": 2, "batch_size": 4, "capacity": 200, "learn_after": 8}


def test_rows_say_what_each_part_of_a_run_paid():
    history = [episode(1, 10, 1.0, cells=3), episode(2, 12, 3.0, cells=4), episode(3, 99, -1.0, cells=9)]
    rows = outcome(host_result(100, history, cells=11))
    assert len(rows) == BLOCKS and rows[-1]["step"] == 100
    assert [row["mean_return"] for row in rows[:4]] == [None, 1.0, 3.0, None]
    assert rows[1]["cells"] == 3 and rows[-1] == {
        "step": 100,
        "episodes": 3,
        "mean_return": -1.0,
        "best": 3.0,
        "cells": 11,
    }


def test_half_of_the_last_hundred_episodes_is_found():
    rows = [episode(i, i, 0.0) for i in range(100)] + [episode(i, i, 0.99) for i in range(49)]
    assert not found_treasure(rows)
    assert found_treasure([*rows, episode(0, 0, 0.99)])
    assert not found_treasure(rows[-49:])


@pytest.mark.parametrize("module, name", [(pixels, "pixels"), (figure6, "figure6")])
@pytest.mark.slow
def test_every_run_of_an_experiment_can_be_drawn(module, name, tmp_path, monkeypatch):
    """Each of its runs for a few steps, in processes; a second time nothing is run."""
    ladders = []
    for ((item,),) in module.ladders("quick")[-3:]:
        members = {} if item.arguments["agent"] == "eps_greedy" else {"num_members": 2}
        changes = {**item.arguments["changes"], **FEW, **members}
        ladders.append([[item.asking(steps=24, changes=changes)]])
    path = tmp_path / f"{name}_quick.csv"
    said = []
    run_sweep(name, "quick", ladders, path, lambda share, words: said.append(words), outcome=module.outcome)
    rows = read_rows(path)
    assert len(rows) == 3 * BLOCKS
    monkeypatch.setattr(module, "ladders", lambda budget: ladders)
    result = reproduce(name, "quick", tmp_path, draw_only=True)
    assert len(result.summary) >= 3 and all(found.exists() for found in result.paths)
    before = path.read_bytes()
    run_sweep(name, "quick", ladders, path, lambda share, words: said.append(words), outcome=module.outcome)
    assert path.read_bytes() == before


def test_the_length_of_the_paper_says_what_it_needs_before_it_starts(tmp_path):
    said = []

    def interrupt(words):
        said.append(words)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce("figure6", "full", tmp_path, announce=interrupt)
    assert "200 million frames" in said[0] and "priorax apex" in said[0]
