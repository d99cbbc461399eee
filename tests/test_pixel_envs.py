import sys
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ale_py import roms
from gymnasium.vector import AutoresetMode

from priorax.envs import Environment
from priorax.envs.host.atari import Atari, cells, rom_name
from priorax.envs.host.vector import CompiledWorld, GymnasiumWorld, VectorStep, VectorWorld
from priorax.envs.jax.cartpole import CartpoleSwingup
from priorax.envs.jax.deep_sea import DeepSea
from priorax.envs.jax.pixels import PixelDeepSea


def play(world, seed, steps, actions_seed=0):
    """Random play: the first observation, the actions, and the turns with one more axis in front."""
    actions = np.random.default_rng(actions_seed).integers(0, world.num_actions, (steps, world.num_envs))
    first = world.reset(seed)
    return first, actions, VectorStep(*map(np.stack, zip(*(world.step(action) for action in actions), strict=True)))


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


class Clock:
    """Time goes by from a random start, and is up after four steps."""

    num_actions = 3
    default_params = 0.5

    def reset(self, key, params):
        start = jax.random.uniform(key, (2,))
        return start, (start, jnp.zeros((), int))

    def step(self, key, state, action, params):
        now, steps = state[0] + params + action, state[1] + 1
        up = steps == 4
        first, start = self.reset(key, params)
        obs, state = jax.tree.map(lambda a, b: jnp.where(up, a, b), (first, start), (now, (now, steps)))
        return obs, state, action * 3, jnp.zeros((), bool), up, {"final_observation": now}


@pytest.mark.parametrize("env", [DeepSea(4, windy=True), PixelDeepSea(3, side=7), Clock()])
def test_a_compiled_world_is_the_environment_stepped_by_hand(env):
    params = env.params(jax.random.key(9)) if hasattr(env, "params") else env.default_params
    world = CompiledWorld(env, 2, params)
    first, actions, turns = play(world, 5, 24)
    assert first.shape == (2, *world.frame_shape)
    assert first.dtype == turns.obs.dtype == world.frame_dtype
    assert turns.reward.dtype == np.float32
    reset, step, fold = jax.jit(env.reset), jax.jit(env.step), jax.jit(jax.random.fold_in)
    ends = 0
    for i in range(2):
        key = fold(jax.random.key(5), i)
        seen, state = reset(fold(key, 0), params)
        np.testing.assert_allclose(first[i], seen, rtol=1e-5, atol=1e-6)
        over = False
        for t in range(24):
            row = VectorStep(*(part[t, i] for part in turns))
            if over:  # the step that only shows the next episode's start: no step of the environment
                np.testing.assert_allclose(row.obs, seen, rtol=1e-5, atol=1e-6)
                assert (row.reward, row.terminated, row.truncated) == (0, False, False)
                over = False
                continue
            seen, state, reward, terminated, truncated, info = step(fold(key, t + 1), state, actions[t, i], params)
            np.testing.assert_allclose(row.obs, info["final_observation"], rtol=1e-5, atol=1e-6)
            assert row.reward == pytest.approx(float(reward), abs=1e-6)
            assert (row.terminated, row.truncated) == (bool(terminated), bool(truncated))
            over = row.terminated or row.truncated
            if over:
                assert (row.obs != seen).any()
            ends += over
    assert ends >= 8
    assert turns.truncated.any() == isinstance(env, Clock)
    assert not turns.life_lost.any()


def test_seeds_and_companions():
    few, more = CompiledWorld(DeepSea(6, windy=True), 2), CompiledWorld(DeepSea(6, windy=True), 5)
    actions = np.ones((20, 5), int)

    def rewards(world, seed):
        world.reset(seed)
        return np.stack([world.step(row[: world.num_envs]).reward for row in actions])

    once = rewards(few, 1)
    np.testing.assert_array_equal(once, rewards(few, 1))
    np.testing.assert_array_equal(once, rewards(more, 1)[:, :2])
    assert (once != rewards(few, 2)).any()
    assert (once[:, 0] != once[:, 1]).any()


class Pair(NamedTuple):
    left: jax.Array
    right: jax.Array


