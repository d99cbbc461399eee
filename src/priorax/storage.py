"""Files of arrays and JSON: fitted beliefs and estimators, without pickle.

A file is one safetensors file whose header carries a JSON description and a SHA-256 of everything. Reading builds
only classes named in `KINDS` and never runs code from the file. Writing is atomic: a reader sees the old file or
the new one, whatever happens in between.

A checksum tells damage, not intent: whoever makes a file can make its checksum. So nothing in a description is believed
before it is looked at. No size that it names may be larger than what the file holds, shapes are compared with those of
the arrays before anything is made, numbers are finite, and whatever is wrong with a file is a `BadFile`.
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
"""What a file may name. Anything else in a description is a user's own code, which files do not hold."""

NAMES = {kind: name for name, kind in KINDS.items()}

NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|bfloat16")
WORDS = re.compile(r"[<>=|]?U\d*|object")
"""Types of arrays in a description. Those of words are as wide as the words are, whatever it says."""
SMALL = 2**20
"""A size below this costs nothing, however small the file."""


class BadFile(ValueError):
    """The file is not ours, is damaged, is of another version, or describes what cannot be."""


class Content(NamedTuple):
    """What a file holds."""

    kind: str
    description: Any
    arrays: dict[str, np.ndarray]

    @property
    def largest(self) -> int:
        """No size in the description can be larger: what has that size is in the file."""
        return max(SMALL, sum(array.nbytes for array in self.arrays.values()))


def write_atomically(path: Path | str, content: bytes) -> None:
    """All of it or nothing: written beside the target, flushed to disk, then renamed over it."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; make it first or choose another path")
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
    """Write one file; `description` is anything JSON can say."""
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
    """Read one file, or say what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except OSError:
        raise
    except Exception as error:  # its own error class, and others for types and shapes that numpy does not have
        raise BadFile(f"{path} is not a priorax file, or was cut short ({_short(error)}); write it again") from None
    if metadata.get("format") != "priorax":
        raise BadFile(f"{path} was not written by priorax; pass a file made by save()")
    if metadata.get("version") != str(VERSION):
        found = metadata.get("version")
        raise BadFile(
            f"{path} has version {_short(repr(found))}, this priorax reads {VERSION}; use the release that wrote it"
        )
    kind, text = metadata.get("kind", ""), metadata.get("description", "")
    if metadata.get("sha256") != _digest(kind, text, arrays):
        raise BadFile(f"{path} was altered or damaged since it was written (its checksum differs); write it again")
    return Content(kind, parse_json(path, text), arrays)


def parse_json(path: Path | str, text: str | bytes) -> Any:
    """What a file says in JSON: numbers are finite and of at most 20 digits.

    Args:
        path: The file, for the error.
        text: What it says.

    Raises:
        BadFile: If it is no JSON, is nested too deeply, or holds a number that no file of ours does.
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
    """Save a belief and its state; x is one example input, which fixes the shapes."""
    spec = jax.tree.map(lambda leaf: {"shape": list(np.shape(leaf)), "dtype": str(jnp.asarray(leaf).dtype)}, x)
    write(path, Content("belief", {"belief": describe(belief), "x": spec}, state_arrays(state)))


def load(path: Path | str, **own: Any) -> tuple[Belief, BeliefState]:
    """Load a belief and its state. Parts that are your own code are not in the file: pass them by field name, as in
    `load(path, network=module(make))`.

    Raises:
        BadFile: If the file is not ours, is damaged, or describes what cannot be.
        FileNotFoundError: If there is none.
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
    """Whatever goes wrong in making sense of a file is the file's fault: a `BadFile`."""
    try:
        yield
    except (BadFile, OSError):
        raise
    except Exception as error:
        words = _short(error) or type(error).__name__
        raise BadFile(f"{path} describes nothing that can be built ({words}); write it again") from error


