from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import forward, init, update
from priorax.agents import QLearner
from priorax.beliefs import Adam, Batch, Counts, Ensemble, ExactBayes, TableCount, plain_batch
from priorax.envs.jax.deep_sea import DeepSea
from priorax.networks import MLP, Table
from priorax.replay import DeviceReplay, Replay, Transition
from priorax.training.backends.loop import Loop, empty_replay, learn_once, remember, run_chunk, start
from priorax.training.backends.scan import live
from priorax.training.records import Episode, episodes_to_learn, episodes_to_solve

KEY = jax.random.key(0)
learn = eqx.filter_jit(learn_once)
add = eqx.filter_jit(remember)


NETWORK = MLP((8,))


def replay_of(num_streams=3, capacity=32, batch_size=16, shared_batch=False, mask_prob=0.5, **settings):
    return Replay(capacity, num_streams, batch_size, shared_batch, mask_prob, **settings)


def make(num_members=3, network=NETWORK, replay=None, **settings):
    belief = Ensemble(num_members=num_members, network=network, prior=network, prior_scale=2.0, num_outputs=2)
    return QLearner(belief, replay or replay_of(num_members), **settings)


def experience(agent, count, seed=0):
    seen, times = np.random.default_rng(seed).standard_normal((count, 2, 4)).astype(np.float32), np.arange(count)
    terminated = times % 5 == 4
    ended = terminated | (times % 7 == 6)
    steps = Transition(seen[:, 0], times % 2, times.astype(np.float32), seen[:, 1], terminated, ended)

    @jax.jit
    def run(key):
        state = agent.init(key, jnp.zeros(4))
        empty = empty_replay(agent, state, jnp.zeros(4), jnp.asarray(0))

        def add(carry, step):
            return remember(agent, *carry, jax.random.fold_in(key, step[0]), step[1]), None

        return jax.lax.scan(add, (state, empty), (times, steps))[0]

    return run(KEY)


@pytest.mark.parametrize(
    ("double_q", "shared_batch"),
    [
        (False, False),
        (True, True),
        pytest.param(False, True, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.slow),
    ],
)
def test_the_loss_is_equation_6_with_one_prior_in_online_and_target(double_q, shared_batch):
    """Recomputed one transition at a time, priors evaluated afresh, with a target network that lags behind."""
    agent = make(replay=replay_of(shared_batch=shared_batch, discount=0.9), double_q=double_q, target_period=1000)
    state, buffer = experience(agent, 20)
    for i in range(3):
        state, buffer, _ = learn(agent, state, buffer, jax.random.key(i))
    key = jax.random.key(9)
    _, _, info = learn(agent, state, buffer, key)
    replay = DeviceReplay(agent.replay)
    slots = np.broadcast_to(jax.jit(replay.sample)(buffer, jax.random.split(key)[0]).place, (3, 16))
    step, mask = jax.jit(replay.get)(buffer, slots).transition, np.asarray(buffer.data.mask)
    weight = np.stack([mask[slots[k], k] / 0.5 for k in range(3)]) if shared_batch else np.ones((3, 16))
    assert shared_batch or all(mask[slots[k], k].all() for k in range(3)), "each stream draws its own"
    value = jax.jit(jax.vmap(jax.vmap(agent.belief.value, (None, None, 0)), (None, 0, 0)))
    following = np.asarray(value(state.belief._replace(params=state.target), np.arange(3), step.next_obs))
    online, now = (np.asarray(value(state.belief, np.arange(3), obs)) for obs in (step.next_obs, step.obs))
    reward, action, terminated = map(np.asarray, (step.reward, step.action, step.terminated))
    for k in range(3):
        total = 0.0
        for b in range(16):
            chosen = np.argmax((online if double_q else following)[k, b])
            backup = reward[k, b] + 0.9 * (1 - terminated[k, b]) * following[k, b, chosen]
            total += float(weight[k, b] * (backup - now[k, b, action[k, b]]) ** 2) / 16
        assert float(info.loss[k]) == pytest.approx(total, rel=1e-4)


