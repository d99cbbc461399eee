"""A belief of someone else's, which no file of ours knows, is served as ours are; a wrapped one answers as itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import forward, init, observe, update
from priorax import fit
from priorax.agents import QLearner
from priorax.agents.bandit import belief_sampler
from priorax.agents.deploy import deploy, values
from priorax.beliefs import (
    Adam,
    Batch,
    Belief,
    BeliefState,
    Counts,
    Ensemble,
    GaussianCount,
    Method,
    OneHotCount,
    Outcomes,
    SharedTorso,
    TableCount,
    Wrapper,
    draw_values,
    gradient_step,
    plain_batch,
    stream_losses,
)
from priorax.data_sets import form_data
from priorax.envs.jax.bandits import LinearBandit
from priorax.files import BadFile
from priorax.heads import C51, Head, Scalar
from priorax.networks import MLP, Table
from priorax.noise import NOISES
from priorax.priors import Tabulated
from priorax.replay import DeviceReplay, Replay, Transition
from priorax.storage import load, save
from priorax.training.backends.loop import empty_replay, learn_once, remember
from priorax.training.bandits import cumulative_regret

KEY = jax.random.key(0)
functions = eqx.filter_jit(lambda belief, *rest: belief.functions(*rest))
second = eqx.filter_jit(lambda belief, state, x: belief.member_output(state, jnp.asarray(1), x))
spread = eqx.filter_jit(lambda belief, *rest: belief.spread(*rest))
prior_values = eqx.filter_jit(lambda belief, state, x: belief.prior_values(state, x))
X = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
Y = X @ np.array([1.0, -2.0, 0.5], np.float32)


class Lines(Belief):
    """K linear functions, x'w_k + prior_scale x'p_k, from nothing but the base class."""

    num_members: int = eqx.field(static=True)
    prior_scale: float
    num_outputs: int = eqx.field(static=True, default=1)
    head: Head = eqx.field(static=True, default=Scalar())
    optimizer: Adam = Adam(0.05)

    @property
    def num_streams(self):
        return self.num_members

    @property
    def has_prior(self):
        return True

    def init(self, key, x):
        shape = (self.num_members, x.size, self.num_outputs)
        params, prior = jax.random.normal(key, (2, *shape))
        return BeliefState(0.1 * params, prior, jax.vmap(self.optimizer.init)(params))

    def draw(self, state, key):
        return jax.random.randint(key, (), 0, self.num_members)

    def value(self, state, index, x):
        return x @ (state.params[index] + self.prior_scale * state.frozen[index])

    def forward(self, state, key, x, prior=None, shared=False):
        rows = jnp.broadcast_to(x, (self.num_members, *x.shape)) if shared else x
        if prior is None:
            prior = jnp.einsum("kbi,kio->kbo", rows, state.frozen)[..., None]
        return jnp.einsum("kbi,kio->kbo", rows, state.params)[..., None] + self.prior_scale * prior

    def prior_values(self, state, x):
        return jnp.einsum("bi,kio->kbo", x, state.frozen)[..., None]

    def losses(self, state, batch, key):
        return stream_losses(self.head, self.forward(state, key, batch.x, batch.prior, batch.shared), batch)

    def update(self, state, batch, key):
        return gradient_step(self, state, batch, key, per_stream=True)


class Negated(Wrapper):
    """A wrapper of someone else's: what it draws is upside down."""

    base: Belief

    def value(self, state, index, x):
        return -self.base.value(state, index, x)


LINES = Lines(4, 2.0)


def test_it_says_of_itself_what_its_fields_and_the_defaults_say():
    assert (LINES.num_members, LINES.num_streams, LINES.prior_scale, LINES.has_prior) == (4, 4, 2.0, True)
    assert LINES.by_gradient and LINES.draws_members
    assert not (LINES.pays_bonus or LINES.stores_prior)
    state = init(LINES, KEY, X[0])
    assert LINES.observe(state, plain_batch(X, Y[:, None], 4)) is state
    np.testing.assert_array_equal(LINES.reward_bonus(state, X), np.zeros(60))
    LINES.check_learning(shared_batch=True, lagged=True, prioritised=True)
    assert jax.tree.leaves(eqx.tree_at(lambda belief: belief.prior_scale, LINES, 5.0))[0] == 5.0


def test_a_belief_that_lacks_a_part_cannot_be_made():
    class NoForward(Lines):
        forward = Belief.forward

    with pytest.raises(TypeError, match="abstract method"):
        NoForward(4, 2.0)

    class NoHead(Belief):
        num_outputs: int = 1
        init = draw = value = forward = update = lambda self: None

    with pytest.raises(TypeError, match="abstract"):
        NoHead()


