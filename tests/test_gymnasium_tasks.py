"""Gymnasium's tasks: rows, pictures, and one real run of a few steps."""

import numpy as np
import pytest

from conftest import sweep_row
from priorax.agents import build, settings
from priorax.envs.interface import TaskSpec
from priorax.experiments import gymnasium_tasks, reproduce, sweep
from priorax.experiments.gymnasium_tasks import (
    BLOCKS,
    CALM,
    FEWEST,
    GAMES,
    LOOKS,
    OWN,
    SEEDS,
    by_seed,
    figure,
    ladders,
    outcome,
    smoothed,
    summary,
)
from priorax.report.rows import read_rows, where, write_rows
from priorax.training.records import Episode, Result, mean_of_last

FEW = {"lanes": 2, "batch_size": 4, "capacity": 200, "learn_after": 8, "widths": (8,), "num_members": 2}


def tasks(budget="quick"):
    return [item for ladder in ladders(budget) for level in ladder for item in level]


def episode(number, step, total, lane=0, cells=0):
    """One on the host."""
    return Episode(number, step, lane, total, 5, 0.1, cells, None, None, None)


def host_result(steps, history, cells=0):
    """What a run on the host gave."""
    names = {"agent": "bsp", "env": "gymnasium:CartPole-v1", "game": None, "size": 1, "seed": 0, "preset": "gymnasium"}
    known = {"backend": "host", "steps": steps, "steps_per_second": 1.0, "updates": 0, "cells": cells, "probes": []}
    total = {"episodes": len(history), "mean_return": mean_of_last(history), "tells_regret": False, "history": history}
    total |= {"total_return": float(sum(row.total_return for row in history))}
    total |= {"best": max((row.total_return for row in history), default=None)}
    unknown = ("episodes_to_learn", "episodes_to_solve", "evaluation", "cluster", "policy")
    return Result(**names, **known, **total, **dict.fromkeys(unknown))


def result_of(steps, returns):
    return host_result(steps, [episode(i + 1, step, total) for i, (step, total) in enumerate(returns)])


def invented_rows():
    """As if every run of `quick` had been run."""
    rows = []
    for item in tasks():
        steps = item.arguments["steps"]
        returns = [(step, float(step % 7)) for step in range(500, steps + 1, 500)]
        rows += [{**sweep_row(item), **row} for row in outcome(result_of(steps, returns))]
    return rows


def test_every_task_is_played_by_both_agents_on_three_seeds():
    found = {(item.name, item.arguments["env"], item.arguments["seed"]) for item in tasks()}
    assert found == {
        (name, f"gymnasium:{game.env}", seed) for name in LOOKS for game in GAMES for seed in SEEDS["quick"]
    }
    for item in tasks():
        chosen = settings(item.arguments["agent"], item.arguments["preset"], **item.arguments["changes"])
        assert chosen.num_members == (20 if item.name == "bsp" else 1)
        assert (chosen.prior == "none") == (chosen.epsilon is not None) == (item.name == "eps_greedy")


def test_rows_say_what_each_part_of_a_run_paid():
    rows = outcome(result_of(4000, [(100 * i, float(i)) for i in range(2, 41)]))
    assert len(rows) == BLOCKS and rows[-1]["step"] == 4000
    assert rows[0]["mean_return"] is None and rows[1]["mean_return"] == 2.0
    assert rows[-1]["episodes"] == 39
    assert rows[-1]["mean_return"] == np.mean(range(41 - FEWEST, 41)), "few ended in the last part: the last 20"
    assert rows[-1]["last_100"] == np.mean(range(2, 41)) and rows[-1]["best"] == 40
    many = outcome(result_of(4000, [(i, float(i > 3900)) for i in range(1, 4001)]))
    assert many[-1]["mean_return"] == 1.0 and many[-2]["mean_return"] == 0.0, "all that ended in a part"


def test_dithering_itself_is_not_held_against_an_agent():
    """Of ε-greedy only the lanes that hardly dither count."""
    dithers, calm = episode(1, 10, -9.0, lane=0), episode(2, 20, 5.0, lane=7)
    result = result_of(40, [])._replace(history=[dithers, calm])
    assert outcome(result)[-1]["mean_return"] == -2.0
    assert outcome(result._replace(agent="eps_greedy"))[-1]["mean_return"] == 5.0
    for game in GAMES:
        chosen = settings("eps_greedy", game.preset, **OWN["eps_greedy"])
        chance = build("eps_greedy", chosen, TaskSpec(2, num_states=5)).epsilon_at(
            1000, np.arange(chosen.lanes), chosen.lanes
        )
        assert chance[CALM["eps_greedy"]] < 0.011 < chance[0] == pytest.approx(0.4)


def test_a_run_without_a_finished_episode_has_rows():
    rows = outcome(result_of(400, []))
    assert len(rows) == BLOCKS and all(row["mean_return"] is None for row in rows)


def test_pictures_are_drawn_from_rows(tmp_path):
    write_rows(tmp_path / "rows.csv", invented_rows())
    rows = read_rows(tmp_path / "rows.csv")
    drawing = figure(rows)
    assert len(drawing.axes) == len(GAMES)
    assert all(len(axis.lines) == 1 + len(LOOKS) for axis in drawing.axes)
    header, *body = summary(rows)
    assert len(body) == len(GAMES) * len(LOOKS) and all(len(line) == len(header) for line in body)
    step, returns = by_seed(where(rows, env="gymnasium:CartPole-v1", name="bsp"))
    assert returns.shape == (3, len(step))


def test_part_of_the_runs_can_be_drawn():
    assert len(figure([]).axes) == len(GAMES)
    rows = where(invented_rows(), env="gymnasium:Taxi-v4", name="bsp")
    assert len(figure(rows).axes[-1].lines) == 2 and len(summary(rows)) == 1 + len(GAMES) * len(LOOKS)


def test_seeds_are_drawn_from_where_all_have_a_return():
    rows = [{"seed": seed, "step": 1000 * i, "mean_return": 1.0} for seed in range(2) for i in range(1, 4)]
    del rows[0]["mean_return"]
    step, returns = by_seed(rows)
    assert list(step) == [2.0, 3.0] and returns.shape == (2, 2)


def test_curves_are_smoothed_by_what_was_before():
    assert smoothed(np.array([[3.0, 1.0, 2.0, 6.0]])).tolist() == [[3.0, 2.0, 2.0, 3.0]]
    assert smoothed(np.zeros((2, 0))).shape == (2, 0)


@pytest.mark.slow
def test_a_real_run_gives_rows_once(tmp_path, monkeypatch):
    """One process, a few steps; a second time nothing is run."""
    pytest.importorskip("gymnasium")
    item = next(item for item in tasks() if item.name == "bsp" and "CartPole" in item.arguments["env"])
    ladder = [[item.asking(steps=200, changes={**item.arguments["changes"], **FEW})]]
    path, said = tmp_path / "gymnasium_quick.csv", []
    for _ in range(2):
        sweep.run_sweep("gymnasium", "quick", [ladder], path, lambda share, what: said.append(what), outcome=outcome)
    assert len(said) == 3, "once before the run, once after it, once when there was nothing to do"
    rows = read_rows(path)
    assert len(rows) == BLOCKS and rows[-1]["step"] == 200 and rows[-1]["mean_return"] > 5
    monkeypatch.setattr(gymnasium_tasks, "ladders", lambda budget: [ladder])
    drawn = reproduce("gymnasium", "quick", tmp_path, draw_only=True)
    assert all(found.exists() for found in drawn.paths) and len(drawn.summary) == len(GAMES) * 2 + 1
