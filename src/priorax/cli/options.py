"""Error messages in command-line terms: the library's kind="class" becomes --kind class."""

import dataclasses
import re
import shlex
import typing
from typing import Any

import tyro


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
