"""Living on the host: what an actor sends to replay, how a learner learns from it, and runs in a folder."""

import csv
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
from priorax.beliefs import values_of
from priorax.envs.host.vector import CompiledWorld
from priorax.envs.interface import TaskSpec
from priorax.envs.jax.pixels import PixelDeepSea
from priorax.envs.registry import make_world
from priorax.replay import FrameReplay, owned_mean
from priorax.training.backends.acting import Actor
from priorax.training.backends.host import HostBackend, Learner, frame_layout
from priorax.training.checkpoint import Checkpoints
from priorax.training.trainer import train

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


def tiny_settings(**changes):
    return settings("bsp", "small", **{**TINY, **changes})


def small_agent(**changes):
    return build("bsp", tiny_settings(**changes), TaskSpec(2))


def small_world(lanes=2, size=4):
    env = PixelDeepSea(size, side=44)
    return CompiledWorld(env, lanes, env.params(jax.random.key(3)))


def backend(seed=0, size=4, **changes):
    return HostBackend(small_agent(**changes), small_world(size=size), seed, tiny_settings(**changes))


def advance(host, rounds):
    """So many rounds; the episodes that ended."""
    return [ended for _ in range(rounds) for ended in host.advance(None, lambda ended: False)]


@pytest.fixture(scope="module")
def played():
    """An actor's steps as replay gets them, and their errors, with the agent that it followed."""
    agent, world = small_agent(), small_world()
    state = Learner(agent, world.reset(0)[0], seed=0).state
    actor = Actor(agent, world, seed=1)
    steps, errors, episodes = [], [], []
    for _ in range(40):
        acted = actor.advance(state)
        episodes += acted.played
        if acted.step is not None:
            steps.append(acted.step)
            errors.append(acted.errors)
    return agent, state, steps, errors, episodes


def test_steps_are_told_in_order_with_final_frames_and_starts(played):
    _, _, steps, _, episodes = played
    lane = [[part[0] if part is not None else None for part in step] for step in steps]
    frames, first, _, _, terminated, ended, acted, *_ = zip(*lane, strict=True)
    # size 4: four actions, then the frame after the last, in which nothing is done
    assert list(first[:10]) == [True, False, False, False, False] * 2
    assert list(acted[:10]) == [True, True, True, True, False] * 2
    assert list(ended[:10]) == list(terminated[:10]) == [False, False, False, True, False] * 2
    assert not np.any(frames[4]) and np.any(frames[5])
    assert all(row.length == 4 for row in episodes)


def test_actors_know_the_error_of_every_head_over_n_steps(played):
    """By hand: the mean over owners of |sum of rewards + discounted best value - value|, values of each member."""
    agent, state, steps, errors, _ = played
    assert agent.replay.n_step == 3
    shown = jnp.asarray(np.stack([step.frame for step in steps]))
    evaluate = jax.jit(
        lambda x: values_of(agent.belief.head, agent.belief.forward(state.belief, jax.random.key(0), x, shared=True))
    )
    q = np.asarray(evaluate(shown.reshape(-1, 44, 44))).reshape(3, len(steps), 2, 2)
    for t in range(20):
        for lane in range(2):
            here = steps[t]
            if not here.acted[lane]:
                continue
            reward, discount, at = 0.0, 1.0, t
            for at in range(t, t + 3):
                reward += discount * steps[at].reward[lane]
                discount *= 0.99
                if steps[at].terminated[lane]:
                    discount = 0.0
                    break
            gap = np.abs(reward + discount * q[:, at + 1, lane].max(-1) - q[:, t, lane, here.action[lane]])
            owners = here.mask[lane] if here.mask[lane].any() else np.ones(3, bool)
            np.testing.assert_allclose(errors[t][lane], gap[owners].mean(), rtol=1e-3, atol=1e-4)


def test_a_lane_follows_one_member_for_an_episode(played):
    """Its actions are greedy on some one member from its first frame to its last."""
    agent, state, steps, _, _ = played
    shown = jnp.asarray(np.stack([step.frame for step in steps]))
    out = agent.belief.forward(state.belief, jax.random.key(0), shown.reshape(-1, 44, 44), shared=True)
    best = np.asarray(jnp.argmax(values_of(agent.belief.head, out), -1)).reshape(3, len(steps), 2)
    followed = set()
    for lane in range(2):
        for start in range(0, 30, 5):
            chosen = np.array([steps[t].action[lane] for t in range(start, start + 4)])
            members = [k for k in range(3) if np.all(best[k, start : start + 4, lane] == chosen)]
            assert members
            followed |= set(members)
    assert len(followed) > 1


def test_prior_values_sent_along_are_the_priors(played):
    agent, state, steps, _, _ = played
    expected = agent.belief.prior_values(state.belief, jnp.asarray(steps[7].frame))
    np.testing.assert_allclose(np.moveaxis(steps[7].prior, 1, 0), expected, atol=1e-5)


