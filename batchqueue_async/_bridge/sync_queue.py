"""The queue's verbs for other threads: blocking, with time limits."""

from __future__ import annotations

import asyncio
import time
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Generic, Literal, TypeVar, TypeVarTuple

from batchqueue_async._bridge.loop_call import call_on_loop
from batchqueue_async._bridge.thread_ingress import ThreadTally, ingress_of
from batchqueue_async._chunks import chunks
from batchqueue_async._engine.lifecycle.flush import Flush
from batchqueue_async._engine.lifecycle.state import State, refuse_fork
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.queue import BatchQueue
from batchqueue_async._engine.stats import BatchQueueStats
from batchqueue_async._functions import name_of
from batchqueue_async._one_process import OfOneProcess
from batchqueue_async._policies.choices import Offer
from batchqueue_async._policies.errors import BatchQueueError, with_accepted
from batchqueue_async._policies.handlers import ErrorFunction, HandlerLike
from batchqueue_async._policies.items import T
from batchqueue_async._policies.retry import Retry
from batchqueue_async._threads.clock import monotonic
from batchqueue_async._threads.dead_loop_watchdog import PATIENCE
from batchqueue_async._threads.guard import PAUSE
from batchqueue_async._validation import (
    require_instance,
    require_positive,
    require_timeout,
)

