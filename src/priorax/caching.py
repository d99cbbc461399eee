"""The persistent compilation cache: the second process starts training without compiling."""

import os
from pathlib import Path

import jax


def enable_compilation_cache(folder: Path | str | None = None) -> Path:
    """Keep compiled programs on disk. The default folder is the user's cache, or `PRIORAX_CACHE`.

    What is in that folder is run: its rights are set to the user only, and another user's folder is refused.
    """
    base = os.environ.get("PRIORAX_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "priorax"
    path = Path(folder or base).expanduser()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = path.stat()
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        raise PermissionError(
            f"the cache {path} belongs to another user and would be run; set PRIORAX_CACHE to your own"
        )
    path.chmod(0o700)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path
