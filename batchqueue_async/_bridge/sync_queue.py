"""The queue's verbs for other threads: blocking, with time limits."""

from __future__ import annotations

import concurrent.futures
import time
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from batchqueue_async._bridge.inbox import inbox_of
from batchqueue_async._bridge.loop_call import LoopCall
from batchqueue_async._engine.chunks import chunks
from batchqueue_async._engine.queue import BatchQueue
from batchqueue_async._engine.stats import BatchQueueStats
from batchqueue_async._policies.errors import BatchQueueError
from batchqueue_async._policies.handlers import HandlerLike
from batchqueue_async._policies.items import T
from batchqueue_async._threads.guard import PAUSE
from batchqueue_async._threads.vigil import SLICE

S = TypeVar("S")
R = TypeVar("R")


class SyncBatchQueue(Generic[T]):
    """A running queue as other threads see it; one object may serve many threads.

    It is made on the queue's loop and handed to them. None of its methods may be called
    on the loop's own thread: they block it. A wait ends with `BatchQueueError` when the
    loop is closed, or has not run for half a second.

    Raises:
        BatchQueueError: The queue is not running on the loop that runs here.
    """

    def __init__(self, queue: BatchQueue[T]) -> None:
        self._queue = queue
        self._inbox = inbox_of(queue)
        self._port = self._inbox.port
        self._log = self._port.open_log()
        self._routes = self._port.routes
        self._lock = self._inbox.guard.lock
        self._loop = self._port.loop

    @property
    def name(self) -> str:
        return self._queue.name

    @property
    def is_running(self) -> bool:
        return self._queue.is_running

    def produce(self, item: T, timeout: float | None = None) -> bool:
        """Accept an item; returns whether it was accepted, and then it is waiting.

        On a full partition it waits in line with all other producers (`WAIT`), returns
        False (`DROP_NEWEST`) or displaces the oldest item (`DROP_OLDEST`). Returns
        False after `timeout` seconds, and once shutdown has begun.

        Raises:
            BatchQueueError: On the loop's own thread, or the loop is dead.
            WouldDeadlock: A handler's thread would wait for its own handler.
        """
        if _get_running_loop() is self._loop:
            self._refuse_own_thread()
        partition = self._routes.get(type(item))
        if partition is not None:
            lock = self._lock
            # As `with guard` does it, in half the time.
            try:
                while not lock.acquire(False):  # noqa: FBT003
                    time.sleep(PAUSE)
                items = partition.items
                if len(items) < partition.guarded_limit:
                    items.append(item)
                    lock.release()
                    return True
                lock.release()
            except BaseException:
                self._inbox.recover_guard()
                raise
            return self._inbox.put_one(partition, item, timeout)
        return self._inbox.put((item,), timeout) == 1

    def produce_many(self, items: Iterable[T], timeout: float | None = None) -> int:
        """Accept the items in order; returns how many were accepted in time.

        Not atomic: what was placed stays accepted, whatever comes after.

        Raises:
            BatchQueueError: On the loop's own thread, or the loop is dead.
            WouldDeadlock: A handler's thread would wait for its own handler.
        """
        self._refuse_own_thread()
        until = None if timeout is None else time.monotonic() + timeout
        accepted = 0
        for chunk in chunks(items):
            left = None if until is None else max(0.0, until - time.monotonic())
            placed = self._inbox.put(chunk, left)
            accepted += placed
            if placed < len(chunk):
                break
        return accepted

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything accepted before this call is settled.

        Covers all that this object accepted; may wait for, and report, what others
        put into the same batches.

        Raises:
            DeliveryError: Items ended other than handled since its last flush.
            TimeoutError: Not all was settled in time.
            BatchQueueError: On the loop's own thread, or the loop is dead.
            WouldDeadlock: A handler's thread would wait for its own handler.
        """
        self._refuse_own_thread()
        self._port.refuse_fork()
        self._on_loop(partial(self._port.flush, timeout, self._log))

    def stats(self) -> BatchQueueStats:
        """Return what the queue looks like now.

        Taken on the loop, so that the numbers fit together; of a loop that does not
        answer they are taken from outside and may be of slightly different moments.
        """
        if _get_running_loop() is self._loop:
            return self._queue.stats()
        try:
            return self._on_loop(partial(_as_coroutine, self._queue.stats))
        except BatchQueueError:
            return self._queue.stats()

    def add_handler(
        self, item_type: type[S], handler: HandlerLike[S], weight: float = 1.0
    ) -> None:
        """Register a handler, as `BatchQueue.add_handler` does."""
        self._refuse_own_thread()
        call = partial(self._queue.add_handler, item_type, handler, weight)
        self._on_loop(partial(_as_coroutine, call))

    def remove_handler(self, item_type: type) -> bool:
        """Take a handler out, as `BatchQueue.remove_handler` does."""
        self._refuse_own_thread()
        call = partial(self._queue.remove_handler, item_type)
        return self._on_loop(partial(_as_coroutine, call))

    def shutdown(self, timeout: float | None = 30.0) -> list[T]:
        """Shut the queue down, as `BatchQueue.shutdown` does, and wait for it."""
        self._refuse_own_thread()
        if self._port.has_ended() or (self._loop.is_closed() and self._port.is_over()):
            return []
        return self._on_loop(partial(self._queue.shutdown, timeout))

    def _refuse_own_thread(self) -> None:
        # The running loop, not a thread's number: numbers are used again.
        if _get_running_loop() is self._loop:
            msg = (
                f"queue {self.name!r}: a blocking call on the loop's own thread would "
                "never end; await the BatchQueue's method instead"
            )
            raise BatchQueueError(msg)

    def _on_loop(self, start: Callable[[], Coroutine[Any, Any, R]]) -> R:
        call = LoopCall(self._loop, start)
        vigil = self._inbox.vigil()
        try:
            while not call.answer.done():
                vigil.keep(partial(_wait, call.answer), SLICE)
            return call.answer.result()
        except concurrent.futures.CancelledError as error:
            msg = f"the loop of queue {self.name!r} ended during the call"
            raise BatchQueueError(msg) from error
        finally:
            call.abandon()


def _wait(future: concurrent.futures.Future[Any], seconds: float) -> None:
    concurrent.futures.wait((future,), seconds)


async def _as_coroutine(call: Callable[[], R]) -> R:
    return call()