def tree_arrays(tree: Any) -> dict[str, np.ndarray]:
    """A tree's leaves by name."""
    return {f"state{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in _leaves(tree)}


def restore_tree(shape: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The tree of that shape with those leaves."""
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
    """A belief's state by name, for a file; what is not finite is refused here, as `restore_state` would."""
    arrays = tree_arrays(state)
    for name, array in arrays.items():
        if not _is_finite(array):
            raise ValueError(
                f"{name} holds NaN or infinity, so nothing is saved; fit again, with a lower learning_rate"
            )
    return arrays


def restore_state(belief: Belief, x: Any, arrays: Mapping[str, np.ndarray]) -> BeliefState:
    """The state with that belief's structure and those leaves, all of them finite; x is one example input, or its
    shape. That the belief can be drawn from is made sure by shapes alone: nothing is computed."""
    key = jax.random.key(0)
    shape = jax.eval_shape(lambda x: belief.init(key, x), x)
    state = restore_tree(shape, arrays)
    needless = sorted(set(arrays) - {f"state{jax.tree_util.keystr(path)}" for path, _ in _leaves(shape)})
    if needless:
        raise BadFile(f"{_short(needless[0])} is in the file but in no part of what it describes; write it again")
    for name, array in arrays.items():
        if not _is_finite(array):
            raise BadFile(f"{name} holds NaN or infinity; fit again and write it again")
    hash(jax.tree.structure(belief))  # what cannot be hashed cannot be compiled
    drawn = jax.eval_shape(lambda state, x: belief.value(state, belief.draw(state, key), x), state, x)
    if drawn.shape != (belief.num_outputs,):
        raise BadFile(f"what is described gives {drawn.shape} for num_outputs={belief.num_outputs}; write it again")
    return state


def describe(thing: Any, name: str = "value") -> Any:
    """Settings as JSON. What is not ours becomes a gap that `rebuild` asks for by its field name."""
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
    if isinstance(thing, noise.Resampling):  # a copy, as scikit-learn's clone makes, is as good
        for known, ours in noise.NOISES.items():
            if thing == ours:
                return known
    if thing is jnp.ravel:
        return {"function": "ravel"}
    return {"own": name}


def rebuild(description: Any, own: Mapping[str, Any], largest: int) -> Any:
    """The settings that a description describes; only classes in `KINDS` are ever made.

    Args:
        description: What `describe` gave.
        own: What stands in for the user's own code, by field name.
        largest: No size may be larger (`Content.largest`).

    Raises:
        BadFile: If the file names what is not ours, or a size that it does not hold.
    """
    if isinstance(description, list):
        raise BadFile("the file holds a bare list where a setting should be; write it again")
    if not isinstance(description, dict):
        return description
    if "array" in description:
        return _array(description["array"], description["dtype"], largest)
    if "function" in description:
        if description["function"] != "ravel":
            raise BadFile(f"the file names an unknown function {_short(description['function'])}; write it again")
        return jnp.ravel
    if "own" in description:
        name = str(description["own"])
        if name not in own:
            name = _short(name)
            raise BadFile(f"{name} is your own code and is not in the file; pass it again: load(path, {name}=...)")
        return own[name]
    for make in (tuple, list):
        if make.__name__ in description:
            return make(rebuild(part, own, largest) for part in description[make.__name__])
    if "dict" in description:
        return {rebuild(key, own, largest): rebuild(part, own, largest) for key, part in description["dict"]}
    kind = KINDS.get(description.get("kind", ""))
    if kind is None:
        found = _short(repr(description.get("kind")))
        raise BadFile(f"the file names an unknown kind {found}; use the release that wrote it")
    fields = {name: rebuild(part, own, largest) for name, part in description["fields"].items()}
    for field in dataclasses.fields(kind):
        if field.name in fields:
            _check_field(field, fields[field.name], largest)
    return kind(**fields)


def _check_field(field: dataclasses.Field, value: Any, largest: int) -> None:
    """Plain fields hold what they are declared to hold; those that are whole numbers are all sizes."""
    declared = get_args(field.type) if isinstance(field.type, UnionType) else (field.type,)
    if all(part in (bool, int, float, str, type(None)) for part in declared):
        wanted = (*declared, int) if float in declared else declared
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in declared):
            raise BadFile(f"{field.name}={_short(repr(value))} is of the wrong type; write it again")
    if re.search(r"\bint\b", str(field.type)):
        refuse_size(field.name, value, largest)


def refuse_size(name: str, value: Any, largest: int) -> None:
    """A setting that is a size, or some: no larger than what the file holds."""
    for part in jax.tree.leaves(value) if isinstance(value, tuple | list) else [value]:
        if isinstance(part, int) and part > largest:
            raise BadFile(f"{_short(name)}={part} is more than the file holds; write it again")


def _array(values: Any, dtype: Any, largest: int) -> Any:
    """An array of a description; a single number as such. Its memory follows from what the file holds."""
    if WORDS.fullmatch(str(dtype)):
        plain = str if dtype != "object" else bool | int | float | str | None
        if not isinstance(values, list) or not all(isinstance(value, plain) for value in values):
            raise BadFile("the file holds a list of words in which something is no word; write it again")
        width = max((len(value) for value in values), default=0) if plain is str else 1
        if width * len(values) > largest:
            raise BadFile(f"{len(values)} words, one of them {width} letters long, are more than the file holds")
        return np.array(values, dtype=object if dtype == "object" else str)
    with np.errstate(over="ignore"):
        array = np.asarray(values, dtype=_dtype(dtype))
    if not _is_finite(array):
        raise BadFile("the file describes a number that is not finite; write it again")
    return array if array.ndim else array.item()


def _dtype(name: Any) -> np.dtype:
    if not NUMBERS.fullmatch(str(name)):
        raise BadFile(f"the file names an unknown type of number {_short(repr(name))}; write it again")
    return jnp.dtype(name)


def _is_finite(array: np.ndarray) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(np.all(np.isfinite(array)))


def _short(words: object) -> str:
    """For an error: what a file says may be long."""
    text = str(words)
    return text if len(text) <= 300 else f"{text[:300]}..."


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(eqx.filter(tree, lambda leaf: leaf is not None))[0]


def _shape(spec: dict[str, Any], largest: int) -> jax.ShapeDtypeStruct:
    shape = tuple(spec["shape"])
    if not all(type(size) is int and 0 <= size <= largest for size in shape):
        raise BadFile(f"the input's shape {_short(shape)} is more than the file holds; write it again")
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
