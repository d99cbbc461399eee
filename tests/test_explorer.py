"""The agent as an object: to train, look at, deploy, save and load."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import Explorer, load, train
from priorax.agents.deploy import Values, best
from priorax.envs.adapt import as_world
from priorax.training.backends.host import HostBackend
from priorax.training.checkpoint import Checkpoints

FEW = {"num_members": 4, "lanes": 2, "batch_size": 8, "learn_after": 8, "widths": (8,), "capacity": 500}
CARTPOLE = "gymnasium:CartPole-v1"


@pytest.fixture(scope="module")
def learned():
    return Explorer(CARTPOLE, seed=3, **FEW).learn(300)


def test_values_are_the_members_their_mean_and_their_spread(learned):
    batch = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    found = learned.values(batch)
    assert found.members.shape == (4, 5, 2)
    np.testing.assert_allclose(found.mean, found.members.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.spread, found.members.std(axis=0), rtol=1e-5)
    value = jax.jit(learned.trainer.backend.agent.belief.value)
    by_hand = np.stack([value(learned.state.belief, jnp.asarray(k), batch[2]) for k in range(4)])
    np.testing.assert_allclose(found.members[:, 2], by_hand, rtol=1e-4, atol=1e-5)
    one = learned.values(batch[2])
    np.testing.assert_allclose(one.members, found.members[:, 2], rtol=1e-4, atol=1e-5)


def test_mean_vote_and_member_may_all_differ():
    members = np.array([[[0.0, 9.0, 0.0]], [[1.0, 0.0, 0.5]], [[1.0, 0.0, 2.0]], [[1.0, 0.0, 0.9]]])
    found = Values(members.mean(axis=0), members.std(axis=0), members)
    assert best(found, "mean").tolist() == [1]
    assert best(found, "vote").tolist() == [0]
    assert best(found, "member", 2).tolist() == [2]
    with pytest.raises(ValueError, match="deploy='median'"):
        best(found, "median")


def test_a_tied_vote_is_decided_by_the_mean():
    members = np.array([[[0.0, 1.0]], [[5.0, 0.0]]])
    found = Values(members.mean(axis=0), members.std(axis=0), members)
    assert best(found, "vote").tolist() == [0]


def test_predict_takes_one_observation_or_many(learned):
    batch = np.random.default_rng(1).normal(size=(6, 4))
    actions = learned.predict(batch)
    assert actions.shape == (6,)
    assert learned.predict(batch[4]) == actions[4] and isinstance(learned.predict(batch[4]), int)
    members = learned.values(batch).members
    for k in range(4):
        np.testing.assert_array_equal(learned.predict(batch, deploy=k), members[k].argmax(-1))
    assert learned.predict(batch, deploy="vote").shape == (6,)
    for wrong, words in ((9, "below 4"), ("best", "deploy='best'")):
        with pytest.raises(ValueError, match=words):
            learned.predict(batch, deploy=wrong)
    with pytest.raises(ValueError, match=r"obs has shape \(3,\)"):
        learned.predict(np.zeros(3))


def test_the_same_seed_learns_the_same_to_the_bit(learned):
    again = Explorer(CARTPOLE, seed=3, **FEW).learn(300)
    assert again.history == learned.history
    for a, b in zip(jax.tree.leaves(again.state), jax.tree.leaves(learned.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_summary_is_of_the_whole_history(learned):
    assert [row.episode for row in learned.history] == list(range(1, len(learned.history) + 1))
    returns = [row.total_return for row in learned.history]
    found = learned.summary()
    assert found["best"] == max(returns) and found["episodes"] == len(returns)
    assert found["mean_return"] == pytest.approx(np.mean(returns[-100:]))


def test_evaluations_change_nothing_of_what_is_learned(learned):
    seen = []
    tried = Explorer(CARTPOLE, seed=3, **FEW).learn(300, seen.append, evaluate_every=100, evaluation_episodes=3)
    assert tried.history == learned.history
    evaluations = [each.evaluation for each in seen if each.evaluation is not None]
    assert len(evaluations) == 3 and all(len(each) == 3 for each in evaluations)


def test_an_evaluation_plays_whole_episodes_of_what_is_deployed(learned):
    """One lane by hand, with the same start."""
    returns = learned.evaluate(1, seed=5)
    world = as_world(CARTPOLE, 1, seed=3).world
    obs, total, over = world.reset(5), 0.0, False
    while not over:
        turn = world.step(np.array([learned.predict(obs[0])]))
        obs, total, over = turn.obs, total + float(turn.reward[0]), bool((turn.terminated | turn.truncated)[0])
    assert returns == [total]
    assert learned.evaluate(5, seed=7) == learned.evaluate(5, seed=7)
    assert len(learned.evaluate(5, deploy="member")) == len(learned.evaluate(5, deploy="vote")) == 5


def test_a_callback_that_says_no_ends_it():
    agent = Explorer(CARTPOLE, **FEW)
    agent.learn(1000, lambda each: each.steps < 20)
    assert agent.steps == 20
    agent.learn(10)
    assert agent.steps == 30


def test_rounds_are_a_generator_that_can_be_left_and_taken_up():
    agent = Explorer(CARTPOLE, **FEW)
    for each in agent.rounds():
        if each.steps == 40:
            break
    assert [each.steps for each in agent.rounds(6)] == [42, 44, 46]


def test_what_was_saved_is_what_is_loaded(learned, tmp_path):
    learned.save(tmp_path / "one")
    again = Explorer.load(tmp_path / "one")
    assert again.history == learned.history and again.steps == learned.steps
    batch = np.random.default_rng(2).normal(size=(5, 4))
    np.testing.assert_array_equal(again.values(batch).members, learned.values(batch).members)
    replays = [each.trainer.backend.replay for each in (again, learned)]
    assert replays[0].size == replays[1].size > 0
    drawn = [replay.sample(np.random.default_rng(1), 50) for replay in replays]
    for a, b in zip(*drawn, strict=True):
        np.testing.assert_array_equal(a, b)
    again.learn(50)
    again.save(tmp_path / "one")
    assert Explorer.load(tmp_path / "one").steps == learned.steps + 50


def test_a_save_that_fails_leaves_the_one_before(learned, tmp_path, monkeypatch):
    learned.save(tmp_path / "one")
    monkeypatch.setattr(HostBackend, "snapshot", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        learned.save(tmp_path / "one")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert Explorer.load(tmp_path / "one").history == learned.history
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(ValueError, match="contains files that are not a run"):
        learned.save(tmp_path / "mine")


@pytest.mark.slow
def test_a_run_of_the_compiled_loop_can_be_loaded_and_goes_on(tmp_path):
    """Checkpoints have one format; values are those of the run itself."""
    train("bsp", "deep_sea", size=4, episodes=600, out=tmp_path, changes={"num_members": 3})
    agent = Explorer.load(tmp_path)
    assert agent.values(np.arange(16)).members.shape == (3, 16, 2)
    assert Checkpoints(tmp_path / "checkpoint").last.episodes == 600
    assert np.mean(agent.evaluate(4)) > 0.9  # learned, and the mask is that of the run's seed
    agent.learn(20)


class Corridor(gymnasium.Env):
    """Five cells, counted from 1; actions are called 3 (back) and 4 (on); each step costs 1."""

    observation_space = gymnasium.spaces.Discrete(5, start=1)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.time = 1, 0
        return self.cell, {}

    def step(self, action):
        assert action in (3, 4)
        self.cell = min(max(self.cell + (1 if action == 4 else -1), 1), 5)
        self.time += 1
        return self.cell, -1.0, self.cell == 5, self.time == 20, {}


@pytest.mark.parametrize(
    "env",
    [
        pytest.param(Corridor(), marks=pytest.mark.slow),
        Corridor,
        gymnasium.vector.SyncVectorEnv([Corridor] * 2),
    ],
    ids=["object", "function", "vector"],
)
def test_objects_functions_and_vectors_are_learned_in_with_their_own_numbering(env, tmp_path):
    changes = {**FEW, "learning_rate": 1e-2, "target_period": 1, "clip": None, "double_q": False}
    changes |= {"widths": (20, 20), "batch_size": 32, "learn_every": 1}
    agent = Explorer(env, **changes)
    agent.learn(600)
    assert agent.evaluate(4) == [-4.0] * 4
    assert [agent.predict(cell) for cell in (1, 2, 3, 4)] == [4] * 4
    agent.learn(4)
    agent.save(tmp_path)
    with pytest.raises(ValueError, match="pass an equal environment as env"):
        Explorer.load(tmp_path)
    again = Explorer.load(tmp_path, Corridor)
    assert again.steps == agent.steps
    name = "SyncVectorEnv" if isinstance(env, gymnasium.vector.VectorEnv) else "Corridor"
    assert agent.trainer.setup.names["env"] == f"object:{name}"
    with pytest.raises(ValueError, match="env has 3 lanes, but"):
        Explorer.load(tmp_path, gymnasium.vector.SyncVectorEnv([Corridor] * 3))
    assert [again.predict(cell) for cell in (1, 2, 3, 4)] == [4] * 4


class Parts(gymnasium.Env):
    """What is seen has parts; of any type."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space
        space.seed(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, bool(self.np_random.random() < 0.1), False, {}


SPACES = gymnasium.spaces


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (SPACES.Dict({"a": SPACES.Box(-1, 1, (2,)), "b": SPACES.Discrete(3)}), (5,), np.float32),
        pytest.param(
            SPACES.Tuple([SPACES.Discrete(2), SPACES.Box(0, 9, (2, 2), np.float64)]),
            (6,),
            np.float32,
            marks=pytest.mark.slow,
        ),
        pytest.param(SPACES.MultiBinary(4), (4,), np.float32, marks=pytest.mark.slow),
        pytest.param(SPACES.MultiDiscrete([2, 3]), (5,), np.float32, marks=pytest.mark.slow),
        pytest.param(SPACES.Box(0, 10, (3,), np.int16), (3,), np.float32, marks=pytest.mark.slow),
        (SPACES.Box(0, 1, (3,), np.float16), (3,), np.float32),
        pytest.param(SPACES.Box(0, 255, (40, 44, 3), np.uint8), (3, 40, 44), np.uint8, marks=pytest.mark.slow),
        pytest.param(SPACES.Box(0, 255, (1, 40, 44), np.uint8), (1, 40, 44), np.uint8, marks=pytest.mark.slow),
    ],
)
def test_parts_odd_types_and_pictures_are_seen(space, shape, dtype):
    small = {"features": 8} if dtype == np.uint8 else {"widths": (8,)}
    agent = Explorer(lambda: Parts(space), **{**FEW, **small} if dtype != np.uint8 else {**FEW, "widths": (), **small})
    assert agent.trainer.backend.world.frame_shape == shape and agent.trainer.backend.world.frame_dtype == dtype
    agent.learn(30)
    assert agent.trainer.setup.names["preset"] == ("small" if dtype == np.uint8 else "gymnasium")
    if isinstance(space, SPACES.Box):
        assert agent.predict(space.sample()) in (0, 1)


