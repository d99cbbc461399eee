"""Classification with epistemic and aleatoric uncertainty, and abstention far from the data."""

import numpy as np
from sklearn.datasets import make_moons

from priorax import PriorEnsembleClassifier

X, y = make_moons(300, noise=0.25, random_state=0)
model = PriorEnsembleClassifier(prior_scale=3.0, steps=1000, random_state=0).fit(X, y)

points = {
    "inside a moon": [0.0, 1.0],
    "between the moons": [0.5, 0.25],
    "far from all data": [8.0, 8.0],
}
found = model.predict_uncertainty(list(points.values()))
for place, proba, epistemic, aleatoric in zip(points, found.mean, found.epistemic, found.aleatoric, strict=True):
    print(f"{place:18}  P(1) = {proba[1]:.2f}   epistemic {epistemic:.3f}   aleatoric {aleatoric:.3f} nats")

inside, _, far = found.epistemic
assert far > 3 * inside

limit = np.quantile(model.predict_uncertainty(X).epistemic, 0.99)
labels = model.predict(list(points.values()))
for place, label, doubt in zip(points, labels, found.epistemic, strict=True):
    print(f"{place:18}  {label if doubt <= limit else 'abstain'}")
