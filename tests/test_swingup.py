"""Cartpole swing-up: what its experiments write, D4PG by name, and episodes as moving pictures."""

from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from priorax import train
from priorax.analysis.record import load, record_in_mujoco
from priorax.cli import main
from priorax.envs.host.control import ControlCartpole
from priorax.envs.jax.cartpole import CartpoleSwingup
from priorax.experiments import reproduce, rows_of
from priorax.experiments.bsuite import swingup as bsuite_swingup
from priorax.experiments.deep_sea.search import words
from priorax.experiments.swingup import figure5, figure11
from priorax.experiments.swingup import grid as swingup_grid
from priorax.experiments.swingup import runs as swingup
from priorax.report.rows import read_rows
from priorax.training.setup import set_up

SMALL = {"num_members": 3, "widths": (8,), "batch_size": 8, "capacity": 2000, "hold": 10}
ONE = {name: value for name, value in SMALL.items() if name != "num_members"}


@pytest.fixture(scope="module")
def small_run():
    item = swingup.swingup_task("bsp", "bsp", 0, 20, "cartpole_swingup", **SMALL)
    return train(**item.arguments)


def test_rows_say_what_came_and_why(small_run):
    rows = swingup.outcome(small_run)
    assert [row["episode"] for row in rows] == [10, 20]
    returns = [episode.total_return for episode in small_run.history]
    assert rows[1]["mean_return"] == pytest.approx(np.mean(returns[10:]), abs=1e-3)
    assert sum(episode.length for episode in small_run.history) == 20_000, "held steps are counted"
    assert small_run.steps == 2_000, "in actions"
    assert rows[0]["spread_at_top"] > 0, "members disagree"
    assert rows[1]["cells"] >= rows[0]["cells"] > 1
    assert rows[1]["rewarded"] == 0
    assert rows[0]["greedy"] <= 0, "nobody balances after 20 episodes"


@pytest.mark.slow
def test_diagnostics_know_a_rewarded_state_when_they_see_one():
    """Balancing from the start: the pole is up for a while, and the smooth reward is paid."""
    item = swingup.swingup_task("bsp", "bsp", 0, 2, "cartpole_balance", **SMALL)
    probe = train(**item.arguments).probes[-1]
    assert probe["rewarded"] > 0.5 * 2 * 100
    assert probe["greedy"] > 0


@pytest.mark.parametrize("module", [figure5, figure11])
@pytest.mark.slow
def test_curves_are_drawn_from_rows_and_each_run_is_run_once(module, tmp_path, monkeypatch):
    def ladders(preset):
        name, agent = ("d4pg", "d4pg") if module is figure5 else ("β=3", "bsp")
        settings = ONE if agent == "d4pg" else SMALL
        return [[[swingup.swingup_task(name, agent, 0, 20, "cartpole_swingup", **settings)]]]

    monkeypatch.setattr(module, "ladders", ladders)
    name = module.__name__.rpartition(".")[2]
    result = reproduce(name, "quick", tmp_path)
    assert len(result.rows) == 2
    assert {path.suffix for path in result.paths} == {".csv", ".png", ".svg"}
    last = f"{result.rows[-1]['greedy']:.0f}"
    assert result.summary[1][-4:] == ("never", "never", last, f"{last} [{last}, {last}]")
    said = []
    reproduce(name, "quick", tmp_path, report=lambda share, what: said.append(what))
    assert len(said) == 1, "nothing is run again"
    assert len(read_rows(result.paths[0])) == 2


def test_budgets_of_the_figures_ask_for_three_seeds_or_more():
    for module in (figure5, figure11):
        for budget in ("quick", "full"):
            tasks = [item for ladder in module.ladders(budget) for level in ladder for item in level]
            names = {item.name for item in tasks}
            runs = {(item.name, item.arguments["env"], item.arguments["seed"]) for item in tasks}
            assert len(runs) == len(tasks) >= 3 * len(names)


@pytest.mark.slow
def test_bsuites_score_is_half_for_what_was_earned_and_half_for_one_good_episode():
    poor = {"name": "bsp", "size": 1, "mean_return": -20.0, "best": 0.0, "last_50": -10.0}
    good = {"name": "bsp", "size": 2, "mean_return": 350.0, "best": 101.0, "last_50": 600.0}
    assert bsuite_swingup.score(poor) == 0
    assert bsuite_swingup.score(good) == 0.75
    assert bsuite_swingup.summary([poor, good])[-1][-1] == "0.38"
    assert bsuite_swingup.figure([poor, good]).axes
    tasks = [item for ladder in bsuite_swingup.ladders("full") for level in ladder for item in level]
    assert len([item for item in tasks if item.name == "bsp"]) == 20
    assert {item.name: item.arguments["episodes"] for item in tasks} == {"bsp": 1000, "200 episodes": 200}
    result = train(**{**tasks[3].arguments, "episodes": 1, "changes": {**SMALL, "hold": 4}})
    (row,) = bsuite_swingup.outcome(result)
    assert row["best"] == row["mean_return"] == round(result.history[0].total_return, 2)


