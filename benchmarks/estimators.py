"""Fitting and predicting against scikit-learn's bagged MLPs: same nets, batch size and number of steps."""

import resource
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from benchmarks.base import Bench, best_interleaved, seconds
from priorax import PriorEnsembleRegressor

MEMBERS, STEPS, BATCH, ROWS = 20, 2000, 128, 1000


def run() -> Iterator[Bench]:
    random = np.random.default_rng(0)
    x = random.standard_normal((ROWS, 10)).astype(np.float32)
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    many = random.standard_normal((100_000, 10)).astype(np.float32)
    epochs = STEPS // -(-ROWS // BATCH)
    for widths, target in (((50, 50), 8.0), ((20, 20), 12.0)):
        net = MLPRegressor(
            hidden_layer_sizes=widths,
            solver="adam",
            batch_size=BATCH,
            max_iter=epochs,
            tol=0.0,
            n_iter_no_change=STEPS,
            alpha=0.0,
        )
        peer = BaggingRegressor(net, n_estimators=MEMBERS, n_jobs=1, random_state=0)
        ours = PriorEnsembleRegressor(
            MEMBERS, hidden_widths=widths, steps=STEPS, batch_size=BATCH, patience=STEPS, random_state=0
        )  # the out-of-bag error is computed, but does not stop it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            first = seconds(lambda ours=ours: ours.fit(x, y))
            peer_time, our_time = best_interleaved(
                {"peer": lambda peer=peer: peer.fit(x, y), "ours": lambda ours=ours: ours.fit(x, y)}, repeats=2
            ).values()
        note = f"{our_time:.2f} s against {peer_time:.1f} s; compilation apart: {first - our_time:.1f} s"
        yield Bench(f"fit {widths}: times faster than bagged MLPRegressor", peer_time / our_time, target, True, note)
        if widths == (50, 50):
            works = {
                "peer": lambda peer=peer: peer.predict(many),
                "ours": lambda ours=ours: ours.predict(many, return_std=True),
            }
            works["ours"]()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            works["ours"]()
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            times = best_interleaved(works, repeats=8)
            yield Bench(
                "predict with std, 100,000 rows: times faster than bagging's mean",
                times["peer"] / times["ours"],
                2.0,
                True,
                f"{times['ours']:.2f} s against {times['peer']:.2f} s; peak memory grew by {grown:.0f} MB",
            )
