"""Any agent on bsuite's own environments, with its numbers of episodes, CSV logs and scores.

The folder of results records what has been done: an id whose log is complete is not run again, and an incomplete one
starts over. bsuite (`bsuite.logging.csv_load.load_bsuite`) and its notebooks can read the folder.

Scores are computed by bsuite's own code where it runs. With current pandas that of `deep_sea` and `deep_sea_stochastic`
does not (it calls `Series.append`, which was removed); `RULES` implements those and five others, all tested against
bsuite.
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
from priorax.envs.catalogue import BSUITE
from priorax.envs.host.dm import bsuite_experiments, bsuite_world, checked_bsuite_id, imported
from priorax.envs.registry import preset_for
from priorax.experiments import Report, prepare_folder
from priorax.experiments.bsuite.rules import DEEP_SEA, learned_in_time, swingup_score
from priorax.files import write_atomically
from priorax.training.backends.host import HostBackend, build_for
from priorax.version import __version__

TENTHS = (10, 12, 14, 17, 20, 25, 30, 40, 50, 60, 70, 80, 90)
"""bsuite logs a row when the number of episodes is one of these tenths of a power of ten."""
SWEEP_FILE = "sweep.json"
"""File that records what the results in a folder are of."""


class Ran(NamedTuple):
    """The outcome of one bsuite id."""

    bsuite_id: str
    """The id."""
    outcome: str
    """Whether it was played, was complete already, or why it was skipped."""
    episodes: int
    """Episodes played."""
    mean_return: float | None
    """Mean return of these episodes."""


def sweep_ids(sweep: str) -> tuple[str, ...]:
    """Return the bsuite ids of a sweep.

    Args:
        sweep: `all`, a tag (`exploration`), an experiment (`deep_sea`), or an id (`deep_sea/3`).

    Returns:
        The ids.

    Raises:
        ValueError: If it is unknown, or bsuite is not installed.
    """
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
    """Train an agent on every id of a sweep.

    Each id is run for bsuite's own number of episodes, or for `episodes` if that is less. Ids that cannot be loaded are
    reported and skipped.

    Args:
        agent: Name of the agent.
        sweep: The ids (see `sweep_ids`).
        out: The folder for bsuite's logs.
        seed: Random seed.
        episodes: Most episodes of an id.
        preset: Preset of hyperparameters; by default chosen by the environment.
        changes: Changed settings.
        report: Called with the fraction of work done and a word on the current work.
        announce: Called with messages for the user.

    Returns:
        The outcome of each id.

    Raises:
        ValueError: If a name or setting is unknown, or the folder holds results of something else.
    """
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
    announce(f"{len(whole)} of {len(ids)} ids are done; it can be stopped at any time, and continues from {out}")
    found = []
    for i, bsuite_id in enumerate(ids):
        if bsuite_id in whole:
            found.append(Ran(bsuite_id, "there already", 0, None))
            continue

        def told(share: float, what: str, i: int = i) -> None:
            report((i + share) / len(ids), what)

        found.append(_play(bsuite_id, agent, chosen[bsuite_id], out, seed, _most(bsuite_id, episodes), told))
        if found[-1].outcome != "played":
            announce(found[-1].outcome)
    report(1.0, f"{sum(ran.episodes for ran in found):,} episodes")
    return found


def _settings(agent: str, preset: str, changes: Mapping[str, Any]) -> Settings:
    if changes.get("lanes", 1) != 1:
        raise ValueError(f"lanes={changes['lanes']} must be 1, since bsuite logs a single environment; leave lanes out")
    return settings(agent, preset, **{**changes, "lanes": 1})


def _claim(out: Path, asked: dict[str, Any]) -> None:
    """Record what the results in a folder are of; raise an error if it has results of another agent or setting."""
    path = out / SWEEP_FILE
    there = json.loads(path.read_text()) if path.exists() else None
    asked = json.loads(json.dumps(asked))
    if there == asked:
        return
    if any(out.glob(f"{imported('bsuite.logging.csv_logging').BSUITE_PREFIX}*.csv")):
        of = there or "something else"
        raise ValueError(f"out={str(out)!r} holds results of {of}, and not of {asked}; choose another folder")
    write_atomically(path, json.dumps(asked).encode())


def _play(bsuite_id: str, agent: str, chosen: Settings, out: Path, seed: int, most: int, report: Report) -> Ran:
    """Run all episodes of an id, from the start."""
    seed = _seed_of(bsuite_id, seed)
    try:
        world = bsuite_world(bsuite_id, out, hold=chosen.hold)
    except ValueError as error:
        return Ran(bsuite_id, str(error), 0, None)
    returns: list[float] = []
    told = -math.inf
    with contextlib.closing(world):
        host = HostBackend(build_for(agent, chosen, world), world, seed, chosen)
        while len(returns) < most:
            returns.extend(ended.total_return for ended in host.advance(None, lambda _: False))
            if time.perf_counter() - told > 0.5:
                told = time.perf_counter()
                last = f", mean return of the last 100: {np.mean(returns[-100:]):.3g}" if returns else ""
                report(len(returns) / most, f"{bsuite_id}: {len(returns):,} of {most:,} episodes{last}")
    return Ran(bsuite_id, "played", len(returns), float(np.mean(returns)))


def _seed_of(bsuite_id: str, seed: int) -> int:
    """Derive a seed for each id, since some experiments (`catch`) are the same task twenty times."""
    place = imported("bsuite.sweep").SWEEP.index(bsuite_id)
    return int(np.random.SeedSequence((seed, place)).generate_state(1)[0] >> 2)


def _most(bsuite_id: str, episodes: int | None) -> int:
    own = int(imported("bsuite.sweep").EPISODES[bsuite_id])
    return own if episodes is None else min(episodes, own)


def last_logged(episodes: int) -> int:
    """Return the last episode after which bsuite logs a row.

    Args:
        episodes: Number of episodes.

    Returns:
        The episode.
    """
    powers = [10**k for k in range(len(str(episodes)))]
    return max(n for power in powers for tenths in TENTHS if (n := tenths * power // 10) <= episodes)


Rows = list[dict[str, float]]
"""Rows of bsuite's log of one id, in the order of episodes."""


