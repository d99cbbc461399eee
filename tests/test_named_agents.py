"""Agents by name, their presets and priors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import init
from priorax.agents import (
    PRESETS,
    EnsembleSettings,
    QLearner,
    agent_spec,
    agents,
    build,
    check_members_differ,
    settings,
)
from priorax.beliefs import (
    Counts,
    Ensemble,
    ExactBayes,
    Outcomes,
    SharedTorso,
    TableCount,
)
from priorax.envs import make_environment
from priorax.envs.interface import TaskSpec
from priorax.envs.jax.deep_sea import DeepSea
from priorax.networks import MLP, Table
from priorax.priors import Around, Tabulated
from priorax.replay import Replay, Transition
from priorax.training.backends.loop import empty_replay, learn_once, remember

KEY = jax.random.key(0)


def test_the_paper_preset_is_appendix_b():
    chosen = settings("bsp", "paper")
    assert (chosen.num_members, chosen.learning_rate, chosen.batch_size) == (20, 1e-3, 128)
    assert (chosen.prior_scale, chosen.mask_prob, chosen.learn_every, chosen.target_period) == (10.0, 0.5, 0, 1)
    assert set(chosen.widths) == {20}
    assert settings("bsr", "paper").l2 == 0.1
    assert settings("eps_greedy", "paper").epsilon == 0.1
    assert settings("eps_greedy", "paper").epsilon_episodes == 2000


ONE = {"prior", "mask_prob", "num_members"}
DIFFER = {
    "bsp": set(),
    "bsr": {"prior", "l2", "mask_prob"},
    "bs": {"prior", "mask_prob"},
    "ensemble": {"prior", "mask_prob"},
    "eps_greedy": {*ONE, "epsilon"},
    "dropout": {"draw_each_step"},
    "noisy": {"draw_each_step"},
    "bbb": set(),
    "hypermodel": {"prior_scale", "learning_rate", "widths", "shared_batch"},
    "epinet": {"prior_scale", "learning_rate", "widths", "shared_batch"},
    "c51": {*ONE, "head", "epsilon"},
    "qr": {*ONE, "head", "epsilon"},
    "ucb": {*ONE, "bonus_scale", "epsilon"},
    "rnd": {*ONE, "bonus", "bonus_scale", "epsilon"},
    "lmcdqn": {*ONE, "optimizer", "clip", "learning_rate", "widths"},
    "rlsvi": {"learn_every", "lanes"},
    "psrl": {"learn_every", "lanes"},
    "ucrl": {"learn_every", "lanes"},
    "d4pg": {"learning_rate", "target_period", "priority"},
}
PICTURES_ONLY = ("apex", "small")


@pytest.mark.parametrize("preset", PRESETS)
def test_agents_differ_in_what_their_names_say_and_in_nothing_else(preset):
    base = dataclasses.asdict(settings("bsp", preset))
    for agent, differ in DIFFER.items():
        if preset in PICTURES_ONLY and not issubclass(agent_spec(agent).settings, EnsembleSettings):
            with pytest.raises(ValueError, match=f"preset={preset!r} is for agents with the setting torso"):
                settings(agent, preset)
            continue
        other = dataclasses.asdict(settings(agent, preset))
        assert {name for name in base.keys() & other if base[name] != other[name]} <= differ
    assert set(DIFFER) == set(agents())


def test_unknown_names_give_the_nearest():
    with pytest.raises(ValueError, match="agent='bspp' is unknown; did you mean 'bsp'"):
        settings("bspp")
    with pytest.raises(ValueError, match="setting='prior_scal' is unknown; did you mean 'prior_scale'"):
        settings("bsp", prior_scal=3)
    with pytest.raises(ValueError, match="preset='papr' is unknown; did you mean 'paper'"):
        settings("bsp", "papr")
    with pytest.raises(ValueError, match="env='deepsea' is unknown; did you mean 'deep_sea'"):
        make_environment("deepsea", 5)
    with pytest.raises(ValueError, match="prior='netwrk' is unknown"):
        settings("bsp", prior="netwrk")


def test_the_prior_spreads_alike_at_every_size():
    """Glorot's first layer shrinks as 1/N; the tuned scale grows as N."""
    spreads = []
    for size in (10, 40):
        belief = build("bsp", settings("bsp"), TaskSpec(2, size * size)).belief
        state = jax.jit(belief.init)(KEY, jnp.asarray(0))
        spreads.append(float(jnp.std(belief.prior_scale * belief.prior_values(state, jnp.arange(size * size)))))
    assert spreads[0] == pytest.approx(spreads[1], rel=0.2)
    assert build("bsp", settings("bsp", "paper"), TaskSpec(2, 1600)).belief.prior_scale == 10.0


def test_a_tabulated_prior_is_the_same_function():
    network = Table(12, (5, 4), bias_scale=0.3)
    table = Tabulated(network, 12)
    x = jnp.array([0, 7, 11, 12, -1, 99])
    plain, looked_up = (
        jax.vmap(lambda i, p=prior: p.apply(p.init(KEY, jnp.asarray(0), 2), i))(x) for prior in (network, table)
    )
    np.testing.assert_allclose(plain, looked_up, atol=1e-6)


def test_the_optimal_prior_draws_around_the_true_values():
    env = DeepSea(4)
    q = env.optimal_values(env.params(KEY), 0.99).reshape(16, 2)
    prior = build("bsp", settings("bsp", prior="optimal", prior_scale=0.1), TaskSpec(2, 16), q).belief.prior
    assert isinstance(prior, Around)
    draws = jax.vmap(lambda k: prior.init(k, jnp.asarray(0), 2))(jax.random.split(KEY, 2000))
    np.testing.assert_allclose(draws[:, :16].mean(axis=0), q, atol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), 0.1, rtol=0.15)
    with pytest.raises(ValueError, match="prior='optimal' needs an environment that knows"):
        build("bsp", settings("bsp", prior="optimal"), TaskSpec(2, 16))


