"""The `priorax` command.

Errors are printed as one line; pass `--debug` to see the traceback. Exit codes: 0 success, 1 a check or a run failed,
2 invalid arguments, 130 interrupted.
"""

import sys
import warnings
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape

from priorax.cli.actions import RUN
from priorax.cli.commands import Command
from priorax.cli.options import as_options, joined


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Command-line arguments; by default those of the process.

    Returns:
        The exit code.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if "--version" in arguments:
        from priorax import __version__

        print(f"priorax {__version__}")
        return 0
    command = parse(arguments)
    try:
        _enable_cache()
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = _show_warning
            return RUN[type(command)](command)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; all files are complete")
        return 130
    except (ValueError, TypeError, OSError, ArithmeticError) as error:
        if debug:
            raise
        words = as_options(command, str(error))
        Console(stderr=True).print(f"[bold red]error:[/] {escape(words)}", highlight=False)
        return 2 if isinstance(error, ValueError | TypeError) else 1


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as errors are printed, without the line of code that it came from."""
    Console(stderr=True).print(f"[bold yellow]warning:[/] {escape(str(message))}", highlight=False)


def _enable_cache() -> None:
    """Enable the compilation cache, if possible."""
    from priorax.caching import enable_compilation_cache

    try:
        enable_compilation_cache()
    except OSError as error:
        words = f"no compilation cache ({error}); set PRIORAX_CACHE to a writable folder to enable it"
        Console(stderr=True).print(words, markup=False, highlight=False)


def parse(arguments: list[str]) -> Any:
    """Parse the command line.

    Args:
        arguments: Command-line arguments.

    Returns:
        The command.
    """
    words = "Randomized prior functions: ensembles with uncertainty estimates, and agents that explore with them."
    return tyro.cli(Command, prog="priorax", args=joined(arguments), description=words)
