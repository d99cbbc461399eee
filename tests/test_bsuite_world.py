"""dm_env's and bsuite's own environments on the host, and sweeps over bsuite in the form that bsuite reads."""

import sys

import dm_env
import matplotlib
import numpy as np
import pandas as pd
import pytest
from bsuite import bsuite as loading
from bsuite import sweep
from bsuite.environments.deep_sea import DeepSea
from bsuite.logging import csv_load, csv_logging
from bsuite.utils import datasets, wrappers
from dm_env import specs

from priorax.envs.host.dm import DmEnvWorld, bsuite_experiments, bsuite_world
from priorax.envs.host.vector import VectorWorld, first_seed
from priorax.envs.jax.bsuite_cartpole import BsuiteCartpole
from priorax.envs.registry import make_world
from priorax.experiments.bsuite import sweep as bsuite_sweep
from priorax.experiments.bsuite.sweep import (
    RULES,
    bsuites_score,
    last_logged,
    own_score,
    recorded,
    run_sweep,
    scores,
    summary,
    sweep_ids,
)
from priorax.training.setup import choose_backend

LOGGED = [episode for episode in range(1, 10_001) if wrappers._logarithmic_logging(episode)]
WITH_DATA = [name for name in bsuite_experiments() if not name.startswith("mnist")]
TINY = {"num_members": 3, "widths": (8,), "batch_size": 8, "capacity": 400, "learn_after": 16, "learn_every": 4}


class Scripted(dm_env.Environment):
    """Gives the moments it was told to, and notes what is done to it."""

    def __init__(self, moments=(), sees=None, acts=None, pays=None):
        self.moments, self.sees, self.pays = list(moments), sees or specs.Array((2,), np.float64), pays
        self.acts = acts or specs.DiscreteArray(3)
        self.done = []

    def reset(self):
        self.done.append("reset")
        return dm_env.restart(self.moments.pop(0))

    def step(self, action):
        self.done.append(self.acts.validate(action).item())
        return self.moments.pop(0)

    def observation_spec(self):
        return self.sees

    def action_spec(self):
        return self.acts

    def reward_spec(self):
        return self.pays or super().reward_spec()

    def close(self):
        self.done.append("closed")


def theirs(bsuite_id, seed):
    """bsuite's environment with that seed, where it leaves its seed open."""
    experiment, settings = bsuite_id.split("/")[0], dict(sweep.SETTINGS[bsuite_id])
    if experiment == "deep_sea_stochastic":
        return DeepSea(**settings, deterministic=False, seed=seed)
    if experiment in ("cartpole_swingup", "umbrella_length") or "seed" in settings:
        settings["seed"] = seed
    return loading.load(experiment, settings)


@pytest.mark.parametrize("experiment", WITH_DATA)
def test_steps_of_every_experiment_are_bsuites(experiment):
    """Also past the ends of episodes: bsuite's environments begin anew as the host's do, in the next step."""
    bsuite_id = f"{experiment}/{bsuite_experiments()[experiment] - 1}"
    world, env = bsuite_world(bsuite_id), theirs(bsuite_id, first_seed(5))
    assert isinstance(world, VectorWorld) and world.num_actions == env.action_spec().num_values
    ends = 0
    obs, moment = world.reset(5), env.reset()
    for action in np.random.default_rng(0).integers(0, world.num_actions, 250):
        assert obs.shape == (1, *world.frame_shape) and obs.dtype == world.frame_dtype
        if experiment.startswith("deep_sea"):
            picture = np.zeros(world.num_states)
            picture[obs[0]] = not moment.last()
            np.testing.assert_array_equal(picture.reshape(50, 50), moment.observation)
        else:
            np.testing.assert_array_equal(obs[0].ravel(), moment.observation.ravel())
        turn, moment = world.step(np.array([action])), env.step(int(action))
        obs = turn.obs
        assert turn.reward[0] == np.float32(0 if moment.first() else moment.reward)
        assert turn.terminated[0] == moment.last() and not turn.truncated[0] and not turn.life_lost[0]
        ends += moment.last()
    assert ends or experiment in ("mountain_car", "mountain_car_noise", "mountain_car_scale", "cartpole_swingup")


