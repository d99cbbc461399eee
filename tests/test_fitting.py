import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conftest import forward
from priorax.beliefs import L2, Adam, Dropout, Ensemble, ExactBayes, method, noisy
from priorax.data_sets import form_data, split_rows
from priorax.fitting import CHUNK, NonFiniteLoss, fit, train
from priorax.heads import Classes
from priorax.networks import MLP, as_network
from priorax.noise import Gaussian
from priorax.priors import Function

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((300, 2)).astype(np.float32)
Y = np.sin(X[:, 0]) + 0.1 * RANDOM.standard_normal(300)
BELIEF = Ensemble(num_members=4, network=MLP((20,)), prior=MLP((20,)))
KEY = jax.random.key(0)


def weights(result):
    return np.asarray(result.state.params[0].weight)


def test_fitting_lowers_the_loss_of_every_member():
    losses = fit(BELIEF, (X, Y), key=KEY, noise="bootstrap", steps=1500).losses
    assert losses.shape == (1500, 4)
    assert np.all(losses[-50:].mean(axis=0) < 0.3 * losses[:50].mean(axis=0))


@pytest.mark.parametrize("batch_size", [None, 32])
@pytest.mark.parametrize("own_batches", [False, True])
def test_the_same_key_gives_the_same_bits_and_another_key_others(batch_size, own_batches):
    runs = [
        fit(BELIEF, (X, Y), key=jax.random.key(s), steps=30, batch_size=batch_size, own_batches=own_batches)
        for s in (0, 0, 1)
    ]
    np.testing.assert_array_equal(weights(runs[0]), weights(runs[1]))
    assert not np.any(weights(runs[0]) == weights(runs[2]))


def test_chunks_can_be_cut_anywhere():
    """Step t depends on (key, t) only: 130 steps are 70 and then 60."""
    state = BELIEF.init(KEY, X[0])
    data = form_data(BELIEF, state, X, Y, key=KEY)
    whole = train(BELIEF, state, data, key=KEY, steps=CHUNK + 30)
    first = train(BELIEF, state, data, key=KEY, steps=70)
    second = train(BELIEF, first.state, data, key=KEY, steps=CHUNK - 40, first_step=70)
    np.testing.assert_array_equal(weights(whole), weights(second))