def test_dictionaries_are_seen_one_at_a_time_or_many():
    """As Gymnasium flattens one; a list of them, or a batch in every part."""
    space = SPACES.Dict(
        {"a": SPACES.Box(-1, 1, (2, 2)), "b": SPACES.Tuple([SPACES.Discrete(3, start=4), SPACES.MultiDiscrete([2, 3])])}
    )
    agent = Explorer(lambda: Parts(space), **FEW)
    several = [space.sample() for _ in range(5)]
    rows = np.stack([SPACES.flatten(space, each) for each in several])
    np.testing.assert_allclose(agent.interface.sight(several), rows)
    batch = {
        "a": np.stack([each["a"] for each in several]),
        "b": tuple(np.stack([each["b"][i] for each in several]) for i in range(2)),
    }
    np.testing.assert_array_equal(agent.predict(batch), agent.predict(several))
    assert agent.predict(several[3]) == agent.predict(several)[3]
    assert agent.values(batch).mean.shape == (5, 2)
    with pytest.raises(ValueError, match="as many of each"):
        agent.predict({**batch, "a": batch["a"][:3]})
    with pytest.raises(ValueError, match=r"a part of shape \(4,\)"):
        agent.predict({**several[0], "a": np.zeros(4)})


@pytest.mark.slow
def test_small_grids_of_codes_are_learned_from_as_numbers():
    """As MiniGrid's 7 x 7 x 3, whose bytes are codes up to 10 though their bounds say 255."""
    space = SPACES.Box(0, 255, (7, 7, 3), np.uint8)

    class Grid(Parts):
        def reset(self, *, seed=None, options=None):
            return np.full((7, 7, 3), 10, np.uint8), super().reset(seed=seed)[1]

    agent = Explorer(lambda: Grid(space), **FEW).learn(30)
    assert agent.trainer.setup.names["preset"] == "gymnasium" and agent.trainer.backend.world.inputs.scale == (0.1,)
    assert agent.predict(space.sample()) in (0, 1)
    with pytest.raises(ValueError, match=r"at least 36 x 36 pixels.*torso='small' \(from 20 pixels\)"):
        Explorer(lambda: Parts(SPACES.Box(0, 255, (24, 24, 3), np.uint8)), **{**FEW, "widths": ()}, torso="nature")


