import jax
import numpy as np
import pytest

from priorax.beliefs import Ensemble
from priorax.data_sets import form_data
from priorax.networks import MLP
from priorax.noise import NOISES, Gaussian, as_noise, online

N = 20_000


@pytest.mark.parametrize("name", NOISES)
def test_weights_have_mean_one(name):
    weights = np.asarray(NOISES[name].weights(jax.random.key(0), N))
    assert weights.shape == (N,)
    np.testing.assert_allclose(weights.mean(), 1.0, atol=0.05)
    assert NOISES[name].shift(jax.random.key(0), N, 1) is None


def test_each_noise_has_its_own_law():
    weights = {name: np.asarray(noise.weights(jax.random.key(1), N)) for name, noise in NOISES.items()}
    assert np.all(weights["none"] == 1)
    assert weights["bootstrap"].sum() == N
    assert set(np.unique(weights["double_or_nothing"])) == {0.0, 2.0}
    for name in ("bootstrap", "poisson", "double_or_nothing", "exponential"):
        np.testing.assert_allclose(weights[name].var(), 1.0, atol=0.1)
    np.testing.assert_allclose((weights["poisson"] == 0).mean(), np.exp(-1), atol=0.01)
    np.testing.assert_allclose((weights["exponential"] > 1).mean(), np.exp(-1), atol=0.01)


def test_gaussian_noise_moves_targets_by_a_scale_per_example():
    scale = np.array([0.0, 1.0, 10.0])
    shift = np.stack([Gaussian(scale).shift(jax.random.key(s), 3, 2) for s in range(2000)])
    np.testing.assert_allclose(shift.std(axis=(0, 2)), scale, rtol=0.05)
    np.testing.assert_array_equal(Gaussian(scale).weights(jax.random.key(0), 3), np.ones(3))


def test_noise_is_drawn_once_per_example_and_member():
    """The formed data set holds the noise, so that no step can redraw it; members differ, seeds differ."""
    belief = Ensemble(num_members=4, network=MLP((3,)))
    x, y = np.zeros((50, 1)), np.zeros(50)
    state = belief.init(jax.random.key(0), x[0])
    a, b, c = (
        form_data(belief, state, x, y, key=jax.random.key(seed), noise="double_or_nothing").weight for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    assert len(np.unique(np.asarray(a)[:50], axis=1).T) == 4


def test_online_noise_has_independent_weights():
    """Of examples one at a time: the bootstrap becomes its limit, what was independent stays."""
    keys = jax.random.split(jax.random.key(0), 5000)
    alone = jax.vmap(lambda key: online(NOISES["bootstrap"]).weights(key, 1)[0])(keys)
    np.testing.assert_allclose([np.mean(alone), np.var(alone)], 1.0, atol=0.06)
    for name in ("none", "poisson", "double_or_nothing", "exponential"):
        assert online(NOISES[name]) is NOISES[name]
    assert online(Gaussian(0.3)).scale == 0.3
    with pytest.raises(ValueError, match="scale has 3 values, one per example"):
        online(Gaussian(np.ones(3)))


def test_unknown_noise_and_bad_scales_are_refused():
    with pytest.raises(ValueError, match="noise='bootstrp' is unknown; did you mean 'bootstrap'"):
        as_noise("bootstrp")
    with pytest.raises(ValueError, match=r"scale=-1\.0"):
        Gaussian(-1.0)
    with pytest.raises(ValueError, match="negative or non-finite"):
        Gaussian(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match=r"scale has shape \(2,\) but there are 3 examples"):
        Gaussian(np.ones(2)).shift(jax.random.key(0), 3, 1)