def test_rewarded_steps_are_counted_apart_from_the_cost_of_moving():
    backend = set_up("bsp", CartpoleSwingup(upright=True), preset="swingup", changes={**SMALL, "hold": 4}).backend
    count, found = bsuite_swingup.RewardedSteps(), []
    for _ in range(2):
        backend.advance(700, lambda ended: False)
        found.append(count(backend)["rewarded_steps"])
    done = jax.tree.map(lambda ring: np.asarray(ring)[:1400], backend.live.replay.data.transition)
    moves = 4 * int((done.action != 1).sum())
    assert found[1] == round(float(done.reward.sum()) + 0.1 * moves)
    assert 0 < found[0] < found[1], "the pole starts upright"


@pytest.mark.slow
def test_a_run_can_be_watched_in_the_port_and_in_mujoco(tmp_path, capsys):
    """The same weights, two physics; also an agent with continuous pushes."""
    for agent, settings in (("bsp", SMALL), ("d4pg", ONE)):
        folder = tmp_path / agent
        train(agent, "cartpole_swingup", episodes=1, changes=settings, out=folder)
        assert main(["watch", str(folder)]) == 0
        with Image.open(folder / "episode.gif") as picture:
            assert picture.n_frames > 100, "equal frames are kept once"
            assert picture.size == (480, 270)
    assert capsys.readouterr().out.count("return") == 2
    if not can_render():
        pytest.skip("MuJoCo has no headless renderer here")
    pictures, total = record_in_mujoco(load(tmp_path / "bsp"), every=250)
    assert [picture.shape for picture in pictures] == [(240, 320, 3)] * 4
    assert total <= 0


def can_render():
    env = ControlCartpole()
    env.reset(seed=0)
    try:
        env.render()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_watching_says_what_it_cannot_do(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "nothing")]) == 2
    assert "contains no run" in capsys.readouterr().err
    train("eps_greedy", "deep_sea", size=3, episodes=2, out=tmp_path / "sea")
    assert main(["watch", str(tmp_path / "sea")]) == 2
    assert "DeepSea cannot be rendered" in capsys.readouterr().err


def test_agents_and_environments_must_agree_on_the_kind_of_action():
    with pytest.raises(ValueError, match="has no version with continuous actions"):
        train("d4pg", "deep_sea", episodes=1)


def test_the_equal_search_gives_every_agent_twelve_settings_and_chooses_by_one_rule():
    for agent, settings in swingup_grid.GRIDS.items():
        assert len({words(changes) for changes in settings}) == 12, agent
    first, second = swingup_grid.GRIDS["bs"][:2]

    def row(changes, greedy, rewarded):
        return {"name": "bs", "changes": words(changes), "episode": 1000, "greedy": greedy, "rewarded": rewarded}

    assert swingup_grid.best([row(first, -5.0, 3), row(second, -40.0, 4)], "bs") == second, "more reward found"
    assert swingup_grid.best([row(first, 400.0, 3), row(second, -40.0, 4)], "bs") == first, "one has learned"
    assert swingup_grid.figure([row(first, 400.0, 3)]).axes


def test_full_figure_5_leaves_out_agents_without_chosen_settings(monkeypatch):
    def agents():
        tasks = [item for ladder in figure5.ladders("full") for level in ladder for item in level]
        return {item.name for item in tasks}

    monkeypatch.setattr(swingup_grid, "CHOSEN", {})
    assert agents() == {"bsp", "bsp plain"}
    monkeypatch.setattr(swingup_grid, "CHOSEN", {agent: {"n_step": 5} for agent in swingup_grid.GRIDS})
    assert agents() == {"bsp", "bsp plain", "ensemble", "bs", "eps_greedy", "d4pg"}


def test_the_chosen_settings_are_the_best_of_the_committed_rows():
    results = Path(__file__).parent.parent / "results"
    rows = rows_of("swingup_grid", "full", results)
    for agent, chosen in swingup_grid.CHOSEN.items():
        assert all(swingup_grid.rows_with(rows, agent, changes) for changes in swingup_grid.GRIDS[agent])
        assert chosen == swingup_grid.best(rows, agent)