def test_what_bsuite_leaves_open_follows_from_the_seed_and_lanes_differ():
    def firsts(seed):
        return make_world("bsuite:cartpole/0", 2).reset(seed)

    assert choose_backend("bsuite:catch/0") == "host"
    np.testing.assert_array_equal(firsts(1), firsts(1))
    world = make_world("bsuite:cartpole/0", 2)
    world.reset(0)
    np.testing.assert_array_equal(world.reset(1), firsts(1))
    assert len({row.tobytes() for row in (*firsts(0), *firsts(1))}) == 4
    fixed = make_world("bsuite:memory_size/9", 3).reset(0)
    np.testing.assert_array_equal(fixed[0], np.squeeze(theirs("memory_size/9", 1).reset().observation))
    assert len({row.tobytes() for row in fixed}) == 3


def test_our_port_of_swingup_and_bsuites_have_one_scale():
    assert bsuite_world("cartpole_swingup/3").inputs.scale == BsuiteCartpole(3).inputs.scale
    assert bsuite_world("cartpole/3").inputs.scale == ()


def test_held_actions_sum_what_bsuite_pays():
    world, env = bsuite_world("cartpole_swingup/0", hold=4), theirs("cartpole_swingup/0", first_seed(5))
    world.reset(5), env.reset()
    for action in [0, 2, 1, 2, 0] * 3:
        turn, moments = world.step(np.array([action])), [env.step(action) for _ in range(4)]
        np.testing.assert_array_equal(turn.obs[0], moments[-1].observation[0])
        assert turn.reward[0] == pytest.approx(sum(moment.reward for moment in moments))
    short = DmEnvWorld([Scripted([[0, 0], dm_env.termination(2.0, [1, 1]), [3, 3]])], hold=4)
    short.reset(0)
    assert short.step(np.array([0])).terminated[0] and short.step(np.array([0])).obs.tolist() == [[3, 3]]


def test_ends_are_told_apart_by_the_discount():
    env = Scripted(
        [
            [0, 0],
            dm_env.transition(0.5, [1, 1], 0.9),
            dm_env.transition(0.0, [2, 2], 0.0),
            dm_env.truncation(1.0, [3, 3], 0.9),
            [4, 4],
            dm_env.termination(2.0, [5, 5]),
            [6, 6],
        ]
    )
    world = DmEnvWorld([env])
    assert world.reset(0).tolist() == [[0, 0]] and world.frame_dtype == np.float32
    turns = [world.step(np.array([i % 3])) for i in range(6)]
    assert [turn.obs[0, 0] for turn in turns] == [1, 2, 3, 4, 5, 6]
    assert [turn.reward[0] for turn in turns] == [0.5, 0, 1, 0, 2, 0]
    assert [turn.life_lost[0] for turn in turns] == [False, True, False, False, False, False]
    assert [turn.truncated[0] for turn in turns] == [False, False, True, False, False, False]
    assert [turn.terminated[0] for turn in turns] == [False, False, False, False, True, False]
    assert env.done == ["reset", 0, 1, 2, "reset", 1, "reset"], "an action after an end is ignored"
    world.close()
    assert env.done[-1] == "closed"
    with pytest.raises(ValueError, match="call reset"):
        world.step(np.array([0]))


@pytest.mark.parametrize(
    ("sees", "given", "seen", "dtype"),
    [
        (specs.Array((), float), 3.5, [3.5], np.float32),
        (specs.Array((1, 3), np.int64), [[1, 2, 3]], [1, 2, 3], np.float32),
        (specs.Array((2, 2), bool), [[True, False], [True, True]], [[1, 0], [1, 1]], np.float32),
        (specs.Array((1, 2), np.uint8), [[7, 9]], [7, 9], np.float32),
        (specs.Array((2, 2), np.uint8), [[7, 9], [0, 1]], [[7, 9], [0, 1]], np.uint8),
        (specs.Array((3, 2, 1), np.uint8), [[[1], [2]], [[3], [4]], [[5], [6]]], [[[1, 2], [3, 4], [5, 6]]], np.uint8),
        (specs.DiscreteArray(5), 4, 4, np.int32),
    ],
)
def test_observations_become_indices_pictures_or_numbers_in_32_bits(sees, given, seen, dtype):
    world = DmEnvWorld([Scripted([np.asarray(given, sees.dtype)], sees)])
    obs = world.reset(0)
    assert obs.dtype == world.frame_dtype == dtype and obs.shape[1:] == world.frame_shape
    assert obs[0].tolist() == seen
    assert world.sight([given, given]).tolist() == [seen, seen], "a batch, too"
    assert world.num_states == (5 if isinstance(sees, specs.DiscreteArray) else None)