def test_the_target_network_follows_its_period():
    agent = make(target_period=3)
    state, buffer = experience(agent, 20)
    for i in range(1, 7):
        before = state.target
        state, buffer, _ = learn(agent, state, buffer, jax.random.key(i))
        same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), state.target, before if i % 3 else state.belief.params)
        assert all(jax.tree.leaves(same))


def test_a_target_rate_averages_past_weights():
    agent = make(target_rate=0.25)
    state, buffer = experience(agent, 10)
    after, _, _ = learn(agent, state, buffer, KEY)
    for old, new, target in zip(*map(jax.tree.leaves, (state.target, after.belief.params, after.target)), strict=True):
        np.testing.assert_allclose(target, 0.75 * old + 0.25 * new, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match=r"target_rate=0\.0 must be above 0"):
        make(target_rate=0.0)


def test_a_member_without_data_learns_nothing():
    agent = make(num_members=30, replay=replay_of(30, mask_prob=0.1))
    state, buffer = experience(agent, 3)
    after, _, info = learn(agent, state, buffer, KEY)
    empty = np.asarray(DeviceReplay(agent.replay).counts(buffer)) == 0
    assert 0 < empty.sum() < 30
    moved = np.any(np.asarray(after.belief.params[0].weight) != np.asarray(state.belief.params[0].weight), axis=(1, 2))
    np.testing.assert_array_equal(moved, ~empty)
    assert np.all(np.asarray(info.loss)[empty] == 0)


def test_ties_are_broken_at_random():
    belief = Ensemble(num_members=1, network=MLP((), weight_std=0.0), num_outputs=2)
    agent = QLearner(belief, replay_of(1, 16, 4, mask_prob=1.0))

    @jax.jit
    def act(key):
        state = agent.init(key, jnp.zeros(4))
        return agent.act(state, key, jnp.ones((400, 4)), jnp.zeros(400, int), jnp.zeros(400)).action

    actions = act(KEY)
    assert 150 < int(actions.sum()) < 250


@dataclass(frozen=True)
class Probe:
    """Two steps; the reward of the second is 1 for action 1. Known values: Q(0, .) = gamma, Q(1, 0) = 0, Q(1, 1) = 1.

    With `truncates` the episode never terminates: the bootstrap goes on, and values are those of an endless task."""

    truncates: bool = False
    num_actions: int = 2
    default_params: None = None
    pays: float = 1.0

    def reset(self, key, params):
        return jnp.zeros((), int), jnp.zeros((), int)

    def step(self, key, state, action, params):
        reward = jnp.where((state == 1) & (action == 1), self.pays, 0.0)
        done = state == 1
        final = jnp.where(done, 0 if self.truncates else 2, 1)
        after = jnp.where(done, 0, 1)
        never = jnp.zeros((), bool)
        terminated, truncated = (never, done) if self.truncates else (done, never)
        return after, after, reward, terminated, truncated, {"final_observation": final}


def greedy_values(env, steps=1500, clip_rewards=False, **settings):
    network = Table(2, (16,))
    belief = Ensemble(num_members=4, network=network, prior=network, num_outputs=2, optimizer=Adam(1e-2))
    agent = QLearner(belief, replay_of(4, 200, 32, discount=0.8), **settings)
    loop = Loop(env, agent, clip_rewards=clip_rewards)

    @jax.jit
    def run(key):
        end, _ = jax.lax.scan(lambda c, _: loop.step(key, None, c), loop.init(key, None), length=steps)
        return jnp.mean(belief.forward(end.agent.belief, key, jnp.arange(2), shared=True)[..., 0], axis=0)

    return np.asarray(run(KEY))


@pytest.mark.slow
def test_a_two_step_probe_reaches_its_known_values():
    values = greedy_values(Probe(), draw_each_step=True)
    assert float(values[0].max()) == pytest.approx(0.8, abs=0.05)
    assert float(values[1, 1]) == pytest.approx(1.0, abs=0.05)


