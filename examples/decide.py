"""Bayesian optimisation of a function with several minima, in rounds of four parallel evaluations; ends in a plot."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from priorax.decide import Optimizer, Real


def branin(x0: float, x1: float) -> float:
    valley = x1 - 5.1 / (4 * np.pi**2) * x0**2 + 5 / np.pi * x0 - 6
    return float(valley**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x0) + 10)


optimizer = Optimizer({"x0": Real(-5, 10), "x1": Real(0, 15)}, seed=0)
for round_ in range(8):
    proposals = optimizer.ask(4)
    optimizer.tell(proposals, [branin(**x) for x in proposals])
    print(f"{4 * (round_ + 1):3} evaluations: best {optimizer.best.y:.3f}")

values = [one.y for one in optimizer.evaluations]
assert optimizer.best.y < np.median(values)

x0, x1 = np.meshgrid(np.linspace(-5, 10, 80), np.linspace(0, 15, 80))
figure, axis = plt.subplots(figsize=(5, 4))
axis.contourf(x0, x1, np.log(np.vectorize(branin)(x0, x1)), levels=20)
points = np.array([list(one.x.values()) for one in optimizer.evaluations])
axis.scatter(*points.T, c=np.arange(len(points)), cmap="Reds", edgecolors="k", s=25)
axis.set(xlabel="x0", ylabel="x1", title="Evaluated points, later ones darker")
figure.savefig("decide.png")
