"""Any agent on bsuite itself: its environments, its numbers of episodes, its CSV files, its scores.

The folder of results is its own memory: an id whose file is whole is not run again, and one that is not begins anew.
bsuite reads it as it is (`bsuite.logging.csv_load.load_bsuite`), and so do its notebooks.

bsuite's own scoring is called where it runs. With the pandas of today that of `deep_sea` and `deep_sea_stochastic` does
not (it calls `Series.append`, which is gone); there its rule, written out in `RULES`, takes its place. `RULES` also has
that of five others, all checked against bsuite's.
"""

import contextlib
import csv
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from priorax.agents import Settings, settings
from priorax.checks import checked_seed, one_of, positive_int
from priorax.envs.host.dm import bsuite_experiments, bsuite_world, checked_bsuite_id, imported
from priorax.envs.registry import BSUITE
from priorax.experiments import Report, prepare_folder
from priorax.storage import write_atomically
from priorax.training.backends.host import host_for
from priorax.training.request import preset_for
from priorax.version import __version__

TENTHS = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)
"""bsuite writes a row after so many tenths of a power of ten episodes."""
ASKED = "sweep.json"
"""Says what the folder's results are of."""


class Ran(NamedTuple):
    """What became of one id."""

    bsuite_id: str
    outcome: str
    """played; there already; or why it was refused."""
    episodes: int
    """Played now."""
    mean_return: float | None
    """Of those."""


def sweep_ids(sweep: str) -> tuple[str, ...]:
    """The ids of `all`, of a tag (`exploration`), of an experiment (`deep_sea`), or that one (`deep_sea/3`)."""
    known = imported("bsuite.sweep")
    if "/" in sweep:
        checked_bsuite_id(sweep)
        return (sweep,)
    experiments = bsuite_experiments()
    one_of("sweep", sweep, ("all", *known.TAGS, *experiments))
    if sweep in experiments:
        return tuple(f"{sweep}/{i}" for i in range(experiments[sweep]))
    return tuple(known.SWEEP if sweep == "all" else known.TAGS[sweep])


def run_sweep(
    agent: str,
    sweep: str,
    out: Path,
    *,
    seed: int = 0,
    episodes: int | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    report: Report = lambda share, what: None,
    announce: Callable[[str], None] = lambda words: None,
) -> list[Ran]:
    """Train the agent on every id of a sweep (`sweep_ids`), each for bsuite's own number of episodes, or for `episodes`
    if these are fewer. An id that cannot be loaded here is told and left out."""
    ids = sweep_ids(sweep)
    checked_seed(seed)
    if episodes is not None:
        positive_int("episodes", episodes)
    chosen = {bsuite_id: _settings(agent, preset or preset_for(BSUITE + bsuite_id), changes or {}) for bsuite_id in ids}
    out = Path(out)
    prepare_folder(out)
    asked = {"agent": agent, "seed": seed, "preset": preset, "changes": dict(changes or {}), "version": __version__}
    _claim(out, asked)
    whole = [bsuite_id for bsuite_id in ids if is_whole(out, bsuite_id, episodes)]
    announce(f"{len(whole)} of {len(ids)} ids are there; stop it when you like, it goes on with the others from {out}")
    found = []
    for i, bsuite_id in enumerate(ids):
        if bsuite_id in whole:
            found.append(Ran(bsuite_id, "there already", 0, None))
            continue

        def told(share: float, what: str, i: int = i) -> None:
            report((i + share) / len(ids), what)

        found.append(_play(bsuite_id, chosen[bsuite_id], out, seed, _most(bsuite_id, episodes), told))
        if found[-1].outcome != "played":
            announce(found[-1].outcome)
    report(1.0, f"{sum(ran.episodes for ran in found):,} episodes")
    return found


def _settings(agent: str, preset: str, changes: Mapping[str, Any]) -> Settings:
    if changes.get("lanes", 1) != 1:
        raise ValueError(f"lanes={changes['lanes']} must be 1; bsuite counts the episodes of one")
    return settings(agent, preset, **{**changes, "lanes": 1})


def _claim(out: Path, asked: dict[str, Any]) -> None:
    """Refuse a folder with the results of something else: they would be taken for these."""
    path = out / ASKED
    there = json.loads(path.read_text()) if path.exists() else None
    asked = json.loads(json.dumps(asked))
    if there == asked:
        return
    if any(out.glob(f"{imported('bsuite.logging.csv_logging').BSUITE_PREFIX}*.csv")):
        of = there or "something else"
        raise ValueError(f"out={str(out)!r} holds results of {of}, and not of {asked}; choose another folder")
    write_atomically(path, json.dumps(asked).encode())


