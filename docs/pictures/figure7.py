"""Figure 7 of the paper: one value function, or several in parallel on perturbed data. The small plots are real fits.

python docs/pictures/figure7.py
"""

from pathlib import Path

import jax
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from priorax.beliefs import Ensemble
from priorax.data_sets import form_data
from priorax.fitting import train
from priorax.networks import MLP
from priorax.priors import RandomFourier
from priorax.report.plots import BAND, MEAN, SAMPLE, STYLE, save_figure

HERE = Path(__file__).parent
BOX = {"boxstyle": "round", "fc": "#f2f4f8", "ec": "#999"}
rng = np.random.default_rng(1)
X = np.linspace(-1.3, 0.6, 12, dtype=np.float32)[:, None]
Y = 0.8 * np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(12)
GRID = np.linspace(-2, 2, 161, dtype=np.float32)[:, None]


def fitted(belief: Ensemble, noise: str) -> tuple[np.ndarray, np.ndarray]:
    """Fit a belief; get the members on the grid [member, x] and the weights of examples [member, example]."""
    key_init, key_data, key_train = jax.random.split(jax.random.key(7), 3)
    state = belief.init(key_init, X[0])
    data = form_data(belief, state, X, Y, key=key_data, noise=noise)
    state = train(belief, state, data, key=key_train, steps=2000, batch_size=None).state
    members = belief.functions(state, key_train, GRID)[:, :, 0]
    return np.asarray(members), np.asarray(data.weight)[: len(X)].T


def history(axis: Axes, weight: np.ndarray | float) -> None:
    axis.scatter(X[:, 0], Y, s=10 * np.asarray(weight), color="black", lw=0)


def value(axis: Axes, member: np.ndarray, color: str) -> None:
    axis.plot(GRID[:, 0], member, color=color, lw=1.6)
    axis.plot(X[:, 0], Y, ".", color=BAND, ms=3, zorder=1.5)


(single,), _ = fitted(Ensemble(num_members=1, network=MLP((50, 50))), "none")
several = Ensemble(num_members=3, network=MLP((50, 50)), prior=RandomFourier(0.8), prior_scale=0.8)
members, weights = fitted(several, "bootstrap")

with matplotlib.rc_context(STYLE):
    drawing = Figure(figsize=(10.5, 4.6))
    FigureCanvasAgg(drawing)
    page = drawing.add_axes((0, 0, 1, 1))
    page.set(xlim=(0, 10.5), ylim=(0, 4.6))
    page.axis("off")

    def small(x: float, y: float, title: str) -> Axes:
        """Add a plot of 1.4 x 0.9 inches with its lower left corner at (x, y)."""
        axis = drawing.add_axes((x / 10.5, y / 4.6, 1.4 / 10.5, 0.9 / 4.6))
        axis.set(xlim=(-2, 2), ylim=(-2.4, 2.4), xticks=[], yticks=[])
        axis.set_title(title, fontsize=9, pad=3)
        return axis

    def arrow(start: tuple[float, float], end: tuple[float, float], bend: float = 0.0) -> None:
        style = {"arrowstyle": "-|>", "color": "#555", "lw": 1.2, "connectionstyle": f"arc3,rad={bend}"}
        page.annotate("", end, start, arrowprops=style)

    def words(x: float, y: float, text: str, **how: object) -> None:
        page.text(x, y, text, ha="center", va="center", fontsize=9, **how)

    page.text(0.2, 4.3, "a  one value function", fontsize=11, weight="bold")
    history(small(0.3, 1.9, "data"), 1)
    arrow((1.75, 2.35), (2.15, 2.35))
    value(small(2.2, 1.9, "Q"), single, MEAN)
    words(2.9, 1.3, "act greedily", bbox=BOX)
    arrow((2.9, 1.88), (2.9, 1.47))
    arrow((2.4, 1.2), (1.0, 1.85), -0.3)
    words(1.2, 1.05, "new transitions", color="#555")

    page.axvline(4.1, 0.03, 0.97, color="#ccc", lw=1)
    page.text(4.3, 4.3, "b  several in parallel", fontsize=11, weight="bold")
    history(small(4.4, 1.9, "data"), 1)
    for k, y in enumerate((3.1, 1.9, 0.7)):
        name = "K" if k == 2 else str(k + 1)
        history(small(6.2, y, f"perturbed copy {name}"), weights[k])
        value(small(8.0, y, f"$Q_{name} = f_{name} + p_{name}$"), members[k], SAMPLE)
        arrow((5.83, 2.35 + 0.25 * (1 - k)), (6.17, y + 0.45))
        arrow((7.63, y + 0.45), (7.97, y + 0.45))
        arrow((9.43, y + 0.45), (9.72, 2.35 + 0.3 * (1 - k)))
    words(10.02, 2.35, "each\nepisode:\ndraw $k$,\nfollow\n$Q_k$", bbox=BOX)
    page.plot((10.02, 10.02, 5.1, 5.1), (1.9, 0.35, 0.35, 1.5), color="#555", lw=1.2)
    arrow((5.1, 1.4), (5.1, 1.87))
    words(7.6, 0.2, "new transitions, added to each copy with probability 1/2", color="#555")

save_figure(drawing, HERE, "figure7", ("png",))
