"""Save and load fitted beliefs and estimators as arrays and JSON, without pickle.

A file is one safetensors file whose header holds a JSON description and a SHA-256 checksum of the content. Loading
instantiates only the classes listed in `KINDS` and never runs code from the file. Writing is atomic: a reader sees
either the old file or the new one.

A checksum detects damage, not tampering, so the description is validated before anything is built from it: no size may
exceed the size of the file's arrays, shapes must match those of the arrays, and numbers must be finite. Every violation
raises `BadFile`.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from priorax import beliefs, heads, networks, noise, priors
from priorax.beliefs import Belief, BeliefState

VERSION = 1
"""Version of the file format."""

KINDS: dict[str, type] = {
    kind.__name__ if module is not heads else f"head.{kind.__name__}": kind
    for module, kinds in {
        networks: (networks.MLP, networks.Table, networks.Convnet, networks.Dueling),
        priors: (priors.Linear, priors.RandomFourier, priors.Constant, priors.Tabulated, priors.Around),
        heads: (heads.Scalar, heads.Gaussian, heads.Classes, heads.C51, heads.Quantiles),
        noise: (noise.Gaussian,),
        beliefs: (
            beliefs.Adam,
            beliefs.RMSProp,
            beliefs.L2,
            beliefs.Ensemble,
            beliefs.Dropout,
            beliefs.GaussianWeights,
            beliefs.SharedTorso,
            beliefs.Outcomes,
            beliefs.Counts,
            beliefs.TableCount,
            beliefs.OneHotCount,
            beliefs.GaussianCount,
            beliefs.HashCount,
            beliefs.ExactBayes,
        ),
    }.items()
    for kind in kinds
}
"""Classes that a file may name. Anything else is custom code, which is not saved."""

NAMES = {kind: name for name, kind in KINDS.items()}
"""Name of each class in `KINDS`."""

NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|bfloat16")
"""Names of numeric array types that a description may contain."""
WORDS = re.compile(r"[<>=|]?U\d*|object")
"""Names of string array types that a description may contain; the declared width is ignored."""
SMALL = 2**20
"""Sizes up to this one are accepted regardless of the file's size."""


class BadFile(ValueError):
    """The file was not written by priorax, is damaged, has another format version, or describes something invalid."""


class Content(NamedTuple):
    """The content of a file."""

    kind: str
    """Kind of content: `belief`, or the class of an estimator."""
    description: Any
    """Any JSON value."""
    arrays: dict[str, np.ndarray]
    """Arrays by name."""

    @property
    def largest(self) -> int:
        """Upper bound for every size in the description: the number of bytes in the arrays."""
        return max(SMALL, sum(array.nbytes for array in self.arrays.values()))


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write a file completely or not at all: to a temporary file beside the target, flushed to disk and then renamed.

    Args:
        path: The file to write.
        content: Its content.

    Raises:
        FileNotFoundError: If the folder does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; create it first or choose another path")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write(path: Path | str, content: Content) -> None:
    """Write a file.

    Args:
        path: The file to write.
        content: Its content; the description must be valid JSON.
    """
    text = json.dumps(content.description, sort_keys=True, allow_nan=False)
    arrays = {name: np.array(value, order="C") for name, value in content.arrays.items()}
    metadata = {
        "format": "priorax",
        "version": str(VERSION),
        "kind": content.kind,
        "description": text,
        "sha256": _digest(content.kind, text, arrays),
    }
    write_atomically(path, to_bytes(arrays, metadata))