def _play(bsuite_id: str, chosen: Settings, out: Path, seed: int, most: int, report: Report) -> Ran:
    """All its episodes, from the start."""
    seed = _seed_of(bsuite_id, seed)
    try:
        world = bsuite_world(bsuite_id, out, hold=chosen.hold)
    except ValueError as error:
        return Ran(bsuite_id, str(error), 0, None)
    returns: list[float] = []
    told = -math.inf
    with contextlib.closing(world):
        host = host_for(chosen, world, seed)
        while len(returns) < most:
            returns.extend(played.total_return for played in host.round())
            if time.perf_counter() - told > 0.5:
                told = time.perf_counter()
                last = f", mean return of the last 100: {np.mean(returns[-100:]):.3g}" if returns else ""
                report(len(returns) / most, f"{bsuite_id}: {len(returns):,} of {most:,} episodes{last}")
    return Ran(bsuite_id, "played", len(returns), float(np.mean(returns)))


def _seed_of(bsuite_id: str, seed: int) -> int:
    """Ids that are the same task twenty times (`catch`) are to differ in their seed."""
    place = imported("bsuite.sweep").SWEEP.index(bsuite_id)
    return int(np.random.SeedSequence((seed, place)).generate_state(1)[0] >> 2)


def _most(bsuite_id: str, episodes: int | None) -> int:
    own = int(imported("bsuite.sweep").EPISODES[bsuite_id])
    return own if episodes is None else min(episodes, own)


