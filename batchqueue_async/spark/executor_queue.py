"""One queue, with its loop thread, per Python worker process of an executor."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from pyspark import cloudpickle

from batchqueue_async import BatchQueueError, LoopThread, SyncBatchQueue
from batchqueue_async._wording import shown

T = TypeVar("T")

OpenQueue: TypeAlias = Callable[[LoopThread], SyncBatchQueue[T]]
"""Opens a queue on a loop thread that runs: `return loop_thread.open(...)`."""

# A function that is pickled by value may come as another one with each job. Those that
# nobody asks for any more are closed, so that a stream doesn't collect threads.
_MOST_QUEUES = 8


class _Registry:
    """What this process has opened; a forked child starts with an empty one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # Reentrant: `open_queue` may itself ask for another executor queue.
        self.lock = threading.RLock()
        self.opened: OrderedDict[bytes, tuple[LoopThread, SyncBatchQueue[Any]]] = (
            OrderedDict()
        )


_registry = _Registry()
_inherited: list[_Registry] = []


def executor_queue(open_queue: OpenQueue[T]) -> SyncBatchQueue[T]:
    """Return this process's queue for `open_queue`; the first call opens it.

    Call it in the function that Spark runs on executors. Later tasks of the same Python
    worker process get the same queue, with its loop thread and whatever connections its
    handlers hold. An executor has up to twice as many worker processes as cores, since
    the RDD and the SQL functions have workers of their own.

    Flush the queue before the task's function returns (or use `flushed_queue`): no hook
    runs after that. Spark ends idle workers after a minute, and all of them at its end,
    without `finally` or `atexit`, and what is waiting then is lost.

    After a fork the child opens its own queue; the parent's isn't touched. A queue that
    was shut down is opened anew. A full queue makes `produce` wait, and with it Spark.

    Args:
        open_queue: Gets a `LoopThread` that runs, for this queue alone, and returns the
            queue that it opened there. It reaches executors by pickle: make it a
            function of a module, or an instance of one with its settings. Two that
            pickle alike share a queue. At most 8 are kept; the one that was unused for
            the longest time is shut down.

    Raises:
        TypeError: If `open_queue` can't be called, or doesn't return a queue.
        Exception: What `open_queue` raises; nothing is kept then.
    """
    require_open_queue(open_queue)
    registry = _current()
    key: bytes = cloudpickle.dumps(open_queue)  # type: ignore[no-untyped-call]
    with registry.lock:
        known = registry.opened.pop(key, None)
        if known is not None and not known[1].is_running:
            _close(known[0])
            known = None
        entry = known or _open(open_queue)
        registry.opened[key] = entry
        while len(registry.opened) > _MOST_QUEUES:
            _, (loop_thread, _) = registry.opened.popitem(last=False)
            _close(loop_thread)
        return entry[1]


@contextmanager
def flushed_queue(
    open_queue: OpenQueue[T], *, timeout: float | None = None
) -> Iterator[SyncBatchQueue[T]]:
    """Use `executor_queue` in a `with` block that ends when everything is handled.

    If the block raises, its error is kept; the flush still happens, so that nothing of
    a failed task reaches the sink while its retry runs.

    Args:
        open_queue: As for `executor_queue`.
        timeout: Seconds for the flush; None for no limit.

    Raises:
        DeliveryError: Items ended other than handled.
        TimeoutError: Not all was handled in time.
    """
    queue = executor_queue(open_queue)
    try:
        yield queue
    except BaseException:
        with contextlib.suppress(BatchQueueError, TimeoutError):
            queue.flush(timeout)
        raise
    queue.flush(timeout)


def close_executor_queues() -> None:
    """Shut all queues of this process down: for tests, and processes of your own.

    Waits up to 30 seconds for each. In a forked child the parent's aren't touched.
    """
    registry = _current()
    with registry.lock:
        while registry.opened:
            _, (loop_thread, _) = registry.opened.popitem()
            _close(loop_thread)


def _current() -> _Registry:
    # The hook below does this after each fork of Python's; a fork in C has no hooks.
    if _registry.pid != os.getpid():
        _start_anew()
    return _registry


def _start_anew() -> None:
    # The lock, too: another thread may have held it during the fork.
    global _registry  # noqa: PLW0603  # one per process is the point
    # Kept: the end of a LoopThread would wait for a thread that the child hasn't got.
    _inherited.append(_registry)
    _registry = _Registry()


def _open(open_queue: OpenQueue[T]) -> tuple[LoopThread, SyncBatchQueue[T]]:
    loop_thread = LoopThread("batchqueue-executor")
    loop_thread.__enter__()
    try:
        return loop_thread, _require_queue(open_queue(loop_thread))
    except BaseException:
        _close(loop_thread)
        raise


def require_open_queue(value: object) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        msg = f"open_queue must be callable, got {shown(value)}"
        raise TypeError(msg)


def _require_queue(queue: object) -> SyncBatchQueue[Any]:
    if not isinstance(queue, SyncBatchQueue):
        msg = f"open_queue must return a SyncBatchQueue, got {shown(queue)}"
        raise TypeError(msg)
    return queue


def _close(loop_thread: LoopThread) -> None:
    loop_thread.__exit__(None, None, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
# Runs only where workers end as programs do: with spark.python.use.daemon=false.
atexit.register(close_executor_queues)
