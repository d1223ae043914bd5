"""How other threads put into a queue's partitions: one lock, one wake-up per burst.

Threads append to the partitions themselves, under a lock that the loop's side takes
for its own changes too. So `buffer_size` holds exactly, what a thread put is waiting at
once, and the order of acceptance is the order in the partition.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from batchqueue_async._chunks import LENGTH
from batchqueue_async._engine.handlers.deadlock_detector import RoomWait
from batchqueue_async._engine.lifecycle.state import State, admits, refuse_fork
from batchqueue_async._engine.partitions.chunk_by_partition import runs_of
from batchqueue_async._engine.partitions.loop_waker import LoopWaker
from batchqueue_async._engine.partitions.partition import Partition
from batchqueue_async._engine.partitions.wait_for_room import Tally
from batchqueue_async._engine.partitions.waiting_line import Waiter
from batchqueue_async._engine.queue import BatchQueue, parts_of
from batchqueue_async._engine.queue_parts import Parts
from batchqueue_async._engine.runtime.forking import abandon_after_fork
from batchqueue_async._policies.choices import WhenFull
from batchqueue_async._policies.errors import (
    BatchQueueError,
    WouldDeadlock,
    with_accepted,
)
from batchqueue_async._threads.clock import monotonic
from batchqueue_async._threads.dead_loop_watchdog import FOR_QUEUES, LoopWatchdog
from batchqueue_async._threads.event import ThreadEvent
from batchqueue_async._threads.guard import Guard
from batchqueue_async._threads.wake_up_file import WakeUpFile

T = TypeVar("T")

# Nested calls that waking a loop by its `WakeUpFile` takes, beside the one that asks
# for them; fewer than `LoopWaker` asks for, since no instrumented loop has such a file.
_STACK_TO_TELL = 5


class ThreadWaiter(Waiter):
    """A producer that waits in line on its own thread, for ever without `until`."""

    __slots__ = ("_signal", "_until", "_watchdog", "chunk")

    hands_over = True

    def __init__(
        self, chunk: Sequence[Any], watchdog: LoopWatchdog, until: float | None
    ) -> None:
        super().__init__(len(chunk))
        self.chunk = chunk
        self._watchdog = watchdog
        self._until = until
        self._signal = ThreadEvent()

    def wake(self) -> None:
        self._signal.set()

    def hand_over(self) -> Sequence[Any]:
        first = len(self.chunk) - self.wants
        return self.chunk[first : first + self.granted]

    def wait(self) -> bool:
        """Wait for `wake`, and look at the line afterwards; False if it is too late."""
        left = None if self._until is None else self._until - monotonic()
        if left is not None and left <= 0:
            return False
        self._watchdog.wait(self._nap, left)
        return True

    def _nap(self, seconds: float) -> None:
        self._signal.wait(seconds)
        self._signal.clear()


class ThreadTally(Tally):
    """One thread's call: its limits, and how many items it got in, whatever ends it.

    Ctrl-C may strike after any call of a C function. So there is none between the
    acceptance and its being noted; of who waits in line, the waiter knows.
    """

    waiter: ThreadWaiter | None = None
    until: float | None = None

    def __init__(self, patience: float) -> None:
        self.patience = patience

    @property
    def accepted(self) -> int:
        return self.count + (0 if self.waiter is None else self.waiter.accepted)


class ThreadIngress(LoopWaker[T]):
    """One queue's way in for other threads; all its bridges share it."""

    chunk_length = LENGTH
    """How many items of a long iterable are placed together."""
    finds_partitions = False
    """Whether `put_one` is to find an item's partition, which has no quicker way in."""

    def __init__(self, parts: Parts, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.guard = Guard()
        self.parts = parts
        if (file := WakeUpFile.of(loop)) is not None:
            self._wake_loop = partial(file.call, self._deliver_news)
            if not loop.get_debug():
                self._stack_to_tell = _STACK_TO_TELL
        self._waits_when_full = parts.config.when_full is WhenFull.WAIT
        parts.layout.open_to_threads(self.guard)
        abandon_after_fork(self)

    def abandon(self) -> None:
        """Free the guard, in a forked child: whoever held it may not exist here."""
        self.guard.free()

    def put_chunk(self, chunk: Sequence[T], tally: ThreadTally) -> int:
        """Accept a chunk, waiting where that is the policy; returns how many."""
        self._refuse_dead()
        accepted = 0
        for partition, run in runs_of(chunk, self.parts.placement):
            accepted += self._put_run(partition, run, tally)
        return accepted

    def put_one(
        self,
        partition: Partition[T] | None,
        item: T,
        timeout: float | None,
        patience: float,
    ) -> bool:
        """Accept an item; its partition is None if its type has not come before."""
        self._refuse_dead()
        return self._put_alone(partition, (item,), timeout, patience)

    def _put_alone(
        self,
        partition: Partition[T] | None,
        run: Sequence[T],
        timeout: float | None,
        patience: float,
    ) -> bool:
        tally = ThreadTally(patience)
        if timeout is not None:
            tally.until = monotonic() + timeout
        try:
            if partition is None:
                partition = self.parts.placement.partition_of(run[0])
            return self._put_run(partition, run, tally) == 1
        except BaseException as error:
            # The loop may have accepted the item before a Ctrl-C struck this thread.
            with_accepted(error, tally.accepted)
            raise

    def _refuse_dead(self) -> None:
        if self.parts.state is State.INHERITED:
            refuse_fork(self.parts)
        if self.loop.is_closed() and not self.parts.state.has_begun_to_close:
            msg = f"the loop of queue {self.parts.name!r} is closed"
            raise BatchQueueError(msg)

    def _put_run(
        self, partition: Partition[T], run: Sequence[T], tally: ThreadTally
    ) -> int:
        placed = self.put(partition, run, tally)
        if placed < len(run) and self._may_wait(tally.until):
            watchdog = self.watchdog(tally.patience)
            waiter = ThreadWaiter(run[placed:], watchdog, tally.until)
            tally.waiter = waiter
            placed += self._wait_and_put(partition, waiter)
            tally.count += waiter.accepted
            tally.waiter = None
        if placed < len(run):
            partition.reject(len(run) - placed)
        return placed

    def recover_guard(self) -> None:
        """Let go of the guard after a Ctrl-C in the middle of `SyncBatchQueue.produce`.

        Whether it came before or after the guard was taken, only the guard knows. In a
        `__del__` or a signal handler in the middle of a change one level is that one's.
        """
        is_nested = any(each.is_changing for each in self.parts.partitions)
        if self.guard.levels > is_nested:
            self.guard.lock.release()

    def watchdog(self, patience: float) -> LoopWatchdog:
        name = f"the loop of queue {self.parts.name!r}"
        return LoopWatchdog(self.loop, name, BatchQueueError, patience, FOR_QUEUES)

    def _may_wait(self, until: float | None) -> bool:
        if not self._waits_when_full:
            return False
        # True in a `__del__`, a signal handler or a selector that runs while this
        # thread holds the lock. Until that is free the loop can make no room.
        is_nested = self.guard.is_mine
        if is_nested and until is None:
            msg = (
                f"a call of queue {self.parts.name!r} in the middle of another one "
                "on its thread waits for room, which the loop makes only after that one"
            )
            raise WouldDeadlock(msg)
        return not is_nested

    def _wait_and_put(self, partition: Partition[T], waiter: ThreadWaiter) -> int:
        wait = self.parts.detector.wait_for_room(partition, waiter)
        failure: BatchQueueError | None = None
        try:
            self._wait_in_line(partition, waiter, wait)
        except BatchQueueError as error:
            failure = error
        finally:
            # It may have been served at the same moment, although it is late or
            # refused.
            try:
                partition.leave_line(waiter)
            except BaseException:
                # After a Ctrl-C, once more: in line it would hold up all behind it.
                partition.leave_line(waiter)
                raise
            finally:
                if wait is not None:
                    wait.end()
                self.post(partition)
        if wait is not None:
            self._wait_for_permit(wait, waiter)
        # If all was accepted in the last moment, there is nothing to raise.
        if waiter.wants:
            if failure is not None:
                raise failure
            if partition.is_closed and not self.parts.state.has_begun_to_close:
                msg = f"the loop of queue {self.parts.name!r} has ended"
                raise BatchQueueError(msg)
        return waiter.accepted

    def _wait_in_line(
        self, partition: Partition[T], waiter: ThreadWaiter, wait: RoomWait | None
    ) -> None:
        partition.wait_in_line(waiter, waiter.chunk)
        if wait is not None and waiter.wants:
            # Also if the producer ahead waits for its permit to fill its slots.
            wait.begin()
        self.post(partition)
        while waiter.wants and not partition.is_closed:
            if not waiter.wait():
                break
            with self.guard:
                # It is woken in the middle of a change, and would see too little of it.
                pass
            if wait is not None:
                wait.check()

    def _wait_for_permit(self, wait: RoomWait, waiter: ThreadWaiter) -> None:
        """Wait until the handler may go on; what was accepted stays accepted."""
        news: list[None] = []

        def tell() -> None:
            news.append(None)
            waiter.wake()

        wait.when_over(tell)
        # If the loop is dead there is no drain task to wait for.
        with contextlib.suppress(BatchQueueError):
            while not news and waiter.wait():
                pass


def ingress_of(queue: BatchQueue[T]) -> ThreadIngress[T]:
    """Return the queue's ingress; the first call, on the queue's loop, makes it.

    Raises:
        BatchQueueError: The queue does not run on the loop that runs here.
    """
    parts = parts_of(queue)
    if not admits(parts):
        msg = f"queue {parts.name!r} is shut down"
        raise BatchQueueError(msg)
    open_up(parts)
    assert isinstance(parts.ingress, ThreadIngress)
    return parts.ingress


def open_up(parts: Parts) -> None:
    """Let other threads put into the queue, which runs on the loop that runs here."""
    if parts.ingress is not None:
        return
    loop = asyncio.get_running_loop()
    if parts.byte_budget is None:
        parts.ingress = ThreadIngress(parts, loop)
        return
    from batchqueue_async._bridge.sized_ingress import (  # noqa: PLC0415 - for few
        SizedIngress,
    )

    parts.ingress = SizedIngress(parts, loop, parts.byte_budget)
