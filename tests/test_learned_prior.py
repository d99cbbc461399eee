"""Learned priors: draws have the mean and covariance of past functions, members follow them, and files hold them."""

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import Explorer, PriorEnsembleRegressor, learn_prior, load, load_prior, save_prior, storage, train
from priorax.agents import build, settings
from priorax.beliefs import L2, Adam, Ensemble, Epinet
from priorax.envs.interface import Interface, Sight
from priorax.envs.jax.deep_sea import DeepSea, DeepSeaState
from priorax.experiments.priors import learned as learned_prior
from priorax.family import FamilyMember, Learned
from priorax.files import BadFile, Content, write
from priorax.fitting import fit
from priorax.networks import MLP, Table
from priorax.noise import Gaussian
from priorax.priors import Constant, Function, Independent, Linear, UnitSize
from priorax.report.runs import command, find_runs, group_runs
from priorax.training.backends.ray.rollout import with_prior
from priorax.training.run_files import read_prior

STATES = np.arange(6)
VALUES = np.random.default_rng(0).normal(size=(4, 6, 2)).astype(np.float32)
GRID = np.linspace(-3, 3, 61, dtype=np.float32)[:, None]
SLOPES = np.random.default_rng(1).normal(2.0, 0.5, size=(8, 1))


def of_states(**more):
    return learn_prior(STATES, VALUES, **more)


@pytest.fixture(scope="module")
def lines():
    """A prior over lines through the origin, with slopes around 2."""
    return learn_prior(GRID, SLOPES * GRID[:, 0], network=MLP(()), steps=3000)


def drawn(prior, x, num_out, count=20_000):
    params = jax.vmap(lambda key: prior.init(key, x[0], num_out))(jax.random.split(jax.random.key(0), count))
    return np.asarray(jax.vmap(lambda own: jax.vmap(lambda row: prior.apply(own, row))(x))(params))


def test_draws_have_the_mean_and_the_covariance_of_the_past_functions():
    values = drawn(of_states(), STATES, 2).reshape(20_000, -1)
    past = VALUES.reshape(4, -1)
    np.testing.assert_allclose(values.mean(0), past.mean(0), atol=0.05)
    np.testing.assert_allclose(np.cov(values.T), np.cov(past.T), atol=0.1)


def test_every_draw_lies_in_the_span_of_the_past_functions():
    values = drawn(of_states(), STATES, 2, 5).reshape(5, -1)
    past = VALUES.reshape(4, -1)
    share = np.linalg.lstsq(past.T, values.T, rcond=None)[0]
    np.testing.assert_allclose(past.T @ share, values.T, atol=1e-4)
    np.testing.assert_allclose(share.sum(0), 1, atol=1e-4)


def test_the_random_function_is_added_for_what_the_past_tasks_do_not_contain():
    more = drawn(of_states(rest=Constant(), rest_scale=3.0), STATES, 2).reshape(20_000, -1)
    past = np.cov(VALUES.reshape(4, -1).T)
    constant = 9.0 * np.tile(np.eye(2), (6, 6))
    np.testing.assert_allclose(np.cov(more.T), past + constant, atol=0.5)


def test_a_table_holds_the_functions_exactly_and_unknown_states_have_value_zero():
    prior = of_states(network=Table(9, ()))
    np.testing.assert_array_equal(prior.functions(STATES), VALUES)
    np.testing.assert_array_equal(prior.functions(np.array([7, 9, -1])), 0)


def test_a_network_represents_the_functions_of_arrays(lines):
    np.testing.assert_allclose(lines.functions(GRID)[..., 0], SLOPES * GRID[:, 0], atol=0.02)


def test_members_of_the_family_sample_the_exact_posterior(lines):
    """Bayes' rule for the slope of a line, with the mean and variance of past slopes, seen at one point with noise."""
    x, y, noise = np.array([[1.0]], np.float32), 3.0, 0.5
    belief = Ensemble(400, network=lines.member(), prior=lines, l2=L2(noise**2), optimizer=Adam(0.01))
    state = fit(belief, (x, np.array([y])), key=jax.random.key(0), noise=Gaussian(noise), steps=2000).state
    at_two = np.asarray(belief.functions(state, jax.random.key(0), jnp.array([[2.0]])))[:, 0, 0]
    before, variance = SLOPES.mean(), SLOPES.var(ddof=1)
    gain = variance / (variance + noise**2)
    np.testing.assert_allclose(at_two.mean(), 2 * (before + gain * (y - before)), atol=0.1)
    np.testing.assert_allclose(at_two.std(), 2 * (gain * noise**2) ** 0.5, rtol=0.1)


