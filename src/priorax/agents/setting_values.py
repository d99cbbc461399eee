"""Values of settings: parsed from the command line, checked, read from JSON and described, by the type hints and
docstrings of the fields of a `Settings` class.
"""

import ast
import dataclasses
import inspect
import math
import numbers
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from priorax.agents.settings import Settings
from priorax.checks import one_of


def hints(kind: type[Settings]) -> dict[str, Any]:
    """Get the type hints of a class of settings.

    Args:
        kind: The class of settings.

    Returns:
        Type hints by name, in the order of the fields.
    """
    found = typing.get_type_hints(kind)
    return {each.name: found[each.name] for each in dataclasses.fields(kind)}


def checked(kind: type[Settings], name: str, value: Any) -> Any:
    """Convert a value to the type of a setting: lists to tuples, integers to floats.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.
        value: A value from Python or JSON.

    Returns:
        The converted value.

    Raises:
        ValueError: If the value has another type.
    """
    wanted, words = hints(kind)[name], _words(kind, name)
    if isinstance(value, str) and value in words:
        return value
    for option in _options(wanted):
        found = _converted(option, value)
        if found is not _WRONG:
            return found
    raise _refused(kind, name, value)


def parse(kind: type[Settings], name: str, text: str) -> Any:
    """Parse a setting's value from text: `3`, `1e-3`, `50,50`, `none`, `true`.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.
        text: The text, as on the command line.

    Returns:
        The value.

    Raises:
        ValueError: If the text does not represent a value of the setting's type.
    """
    if text in _words(kind, name):
        return text
    for option in _options(hints(kind)[name]):
        found = _read(option, text.strip())
        if found is not _WRONG:
            return found
    raise _refused(kind, name, text)


def checked_all(kind: type[Settings], found: Mapping[str, Any]) -> dict[str, Any]:
    """Check and convert settings that were read from JSON.

    Args:
        kind: The class of settings.
        found: Values by name.

    Returns:
        Converted values by name (`checked`).

    Raises:
        ValueError: If a setting is unknown or a value has the wrong type.
    """
    known = hints(kind)
    return {one_of("setting", name, known): checked(kind, name, value) for name, value in found.items()}


def from_json(kind: type[Settings], found: Mapping[str, Any]) -> Settings:
    """Create settings from values that were read from JSON; missing settings have their defaults.

    Args:
        kind: The class of settings.
        found: Values by name.

    Returns:
        An instance of that class.

    Raises:
        ValueError: If a setting is unknown, or a value has the wrong type or is not allowed.
    """
    return kind(**checked_all(kind, found))


def type_name(kind: type[Settings], name: str) -> str:
    """Format a setting's type as Python code.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.

    Returns:
        For example `float | None`.
    """
    hint = hints(kind)[name]
    written = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return " | ".join([written, *map(repr, _words(kind, name))])


def type_words(kind: type[Settings], name: str) -> str:
    """Format a setting's type in words, for messages.

    Args:
        kind: The class of settings.
        name: Name of one of its fields.

    Returns:
        For example "a number or none".
    """
    options = [_kind_of(option).words for option in _options(hints(kind)[name])]
    return " or ".join([*options, *map(repr, _words(kind, name))])


def meanings(kind: type[Settings]) -> dict[str, str]:
    """Get the descriptions of all settings: the docstrings of the fields.

    Args:
        kind: The class of settings.

    Returns:
        Descriptions by name; empty for a field without docstring, or if the source is not available.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _docstrings(base)
    return {each.name: found.get(each.name, "") for each in dataclasses.fields(kind)}


def _refused(kind: type[Settings], name: str, value: Any) -> ValueError:
    """Create the error for a value of the wrong type, with the default as an example."""
    (default,) = (each.default for each in dataclasses.fields(kind) if each.name == name)
    example = "" if default is dataclasses.MISSING else f"; pass for example {default!r}, its default"
    return ValueError(f"{name}={value!r} must be {type_words(kind, name)}{example}")


def _docstrings(kind: type) -> dict[str, str]:
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[before.target.id] = " ".join(value.value.split())
    return found


_WRONG = object()
"""Result of a conversion that failed."""


class _Kind(typing.NamedTuple):
    """Conversion, parser and name of a type."""

    convert: Callable[[Any], Any]
    read: Callable[[str], Any]
    words: str


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else _WRONG


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        return _WRONG
    return float(value)


def _wholes(value: Any) -> Any:
    found = tuple(map(_whole, value)) if isinstance(value, (list, tuple)) else (_WRONG,)
    return _WRONG if _WRONG in found else found


_KINDS: dict[Any, _Kind] = {
    bool: _Kind(
        lambda value: value if isinstance(value, bool) else _WRONG,
        lambda text: {"true": True, "false": False}.get(text.lower(), _WRONG),
        "true or false",
    ),
    int: _Kind(_whole, int, "a whole number"),
    float: _Kind(_number, lambda text: _number(float(text)), "a number"),
    str: _Kind(lambda value: value if isinstance(value, str) else _WRONG, str, "a word"),
    types.NoneType: _Kind(
        lambda value: None if value is None else _WRONG,
        lambda text: None if text.lower() == "none" else _WRONG,
        "none",
    ),
    tuple[int, ...]: _Kind(
        _wholes,
        lambda text: tuple(int(part) for part in text.strip("()").split(",") if part.strip()),
        "whole numbers with commas, as in 50,50, or () for none",
    ),
}


def _kind_of(hint: Any) -> _Kind:
    if hint not in _KINDS:
        known = ", ".join(getattr(each, "__name__", str(each)) for each in _KINDS)
        raise TypeError(f"a setting has type {hint}, which cannot be parsed from the command line; use one of {known}")
    return _KINDS[hint]


def _options(hint: Any) -> tuple[Any, ...]:
    """Get the alternatives of a union type."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if union else (hint,)


def _converted(hint: Any, value: Any) -> Any:
    return _kind_of(hint).convert(value)


def _read(hint: Any, text: str) -> Any:
    try:
        return _kind_of(hint).read(text)
    except ValueError:
        return _WRONG


def _words(kind: type[Settings], name: str) -> tuple[str, ...]:
    """Get the words, such as auto, that stand for a value determined later."""
    (found,) = (each.metadata.get("words", ()) for each in dataclasses.fields(kind) if each.name == name)
    return tuple(found)