def test_linear_bsp_is_linear():
    belief = build("bsp", settings("bsp", prior="linear", widths=()), TaskSpec(2, 9)).belief
    state = jax.jit(belief.init)(KEY, jnp.asarray(0))
    assert len(state.params.rest) == 1, "a table and nothing behind it"
    assert float(jnp.std(belief.prior_values(state, jnp.arange(9)))) == pytest.approx(1.0, rel=0.2)


def test_dithering_is_annealed_to_zero():
    agent = build("eps_greedy", settings("eps_greedy", epsilon=1.0, epsilon_episodes=100, capacity=300), TaskSpec(2, 4))
    state = jax.jit(agent.init)(KEY, jnp.asarray(0))
    zeros, rates = jnp.zeros(400, int), []
    act = jax.jit(lambda epsilon: agent.act(state, KEY, zeros, zeros, epsilon).action)
    for episodes in (0, 50, 100, 500):
        actions = np.asarray(act(agent.epsilon_at(episodes, zeros, 400)))
        rates.append(min(actions.mean(), 1 - actions.mean()))
    np.testing.assert_allclose(rates, [0.5, 0.25, 0, 0], atol=0.08)


PICTURES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 1, 24, 24)), jnp.uint8)
FROM_PIXELS = {"torso": "small", "features": 8, "widths": ()}


@pytest.mark.parametrize(
    ("agent", "changes"),
    [("bsp", {"num_members": 2}), ("c51", {"sample_outcomes": True})],
    ids=["members with priors", "outcomes"],
)
@pytest.mark.slow
def test_a_bonus_is_paid_from_pixels_around_whatever_else_was_asked_for(agent, changes):
    """It falls where the agent was and stays elsewhere; the members on their torso learn with it."""
    chosen = settings(agent, bonus_scale=0.5, batch_size=4, capacity=16, **FROM_PIXELS, **changes)
    learner = build(agent, chosen, TaskSpec(2))
    belief = learner.belief
    assert isinstance(belief, Counts)
    assert isinstance(belief.base, Outcomes) == ("sample_outcomes" in changes)
    members = belief.base.base if "sample_outcomes" in changes else belief.base
    assert isinstance(members, SharedTorso) and belief.num_members == members.num_members
    zero = jnp.zeros(())
    step = Transition(PICTURES[1], zero.astype(int), zero, PICTURES[2], zero.astype(bool), zero.astype(bool))

    @jax.jit
    def lived(key):
        state = learner.init(key, PICTURES[0])
        buffer = empty_replay(learner, state, PICTURES[0], step.action)
        state, buffer = jax.lax.fori_loop(0, 4, lambda i, both: remember(learner, *both, key, step), (state, buffer))
        state, _, _ = learn_once(learner, state, buffer, key)
        bonus = jax.vmap(lambda picture: belief.bonus(state.belief, picture))(PICTURES)
        return state.updates, bonus, learner.mean_values(state, key, PICTURES)

    updates, bonus, values = lived(KEY)
    np.testing.assert_allclose(bonus, [0.5, 0.25, 0.5], rtol=1e-6)
    assert int(updates) == 1 and np.all(np.isfinite(values))


def refuse_equals(belief, obs):
    replay = Replay(10, belief.num_streams, 4, paths=belief.pays_bonus)
    agent = QLearner(belief, replay)
    check_members_differ(agent, agent.init(KEY, obs[0]), obs)


def test_the_mean_of_a_wrapped_ensemble_is_over_its_members_each_once():
    base = Ensemble(5, Table(4, (3,)), Table(4, (3,)), num_outputs=2)
    belief = Counts(base, TableCount(4), bonus_scale=0.3)
    state = init(belief, KEY, jnp.asarray(0))
    plain = base.functions(state, KEY, jnp.arange(4))
    with_bonus = belief.functions(state, KEY, jnp.arange(4))
    np.testing.assert_allclose(with_bonus, plain + 0.3 / 0.1, rtol=1e-5)
    with pytest.raises(ValueError, match="all members of the ensemble are the same"):
        same = Counts(Ensemble(5, Table(4, (), weight_std=0.0), num_outputs=2), TableCount(4))
        refuse_equals(same, jnp.arange(4))


def test_counts_around_what_does_not_learn_by_gradient_are_refused():
    with pytest.raises(ValueError, match="base=ExactBayes stores its data in aux"):
        Counts(ExactBayes(), TableCount(4))


def test_an_ensemble_of_equal_members_or_priors_is_refused():
    refuse_equals(Ensemble(5, Table(4, (3,)), Table(4, (3,)), num_outputs=2), jnp.arange(4))
    with pytest.raises(ValueError, match="all members of the ensemble are the same"):
        refuse_equals(Ensemble(5, Table(4, (), weight_std=0.0), num_outputs=2), jnp.arange(4))
    with pytest.raises(ValueError, match="all priors of the ensemble are the same"):
        refuse_equals(Ensemble(5, MLP((3,)), prior=MLP((), weight_std=0.0), num_outputs=2), jnp.ones((4, 2)))


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("dqn", "eps_greedy"),
        ("BootDQN", "bs"),
        ("bootstrapped_dqn", "bs"),
        ("rpf", "bsp"),
        ("QR-DQN", "qr"),
        ("Adam-LMCDQN", "lmcdqn"),
    ],
)
def test_names_of_the_literature_are_answered_with_those_here(word, name):
    with pytest.raises(ValueError, match=f"agent={word!r} is called {name!r} here"):
        settings(word)
