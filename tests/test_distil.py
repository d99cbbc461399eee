"""Distillation: one network with the mean and the spread of an ensemble, and policies in files of their own."""

import jax
import numpy as np
import pytest

from priorax import load, train
from priorax.beliefs import Ensemble
from priorax.cli import main
from priorax.envs import make_world
from priorax.envs.interface import Interface, Sight
from priorax.experiments.priors import distillation
from priorax.files import BadFile
from priorax.networks import MLP, Table
from priorax.training.distil import distil, visited
from priorax.training.policy import q_policy

OBS = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)


def policy_of(belief, obs, interface):
    return q_policy(belief, belief.init(jax.random.key(1), obs), interface)


@pytest.fixture(scope="module")
def linear():
    """Six linear members with linear priors, which one linear network can represent exactly."""
    belief = Ensemble(6, network=MLP(()), prior=MLP((), bias_scale=1.0), prior_scale=2.0, num_outputs=2)
    return policy_of(belief, OBS[0], Interface(Sight((3,), (3,), "float32"), 2))


def distilled(policy, obs=OBS, **options):
    return distil(policy, obs, steps=1500, learning_rate=0.02, network=MLP(()), **options)


def test_a_network_of_the_same_form_has_the_mean_and_the_spread_of_the_members(linear):
    found = distilled(linear, directions=5)
    theirs, mine = linear.values(OBS), found.policy.values(OBS)
    np.testing.assert_allclose(mine.mean, theirs.mean, atol=0.02)
    assert found.agreement > 0.95 and found.spread_correlation > 0.95 and found.explained == pytest.approx(1)
    assert np.corrcoef(mine.spread.ravel(), theirs.spread.ravel())[0, 1] > 0.95


def test_directions_are_the_principal_ones_of_the_deviations(linear):
    members = linear.values(OBS).members
    found = distilled(linear, OBS.repeat(10, axis=0), directions=2)  # repeated, so that the part held out is the same
    deviations = (members - members.mean(axis=0)).reshape(6, -1)
    variances = np.linalg.svd(deviations, compute_uv=False) ** 2
    assert found.explained == pytest.approx(variances[:2].sum() / variances.sum(), abs=0.02)
    share = np.mean(found.policy.values(OBS).spread ** 2) / np.mean(linear.values(OBS).spread ** 2)
    assert share == pytest.approx(found.explained, abs=0.1)


def test_the_mean_alone_has_no_spread(linear):
    found = distilled(linear, directions=0)
    assert np.isnan(found.spread_correlation) and not found.policy.values(OBS).spread.any()
    assert found.policy.num_members == 1 and found.agreement > 0.95


def test_state_indices_are_distilled_into_a_table():
    belief = Ensemble(4, network=Table(12, (8,)), num_outputs=3)
    policy = policy_of(belief, np.int32(0), Interface(Sight((), (), "int32"), 3, num_states=12))
    found = distil(policy, np.arange(12), directions=3, steps=1500, learning_rate=0.01)
    assert found.agreement > 0.9 and found.spread_correlation > 0.9
    np.testing.assert_allclose(found.policy.values(np.arange(12)).mean, policy.values(np.arange(12)).mean, atol=0.05)


def test_a_policy_in_a_file_of_its_own_comes_back_to_the_bit(linear, tmp_path):
    for name, policy in (("ensemble", linear), ("one", distilled(linear, directions=2).policy)):
        policy.save(tmp_path / name)
        again = load(tmp_path / name)
        np.testing.assert_array_equal(again.values(OBS).members, policy.values(OBS).members)
        assert again.predict(OBS[0]) == policy.predict(OBS[0]) and again.interface == policy.interface
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    (tmp_path / "one").write_bytes((tmp_path / "one").read_bytes()[:-8])
    with pytest.raises(BadFile):
        load(tmp_path / "one")


