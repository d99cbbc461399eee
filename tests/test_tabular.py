import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from priorax import Explorer, train
from priorax.agents import PSRL, RLSVI, UCRL, Tabular, build, settings
from priorax.agents.tabular import Model, log_gamma
from priorax.cli import main
from priorax.envs.interface import TaskSpec
from priorax.envs.jax.deep_sea import DeepSea
from priorax.replay import Transition
from priorax.training.backends.loop import remember

SIZE = 4


def explored(env, params, repeats=1):
    """Counts of an agent that took every action in every state, as often as told."""
    agent = Tabular(RLSVI(), env.num_states, 2, env.size, 1.0)
    state = agent.init(jax.random.key(0), jnp.zeros((), int))
    for cell in range(env.num_states):
        for action in range(2):
            here = type(env.reset(jax.random.key(0), params)[1])(
                jnp.asarray(cell // env.size), jnp.asarray(cell % env.size), jnp.zeros((), bool)
            )
            _, _, reward, terminated, _, info = env.step(jax.random.key(0), here, action, params)
            step = Transition(jnp.asarray(cell), action, reward, info["final_observation"], terminated)
            state, _ = remember(agent, state, (), jax.random.key(0), step)
    return jax.tree.map(lambda leaf: leaf * repeats, state.model)


@pytest.fixture(scope="module")
def sea():
    env = DeepSea(SIZE)
    params = env.params(jax.random.key(3))
    return env, params, env.optimal_values(params).reshape(-1, 2)


@pytest.mark.parametrize("planner", [RLSVI(), PSRL(), UCRL(0.001)], ids=lambda planner: type(planner).__name__)
def test_with_plenty_of_data_every_plan_is_the_optimal_one(planner, sea):
    env, params, optimal = sea
    agent = Tabular(planner, env.num_states, 2, SIZE, 1.0)
    model = explored(env, params, 1e6)
    np.testing.assert_allclose(agent.plan(model, jax.random.key(0)), optimal, atol=5e-3)
    np.testing.assert_allclose(agent.plan(model, None), optimal, atol=1e-3)


def test_linear_rlsvi_with_one_hot_features_is_tabular_rlsvi(sea):
    env, params, _ = sea
    model = explored(env, params)
    model = Model(model.moves.at[3].set(0.0), model.rewards.at[3].set(0.0))
    tabular, linear = (
        Tabular(RLSVI(0.3, 0.7, features), env.num_states, 2, SIZE, 0.9) for features in (None, jnp.eye(env.num_states))
    )
    np.testing.assert_allclose(linear.plan(model, None), tabular.plan(model, None), atol=1e-5)
    drawn = [
        jax.vmap(lambda key, agent=agent: agent.plan(model, key))(jax.random.split(jax.random.key(0), 4000))
        for agent in (tabular, linear)
    ]
    np.testing.assert_allclose(np.std(drawn[0], 0), np.std(drawn[1], 0), rtol=0.08)


def test_rlsvi_of_one_step_is_the_posterior_of_equation_3():
    """n rewards of mean m with noise s and prior N(0, p²): mean and variance in closed form."""
    n, mean, noise, prior = 5.0, 0.8, 0.3, 0.7
    model = Model(jnp.zeros((1, 1, 2)).at[0, 0, 1].set(n), jnp.full((1, 1), n * mean))
    agent = Tabular(RLSVI(noise, prior), 1, 1, 1, 1.0)
    plans = jax.vmap(lambda key: agent.plan(model, key))(jax.random.split(jax.random.key(0), 20_000))[:, 0, 0]
    precision = n / noise**2 + 1 / prior**2
    assert float(plans.mean()) == pytest.approx(n * mean / noise**2 / precision, abs=0.005)
    assert float(plans.std()) == pytest.approx(precision**-0.5, rel=0.03)


def test_psrl_samples_transitions_from_their_dirichlet_posterior():
    """Rewards zero and certain, successors a state worth one or the end: Q is the sampled probability."""
    moves = jnp.zeros((2, 1, 3)).at[0, 0].set(jnp.array([0.0, 6.0, 2.0]))
    model = Model(moves, jnp.zeros((2, 1)))
    operator = lambda key: PSRL(1e-4, 1e-4, 1.5).operator(model, 1.0, key)(jnp.array([0.0, 1.0, 0.0]))  # noqa: E731
    drawn = np.asarray(jax.vmap(operator)(jax.random.split(jax.random.key(0), 20_000)))[:, 0, 0]
    a, rest = 6.5, 3.0
    assert drawn.mean() == pytest.approx(a / (a + rest), abs=0.005)
    assert drawn.var() == pytest.approx(a * rest / ((a + rest) ** 2 * (a + rest + 1)), rel=0.05)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 7.0])
