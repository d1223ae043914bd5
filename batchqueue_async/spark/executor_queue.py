"""One queue, with its loop thread, per Python worker process of an executor."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

from pyspark import cloudpickle

from batchqueue_async import (
    BatchQueueError,
    LoopThread,
    SyncBatchQueue,
    close_process_queues,
    process_queue,
)
from batchqueue_async._functions import require_sync_function

T = TypeVar("T")

OpenQueue: TypeAlias = Callable[[LoopThread], SyncBatchQueue[T]]
"""Opens a queue on a loop thread that runs: `return loop_thread.open(...)`."""

# A function that is pickled by value may arrive as a new one with each job. Queues that
# were unused longest are closed, so that a stream doesn't pile up threads.
_MOST_QUEUES = 8
_NEW_LOOP_THREAD = partial(LoopThread, "batchqueue-executor")


@dataclass(frozen=True)
class _ByPickle:
    """An `open_queue` that equals every other one with the same pickle."""

    pickled: bytes
    open_queue: OpenQueue[Any] = field(compare=False)

    def __call__(self, loop_thread: LoopThread) -> SyncBatchQueue[Any]:
        return self.open_queue(loop_thread)


# In the order in which they were last asked for. A forked child inherits its parent's
# entries, which does no harm: it has no queues of these to close.
_known: OrderedDict[OpenQueue[Any], None] = OrderedDict()
# What each block of `flushed_queue` that is open has, on any thread.
_in_use: dict[object, OpenQueue[Any]] = {}


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
            the longest time is shut down, unless it is in a block of `flushed_queue`.

    Raises:
        TypeError: If `open_queue` can't be called, or doesn't return a queue.
        Exception: What `open_queue` raises; nothing is kept then.
    """
    return kept_queue(_by_pickle(open_queue), _NEW_LOOP_THREAD)


def _by_pickle(open_queue: OpenQueue[T]) -> _ByPickle:
    require_sync_function("open_queue", open_queue, 1, "one argument, a LoopThread")
    pickled: bytes = cloudpickle.dumps(open_queue)  # type: ignore[no-untyped-call]
    return _ByPickle(pickled, open_queue)


def kept_queue(
    open_queue: OpenQueue[T], make_loop_thread: Callable[[], LoopThread]
) -> SyncBatchQueue[T]:
    """Return this process's queue for all that equal `open_queue`, as `executor_queue`.

    `open_queue` must be hashable.
    """
    queue = process_queue(open_queue, make_loop_thread=make_loop_thread)
    _known.pop(open_queue, None)
    _known[open_queue] = None
    in_use = [open_queue, *list(_in_use.values())]
    unused = [each for each in list(_known) if each not in in_use]
    for oldest in unused[: max(0, len(_known) - _MOST_QUEUES)]:
        _known.pop(oldest, None)
        close_process_queues([oldest])
    return queue


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
    kept = _by_pickle(open_queue)
    block = object()
    try:
        _in_use[block] = kept
        queue: SyncBatchQueue[T] = kept_queue(kept, _NEW_LOOP_THREAD)
        try:
            yield queue
        except BaseException:
            with contextlib.suppress(BatchQueueError, TimeoutError):
                queue.flush(timeout)
            raise
        queue.flush(timeout)
    finally:
        _in_use.pop(block, None)


def close_executor_queues() -> None:
    """Shut all queues of this process down: for tests, and processes of your own.

    Waits up to 30 seconds for each. In a forked child the parent's aren't touched.
    """
    close_process_queues(list(_known))
    _known.clear()