def test_a_bar_is_shown_where_it_is_asked_for(capsys):
    Explorer(CARTPOLE, **FEW).learn(20)
    assert capsys.readouterr().out == ""
    Explorer(CARTPOLE, **FEW).learn(20, progress=True, evaluate_every=10, evaluation_episodes=1)
    out = capsys.readouterr().out
    assert "bsp on gymnasium:CartPole-v1" in out and "20/20" in out and "deployed" in out


def test_an_observation_that_is_not_finite_is_refused():
    agent = Explorer(CARTPOLE, **FEW)
    with pytest.raises(ValueError, match="obs contains NaN or infinity"):
        agent.predict(np.array([0.0, np.nan, 0.0, 0.0]))


def test_states_that_do_not_exist_and_ragged_observations_are_refused():
    agent = Explorer("deep_sea", size=3, **FEW)
    assert agent.predict(8) in (0, 1) and agent.predict(np.array([0.0, 8.0])).shape == (2,)
    assert agent.predict(9) in (0, 1), "the observation after the last step"
    for wrong in (10, -1, 1.5, [0, 10]):
        with pytest.raises(ValueError, match="is no state of the environment; pass whole numbers from 0 to 9"):
            agent.predict(wrong)
    with pytest.raises(ValueError, match="obs has parts of different shapes"):
        agent.predict([[0, 1], [0]])


