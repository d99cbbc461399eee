"""Search spaces: parameters that are real numbers, whole numbers or choices.

Every parameter is one coordinate between 0 and 1. Whole numbers and choices divide it into cells, whose centres stand
for them. Models see coordinates scaled to mean 0 and variance 1, and choices one-hot encoded.
"""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

UNIT = math.sqrt(12.0)
"""Reciprocal of the standard deviation of a uniform number between 0 and 1."""


@dataclass(frozen=True)
class Real:
    """A real number between two bounds."""

    low: float | int
    """Lower bound."""
    high: float | int
    """Upper bound."""
    log: bool = False
    """Whether to search its logarithm: for learning rates and other scales."""

    def __post_init__(self) -> None:
        _check_bounds(self, numbers.Real)

    def to_unit(self, value: Any) -> float:
        """Convert a value to its coordinate.

        Args:
            value: A number between the bounds.

        Returns:
            The coordinate, from 0 to 1.

        Raises:
            ValueError: If it is not a number between the bounds.
        """
        value = _inside(self, value, numbers.Real)
        low, high, at = (math.log(v) if self.log else float(v) for v in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0)

    def from_unit(self, u: float) -> float:
        """Convert a coordinate to a value.

        Args:
            u: The coordinate, from 0 to 1.

        Returns:
            The number.
        """
        low, high = (math.log(v) if self.log else float(v) for v in (self.low, self.high))
        at = (1 - u) * low + u * high
        return min(max(math.exp(at) if self.log else at, float(self.low)), float(self.high))

    def snapped(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Move coordinates to those of valid values.

        Args:
            u: Coordinates.

        Returns:
            The coordinates, limited to 0 to 1.
        """
        return np.clip(u, 0.0, 1.0)

    @property
    def cell(self) -> float:
        """Width of the largest cell; 0 for a real number."""
        return 0.0


@dataclass(frozen=True)
class Integer:
    """A whole number between two bounds, both included."""

    low: Any
    """Lower bound, a whole number."""
    high: Any
    """Upper bound, a whole number."""
    log: bool = False
    """Whether to search its logarithm: for numbers of units and other sizes."""

    def __post_init__(self) -> None:
        _check_bounds(self, numbers.Integral)

    def to_unit(self, value: Any) -> float:
        """Convert a value to the centre of its cell.

        Args:
            value: A whole number between the bounds.

        Returns:
            The coordinate, from 0 to 1.

        Raises:
            ValueError: If it is not a whole number between the bounds.
        """
        return float(self._centres(np.array([_inside(self, value, numbers.Integral)]))[0])

    def from_unit(self, u: float) -> int:
        """Convert a coordinate to the number in whose cell it lies.

        Args:
            u: The coordinate, from 0 to 1.

        Returns:
            The number.
        """
        return int(self._values(np.array([u]))[0])

    def snapped(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Move coordinates to the centres of their cells.

        Args:
            u: Coordinates.

        Returns:
            The centres.
        """
        return self._centres(self._values(u))

    @property
    def cell(self) -> float:
        """Width of the largest cell, that of the lowest number."""
        low, high = self._ends()
        return (math.log(self.low + 0.5) - low) / (high - low) if self.log else 1 / (high - low)

    def _ends(self) -> tuple[float, float]:
        ends = self.low - 0.5, self.high + 0.5
        return (math.log(ends[0]), math.log(ends[1])) if self.log else ends

    def _values(self, u: np.ndarray) -> np.ndarray:
        low, high = self._ends()
        at = low + np.clip(u, 0.0, 1.0) * (high - low)
        return np.clip(np.rint(np.exp(at) if self.log else at), self.low, self.high)

    def _centres(self, values: np.ndarray) -> np.ndarray:
        low, high = self._ends()
        at = np.log(values) if self.log else values
        return (at - low) / (high - low)


@dataclass(frozen=True)
class Choice:
    """One of several options without an order."""

    options: tuple[Any, ...]
    """The options: strings, numbers, True, False or None, all different."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        plain = all(option is None or isinstance(option, str | bool | int | float) for option in self.options)
        if (
            len(self.options) < 2
            or not plain
            or len({_identity(option) for option in self.options}) < len(self.options)
        ):
            raise ValueError(
                f"options={self.options!r} must be at least two different strings, numbers, True, False or None; pass "
                "for example options=('adam', 'sgd'), and look up other objects by such a name"
            )

    def to_unit(self, value: Any) -> float:
        """Convert an option to the centre of its cell.

        Args:
            value: One of the options.

        Returns:
            The coordinate, from 0 to 1.

        Raises:
            ValueError: If it is not one of the options.
        """
        known = [_identity(option) for option in self.options]
        if _identity(value) not in known:
            raise ValueError(f"{value!r} is not one of the options {self.options!r}; pass one of them")
        return (known.index(_identity(value)) + 0.5) / len(self.options)

    def from_unit(self, u: float) -> Any:
        """Convert a coordinate to the option in whose cell it lies.

        Args:
            u: The coordinate, from 0 to 1.

        Returns:
            The option.
        """
        return self.options[int(self.index(np.array([u]))[0])]

    def index(self, u: Float[np.ndarray, " n"]) -> np.ndarray:
        """Get the numbers of the options in whose cells coordinates lie.

        Args:
            u: Coordinates.

        Returns:
            Numbers from 0.
        """
        return np.clip((u * len(self.options)).astype(int), 0, len(self.options) - 1)

    def snapped(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Move coordinates to the centres of their cells.

        Args:
            u: Coordinates.

        Returns:
            The centres.
        """
        return (self.index(u) + 0.5) / len(self.options)

    @property
    def cell(self) -> float:
        """Width of a cell."""
        return 1 / len(self.options)


Parameter = Real | Integer | Choice
"""A parameter of a search space."""
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Real, Integer, Choice)}
"""Kinds of parameters by name, as files name them."""


