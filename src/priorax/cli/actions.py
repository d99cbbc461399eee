"""Implementations of the commands. The rest of the package is imported late, so that `--help` is instant."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.prompt import Confirm

from priorax.cli.commands import (
    Agents,
    Apex,
    Benchmark,
    Bsuite,
    Check,
    Compare,
    Completion,
    Demo,
    Distil,
    Doctor,
    Environments,
    Fit,
    Inspect,
    Playground,
    Predict,
    Report,
    Reproduce,
    Scale,
    Testbed,
    Train,
    Watch,
)
from priorax.cli.information import (
    print_summary,
    show_agents,
    show_checks,
    show_contents,
    show_environments,
    show_installation,
)
from priorax.cli.options import as_options
from priorax.cli.training import apex, train
from priorax.progress import console, count_bar, say, share_bar


def _reproduce(command: Reproduce) -> int:
    from priorax.experiments import reproduce

    with share_bar(command.name) as report:
        result = reproduce(
            command.name,
            command.budget,
            command.out,
            report,
            announce=say,
            draw_only=command.draw_only,
        )
    return _show(command.name, result)


def _benchmark(command: Benchmark) -> int:
    from priorax.experiments import reproduce
    from priorax.experiments.tabular.panel import summary

    part = {"models": _names(command.models)} if command.models else {}
    with share_bar(command.name) as report:
        result = reproduce(command.name, command.budget, command.out, report, say, command.draw_only, **part)
    print_summary("classifications", summary(list(result.rows), "class"))
    return _show("regressions", result)


def _testbed(command: Testbed) -> int:
    from priorax.experiments import reproduce

    with share_bar("testbed") as report:
        result = reproduce(
            "testbed",
            command.budget,
            command.out,
            report,
            announce=say,
            draw_only=command.draw_only,
            methods=_names(command.methods),
        )
    return _show("KL divergence of joint predictions, relative to mlp", result)


def _compare(command: Compare) -> int:
    from priorax.experiments.compare import compare

    with share_bar("compare") as report:
        result = compare(
            _names(command.agents),
            command.env,
            [_whole(word) for word in _names(command.sizes)],
            command.seeds,
            command.episodes,
            command.preset,
            command.out,
            report,
            say,
        )
    return _show(f"episodes to learn {command.env}, median of {command.seeds} seeds", result)


def _names(words: str) -> list[str]:
    """Split comma-separated names."""
    return [word.strip() for word in words.split(",") if word.strip()]


def _whole(word: str) -> int:
    if not word.isdigit():
        raise ValueError(f"sizes={word!r} must be comma-separated integers; pass for example 5,10,15")
    return int(word)


def _show(title: str, result: Any) -> int:
    print_summary(title, result.summary)
    for path in result.paths:
        say(f"wrote {path}")
    return 0


def _scale(command: Scale) -> int:
    from priorax.agents import settings
    from priorax.checks import checked_seed
    from priorax.envs.registry import make_world, preset_for
    from priorax.training.prior_scale import propose, without_auto
    from priorax.training.request import parse_changes
    from priorax.training.setup import choose_backend

    checked_seed(command.seed)
    preset = command.preset or preset_for(command.env)
    chosen = settings(command.agent, preset, **without_auto(parse_changes(command.agent, command.set)))
    lanes = chosen.lanes if choose_backend(command.env) == "host" else 4
    options: dict[str, Any] = {"size": command.size, "game": command.game, "seed": command.seed, "hold": chosen.hold}
    with contextlib.closing(make_world(command.env, lanes, **options)) as world:
        found = propose(command.agent, chosen, world, command.seed, command.steps, command.smallest)
    print_summary(f"prior scale for {command.env}", found.summary())
    say(f"pass --set prior_scale={found.scale:.3g}, or prior_scale=auto to choose it at the start of a run")
    return 0


def _distil(command: Distil) -> int:
    from priorax.files import refuse_existing
    from priorax.training.distil import LANES, distil_run

    refuse_existing(command.out, command.overwrite)
    say(f"{LANES * command.visits:,} observations, then {command.steps:,} optimiser steps")
    found = distil_run(
        command.run, directions=command.directions, visits=command.visits, steps=command.steps, seed=command.seed
    )
    found.policy.save(command.out)
    print_summary(f"one network in place of {command.run}", found.summary())
    say(f'wrote {command.out}; in Python: priorax.load("{command.out}").predict(obs)')
    return 0


def _bsuite(command: Bsuite) -> int:
    from priorax.experiments.bsuite.sweep import run_sweep, scores, summary
    from priorax.training.request import parse_changes

    with share_bar(f"{command.agent} on bsuite's {command.sweep}") as report:
        run_sweep(
            command.agent,
            command.sweep,
            command.out,
            seed=command.seed,
            episodes=command.episodes,
            preset=command.preset,
            changes=parse_changes(command.agent, command.set),
            report=report,
            announce=say,
        )
    print_summary("bsuite scores", summary(scores(command.out, command.episodes)))
    return 0


def _completion(command: Completion) -> int:
    from priorax.cli import parse

    parse(["--tyro-print-completion", command.shell])
    return 0


def _report(command: Report) -> int:
    from priorax.report.runs_page import write_report

    say(f"wrote {write_report(command.runs, command.out)}; open it in a browser")
    return 0


def _playground(command: Playground) -> int:
    from priorax.report.viewer import write_playground

    say(f"wrote {write_playground(command.out)}; open it in a browser")
    return 0


def _watch(command: Watch) -> int:
    return _explore(command) if command.run is None else _episode(command, command.run)


def _explore(command: Watch) -> int:
    """Train agents and write a web page that shows their exploration."""
    from priorax.analysis.exploration import record_deep_sea
    from priorax.report.viewer import write_viewer

    agents = _names(command.agent)
    if command.mujoco or len(agents) > 2:
        raise ValueError(
            "--mujoco needs the folder of a run; pass the folder"
            if command.mujoco
            else f"agent={command.agent!r} has more than two names; pass one, or two separated by a comma"
        )
    recordings = []
    for agent in agents:
        with count_bar(command.episodes, f"{agent} on {command.env} {command.size}") as update:

            def told(done: int, show: Callable[[int, str], None] = update) -> None:
                show(done, "")

            recordings.append(record_deep_sea(agent, command.size, command.seed, command.episodes, report=told))
    say(f"wrote {write_viewer(recordings, command.out or Path('exploration.html'))}; open it in a browser")
    return 0


def _episode(command: Watch, run: Path) -> int:
    """Write an episode of a trained agent as a GIF."""
    from priorax.analysis.record import load, record, record_in_gymnasium, record_in_mujoco
    from priorax.envs import GYMNASIUM
    from priorax.report.episodes import array_frames, cartpole_frames, draws, write_gif
    from priorax.training.run_files import read_config
    from priorax.training.setup import choose_backend

    env = str(read_config(run).get("env"))
    if env.startswith(GYMNASIUM) and not command.mujoco:
        film = record_in_gymnasium(run, command.seed)
        out = command.out or run / "episode.gif"
        write_gif(out, array_frames(film.pictures), film.milliseconds)
        say(f"return {film.total:.1f}; wrote {out}")
        return 0
    if choose_backend(env) == "host" or env.startswith("object:"):
        raise ValueError(
            f"{env} cannot be rendered; watch a run on cartpole_swingup or in Gymnasium, or run the policy in "
            f"your own code: priorax.load({str(run)!r}).predict(obs)"
        )
    learned = load(run)
    if not draws(learned.env):
        name = type(learned.env).__name__
        raise ValueError(f"{name} cannot be rendered; watch a run on cartpole_swingup or in Gymnasium")
    out = command.out or run / "episode.gif"
    if command.mujoco:
        pictures, total = record_in_mujoco(learned, command.seed)
        write_gif(out, array_frames(pictures))
    else:
        recording = record(learned, command.seed)
        total = float(recording.rewards.sum())
        write_gif(out, cartpole_frames(recording.env, recording.states, recording.rewards))
    say(f"return {total:.1f}; wrote {out}")
    return 0


def _demo(command: Demo) -> int:
    for name, words in DEMO.items():
        console.rule(f"{name}: {words}")
        _reproduce(Reproduce(name, "quick", command.out))
    console.print(
        f"\nOpen [bold]{command.out}/figure13_quick.png[/] first: with a prior, members are uncertain far from data "
        f"whose targets are all zero. Then [bold]{command.out}/curves_quick.png[/]: this uncertainty drives "
        "exploration."
    )
    return 0


DEMO = {
    "figure13": "uncertainty of four ensembles fitted to eleven points",
    "figure12": "uncertainty with more data: the bootstrap's shrinks, dropout's does not",
    "curves": "learning curves on DeepSea 20, where one path in a million is rewarded",
}


def _fit(command: Fit) -> int:
    from priorax.tabular import fit_table

    found = fit_table(
        command.data,
        command.target,
        command.out,
        kind=command.kind,
        id=command.id,
        drop=command.drop,
        held_out=command.held_out,
        interval=command.interval,
        interval_method=command.interval_method,
        seed=command.seed,
        prior_scale=command.prior_scale,
        num_members=command.num_members,
        steps=command.steps,
        encoding=command.encoding,
        overwrite=command.overwrite,
        bar=True,
        report=lambda words: say(as_options(command, words)),
        ask=_ask if sys.stdin.isatty() and console.is_terminal else None,
    )
    _print_scores(f"{found.target}, on {found.held_out_rows} held-out rows", found.calibration)
    for path in found.paths:
        say(f"wrote {path}")
    return 0


def _print_scores(title: str, found: Any) -> None:
    """Print the calibration and scores of a model, if they were measured."""
    if found is not None:
        print_summary(title, found.summary())
        if found.classes:
            print_summary("each class against the rest", found.class_summary())


def _ask(question: str) -> bool:
    """Ask a yes-or-no question on the terminal."""
    try:
        return Confirm.ask(escape(question), console=console)
    except EOFError:
        raise ValueError(f"{question} No answer was given; pass --kind class or --kind number") from None


def _predict(command: Predict) -> int:
    from priorax.tabular import predict_table

    found = predict_table(
        command.model,
        command.data,
        command.out,
        lambda words: say(as_options(command, words)),
        id=command.id,
        interval=command.interval,
        interval_method=command.interval_method,
        page=command.report,
        encoding=command.encoding,
    )
    _print_scores(f"{found.scored_rows} rows with a known target", found.calibration)
    say(f"wrote {found.rows} predictions to {command.out}")
    for path in found.paths[1:]:
        say(f"wrote {path}")
    return 0


RUN: dict[type, Callable[[Any], int]] = {
    Check: show_checks,
    Reproduce: _reproduce,
    Train: train,
    Benchmark: _benchmark,
    Testbed: _testbed,
    Compare: _compare,
    Apex: apex,
    Watch: _watch,
    Report: _report,
    Playground: _playground,
    Demo: _demo,
    Fit: _fit,
    Predict: _predict,
    Scale: _scale,
    Inspect: show_contents,
    Distil: _distil,
    Bsuite: _bsuite,
    Agents: show_agents,
    Environments: show_environments,
    Completion: _completion,
    Doctor: show_installation,
}
"""Function of each command; it returns the exit code."""
