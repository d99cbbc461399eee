"""Choosing the prior scale by the likelihood of out-of-distribution data."""

import numpy as np

from priorax import PriorEnsembleRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (200, 1))
y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(200)

outside = np.abs(X[:, 0]) > 1.5  # not a random split: predictions outside the training data
settings = {"num_members": 10, "heteroscedastic": True, "steps": 1000, "random_state": 0}
scores = {}
for scale in (0.3, 1.0, 3.0, 10.0):
    model = PriorEnsembleRegressor(prior_scale=scale, **settings)
    found = model.fit(X[~outside], y[~outside]).predict_uncertainty(X[outside])
    error = (y[outside] - found.mean) / found.total
    scores[scale] = np.mean(-0.5 * error**2 - np.log(found.total))
    print(f"prior_scale {scale:4}: log likelihood of a point outside {scores[scale]:7.2f}")

print("best:", max(scores, key=scores.get))
