"""`priorax apex` on a Ray cluster of several nodes, each a `ray start` of its own: nodes go and come, workers hang, the
driver is killed or told to stop, and the run goes on, or leaves a checkpoint and no process."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from conftest import until
from priorax.training.checkpoint import Checkpoints
from priorax.training.run_files import read_episodes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

PATIENCE = 600
"""Seconds to wait for anything: far more than any of it takes, for a busy machine."""
STORE = 200_000_000
"""Bytes of each node's object store."""
LANES = 2
SETTINGS = {
    "torso": "small",
    "features": 32,
    "lanes": LANES,
    "batch_size": 16,
    "learn_every": 4,
    "learn_after": 32,
    "capacity": 2000,
    "num_members": 3,
}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


def session_of(leader):
    """Process ids and titles of the session that a process leads: of a whole node, or a driver with its own Ray."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == leader and "\nState:\tZ" not in (folder / "status").read_text():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


def workers_of(leader):
    """Process ids of the actors and shards in a session."""
    return {pid for pid, title in session_of(leader).items() if title.startswith(("ray::Rollout", "ray::Shard"))}


def kill_session(leader):
    while found := session_of(leader):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


@contextlib.contextmanager
def started(command, env=None, **options):
    """A process that leads a session, of which nothing is left at the end."""
    env = {**os.environ, **QUIET, **(env or {})}
    with subprocess.Popen(command, env=env, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            kill_session(process.pid)


class Nodes:
    """A Ray cluster. Its head has no CPU for workers, so that they are all on nodes that may go."""

    def __init__(self, stack, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.stack, self.folder, self.leaders = stack, Path(folder), []
        self.env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        port = self.address.split(":")[1]
        self.head = self._start("--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false", cpus=0)

    def add(self, cpus):
        return self._start(f"--address={self.address}", cpus=cpus)

    def _start(self, *arguments, cpus):
        command = [str(Path(sys.executable).parent / "ray"), "start", "--block", *arguments, f"--num-cpus={cpus}"]
        command += [f"--object-store-memory={STORE}", "--min-worker-port=0", "--max-worker-port=0"]
        log = self.folder / f"node-{len(self.leaders)}.log"
        output = self.stack.enter_context(log.open("w"))
        node = started([*command, "--node-ip-address=127.0.0.1"], self.env, stdout=output, stderr=output)
        process = self.stack.enter_context(node)
        self.leaders.append(process.pid)
        until(lambda: "Ray runtime started" in log.read_text(), process)
        return process


@pytest.fixture(scope="module")
def nodes():
    with tempfile.TemporaryDirectory(prefix="ray") as folder, contextlib.ExitStack() as stack:
        yield Nodes(stack, folder)  # not in tmp_path: names of sockets must be short


def apex(out, *arguments, actors=2, env=None, resume=False, **changes):
    """A run from the command line, with a checkpoint every half second."""
    changes = [f"{name}={value}" for name, value in {**SETTINGS, **changes}.items()]
    task = ["--env", "pixel_deep_sea", "--size", "4", "--out", str(out), "--actors", str(actors), "--set", *changes]
    if resume:
        task = ["--resume", str(out)]
    command = [sys.executable, "-m", "priorax.cli", "apex", *task, "--checkpoint-seconds", "0.5", "--json", *arguments]
    return started(command, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def episodes_in(out):
    last = Checkpoints(out / "checkpoint").last
    return last.episodes if last else 0


def goes_on(out, run, lanes=LANES * 2):
    """Wait until every lane has ended an episode from now on."""
    before = episodes_in(out)
    until(lambda: episodes_in(out) > before + 20, run)
    until(lambda: {row.lane for row in read_episodes(out)[before:]} == set(range(lanes)), run)


@pytest.fixture(scope="module", autouse=True)
def killed(tmp_path_factory):
    """The session of a driver that was killed before the other tests: Ray's agents take a minute to give up."""
    out = tmp_path_factory.mktemp("run")
    with apex(out, "--steps", "1000000", actors=1) as run:
        goes_on(out, run, LANES)
        assert len(workers_of(run.pid)) == 2
        run.kill()
        run.wait()
        yield run.pid


def test_a_run_outlives_all_nodes_that_it_began_on(nodes, tmp_path):
    """One is killed, one is told to stop; the workers of each come back on the next, and all replay is lost once."""
    first, second = nodes.add(2), nodes.add(1)
    with apex(tmp_path, "--steps", "1000000", "--address", nodes.address, env=nodes.env) as run:
        goes_on(tmp_path, run)
        assert len(workers_of(first.pid)) == 2 and len(workers_of(second.pid)) == 1
        kill_session(first.pid)
        third = nodes.add(2)
        until(lambda: len(workers_of(third.pid)) == 2, run)
        goes_on(tmp_path, run)
        second.terminate()
        until(lambda: not session_of(second.pid), run)
        fourth = nodes.add(1)
        until(lambda: len(workers_of(fourth.pid)) == 1, run)
        goes_on(tmp_path, run)
        steps = Checkpoints(tmp_path / "checkpoint").last.step
        run.terminate()
        said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 143 and f"priorax apex --resume {tmp_path}" in said[1]
    assert not workers_of(third.pid) and not workers_of(fourth.pid)
    last = Checkpoints(tmp_path / "checkpoint").last
    assert last.step >= steps and last.episodes == len(read_episodes(tmp_path))
    with apex(tmp_path, "--steps", str(last.step + 100), "--address", nodes.address, env=nodes.env, resume=True) as run:
        result = json.loads(run.communicate(timeout=PATIENCE)[0])
    assert run.returncode == 0 and result["steps"] >= last.step + 100 and result["cluster"]["restarts"] == 0


def test_a_run_goes_on_in_a_small_object_store(nodes, tmp_path):
    """With minibatches of 29 MB, of which some six are under way, and more than twice the store in all."""
    nodes.add(2)
    batch, steps = 2048, 3200
    changes = {"batch_size": batch, "learn_after": batch, "learn_every": 64, "capacity": 10_000}
    arguments = ["--steps", str(steps), "--address", nodes.address]
    with apex(tmp_path, *arguments, actors=1, env=nodes.env, **changes) as run:
        said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said[1]
    result = json.loads(said[0])
    assert result["steps"] >= steps and result["cluster"]["restarts"] == 0
    assert result["updates"] * batch * 2 * 84 * 84 > 2 * STORE


def test_a_killed_driver_leaves_its_cluster_without_workers(nodes, tmp_path):
    node = nodes.add(2)
    with apex(tmp_path, "--steps", "1000000", "--address", nodes.address, actors=1, env=nodes.env) as run:
        goes_on(tmp_path, run, LANES)
        run.kill()
        run.wait()
    until(lambda: not any(workers_of(each) for each in nodes.leaders))
    assert node.poll() is None and nodes.head.poll() is None


def test_a_driver_stopped_with_all_its_processes_leaves_a_checkpoint(tmp_path):
    """A scheduler sends SIGTERM to the driver and to all of the Ray that it started, at once."""
    with apex(tmp_path, "--steps", "1000000", actors=1) as run:
        goes_on(tmp_path, run, LANES)
        os.killpg(run.pid, signal.SIGTERM)
        run.communicate(timeout=PATIENCE)
        until(lambda: not session_of(run.pid))
    assert run.returncode == 143
    assert Checkpoints(tmp_path / "checkpoint").last.episodes == len(read_episodes(tmp_path))


def test_a_killed_driver_leaves_no_process_of_its_own_ray(killed):
    until(lambda: not session_of(killed))
