"""Options: error messages in their terms (kind="class" becomes --kind class), and options that are repeated."""

import dataclasses
import re
import shlex
import typing
from typing import Any

import tyro

SEVERAL = ("--drop", "--set")
"""Options that take several values."""


def joined(arguments: list[str]) -> list[str]:
    """Join the values of options that are repeated, as in `--drop a --drop b`, of which only the last would count.

    Args:
        arguments: Command-line arguments.

    Returns:
        The arguments with all values of such an option after its first occurrence.
    """
    found: list[str] = []
    values: dict[str, list[str]] = {}
    current = found
    for word in arguments:
        option, equals, value = word.partition("=")
        if option in SEVERAL:
            if option not in values:
                values[option] = []
                found.append(option)
            current = values[option]
            current += [value] if equals else []
            continue
        current = found if word.startswith("-") else current
        current.append(word)
    for option, several in values.items():
        place = found.index(option) + 1
        found[place:place] = several
    return found


def as_options(command: Any, words: str) -> str:
    """Rewrite the arguments in a message as options of a command.

    Args:
        command: The command; its fields are the options. Positional ones are left unchanged.
        words: A message of the library. Calls, as `load(path, prior=...)`, and text after `--set` are left unchanged.

    Returns:
        The rewritten message.
    """
    hints = typing.get_type_hints(type(command), include_extras=True)
    named = [
        field.name
        for field in dataclasses.fields(command)
        if tyro.conf.Positional not in getattr(hints[field.name], "__metadata__", ())
    ]
    if not named:
        return words
    value = r"'[^']*'|\"[^\"]*\"|[^\s,;:()'\"]*[^\s,;:.()'\"]"
    return re.sub(rf"\w+\([^()]*\)|--set \S+|(?<![\w.\-])({'|'.join(named)})=({value})", _option, words)


def _option(found: re.Match[str]) -> str:
    name, value = found.groups()
    if name is None or value == "None":
        return found[0]
    option = name.replace("_", "-")
    if value in ("True", "False"):
        return f"--{option}" if value == "True" else f"--no-{option}"
    if value[0] in "'\"":
        value = shlex.quote(value[1:-1])
    return f"--{option} {value}"