def test_epsilons_are_those_of_ape_x():
    def epsilons(ladder, lanes, num_lanes, ended=0, episodes=0):
        chosen = settings("eps_greedy", "small", epsilon=0.4, epsilon_ladder=ladder, epsilon_episodes=episodes)
        return build("eps_greedy", chosen, TaskSpec(2)).epsilon_at(ended, np.array(lanes), num_lanes)

    np.testing.assert_allclose(epsilons(7.0, [0, 1, 2], 3), 0.4 ** np.array([1, 4.5, 8]), rtol=1e-5)
    np.testing.assert_allclose(epsilons(7.0, [1, 2], 3), 0.4 ** np.array([4.5, 8]), rtol=1e-5)
    np.testing.assert_allclose(epsilons(0.0, [0, 1, 2, 3], 4), 0.4, rtol=1e-5)
    np.testing.assert_allclose(epsilons(7.0, [0], 1), 0.4, rtol=1e-5)
    np.testing.assert_allclose(epsilons(0.0, [0, 1], 2, ended=25, episodes=100), 0.3, rtol=1e-5)
    np.testing.assert_allclose(epsilons(7.0, [0, 1], 2, ended=200, episodes=100), 0.0)
    for preset in PRESETS:
        chosen = settings("eps_greedy", preset)
        assert (chosen.epsilon_ladder, chosen.epsilon_episodes) == (
            (7, 0) if preset in ("small", "apex") else (0, 2000)
        )


def test_who_owns_nothing_counts_with_all():
    size, mask = np.array([[1.0, 1.0], [3.0, 5.0]]), np.array([[True, False], [False, False]])
    np.testing.assert_allclose(owned_mean(np, size, mask), [1.0, 3.0])


