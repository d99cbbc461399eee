"""Regression with epistemic uncertainty: data on [-1, 1], predictions far outside."""

import numpy as np

from priorax import PriorEnsembleRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (100, 1))
y = np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(100)

model = PriorEnsembleRegressor(random_state=0).fit(X, y)

points = np.array([[0.0], [0.5], [2.0], [5.0]])
mean, std = model.predict(points, return_std=True)
for x, m, s in zip(points[:, 0], mean, std, strict=True):
    print(f"x = {x:3.1f}   mean {m:6.2f}   epistemic standard deviation {s:5.2f}")
assert std[3] > 5 * std[0]

functions = model.sample(points, num_samples=3)  # functions drawn from the ensemble, as for Thompson sampling
print("three draws at x = 5:", functions[:, 3].round(2))

model.save("regression.safetensors")
again = PriorEnsembleRegressor.load("regression.safetensors")
assert np.array_equal(again.predict(points), mean)