def test_compiled_worlds_refuse_what_they_cannot_hold():
    class Two(DeepSea):
        def reset(self, key, params):
            obs, state = super().reset(key, params)
            return Pair(obs, obs), state

    with pytest.raises(ValueError, match="observations of type Pair, which must be one array"):
        CompiledWorld(Two(3), 2)
    with pytest.raises(ValueError, match="continuous actions"):
        CompiledWorld(CartpoleSwingup(pushes=()), 2)
    with pytest.raises(ValueError, match="num_envs=0 must be"):
        CompiledWorld(DeepSea(3), 0)


@pytest.mark.parametrize(
    "make", [lambda: CompiledWorld(DeepSea(3), 2), lambda: GymnasiumWorld(gymnasium.make_vec("CartPole-v1", 2))]
)
def test_calls_that_make_no_sense_are_refused(make):
    world = make()
    assert isinstance(world, VectorWorld)
    with pytest.raises(ValueError, match="call reset"):
        world.step(np.zeros(2, int))
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match=r"seed=.* must be a whole number"):
            world.reset(seed)
    world.reset(2**32 - 1)
    for bad in (np.zeros(3, int), np.zeros((2, 1), int), np.zeros(2)):
        with pytest.raises(ValueError, match="must be 2 integers"):
            world.step(bad)
    for bad in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="at least 0 and below 2"):
            world.step(np.array(bad))
    world.close()
    with pytest.raises(ValueError, match="call reset"):
        world.step(np.zeros(2, int))


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_gymnasiums_cartpole(mode):
    world = GymnasiumWorld(gymnasium.make_vec("CartPole-v1", 3, vectorization_mode=mode))
    assert (world.num_envs, world.num_actions, world.frame_shape, world.stack) == (3, 2, (4,), 1)
    first, actions, turns = play(world, 4, 80)
    assert_same((first, actions, turns), play(world, 4, 80))
    assert (first != play(world, 5, 1)[0]).all()
    assert turns.obs.dtype == world.frame_dtype == np.float32
    assert turns.reward.dtype == np.float32
    over = np.concatenate([np.zeros((1, 3), bool), turns.terminated[:-1]])
    assert over.any(axis=0).all()
    np.testing.assert_array_equal(turns.reward, np.where(over, 0, 1))
    assert np.abs(turns.obs[over]).max() <= 0.05  # cartpole starts so near to the middle
    fallen = np.abs(turns.obs[turns.terminated])
    assert ((fallen[:, 0] > 2.4) | (fallen[:, 2] > 0.209)).all()
    assert not turns.life_lost.any()
    world.close()