def test_bounds_give_the_scale_and_whole_numbers_are_actions_from_their_lowest():
    sees = specs.BoundedArray((1, 2), float, minimum=[[-4, -np.inf]], maximum=2)
    env = Scripted(
        [np.zeros((1, 2)), dm_env.transition(0.0, np.zeros((1, 2)))], sees, specs.BoundedArray((), int, -1, 1)
    )
    world = DmEnvWorld([env])
    assert world.inputs.scale == (0.25, 1.0) and world.num_actions == 3
    world.reset(0)
    world.step(np.array([0]))
    assert env.done == ["reset", -1]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"acts": specs.BoundedArray((), float, -1, 1)}, "must be a DiscreteArray or a BoundedArray of one integer"),
        ({"acts": specs.BoundedArray((2,), int, 0, 1)}, "must be a DiscreteArray or a BoundedArray of one integer"),
        ({"acts": specs.Array((), int)}, "must be a DiscreteArray or a BoundedArray of one integer"),
        ({"sees": {"where": specs.Array((2,), float)}}, "must be one array; concatenate"),
        ({"sees": (specs.Array((2,), float),)}, "must be one array; concatenate"),
        ({"sees": specs.StringArray(())}, "observations of type object, which must be numbers"),
        ({"sees": specs.Array((2,), complex)}, "must be numbers"),
        ({"pays": specs.Array((2,), float)}, "must be one number"),
    ],
)
def test_what_cannot_be_a_world_is_refused(spec, words):
    with pytest.raises(ValueError, match=words):
        DmEnvWorld([Scripted(**spec)])


def test_lanes_that_do_not_go_together_are_refused():
    one = Scripted()
    for envs in ([], [one, one]):
        with pytest.raises(ValueError, match="create one for each lane"):
            DmEnvWorld(envs)
    with pytest.raises(ValueError, match="envs differ"):
        DmEnvWorld([one, Scripted(acts=specs.DiscreteArray(4))])
    with pytest.raises(ValueError, match=r"the environment has observations of shape \(2,\)"):
        DmEnvWorld([Scripted([[1, 2, 3]])]).reset(0)
    with pytest.raises(ValueError, match="lanes=2 must be 1"):
        bsuite_world("catch/0", "anywhere", lanes=2)


def test_unknown_ids_get_the_nearest_name():
    with pytest.raises(ValueError, match="'deep_see' is unknown; did you mean 'deep_sea'"):
        bsuite_world("deep_see/0")
    for wrong in ("deep_sea/21", "deep_sea", "deep_sea/x"):
        with pytest.raises(ValueError, match="must end in a number from 0 to 20"):
            bsuite_world(wrong)
    with pytest.raises(ValueError, match="'explore' is unknown; did you mean 'exploration'"):
        sweep_ids("explore")


def test_without_bsuite_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bsuite.sweep", None)
    with pytest.raises(ValueError, match=r'pip install "priorax\[bsuite\]"'):
        make_world("bsuite:catch/0", 1)


@pytest.mark.slow
def test_pictures_that_cannot_be_downloaded_are_told_and_the_sweep_goes_on(monkeypatch, tmp_path):
    def fails():
        raise OSError("no network")

    monkeypatch.setattr(datasets, "load_mnist", fails)
    monkeypatch.setattr(bsuite_sweep, "sweep_ids", lambda name: ("mnist/0", "deep_sea/0"))
    told = []
    ran = run_sweep("bsp", "any", tmp_path, episodes=4, changes=TINY, announce=told.append)
    assert [each.episodes for each in ran] == [0, 4]
    assert recorded(tmp_path, "deep_sea/0")[-1]["steps"] == 40
    assert told[-1] == ran[0].outcome
    assert "bsuite_id='mnist/0' cannot be loaded: no network; bsuite downloads MNIST" in told[-1]


