"""A prior learned from past tasks: with it, three points determine a wave."""

import numpy as np

from priorax import PriorEnsembleRegressor, learn_prior, load_prior, save_prior
from priorax.beliefs import L2
from priorax.networks import MLP
from priorax.noise import Gaussian

rng = np.random.default_rng(0)
grid = np.linspace(-3, 3, 100)[:, None]


def new_task():
    """A sine wave of random amplitude and phase."""
    size, phase = rng.uniform(0.5, 2.0), rng.uniform(0, 2 * np.pi)
    return lambda x: size * np.sin(x[:, 0] + phase)


# 1. Ten past tasks: their functions at common inputs, here as measured with noise.
past = [new_task()(grid) + 0.1 * rng.normal(size=100) for _ in range(10)]
prior = learn_prior(grid, past, network=MLP((50, 50), "tanh"), steps=2000)
save_prior("waves.prior", prior)

# 2. Another task of the family, seen at three points.
truth = new_task()
X = np.array([[-2.0], [0.0], [1.0]])
y = truth(X)
settings = {"num_members": 10, "standardize": False, "noise": Gaussian(0.1), "steps": 2000, "random_state": 0}
errors = {}
for name, chosen in {
    "random prior": {},
    "learned prior": {"prior": prior, "network": prior.member(), "l2": L2(0.1**2)},
}.items():
    model = PriorEnsembleRegressor(**settings, **chosen).fit(X, y)
    errors[name] = np.sqrt(np.mean((model.predict(grid) - truth(grid)) ** 2))
    print(f"{name}: error {errors[name]:.2f}")
assert errors["learned prior"] < 0.5 * errors["random prior"]
assert load_prior("waves.prior") == prior
