"""Save and load fitted beliefs and estimators as arrays and JSON, without pickle.

The format of a file is that of `priorax.files`. Loading instantiates only the classes listed in `KINDS` and never runs
code from the file.

A checksum detects damage, not tampering, so the description is validated before anything is built from it: no size may
exceed the size of the file's arrays, shapes must match those of the arrays, and numbers must be finite. Every violation
raises `BadFile`.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from priorax import beliefs, convnets, family, heads, networks, noise, priors
from priorax.beliefs import Belief, BeliefState
from priorax.files import BadFile, Content, read, reading, short, write
from priorax.networks import Network

KINDS: dict[str, type] = {
    kind.__name__ if module is not heads else f"head.{kind.__name__}": kind
    for module, kinds in {
        networks: (networks.MLP, networks.FourierCode, networks.Table, networks.Dueling),
        convnets: (convnets.Convnet,),
        priors: (
            priors.Linear,
            priors.RandomFourier,
            priors.Constant,
            priors.Tabulated,
            priors.Around,
            priors.UnitSize,
            priors.RandomSize,
            priors.UnitRows,
            priors.Independent,
        ),
        family: (family.Learned, family.FamilyMember),
        heads: (heads.Scalar, heads.Gaussian, heads.Classes, heads.C51, heads.Quantiles),
        noise: (noise.Gaussian,),
        beliefs: (
            beliefs.Adam,
            beliefs.RMSProp,
            beliefs.Langevin,
            beliefs.L2,
            beliefs.Ensemble,
            beliefs.Dropout,
            beliefs.GaussianWeights,
            beliefs.SharedTorso,
            beliefs.Hypermodel,
            beliefs.Epinet,
            beliefs.Outcomes,
            beliefs.Counts,
            beliefs.Distillation,
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
        kind = short(content.kind)
        raise BadFile(f"{path} holds a {kind}; load it with {kind}.load(path)")
    with reading(path):
        belief = rebuild(content.description["belief"], own, content.largest)
        example = jax.tree.map(
            lambda spec: _shape(spec, content.largest),
            content.description["x"],
            is_leaf=lambda node: "shape" in node and "dtype" in node,
        )
        return belief, restore_state(belief, example, content.arrays)


def save_prior(path: Path | str, prior: Network) -> None:
    """Save a prior to a file: the distribution, not a draw of it.

    Args:
        path: The file to write.
        prior: The prior, as returned by `priorax.learn_prior`, or any other without custom code.

    Raises:
        ValueError: If the prior is custom code.
    """
    described = describe(prior, "prior")
    own = next(_own(described), None)
    if own is not None:
        part = f"prior={prior!r}" if own == "prior" else f"prior={type(prior).__name__} has a part {own!r} that"
        raise ValueError(f"{part} is custom code, which is not saved; pass a learned one, or one of priorax.priors")
    write(path, Content("prior", described, {}))


def _own(description: Any) -> Iterator[str]:
    """Find the names of the parts of a description that are custom code."""
    if isinstance(description, dict):
        if "own" in description and len(description) == 1:
            yield description["own"]
        yield from _own(list(description.values()))
    elif isinstance(description, list):
        for part in description:
            yield from _own(part)


def load_prior(path: Path | str) -> Network:
    """Load a prior. No code from the file is run.

    Args:
        path: The file, written by `save_prior`.

    Returns:
        The prior.

    Raises:
        BadFile: If the file was not written by `save_prior`, is damaged, or describes something invalid.
        FileNotFoundError: If the file does not exist.
    """
    content = read(path)
    with reading(path):
        found = rebuild(content.description, {}, content.largest) if content.kind == "prior" else None
        if not isinstance(found, Network):
            raise BadFile(f"{path} holds a {short(content.kind)}, not a prior; pass a file made by save_prior")
    return found


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
        raise BadFile(f"{short(needless[0])} is in the file but not part of the object it describes; save it again")
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
            raise BadFile(f"the file names an unknown function {short(description['function'])}; save it again")
        return jnp.ravel
    if "own" in description:
        name = str(description["own"])
        if name not in own:
            name = short(name)
            raise BadFile(f"{name} is custom code, which is not in the file; pass it: load(path, {name}=...)")
        return own[name]
    for make in (tuple, list):
        if make.__name__ in description:
            return make(rebuild(part, own, largest) for part in description[make.__name__])
    if "dict" in description:
        return {rebuild(key, own, largest): rebuild(part, own, largest) for key, part in description["dict"]}
    kind = KINDS.get(description.get("kind", ""))
    if kind is None:
        found = short(repr(description.get("kind")))
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
            raise BadFile(f"{field.name}={short(repr(value))} has the wrong type; save it again")
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
            raise BadFile(f"{short(name)}={part} is more than the file holds; save it again")


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
        raise BadFile(f"the file names an unknown numeric type {short(repr(name))}; save it again")
    return jnp.dtype(name)


def _is_finite(array: np.ndarray) -> bool:
    return not jnp.issubdtype(array.dtype, jnp.inexact) or bool(np.all(np.isfinite(array)))


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(eqx.filter(tree, lambda leaf: leaf is not None))[0]


def _shape(spec: dict[str, Any], largest: int) -> jax.ShapeDtypeStruct:
    shape = tuple(spec["shape"])
    if not all(type(size) is int and 0 <= size <= largest for size in shape):
        raise BadFile(f"the input's shape {short(shape)} is more than the file holds; save it again")
    return jax.ShapeDtypeStruct(shape, _dtype(spec["dtype"]))