def test_padding_does_not_change_the_data():
    """Full-batch loss is the weighted mean over the real rows."""
    belief = Ensemble(num_members=2, network=MLP(()), optimizer=optax.sgd(0.0))
    weight = RANDOM.exponential(size=300).astype(np.float32)
    result = fit(belief, (X, Y), key=KEY, steps=1, batch_size=None, sample_weight=weight)
    out = np.asarray(belief.forward(result.state, KEY, X, shared=True))[:, :, 0, 0]
    np.testing.assert_allclose(result.losses[0], np.mean(weight * (out - Y) ** 2, axis=1), rtol=1e-5)


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
def test_the_anchor_of_equation_4_weighs_against_a_sum_over_data(weight):
    """Ridge regression in closed form, whatever the examples weigh: weight 3 is three repetitions."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, 1500))
    belief = Ensemble(num_members=2, network=MLP((), use_bias=False), l2=L2(20.0, to="zero"), optimizer=optimizer)
    state = fit(belief, (X, Y), key=KEY, steps=1500, batch_size=None, sample_weight=np.full(300, weight)).state
    ridge = np.linalg.solve(weight * X.T @ X + 20 * np.eye(2), weight * X.T @ Y)
    np.testing.assert_allclose(state.params[0].weight[:, :, 0], np.broadcast_to(ridge, (2, 2)), atol=1e-4)


def test_padding_shows_users_code_real_inputs_only():
    belief = Ensemble(num_members=2, network=MLP((4,)), prior=Function(lambda x: jnp.log(x[0])))
    result = fit(belief, (np.abs(X[:50]) + 0.1, Y[:50]), key=KEY, steps=3, batch_size=None)
    assert np.all(np.isfinite(result.losses))


def test_a_validation_split_takes_each_examples_own_noise_along():
    """Noise on one half of the inputs only: there members come to differ."""
    belief = Ensemble(num_members=8, network=MLP((20,)), optimizer=optax.adam(1e-2))
    noise = Gaussian(np.where(X[:, 0] > 0, 5.0, 0.0))
    result = fit(belief, (X, np.zeros(300)), key=KEY, noise=noise, validation_fraction=0.2, patience=100, steps=500)
    sides = X[:, 0] > 0.5, X[:, 0] < -0.5
    right, left = (np.std(forward(belief, result.state, X[side], KEY)[:, :, 0, 0], axis=0).mean() for side in sides)
    assert right > 2 * left


def test_exact_bayes_fits_in_one_pass():
    belief = ExactBayes(noise_std=0.1)
    result = fit(belief, (X, Y), key=KEY)
    precision = X.T @ X / 0.01 + np.eye(2)
    np.testing.assert_allclose(
        belief.posterior(result.state)[0][:, 0], np.linalg.solve(precision, X.T @ Y / 0.01), rtol=1e-3
    )
    assert len(result.losses) == 0


def test_a_validation_split_stops_early_and_keeps_the_best():
    noise = RANDOM.standard_normal(60)
    belief = Ensemble(num_members=2, network=MLP((100,)), optimizer=optax.adam(1e-2))
    result = fit(belief, (X[:60], noise), key=KEY, steps=20_000, validation_fraction=0.3, patience=2)
    assert result.stopped_early
    assert len(result.losses) < 20_000


@pytest.mark.parametrize(
    "belief",
    [
        Dropout(network=MLP((8,))),
        pytest.param(noisy(network=MLP((8,))), marks=pytest.mark.slow),
        pytest.param(method("count").belief, marks=pytest.mark.slow),
    ],
    ids=["dropout", "noisy", "count"],
)
def test_beliefs_that_are_no_ensemble_are_validated_too(belief):
    result = fit(belief, (X[:60], RANDOM.standard_normal(60)), key=KEY, steps=3000, validation_fraction=0.3, patience=1)
    assert result.stopped_early


def test_a_validation_split_keeps_the_shares_of_classes():
    y = np.repeat([0, 1, 2], [150, 49, 1])[:, None]
    held, kept = split_rows(KEY, y, 0.2, is_label=True)
    assert sorted([*held, *kept]) == list(range(200))
    np.testing.assert_array_equal(np.bincount(y[held, 0], minlength=3), [30, 10, 0])
    assert not np.array_equal(np.sort(held), np.sort(split_rows(jax.random.key(1), y, 0.2, is_label=True)[0]))


def test_a_rare_class_is_learned_despite_a_validation_split():
    """Two examples of it: half of the splits would hold out one side only, a quarter both."""
    x = np.where(np.arange(40)[:, None] < 2, 1.0, -1.0)
    belief = Ensemble(2, MLP((8,)), head=Classes(2), optimizer=Adam(3e-2))
    for seed in range(8):
        key = jax.random.key(seed)
        state = fit(belief, (x, np.arange(40) < 2), key=key, steps=100, validation_fraction=0.5).state
        assert np.all(np.argmax(forward(belief, state, jnp.ones((1, 1)), key)[:, 0, 0], axis=1) == 1)


@pytest.mark.parametrize("wrong", [7, -1, 0.7, "a"])
def test_labels_that_no_class_has_are_refused(wrong):
    belief = Ensemble(2, MLP((4,)), head=Classes(3))
    y = np.array([wrong] * 20 if wrong == "a" else [0, 1, 2, wrong] * 5)
    with pytest.raises(ValueError, match=rf"y has the label {wrong}.*, but the head's 3 classes are numbered 0 to 2"):
        fit(belief, (X[:20], y), key=KEY, steps=1)


def test_whole_numbers_serve_as_labels_and_as_targets():
    belief = Ensemble(2, MLP((4,)), head=Classes(3))
    runs = [fit(belief, (X[:30], np.tile([0, 1, 2], 10).astype(kind)), key=KEY, steps=5) for kind in (int, float)]
    np.testing.assert_array_equal(weights(runs[0]), weights(runs[1]))
    runs = [
        fit(BELIEF, (X, np.arange(300).astype(kind)), key=KEY, noise=Gaussian(0.1), steps=5) for kind in (int, float)
    ]
    np.testing.assert_array_equal(weights(runs[0]), weights(runs[1]))


@pytest.mark.slow
def test_memory_does_not_grow_with_members_times_rows_times_width():
    """In a process of its own: a prior on all rows at once would take 20 x 262,144 x 64 numbers, 1.3 GB."""
    code = """