def last_logged(episodes: int) -> int:
    """The last of so many episodes after which bsuite writes a row."""
    powers = [10**k for k in range(len(str(episodes)))]
    return max(n for power in powers for tenths in TENTHS if (n := tenths * power // 10) <= episodes)


Rows = list[dict[str, float]]
"""Of one id, in the order of its episodes."""


def recorded(out: Path, bsuite_id: str) -> Rows:
    """What bsuite wrote of that id; nothing where there is no file, or one that was cut short while it was written."""
    logging = imported("bsuite.logging.csv_logging")
    path = Path(out) / f"{logging.BSUITE_PREFIX}{bsuite_id.replace('/', logging.SAFE_SEPARATOR)}.csv"
    text = path.read_text() if path.exists() else ""
    if not text.endswith("\n"):
        return []
    try:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(text.splitlines())]
    except (ValueError, TypeError):
        return []


def is_whole(out: Path, bsuite_id: str, episodes: int | None = None) -> bool:
    """Whether its file goes to the last row of its episodes, or of so many."""
    rows = recorded(out, bsuite_id)
    return bool(rows) and rows[-1]["episode"] >= last_logged(_most(bsuite_id, episodes))


class Score(NamedTuple):
    """bsuite's, of one experiment."""

    experiment: str
    score: float | None
    """Between 0 and 1, of the finished ids alone; None where there is none, or no rule that runs."""
    finished: int
    """Ids."""
    ids: int
    """That bsuite has."""
    episodes: int
    """Of each id, that were looked at."""
    all_episodes: int
    """That bsuite asks for."""
    by: str
    """Whose code: bsuite's or ours, and then why."""


def scores(out: Path, episodes: int | None = None) -> list[Score]:
    """Of every experiment that has a file in the folder. Where `episodes` are fewer than bsuite's own number, as many
    are enough to be finished, and no more are looked at."""
    known = imported("bsuite.sweep")
    found = []
    for experiment, count in bsuite_experiments().items():
        ids = [f"{experiment}/{i}" for i in range(count)]
        if not any(recorded(out, bsuite_id) for bsuite_id in ids):
            continue
        most = _most(ids[0], episodes)
        finished = [bsuite_id for bsuite_id in ids if is_whole(out, bsuite_id, episodes)]
        score, by = _score(experiment, out, finished, last_logged(most)) if finished else (None, "")
        found.append(Score(experiment, score, len(finished), count, most, int(known.EPISODES[ids[0]]), by))
    return found


def _score(experiment: str, out: Path, ids: Sequence[str], last: int) -> tuple[float | None, str]:
    try:
        return bsuites_score(experiment, out, ids, last), "bsuite's"
    except (AttributeError, TypeError) as error:  # what a newer pandas no longer has, or does
        why = f"bsuite's fails: {error}"
    if experiment not in RULES:
        return None, why
    return own_score(experiment, out, ids, last), f"ours ({why})"


def bsuites_score(experiment: str, out: Path, ids: Sequence[str], last: int) -> float:
    """By bsuite's own code, of those ids, up to that episode."""
    with matplotlib.rc_context():  # it changes how all figures look
        analysis = imported(f"bsuite.experiments.{experiment}.analysis")
    rows = [{**row, "bsuite_id": bsuite_id} for bsuite_id in ids for row in _until(last, out, bsuite_id)]
    frame = imported("pandas").DataFrame(rows)
    return float(analysis.score(imported("bsuite.logging.logging_utils").join_metadata(frame)))


def own_score(experiment: str, out: Path, ids: Sequence[str], last: int) -> float:
    """By bsuite's rule, written out."""
    runs = [_until(last, out, bsuite_id) for bsuite_id in ids]
    return RULES[experiment](runs, [imported("bsuite.sweep").SETTINGS[bsuite_id] for bsuite_id in ids])


def _until(last: int, out: Path, bsuite_id: str) -> Rows:
    return [row for row in recorded(out, bsuite_id) if row["episode"] <= last]


Rule = Callable[[Sequence[Rows], Sequence[Mapping[str, Any]]], float]
"""From the rows and the settings of each id to a score."""


def _little_regret(runs: Sequence[Rows], worst: float, regret: Callable[[dict[str, float]], float]) -> float:
    """1 for no regret, 0 for the worst an episode."""
    mean = np.mean([regret(rows[-1]) / rows[-1]["episode"] for rows in runs])
    return float(np.clip(1 - mean / worst, 0, 1))


def _share_above(runs: Sequence[Rows], good: float) -> float:
    """Of ids whose best episode is above."""
    return float(np.mean([rows[-1]["best_episode"] > good for rows in runs]))


def _regret(worst: float) -> Rule:
    return lambda runs, _: _little_regret(runs, worst, lambda row: row["total_regret"])


def _mountain_car(runs: Sequence[Rows], _: Any) -> float:
    return _little_regret(runs, 1000.0, lambda row: -100 * row["episode"] - row["raw_return"])


def _cartpole(runs: Sequence[Rows], _: Any) -> float:
    regret = _little_regret(runs, 1000.0, lambda row: 1000 * row["episode"] - row["raw_return"])
    return 0.5 * (regret + _share_above(runs, 500.0))


def _swingup(runs: Sequence[Rows], _: Any) -> float:
    def one(run: Rows) -> float:
        regret = _little_regret([run], 700.0, lambda row: 700 * row["episode"] - row["total_return"])
        return 0.5 * (regret + _share_above([run], 100.0))

    return float(np.mean([one(run) for run in runs]))


def _deep_sea(below: float, since: int) -> Rule:
    """The share of sizes N in which the share of bad episodes was once below, sooner than after 2^N + 100."""

    def learned(rows: Rows, size: int) -> bool:
        good = (row for row in rows if row["episode"] >= since and row["total_bad_episodes"] / row["episode"] < below)
        return next((row["episode"] for row in good), math.inf) < 2.0**size + 100

    return lambda runs, asked: float(
        np.mean([learned(rows, each["size"]) for rows, each in zip(runs, asked, strict=True)])
    )


RULES: dict[str, Rule] = {
    "bandit": _regret(0.5),
    "catch": _regret(1.6),
    "mountain_car": _mountain_car,
    "cartpole": _cartpole,
    "cartpole_swingup": _swingup,
    "deep_sea": _deep_sea(0.9, 1),
    "deep_sea_stochastic": _deep_sea(0.8, 100),
}
"""bsuite's rules in our words."""


def summary(found: Sequence[Score]) -> list[tuple[str, ...]]:
    """The scores, and how much of bsuite they are of."""
    table: list[tuple[str, ...]] = [("experiment", "score", "ids finished", "episodes", "scored by")]
    for each in found:
        table.append(
            (
                each.experiment,
                "-" if each.score is None else f"{each.score:.2f}",
                f"{each.finished} of {each.ids}",
                f"{each.episodes:,} of {each.all_episodes:,}",
                each.by or "nobody: no id is finished",
            )
        )
    return table