def test_truncation_does_not_cut_the_bootstrap():
    """Worth 1 every second step for ever: Q(1, 1) = 1 + 0.8 Q(0), Q(0) = 0.8 Q(1, 1)."""
    values = greedy_values(Probe(truncates=True), steps=3000, target_period=4)
    assert float(values[1, 1]) == pytest.approx(1 / (1 - 0.64), rel=0.1)


def deep_sea_agent(size, num_members=10):
    network = Table(size * size, (20,))
    belief = Ensemble(num_members=num_members, network=network, prior=network, prior_scale=5.0, num_outputs=2)
    return Loop(DeepSea(size), QLearner(belief, replay_of(num_members, 2000, 64)))


def test_bootstrapped_dqn_with_priors_learns_deep_sea_and_repeats_itself_to_the_bit():
    loop = deep_sea_agent(6)
    params = loop.env.params(jax.random.key(1))
    runs = [list(live(loop, KEY, params, episodes=150, chunk=chunk)) for chunk in (300, 450)]
    assert runs[0] == runs[1], "a second run with another chunk size changes no bit"
    assert episodes_to_learn(episodes([each.bad for each in runs[0]])) is not None
    assert max(episode.total_return for episode in runs[0]) == pytest.approx(loop.env.optimal_return, abs=1e-5)
    other = list(live(loop, jax.random.key(5), params, episodes=20, chunk=300))
    assert other != runs[0][:20]


def test_clipped_rewards_are_what_is_learned_from():
    values = greedy_values(Probe(pays=30.0), clip_rewards=True, draw_each_step=True)
    assert float(values[1, 1]) == pytest.approx(1.0, abs=0.05)


def test_nothing_is_learned_before_there_is_enough():
    agent = make(num_members=2, network=Table(3, (4,)), replay=replay_of(2, 64))
    loop = Loop(Probe(), agent, learn_after=10)
    live_state, steps = run_chunk(loop, KEY, None, start(loop, KEY, None), 30)
    assert int(live_state.agent.updates) == 20 and not np.any(steps.loss[:10]) and np.all(steps.loss[10:] > 0)
    with pytest.raises(ValueError, match="learn_after=65 exceeds capacity=64"):
        Loop(Probe(), agent, learn_after=65)


def test_a_priority_is_the_mean_over_owners_of_the_size_of_their_errors():
    belief = Ensemble(num_members=3, network=NETWORK, prior=NETWORK, prior_scale=2.0, num_outputs=2)
    replay = replay_of(3, 64, 64, shared_batch=True, discount=0.9, priority=1.0)
    agent = QLearner(belief, replay, target_period=1000)
    before, buffer = experience(agent, 20)
    _, after, _ = learn(agent, before, buffer, KEY)
    step = DeviceReplay(replay).get(buffer, jnp.arange(20)).transition
    q, following = (np.asarray(forward(belief, before.belief, x, KEY))[..., 0] for x in (step.obs, step.next_obs))
    target = np.asarray(step.reward) + 0.9 * ~np.asarray(step.terminated) * following.max(-1)
    size = np.abs(target - q[:, np.arange(20), np.asarray(step.action)])
    mask = np.asarray(buffer.data.mask[:20]).T
    found, drawn = np.asarray(after.priority[0]).ravel()[:20], 0
    for i in range(20):
        owners = mask[:, i] if mask[:, i].any() else np.ones(3, bool)
        if found[i] != 1:  # else it was not drawn
            drawn += 1
            assert found[i] == pytest.approx(size[owners, i].mean() + 1e-3, rel=1e-3)
    assert drawn > 10


