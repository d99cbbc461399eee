"""Implementations of the commands. The rest of the package is imported late, so that `--help` is instant."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.prompt import Confirm
from rich.table import Table

from priorax.cli.commands import (
    Agents,
    Apex,
    Bsuite,
    Check,
    Compare,
    Completion,
    Demo,
    Doctor,
    Environments,
    Fit,
    Inspect,
    Playground,
    Predict,
    Report,
    Reproduce,
    Scale,
    Train,
    Watch,
)
from priorax.cli.options import as_options
from priorax.cli.training import apex, train
from priorax.progress import console, count_bar, say, share_bar


def _check(command: Check) -> int:
    from priorax.sanity import run_checks

    with share_bar("checking") as report:
        checks = run_checks(report)
    table = Table("", "lemma", "claim", "measured", "theory", title="Checks of the paper's lemmas")
    for check in checks:
        sign = "[green]✓[/]" if check.passed else "[bold red]✗[/]"
        note = f"\n[dim]{check.note}[/]" if check.note else ""
        table.add_row(sign, check.lemma, check.claim + note, f"{check.measured:.4g}", check.theory)
    console.print(table)
    failed = sum(not check.passed for check in checks)
    console.print(f"{len(checks) - failed} of {len(checks)} passed")
    return 1 if failed else 0


def _reproduce(command: Reproduce) -> int:
    from priorax.experiments import reproduce

    with share_bar(command.name) as report:
        result = reproduce(
            command.name,
            command.preset,
            command.out,
            report,
            announce=say,
            draw_only=command.draw_only,
        )
    return _show(command.name, result)


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
    _print_summary(title, result.summary)
    for path in result.paths:
        say(f"wrote {path}")
    return 0


def _scale(command: Scale) -> int:
    from priorax.agents import settings
    from priorax.checks import checked_seed
    from priorax.envs.registry import lives_on_host, make_world, preset_for
    from priorax.training.prior_scale import propose, without_auto
    from priorax.training.request import parse_changes

    checked_seed(command.seed)
    preset = command.preset or preset_for(command.env)
    chosen = settings(command.agent, preset, **without_auto(parse_changes(command.agent, command.set)))
    lanes = chosen.lanes if lives_on_host(command.env) else 4
    asked: dict[str, Any] = {"size": command.size, "game": command.game, "seed": command.seed, "hold": chosen.hold}
    with contextlib.closing(make_world(command.env, lanes, **asked)) as world:
        found = propose(command.agent, chosen, world, command.seed, command.steps, command.smallest)
    _print_summary(f"prior scale for {command.env}", found.summary())
    say(f"pass --set prior_scale={found.scale:.3g}, or prior_scale=auto to choose it at the start of a run")
    return 0


def _inspect(command: Inspect) -> int:
    from priorax.analysis.inspect import inspect
    from priorax.model_folder import holds_model, inspect_model

    found = inspect_model(command.path) if holds_model(command.path) else inspect(command.path)
    _print_summary(str(command.path), [("item", "value"), *found])
    return 0


def _bsuite(command: Bsuite) -> int:
    from priorax.experiments.bsuite_sweep import run_sweep, scores, summary
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
    _print_summary("bsuite scores", summary(scores(command.out, command.episodes)))
    return 0


def _agents(command: Agents) -> int:
    if command.name is None:
        return _list_agents(command.preset)
    from priorax.agents import agent_spec
    from priorax.agents.settings import meanings, type_name

    spec = agent_spec(command.name)
    values, others = _values(spec, command.preset)
    header = ("setting", "type", *((command.preset,) if command.preset else ("default", "in presets")), "meaning")
    table = Table(*header, title=_title(spec))
    words = meanings(spec.settings)
    for name, value in values.items():
        shown = (value,) if command.preset else (value, others.get(name, ""))
        table.add_row(*map(escape, (name, type_name(spec.settings, name), *shown, words[name])))
    console.print(table)
    say(f"change them with: priorax train --agent {spec.name} --set NAME=VALUE ...")
    return 0


def _title(spec: Any) -> str:
    return f"{spec.name}: {spec.summary}" if spec.summary else spec.name


def _list_agents(preset: str | None) -> int:
    from priorax.agents import agents
    from priorax.names import AGENT_PLUGINS, AGENTS, distribution, plugins

    if preset is not None:
        raise ValueError(f"preset={preset!r} needs the name of an agent; pass one, as in: agents bsp")
    homes = {point.name: distribution(point) for point in plugins(AGENT_PLUGINS)}
    found = agents()
    rows = [(name, spec.summary, "priorax" if name in AGENTS else homes.get(name, "")) for name, spec in found.items()]
    _print_summary("agents", [("name", "description", "package"), *rows])
    say("priorax agents NAME shows the settings of an agent")
    return 0


def _values(spec: Any, preset: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Get the values of settings in one preset; or their defaults, and the differences in other presets."""
    import dataclasses

    from priorax.agents import PRESETS, settings
    from priorax.report.runs import word

    def shown(name: str) -> dict[str, str]:
        return {each: word(value) for each, value in dataclasses.asdict(settings(spec, name)).items()}

    if preset is not None:
        return shown(preset), {}
    first, others = shown("tuned"), dict[str, list[str]]()
    for name in dict.fromkeys([*PRESETS, *spec.presets]):
        with contextlib.suppress(ValueError):  # preset not available for this agent
            for each, value in shown(name).items():
                if value != first[each]:
                    others.setdefault(each, []).append(f"{name} {value}")
    return first, {each: ", ".join(values) for each, values in others.items()}