def test_gymnasiums_seeds_of_neighbours_share_nothing():
    world = GymnasiumWorld(gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync"))
    starts = np.concatenate([world.reset(seed) for seed in range(4)])
    assert len(np.unique(starts, axis=0)) == 12
    world.close()


class Odd(gymnasium.Env):
    """Actions that do not start at 0."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Discrete(5)
        self.action_space = gymnasium.spaces.Discrete(3, start=7)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return int(action) - 7, 0.0, False, False, {}


def test_gymnasium_worlds_of_indices_and_what_they_refuse():
    world = GymnasiumWorld(gymnasium.vector.SyncVectorEnv([Odd, Odd]))
    assert (world.frame_shape, world.num_actions) == ((), 3)
    np.testing.assert_array_equal(world.reset(0), [0, 0])
    np.testing.assert_array_equal(world.step(np.array([1, 2])).obs, [1, 2])
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        with pytest.raises(ValueError, match=rf"autoreset_mode={mode}, but must have AutoresetMode.NEXT_STEP"):
            GymnasiumWorld(gymnasium.vector.SyncVectorEnv([Odd], autoreset_mode=mode))
    with pytest.raises(ValueError, match="must have a Discrete one"):
        GymnasiumWorld(gymnasium.make_vec("Pendulum-v1", 1))
    with pytest.raises(ValueError, match="make_vec"):
        GymnasiumWorld(Odd())


def test_atari_repeats_itself_on_any_number_of_threads():
    one, other = (Atari("breakout", 2, sticky=0.25, max_frames=200, num_threads=n) for n in (1, 2))
    assert isinstance(one, VectorWorld)
    first, actions, turns = play(one, 3, 80)
    assert_same((first, actions, turns), play(other, 3, 80))
    assert_same((first, actions, turns), play(one, 3, 80))
    assert (turns.obs != play(one, 4, 80)[2].obs).any()
    assert first.shape == (2, one.stack, *one.frame_shape)
    assert first.dtype == turns.obs.dtype == one.frame_dtype
    assert turns.reward.dtype == np.float32
    assert not first[:, :3].any()
    assert first[:, 3].any(axis=(1, 2)).all()
    np.testing.assert_array_equal(turns.obs[0, :, 2], first[:, 3])  # oldest first


def test_a_lost_life_is_told_and_ends_nothing():
    world = Atari("MontezumaRevenge", 2, noop_max=0, num_threads=2)
    assert (world.game, world.num_actions) == ("montezuma_revenge", 18)
    *_, turns = play(world, 0, 700)
    assert not (turns.life_lost & turns.terminated).any()
    ended = 0
    for i in range(2):  # there are six lives: five losses are told, the sixth is the end
        lost = np.flatnonzero(turns.life_lost[:, i])
        over = np.flatnonzero(turns.terminated[:, i])
        assert len(lost) >= 2
        for begin, end in zip([0, *over], over, strict=False):
            assert np.sum((lost > begin) & (lost < end)) == 5
            assert not turns.obs[end + 1, i, :3].any()
            ended += 1
    assert ended >= 1


def test_rewards_are_the_games_own():
    *_, turns = play(Atari("carnival", 2, num_threads=1), 0, 30)
    assert turns.reward.max() >= 10


def test_a_game_cut_short_is_truncated_and_then_starts_again():
    frames = 41
    world = Atari("pong", 2, max_frames=frames, num_threads=1)
    first, _, turns = play(world, 0, 24)
    steps = -(-frames // 4)
    assert not turns.terminated.any()
    cut = np.zeros(24, bool)
    cut[[steps - 1, 2 * steps]] = True
    np.testing.assert_array_equal(turns.truncated, np.stack([cut, cut], 1))
    assert turns.obs[steps - 1].any(axis=(2, 3)).all()
    assert not turns.obs[steps, :, :3].any()
    assert not turns.reward[steps].any()
    np.testing.assert_array_equal(world.reset(0), first)  # and owes no step to the past
    assert world.step(np.zeros(2, int)).obs[:, 2].any()


def test_starts_differ_by_up_to_noop_max_screens():
    still, moved = (Atari("montezuma_revenge", 3, noop_max=n, num_threads=1).reset(0) for n in (0, 30))
    assert len(np.unique(still, axis=0)) == 1
    assert len(np.unique(moved, axis=0)) > 1


@pytest.mark.parametrize(
    ("game", "name"), [("MsPacman", "ms_pacman"), ("up_n_down", "up_n_down"), ("TicTacToe3D", "tic_tac_toe_3d")]
)
def test_names_of_games(game, name):
    assert rom_name(game, roms.get_all_rom_ids()) == name


def test_names_of_no_games():
    with pytest.raises(ValueError, match=r"game='Montezuma' is not one of .* 'montezuma_revenge'"):
        Atari("Montezuma", 1)


def test_atari_refuses_what_it_cannot_do(monkeypatch):
    for name, value in [("sticky", 1.0), ("sticky", -0.5), ("noop_max", -1), ("max_frames", 0), ("num_threads", -2)]:
        with pytest.raises(ValueError, match=rf"{name}={value} must be"):
            Atari("pong", 1, **{name: value})
    world = Atari("pong", 2, num_threads=1)
    with pytest.raises(ValueError, match="call reset"):
        world.step(np.zeros(2, int))
    world.reset(0)
    with pytest.raises(ValueError, match="at least 0 and below 6"):
        world.step(np.array([0, 6]))
    world.close()
    world.close()
    with pytest.raises(ValueError, match="closed; create another"):
        world.reset(0)
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    with pytest.raises(ValueError, match=r'pip install "priorax\[atari\]"'):
        Atari("pong", 1)


def test_cells_are_means_in_eight_shades():
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (20, 84, 84)).astype(np.uint8)
    frames[10:] = frames[:10] // 2
    fine = frames.astype(float).repeat(8, axis=1).repeat(11, axis=2).reshape(20, 8, 84, 11, 84).mean(axis=(2, 4))
    for cell, mean in zip(cells(frames), fine, strict=True):
        np.testing.assert_array_equal(np.frombuffer(cell, np.uint8).reshape(8, 11), mean * 8 // 256)


def test_equal_pictures_have_equal_cells_and_moved_ones_do_not():
    frames = np.zeros((6, 84, 84), np.uint8)
    for i, left in enumerate((0, 0, 20, 40, 60, 60)):
        frames[i, 30:44, left : left + 10] = 200
    frames[5] += 1  # a shade that does not count
    found = cells(frames)
    assert found[0] == found[1] == cells(frames[:1])[0]
    assert found[4] == found[5]
    assert len(set(found)) == 4
    white = cells(np.full((1, 84, 84), 255, np.uint8))[0]
    assert set(white) == {7}


@pytest.mark.parametrize(("size", "side"), [(3, 3), (5, 12), (20, 84)])
def test_the_white_block_is_where_the_diver_is(size, side):
    pictures = np.asarray(jax.jit(jax.vmap(PixelDeepSea(size, side).picture))(np.arange(size * size + 1)))
    assert pictures.dtype == np.uint8
    assert not pictures[-1].any()
    assert set(np.unique(pictures)) == {0, 255}
    for index, picture in enumerate(pictures[:-1]):
        rows, columns = np.nonzero(picture)
        for pixels, cell in ((rows, index // size), (columns, index % size)):
            shown = [pixel for pixel in range(side) if cell * side <= pixel * size < (cell + 1) * side]
            np.testing.assert_array_equal(np.unique(pixels), shown)
        assert len(rows) == len(np.unique(rows)) * len(np.unique(columns)) > 0
    np.testing.assert_array_equal(pictures[:-1].astype(int).sum(0), 255)  # blocks tile the picture


def test_the_same_actions_earn_the_same_as_in_deep_sea():
    env, sea = PixelDeepSea(5, 17), DeepSea(5)

    def run(env, params, actions, keys):
        def step(carry, inputs):
            obs, state = carry
            after, state, *rest = env.step(inputs[1], state, inputs[0], params)
            return (after, state), (obs, *rest)

        return jax.lax.scan(step, env.reset(keys[0], params), (actions, keys))[1]

    @jax.jit
    def both(key, actions):
        params = env.params(key)
        path, best = env.optimal_path(params)
        actions, keys = jnp.concatenate([best, actions]), jax.random.split(key, 45)
        seen, indices = run(env, params, actions, keys), run(sea, sea.params(key), actions, keys)
        pictures = jax.vmap(env.picture)
        return path, seen, indices, pictures(indices[0]), pictures(indices[4]["final_observation"])

    path, seen, indices, pictures, finals = both(jax.random.key(1), np.random.default_rng(2).integers(0, 2, 40))
    np.testing.assert_array_equal(seen[0], pictures)
    np.testing.assert_array_equal(seen[4]["final_observation"], finals)
    assert not finals[4].any()
    assert_same(seen[1:4], indices[1:4])
    np.testing.assert_array_equal(seen[4]["bad"], indices[4]["bad"])
    np.testing.assert_array_equal(seen[0][:5], path)
    assert float(seen[1][:5].sum()) == pytest.approx(env.optimal_return, abs=1e-6)


def test_pixel_deep_sea_is_an_environment_without_indices():
    env = PixelDeepSea(4)
    assert isinstance(env, Environment)
    assert not hasattr(env, "num_states")
    assert (env.num_actions, env.horizon, env.tells_regret) == (2, 4, True)
    assert PixelDeepSea(4, windy=True).optimal_return == DeepSea(4, windy=True).optimal_return < env.optimal_return
    assert hash(env) == hash(PixelDeepSea(4))
    with pytest.raises(ValueError, match="side=5 must be at least size=9"):
        PixelDeepSea(9, side=5)