def test_gamma_draws_are_gamma_draws(alpha):
    drawn = np.asarray(log_gamma(jax.random.key(0), jnp.full(20_000, alpha)), float)
    assert stats.kstest(drawn, lambda x: stats.gamma.cdf(np.exp(x), alpha)).pvalue > 1e-3


def test_ucrl_is_never_less_hopeful_than_the_truth(sea):
    env, params, optimal = sea
    hopeful = Tabular(UCRL(), env.num_states, 2, SIZE, 1.0).plan(explored(env, params, 3), jax.random.key(0))
    assert np.all(np.asarray(hopeful) >= optimal - 1e-6)


def test_ucrl_moves_as_much_mass_to_the_best_successor_as_its_set_allows():
    """By hand: n visits, half of them to the end (0), half to a state worth 1; slack d moves d/2 to the best."""
    n = 1e6
    model = Model(jnp.zeros((2, 1, 3)).at[0, 0].set(jnp.array([0.0, n / 2, n / 2])), jnp.zeros((2, 1)))
    found = UCRL(0.5, most=1.0).operator(model, 1.0, jax.random.key(0))(jnp.array([0.0, 1.0, 0.0]))[0, 0]
    log = np.log(2 * 1 * n / 0.05)
    slack, reward = 0.5 * np.sqrt(14 * 2 * log / n), 0.5 * np.sqrt(7 * (log + np.log(2)) / (2 * n))
    assert float(found) == pytest.approx(reward + 0.5 + slack / 2, abs=1e-4)


@pytest.mark.parametrize(("agent", "most"), [("rlsvi", 70), ("psrl", 70)])
@pytest.mark.slow
def test_exact_references_learn_deep_sea_fast(agent, most):
    assert train(agent, size=8, episodes=200, stop_when_learned=True).episodes_to_learn < most


def test_planners_ask_for_finite_states():
    with pytest.raises(ValueError, match="psrl needs finite states"):
        build("psrl", settings("psrl"), TaskSpec(2))


class Corridor(gymnasium.Env):
    """Five cells; only the last pays, once; an episode has twenty steps at most."""

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.time = 0, 0
        return self.cell, {}

    def step(self, action):
        self.cell, self.time = min(max(self.cell + (1 if action == 1 else -1), 0), 4), self.time + 1
        there = self.cell == 4
        return self.cell, float(there), there, self.time == 20, {}


@pytest.mark.parametrize("agent", ["rlsvi", *(pytest.param(name, marks=pytest.mark.slow) for name in ("psrl", "ucrl"))])
def test_planners_learn_on_the_host(agent, tmp_path):
    planner = Explorer(Corridor, agent).learn(400)
    assert planner.settings.lanes == 1 and planner.evaluate(3) == [1.0] * 3
    assert [planner.predict(cell) for cell in range(4)] == [1] * 4
    assert planner.values(np.arange(5)).members.shape == (20, 5, 2)
    planner.save(tmp_path)
    again = Explorer.load(tmp_path, Corridor)
    assert again.steps == 400 and again.history == planner.history
    np.testing.assert_array_equal(again.values(np.arange(5)).mean, planner.values(np.arange(5)).mean)
    assert again.learn(10).steps == 410


def test_a_planner_is_fixed_by_its_seed():
    runs = [Explorer("gymnasium:FrozenLake-v1", "rlsvi", seed=seed).learn(150).history for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_a_planner_has_a_plan_of_its_own_in_every_lane_and_counts_what_all_of_them_see():
    planner = Explorer("gymnasium:FrozenLake-v1", "rlsvi", lanes=2).learn(150)
    assert {row.lane for row in planner.history} == {0, 1}
    assert float(planner.state.model.visits.sum()) == planner.steps
    one, other = np.asarray(planner.trainer.backend.actor.index)
    assert one.shape == (16, 4) and np.any(one != other)


def test_the_command_trains_planners_in_gymnasium(tmp_path, capsys):
    words = ["train", "--agent", "rlsvi", "--env", "gymnasium:FrozenLake-v1", "--out", str(tmp_path / "run")]
    assert main([*words, "--steps", "60", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 60
    assert main(["train", "--resume", str(tmp_path / "run"), "--steps", "90", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 90
    assert main(["inspect", str(tmp_path / "run")]) == 0