def test_a_member_of_another_form_does_not_generalise_as_the_family_does(lines):
    x, y = np.array([[1.0]], np.float32), np.array([4.0])
    found = {}
    for name, network in {"family": lines.member(), "own": MLP((20,))}.items():
        belief = Ensemble(10, network=network, prior=lines, optimizer=Adam(0.01))
        state = fit(belief, (x, y), key=jax.random.key(0), steps=1500).state
        found[name] = np.asarray(belief.functions(state, jax.random.key(0), -x))[:, 0, 0]
    assert abs(found["family"].mean() + 4) < 0.1
    assert abs(found["own"].mean() + 4) > 1


def test_a_network_beside_the_family_learns_what_the_family_does_not_contain(lines):
    y = np.abs(GRID[:, 0])
    losses = {}
    for name, network in {"family": lines.member(), "both": lines.member(MLP((20,)))}.items():
        result = fit(Ensemble(2, network=network, prior=lines), (GRID, y), key=jax.random.key(0), steps=1500)
        losses[name] = result.losses[-1].mean()
    assert losses["both"] < 0.01 < 1 < losses["family"]


def test_the_member_has_the_scale_of_the_priors_random_function(lines):
    scaled = dataclasses.replace(lines, rest=MLP((5,)), rest_scale=0.2)
    assert scaled.member(MLP((5,))) == FamilyMember(scaled, MLP((5,)), 0.2)


def test_estimators_take_it_as_prior_and_as_network_and_save_it(lines, tmp_path):
    model = PriorEnsembleRegressor(
        4, prior=lines, network=lines.member(), standardize=False, noise="none", steps=1000, random_state=0
    ).fit(np.array([[1.0], [2.0]]), np.array([3.0, 6.0]))
    np.testing.assert_allclose(model.predict([[-2.0]]), -6, atol=0.3)
    model.save(tmp_path / "model")
    again = PriorEnsembleRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict([[-2.0]]), model.predict([[-2.0]]))


def test_estimators_refuse_it_with_standardised_data(lines):
    x, y = np.array([[1.0], [2.0]]), np.array([3.0, 6.0])
    for part in ({"prior": lines}, {"prior": UnitSize(lines)}, {"network": lines.member()}):
        with pytest.raises(ValueError, match="standardize=True does not go with a learned prior"):
            PriorEnsembleRegressor(4, steps=1, **part).fit(x, y)


@pytest.mark.parametrize(("factor", "shift"), [(100.0, 0.0), (1.0, 1000.0)])
def test_functions_of_arrays_are_learned_in_any_units(factor, shift):
    values = np.stack([np.sin(GRID[:, 0]), np.cos(GRID[:, 0])])
    x = factor * GRID + shift
    found = learn_prior(x, values, steps=3000)
    np.testing.assert_allclose(found.functions(x)[..., 0], values, atol=0.15)


def test_functions_that_the_network_does_not_represent_are_told():
    with pytest.warns(UserWarning, match="represents the functions of the past tasks with an error of .*%"):
        learn_prior(GRID, np.stack([np.sin(9 * GRID[:, 0]), np.cos(9 * GRID[:, 0])]), network=MLP((3,)), steps=50)


def test_an_epinet_takes_it_as_the_prior_of_each_component_of_its_index(lines):
    belief = Epinet(3, network=MLP((5,)), prior=Independent(lines, 3))
    state = belief.init(jax.random.key(0), GRID[0])
    assert np.asarray(belief.functions(state, jax.random.key(1), GRID)).shape[1:] == (61, 1)


def test_a_saved_prior_is_equal_and_shares_compiled_code(lines, tmp_path):
    for prior in (lines, of_states(rest=MLP((3,)), rest_scale=0.5), Linear(2.0)):
        save_prior(tmp_path / "prior", prior)
        again = load_prior(tmp_path / "prior")
        assert again == prior
        assert hash(again) == hash(prior)
    assert of_states() != of_states(rest=MLP((3,)))
    assert of_states() != learn_prior(STATES, VALUES + 1)


def test_custom_code_is_not_saved_and_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="custom code"):
        save_prior(tmp_path / "prior", Function(lambda x: x))
    write(tmp_path / "other", Content("prior", {"kind": "L2", "fields": {}}, {}))
    with pytest.raises(BadFile):
        load_prior(tmp_path / "other")
    belief = Ensemble(2, network=MLP((3,)))
    storage.save(tmp_path / "belief", belief, belief.init(jax.random.key(0), GRID[0]), GRID[0])
    with pytest.raises(BadFile, match="holds a belief, not a prior"):
        load_prior(tmp_path / "belief")


