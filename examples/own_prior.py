"""Your own prior function, which determines predictions far from the data."""

import jax
import jax.numpy as jnp
import numpy as np

from priorax import PriorEnsembleRegressor, fit
from priorax.beliefs import method
from priorax.networks import MLP
from priorax.priors import Function, RandomFourier

X = np.linspace(-1, 1, 40)[:, None]
y = 0.5 * X[:, 0]
far = np.array([[4.0]])

settings = {"num_members": 10, "steps": 500, "random_state": 0}

# 1. A built-in prior, by name or as an object; the length scale determines how fast functions vary.
for prior in ("network", RandomFourier(lengthscale=0.5)):
    model = PriorEnsembleRegressor(prior=prior, **settings).fit(X, y)
    mean, std = model.predict(far, return_std=True)
    print(f"{prior!s:50} at x = 4: mean {mean[0]:.2f}, standard deviation {std[0]:.2f}")

# 2. A known function, the same for all members. It sees X as passed, and predicts standardised y.
known = Function(lambda x: 3 * jax.nn.sigmoid(5 * (x - 3)))
model = PriorEnsembleRegressor(prior=known, **settings).fit(X, y)
print(f"a known step beyond x = 3: mean {model.predict(far)[0]:.2f}")


# 3. A function drawn for each member, as an (init, apply) pair: a step of unknown height beyond x = 3.
def init(key, x):
    return jax.random.uniform(key, maxval=4.0)


def apply(height, x):
    return height * jax.nn.sigmoid(5 * (x[0] - 3))


belief, noise = method("bsp", num_members=10, network=MLP((20, 20)), prior=(init, apply))
state = fit(belief, (X, y), key=jax.random.key(0), noise=noise, steps=1000).state
points = jnp.array([[0.0], [4.0]])
at_data, beyond = belief.functions(state, jax.random.key(1), points)[:, :, 0].T
print("each member at x = 0:", np.round(at_data, 1))
print("each member at x = 4:", np.round(beyond, 1))
assert np.std(beyond) > 5 * np.std(at_data)