def recorded(out: Path, bsuite_id: str) -> Rows:
    """Read bsuite's log of an id.

    Args:
        out: The folder.
        bsuite_id: The id.

    Returns:
        The rows; empty if there is no log, or it is incomplete.
    """
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
    """Return whether the log of an id is complete.

    Args:
        out: The folder.
        bsuite_id: The id.
        episodes: Most episodes of an id; by default bsuite's own number.

    Returns:
        Whether it is.
    """
    rows = recorded(out, bsuite_id)
    return bool(rows) and rows[-1]["episode"] >= last_logged(_most(bsuite_id, episodes))


class Score(NamedTuple):
    """bsuite's score of one experiment."""

    experiment: str
    """The experiment."""
    score: float | None
    """The score of the finished ids, between 0 and 1; None if there is none, or no rule that runs."""
    finished: int
    """Number of finished ids."""
    ids: int
    """Number of ids in bsuite."""
    episodes: int
    """Episodes of each id that were scored."""
    all_episodes: int
    """Episodes of each id in bsuite."""
    by: str
    """The implementation that computed it: bsuite's, or ours with the reason."""


def scores(out: Path, episodes: int | None = None) -> list[Score]:
    """Score every experiment that has a log in a folder.

    Args:
        out: The folder.
        episodes: Most episodes of an id, if fewer than bsuite's number: so many count as finished, and later ones are
            ignored.

    Returns:
        The scores.
    """
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
    except (AttributeError, TypeError) as error:  # bsuite's code uses what newer versions of pandas have removed
        why = f"bsuite's fails: {error}"
    if experiment not in RULES:
        return None, why
    return own_score(experiment, out, ids, last), f"ours ({why})"