def read(path: Path | str) -> Content:
    """Read a file and verify its checksum.

    Args:
        path: The file to read.

    Returns:
        Its content.

    Raises:
        FileNotFoundError: If the file does not exist.
        BadFile: If the file was not written by priorax, is damaged, or has another format version.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except OSError:
        raise
    except Exception as error:  # safetensors raises various error classes
        raise BadFile(f"{path} is not a priorax file, or is truncated ({_short(error)}); save it again") from None
    if metadata.get("format") != "priorax":
        raise BadFile(f"{path} was not written by priorax; pass a file made by save()")
    if metadata.get("version") != str(VERSION):
        found = metadata.get("version")
        raise BadFile(
            f"{path} has format version {_short(repr(found))}, but this version of priorax reads {VERSION}; use the "
            "version that wrote it"
        )
    kind, text = metadata.get("kind", ""), metadata.get("description", "")
    if metadata.get("sha256") != _digest(kind, text, arrays):
        raise BadFile(f"{path} was altered or damaged since it was written (its checksum differs); save it again")
    return Content(kind, parse_json(path, text), arrays)


def parse_json(path: Path | str, text: str | bytes) -> Any:
    """Parse the JSON of a file; numbers must be finite and have at most 20 digits.

    Args:
        path: The file, for the error message.
        text: The JSON text.

    Returns:
        The parsed value.

    Raises:
        BadFile: If it is not valid JSON, is nested too deeply, or contains a number that priorax never writes.
    """

    def whole(word: str) -> int:
        if len(word) > 20:
            raise ValueError(f"the number {_short(word)}")
        return int(word)

    def real(word: str) -> float:
        value = float(word)
        if not math.isfinite(value):
            raise ValueError(f"the number {_short(word)}")
        return value

    with reading(path):
        return json.loads(text, parse_int=whole, parse_float=real, parse_constant=real)


def save(path: Path | str, belief: Belief, state: BeliefState, x: Any) -> None:
    """Save a belief and its state to a file.

    Args:
        path: The file to write.
        belief: The belief.
        state: Its state, as returned by `fit`.
        x: One example input, which determines the shapes.

    Raises:
        ValueError: If the state contains NaN or infinity.
    """
    spec = jax.tree.map(lambda leaf: {"shape": list(np.shape(leaf)), "dtype": str(jnp.asarray(leaf).dtype)}, x)
    write(path, Content("belief", {"belief": describe(belief, "belief"), "x": spec}, state_arrays(state)))


def load(path: Path | str, **own: Any) -> tuple[Belief, BeliefState]:
    """Load a belief and its state. Custom code is not in the file: pass such parts by field name, as in
    `load(path, network=module(make))`, or a custom belief as `load(path, belief=mine)`.

    Args:
        path: The file.
        **own: Parts that are custom code, by field name.

    Returns:
        The belief, and its state.

    Raises:
        BadFile: If the file was not written by `save`, is damaged, or describes something invalid.
        FileNotFoundError: If the file does not exist.
    """
    content = read(path)
    if content.kind != "belief":
        kind = _short(content.kind)
        raise BadFile(f"{path} holds a {kind}; load it with {kind}.load(path)")
    with reading(path):
        belief = rebuild(content.description["belief"], own, content.largest)
        example = jax.tree.map(
            lambda spec: _shape(spec, content.largest),
            content.description["x"],
            is_leaf=lambda node: "shape" in node and "dtype" in node,
        )
        return belief, restore_state(belief, example, content.arrays)


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Convert every error raised while interpreting a file to `BadFile`.

    Args:
        path: The file, for the error message.

    Raises:
        BadFile: If the enclosed code raises anything other than an `OSError`.
    """
    try:
        yield
    except (BadFile, OSError):
        raise
    except Exception as error:
        words = _short(error) or type(error).__name__
        raise BadFile(f"{path} describes an object that cannot be built ({words}); save it again") from error


def tree_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Flatten a pytree to named arrays.

    Args:
        tree: A pytree of arrays.

    Returns:
        The leaves, by their path in the tree.
    """
    return {f"state{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in _leaves(tree)}


def restore_tree(shape: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Rebuild a pytree from named arrays.

    Args:
        shape: A pytree of arrays or of their shapes.
        arrays: The leaves, as returned by `tree_arrays`.

    Returns:
        The pytree.

    Raises:
        BadFile: If a leaf is missing or has another shape or type.
    """
    found = []
    for path, leaf in _leaves(shape):
        name = f"state{jax.tree_util.keystr(path)}"
        array = arrays.get(name)
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            has = "is missing" if array is None else f"is {array.dtype}{list(array.shape)}"
            raise BadFile(f"{name} {has}, but {leaf.dtype}{list(leaf.shape)} is needed; pass the same networks")
        found.append(jnp.asarray(array))
    return jax.tree.unflatten(jax.tree.structure(shape), found)


