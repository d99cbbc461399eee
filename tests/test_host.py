"""Living on the host: what an actor sends to replay, how a learner learns from it, and runs in a folder."""

import json
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.agents import PRESETS, build, settings
from priorax.agents.q_learner import owned_mean
from priorax.beliefs import values_of
from priorax.envs.host.vector import CompiledWorld
from priorax.envs.jax.pixels import PixelDeepSea
from priorax.envs.registry import make_world
from priorax.training.backends.acting import Actor, epsilon_exponents
from priorax.training.backends.host import Host, Learner, buffer_for
from priorax.training.backends.host_files import HostCheckpoints
from priorax.training.host_training import train_on_host

TINY = {
    "num_members": 3,
    "features": 16,
    "lanes": 2,
    "batch_size": 8,
    "capacity": 400,
    "learn_after": 16,
    "learn_every": 2,
    "target_period": 5,
    "learning_rate": 1e-3,
    "mask_prob": 0.5,
}


def small_agent(**changes):
    return build(settings("bsp", "small", **{**TINY, **changes}), 2)


def small_world(lanes=2, size=4):
    env = PixelDeepSea(size, side=44)
    return CompiledWorld(env, lanes, env.params(jax.random.key(3)))


@pytest.fixture(scope="module")
def played():
    """An actor's moments and errors, with the agent that it followed."""
    agent, world = small_agent(), small_world()
    state = Learner(agent, world.reset(0)[0], seed=0).state
    actor = Actor(agent, world, seed=1)
    moments, errors, episodes = [], [], []
    for _ in range(40):
        moment, error, ended = actor.advance(state.belief)
        episodes += ended
        if moment is not None:
            moments.append(moment)
            errors.append(error)
    return agent, state, moments, errors, episodes


def test_moments_are_told_in_order_with_final_frames_and_starts(played):
    _, _, moments, _, episodes = played
    lane = [[part[0] if part is not None else None for part in moment] for moment in moments]
    frames, first, _, _, terminated, ended, acted, *_ = zip(*lane, strict=True)
    # size 4: four actions, then the frame after the last, in which nothing is done
    assert list(first[:10]) == [True, False, False, False, False] * 2
    assert list(acted[:10]) == [True, True, True, True, False] * 2
    assert list(ended[:10]) == list(terminated[:10]) == [False, False, False, True, False] * 2
    assert not np.any(frames[4]) and np.any(frames[5])
    assert all(row.length == 4 for row in episodes)


def test_actors_know_the_error_of_every_head_over_n_steps(played):
    """By hand: the mean over owners of |sum of rewards + discounted best value - value|, values of each member."""
    agent, state, moments, errors, _ = played
    assert agent.n_step == 3
    shown = jnp.asarray(np.stack([moment.frame for moment in moments]))
    evaluate = jax.jit(
        lambda x: values_of(agent.belief.head, agent.belief.forward(state.belief, jax.random.key(0), x, shared=True))
    )
    q = np.asarray(evaluate(shown.reshape(-1, 44, 44))).reshape(3, len(moments), 2, 2)
    for t in range(20):
        for lane in range(2):
            here = moments[t]
            if not here.acted[lane]:
                continue
            reward, discount, at = 0.0, 1.0, t
            for at in range(t, t + 3):
                reward += discount * moments[at].reward[lane]
                discount *= 0.99
                if moments[at].terminated[lane]:
                    discount = 0.0
                    break
            gap = np.abs(reward + discount * q[:, at + 1, lane].max(-1) - q[:, t, lane, here.action[lane]])
            owners = here.mask[lane] if here.mask[lane].any() else np.ones(3, bool)
            np.testing.assert_allclose(errors[t][lane], gap[owners].mean(), rtol=1e-3, atol=1e-4)


def test_a_lane_follows_one_member_for_an_episode(played):
    """Its actions are greedy on some one member from its first frame to its last."""
    agent, state, moments, _, _ = played
    shown = jnp.asarray(np.stack([moment.frame for moment in moments]))
    out = agent.belief.forward(state.belief, jax.random.key(0), shown.reshape(-1, 44, 44), shared=True)
    best = np.asarray(jnp.argmax(values_of(agent.belief.head, out), -1)).reshape(3, len(moments), 2)
    followed = set()
    for lane in range(2):
        for start in range(0, 30, 5):
            chosen = np.array([moments[t].action[lane] for t in range(start, start + 4)])
            members = [k for k in range(3) if np.all(best[k, start : start + 4, lane] == chosen)]
            assert members
            followed |= set(members)
    assert len(followed) > 1


def test_prior_values_sent_along_are_the_priors(played):
    agent, state, moments, _, _ = played
    expected = agent.belief.prior_values(state.belief, jnp.asarray(moments[7].frame))
    np.testing.assert_allclose(np.moveaxis(moments[7].prior, 1, 0), expected, atol=1e-5)