class Space:
    """Parameters by name.

    Args:
        parameters: Parameters (`Real`, `Integer`, `Choice`) by name.

    Raises:
        ValueError: If there are none, or one is no parameter.
    """

    def __init__(self, parameters: Any) -> None:
        if not isinstance(parameters, Mapping) or not parameters:
            raise ValueError(
                f"space={parameters!r} must be a dictionary of at least one parameter; pass for example "
                "space={'rate': Real(1e-4, 1e-1, log=True)}"
            )
        for name, parameter in parameters.items():
            if not isinstance(name, str) or not isinstance(parameter, Real | Integer | Choice):
                raise ValueError(
                    f"space has {name!r}: {parameter!r}, but names must be strings and parameters Real, Integer or "
                    "Choice; pass for example {'depth': Integer(1, 8)}"
                )
        self.parameters = dict(parameters)

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.parameters)

    def to_unit(self, x: Any) -> Float[np.ndarray, " dim"]:
        """Convert values to coordinates.

        Args:
            x: Values by name.

        Returns:
            The coordinates.

        Raises:
            ValueError: If a value is missing, superfluous or outside the space.
        """
        if not isinstance(x, Mapping) or set(x) != set(self.parameters):
            given = sorted(map(str, x)) if isinstance(x, Mapping) else x
            raise ValueError(
                f"x has {given!r}, but the space has the parameters {sorted(self.parameters)}; pass a dictionary with "
                "a value for each of them"
            )
        found = []
        for name, parameter in self.parameters.items():
            try:
                found.append(parameter.to_unit(x[name]))
            except ValueError as error:
                raise ValueError(f"x[{name!r}]: {error}") from None
        return np.array(found)

    def from_unit(self, u: Float[np.ndarray, " dim"]) -> dict[str, Any]:
        """Convert coordinates to values.

        Args:
            u: The coordinates.

        Returns:
            Values by name.
        """
        return {name: p.from_unit(float(at)) for (name, p), at in zip(self.parameters.items(), u, strict=True)}

    def snapped(self, u: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n dim"]:
        """Move coordinates to those of valid values.

        Args:
            u: Coordinates.

        Returns:
            Those of valid values.
        """
        return np.stack([p.snapped(at) for p, at in zip(self.parameters.values(), u.T, strict=True)], axis=1)

    def features(self, u: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n feature"]:
        """Convert coordinates to inputs of a model.

        Args:
            u: Coordinates of valid values.

        Returns:
            Numbers scaled to mean 0 and variance 1 over the space, and choices one-hot encoded.
        """
        columns = []
        for parameter, at in zip(self.parameters.values(), u.T, strict=True):
            if isinstance(parameter, Choice):
                columns.extend((parameter.index(at)[:, None] == np.arange(len(parameter.options))).T.astype(float))
            else:
                columns.append(UNIT * (at - 0.5))
        return np.stack(columns, axis=1)

    def around(self, u: Float[np.ndarray, "n dim"], scale: Any, random: np.random.Generator) -> np.ndarray:
        """Perturb coordinates.

        Each coordinate changes with a probability of a half or more, numbers by Gaussian noise, choices to any option.

        Args:
            u: Coordinates of valid values.
            scale: Standard deviation of the noise, a number or [n, 1].
            random: Random numbers.

        Returns:
            Coordinates of valid values near them.
        """
        noise = random.standard_normal(u.shape)
        changed = random.random(u.shape) < max(0.5, 1 / self.dim)
        changed[np.arange(len(u)), random.integers(self.dim, size=len(u))] = True
        moved = np.empty_like(u)
        for j, parameter in enumerate(self.parameters.values()):
            if isinstance(parameter, Choice):
                moved[:, j] = random.random(len(u))
            else:
                moved[:, j] = _reflected(u[:, j] + np.maximum(scale, 0.7 * parameter.cell).ravel() * noise[:, j])
        return self.snapped(np.where(changed, moved, u))

    def describe(self) -> list[list[Any]]:
        """Describe the space as JSON.

        Returns:
            Name, kind and fields of each parameter.
        """
        return [
            [name, type(p).__name__, list(p.options) if isinstance(p, Choice) else [p.low, p.high, p.log]]
            for name, p in self.parameters.items()
        ]

    @classmethod
    def rebuild(cls, description: Any) -> "Space":
        """Build a space from its description.

        Args:
            description: A description, from `describe`.

        Returns:
            The space.

        Raises:
            ValueError: If it describes no valid space.
        """
        found = {}
        for name, kind, fields in description:
            if kind not in KINDS or not isinstance(fields, list):
                raise ValueError(f"the file names an unknown kind of parameter {str(kind)[:100]!r}; save it again")
            found[name] = KINDS[kind](tuple(fields)) if kind == "Choice" else KINDS[kind](*fields)
        return cls(found)


def _check_bounds(parameter: Any, kind: Any) -> None:
    name, low, high = type(parameter).__name__, parameter.low, parameter.high
    whole = "whole " if kind is numbers.Integral else ""
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, kind) or not math.isfinite(bound):
            raise ValueError(
                f"{name}(low={low!r}, high={high!r}) must have finite {whole}numbers as bounds; pass those"
            )
    if not low < high:
        raise ValueError(f"{name}(low={low!r}, high={high!r}) must have low < high; exchange them or fix the parameter")
    if parameter.log and low <= 0:
        raise ValueError(f"{name}(low={low!r}, log=True) must have low above 0; raise it or pass log=False")
    if not isinstance(parameter.log, bool):
        raise ValueError(f"{name}(log={parameter.log!r}) must be True or False; pass one of them")


def _inside(parameter: Any, value: Any, kind: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, kind) or not parameter.low <= value <= parameter.high:
        whole = "whole " if kind is numbers.Integral else ""
        raise ValueError(f"{value!r} is no {whole}number from {parameter.low} to {parameter.high}; pass one")
    return value


def _identity(option: Any) -> tuple[bool, Any]:
    """Tell True from 1."""
    return isinstance(option, bool), option


def _reflected(u: np.ndarray) -> np.ndarray:
    """Reflect coordinates at 0 and 1."""
    folded = np.abs(u) % 2.0
    return np.where(folded > 1, 2.0 - folded, folded)