def state_arrays(state: BeliefState) -> dict[str, np.ndarray]:
    """Flatten the state of a belief to named arrays.

    Args:
        state: The state.

    Returns:
        The leaves, by their path in the tree.

    Raises:
        ValueError: If a leaf contains NaN or infinity.
    """
    arrays = tree_arrays(state)
    for name, array in arrays.items():
        if not _is_finite(array):
            raise ValueError(
                f"{name} holds NaN or infinity, so nothing is saved; fit again, with a lower learning_rate"
            )
    return arrays


def restore_state(belief: Belief, x: Any, arrays: Mapping[str, np.ndarray]) -> BeliefState:
    """Rebuild the state of a belief from named arrays.

    That the belief can be evaluated is verified by abstract evaluation of shapes.

    Args:
        belief: The belief.
        x: One example input, or its shape.
        arrays: The leaves, as returned by `state_arrays`.

    Returns:
        The state.

    Raises:
        BadFile: If leaves are missing, superfluous, of the wrong shape or not finite, or the belief cannot be
            evaluated.
    """
    key = jax.random.key(0)
    shape = jax.eval_shape(lambda x: belief.init(key, x), x)
    state = restore_tree(shape, arrays)
    needless = sorted(set(arrays) - {f"state{jax.tree_util.keystr(path)}" for path, _ in _leaves(shape)})
    if needless:
        raise BadFile(f"{_short(needless[0])} is in the file but not part of the object it describes; save it again")
    for name, array in arrays.items():
        if not _is_finite(array):
            raise BadFile(f"{name} holds NaN or infinity; fit again and save it again")
    hash(jax.tree.structure(belief))  # jit needs a hashable structure
    drawn = jax.eval_shape(lambda state, x: belief.value(state, belief.draw(state, key), x), state, x)
    if drawn.shape != (belief.num_outputs,):
        raise BadFile(
            f"the belief in the file returns shape {drawn.shape} for num_outputs={belief.num_outputs}; save it again"
        )
    return state


def describe(thing: Any, name: str = "value") -> Any:
    """Describe settings as JSON.

    Args:
        thing: A setting: numbers, strings, arrays, containers, or objects of the classes in `KINDS`.
        name: Name of the field, under which `rebuild` requires custom code.

    Returns:
        The description.
    """
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, np.generic | np.ndarray | jax.Array):
        return {"array": np.asarray(thing).tolist(), "dtype": str(np.asarray(thing).dtype)}
    if isinstance(thing, tuple | list) and not any(callable(part) for part in thing):
        return {type(thing).__name__: [describe(part, name) for part in thing]}
    if type(thing) is dict and not any(callable(part) for part in thing.values()):
        return {"dict": [[describe(key, name), describe(part, name)] for key, part in thing.items()]}
    if type(thing) in NAMES:
        fields = {f.name: describe(getattr(thing, f.name), f.name) for f in dataclasses.fields(thing)}
        return {"kind": NAMES[type(thing)], "fields": fields}
    if isinstance(thing, noise.Resampling):  # equal copies, as made by sklearn.base.clone, count too
        for known, ours in noise.NOISES.items():
            if thing == ours:
                return known
    if thing is jnp.ravel:
        return {"function": "ravel"}
    return {"own": name}