def test_what_was_learned_is_used_without_the_environment(tmp_path):
    """Of an object, whose code no file holds: numbering, shapes and values are in the folder."""
    agent = Explorer(Corridor, **FEW).learn(40)
    agent.save(tmp_path / "host")
    policy = load(tmp_path / "host")
    np.testing.assert_array_equal(policy.values([1, 2, 3]).members, agent.values([1, 2, 3]).members)
    assert policy.predict(2) == agent.predict(2) and policy.predict([1, 2]).shape == (2,)
    assert set(policy.predict([1, 2, 3, 4, 5])) <= {3, 4} and policy.num_members == 4
    kept = agent.policy
    before = kept.values([1, 2, 3]).members
    agent.learn(100)
    np.testing.assert_array_equal(kept.values([1, 2, 3]).members, before)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="contains no run"):
        load(tmp_path / "empty")


@pytest.mark.parametrize(
    ("agent", "env", "obs"),
    [
        ("bsp", "deep_sea", 0),
        pytest.param("psrl", "deep_sea", 0, marks=pytest.mark.slow),
        pytest.param("d4pg", "cartpole_swingup", np.zeros(5, np.float32), marks=pytest.mark.slow),
    ],
)
def test_a_compiled_run_gives_and_keeps_its_policy(agent, env, obs, tmp_path):
    few = {"capacity": 500, "batch_size": 8}
    changes = {"bsp": {"num_members": 3, **few}, "psrl": {}, "d4pg": few}[agent]
    result = train(agent, env, size=4, steps=1000, out=tmp_path, changes=changes)
    again = load(tmp_path)
    for one, other in zip(again.values(obs), result.policy.values(obs), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.predict(obs), result.policy.predict(obs))
    assert np.shape(again.predict([obs, obs])) == ((2, 1) if agent == "d4pg" else (2,))


def test_another_environment_than_the_one_of_a_run_is_refused(learned, tmp_path):
    learned.save(tmp_path)
    with pytest.raises(ValueError, match=r"env has observations of shape \(2,\).*was trained with \(4,\)"):
        Explorer.load(tmp_path, "gymnasium:MountainCar-v0")
    with pytest.raises(ValueError, match="env has actions 3"):
        Explorer.load(
            tmp_path, lambda: gymnasium.wrappers.TransformAction(gymnasium.make("CartPole-v1"), min, SPACES.Discrete(3))
        )


def test_train_takes_environments_that_are_not_compiled(tmp_path):
    result = train("bsp", CARTPOLE, steps=40, changes=FEW, out=tmp_path / "named")
    assert result.steps == 40 and result.policy.predict(np.zeros(4)) in (0, 1)
    result = train("bsp", Corridor(), steps=20, changes={**FEW, "lanes": 1})
    assert result.env == "object:Corridor" and result.policy.predict(1) in (3, 4)
    with pytest.raises(ValueError, match="stop_when_learned=True needs an environment that reports regret"):
        train("bsp", CARTPOLE, steps=40, stop_when_learned=True)


