"""Files of priorax: written atomically, with a checksum, without pickle.

A file is one safetensors file whose header holds a JSON description and a SHA-256 checksum of the content. Writing is
atomic: a reader sees either the old file or the new one.
"""

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

VERSION = 1
"""Version of the file format."""


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
    _check_folder(path)
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


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; create it first or choose another path")


def refuse_existing(path: Path | str, overwrite: bool = False) -> None:
    """Check before long work that its file can be written at the end.

    Args:
        path: The file to write.
        overwrite: Whether it may replace another file.

    Raises:
        FileNotFoundError: If its folder does not exist.
        FileExistsError: If it exists and may not be replaced.
        IsADirectoryError: If it is a folder.
    """
    path = Path(path)
    _check_folder(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass the path of a file")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; pass --overwrite to replace it, or choose another path")


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
        raise BadFile(f"{path} is not a priorax file, or is truncated ({short(error)}); save it again") from None
    if metadata.get("format") != "priorax":
        raise BadFile(f"{path} was not written by priorax; pass a file made by save()")
    if metadata.get("version") != str(VERSION):
        found = metadata.get("version")
        raise BadFile(
            f"{path} has format version {short(repr(found))}, but this version of priorax reads {VERSION}; use the "
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
            raise ValueError(f"the number {short(word)}")
        return int(word)

    def real(word: str) -> float:
        value = float(word)
        if not math.isfinite(value):
            raise ValueError(f"the number {short(word)}")
        return value

    with reading(path):
        return json.loads(text, parse_int=whole, parse_float=real, parse_constant=real)


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
        words = short(error) or type(error).__name__
        raise BadFile(f"{path} describes an object that cannot be built ({words}); save it again") from error


def short(words: object) -> str:
    """Shorten text from a file to 300 characters, for an error message.

    Args:
        words: The text, or anything with a string form.

    Returns:
        The shortened text.
    """
    text = str(words)
    return text if len(text) <= 300 else f"{text[:300]}..."


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