def rebuild(description: Any, own: Mapping[str, Any], largest: int) -> Any:
    """Build settings from their description; only classes in `KINDS` are instantiated.

    Args:
        description: A description, from `describe`.
        own: The parts that are custom code, by field name.
        largest: Upper bound for sizes (`Content.largest`).

    Returns:
        The settings.

    Raises:
        BadFile: If the description names an unknown class or holds a size above `largest`.
    """
    if isinstance(description, list):
        raise BadFile("the file contains a list without a type as a setting; save it again")
    if not isinstance(description, dict):
        return description
    if "array" in description:
        return _array(description["array"], description["dtype"], largest)
    if "function" in description:
        if description["function"] != "ravel":
            raise BadFile(f"the file names an unknown function {_short(description['function'])}; save it again")
        return jnp.ravel
    if "own" in description:
        name = str(description["own"])
        if name not in own:
            name = _short(name)
            raise BadFile(f"{name} is custom code, which is not in the file; pass it: load(path, {name}=...)")
        return own[name]
    for make in (tuple, list):
        if make.__name__ in description:
            return make(rebuild(part, own, largest) for part in description[make.__name__])
    if "dict" in description:
        return {rebuild(key, own, largest): rebuild(part, own, largest) for key, part in description["dict"]}
    kind = KINDS.get(description.get("kind", ""))
    if kind is None:
        found = _short(repr(description.get("kind")))
        raise BadFile(f"the file names an unknown kind {found}; use the version that wrote it")
    fields = {name: rebuild(part, own, largest) for name, part in description["fields"].items()}
    for field in dataclasses.fields(kind):
        if field.name in fields:
            _check_field(field, fields[field.name], largest)
    return kind(**fields)


def _check_field(field: dataclasses.Field, value: Any, largest: int) -> None:
    """Check the type of a plain field; integer fields are sizes, limited by `largest`."""
    declared = get_args(field.type) if isinstance(field.type, UnionType) else (field.type,)
    if all(part in (bool, int, float, str, type(None)) for part in declared):
        wanted = (*declared, int) if float in declared else declared
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in declared):
            raise BadFile(f"{field.name}={_short(repr(value))} has the wrong type; save it again")
    if re.search(r"\bint\b", str(field.type)):
        refuse_size(field.name, value, largest)


def refuse_size(name: str, value: Any, largest: int) -> None:
    """Check that a setting with one or several sizes does not exceed the size of the file's arrays.

    Args:
        name: Name of the setting.
        value: The setting; anything but integers is ignored.
        largest: Upper bound.

    Raises:
        BadFile: If a size is larger.
    """
    for part in jax.tree.leaves(value) if isinstance(value, tuple | list) else [value]:
        if isinstance(part, int) and part > largest:
            raise BadFile(f"{_short(name)}={part} is more than the file holds; save it again")


def _array(values: Any, dtype: Any, largest: int) -> Any:
    """Build an array from its description, or a scalar; its memory is bounded by the size of the file."""
    if WORDS.fullmatch(str(dtype)):
        plain = str if dtype != "object" else bool | int | float | str | None
        if not isinstance(values, list) or not all(isinstance(value, plain) for value in values):
            raise BadFile("the file holds a list of strings with an element that is not a string; save it again")
        width = max((len(value) for value in values), default=0) if plain is str else 1
        if width * len(values) > largest:
            raise BadFile(f"{len(values)} strings of {width} characters are more than the file holds; save it again")
        return np.array(values, dtype=object if dtype == "object" else str)
    with np.errstate(over="ignore"):
        array = np.asarray(values, dtype=_dtype(dtype))
    if not _is_finite(array):
        raise BadFile("the file describes a number that is not finite; save it again")
    return array if array.ndim else array.item()


def _dtype(name: Any) -> np.dtype:
    if not NUMBERS.fullmatch(str(name)):
        raise BadFile(f"the file names an unknown numeric type {_short(repr(name))}; save it again")
    return jnp.dtype(name)


def _is_finite(array: np.ndarray) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(np.all(np.isfinite(array)))


def _short(words: object) -> str:
    """Shorten text from a file for an error message."""
    text = str(words)
    return text if len(text) <= 300 else f"{text[:300]}..."


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(eqx.filter(tree, lambda leaf: leaf is not None))[0]


def _shape(spec: dict[str, Any], largest: int) -> jax.ShapeDtypeStruct:
    shape = tuple(spec["shape"])
    if not all(type(size) is int and 0 <= size <= largest for size in shape):
        raise BadFile(f"the input's shape {_short(shape)} is more than the file holds; save it again")
    return jax.ShapeDtypeStruct(shape, _dtype(spec["dtype"]))


def _digest(kind: str, text: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(f"{kind}\n{text}".encode())
    for name in sorted(arrays):
        digest.update(f"\n{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
