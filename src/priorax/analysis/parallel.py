"""Many runs in parallel: one process per core, with one thread each.

Members of a run are vmapped, runs are not: with one process per run all cores are used, and the results of a run do not
depend on the others.
"""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from priorax.caching import enable_compilation_cache
from priorax.fitting import NonFiniteLoss
from priorax.training.trainer import train


class Task(NamedTuple):
    """One run of `train`, or one call of another function."""

    name: str
    """Name of its group."""
    arguments: dict[str, Any]
    """Arguments of the function."""
    measure: Callable[..., list[dict[str, Any]]] | None = None
    """Function that measures something and returns rows, importable by name; None: `train`."""
    needs: str = ""
    """Package that it needs, by the name of its distribution, if it is not one of ours."""

    def asking(self, **more: Any) -> "Task":
        """Add arguments.

        Args:
            **more: Further arguments of `train`.

        Returns:
            The run with these arguments.
        """
        return self._replace(arguments={**self.arguments, **more})


Ladder = Iterable[list[Task]]
"""Levels of increasing difficulty; a level is run only if some task of the previous one learned."""


def climb(ladders: Iterable[Ladder], done: Callable[[Task], bool | None], workers: int | None = None) -> Iterator[Any]:
    """Run all ladders in parallel, one after another: a ladder is begun when those before it leave a process idle.

    Args:
        ladders: The ladders.
        done: Function that returns None if a task must be run, else whether it learned when it was run before.
        workers: Number of processes; by default one per core that this process may use.

    Returns:
        An iterator of tasks and results, in order of completion. The result of a run that diverged is the error.

    Raises:
        OSError: If a worker process is killed.
    """
    levels = [iter(ladder) for ladder in ladders]
    learned, pending = [True] * len(levels), [0] * len(levels)
    running: dict[Future[Any], tuple[Task, int]] = {}
    waiting, workers = iter(range(len(levels))), workers or usable_cores()
    with _pool(workers) as pool:

        def begin(ladder: int) -> None:
            """Submit the next level with tasks to run."""
            while learned[ladder] and pending[ladder] == 0:
                level = next(levels[ladder], None)
                if level is None:
                    return
                known = [done(task) for task in level]
                new = [task for task, before in zip(level, known, strict=True) if before is None]
                running.update({pool.submit(_run, task): (task, ladder) for task in new})
                pending[ladder], learned[ladder] = len(new), any(known)

        def fill() -> None:
            """Begin further ladders while there are fewer tasks than processes."""
            while len(running) < workers and (ladder := next(waiting, None)) is not None:
                begin(ladder)

        fill()
        while running:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                task, ladder = running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    raise OSError("a worker process was killed (out of memory?); run the command again") from None
                yield task, result
                pending[ladder] -= 1
                learned[ladder] |= getattr(result, "episodes_to_learn", None) is not None
                begin(ladder)
            fill()


def usable_cores() -> int:
    """Count the cores that this process may use, which `taskset` and schedulers may restrict.

    Returns:
        The number of cores.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start spawned processes with one thread each; JAX does not support fork."""
    before = os.environ.get("NPROC")
    os.environ["NPROC"] = "1"  # read by XLA when a process starts its CPU client
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _prepare)
    try:
        yield pool
    except BaseException:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        raise
    finally:
        os.environ.pop("NPROC")
        if before is not None:
            os.environ["NPROC"] = before
    pool.shutdown()


def _prepare() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(OSError):
        enable_compilation_cache()


def _end_with_parent() -> None:
    """End this process when the one that started it ends, however that came: its results would be lost."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(task: Task) -> Any:
    if task.measure is not None:
        return task.measure(**task.arguments)
    try:
        result = train(**task.arguments)
    except NonFiniteLoss as error:  # one diverging run does not end a sweep
        return error
    return result._replace(policy=None)  # large, and not needed in a sweep