@pytest.mark.parametrize(
    ("x", "values", "words"),
    [
        (STATES, VALUES[:1], "at least 2 tasks"),
        (STATES[:5], VALUES, "n=5 inputs"),
        (STATES, np.full_like(VALUES, np.nan), "NaN"),
        (np.zeros(6, int), VALUES, "each state once"),
    ],
)
def test_functions_that_cannot_be_learned_from_are_refused(x, values, words):
    with pytest.raises(ValueError, match=words):
        learn_prior(x, values)


def test_another_number_of_outputs_is_refused():
    prior = of_states()
    for network in (prior, prior.member()):
        with pytest.raises(ValueError, match="has 2 outputs, but 3 are needed"):
            network.init(jax.random.key(0), jnp.array(0), 3)


def test_layers_that_do_not_belong_to_tasks_are_refused():
    with pytest.raises(ValueError, match="at least 2 tasks"):
        Learned(MLP(()), ((np.zeros((1, 1, 1)), np.zeros((1, 1))),))


SEA = np.random.default_rng(2).normal(size=(3, 16, 2)).astype(np.float32)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sea.prior"
    save_prior(path, learn_prior(np.arange(16), SEA))
    return path


def changes(file):
    return {"prior": "learned", "prior_file": str(file), "num_members": 3, "prior_scale": 0.0}


def sea(file, **more):
    return train("bsp", "deep_sea", size=4, changes=changes(file), **more)


def built(file):
    return build("bsp", settings("bsp", **changes(file)), Interface(Sight((), (), "int32"), 2, num_states=16))


def test_agents_draw_their_prior_functions_from_the_file(file):
    belief = built(file).belief
    state = belief.init(jax.random.key(0), jnp.array(0))
    values = np.asarray(belief.prior_values(state, jnp.arange(16)))[..., 0].reshape(3, -1)
    past = SEA.reshape(3, -1)
    share = np.linalg.lstsq(past.T, values.T, rcond=None)[0]
    np.testing.assert_allclose(past.T @ share, values.T, atol=1e-4)


@pytest.mark.slow
def test_a_run_has_a_copy_of_its_prior_with_which_it_is_loaded_and_resumed(file, tmp_path):
    whole = sea(file, episodes=20, out=tmp_path / "whole")
    sea(file, episodes=10, out=tmp_path / "run")
    file.unlink()
    shutil.move(tmp_path / "run", tmp_path / "moved")
    assert json.loads((tmp_path / "moved" / "run.json").read_text())["settings"]["prior_file"] == "prior.safetensors"
    load(tmp_path / "moved").predict(np.array(0))
    resumed = sea(tmp_path / "moved" / "prior.safetensors", episodes=20, out=tmp_path / "moved", resume=True)
    assert [row.total_return for row in resumed.history] == [row.total_return for row in whole.history]


@pytest.mark.slow
def test_a_run_is_known_by_the_content_of_its_prior_wherever_the_file_is(file, tmp_path):
    sea(file, episodes=3, out=tmp_path / "a")
    sea(file, episodes=6, out=tmp_path / "a", resume=True)  # the same call with more episodes
    save_prior(tmp_path / "other", learn_prior(np.arange(16), 2 * SEA))
    with pytest.raises(ValueError, match="another configuration: prior_digest was"):
        sea(tmp_path / "other", episodes=9, out=tmp_path / "a", resume=True)
    sea(tmp_path / "a" / "prior.safetensors", episodes=3, out=tmp_path / "a", overwrite=True)
    load(tmp_path / "a").predict(np.array(0))
    for seed, name in enumerate(("b", "c")):
        sea(tmp_path / "other", episodes=3, out=tmp_path / name, seed=seed)
    runs = find_runs([tmp_path])
    assert sorted(len(group.runs) for group in group_runs(runs)) == [1, 2], "runs with other priors are other settings"
    repeated, _ = command(next(run for run in runs if run.name.endswith("c")))
    assert f"prior_file={tmp_path / 'c' / 'prior.safetensors'}" in repeated


def test_a_run_is_saved_with_its_prior_after_the_file_has_gone(file, tmp_path):
    agent = Explorer("deep_sea", size=4, **changes(file))
    content = file.read_bytes()
    file.unlink()
    agent.learn(total_steps=8)
    agent.save(tmp_path / "run")
    assert (tmp_path / "run" / "prior.safetensors").read_bytes() == content