def test_all_its_members_are_its_functions_and_a_draw_is_one_of_them():
    state = init(LINES, KEY, X[0])
    found = np.asarray(functions(LINES, state, KEY, X))
    weights = np.asarray(state.params + 2.0 * state.frozen)
    np.testing.assert_allclose(found, np.einsum("bi,kio->kbo", X, weights), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(spread(LINES, state, KEY, X), found.std(axis=0), rtol=1e-5)
    index = LINES.draw(state, KEY)
    np.testing.assert_allclose(LINES.value(state, index, X[0]), found[int(index), 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(LINES.member_output(state, index, X[0])[:, 0], found[int(index), 0], rtol=1e-4)


@pytest.mark.parametrize(
    ("validation_fraction", "own_batches"),
    [
        (None, True),
        (0.2, False),
        pytest.param(None, False, marks=pytest.mark.slow),
        pytest.param(0.2, True, marks=pytest.mark.slow),
    ],
)
def test_it_is_fitted(validation_fraction, own_batches):
    """Every member finds the line, whatever its prior; with own minibatches as well."""
    result = fit(
        LINES,
        (X, Y),
        key=KEY,
        noise="bootstrap",
        steps=600,
        batch_size=16,
        validation_fraction=validation_fraction,
        own_batches=own_batches,
    )
    found = np.asarray(functions(LINES, result.state, KEY, X))[:, :, 0]
    np.testing.assert_allclose(found, np.broadcast_to(Y, found.shape), atol=0.05)
    start = init(LINES, jax.random.split(KEY, 4)[0], X[0])
    np.testing.assert_array_equal(result.state.frozen, start.frozen)


@pytest.mark.parametrize("wrap", [lambda belief: belief, lambda belief: Counts(belief, GaussianCount())])
def test_its_priors_are_evaluated_once_per_data_set(wrap):
    belief = wrap(LINES)
    state = init(belief, KEY, X[0])
    data = form_data(belief, state, X, Y, key=KEY)
    assert data.prior.shape == (64, 4, 1, 1)
    expected = np.einsum("bi,kio->bko", X, state.frozen)[..., None]
    np.testing.assert_allclose(data.prior[:60], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", [lambda belief: belief, Negated])
def test_a_bandits_sampler_keeps_its_priors_beside_each_reward(wrap):
    belief, arms = wrap(LINES), jax.random.normal(KEY, (6, 3))
    sampler = belief_sampler(Method(belief, NOISES["none"]), 200, batch_size=16)
    state = sampler.init(KEY, arms)
    after = jax.jit(sampler.update)(state, KEY, arms, jnp.asarray(2), jnp.asarray(0.3))
    np.testing.assert_allclose(after.seen.prior[0], LINES.prior_values(state.belief, arms[2:3])[:, 0], rtol=1e-5)


def test_it_plays_a_bandit():
    sampler = belief_sampler(Method(LINES, NOISES["none"]), 200, batch_size=16)
    regret = np.asarray(cumulative_regret(LinearBandit(6, 3), sampler, steps=200, seeds=20))
    early, late = regret[:, 49], regret[:, -1] - regret[:, -51]
    assert late.mean() < 0.3 * early.mean()


def test_counts_around_it_pay_and_keep_its_members():
    belief = Counts(LINES, OneHotCount(), bonus_scale=0.5)
    cells = jnp.eye(3)
    batch = plain_batch(cells[jnp.array([0, 0, 0, 0, 1])], jnp.zeros((5, 1)), 4)
    state = observe(belief, init(belief, KEY, cells[0]), batch)
    bonus = 0.5 / np.sqrt([4, 1, 0.01])
    assert belief.pays_bonus and belief.num_members == 4
    np.testing.assert_allclose(belief.reward_bonus(state, cells), bonus, rtol=1e-6)
    plain = functions(LINES, state, KEY, cells)
    np.testing.assert_allclose(functions(belief, state, KEY, cells), plain + bonus[:, None], rtol=1e-5)
    np.testing.assert_allclose(spread(belief, state, KEY, cells)[:, 0], bonus, rtol=1e-6)
    result = fit(belief, (X, Y), key=KEY, steps=600, batch_size=16)
    means = np.asarray(LINES.functions(result.state, KEY, X))[:, :, 0]
    np.testing.assert_allclose(means, np.broadcast_to(Y, means.shape), atol=0.05)


def test_counts_refuse_a_base_that_keeps_something_where_they_count():
    class Remembering(Lines):
        def init(self, key, x):
            return super().init(key, x)._replace(aux=jnp.zeros(3))

    with pytest.raises(ValueError, match="base=Remembering stores state of its own in aux"):
        Counts(Remembering(4, 2.0), GaussianCount()).init(KEY, jnp.asarray(X[0]))


class Normalising(Lines):
    """It learns from observing as well: the largest input so far, kept in `frozen` beside the priors."""

    def init(self, key, x):
        state = super().init(key, x)
        return state._replace(frozen=(state.frozen, jnp.zeros(())))

    def observe(self, state, batch):
        prior, largest = state.frozen
        return state._replace(frozen=(prior, jnp.maximum(largest, jnp.max(batch.x))))


def test_a_base_that_observes_goes_on_doing_so_where_it_is_wrapped():
    for wrap in (Negated, lambda belief: Counts(belief, GaussianCount())):
        belief = wrap(Normalising(4, 2.0))
        state = observe(belief, init(belief, KEY, X[0]), plain_batch(X, Y[:, None], 4))
        assert float(state.frozen[1]) == X.max()


def test_a_wrapper_of_ones_own_still_pays_and_deploys_what_it_acts_on():
    belief = Negated(Counts(LINES, GaussianCount(), bonus_scale=0.5))
    state = observe(belief, init(belief, KEY, X[0]), plain_batch(X, Y[:, None], 4))
    inner = belief.base
    assert belief.pays_bonus and belief.has_prior and belief.num_members == 4
    np.testing.assert_array_equal(belief.reward_bonus(state, X), inner.reward_bonus(state, X))
    np.testing.assert_allclose(functions(belief, state, KEY, X), -functions(inner, state, KEY, X), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(spread(belief, state, KEY, X), spread(inner, state, KEY, X))


def learner(belief, shared_batch=False, **settings):
    return QLearner(belief, Replay(64, belief.num_streams, 16, shared_batch, discount=0.0), **settings)


def lived(agent, steps, updates=0):
    """After transitions from random observations that pay x[0] for action 1 and nothing for action 0, and updates."""

    @jax.jit
    def run(key):
        def add(carry, i):
            key_obs, key_mask = jax.random.split(jax.random.fold_in(key, i))
            obs = jax.random.normal(key_obs, (3,))
            step = Transition(obs, i % 2, jnp.where(i % 2, obs[0], 0.0), obs, jnp.array(True), jnp.array(True))
            return remember(agent, *carry, key_mask, step), None

        def learn(carry, i):
            return learn_once(agent, *carry, jax.random.fold_in(key, i))[:2], None

        state = agent.init(key, jnp.zeros(3))
        empty = empty_replay(agent, state, jnp.zeros(3), jnp.asarray(0))
        carry, _ = jax.lax.scan(add, (state, empty), jnp.arange(steps))
        return jax.lax.scan(learn, carry, jnp.arange(updates))[0]

    return run(KEY)


@pytest.mark.parametrize("settings", [{}, {"shared_batch": True, "target_period": 5}], ids=["own", "shared, lagged"])
def test_it_learns_by_q_learning_and_is_deployed(settings):
    agent = learner(Lines(4, 2.0, num_outputs=2), **settings)
    state, _ = lived(agent, 64, 800)
    found = values(agent, deploy(agent, state), X)
    assert found.members.shape == (4, 60, 2)
    np.testing.assert_allclose(found.mean[:, 1], X[:, 0], atol=0.1)
    np.testing.assert_allclose(found.mean[:, 0], 0.0, atol=0.1)


def test_counts_around_it_pay_in_q_learning():
    belief = Counts(Lines(4, 2.0, num_outputs=2), GaussianCount(), bonus_scale=0.5)
    agent = learner(belief, bonus_at="insertion")
    _, buffer = lived(agent, 1)
    stored = DeviceReplay(agent.replay).get(buffer, jnp.zeros(1, int)).transition
    assert float(stored.reward[0]) == pytest.approx(0.5 / 0.1, rel=1e-5)


def test_it_is_saved_and_comes_back_with_its_own_code(tmp_path):
    for wrap, own in ((lambda belief: belief, "belief"), (lambda belief: Counts(belief, GaussianCount()), "base")):
        belief = wrap(LINES)
        state = init(belief, KEY, X[0])
        save(tmp_path / own, belief, state, X[0])
        with pytest.raises(
            BadFile, match=rf"{own} is custom code, which is not in the file; pass it: load\(path, {own}=...\)"
        ):
            load(tmp_path / own)
        again, restored = load(tmp_path / own, **{own: LINES})
        assert again == belief
        jax.tree.map(np.testing.assert_array_equal, restored, state)


NET = MLP((5,))
ATOMS = Ensemble(3, NET, NET, 2.5, head=C51(0.0, 1.0, 7), num_outputs=2)
TORSO = SharedTorso(ATOMS, MLP((6,)), 4)
PLAIN = Ensemble(3, NET, num_outputs=2)


@pytest.mark.parametrize("inner", [ATOMS, TORSO, PLAIN, LINES], ids=["ensemble", "torso", "without prior", "own"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda belief: Counts(belief, GaussianCount()),
        Outcomes,
        lambda belief: Counts(Outcomes(belief), GaussianCount()),
        Negated,
    ],
    ids=["counts", "outcomes", "counts of outcomes", "own"],
)
def test_a_wrapped_ensemble_answers_as_itself(wrap, inner):
    belief = wrap(inner)
    for name in (
        "num_members",
        "num_streams",
        "num_outputs",
        "has_prior",
        "prior_scale",
        "stores_prior",
        "by_gradient",
    ):
        assert getattr(belief, name) == getattr(inner, name), name
    assert belief.head == inner.head
    state = init(belief, KEY, X[0])
    jax.tree.map(np.testing.assert_array_equal, prior_values(belief, state, X), prior_values(inner, state, X))
    np.testing.assert_array_equal(forward(belief, state, X, KEY), forward(inner, state, X, KEY))
    np.testing.assert_array_equal(second(belief, state, X[0]), second(inner, state, X[0]))


def test_an_ensemble_says_whether_its_prior_is_worth_storing():
    tables = Tabulated(Table(5, (4,)), 5)
    said = {prior: Ensemble(2, Table(5, (4,)), prior=prior) for prior in (None, NET, tables)}
    assert [belief.has_prior for belief in said.values()] == [False, True, True]
    assert [belief.stores_prior for belief in said.values()] == [False, True, False]


def test_outcomes_draw_levels_where_their_base_draws_members():
    belief = Outcomes(ATOMS)
    state = init(belief, KEY, X[0])
    assert ATOMS.draws_members and TORSO.draws_members and not belief.draws_members
    assert functions(belief, state, KEY, X, 7).shape == (7, 60, 2)
    np.testing.assert_array_equal(
        functions(belief, state, KEY, X, 7), eqx.filter_jit(draw_values)(belief, state, KEY, X, 7)
    )
    np.testing.assert_allclose(spread(belief, state, KEY, X), functions(belief, state, KEY, X).std(axis=0), rtol=1e-5)
    with pytest.raises(ValueError, match="base=Outcomes has no members whose outcomes could be sampled"):
        Outcomes(belief)


def test_sparse_rows_are_refused_where_they_cannot_serve_also_in_a_wrapper():
    good = {"own": (False, False, False), "shared": (True, False, False), "no": (True, True, True)}
    for rows, learning in good.items():
        belief = Ensemble(2, Table(4, (3,)), sparse_rows=rows)
        for each in (belief, Counts(belief, TableCount(4))):
            each.check_learning(*learning)
            if rows == "no":
                continue
            shared = learning[0]
            with pytest.raises(ValueError, match="priority above 0 is not supported with sparse rows"):
                each.check_learning(shared, False, True)
            with pytest.raises(ValueError, match="would copy the whole table, which sparse_rows avoids"):
                each.check_learning(shared, True, False)
            other = "own" if shared else "shared"
            with pytest.raises(
                ValueError, match=f"shared_batch={not shared} is incompatible with .* use sparse_rows='{other}'"
            ):
                each.check_learning(not shared, False, False)


def test_one_update_moves_every_member_of_it():
    state = init(LINES, KEY, X[0])
    batch = Batch(jnp.asarray(X), jnp.zeros((4, 60, 1)), jnp.ones((4, 60)), jnp.full(4, 60.0), shared=True)
    after, info = update(LINES, state, batch, KEY)
    expected = np.mean(np.asarray(functions(LINES, state, KEY, X))[:, :, 0] ** 2, axis=1)
    np.testing.assert_allclose(info.loss, expected, rtol=1e-5)
    assert np.all(np.any(np.asarray(after.params != state.params), axis=(1, 2)))
