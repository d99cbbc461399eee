"""Files of arrays and JSON: fitted beliefs and estimators, without pickle.

A file is one safetensors file whose header carries a JSON description and a SHA-256 of everything. Reading builds
only classes named in `KINDS` and never runs code from the file. Writing is atomic: a reader sees the old file or
the new one, whatever happens in between.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from priorax import beliefs, heads, networks, noise, priors
from priorax.beliefs import Belief, State
from priorax.beliefs.base import Adam

VERSION = 1

KINDS: dict[str, type] = {
    kind.__name__ if module is not heads else f"head.{kind.__name__}": kind
    for module, kinds in {
        networks: (networks.MLP, networks.Table),
        priors: (priors.Linear, priors.RandomFourier, priors.Constant, priors.Tabulated, priors.Around),
        heads: (heads.Scalar, heads.Gaussian, heads.Classes, heads.C51, heads.Quantiles),
        noise: (noise.Gaussian,),
        beliefs: (
            Adam,
            beliefs.L2,
            beliefs.Ensemble,
            beliefs.Dropout,
            beliefs.GaussianWeights,
            beliefs.Outcomes,
            beliefs.Counts,
            beliefs.TableCount,
            beliefs.GaussianCount,
            beliefs.ExactBayes,
        ),
    }.items()
    for kind in kinds
}
"""What a file may name. Anything else in a description is a user's own code, which files do not hold."""

NAMES = {kind: name for name, kind in KINDS.items()}


class BadFile(ValueError):
    """The file is not ours, is damaged, or is of another version."""


class Content(NamedTuple):
    """What a file holds."""

    kind: str
    description: Any
    arrays: dict[str, np.ndarray]


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
    except SafetensorError as error:
        raise BadFile(f"{path} is not a priorax file, or was cut short ({error}); write it again") from None
    if metadata.get("format") != "priorax":
        raise BadFile(f"{path} was not written by priorax; pass a file made by save()")
    if metadata.get("version") != str(VERSION):
        found = metadata.get("version")
        raise BadFile(f"{path} has version {found!r}, this priorax reads {VERSION}; use the release that wrote it")
    kind, text = metadata.get("kind", ""), metadata.get("description", "")
    if metadata.get("sha256") != _digest(kind, text, arrays):
        raise BadFile(f"{path} was altered or damaged since it was written (its checksum differs); write it again")
    return Content(kind, json.loads(text), arrays)


def save(path: Path | str, belief: Belief, state: State, x: Any) -> None:
    """Save a belief and its state; x is one example input, which fixes the shapes."""
    spec = jax.tree.map(lambda leaf: {"shape": list(np.shape(leaf)), "dtype": str(jnp.asarray(leaf).dtype)}, x)
    write(path, Content("belief", {"belief": describe(belief), "x": spec}, tree_arrays(state)))


def load(path: Path | str, **own: Any) -> tuple[Belief, State]:
    """Load a belief and its state. Parts that are your own code are not in the file: pass them by field name, as in
    `load(path, network=module(make))`."""
    content = read(path)
    if content.kind != "belief":
        raise BadFile(f"{path} holds a {content.kind}; load it with {content.kind}.load(path)")
    with reading(path):
        belief = rebuild(content.description["belief"], own)
        spec = content.description["x"]
        example = jax.tree.map(_shape, spec, is_leaf=lambda node: "shape" in node and "dtype" in node)
        return belief, restore_state(belief, example, content.arrays)


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Whatever goes wrong in making sense of a file is the file's fault."""
    try:
        yield
    except BadFile:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise BadFile(f"{path} describes nothing that can be built ({error}); write it again") from error


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


def restore_state(belief: Belief, x: Any, arrays: Mapping[str, np.ndarray]) -> State:
    """The state with that belief's structure and those leaves."""
    return restore_tree(jax.eval_shape(lambda x: belief.init(jax.random.key(0), x), x), arrays)


def describe(thing: Any, name: str = "value") -> Any:
    """Settings as JSON. What is not ours becomes a gap that `rebuild` asks for by its field name."""
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, np.generic | np.ndarray | jax.Array):
        return {"array": np.asarray(thing).tolist(), "dtype": str(np.asarray(thing).dtype)}
    if isinstance(thing, tuple | list) and not any(callable(part) for part in thing):
        return {type(thing).__name__: [describe(part, name) for part in thing]}
    if isinstance(thing, dict):
        return {"dict": [[describe(key), describe(value, name)] for key, value in thing.items()]}
    if type(thing) in NAMES:
        fields = {f.name: describe(getattr(thing, f.name), f.name) for f in dataclasses.fields(thing)}
        return {"kind": NAMES[type(thing)], "fields": fields}
    for known, noise_object in noise.NOISES.items():
        if thing is noise_object:
            return known
    if thing is jnp.ravel:
        return {"function": "ravel"}
    return {"own": name}


def rebuild(description: Any, own: Mapping[str, Any]) -> Any:
    """The settings that a description describes; only classes in `KINDS` are ever made."""
    if not isinstance(description, dict):
        return description
    if "array" in description:
        array = np.asarray(description["array"], dtype=description["dtype"])
        return array if array.ndim else array.item()
    if "function" in description:
        return jnp.ravel
    if "own" in description:
        name = description["own"]
        if name not in own:
            raise BadFile(f"{name} is your own code and is not in the file; pass it again: load(path, {name}=...)")
        return own[name]
    if "dict" in description:
        return {rebuild(key, own): rebuild(value, own) for key, value in description["dict"]}
    for make in (tuple, list):
        if make.__name__ in description:
            return make(rebuild(part, own) for part in description[make.__name__])
    kind = KINDS.get(description.get("kind", ""))
    if kind is None:
        raise BadFile(f"the file names an unknown kind {description.get('kind')!r}; use the release that wrote it")
    return kind(**{name: rebuild(part, own) for name, part in description["fields"].items()})


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(eqx.filter(tree, lambda leaf: leaf is not None))[0]


def _shape(spec: dict[str, Any]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(spec["shape"]), np.dtype(spec["dtype"]))


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