def _environments(command: Environments) -> int:
    from priorax.envs import environments
    from priorax.names import ENVIRONMENT_PLUGINS, ENVIRONMENTS, distribution, plugins

    homes = {point.name: distribution(point) for point in plugins(ENVIRONMENT_PLUGINS)}
    rows = [
        (
            name,
            spec.summary,
            spec.preset or "by observation type",
            "priorax" if name in ENVIRONMENTS else homes.get(name, ""),
        )
        for name, spec in environments().items()
    ]
    _print_summary("environments", [("name", "description", "preset", "package"), *rows])
    say("environments of other libraries: gymnasium:CartPole-v1, gymnax:CartPole-v1, bsuite:deep_sea/3")
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
    from priorax.envs.registry import lives_on_host
    from priorax.report.episodes import array_frames, cartpole_frames, draws, write_gif
    from priorax.training.folder import read_config

    env = str(read_config(run).get("env"))
    if env.startswith(GYMNASIUM) and not command.mujoco:
        film = record_in_gymnasium(run, command.seed)
        out = command.out or run / "episode.gif"
        write_gif(out, array_frames(film.pictures), film.milliseconds)
        say(f"return {film.total:.1f}; wrote {out}")
        return 0
    if lives_on_host(env) or env.startswith("object:"):
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
        f"\nOpen [bold]{command.out}/figure13.png[/] first: only with a prior are members uncertain far from data "
        f"whose targets are all zero. Then [bold]{command.out}/curves.png[/]: this uncertainty drives exploration."
    )
    return 0


DEMO = {
    "figure13": "uncertainty of four ensembles fitted to eleven points",
    "figure12": "uncertainty with more data: the bootstrap's shrinks, dropout's does not",
    "curves": "learning curves on DeepSea 20, where one path in a million is rewarded",
}


def _print_summary(title: str, summary: list[tuple[str, ...]]) -> None:
    header, *rows = summary
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _fit(command: Fit) -> int:
    from priorax.tabular_files import fit_table

    found = fit_table(
        command.data,
        command.target,
        command.out,
        kind=command.kind,
        id=command.id,
        drop=command.drop,
        held_out=command.held_out,
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
    if found.calibration is not None:
        _print_summary(f"{found.target}, on {found.held_out_rows} held-out rows", found.calibration.summary())
        if found.calibration.classes:
            _print_summary("each class against the rest", found.calibration.class_summary())
    for path in found.paths:
        say(f"wrote {path}")
    return 0


def _ask(question: str) -> bool:
    """Ask a yes-or-no question on the terminal."""
    try:
        return Confirm.ask(escape(question), console=console)
    except EOFError:
        raise ValueError(f"{question} No answer was given; pass --kind class or --kind number") from None


def _predict(command: Predict) -> int:
    from priorax.tabular_files import predict_table

    rows = predict_table(
        command.model,
        command.data,
        command.out,
        lambda words: say(as_options(command, words)),
        id=command.id,
        encoding=command.encoding,
    )
    say(f"wrote {rows} predictions to {command.out}")
    return 0


def _doctor(command: Doctor) -> int:
    from priorax.doctor import examine

    if command.agents:
        return _conformance(command)
    for name in ("agent", "backend"):
        if getattr(command, name) is not None:
            raise ValueError(f"{name}={getattr(command, name)!r} needs --agents; pass --agents too")
    findings = examine()
    table = Table("", "what", "found", "remedy")
    for finding in findings:
        sign = "[green]✓[/]" if finding.ok and not finding.remedy else "[dim]–[/]" if finding.ok else "[bold red]✗[/]"
        table.add_row(sign, finding.name, escape(finding.value), escape(finding.remedy))
    console.print(table)
    return 0 if all(finding.ok for finding in findings) else 1


def _conformance(command: Doctor) -> int:
    import importlib.util

    from priorax.agents import agent_spec, agents
    from priorax.analysis.conformance import table
    from priorax.checks import one_of
    from priorax.training.setup import BACKENDS

    installed = [name for name in BACKENDS if name != "ray" or importlib.util.find_spec("ray") is not None]
    backends = command.backend.split(",") if command.backend else installed
    names = command.agent.split(",") if command.agent else list(agents())
    for name in backends:
        one_of("backend", name, BACKENDS)
    for name in names:
        agent_spec(name)
    total = len(names) * len(backends)
    rows: list[Any] = []
    with count_bar(total, "checking agents") as update:
        for row in table(names, tuple(backends), lambda words: update(len(rows), words)):
            rows.append(row)
        update(total, "")
    shown = Table("", "agent", "backend", "checks", title="Agents on backends")
    for row in rows:
        sign = "[bold red]✗[/]" if not row.holds else "[dim]–[/]" if row.refused is not None else "[green]✓[/]"
        checked = {name: held for name, held in row.checks.items() if held is not None}
        words = ", ".join(name if held else f"[bold red]failed: {name}[/]" for name, held in checked.items())
        shown.add_row(sign, row.agent, row.backend, words if row.refused is None else escape(row.refused))
    console.print(shown)
    wrong = sum(not row.holds for row in rows)
    console.print(f"{len(rows) - wrong} of {len(rows)} passed, or were refused with a remedy")
    return 1 if wrong else 0


RUN: dict[type, Callable[[Any], int]] = {
    Check: _check,
    Reproduce: _reproduce,
    Train: train,
    Compare: _compare,
    Apex: apex,
    Watch: _watch,
    Report: _report,
    Playground: _playground,
    Demo: _demo,
    Fit: _fit,
    Predict: _predict,
    Scale: _scale,
    Inspect: _inspect,
    Bsuite: _bsuite,
    Agents: _agents,
    Environments: _environments,
    Completion: _completion,
    Doctor: _doctor,
}
"""Function of each command; it returns the exit code."""
