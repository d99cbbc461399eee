"""Your own network as the trainable function: any Equinox module, or an (init, apply) pair."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from priorax import PriorEnsembleRegressor, fit
from priorax.beliefs import Adam, Ensemble
from priorax.networks import MLP, module

X = np.linspace(-1, 1, 60)[:, None].astype(np.float32)
y = np.cos(6 * X[:, 0])

# 1. An Equinox module in an estimator.
net = module(lambda key: eqx.nn.MLP(in_size=1, out_size=1, width_size=32, depth=2, key=key))
model = PriorEnsembleRegressor(num_members=5, network=net, steps=1000, random_state=0).fit(X, y)
print(f"Equinox module: R² = {model.score(X, y):.3f}")


# 2. A pair of functions: `init(key, x)` draws parameters, `apply(params, x)` evaluates the function at ONE input.
def init(key, x):
    return {"centre": jax.random.uniform(key, (30,), minval=-1.2, maxval=1.2), "height": jnp.zeros(30)}


def apply(params, x):
    bumps = jnp.exp(-(((x[0] - params["centre"]) / 0.2) ** 2))
    return bumps @ params["height"]


belief = Ensemble(
    num_members=10,
    network=(init, apply),
    prior=MLP((20,), bias_scale=1.0),
    optimizer=Adam(1e-2),
)
state = fit(belief, (X, y), key=jax.random.key(0), noise="bootstrap", steps=1000).state
at_data, far = belief.spread(state, jax.random.key(1), np.array([[0.0], [3.0]], np.float32))[:, 0]
print(f"(init, apply) pair: spread {at_data:.2f} at x = 0, {far:.2f} at x = 3")
assert far > 5 * at_data