def test_sweeps_have_bsuites_names():
    assert sweep_ids("all") == sweep.SWEEP
    assert sweep_ids("exploration") == sweep.TAGS["exploration"]
    assert sweep_ids("deep_sea") == sweep.DEEP_SEA
    assert sweep_ids("deep_sea/3") == ("deep_sea/3",)


def test_the_last_row_is_where_bsuite_writes_it():
    last = 0
    for episode in range(1, 10_001):
        last = episode if episode in LOGGED else last
        assert last_logged(episode) == last


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """bsp on two ids that are the same task, 26 episodes each."""
    out = tmp_path_factory.mktemp("swept") / "new"
    shares = []
    ids = ("catch/0", "catch/1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bsuite_sweep, "sweep_ids", lambda name: ids)
        ran = run_sweep("bsp", "catch", out, episodes=26, changes=TINY, report=lambda share, what: shares.append(share))
    return out, ran, shares


@pytest.mark.slow
def test_bsuite_reads_what_a_sweep_writes(swept):
    out, ran, shares = swept
    frame, _ = csv_load.load_bsuite(str(out))
    assert set(frame.bsuite_id) == {"catch/0", "catch/1"} and set(frame.bsuite_env) == {"catch"}
    assert frame.groupby("bsuite_id")["episode"].max().tolist() == [25, 25]
    assert [(each.outcome, each.episodes) for each in ran] == [("played", 26)] * 2
    assert (frame.steps == 9 * frame.episode).all()
    assert shares == sorted(shares) and shares[-1] == 1
    assert recorded(out, "catch/0") != recorded(out, "catch/1"), "twenty seeds of one task are not one seed"
    (score,) = scores(out, 26)
    theirs = sys.modules["bsuite.experiments.catch.analysis"].score(frame)
    assert score == ("catch", theirs, 2, 20, 26, 10_000, "bsuite's")


def test_a_finished_id_is_not_run_again_and_an_unfinished_one_is(swept):
    out, _, _ = swept
    paths = [out / f"bsuite_id_-_catch-{i}.csv" for i in (0, 1)]
    before = [path.read_bytes() for path in paths]

    def again(bsuite_id, episodes=26):
        (ran,) = run_sweep("bsp", bsuite_id, out, episodes=episodes, changes=TINY)
        return ran.outcome

    assert again("catch/1") == "there already"
    assert again("catch/1", 24) == again("catch/1", 29) == "there already", "no row is missing"
    for cut in (before[0][:-1], before[0].rsplit(b"\n", 2)[0] + b"\n", b""):
        paths[0].write_bytes(cut)
        assert scores(out, 26)[0].finished == 1
        assert again("catch/0") == "played"
        assert [path.read_bytes() for path in paths] == before, "the same seed gives the same bits"


def test_a_world_holds_actions_and_bsuite_counts_every_step(tmp_path):
    run_sweep("bsp", "catch/0", tmp_path, episodes=3, changes={**TINY, "hold": 4})
    assert [row["steps"] for row in recorded(tmp_path, "catch/0")] == [9, 18, 27]


def test_results_of_something_else_are_not_taken_for_these(swept, tmp_path):
    out, _, _ = swept
    with pytest.raises(ValueError, match=r"holds results of .*'agent': 'bsp'.*choose another folder"):
        run_sweep("eps_greedy", "catch/0", out, episodes=26, changes=TINY)
    with pytest.raises(ValueError, match="lanes=2 must be 1"):
        run_sweep("bsp", "catch/0", tmp_path, changes={"lanes": 2})
    with pytest.raises(ValueError, match="psrl needs finite states"):
        run_sweep("psrl", "catch/0", tmp_path / "psrl")
    run_sweep("bsp", "catch/0", tmp_path, episodes=1, changes=TINY)  # nothing was there yet


COLUMNS = {"total_regret": 2.0, "raw_return": 900.0, "best_episode": 800.0, "total_bad_episodes": 1.6}
"""What bsuite's scores look at, and about how much of it there is in an episode."""


def record(out, bsuite_id, episodes, rng):
    """A run that never was, in bsuite's form."""
    level = {name: size * rng.uniform() for name, size in COLUMNS.items()}
    sign = -1 if bsuite_id.startswith("mountain_car") else 1
    rows, best = [], 0.0
    for episode in (n for n in LOGGED if n <= episodes):
        sums = {name: size * episode * rng.uniform(0.8, 1) for name, size in level.items()}
        sums["raw_return"] *= sign
        best = max(best, level["best_episode"] * rng.uniform())
        rows.append({"episode": episode, "total_return": sums["raw_return"], **sums, "best_episode": best})
    out.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(csv_logging.Logger(bsuite_id, str(out), overwrite=True)._save_path, index=False)


@pytest.fixture
def mended_pandas(monkeypatch):
    """With what bsuite's scoring of DeepSea calls."""
    monkeypatch.setattr(pd.Series, "append", lambda one, other: pd.concat([one, other]), raising=False)


@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")  # bsuite's, of DeepSea
@pytest.mark.parametrize("experiment", list(RULES))
def test_our_rules_are_bsuites(experiment, tmp_path, mended_pandas):
    rng = np.random.default_rng(len(experiment))
    ids = [f"{experiment}/{i}" for i in range(0, bsuite_experiments()[experiment], 3)]
    found = []
    for draw in range(4):
        out = tmp_path / str(draw)
        for bsuite_id in ids:
            record(out, bsuite_id, sweep.EPISODES[bsuite_id], rng)
        for last in (sweep.EPISODES[ids[0]], 140):
            for some in (ids, ids[:1]):
                ours = own_score(experiment, out, some, last)
                assert ours == pytest.approx(bsuites_score(experiment, out, some, last), abs=1e-12)
                found.append(ours)
    assert any(0 < score < 1 for score in found)


def test_bsuites_scoring_runs_except_that_of_deep_sea(tmp_path):
    """Should this fail since a newer bsuite runs: good news, and the docstring of bsuite_sweep is to be changed."""
    rng = np.random.default_rng(0)
    for experiment in RULES:
        record(tmp_path, f"{experiment}/2", sweep.EPISODES[f"{experiment}/2"], rng)
    by = {score.experiment: score.by for score in scores(tmp_path)}
    broken = {name for name, who in by.items() if who != "bsuite's"}
    assert broken == {"deep_sea", "deep_sea_stochastic"}
    assert by["deep_sea"] == "ours (bsuite's fails: 'Series' object has no attribute 'append')"


def test_unfinished_ids_are_told_and_not_scored(tmp_path):
    rng = np.random.default_rng(1)
    record(tmp_path, "bandit/0", 10_000, rng)
    record(tmp_path, "bandit/1", 9_999, rng)
    record(tmp_path, "catch/0", 9_999, rng)
    bandit, catch = scores(tmp_path)
    assert bandit[:4] == ("bandit", own_score("bandit", tmp_path, ["bandit/0"], 10_000), 1, 20)
    assert catch[:4] == ("catch", None, 0, 20)
    assert summary([bandit, catch]) == [
        ("experiment", "score", "ids finished", "episodes", "scored by"),
        ("bandit", f"{bandit.score:.2f}", "1 of 20", "10,000 of 10,000", "bsuite's"),
        ("catch", "-", "0 of 20", "10,000 of 10,000", "nobody: no id is finished"),
    ]
    assert [score.finished for score in scores(tmp_path, 5_000)] == [2, 1]
    assert scores(tmp_path, 5_000)[1].episodes == 5_000


def test_scoring_leaves_the_look_of_figures_alone(tmp_path, monkeypatch):
    record(tmp_path, "catch/0", 10_000, np.random.default_rng(0))
    scores(tmp_path)
    for name in ("bsuite.utils.plotting", "bsuite.experiments.catch.analysis"):  # as if for the first time
        package, _, last = name.rpartition(".")
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(sys.modules[package], last)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        before = dict(matplotlib.rcParams)
        assert scores(tmp_path)[0].by == "bsuite's"
        assert "bsuite.utils.plotting" in sys.modules
        assert dict(matplotlib.rcParams) == before