def test_epsilons_are_those_of_ape_x():
    np.testing.assert_allclose(epsilon_exponents(7.0, 0, 3, 3), [1, 4.5, 8])
    np.testing.assert_allclose(epsilon_exponents(7.0, 1, 2, 3), [4.5, 8])
    assert np.all(epsilon_exponents(0.0, 0, 4, 4) == 1) and epsilon_exponents(7.0, 0, 1, 1) == 1
    for preset in PRESETS:
        chosen = settings("eps_greedy", preset)
        assert (chosen.epsilon_ladder, chosen.epsilon_episodes) == (
            (7, 0) if preset in ("small", "apex") else (0, 2000)
        )


def test_who_owns_nothing_counts_with_all():
    size, mask = np.array([[1.0, 1.0], [3.0, 5.0]]), np.array([[True, False], [False, False]])
    np.testing.assert_allclose(owned_mean(np, size, mask), [1.0, 3.0])


def test_errors_of_an_update_come_with_their_places(played):
    agent, _, moments, errors, _ = played
    world = small_world()
    buffer = buffer_for(agent, world, 2, seed=0)
    for moment, error in zip(moments, errors, strict=True):
        buffer.add(moment, error)
    learner = Learner(agent, world.reset(0)[0], seed=0)
    one, two = buffer.draw(8), buffer.draw(8)
    assert learner.learn(one, buffer.size) is None
    place, error = learner.learn(two, buffer.size)
    np.testing.assert_array_equal(place, one.place)
    assert error.shape == (8,) and np.all(error > 0)
    assert learner.updates == 2


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    def returns(seed):
        host = Host(small_agent(), small_world(), seed, learn_every=2, learn_after=16)
        played = [row for _ in range(60) for row in host.round()]
        assert host.learner.updates > 20
        return played, jax.tree.leaves(host.learner.state.belief.params)

    one, again, other = returns(0), returns(0), returns(1)
    assert one[0] == again[0]
    for a, b in zip(one[1], again[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(np.any(a != b) for a, b in zip(one[1], other[1], strict=True))


def test_no_two_purposes_share_random_numbers():
    host = Host(small_agent(), small_world(), 0, learn_every=2, learn_after=16)
    assert not np.array_equal(jax.random.key_data(host.actor.key), jax.random.key_data(host.learner.key))
    assert host.actor.rng.random() != host.buffer.rng.random()


def test_a_run_that_could_never_learn_is_refused():
    words = r"capacity=200 may never hold learn_after=200 .* raise capacity to 424, or lower learn_after"
    with pytest.raises(ValueError, match=words):
        train_on_host("bsp", "gymnasium:CartPole-v1", steps=10, changes={"capacity": 200, "batch_size": 8})
    with pytest.raises(ValueError, match="capacity=30 may never hold learn_after=16"):
        Host(small_agent(capacity=30), small_world(), learn_after=16)


def test_what_is_just_large_enough_learns_where_every_other_frame_begins_nothing():
    """Episodes of one action: of two frames one begins a transition."""
    host = Host(small_agent(capacity=2 * (2 * 8 + 3)), small_world(size=1), learn_every=1, learn_after=16)
    for _ in range(60):
        host.round()
    assert host.updates > 0


def test_every_run_begins_with_members_that_differ():
    with pytest.raises(ValueError, match="all priors of the ensemble are the same function"):
        train_on_host("bsp", "gymnasium:CartPole-v1", steps=10, changes={"prior_gain": 0.0, "prior_bias": 0.0})


def test_updates_keep_step_with_actions():
    host = Host(small_agent(), small_world(), 0, learn_every=4, learn_after=16)
    for _ in range(50):
        host.round()
    ready = host.learner.updates
    for _ in range(20):
        host.round()
    assert host.learner.updates - ready == 20 * 2 // 4


@pytest.mark.parametrize("agent", ["bs", "eps_greedy"])
def test_rivals_run_the_same_loop(agent):
    changes = {name: value for name, value in TINY.items() if agent == "bs" or name not in ("num_members", "mask_prob")}
    result = train_on_host(agent, "pixel_deep_sea", size=3, steps=120, changes=changes)
    assert result.steps == 120 and result.episodes == len(result.history) > 20


def test_members_with_torsos_of_their_own_run_the_same_loop():
    result = train_on_host("bsp", "pixel_deep_sea", size=3, steps=80, changes={**TINY, "shared_torso": False})
    assert result.steps == 80


def test_deep_sea_is_learned_from_pixels():
    """Size 5: a random policy finds it once in 32 episodes."""
    changes = {**TINY, "num_members": 10, "mask_prob": 1.0, "prior_scale": 3.0, "learn_every": 1, "batch_size": 32}
    changes |= {"capacity": 5000, "target_period": 50, "features": 64}
    result = train_on_host("bsp", "pixel_deep_sea", size=5, steps=1200, changes=changes)
    assert np.mean([row.total_return > 0.5 for row in result.history[-20:]]) > 0.5


COMMAND = [sys.executable, "-m", "priorax.cli", "train", "--env", "pixel_deep_sea", "--size", "3", "--json"]
SET = ["--set", *(f"{name}={value}" for name, value in TINY.items())]


def test_killed_it_goes_on_from_its_last_checkpoint(tmp_path):
    out = tmp_path / "run"
    words = [*COMMAND, "--steps", "100000", "--out", str(out), "--checkpoint-seconds", "0.2", *SET]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoint/commit-*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    saved = HostCheckpoints(out / "checkpoint").last.tally._asdict()
    steps = saved["rounds"] * 2 + 40
    again = [sys.executable, "-m", "priorax.cli", "train", "--resume", str(out), "--steps", str(steps), "--json"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=120, env={**os.environ})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = (out / "episodes.csv").read_text().splitlines()[1:]
    assert result["steps"] == steps and len(rows) == result["episodes"] > saved["finished"]
    assert [int(row.split(",")[0]) for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_saves_what_was_counted(number, error, tmp_path):
    """Whenever it comes, there are as many rows as the checkpoint says."""
    asked = {"agent": "bsp", "env": "gymnasium:CartPole-v1", "changes": FEW, "out": tmp_path}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    with pytest.raises(error):
        train_on_host(
            **asked,
            steps=100_000,
            checkpoint_seconds=3600.0,
            stop=lambda history: len(history) == 12 and bool(os.kill(os.getpid(), number)),
        )
    signal.signal(signal.SIGINT, before)
    assert HostCheckpoints(tmp_path / "checkpoint").last.tally.finished == 12
    steps = HostCheckpoints(tmp_path / "checkpoint").last.tally.rounds * FEW["lanes"]
    with pytest.raises(ValueError, match=rf"steps=10 is less than the {steps} steps of the run"):
        train_on_host(**asked, steps=10, resume=True)
    before = int((tmp_path / "episodes.csv").read_text().splitlines()[-1].split(",")[-1])
    result = train_on_host(**asked, steps=steps + 100, resume=True)
    assert result.episodes > 12
    seen = [row.cells for row in result.history]
    assert seen == sorted(seen) and result.cells >= before > 0, "distinct states go on being counted"


def test_a_run_is_not_resumed_with_other_settings(tmp_path):
    train_on_host("bsp", "pixel_deep_sea", size=3, steps=20, changes=TINY, out=tmp_path)
    with pytest.raises(ValueError, match=r"prior_scale was 10\.0, is 3\.0"):
        changes = {**TINY, "prior_scale": 3.0}
        train_on_host("bsp", "pixel_deep_sea", size=3, steps=40, changes=changes, out=tmp_path, resume=True)
    with pytest.raises(ValueError, match="already holds a run"):
        train_on_host("bsp", "pixel_deep_sea", size=3, steps=40, changes=TINY, out=tmp_path)


def test_a_game_is_needed_and_only_for_atari():
    with pytest.raises(ValueError, match="needs the name of a game"):
        train_on_host("bsp", "atari", steps=10)
    with pytest.raises(ValueError, match="leave it out"):
        train_on_host("bsp", "pixel_deep_sea", game="Freeway", steps=10)


def test_an_atari_game_is_played_and_its_states_are_counted():
    result = train_on_host("bsp", "atari", game="Freeway", steps=40, changes={**TINY, "learn_after": 20})
    assert result.steps == 40 and result.cells > 0


FEW = {"num_members": 3, "lanes": 2, "batch_size": 8, "learn_after": 8, "widths": (8,), "capacity": 500}


@pytest.mark.parametrize("env", ["gymnasium:CartPole-v1", "gymnasium:FrozenLake-v1"])
def test_any_gymnasium_environment_is_trained_in_by_name(env):
    """One is seen as numbers, the other as an index, which is looked up."""
    result = train_on_host("bsp", env, steps=200, changes=FEW)
    assert result.preset == ("finite" if "Lake" in env else "gymnasium") and result.steps == 200 and result.episodes > 2


def test_what_is_known_of_a_gymnasium_environment_reaches_the_agent():
    world = make_world("gymnasium:MountainCar-v0", 2)
    np.testing.assert_allclose(world.input_scale, [1 / 1.2, 1 / 0.07], rtol=1e-5)
    assert world.num_states is None
    assert make_world("gymnasium:Taxi-v4", 2).num_states == 500


def test_an_environment_that_gymnasium_does_not_know_is_named():
    with pytest.raises(ValueError, match="gymnasium:NoSuchThing-v0' cannot be made"):
        train_on_host("bsp", "gymnasium:NoSuchThing-v0", steps=10)
