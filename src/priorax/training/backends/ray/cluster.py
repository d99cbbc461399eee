"""Ray (extra `cluster`): a session, and workers in separate processes that are restarted when they die or hang.

Ray is imported late, so that it is an optional dependency.
"""

import contextlib
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PATIENCE = 5
"""Consecutive deaths of a worker, without completed work in between, after which the run fails."""

GRACE = 1.0
"""Seconds that a late answer is waited for: this process may have been busy, or stopped, while it arrived."""

ONE_THREAD = {
    "NPROC": "1",  # read by XLA when a process starts its CPU client
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",  # GPUs are the learner's
}
"""Environment variables of a worker: one thread, since there is a process for each core, or more."""


def import_ray() -> Any:
    """Import Ray.

    Returns:
        The module.

    Raises:
        ValueError: If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError(f'{error}; install Ray with: pip install "priorax[cluster]"') from None
    return ray


@contextlib.contextmanager
def session(address: str | None, workers: int) -> Iterator[Any]:
    """Open a Ray session: the existing one, else the cluster at `address`, else a local one. Only a session started
    here is shut down.

    Args:
        address: Address of a Ray cluster; None: this machine alone.
        workers: Required number of CPUs.

    Returns:
        A context manager that gives the module.

    Raises:
        ValueError: If the cluster cannot be joined or has too few CPUs.
    """
    ray = import_ray()
    if ray.is_initialized():
        _refuse_too_many(ray, workers)
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    alone: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fork with JAX's threads: harmless, as it only execs other programs
        try:
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **alone)
        except ConnectionError as error:
            raise ValueError(
                f"address={address!r} cannot be joined ({error}); start Ray there with: ray start --head, set "
                "RAY_AUTH_MODE=token here if it asks for a token, or leave address out to use this machine alone"
            ) from error
    try:
        _refuse_too_many(ray, workers)
        yield ray
    finally:
        ray.shutdown()


def _refuse_too_many(ray: Any, workers: int) -> None:
    """Raise if there are more workers than CPUs, as they would wait forever."""
    cpus = ray.cluster_resources().get("CPU", 0)
    if cpus < workers:
        raise ValueError(
            f"actors + shards = {workers} need a CPU each, and this Ray session has {cpus:g}; "
            "pass fewer actors or shards, or add machines"
        )


class Worker:
    """A remote object in a separate process, restarted as a new incarnation when it dies or hangs."""

    def __init__(self, name: str, kind: type, arguments: Callable[[int], tuple[Any, ...]]) -> None:
        """Start the process.

        Args:
            name: Name of the worker, for messages.
            kind: Class of the object.
            arguments: Function from the number of the incarnation to the arguments of the constructor.
        """
        self.name, self.kind, self.arguments = name, kind, arguments
        self.incarnation, self.deaths = 0, 0
        self.pid: int | None = None
        """Process id; None while the process waits for a free CPU, or starts."""
        self.handle = self._begin()

    def _begin(self) -> Any:
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        remote = import_ray().remote(self.kind).options(runtime_env={"env_vars": ONE_THREAD}, **options)
        return remote.remote(*self.arguments(self.incarnation))

    def revive(self, error: object) -> None:
        """Restart the worker; its contents are lost.

        Args:
            error: The cause of its death.

        Raises:
            OSError: If it has died `PATIENCE` times in a row.
        """
        self.deaths += 1
        if self.deaths >= PATIENCE:
            raise OSError(
                f"the {self.name} died {self.deaths} times in a row, last with: {error}; "
                "check whether all machines have this priorax and enough memory, or use fewer actors, shards or lanes"
            )
        self.end()
        self.incarnation, self.pid = self.incarnation + 1, None
        self.handle = self._begin()

    def end(self) -> None:
        """Stop the process."""
        import_ray().kill(self.handle)


class Call(NamedTuple):
    """A pending remote call."""

    worker: Worker
    """The worker."""
    incarnation: int
    """Incarnation of the worker at the time of the call."""
    method: str
    """Name of the method."""
    note: Any
    """Data that the caller attached to the call."""
    since: float = math.inf
    """Time (of `time.monotonic`) since which an answer is waited for; infinite while the worker has no process."""

    @property
    def current(self) -> bool:
        """Whether the worker has not been restarted since the call."""
        return self.incarnation == self.worker.incarnation


class Calls:
    """All pending remote calls. Workers that are dead, or do not answer in time, are restarted."""

    def __init__(self, timeout: float = math.inf) -> None:
        """Begin without calls.

        Args:
            timeout: Seconds in which a call must be answered, once its worker has a process.
        """
        self.timeout = timeout
        self.pending: dict[Any, Call] = {}
        self.restarts = 0

    def begin(self, worker: Worker, method: str, *arguments: Any, note: Any = None) -> None:
        """Start a remote call; its result is returned by `ended`.

        Args:
            worker: The worker.
            method: Name of the method.
            *arguments: Arguments of the method.
            note: Data to attach to the call.
        """
        reference = getattr(worker.handle, method).remote(*arguments)
        since = math.inf if worker.pid is None else time.monotonic()
        self.pending[reference] = Call(worker, worker.incarnation, method, note, since)

    def of(self, method: str) -> list[Call]:
        """Get the pending calls of a method.

        Args:
            method: Name of the method.

        Returns:
            The calls.
        """
        return [call for call in self.pending.values() if call.method == method]

    def ended(self, seconds: float) -> list[tuple[Call, Any]]:
        """Get the completed calls; if there are none, wait for one.

        Args:
            seconds: Maximum waiting time.

        Returns:
            Calls with their results; None if the worker died during the call or did not answer in time. Exceptions of
            the method are raised.
        """
        ray = import_ray()
        if not self.pending:
            return []
        found, _ = ray.wait(list(self.pending), num_returns=len(self.pending), timeout=0)
        if not found and seconds > 0:
            found, _ = ray.wait(list(self.pending), num_returns=1, timeout=seconds)
        now = time.monotonic()
        late = [each for each, call in self.pending.items() if now - call.since > self.timeout and each not in found]
        if late:
            answered, late = ray.wait(late, num_returns=len(late), timeout=GRACE)
            found += answered
        return [self._answer(ray, reference) for reference in found] + [self._give_up(reference) for reference in late]

    def revive(self, call: Call, error: object) -> None:
        """Restart the worker of a failed call, unless it has already been restarted.

        Args:
            call: The call.
            error: The cause of its death.
        """
        if call.current:
            self.restarts += 1
            call.worker.revive(error)
            self.begin(call.worker, "pid")

    def _give_up(self, reference: Any) -> tuple[Call, Any]:
        call = self.pending.pop(reference)
        self.revive(call, f"no answer within timeout={self.timeout:g} seconds; a longer timeout gives it more time")
        return call, None

    def _answer(self, ray: Any, reference: Any) -> tuple[Call, Any]:
        call = self.pending.pop(reference)
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, Exception):  # the original exception, without Ray's traceback in its text
                raise error.cause from error
            raise
        except ray.exceptions.RayActorError as error:
            self.revive(call, error)
            return call, None
        except ray.exceptions.RayError:  # the result was lost
            return call, None
        if call.current:
            if call.method == "pid":
                call.worker.pid = answer
            else:
                call.worker.deaths = 0
        return call, answer
