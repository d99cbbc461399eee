from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax.beliefs import Ensemble
from priorax.networks import MLP, Dueling, FourierCode, Table, as_network, module


def test_glorot_weights_have_glorots_variance_and_biases_start_at_zero():
    first, last = MLP((200,)).init(jax.random.key(0), jnp.zeros(100), 1)
    np.testing.assert_allclose(np.var(first.weight), 2 / 300, rtol=0.05)
    assert np.all(np.asarray(first.bias) == 0)
    assert last.weight.shape == (200, 1)


@pytest.mark.parametrize("widths", [(), (7,), (7, 5)])
def test_a_table_equals_an_mlp_on_one_hot_inputs(widths):
    """Forward values exactly, gradients within 1e-6; an index outside the table is the all-zero input."""
    table, rows = Table(6, widths, bias_scale=1.0), 6
    mlp = table.one_hot()
    params = table.init(jax.random.key(1), jnp.asarray(0), 3)
    states = jnp.arange(rows + 1)
    one_hot = jax.nn.one_hot(states, rows)

    def outputs(params, network, inputs):
        return jax.vmap(lambda x: network.apply(params, x))(inputs)

    np.testing.assert_array_equal(outputs(params, table, states), outputs(params, mlp, one_hot))
    np.testing.assert_array_equal(table.apply(params, jnp.asarray(-1)), table.apply(params, jnp.asarray(rows)))
    gradients = [
        jax.grad(lambda p, n=network, x=inputs: jnp.sum(outputs(p, n, x) ** 3))(params)
        for network, inputs in ((table, states), (mlp, one_hot))
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *gradients)


def test_masks_multiply_the_hidden_units():
    network = MLP((4,))
    params = network.init(jax.random.key(0), jnp.zeros(2), 1)
    silent = network.apply(params, jnp.ones(2), (jnp.zeros(4),))
    np.testing.assert_array_equal(silent, params[-1].bias)


def test_equal_settings_are_equal_objects():
    assert MLP((3, 4)) == MLP((3, 4))
    assert hash(Table(5, (3,))) == hash(Table(5, (3,)))


def own_pair():
    def init(key, x):
        return {"w": jax.random.normal(key, (x.size, 2)), "order": jnp.arange(2)}

    return (init, lambda params, x: (x @ params["w"])[params["order"]])


class Transformed(NamedTuple):
    """As Haiku and others return their networks."""

    init: Callable
    apply: Callable


@pytest.mark.parametrize(
    "network",
    [
        module(lambda key: eqx.nn.MLP(3, 2, 8, 1, key=key)),
        module(lambda key: eqx.nn.Sequential([eqx.nn.Linear(3, 2, key=key), eqx.nn.Lambda(jnp.tanh)])),
        own_pair(),
        Transformed(*own_pair()),
    ],
    ids=["eqx.nn.MLP", "eqx.nn.Sequential", "pair", "named pair"],
)
def test_any_equinox_module_and_any_pair_works_as_member_and_as_prior(network):
    network = as_network(network)
    belief = Ensemble(num_members=3, network=network, prior=network, num_outputs=2)
    state = belief.init(jax.random.key(0), jnp.zeros(3))
    out = belief.forward(state, jax.random.key(0), jnp.ones((5, 3)), shared=True)
    assert out.shape == (3, 5, 2, 1)
    assert len(np.unique(np.asarray(out)[:, 0, 0])) == 3


def test_a_network_of_the_wrong_size_is_refused():
    belief = Ensemble(num_members=2, network=module(lambda key: eqx.nn.Linear(3, 5, key=key)), num_outputs=2)
    with pytest.raises(ValueError, match="network gives 5 numbers per input but the belief needs 2"):
        belief.init(jax.random.key(0), jnp.zeros(3))


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match=r"pass MLP\(...\)"):
        as_network(3)
    with pytest.raises(ValueError, match="did you mean 'relu'"):
        MLP(activation="rleu")
    with pytest.raises(ValueError, match="widths=0 must be a whole number of at least 1"):
        MLP((10, 0))


def test_dueling_outputs_share_a_part():
    """v + a_i - mean(a); with no advantage all outputs are v; a head of many numbers shares each of them."""
    inner = MLP((8,), bias_scale=1.0)
    x = jnp.array([0.3, -1.0])
    params = Dueling(inner).init(jax.random.key(0), x, 3)
    v, *own = inner.apply(params, x)
    own = jnp.stack(own)
    np.testing.assert_allclose(Dueling(inner).apply(params, x), v + own - own.mean(), rtol=1e-5)
    np.testing.assert_allclose(Dueling(inner, advantage=0.0).apply(params, x), jnp.full(3, v), rtol=1e-5)
    wide = Dueling(inner, size=4)
    out = wide.apply(wide.init(jax.random.key(0), x, 12), x)
    assert out.shape == (12,)


def test_a_gain_multiplies_the_inputs():
    x = jnp.array([0.3, -1.0])
    params = MLP((8,)).init(jax.random.key(0), x, 2)
    np.testing.assert_allclose(
        MLP((8,), gain=(2.0, 3.0)).apply(params, x), MLP((8,)).apply(params, x * jnp.array([2.0, 3.0]))
    )


def test_fourier_features_approximate_a_gaussian_kernel():
    code = FourierCode(features=20_000, lengthscale=0.8)
    a, b = jnp.array([0.3, -1.0, 0.5]), jnp.array([0.9, -0.6, 0.1])
    kernel = jnp.exp(-jnp.sum((a - b) ** 2) / (2 * 0.8**2))
    np.testing.assert_allclose(code(a)[:20_000] @ code(b)[:20_000] / 20_000, kernel, atol=0.02)
    np.testing.assert_array_equal(code(a)[20_000:], a)


def test_grouped_features_depend_on_one_group_alone():
    """A share of 0.6 is divided by size: 0.4 of the features see the group of two components, 0.2 that of one."""
    code = FourierCode(features=5000, groups=((0, 2), (1,)), grouped=0.6)
    here = code(jnp.array([0.3, 1.0, -0.7]))[:5000]
    other_pair, other_single = code(jnp.array([0.9, 1.0, 0.1]))[:5000], code(jnp.array([0.3, -2.0, -0.7]))[:5000]
    np.testing.assert_allclose(np.isclose(here, other_single, atol=1e-5).mean(), 0.4, atol=0.03)
    np.testing.assert_allclose(np.isclose(here, other_pair, atol=1e-5).mean(), 0.2, atol=0.03)


def test_squashed_components_are_logarithmic_far_out_and_linear_at_zero():
    code = FourierCode(features=0, squashed=(0, 1))
    np.testing.assert_allclose(code(jnp.array([0.001, 100.0, 100.0])), [0.001, np.log(200), 100.0], rtol=1e-4)


def test_a_coded_mlp_is_an_mlp_on_the_code():
    code, x = FourierCode(features=6, squashed=(1,)), jnp.array([0.3, -1.0])
    coded = MLP((8,), gain=(2.0, 3.0), code=code)
    params = coded.init(jax.random.key(0), x, 2)
    assert params[0].weight.shape == (code.size(2), 8) == (8, 8)
    expected = MLP((8,)).apply(params, code(x * jnp.array([2.0, 3.0])))
    np.testing.assert_allclose(coded.apply(params, x), expected, rtol=1e-5)


@pytest.mark.parametrize("wrong", [{"features": -1}, {"lengthscale": 0.0}, {"grouped": -1.0}, {"grouped": 0.5}])
def test_impossible_codes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FourierCode(**wrong)