S = TypeVar("S")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class SyncBatchQueue(OfOneProcess, Generic[T]):
    """A running queue as other threads see it; one object may serve many threads.

    It is made on the queue's loop and handed to them. On the loop's own thread `offer`,
    `produce` with `timeout=0` and `stats` may be called; the others would block it, and
    raise `BatchQueueError`. A wait ends with `BatchQueueError` when the
    loop is closed, or has not run for `patience` seconds.

    In a forked child they raise `BatchQueueError`: the queue is the parent's.

    Args:
        queue: The queue.
        patience: Seconds after which a loop that does not answer while somebody waits
            counts as dead: it is stopped, or something blocks it. Those of a machine
            that is too busy to let it answer don't count.

    Raises:
        BatchQueueError: The queue is not running on the loop that runs here.
        TypeError, ValueError: It is no queue, or `patience` no number above zero.
    """

    def __init__(self, queue: BatchQueue[T], *, patience: float = PATIENCE) -> None:
        require_instance("queue", queue, BatchQueue, "a BatchQueue that runs")
        require_positive("patience", patience)
        self._queue = queue
        # The `LoopThread` that opened it, which lives as long as this object.
        self.loop_thread: object = None
        self._patience = patience
        self._ingress = ingress_of(queue)
        self._parts = parts = self._ingress.parts
        self._log = parts.failures.new_log()
        # Whether a shutdown was cut short: the loop may be about to give its list back.
        self._is_list_owed = False
        self._lock = self._ingress.guard.lock
        self._loop = self._ingress.loop
        # How many items of a long iterable are placed together.
        self._length = self._ingress.chunk_length
        # Copies for the hot path, where each look-up counts.
        self._sole = parts.placement.sole
        self._choose = parts.placement.choose
        self._routes = parts.placement.routes
        if self._ingress.finds_partitions:
            self._sole, self._choose, self._routes = None, None, {}

    @property
    def name(self) -> str:
        """What the queue is called in logs, errors and statistics."""
        return self._queue.name

    @property
    def queue(self) -> BatchQueue[T]:
        """The queue itself, for use on its loop: by handlers that pass items on to it.

        On other threads its `offer`, `partition_of`, `name`, `config` and `is_running`
        may be used.
        """
        return self._queue

    @property
    def is_running(self) -> bool:
        """Whether the queue accepts items: from `start` until shutdown begins."""
        return self._queue.is_running

    def __repr__(self) -> str:
        # It may be called on any thread and must not wait, so it has no counts: the
        # loop would have to tell them.
        return f"<SyncBatchQueue {self.name!r} {self._parts.state.value}>"

    def produce(self, item: T, timeout: float | None = None) -> bool:
        """Accept an item; returns whether it was accepted, and then it is waiting.

        On a full partition it waits in line with all other producers (`WAIT`), returns
        False (`DROP_NEWEST`) or displaces the oldest item (`DROP_OLDEST`). Returns
        False after `timeout` seconds, and once shutdown has begun.

        With `timeout=0` it never waits, so that it may be called on the loop's own
        thread, too; `offer` says why it was refused.

        What strikes a call that waits, such as Ctrl-C, has in its `accepted` whether
        the item was accepted all the same: 1 or 0.

        Raises:
            BatchQueueError: On the loop's own thread with another timeout, or the loop
                is dead.
            WouldDeadlock: A handler's thread would wait for its own handler.
            TypeError, ValueError: `timeout` is no number of seconds.
        """
        if timeout is not None:
            require_timeout("timeout", timeout)
        if _get_running_loop() is self._loop:
            if timeout == 0:
                return bool(self._queue.offer(item))
            self._refuse_own_thread()
        partition = self._sole or self._routes.get(type(item))
        if partition is not None:
            lock = self._lock
            is_in = False
            # As `with guard` does it, in half the time.
            try:
                while not lock.acquire(False):  # noqa: FBT003
                    time.sleep(PAUSE)
                items = partition.items
                if len(items) < partition.guarded_limit:
                    is_in = True
                    items.append(item)
                    lock.release()
                    return True
                lock.release()
            except BaseException as error:
                self._ingress.recover_guard()
                with_accepted(error, int(is_in))
                raise
            if not items and self._ingress.put_first(partition, item):
                return True
        elif self._choose is not None:
            return self._produce_chosen(self._choose, item, timeout)
        return self._ingress.put_one(partition, item, timeout, self._patience)

    def offer(self, item: T) -> Offer:
        """Accept an item if that needs no waiting, on any thread: `BatchQueue.offer`.

        Raises:
            BatchQueueError: In a forked child.
        """
        return self._queue.offer(item)

    def _produce_chosen(
        self, choose: Callable[[T], Partition[T]], item: T, timeout: float | None
    ) -> bool:
        """Do the same where a selector decides, which only one thread asks at once."""
        lock, is_in = self._lock, False
        try:
            while not lock.acquire(False):  # noqa: FBT003
                time.sleep(PAUSE)
            try:
                partition = choose(item)
            except BaseException:
                # Here, where it needs no more of the stack than `acquire` did: after a
                # RecursionError there may be no room to call `recover_guard`.
                lock.release()
                raise
            items = partition.items
            if len(items) < partition.guarded_limit:
                is_in = True
                items.append(item)
                lock.release()
                return True
            lock.release()
        except BaseException as error:
            self._ingress.recover_guard()
            with_accepted(error, int(is_in))
            raise
        return self._ingress.put_one(partition, item, timeout, self._patience)

    def produce_many(self, items: Iterable[T], timeout: float | None = None) -> int:
        """Accept the items in order; returns how many were accepted in time.

        Not atomic: what was placed stays accepted, whatever comes after. So whatever
        is raised, also by `items`, has how many that were in its `accepted`. With one
        partition, under `WAIT`, those are the first ones; else it is not known which.

        Raises:
            BatchQueueError: On the loop's own thread, or the loop is dead.
            WouldDeadlock: A handler's thread would wait for its own handler.
            TypeError, ValueError: `timeout` is no number of seconds.
        """
        tally = ThreadTally(self._patience)
        try:
            if timeout is not None:
                require_timeout("timeout", timeout)
                tally.until = monotonic() + timeout
            self._refuse_own_thread()
            for chunk in chunks(items, self._length):
                if self._ingress.put_chunk(chunk, tally) < len(chunk):
                    break
            accepted = tally.accepted
        except BaseException as error:
            with_accepted(error, tally.accepted)
            raise
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
            TypeError, ValueError: `timeout` is no number of seconds.
        """
        require_timeout("timeout", timeout)
        flush = Flush(self._parts, self._log)
        self._on_loop(partial(flush.settle, timeout))
        # Failures count as reported only here: on the loop they would, too, if this
        # thread had given up before it got to know them.
        if (error := flush.report()) is not None:
            raise error

    def call(
        self,
        function: Callable[[*Ts], Coroutine[Any, Any, R]],
        *args: *Ts,
        timeout: float | None = None,
    ) -> R:
        """Run a coroutine function on the queue's loop, and return what it returns.

        For what belongs to the queue and lives on its loop: a sink, a client. If the
        wait ends early, by `timeout`, a Ctrl-C or a dead loop, it is cancelled there.

        Args:
            function: Called on the loop.
            args: For the function.
            timeout: Seconds that it may take; None for no limit.

        Raises:
            TimeoutError: It was not done in time.
            BatchQueueError: On the loop's own thread, or the loop is dead.
            TypeError, ValueError: `timeout` is no number of seconds.
        """
        require_timeout("timeout", timeout)

        async def run() -> R:
            limit = asyncio.timeout(timeout)
            try:
                async with limit:
                    return await function(*args)
            except TimeoutError as error:
                if limit.expired():
                    told = f"{name_of(function)} gave no answer within {timeout} s"
                    error.args = (told,)
                raise

        return self._on_loop(run)

    def stats(self) -> BatchQueueStats:
        """Return what the queue looks like now.

        Taken on the loop, so that the numbers fit together; of a loop that does not
        answer they are taken from outside and may be of slightly different moments. In
        a forked child they are those of an empty queue.
        """
        if _get_running_loop() is self._loop:
            return self._queue.stats()
        try:
            return self._on_loop(partial(_as_coroutine, self._queue.stats))
        except BatchQueueError:
            return self._queue.stats()

    def add_handler(  # noqa: PLR0913 - all that is declared for one handler
        self,
        item_type: type[S],
        handler: HandlerLike[S],
        weight: float = 1.0,
        *,
        max_batch: int | Literal["auto"] | None = None,
        linger: float | None = None,
        retry: Retry | None = None,
        on_error: ErrorFunction[S] | None = None,
        handler_timeout: float | None = None,
        max_batch_bytes: float | None = None,
    ) -> None:
        """Register a handler, as `BatchQueue.add_handler` does."""
        call = partial(
            self._queue.add_handler,
            item_type,
            handler,
            weight,
            max_batch=max_batch,
            linger=linger,
            retry=retry,
            on_error=on_error,
            handler_timeout=handler_timeout,
            max_batch_bytes=max_batch_bytes,
        )
        self._on_loop(partial(_as_coroutine, call))

    def remove_handler(self, item_type: type) -> bool:
        """Take a handler out, as `BatchQueue.remove_handler` does."""
        call = partial(self._queue.remove_handler, item_type)
        return self._on_loop(partial(_as_coroutine, call))

    def shutdown(self, timeout: float | None = 30.0) -> list[T]:
        """Shut the queue down, as `BatchQueue.shutdown` does, and wait for it."""
        require_timeout("timeout", timeout)
        self._refuse_own_thread()
        refuse_fork(self._parts)
        state, lifecycle = self._parts.state, self._parts.lifecycle
        # Leftovers that nobody has taken yet have to be fetched from the loop.
        is_over = state is State.CLOSED and not lifecycle.leftovers
        if (is_over and not self._is_list_owed) or (
            self._loop.is_closed() and state.has_begun_to_close
        ):
            return []

        def give_back(left: list[T]) -> None:
            if left:
                lifecycle.give_back(left)

        self._is_list_owed = True
        left = self._on_loop(partial(self._queue.shutdown, timeout), give_back)
        # No call in between.
        self._is_list_owed = False
        return left

    def _refuse_own_thread(self) -> None:
        # By the running loop, since the numbers of threads are used again.
        if _get_running_loop() is self._loop:
            msg = (
                f"queue {self.name!r}: a blocking call on the loop's own thread would "
                "never end; await the BatchQueue's method instead"
            )
            raise BatchQueueError(msg)

    def _on_loop(
        self,
        start: Callable[[], Coroutine[Any, Any, R]],
        give_back: Callable[[R], object] | None = None,
    ) -> R:
        self._refuse_own_thread()
        # Nobody would answer: the loop's thread is the parent's.
        refuse_fork(self._parts, though_closed=True)
        watchdog = self._ingress.watchdog(self._patience)
        return call_on_loop(start, watchdog, give_back)


async def _as_coroutine(call: Callable[[], R]) -> R:
    return call()
