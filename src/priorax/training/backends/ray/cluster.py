"""Ray (extra `cluster`): a session of it, and workers in processes of their own that are made anew when those die.

Ray is imported late: who does not use it need not have it.
"""

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PATIENCE = 5
"""Deaths of a worker, with no work done between them, after which the run gives up."""

ONE_THREAD = {
    "NPROC": "1",  # read by XLA when a process starts its CPU client
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",  # GPUs are the learner's
}
"""The environment of a worker: there is a process for each core, or more."""


def import_ray() -> Any:
    """Ray, or a ValueError that says how to get it."""
    try:
        import ray
    except ImportError as error:
        raise ValueError(f'{error}; install what it needs with: pip install "priorax[cluster]"') from None
    return ray


@contextlib.contextmanager
def session(address: str | None, workers: int) -> Iterator[Any]:
    """Ray with room for so many workers: the session there is already, else the cluster at `address`, else one of this
    machine alone. What was begun here is ended here."""
    ray = import_ray()
    if ray.is_initialized():
        _refuse_too_many(ray, workers)
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    alone: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it forks beside JAX's threads: it only starts other programs
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
    """Workers beyond the CPUs there are would wait for ever."""
    cpus = ray.cluster_resources().get("CPU", 0)
    if cpus < workers:
        raise ValueError(
            f"actors + shards = {workers} need a CPU each, and this Ray session has {cpus:g}; "
            "pass fewer actors or shards, or add machines"
        )


class Worker:
    """An object in a process of its own, somewhere in the cluster; the next incarnation follows when one dies."""

    def __init__(self, name: str, kind: type, arguments: Callable[[int], tuple[Any, ...]]) -> None:
        """`arguments`: of the constructor, for an incarnation."""
        self.name, self.kind, self.arguments = name, kind, arguments
        self.incarnation, self.deaths = 0, 0
        self.pid: int | None = None
        """Once it is known."""
        self.handle = self._begin()

    def _begin(self) -> Any:
        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        remote = import_ray().remote(self.kind).options(runtime_env={"env_vars": ONE_THREAD}, **options)
        return remote.remote(*self.arguments(self.incarnation))

    def revive(self, error: object) -> None:
        """Begin anew; what it held is lost."""
        self.deaths += 1
        if self.deaths >= PATIENCE:
            raise OSError(
                f"the {self.name} died {self.deaths} times in a row, at last of: {error}; "
                "see whether the machine has enough memory, and use fewer actors, shards or lanes"
            )
        self.end()
        self.incarnation, self.pid = self.incarnation + 1, None
        self.handle = self._begin()

    def end(self) -> None:
        """Let go of the process."""
        import_ray().kill(self.handle)


class Call(NamedTuple):
    """A question that a worker has not answered yet."""

    worker: Worker
    incarnation: int
    method: str
    note: Any
    """Whatever the asker wants to know again."""

    @property
    def current(self) -> bool:
        """Whether the worker is still the one that was asked."""
        return self.incarnation == self.worker.incarnation


class Calls:
    """All questions under way. Workers that are found dead are made anew."""

    def __init__(self) -> None:
        self.pending: dict[Any, Call] = {}
        self.restarts = 0

    def begin(self, worker: Worker, method: str, *arguments: Any, note: Any = None) -> None:
        """Ask; the answer comes with `ended`."""
        reference = getattr(worker.handle, method).remote(*arguments)
        self.pending[reference] = Call(worker, worker.incarnation, method, note)

    def of(self, method: str) -> list[Call]:
        """Those that ask for this."""
        return [call for call in self.pending.values() if call.method == method]

    def ended(self, seconds: float) -> list[tuple[Call, Any]]:
        """Those with an answer by now; if there are none, wait up to so many seconds for one. The answer is None where
        the worker died over it; what it raised is raised."""
        ray = import_ray()
        if not self.pending:
            return []
        found, _ = ray.wait(list(self.pending), num_returns=len(self.pending), timeout=0)
        if not found and seconds > 0:
            found, _ = ray.wait(list(self.pending), num_returns=1, timeout=seconds)
        return [self._answer(ray, reference) for reference in found]

    def revive(self, call: Call, error: object) -> None:
        """Its worker is dead; it may have been noticed before."""
        if call.current:
            self.restarts += 1
            call.worker.revive(error)
            self.begin(call.worker, "pid")

    def _answer(self, ray: Any, reference: Any) -> tuple[Call, Any]:
        call = self.pending.pop(reference)
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayActorError as error:
            self.revive(call, error)
            return call, None
        except ray.exceptions.RayError:  # the answer was lost on its way
            return call, None
        if call.current:
            if call.method == "pid":
                call.worker.pid = answer
            else:
                call.worker.deaths = 0
        return call, answer
