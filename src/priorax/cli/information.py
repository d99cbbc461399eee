"""Commands that show what there is: `check`, `inspect`, `agents`, `environments`, `doctor`."""

import contextlib
from typing import Any

from rich.markup import escape
from rich.table import Table

from priorax.cli.commands import Agents, Check, Doctor, Environments, Inspect
from priorax.progress import console, count_bar, say, share_bar


def show_checks(command: Check) -> int:
    """Run `priorax check`: the lemmas, measured.

    Args:
        command: The command.

    Returns:
        The exit code.
    """
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


def show_contents(command: Inspect) -> int:
    """Run `priorax inspect`: the contents of a run, a model or a file.

    Args:
        command: The command.

    Returns:
        The exit code.
    """
    from priorax.analysis.inspect import inspect
    from priorax.tabular.folder import holds_model, inspect_model

    found = inspect_model(command.path) if holds_model(command.path) else inspect(command.path)
    print_summary(str(command.path), [("item", "value"), *found])
    return 0


def show_agents(command: Agents) -> int:
    """Run `priorax agents`: all agents, or the settings of one.

    Args:
        command: The command.

    Returns:
        The exit code.
    """
    if command.name is None:
        return _list_agents(command.preset)
    from priorax.agents import agent_spec
    from priorax.agents.setting_values import meanings, type_name

    spec = agent_spec(command.name)
    values, others = _values(spec, command.preset)
    table = Table("setting", command.preset or "default", "meaning", title=_title(spec))
    words = meanings(spec.settings)
    for name, value in values.items():
        more = type_name(spec.settings, name) + (f"; in presets: {others[name]}" if name in others else "")
        table.add_row(escape(name), escape(value), f"{escape(words[name])}\n[dim]{escape(more)}[/]".strip())
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
    print_summary("agents", [("name", "description", "package"), *rows])
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


def show_environments(command: Environments) -> int:
    """Run `priorax environments`: all environments.

    Args:
        command: The command.

    Returns:
        The exit code.
    """
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
    print_summary("environments", [("name", "description", "preset", "package"), *rows])
    say("environments of other libraries: gymnasium:CartPole-v1, gymnax:CartPole-v1, bsuite:deep_sea/3")
    return 0


def show_installation(command: Doctor) -> int:
    """Run `priorax doctor`: what is installed, or every agent on every backend.

    Args:
        command: The command.

    Returns:
        The exit code.
    """
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


def print_summary(title: str, summary: list[tuple[str, ...]]) -> None:
    """Print a table.

    Args:
        title: Title of the table.
        summary: The header, then the rows.
    """
    header, *rows = summary
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
