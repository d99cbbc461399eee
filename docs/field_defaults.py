"""Show the default of a field declared with `eqx.field` or `dataclasses.field` instead of the call.

mkdocstrings can show the source of a value or nothing at all, so `eqx.field(static=True, default=20)` needs this
extension to read `20`.
"""

from typing import Any

import griffe

FIELD_FUNCTIONS = ("dataclasses.field", "equinox.field")


def field_default(call: griffe.ExprCall) -> Any:
    """Return the default that a call to `field` declares.

    Args:
        call: The call.

    Returns:
        The expression of the default, or of its factory's return value; None if there is neither.
    """
    keywords = {part.name: part.value for part in call.arguments if isinstance(part, griffe.ExprKeyword)}
    factory = keywords.get("default_factory")
    return factory.body if isinstance(factory, griffe.ExprLambda) else keywords.get("default")


class FieldDefaults(griffe.Extension):
    """Replace the value of each field by its default."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Replace the value of one attribute, if it is a field.

        Args:
            attr: The attribute.
        """
        if isinstance(attr.value, griffe.ExprCall) and attr.value.canonical_path in FIELD_FUNCTIONS:
            attr.value = field_default(attr.value)