def bsuites_score(experiment: str, out: Path, ids: Sequence[str], last: int) -> float:
    """Compute a score with bsuite's own code.

    Args:
        experiment: The experiment.
        out: The folder.
        ids: The ids to score.
        last: The last episode to score.

    Returns:
        The score.
    """
    with matplotlib.rc_context():  # it changes how all figures look
        analysis = imported(f"bsuite.experiments.{experiment}.analysis")
    rows = [{**row, "bsuite_id": bsuite_id} for bsuite_id in ids for row in _until(last, out, bsuite_id)]
    frame = imported("pandas").DataFrame(rows)
    return float(analysis.score(imported("bsuite.logging.logging_utils").join_metadata(frame)))


def own_score(experiment: str, out: Path, ids: Sequence[str], last: int) -> float:
    """Compute a score with our implementation of bsuite's rule.

    Args:
        experiment: The experiment.
        out: The folder.
        ids: The ids to score.
        last: The last episode to score.

    Returns:
        The score.
    """
    runs = [_until(last, out, bsuite_id) for bsuite_id in ids]
    return RULES[experiment](runs, [imported("bsuite.sweep").SETTINGS[bsuite_id] for bsuite_id in ids])


def _until(last: int, out: Path, bsuite_id: str) -> Rows:
    return [row for row in recorded(out, bsuite_id) if row["episode"] <= last]


Rule = Callable[[Sequence[Rows], Sequence[Mapping[str, Any]]], float]
"""Computes a score from the rows and the settings of each id."""


def _little_regret(runs: Sequence[Rows], worst: float, regret: Callable[[dict[str, float]], float]) -> float:
    """Score the mean regret per episode: 1 for none, 0 for `worst` or more."""
    mean = np.mean([regret(rows[-1]) / rows[-1]["episode"] for rows in runs])
    return float(np.clip(1 - mean / worst, 0, 1))


def _share_above(runs: Sequence[Rows], good: float) -> float:
    """Compute the fraction of ids whose best episode returned more than `good`."""
    return float(np.mean([rows[-1]["best_episode"] > good for rows in runs]))


def _regret(worst: float) -> Rule:
    return lambda runs, _: _little_regret(runs, worst, lambda row: row["total_regret"])


def _mountain_car(runs: Sequence[Rows], _: Any) -> float:
    return _little_regret(runs, 1000.0, lambda row: -100 * row["episode"] - row["raw_return"])


def _cartpole(runs: Sequence[Rows], _: Any) -> float:
    regret = _little_regret(runs, 1000.0, lambda row: 1000 * row["episode"] - row["raw_return"])
    return 0.5 * (regret + _share_above(runs, 500.0))


def _swingup(runs: Sequence[Rows], _: Any) -> float:
    last = [run[-1] for run in runs]
    return float(np.mean([swingup_score(row["total_return"] / row["episode"], row["best_episode"]) for row in last]))


def _deep_sea(below: float, since: int) -> Rule:
    """Score the fraction of sizes N whose fraction of bad episodes fell below a limit before episode 2^N + 100."""

    def learned(rows: Rows, size: int) -> bool:
        good = (row for row in rows if row["episode"] >= since and row["total_bad_episodes"] / row["episode"] < below)
        return learned_in_time(next((row["episode"] for row in good), math.inf), size)

    return lambda runs, asked: float(
        np.mean([learned(rows, each["size"]) for rows, each in zip(runs, asked, strict=True)])
    )


RULES: dict[str, Rule] = {
    "bandit": _regret(0.5),
    "catch": _regret(1.6),
    "mountain_car": _mountain_car,
    "cartpole": _cartpole,
    "cartpole_swingup": _swingup,
    **{form: _deep_sea(*rule) for form, rule in DEEP_SEA.items()},
}
"""Our implementations of bsuite's scoring rules."""


def summary(found: Sequence[Score]) -> list[tuple[str, ...]]:
    """Tabulate scores, and the part of bsuite that they cover.

    Args:
        found: The scores.

    Returns:
        The table: a header, then rows.
    """
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
