"""Docstrings and fields as the reference shows them.

Aligned lists, `name   what it is`, and scikit-learn's, `name : what it is`, become lists; commands become code; the
default of a field is shown without the call around it.
"""

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)*)(?: : | {2,})(?P<text>\S.*)$")
UNDERLINE = re.compile(r"^Parameters\n-+\n", re.MULTILINE)


def as_lists(text: str) -> str:
    """Entries of a list as Markdown; what is indented deeper goes on with the entry before."""
    text = UNDERLINE.sub("", text)
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("priorax "):
            line = f"`{line}`"
        entry = ENTRY.match(line)
        if entry:
            if not inside:
                lines.append("")
            names = ", ".join(f"`{name}`" for name in entry["names"].split(", "))
            lines.append(f"- {names}: {entry['text']}")
            inside = True
        elif inside and line.startswith("    "):
            lines[-1] += " " + line.strip()
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines)


def default(value: griffe.ExprCall) -> Any:
    """What a field is by default; None: nothing, or not to be seen."""
    given = {part.name: part.value for part in value.arguments if isinstance(part, griffe.ExprKeyword)}
    made = given.get("default_factory")
    return made.body if isinstance(made, griffe.ExprLambda) else given.get("default")


class Readable(griffe.Extension):
    """See the module's docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_lists(obj.docstring.value)
        value = obj.value if isinstance(obj, griffe.Attribute) else None
        if isinstance(value, griffe.ExprCall) and value.canonical_path in ("dataclasses.field", "equinox.field"):
            obj.value = default(value)
