"""Checkpoints of a run: killed at any moment, it goes on from the last one to the bit.

    state-<step>.safetensors            everything but replay
    replay-<first>-<end>.safetensors    the transitions inserted in [first, end): each is written once
    commit-<step>.json                  which of these files make a checkpoint, and how long the rows' file was then

The commit comes last and at once: a checkpoint is there or it is not, and rows beyond its length are cut off when
the run goes on. The last two are kept, and only files that they name.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from priorax.loops.compiled import Live, Loop, Snapshot, Tally
from priorax.replay import Buffer, EnsembleBuffer
from priorax.storage import BadFile, Content, read, restore_tree, tree_arrays, write, write_atomically

KEPT = 2


class Commit(NamedTuple):
    """What makes a checkpoint."""

    step: int
    state: str
    segments: list[tuple[int, int]]
    """Transitions [first, end) of each replay file, oldest first."""
    rows_bytes: int
    tally: Tally


class Checkpoints:
    """The checkpoints in a folder."""

    def __init__(self, folder: Path, buffer: EnsembleBuffer) -> None:
        self.folder, self.buffer = folder, buffer
        self.last = self._newest()

    def save(self, snapshot: Snapshot, rows_bytes: int) -> None:
        """Write what is new since the last one, then commit."""
        self.folder.mkdir(exist_ok=True)
        step, time = int(snapshot.live.step), int(snapshot.live.agent.buffer.time)
        segments = list(self.last.segments) if self.last else []
        first = max(segments[-1][1] if segments else 0, time - self.buffer.capacity)
        if first < time:
            write(self.folder / _replay((first, time)), Content("replay", {}, self._inserted(snapshot, first, time)))
            segments.append((first, time))
        segments = [part for part in segments if part[1] > time - self.buffer.capacity]
        state = f"state-{step}.safetensors"
        write(self.folder / state, Content("run", {}, tree_arrays(_light(snapshot.live))))
        commit = Commit(step, state, segments, rows_bytes, snapshot.tally)
        described = {**commit._asdict(), "tally": commit.tally._asdict()}
        write_atomically(self.folder / f"commit-{step}.json", json.dumps(described).encode())
        self.last = commit
        self._clean()

    def restore(self, loop: Loop, key: PRNGKeyArray, params: Any) -> tuple[Snapshot, int]:
        """The last checkpoint, and how many bytes of rows belong to it."""
        commit = self.last
        assert commit is not None
        shape = jax.eval_shape(lambda key, params: loop.init(key, params), key, params)
        try:
            live: Live = restore_tree(_light(shape), read(self.folder / commit.state).arrays)
            live = live._replace(agent=live.agent._replace(buffer=self._refill(commit, shape, live.agent.buffer)))
        except (BadFile, FileNotFoundError) as error:
            name = f"commit-{commit.step}.json"
            older = sorted(_step(path) for path in self.folder.glob("commit-*.json") if _step(path) < commit.step)
            remedy = f"delete {self.folder / name} to go on from step {older[-1]}" if older else "start the run again"
            raise BadFile(f"the checkpoint of step {commit.step} is damaged: {error}; {remedy}") from None
        return Snapshot(live, commit.tally), commit.rows_bytes

    def _inserted(self, snapshot: Snapshot, first: int, end: int) -> dict[str, np.ndarray]:
        slots = np.arange(first, end) % self.buffer.capacity
        buffer: Buffer = snapshot.live.agent.buffer
        mask = None if self.buffer.shared else buffer.mask
        return tree_arrays(jax.tree.map(lambda ring: np.asarray(ring)[slots], (buffer.data, mask)))

    def _refill(self, commit: Commit, shape: Live, light: Buffer) -> Buffer:
        """Replay as it was, from the transitions in its files."""
        whole: Buffer = shape.agent.buffer
        data, mask = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), (whole.data, whole.mask))
        rings = (data, None if self.buffer.shared else mask)
        for first, end in commit.segments:
            arrays = read(self.folder / _replay((first, end))).arrays
            part = jax.tree.map(
                lambda ring, n=end - first: jax.ShapeDtypeStruct((n, *ring.shape[1:]), ring.dtype), rings
            )
            slots = np.arange(first, end) % self.buffer.capacity
            for ring, rows in zip(jax.tree.leaves(rings), jax.tree.leaves(restore_tree(part, arrays)), strict=True):
                ring[slots] = np.asarray(rows)
        own = np.zeros(whole.own.shape, whole.own.dtype)
        if not self.buffer.shared:
            times = np.arange(max(0, int(light.time) - self.buffer.capacity), int(light.time))
            for k, inserted in enumerate(np.asarray(light.own_inserted)):
                mine = times[mask[times % self.buffer.capacity, k]]
                own[k, np.arange(inserted - len(mine), inserted) % self.buffer.capacity] = mine
        filled = jax.tree.map(jnp.asarray, (data, mask, own))
        return light._replace(data=filled[0], mask=filled[1], own=filled[2])

    def _newest(self) -> Commit | None:
        paths = sorted(self.folder.glob("commit-*.json"), key=_step)
        if not paths:
            return None
        try:
            found = json.loads(paths[-1].read_text())
            segments = [(int(first), int(end)) for first, end in found.pop("segments")]
            return Commit(segments=segments, tally=Tally(**found.pop("tally")), **found)
        except (ValueError, TypeError, KeyError) as error:
            raise BadFile(f"{paths[-1]} is damaged ({error}); delete it to go on from the checkpoint before") from None

    def _clean(self) -> None:
        """Keep the last commits and what they name."""
        commits = sorted(self.folder.glob("commit-*.json"), key=_step)
        for old in commits[:-KEPT]:
            old.unlink()
        named = set()
        for path in commits[-KEPT:]:
            found = json.loads(path.read_text())
            named |= {found["state"], *(_replay(part) for part in found["segments"])}
        for path in self.folder.glob("*.safetensors"):
            if path.name not in named:
                path.unlink()


def _light(live: Any) -> Any:
    """A run without the big arrays of its replay."""
    buffer = live.agent.buffer._replace(data=(), mask=(), own=())
    return live._replace(agent=live.agent._replace(buffer=buffer))


def _replay(part: Any) -> str:
    first, end = part
    return f"replay-{first}-{end}.safetensors"


def _step(path: Path) -> int:
    return int(path.stem.split("-")[1])
