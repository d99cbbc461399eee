"""The persistent compilation cache, which saves later processes from compiling again."""

import os
from pathlib import Path

import jax


def enable_compilation_cache(folder: Path | str | None = None) -> Path:
    """Keep compiled programs on disk, for other processes to reuse.

    Programs in that folder are executed, so its permissions are restricted to the current user.

    Args:
        folder: Folder of the cache; by default that in the environment variable `PRIORAX_CACHE`, or the user's cache
            folder.

    Returns:
        The folder.

    Raises:
        PermissionError: If the folder belongs to another user.
    """
    base = os.environ.get("PRIORAX_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "priorax"
    path = Path(folder or base).expanduser()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = path.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise PermissionError(
            f"the compilation cache {path} belongs to another user, and its programs would be executed; set "
            "PRIORAX_CACHE to a folder you own"
        )
    path.chmod(0o700)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path