def test_what_cannot_be_seen_or_done_is_refused():
    with pytest.raises(ValueError, match="cannot be converted to an array"):
        Explorer(lambda: Parts(SPACES.Sequence(SPACES.Discrete(3))), **FEW)
    with pytest.raises(ValueError, match="must have a Discrete one"):
        Explorer("gymnasium:Pendulum-v1", **FEW)
    for name in ("CartPole-v1", "cartpole"):
        with pytest.raises(ValueError, match="pass env='gymnasium:CartPole-v1'"):
            Explorer(name, **FEW)
    with pytest.raises(ValueError, match="is not a supported environment"):
        Explorer(7, **FEW)
    with pytest.raises(ValueError, match="function that returns 7"):
        Explorer(lambda: 7, **FEW)
    with pytest.raises(ValueError, match="total_steps=0"):
        Explorer(CARTPOLE, **FEW).rounds(0)


def test_continuous_actions_are_learned_in_as_the_message_says():
    wrappers, pushes = gymnasium.wrappers, [np.array([u], np.float32) for u in (-2.0, 0.0, 2.0)]
    with pytest.raises(ValueError, match=r"Box.*gymnasium.wrappers.TransformAction.*d4pg"):
        Explorer("gymnasium:Pendulum-v1", **FEW)
    with pytest.raises(ValueError, match="use the agent d4pg"):
        Explorer("gymnax:Pendulum-v1", **FEW)
    made = lambda: wrappers.TransformAction(gymnasium.make("Pendulum-v1"), lambda i: pushes[i], SPACES.Discrete(3))  # noqa: E731
    assert Explorer(made, **FEW).learn(20).predict(np.zeros(3)) in (0, 1, 2)


@pytest.mark.slow
def test_gymnax_by_name_runs_on_the_host_and_in_the_compiled_loop():
    agent = Explorer("gymnax:CartPole-v1", **FEW).learn(60)
    np.testing.assert_allclose(agent.trainer.backend.world.inputs.scale, [1 / 4.8, 1, 1 / 0.41887903, 1], rtol=1e-5)
    result = train("bsp", "gymnax:FrozenLake-misc", episodes=3, changes={"num_members": 3})
    assert result.episodes == 3 and result.preset == "finite"
    with pytest.raises(ValueError, match="CartPole-v1"):
        train("bsp", "gymnax:CartPole-v9", episodes=3)


@pytest.mark.slow
def test_what_was_saved_in_one_of_our_own_environments_is_loaded(tmp_path):
    """Compiled elsewhere, but lived in on the host; an action is held where the preset holds it."""
    agent = Explorer("deep_sea", size=4, num_members=3, batch_size=8).learn(60)
    agent.save(tmp_path)
    again = Explorer.load(tmp_path)
    assert again.steps == 60
    np.testing.assert_array_equal(again.values(np.arange(16)).members, agent.values(np.arange(16)).members)
    held = Explorer("cartpole_swingup", num_members=2, widths=(8,))
    assert held.settings.hold == 4 and held.learn(4).steps == 4


def test_an_interrupted_evaluation_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    arguments = {"env": CARTPOLE, "changes": FEW, "out": tmp_path, "evaluate_every": 20, "evaluation_episodes": 1}

    def interrupted(self, *_):
        raise KeyboardInterrupt

    for _ in range(2):  # the second has no evaluations to keep
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(HostBackend, "evaluate", interrupted)
            train(steps=400, resume=(tmp_path / "run.json").exists(), **arguments)
    result = train(steps=100, resume=True, **arguments)
    assert result.steps in (100, 101), "up to the end of a round in two lanes"
    assert result.evaluation is not None
    assert len((tmp_path / "episodes.csv").read_text().splitlines()) == 1 + result.episodes
    (tmp_path / "notes.txt").write_text("mine")
    Explorer.load(tmp_path).save(tmp_path)
    assert (tmp_path / "notes.txt").exists() and (tmp_path / "evaluations.csv").exists()


def test_what_is_deployed_of_a_dropout_network_varies_and_training_does_not_notice():
    agent = Explorer(CARTPOLE, "dropout", **{name: FEW[name] for name in FEW if name != "num_members"}).learn(20)
    before = agent.trainer.backend.actor.rng.bit_generator.state
    batch = np.random.default_rng(0).normal(size=(50, 4))
    first, *others = (agent.predict(batch, deploy="member") for _ in range(5))
    assert any(np.any(first != other) for other in others)
    assert agent.trainer.backend.actor.rng.bit_generator.state == before


def test_an_observation_in_parts_is_predicted_on():
    space = SPACES.Dict({"a": SPACES.Box(-1, 1, (2,)), "b": SPACES.Discrete(3)})
    agent = Explorer(lambda: Parts(space), **FEW)
    obs = {"a": np.array([0.5, -0.5], np.float32), "b": 1}
    assert agent.predict(obs) in (0, 1)
    np.testing.assert_allclose(agent.interface.batch(obs)[0], [[0.5, -0.5, 0, 1, 0]])
