"""What a user waits for: `priorax check`, and the first training step of a second process."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.base import Bench, seconds

FIRST_STEP = """
from priorax.caching import enable_compilation_cache
enable_compilation_cache()
import jax, numpy as np
from priorax.beliefs import method
from priorax.fitting import fit
x = np.random.default_rng(0).standard_normal((1000, 10))
belief, noise = method("bsp")
fit(belief, (x, x[:, 0]), key=jax.random.key(0), noise=noise, steps=1)
"""


def run() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PRIORAX_CACHE": cache}

        def python(*arguments: str) -> float:
            command = [sys.executable, *arguments]
            return seconds(lambda: subprocess.run(command, env=environment, check=True, capture_output=True))

        cold = python("-c", FIRST_STEP)
        warm = min(python("-c", FIRST_STEP) for _ in range(3))
        note = f"fit(), interpreter and imports included; the first process took {cold:.1f} s"
        yield Bench("seconds to the first training step, second process", warm, 3.0, False, note)
        yield Bench("seconds for priorax check", python("-m", "priorax.cli", "check"), 120.0, False, "cold cache")