@pytest.mark.parametrize("bonus_at", ["insertion", "learning"])
@pytest.mark.parametrize("shared_batch", [False, True])
def test_a_count_bonus_is_paid_with_the_reward(bonus_at, shared_batch):
    """At insertion: by the visits before each, for good. At learning: the same for all, by the visits so far."""
    belief = Counts(Ensemble(num_members=1, network=Table(3, (4,)), num_outputs=2), TableCount(3), bonus_scale=1.0)
    replay = replay_of(1, 16, 16, shared_batch, mask_prob=1.0, paths=bonus_at == "learning")
    agent = QLearner(belief, replay, bonus_at=bonus_at)
    state = jax.jit(agent.init)(KEY, jnp.asarray(0))
    buffer = empty_replay(agent, state, jnp.asarray(0), jnp.asarray(0))
    transition = Transition(jnp.asarray(1), jnp.asarray(0), jnp.asarray(0.5), jnp.asarray(2), jnp.asarray(True))
    for _ in range(3):
        state, buffer = add(agent, state, buffer, KEY, transition)
    drawn = np.ravel(DeviceReplay(replay).sample(buffer, jax.random.split(KEY)[0]).place)
    assert set(drawn.tolist()) == {0, 1, 2}
    _, _, info = learn(agent, state, buffer, KEY)
    counts = np.array([0.01, 1, 2] if bonus_at == "insertion" else [3, 3, 3])
    paid = 0.5 + 1 / np.sqrt(counts[drawn])  # all of the target: the episode terminated
    value = forward(belief, state.belief, jnp.asarray([1]), KEY)[0, 0, 0]
    expected = jax.jit(jax.vmap(belief.head.loss, (None, 0)))(value, paid)
    np.testing.assert_allclose(info.examples[0], expected, rtol=1e-4)
    np.testing.assert_array_equal(state.belief.aux, [0, 3, 0])


def episodes(bad, solved=None):
    shares = np.cumsum(bad) / np.arange(1, len(bad) + 1)
    solved = solved or [False] * len(bad)
    return [Episode(i + 1, i, 0, 0.0, 1, 0.0, None, bad[i], solved[i], float(shares[i])) for i in range(len(bad))]


def test_episodes_to_learn_is_the_papers_measure():
    assert episodes_to_learn(episodes([True] * 9 + [False])) is None
    assert episodes_to_learn(episodes([True] * 9 + [False] * 2)) == 11
    assert episodes_to_learn(episodes([False])) == 1


def test_episodes_to_solve_is_when_the_mean_stays_optimal():
    none = [True] * 4
    assert episodes_to_solve(episodes(none, [False, True, False, True])) == 4
    assert episodes_to_solve(episodes(none, [True] * 4)) == 1
    assert episodes_to_solve(episodes(none, [True, True, True, False])) is None


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="batch_size=16 exceeds capacity=8; raise capacity or lower batch_size"):
        make(replay=replay_of(capacity=8))
    belief = Ensemble(num_members=3, network=MLP((8,)), num_outputs=2)
    with pytest.raises(ValueError, match="ExactBayes conditions on targets"):
        QLearner(ExactBayes(num_outputs=2), replay_of(1, 200))
    with pytest.raises(ValueError, match="num_streams=4 of the replay differs from the belief's 3"):
        QLearner(belief, replay_of(4, 200))
    with pytest.raises(ValueError, match="paths=True of the replay must be False"):
        QLearner(belief, replay_of(3, 200, paths=True))