@pytest.mark.slow
def test_a_trained_agent_is_distilled():
    run = train("bsp", "deep_sea", size=6, seed=0, episodes=80)
    world = make_world("deep_sea", 4, size=6)
    obs = visited(run.policy, world, steps=60)
    assert set(range(0, 36, 7)) <= set(obs.tolist()) <= set(range(36))  # the diagonal, which it has learned, and no end
    assert len(obs) == 240 - 4 * (60 // 7), "an episode has six actions, and a step in which a new one begins"
    found = distil(run.policy, np.arange(36), directions=8)
    assert found.agreement > 0.9 and found.spread_correlation > 0.8 and 0.5 < found.explained < 1
    assert all(found.policy.predict(i) == run.policy.predict(i) for i in range(0, 36, 7))


def test_a_run_is_distilled_from_the_command_line(tmp_path, capsys):
    few = {"num_members": 3, "widths": (8,)}
    train("bsp", "deep_sea", size=4, seed=0, episodes=10, out=tmp_path / "run", changes=few)
    out = tmp_path / "one.safetensors"
    words = ["--directions", "2", "--visits", "10", "--steps", "20", "--out", str(out)]
    assert main(["distil", str(tmp_path / "run"), *words]) == 0
    assert "same action as the ensemble" in capsys.readouterr().out
    assert load(out).predict(0) in (0, 1) and load(out).num_members == 1
    before = out.read_bytes()
    assert main(["distil", str(tmp_path / "run"), *words]) == 1
    assert "exists; pass --overwrite" in " ".join(capsys.readouterr().err.split())
    assert out.read_bytes() == before
    assert main(["distil", str(tmp_path / "run"), "--out", str(tmp_path / "none" / "one")]) == 1
    assert "is not a folder; create it first" in " ".join(capsys.readouterr().err.split())


def test_a_belief_around_an_ensemble_is_distilled_as_the_ensemble():
    policy = train("rnd", "deep_sea", size=4, seed=0, episodes=5, changes={"widths": (8,)}).policy
    found = distil(policy, np.arange(16), directions=0, steps=2000)
    assert found.agreement > 0.9


def test_what_cannot_be_distilled_is_refused(linear):
    with pytest.raises(ValueError, match="obs has 1 observations; pass at least 10"):
        distil(linear, OBS[0])
    with pytest.raises(ValueError, match="directions=6 must be at least 0 and at most 5"):
        distil(linear, OBS, directions=6)
    with pytest.raises(ValueError, match="network=Pair cannot be distilled into; pass network=MLP"):
        distil(linear, OBS, network=(lambda key, x, n: None, lambda params, x: x))
    with pytest.raises(ValueError, match="use_bias=True"):
        distil(linear, OBS, network=MLP(use_bias=False))
    planner = train("psrl", "deep_sea", size=4, seed=0, episodes=2).policy
    with pytest.raises(ValueError, match="needs a Q-learner with a belief over discrete actions"):
        distil(planner, np.arange(16))
    with pytest.raises(ValueError, match="is saved with its run only"):
        planner.save("policy")


def test_the_experiment_shows_what_is_kept_by_each_number_of_directions():
    rows = [
        {
            "env": env,
            "seed": seed,
            "directions": directions,
            "agreement": 0.9,
            "spread_correlation": 0.5 + 0.05 * directions if directions else "",
            "explained": directions / 10,
            "ensemble_return": 2.0,
            "distilled_return": 1.0 + seed / 100,
            "ensemble_ms": 4.0,
            "distilled_ms": 1.0,
        }
        for env in distillation.TASKS
        for seed in (0, 100)
        for directions in distillation.DIRECTIONS
    ]
    left, right = distillation.figure(rows).axes
    assert [len(line.get_xdata()) for line in left.lines[:3]] == [5] * 3
    assert left.lines[0].get_ydata() == pytest.approx([0.75] * 5) and len(right.lines[0].get_xdata()) == 4
    header, *body = distillation.summary(rows)
    assert len(body) == 15 and all(len(line) == len(header) for line in body)


@pytest.mark.slow
def test_the_experiment_trains_distils_and_plays():
    rows = distillation.measure("deep_sea", 0, {"episodes": 20}, 50)
    assert [row["directions"] for row in rows] == list(distillation.DIRECTIONS)
    assert all(0 <= row["agreement"] <= 1 and row["distilled_ms"] > 0 for row in rows)
