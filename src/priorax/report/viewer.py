"""Interactive pages: the exploration viewer and the regression playground, each a single HTML file that needs no
network.
"""

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from priorax.analysis.exploration import EpisodeFrame, Exploration
from priorax.files import write_atomically

LABELS = {
    "bsp": ("Ensemble with priors (BSP)", "with priors"),
    "bsr": ("Ensemble with l2, no priors (BSR)", "l2, no priors"),
    "bs": ("Bootstrap, no priors (BS)", "no priors"),
    "ensemble": ("Ensemble, no priors", "no priors"),
    "eps_greedy": ("ε-greedy DQN", "ε-greedy"),
    "c51": ("Distributional RL (C51)", "C51"),
    "qr": ("Distributional RL (QR)", "QR"),
}
"""Long and short label of each agent."""
MOST_AGENTS = 2
HOLE = re.compile(r"\{\{([\w.]+)\}\}")


def write_viewer(recordings: Sequence[Exploration], path: Path | str) -> Path:
    """Write the exploration viewer of one run, or of two side by side.

    Args:
        recordings: Recordings of exploration (`priorax.analysis.exploration`).
        path: The file to write.

    Returns:
        The file written.
    """
    if not 1 <= len(recordings) <= MOST_AGENTS:
        raise ValueError(f"recordings has {len(recordings)} runs, and a page shows 1 or {MOST_AGENTS}; pass fewer")
    sizes = {recording.size for recording in recordings}
    if len(sizes) > 1:
        raise ValueError(f"recordings have sizes {sorted(sizes)}, which must be equal; record both with the same size")
    size = sizes.pop()
    data = {"size": size, "agents": [_agent(recording) for recording in recordings]}
    runs = [f"{run.agent}, preset {run.preset}, seed {run.seed}, {len(run.found)} episodes" for run in recordings]
    filled = {
        "title": "Why exploration needs a prior",
        "size": str(size),
        "paths": f"one path in {2**size:,}",
        "runs": html.escape("; ".join(runs)),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return write_page("viewer.html", filled, path)


def write_playground(path: Path | str) -> Path:
    """Write the regression playground: exact posterior sampling by lemma 3 on data that can be dragged.

    Args:
        path: The file to write.

    Returns:
        The file written.
    """
    return write_page("playground.html", {"features": "80"}, path)


def write_page(template: str, values: Mapping[str, str], path: Path | str) -> Path:
    """Fill the placeholders of a template and write the page atomically.

    Args:
        template: Name of the template.
        values: Values of placeholders; all others are replaced by the files of their names.
        path: The file to write.

    Returns:
        The file written.
    """
    folder = files("priorax.report") / "pages"

    def fill(hole: re.Match[str]) -> str:
        name = hole.group(1)
        return values[name] if name in values else (folder / name).read_text(encoding="utf-8")

    page = HOLE.sub(fill, (folder / template).read_text(encoding="utf-8"))
    write_atomically(path, page.encode())
    return Path(path)


def _agent(recording: Exploration) -> dict[str, Any]:
    label, short = LABELS.get(recording.agent, (recording.agent, recording.agent))
    return {
        "label": label,
        "short": short,
        "members": recording.num_members,
        "epsilon": recording.epsilon,
        "prior": None if recording.prior is None else _packed(recording.prior),
        "found": (np.flatnonzero(recording.found) + 1).tolist(),
        "seen": recording.seen.tolist(),
        "moments": [_moment(moment) for moment in recording.moments],
    }


def _moment(moment: EpisodeFrame) -> dict[str, Any]:
    return {
        "episode": moment.episode,
        "member": moment.member,
        "path": moment.path.tolist(),
        "found": moment.found,
        "visits": moment.visits.tolist(),
        "followed": _packed(moment.followed),
        "values": _packed(moment.values),
        "mean": _packed(moment.mean),
        "spread": _packed(moment.spread),
    }


def _packed(numbers: np.ndarray) -> dict[str, Any]:
    """Quantise numbers to bytes between their minimum and maximum; the error is at most 1/510 of the range."""
    low, high = float(numbers.min()), float(numbers.max())
    steps = np.round((numbers.ravel() - low) * (255 / (high - low) if high > low else 0.0)).astype(np.uint8)
    return {"low": low, "high": high, "bytes": base64.b64encode(steps.tobytes()).decode()}
