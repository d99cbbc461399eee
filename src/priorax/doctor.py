"""`priorax doctor`: report the installation and its problems."""

import os
import platform
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from priorax.version import __version__

NEEDED = ("jax", "jaxlib", "equinox", "optax", "numpy", "scikit-learn")
"""Required distributions."""
EXTRAS = {
    "control": ("dm_control", "mujoco", "gymnasium"),
    "gymnasium": ("gymnasium",),
    "gymnax": ("gymnax",),
    "bsuite": ("bsuite",),
    "atari": ("ale-py", "gymnasium"),
    "cluster": ("ray",),
    "docs": ("mkdocs", "mkdocs-material", "mkdocstrings", "mkdocstrings-python", "pymdown-extensions", "ruff"),
    "peers": ("stable-baselines3", "bsuite", "dm-haiku", "rlax", "gymnasium", "optuna", "mabwiser"),
    "rivals": ("ngboost",),
    "bench": ("bsuite", "dm-haiku", "rlax"),
    "dev": (
        "ruff",
        "mypy",
        "import-linter",
        "pytest",
        "pytest-xdist",
        "build",
        "beartype",
        "pandas",
        "polars",
        "mapie",
        "uncertainty-toolbox",
        "nbclient",
        "nbformat",
        "ipykernel",
    ),
}
"""Distributions of each extra in pyproject.toml; a test compares them."""
VARIABLES = ("XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "NPROC", "OMP_NUM_THREADS", "PRIORAX_CACHE")
"""Environment variables that affect how priorax runs."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell", "chrome")
"""Commands of headless browsers."""
LITTLE_MEMORY = 1.0
"""Free memory in GB below which larger fits may be killed."""


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    """Name of the item."""
    value: str
    """State of the item."""
    ok: bool = True
    """False if it is a problem; a missing optional part is not a problem."""
    remedy: str = ""
    """How to solve the problem or install the optional part."""


def examine() -> list[Finding]:
    """Examine the installation.

    Returns:
        The findings, in reading order.
    """
    found = [Finding("priorax", __version__), _python()]
    found += [_needed(name) for name in NEEDED]
    found += [_devices(), _cores(), _memory()]
    found += [Finding(name, os.environ[name]) for name in VARIABLES if os.environ.get(name)]
    found.append(_cache())
    found += [_extra(name, parts) for name, parts in EXTRAS.items()]
    found.append(_browser())
    return found


def _python() -> Finding:
    new = tuple(map(int, platform.python_version_tuple()[:2])) >= (3, 11)
    words = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("python", words, new, "" if new else "install Python 3.11 or newer")


def is_installed(name: str) -> bool:
    """Check whether a package is installed, without importing it.

    Args:
        name: Name of the distribution.

    Returns:
        Whether it is.
    """
    return _version(name) is not None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _needed(name: str) -> Finding:
    version = _version(name)
    return Finding(name, version) if version else Finding(name, "not installed", False, "pip install priorax")


def _extra(name: str, parts: tuple[str, ...]) -> Finding:
    """Report an extra: present, absent (not a problem) or incomplete."""
    versions = {part: _version(part) for part in parts}
    present = [f"{part} {version}" for part, version in versions.items() if version]
    missing = [part for part, version in versions.items() if not version]
    title, remedy = f"extra {name}", f'pip install "priorax[{name}]"'
    if not missing:
        return Finding(title, ", ".join(present))
    words = f"{', '.join(missing)} not installed" + (f"; {', '.join(present)}" if present else "")
    return Finding(title, words, remedy=remedy)


def _devices() -> Finding:
    try:
        import jax

        devices = jax.devices()
    except (ImportError, RuntimeError) as error:
        return Finding("devices", f"none ({error})", False, "unset JAX_PLATFORMS, or install jax for this machine")
    kinds = [device.device_kind for device in devices]
    words = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    return Finding("devices", f"{words} ({jax.default_backend()})")


def _cores() -> Finding:
    count = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count
    return Finding("cores", str(count) if usable == count else f"{usable} of {count}")


def _memory() -> Finding:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(lines[name].split()[0]) / 2**20 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return Finding("memory", "unknown")
    enough = free >= LITTLE_MEMORY
    remedy = "" if enough else f"close other programs: below {LITTLE_MEMORY:g} GB larger fits may be killed"
    return Finding("memory", f"{free:.1f} of {total:.1f} GB free", enough, remedy)


def _cache() -> Finding:
    """Report the folder of the compilation cache, and whether it is writable."""
    remedy = "set PRIORAX_CACHE to a folder you own; without it every process compiles again"
    try:
        import jax

        from priorax.caching import enable_compilation_cache

        folder = Path(getattr(jax.config, "jax_compilation_cache_dir", None) or enable_compilation_cache())
        with tempfile.TemporaryFile(dir=folder):
            pass
        sizes = [file.stat().st_size for file in folder.iterdir() if file.is_file()]
    except (ImportError, OSError) as error:
        return Finding("compilation cache", f"none ({error})", False, remedy)
    return Finding("compilation cache", f"{folder}: {len(sizes)} files, {sum(sizes) / 2**20:.0f} MB")


def _browser() -> Finding:
    path = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if path is None:
        return Finding("headless browser", "not found (optional)", remedy="install chromium to take screenshots")
    return Finding("headless browser", path)