import resource, jax, numpy as np
from priorax.beliefs import Ensemble
from priorax.fitting import fit
from priorax.networks import MLP
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
belief = Ensemble(20, MLP((4,)), MLP((64,)))
rows = lambda n: (np.ones((n, 2), np.float32), np.zeros(n, np.float32))
fit(belief, rows(64), key=jax.random.key(0), steps=1, batch_size=32, validation_fraction=0.5)
before = used()
fit(belief, rows(250_000), key=jax.random.key(0), steps=1, batch_size=32, validation_fraction=0.5)
print(used() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 500_000  # kilobytes


def test_inputs_may_be_any_pytree():
    def init(key, x):
        return jax.random.normal(key, (3,))

    parts = as_network((init, lambda params, x: x["a"] @ params[:2] + x["b"] * params[2]))
    whole = as_network((init, lambda params, x: x @ params))
    result = fit(Ensemble(num_members=2, network=parts), ({"a": X, "b": X[:, 0]}, Y), key=KEY, steps=5)
    same = fit(Ensemble(num_members=2, network=whole), (np.c_[X, X[:, 0]], Y), key=KEY, steps=5)
    np.testing.assert_allclose(result.losses, same.losses, rtol=1e-4)
    assert result.losses.shape == (5, 2) and np.all(result.losses[0] > 0)


def test_progress_is_reported_after_each_chunk():
    seen = []
    fit(BELIEF, (X, Y), key=KEY, steps=2 * CHUNK + 5, progress=lambda done, loss: seen.append(done))
    assert seen == [CHUNK, 2 * CHUNK, 2 * CHUNK + 5]


def test_a_bar_is_shown_when_asked_for(capsys):
    fit(BELIEF, (X, Y), key=KEY, steps=5, progress=True)
    assert "fit" in capsys.readouterr().out


def test_a_non_finite_loss_names_step_and_member():
    def init(key, x):
        return {"w": jax.random.normal(key, ()), "bad": jnp.zeros(())}

    def apply(params, x):
        return params["w"] * 1e30 * (1 + params["bad"])

    belief = Ensemble(num_members=2, network=as_network((init, apply)), optimizer=optax.sgd(1.0))
    with pytest.raises(
        NonFiniteLoss, match=r"the loss of member 0 became (inf|nan) at step 0; lower the learning rate"
    ):
        fit(belief, (X, Y), key=KEY, steps=10)


@pytest.mark.parametrize(
    ("x", "y", "settings", "message"),
    [
        (X[:0], Y[:0], {}, "the data set is empty"),
        (X, np.where(np.arange(300) == 3, np.nan, Y), {}, "y contains NaN or infinity"),
        (np.where(X[0, 0] == X, np.inf, X), Y, {}, "x contains NaN or infinity"),
        (X, Y[:10], {"validation_fraction": 0.2}, r"y has shape \(10, 1\) but x has 300 rows"),
        (X, Y * 1e160, {}, r"y has values up to .*, but the largest float32 is 3.4e\+38; divide y by a constant"),
        (X, Y, {"noise": Gaussian(np.ones(3))}, r"scale has shape \(3,\) but there are 300 examples"),
        (X, Y, {"sample_weight": -np.ones(300)}, "sample_weight has the value -1.0; every weight must be at least 0"),
        (X, Y, {"patience": 0}, "patience=0 must be"),
        (X, Y[:10], {}, r"y has shape \(10, 1\) but x has 300 rows"),
        (X, np.stack([Y, Y], 1), {}, r"y has shape \(300, 2\)"),
        ({"a": X, "b": X[:5]}, Y, {}, "different numbers of rows"),
        (X, Y, {"sample_weight": np.ones(3)}, "sample_weight has shape"),
        (X, Y, {"steps": 0}, "steps=0 must be a whole number of at least 1"),
        (X, Y, {"batch_size": -1}, "batch_size=-1 must be"),
        (X, Y, {"noise": "nois"}, "did you mean"),
        (X, Y, {"validation_fraction": 1.5}, "validation_fraction=1.5 must be a number above 0 and below 1"),
    ],
)
def test_bad_input_gets_a_clear_error(x, y, settings, message):
    with pytest.raises(ValueError, match=message):
        fit(BELIEF, (x, y), key=KEY, **settings)


def test_a_key_board_interrupt_comes_through_between_chunks():
    def interrupt(done, loss):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(BELIEF, (X, Y), key=KEY, steps=500, progress=interrupt)


def test_dropout_trains_with_fresh_masks():
    result = fit(Dropout(network=MLP((50,))), (X, Y), key=KEY, steps=2000)
    assert result.losses[-100:].mean() < 0.5 * result.losses[:20].mean()