@pytest.mark.parametrize("count", [20, 50])
def test_returns_over_many_steps_stop_at_ends_of_episodes_and_at_the_newest_transition(count):
    """Against a loop over what was inserted; at 50 the ring of 32 has turned over. Truncation ends the sum but not the
    bootstrap."""
    agent = make(replay=replay_of(mask_prob=1.0, n_step=3, discount=0.9))
    buffer = experience(agent, count)[1]
    stored, sample = buffer.data, jax.vmap(lambda key: DeviceReplay(agent.replay).sample(buffer, key))
    drawn = jax.tree.map(lambda leaf: np.asarray(leaf), jax.jit(sample)(jax.random.split(KEY, 10)))
    obs, next_obs = np.asarray(stored.transition.obs), np.asarray(stored.transition.next_obs)
    prior, next_prior = np.asarray(stored.prior), np.asarray(stored.next_prior)
    first = max(0, count - 32)
    times = first + (drawn.place - first) % 32
    assert set(times.ravel().tolist()) == set(range(first, count))
    for i, t in np.ndenumerate(times):
        total, last = 0.0, t
        for j in range(3):
            last = t + j
            total += 0.9**j * last
            if last == count - 1 or last % 5 == 4 or last % 7 == 6:
                break
        assert drawn.reward[i] == pytest.approx(total)
        assert drawn.discount[i] == pytest.approx(0.0 if last % 5 == 4 else 0.9 ** (last - t + 1))
        np.testing.assert_array_equal(drawn.obs[i], obs[t % 32])
        np.testing.assert_array_equal(drawn.next_obs[i], next_obs[last % 32])
        np.testing.assert_array_equal(drawn.prior[i], prior[t % 32, i[1]])
        np.testing.assert_array_equal(drawn.next_prior[i], next_prior[last % 32, i[1]])


def test_a_clip_bounds_each_members_gradient_apart():
    """Adam's first step hides a gradient's size, so the moments are looked at."""
    belief = Ensemble(3, NETWORK, num_outputs=2, optimizer=Adam(1e-3, clip=0.5))
    state = jax.jit(belief.init)(KEY, jnp.zeros(4))
    x, y = jax.random.normal(KEY, (8, 4)), jnp.stack([jnp.full((8, 2), scale) for scale in (0.0, 10.0, 1e4)])
    batch = eqx.tree_at(lambda b: b.target, plain_batch(x, y[0], 3), y)
    after, _ = eqx.filter_jit(belief.update)(state, batch, KEY)
    first = [leaf for leaf in jax.tree.leaves(after.opt) if leaf.ndim > 1][: len(jax.tree.leaves(state.params))]
    norms = np.sqrt(sum(np.sum(np.asarray(leaf) ** 2, axis=tuple(range(1, leaf.ndim))) for leaf in first)) / 0.1
    np.testing.assert_allclose(norms[1:], 0.5, rtol=1e-3)


def test_each_example_has_its_own_loss_for_priorities_to_be_made_of():
    """The loss of each example is the derivative by its weight: here against the loss, one example at a time."""
    belief = Ensemble(3, MLP((8,)), MLP((8,)), prior_scale=2.0, num_outputs=2)
    state = init(belief, jax.random.key(0), jnp.zeros(2))
    x = jax.random.normal(jax.random.key(1), (5, 2))
    action, target = jnp.array([0, 1, 1, 0, 1]), jnp.arange(15.0).reshape(3, 5)
    weight = jnp.linspace(0.5, 1.5, 15).reshape(3, 5)
    batch = Batch(x, target, weight, jnp.ones(3), action, None, True)
    _, info = update(belief, state, batch, jax.random.key(2))
    out = np.asarray(forward(belief, state, x, jax.random.key(2)))[..., 0]
    chosen = np.take_along_axis(out, np.asarray(action)[None, :, None], axis=2)[..., 0]
    one = jax.jit(jax.vmap(jax.vmap(belief.head.loss)))(chosen[..., None], target)
    np.testing.assert_allclose(info.examples, one, rtol=1e-4)


def test_each_time_of_learning_may_have_several_updates():
    agent = make(replay=replay_of(mask_prob=1.0))
    loop = Loop(Probe(), agent, learn_every=2, updates=3)
    live, _ = run_chunk(loop, KEY, (), start(loop, KEY, ()), 9)
    assert int(live.agent.updates) == 3 * 4, "after steps 2, 4, 6 and 8"


def test_priorities_need_a_shared_minibatch():
    with pytest.raises(ValueError, match=r"priority=0\.6 needs one minibatch for all members; pass shared_batch=True"):
        replay_of(shared_batch=False, priority=0.6)
