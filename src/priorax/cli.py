"""The `priorax` command.

Errors are one line without a traceback (set `--debug` to see it); exit codes: 0 done, 1 a check failed or a run broke,
2 bad arguments, 130 interrupted.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from priorax.progress import console, share_bar


@dataclass(frozen=True)
class Check:
    """Check the paper's lemmas against theory: a table, one row per measured statement; exit code 1 if one fails."""


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a figure or table of the paper: rows (CSV) and pictures (PNG, SVG)."""

    name: Annotated[str, tyro.conf.Positional]
    """figure1, figure2, figure12, figure13 or table1."""
    preset: Literal["quick", "paper"] = "quick"
    """quick: minutes on two cores; paper: the paper's size."""
    out: Path = field(default_factory=lambda: Path("results"))
    """The folder to write to."""


@dataclass(frozen=True)
class Demo:
    """Why priors matter, in under three minutes: figures 13 and 12 of the paper."""

    out: Path = field(default_factory=lambda: Path("demo"))
    """The folder to write to."""


Command = (
    Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if "--version" in arguments:
        from priorax import __version__

        print(f"priorax {__version__}")
        return 0
    command = parse(arguments)
    run: dict[type, Callable[[Any], int]] = {Check: _check, Reproduce: _reproduce, Demo: _demo}
    try:
        _enable_cache()
        return run[type(command)](command)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; nothing half-written is left behind")
        return 130
    except (ValueError, TypeError, OSError, ArithmeticError) as error:
        if debug:
            raise
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        return 2 if isinstance(error, ValueError | TypeError) else 1


def _enable_cache() -> None:
    """Keep compiled programs if there is a place for them; without one, only compile again."""
    from priorax.caching import enable_compilation_cache

    try:
        enable_compilation_cache()
    except OSError as error:
        words = f"no compilation cache ({error}); set PRIORAX_CACHE to a folder of yours to have one"
        Console(stderr=True).print(words, markup=False, highlight=False)


def parse(arguments: list[str]) -> Any:
    """The command that these words mean."""
    words = "Randomized prior functions: ensembles that know what they do not know."
    return tyro.cli(Command, prog="priorax", args=arguments, description=words)


def _check(command: Check) -> int:
    from priorax.sanity import run_checks

    with share_bar("checking") as report:
        checks = run_checks(report)
    table = Table("", "lemma", "claim", "measured", "theory", title="The paper's lemmas, measured")
    for check in checks:
        sign = "[green]✓[/]" if check.passed else "[bold red]✗[/]"
        note = f"\n[dim]{check.note}[/]" if check.note else ""
        table.add_row(sign, check.lemma, check.claim + note, f"{check.measured:.4g}", check.theory)
    console.print(table)
    failed = sum(not check.passed for check in checks)
    console.print(f"{len(checks) - failed} of {len(checks)} hold")
    return 1 if failed else 0


def _reproduce(command: Reproduce) -> int:
    from priorax.experiments import reproduce

    with share_bar(command.name) as report:
        result = reproduce(command.name, command.preset, command.out, report)
    _print_summary(command.name, result.summary)
    for path in result.paths:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False, markup=False)
    return 0


def _demo(command: Demo) -> int:
    for name, words in DEMO.items():
        console.rule(f"{name}: {words}")
        _reproduce(Reproduce(name, "quick", command.out))
    console.print(
        f"\nOpen [bold]{command.out}/figure13.png[/] first: only a prior leaves doubt where all data said zero."
    )
    return 0


DEMO = {
    "figure13": "four ensembles on eleven points; who knows what it does not know?",
    "figure12": "with more data the bootstrap becomes sure, dropout never does",
}


def _print_summary(title: str, summary: list[tuple[str, ...]]) -> None:
    header, *rows = summary
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
