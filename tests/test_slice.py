"""The protocol's thin slice: four very different beliefs, one bandit loop and one Q-learning loop, no special cases
but the count bonus. What holds here is what the agents of later rooms build on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.beliefs import Batch, Counts, TableCount, greedy_backup, method, values_of
from priorax.heads import C51
from priorax.networks import MLP, Table

N = 5
NETWORK = Table(N * N, (20,))


def beliefs(network, num_outputs, density, low):
    shared = {"network": network, "num_outputs": num_outputs}
    return {
        "bsp": method("bsp", num_members=10, prior_scale=5.0, **shared).belief,
        "dropout": method("dropout", **shared).belief,
        "c51": method("c51", head=C51(low, 1.0, 21), **shared).belief.base,
        "count": method("count", density=density, bonus_scale=0.3, **shared).belief,
    }


def one_batch(belief, x, target, action=None):
    """Rows as a batch shared by all streams, without noise."""
    k, n = belief.num_streams, target.shape[1]
    return Batch(x, target, jnp.ones((k, n)), jnp.full(k, float(n)), action=action, shared=True)


@pytest.mark.parametrize("name", ["bsp", "dropout", "c51", "count"])
def test_each_belief_learns_a_bandit(name):
    """Two arms as inputs, rewards 0.2 and 0.8: act by a draw, observe, update on all data so far."""
    belief = beliefs(Table(2, (20,)), 1, TableCount(2), 0.0)[name]
    state = belief.init(jax.random.key(0), jnp.asarray(0))
    arms, capacity = jnp.arange(2), 100

    @jax.jit
    def act(state, key):
        index = belief.draw(state, key)
        return jnp.argmax(jax.vmap(lambda arm: belief.value(state, index, arm))(arms)[:, 0])

    @jax.jit
    def learn(state, key, arm, reward, weight):
        target = jax.vmap(belief.head.encode)(reward)
        target = jnp.broadcast_to(target[None, :, None], (belief.num_streams, capacity, 1, *target.shape[1:]))
        weight = jnp.broadcast_to(weight * capacity / weight.sum(), (belief.num_streams, capacity))
        batch = Batch(arm, target, weight, weight.sum(1), shared=True)
        return belief.update(state, batch, key)[0]

    @jax.jit
    def observe(state, arm, reward):
        return belief.observe(state, one_batch(belief, arm[None], jnp.full((belief.num_streams, 1, 1), reward)))

    chosen, arm, reward = [], np.zeros(capacity, int), np.zeros(capacity)
    for t in range(capacity):
        key_act, key_learn = jax.random.split(jax.random.fold_in(jax.random.key(1), t))
        arm[t] = int(act(state, key_act)) if t > 1 else t
        reward[t] = 0.2 + 0.6 * arm[t]
        state = observe(state, jnp.asarray(arm[t]), reward[t])
        weight = jnp.asarray(np.arange(capacity) <= t, dtype=float)
        for i in range(5):
            key = jax.random.fold_in(key_learn, i)
            state = learn(state, key, jnp.asarray(arm), jnp.asarray(reward), weight)
        chosen.append(arm[t])
    assert np.mean(chosen[-30:]) > 0.7


def deep_sea(belief, episodes, seed):
    """DeepSea with `right` = action 1 everywhere, a shared buffer of everything, one update per step.

    Returns the episodes that reached the treasure."""
    state = belief.init(jax.random.key(seed), jnp.asarray(0))
    capacity = episodes * N
    obs, nxt = np.zeros(capacity, int), np.zeros(capacity, int)
    action, reward, last = np.zeros(capacity, int), np.zeros(capacity), np.zeros(capacity)

    @jax.jit
    def act(state, index, s):
        return jnp.argmax(belief.value(state, index, s))

    @jax.jit
    def learn(state, key, s, a, r, s2, end):
        key_target, key_online = jax.random.split(key)
        following = belief.forward(state, key_target, s2, shared=True)
        backup = jax.vmap(lambda out, r, d: greedy_backup(belief.head, out, r, d))
        target = jax.vmap(backup, in_axes=(0, None, None))(following, r, 0.99 * (1 - end))
        return belief.update(state, one_batch(belief, s, target, a), key_online)[0]

    @jax.jit
    def bonus(state, s):
        counted = belief.observe(state, one_batch(belief, s[None], jnp.zeros((1, 1, 2))))
        return belief.bonus(state, s), counted

    draw = jax.jit(belief.draw)
    found, t = [], 0
    for episode in range(episodes):
        index = draw(state, jax.random.fold_in(jax.random.key(seed + 1), episode))
        column = 0
        for row in range(N):
            s = row * N + column
            a = int(act(state, index, jnp.asarray(s)))
            gain = -0.01 / N * a + (a == 1 and column == row == N - 1)
            won = gain > 0.5
            column = min(column + 1, N - 1) if a else max(column - 1, 0)
            nxt[t] = N * N if row == N - 1 else (row + 1) * N + column
            if isinstance(belief, Counts) and row < N - 1:
                novelty, state = bonus(state, jnp.asarray(nxt[t]))
                gain += float(novelty)
            obs[t], action[t], reward[t], last[t] = s, a, gain, row == N - 1
            t += 1
            key_rows, key_learn = jax.random.split(jax.random.fold_in(jax.random.key(seed + 2), t))
            rows = np.asarray(jax.random.randint(key_rows, (64,), 0, t))
            state = learn(state, key_learn, *(jnp.asarray(part[rows]) for part in (obs, action, reward, nxt, last)))
        if won:
            found.append(episode)
    return found, state


def test_prior_functions_find_the_treasure_of_a_small_deep_sea():
    found, _ = deep_sea(beliefs(NETWORK, 2, None, -1.0)["bsp"], 150, seed=0)
    assert len(found) > 20


@pytest.mark.parametrize("name", ["dropout", "c51", "count"])
@pytest.mark.slow
def test_the_rivals_run_the_same_loop(name):
    """No claim that they find the treasure, only that the loop needs to know nothing of them."""
    belief = beliefs(NETWORK, 2, TableCount(N * N), -1.0)[name]
    _, state = deep_sea(belief, 20, seed=0)
    out = belief.forward(state, jax.random.key(0), jnp.arange(N * N), shared=True)
    assert np.all(np.isfinite(values_of(belief.head, out)))
    if name == "count":
        assert float(state.aux.sum()) == 20 * (N - 1)


def test_one_hot_and_index_inputs_give_the_same_belief():
    one_hot = method("bsp", network=MLP((20,)), num_members=3).belief
    table = method("bsp", network=Table(6, (20,)), num_members=3).belief
    a, b = (m.init(jax.random.key(0), x) for m, x in ((one_hot, jnp.zeros(6)), (table, jnp.asarray(0))))
    jax.tree.map(np.testing.assert_array_equal, a.params, b.params)
