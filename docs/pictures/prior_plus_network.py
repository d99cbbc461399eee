"""Prior + trained network = member, three times, and the ensemble: python docs/pictures/prior_plus_network.py"""

from pathlib import Path

import jax
import numpy as np

from priorax import fit
from priorax.beliefs import Ensemble
from priorax.networks import MLP
from priorax.priors import RandomFourier
from priorax.report.plots import BAND, MEAN, SAMPLE, panels, save_figure

HERE = Path(__file__).parent
SCALE = 1.5
PRIOR, TRAINED = "#b8860b", "#4a8f5a"
X = np.linspace(-0.8, 0.6, 11, dtype=np.float32)[:, None]
Y = np.sin(4 * X[:, 0])
GRID = np.linspace(-2, 2, 161, dtype=np.float32)[:, None]

belief = Ensemble(num_members=20, network=MLP((50, 50)), prior=RandomFourier(0.8), prior_scale=SCALE)
state = fit(belief, (X, Y), key=jax.random.key(5), noise="none", steps=3000, batch_size=None).state
members = np.asarray(belief.functions(state, jax.random.key(0), GRID))[:, :, 0]
priors = SCALE * np.asarray(belief.prior_values(state, GRID))[:, :, 0, 0]

drawing, axes = panels(1, 4, width=3.0, height=2.9)
for k, axis in enumerate(axes[0, :3]):
    axis.plot(GRID, priors[k], color=PRIOR, lw=1.4, ls="--", label="prior, fixed: p")
    axis.plot(GRID, members[k] - priors[k], color=TRAINED, lw=1.4, ls=":", label="trained: f")
    axis.plot(GRID, members[k], color=SAMPLE, lw=1.8, label="member: f + p")
    axis.set(title=f"member {k + 1}", xlabel="x")
last = axes[0, 3]
mean, std = members.mean(axis=0), members.std(axis=0)
for times, alpha in ((2, 0.25), (1, 0.6)):
    last.fill_between(GRID[:, 0], mean - times * std, mean + times * std, color=BAND, alpha=alpha, lw=0)
last.plot(GRID, members[:3].T, color=SAMPLE, lw=1.0, alpha=0.8)
last.plot(GRID, mean, color=MEAN, lw=1.8, label="mean of all 20")
last.set(title="the ensemble: ± 1 and 2 std", xlabel="x", ylim=(-7, 7))
for axis in axes[0]:
    axis.plot(X, Y, "k.", ms=6, zorder=4, label="data")
handles = {}
for axis in axes[0]:
    handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
drawing.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
save_figure(drawing, HERE, "prior_plus_network", ("png",))