def test_errors_of_an_update_come_with_their_places(played):
    agent, _, steps, errors, _ = played
    world = small_world()
    learner = Learner(agent, world.reset(0)[0], seed=0)
    replay = FrameReplay(agent.replay, frame_layout(agent, learner.state, world, 2), seed=0)
    for step, error in zip(steps, errors, strict=True):
        replay.add(step, error)
    one, two = replay.sample(), replay.sample()
    assert learner.learn(one) is None
    place, error = learner.learn(two)
    np.testing.assert_array_equal(place, one.place)
    assert error.shape == (8,) and np.all(error > 0)
    assert learner.updates == 2


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    def returns(seed):
        host = backend(seed)
        played = advance(host, 60)
        assert host.updates > 20
        return played, jax.tree.leaves(host.state.belief.params)

    one, again, other = returns(0), returns(0), returns(1)
    assert one[0] == again[0]
    for a, b in zip(one[1], again[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(np.any(a != b) for a, b in zip(one[1], other[1], strict=True))


def test_no_two_purposes_share_random_numbers():
    host = backend()
    assert not np.array_equal(jax.random.key_data(host.actor.key), jax.random.key_data(host.learner.key))
    assert host.actor.rng.random() != host.replay.rng.random()


def test_a_run_that_could_never_learn_is_refused():
    words = r"capacity=200 may never hold learn_after=200 .* raise capacity to 424, or lower learn_after"
    with pytest.raises(ValueError, match=words):
        train("bsp", "gymnasium:CartPole-v1", steps=10, changes={"capacity": 200, "batch_size": 8})
    with pytest.raises(ValueError, match="capacity=30 may never hold learn_after=16"):
        backend(capacity=30)


def test_what_is_just_large_enough_learns_where_every_other_frame_begins_nothing():
    """Episodes of one action: of two frames one begins a transition."""
    host = backend(size=1, capacity=2 * (2 * 8 + 3), learn_every=1)
    advance(host, 60)
    assert host.updates > 0


def test_every_run_begins_with_members_that_differ():
    with pytest.raises(ValueError, match="all priors of the ensemble are the same function"):
        train("bsp", "gymnasium:CartPole-v1", steps=10, changes={"prior_gain": 0.0, "prior_bias": 0.0})


def test_updates_keep_step_with_actions():
    """Of actions, not rounds: in one of five rounds a lane only begins an episode."""
    host = backend(learn_every=4)
    advance(host, 50)
    ready, steps = host.updates, host.steps
    assert steps == 50 * 2 * 4 / 5
    advance(host, 20)
    assert host.steps - steps == 20 * 2 * 4 / 5
    assert host.updates - ready == (host.steps - steps) / 4


def test_updates_at_the_ends_of_episodes():
    host = backend(learn_every=0, updates=3)
    advance(host, 20)
    before = host.updates
    assert len(advance(host, 3)) == 0 and host.updates == before
    assert len(advance(host, 1)) == 2 and host.updates == before + 2 * 3


@pytest.mark.parametrize("agent", ["bs", "eps_greedy"])
@pytest.mark.slow
def test_rivals_run_the_same_loop(agent):
    changes = {name: value for name, value in TINY.items() if agent == "bs" or name not in ("num_members", "mask_prob")}
    result = train(agent, "pixel_deep_sea", size=3, steps=120, changes=changes)
    assert result.backend == "host" and result.steps == 120 and result.updates > 20
    assert [row.episode for row in result.history] == list(range(1, result.episodes + 1)) and result.episodes > 20


@pytest.mark.slow
def test_members_with_torsos_of_their_own_run_the_same_loop():
    result = train("bsp", "pixel_deep_sea", size=3, steps=80, changes={**TINY, "shared_torso": False})
    assert result.steps == 80 and result.updates > 10


@pytest.mark.slow
def test_deep_sea_is_learned_from_pixels():
    """Size 5: a random policy finds it once in 32 episodes."""
    changes = {**TINY, "num_members": 10, "mask_prob": 1.0, "prior_scale": 3.0, "learn_every": 1, "batch_size": 32}
    changes |= {"capacity": 5000, "target_period": 50, "features": 64}
    result = train("bsp", "pixel_deep_sea", size=5, steps=1200, changes=changes)
    assert np.mean([row.total_return > 0.5 for row in result.history[-20:]]) > 0.5


COMMAND = [sys.executable, "-m", "priorax.cli", "train", "--env", "pixel_deep_sea", "--size", "3", "--json"]
SET = ["--set", *(f"{name}={value}" for name, value in TINY.items())]


@pytest.mark.slow
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
    saved = Checkpoints(out / "checkpoint").last
    steps = saved.step + 40
    again = [sys.executable, "-m", "priorax.cli", "train", "--resume", str(out), "--steps", str(steps), "--json"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=120, env={**os.environ})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = (out / "episodes.csv").read_text().splitlines()[1:]
    assert steps <= result["steps"] < steps + 2 and len(rows) == result["episodes"] > saved.episodes
    assert [int(row.split(",")[0]) for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_saves_what_was_counted(number, error, tmp_path):
    """Whenever it comes, there are as many rows as the checkpoint says."""
    arguments = {"agent": "bsp", "env": "gymnasium:CartPole-v1", "changes": FEW, "out": tmp_path}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    with pytest.raises(error):
        train(
            **arguments,
            steps=100_000,
            checkpoint_seconds=3600.0,
            stop=lambda history: len(history) == 12 and bool(os.kill(os.getpid(), number)),
        )
    signal.signal(signal.SIGINT, before)
    saved = Checkpoints(tmp_path / "checkpoint").last
    assert saved.episodes == 12
    steps = saved.step
    with pytest.raises(ValueError, match=rf"steps=10 is less than the {steps} steps of the run"):
        train(**arguments, steps=10, resume=True)
    with (tmp_path / "episodes.csv").open() as file:
        before = int(list(csv.DictReader(file))[-1]["cells"])
    result = train(**arguments, steps=steps + 100, resume=True)
    assert result.episodes > 12
    seen = [row.cells for row in result.history]
    assert seen == sorted(seen) and result.cells >= before > 0, "distinct states go on being counted"


def test_a_run_is_not_resumed_with_other_settings(tmp_path):
    train("bsp", "pixel_deep_sea", size=3, steps=20, changes=TINY, out=tmp_path)
    with pytest.raises(ValueError, match=r"prior_scale was 10\.0, is 3\.0"):
        changes = {**TINY, "prior_scale": 3.0}
        train("bsp", "pixel_deep_sea", size=3, steps=40, changes=changes, out=tmp_path, resume=True)
    with pytest.raises(ValueError, match="already contains a run"):
        train("bsp", "pixel_deep_sea", size=3, steps=40, changes=TINY, out=tmp_path)


def test_a_game_is_needed_and_only_for_atari():
    with pytest.raises(ValueError, match="needs the name of a game"):
        train("bsp", "atari", steps=10)
    with pytest.raises(ValueError, match="leave it out"):
        train("bsp", "pixel_deep_sea", game="Freeway", steps=10)


@pytest.mark.slow
def test_an_atari_game_is_played_and_its_states_are_counted():
    result = train("bsp", "atari", game="Freeway", steps=40, changes={**TINY, "learn_after": 20})
    assert result.steps == 40 and result.cells > 0


FEW = {"num_members": 3, "lanes": 2, "batch_size": 8, "learn_after": 8, "widths": (8,), "capacity": 500}


@pytest.mark.parametrize("env", ["gymnasium:CartPole-v1", "gymnasium:FrozenLake-v1"])
def test_any_gymnasium_environment_is_trained_in_by_name(env):
    """One is seen as numbers, the other as an index, which is looked up."""
    result = train("bsp", env, steps=200, changes=FEW)
    assert result.preset == ("finite" if "Lake" in env else "gymnasium") and result.steps == 200 and result.episodes > 2
    assert 0 < result.history[-1].loss < np.inf


def test_what_is_known_of_a_gymnasium_environment_reaches_the_agent():
    world = make_world("gymnasium:MountainCar-v0", 2)
    np.testing.assert_allclose(world.inputs.scale, [1 / 1.2, 1 / 0.07], rtol=1e-5)
    assert world.num_states is None
    assert make_world("gymnasium:Taxi-v4", 2).num_states == 500


def test_an_environment_that_gymnasium_does_not_know_is_named():
    with pytest.raises(ValueError, match="gymnasium:NoSuchThing-v0' cannot be created"):
        train("bsp", "gymnasium:NoSuchThing-v0", steps=10)