def test_a_shared_torso_does_not_take_a_prior_of_images(file):
    images = Interface(Sight((4, 24, 24), (4, 24, 24), "uint8"), 2)
    with pytest.raises(ValueError, match=r"prior='learned' is a function of images, .* pass shared_torso=False"):
        build("bsp", settings("bsp", "small", **changes(file)), images)


def test_a_rollout_actor_gets_the_prior_with_its_plan(file):
    chosen = settings("bsp", **changes(file))
    content = read_prior(dataclasses.asdict(chosen))
    file.unlink()
    with with_prior(chosen, content) as here:
        assert built(here.prior_file).belief.prior is not None
    assert not Path(here.prior_file).exists(), "nothing is left behind"
    with with_prior(chosen, None) as same:
        assert same is chosen


def test_a_proposal_of_a_prior_scale_is_refused_for_priors_of_their_own_size(file):
    with pytest.raises(ValueError, match="prior='learned' has a size of its own"):
        train("bsp", "deep_sea", size=4, episodes=1, changes={**changes(file), "prior_scale": "auto"})


def test_custom_code_in_any_part_of_a_prior_is_refused_before_it_is_written(tmp_path):
    nested = learn_prior(np.arange(16), SEA, rest=Function(lambda x: x))
    with pytest.raises(ValueError, match="prior=Learned has a part 'rest' that is custom code"):
        save_prior(tmp_path / "own", nested)
    assert not (tmp_path / "own").exists()


def test_agents_refuse_a_prior_learned_on_another_number_of_states(file):
    with pytest.raises(ValueError, match="was learned from 16 states, and this environment has 25"):
        build("bsp", settings("bsp", **changes(file)), Interface(Sight((), (), "int32"), 2, num_states=25))


def test_agents_refuse_a_prior_without_file_or_learned_elsewhere(file, lines, tmp_path):
    with pytest.raises(ValueError, match="read from a file"):
        settings("bsp", prior="learned")
    with pytest.raises(FileNotFoundError, match="nothing"):
        built(tmp_path / "nothing")
    save_prior(tmp_path / "lines", lines)
    with pytest.raises(ValueError, match="learned from arrays"):
        built(tmp_path / "lines")
    save_prior(tmp_path / "linear", Linear())
    with pytest.raises(ValueError, match="not a learned prior"):
        built(tmp_path / "linear")


def test_the_experiment_lists_priors_and_draws_what_it_measured():
    rows = [
        {"name": item.name, **item.arguments, "place": place, "error": 0.5, "likelihood": -1.0, "missed": 7}
        for ladder in learned_prior.ladders("quick")
        for level in ladder
        for item in level
        for place in (learned_prior.SEAS if item.name == "deep_sea" else learned_prior.KINDS)
    ]
    assert len(learned_prior.figure(rows).axes) == 6
    header, *body = learned_prior.summary(rows)
    assert {line[0] for line in body} == {row["prior"] for row in rows}
    assert all(len(line) == len(header) for line in body)


def test_masks_of_a_family_differ_from_the_common_one_as_often_as_said():
    for flip in (0.0, 0.1, 0.5):
        seas = learned_prior.RelatedSea(50, flip=flip)
        masks = [np.asarray(seas.params(jax.random.key(seed)).right) for seed in (1, 2)]
        common = np.asarray(DeepSea(50).params(jax.random.key(0)).right)
        for mask in masks:
            np.testing.assert_allclose(np.mean(mask != common), flip, atol=0.04)
        assert np.any(masks[0] != masks[1]) == (flip > 0)


@pytest.mark.slow
def test_members_of_the_family_know_a_wave_by_three_points_and_others_do_not():
    random, family, exact = (
        learned_prior.regress(name, 3, 0)[0]["error"]
        for name in ("random network", "learned, members of the family", learned_prior.EXACT)
    )
    assert family < 0.5 * random
    assert abs(family - exact) < 0.15


def test_renumbered_cells_are_the_same_task_seen_otherwise():
    seas = [learned_prior.RelatedSea(4, renumbered=renumbered) for renumbered in (False, True)]
    mask = seas[0].params(jax.random.key(1))
    (plain, actions), (other, same) = (each.optimal_path(mask) for each in seas)
    np.testing.assert_array_equal(actions, same)
    assert not np.array_equal(plain, other)
    last = DeepSeaState(jnp.array(4), jnp.array(2), jnp.array(False))
    assert [int(each.observe(last)) for each in seas] == [16, 16]
