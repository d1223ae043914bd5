"""Gives what drain tasks have taken to its handlers; until it is settled it is here.

Invariants:
* What was taken is here until it is settled, so nothing is lost when the drain task is
  cancelled, and a restarted one goes on with it.
* No batch is delivered while one that was taken before it, for the same handler and
  from one of the same partitions, waits for its retry or has a handler at work that
  cannot be stopped (promises B1 and B3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.draining.batch import Batch, fetch, grouping_of
from batchqueue_async._engine.draining.failed_batch import (
    RetryQueue,
    error_of_cut_off,
    fail,
    note,
    report_retry,
)
from batchqueue_async._engine.draining.lost_items import UnhandledTypes
from batchqueue_async._engine.draining.partial_failure import settle_handled
from batchqueue_async._engine.handlers.call_with_timeout import (
    LeftBehind,
    Stopwatch,
    finish,
    own_error,
)
from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
from batchqueue_async._engine.handlers.meter import causes_of, note_cuts
from batchqueue_async._engine.handlers.take_limit import learn
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._engine.runtime.loop_end import absorb_cancellation
from batchqueue_async._policies.answers import PartialFailure
from batchqueue_async._policies.handler_options import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts
    from batchqueue_async._engine.runtime.loop_time import LoopTurn

T = TypeVar("T")

# What a call has raised, and what is left of it.
_NOTHING: tuple[BaseException | None, asyncio.Future[Any] | None] = (None, None)

# What waits in more partitions than these does not stay in the processor's caches.
MANY = 64


class InFlight(Generic[T]):
    """Takes from partitions, and delivers what it took, oldest first."""

    __slots__ = (
        "_buffers_to_take",
        "_delivery",
        "_drain_task",
        "_grouping",
        "_is_measured",
        "_is_plain",
        "_parts",
        "_turn",
        "is_stopped",
        "retries",
        "task",
        "undelivered",
        "was_cut_short",
    )

    task: asyncio.Task[Any]
    """In which it is delivered now: the drain task's, which may be run again."""

    def __init__(self, parts: Parts[T], drain_task: int, turn: LoopTurn) -> None:
        self._parts = parts
        self._delivery = parts.delivery
        self._grouping = grouping_of(parts)
        self._drain_task = drain_task
        self._turn = turn
        # Where keys share partitions, these are taken from buffer by buffer.
        self._buffers_to_take = parts.placement.buffers_to_take
        # Whether anybody asks why batches are cut.
        self._is_measured = parts.config.measure_handlers
        # Whether a take need not ask what few queues have.
        self._is_plain = not (self._buffers_to_take or self._is_measured or parts.room)
        # To be delivered now: in a cycle, or first if one was cut short. The next one
        # last: a stack takes a tenth of a deque's memory.
        self.undelivered: list[Batch[T]] = []
        self.retries: RetryQueue[T] = RetryQueue(drain_task)
        # At the deadline nothing more is delivered: all that is left returns.
        self.is_stopped = False
        # Whether a delivery was cancelled for good since, and nobody has looked at the
        # batch that was in its hands.
        self.was_cut_short = False

    def registrations(self) -> list[Registration | None]:
        """Return whose batches are to be delivered now."""
        return [batch.registration for batch in self.undelivered]

    def unsettled(self) -> Iterator[Batch[T]]:
        """Return what was taken and has not ended, oldest first."""
        yield from (
            batch for batch in reversed(self.undelivered) if not batch.is_settled
        )
        yield from (batch for batch in self.retries.batches if not batch.is_settled)

    def take(
        self,
        partitions: list[Partition[T]],
        most: int | None,
        now: float,
    ) -> int:
        """Take what is due: batches to retry first, then from each of the partitions.

        Returns:
            How many items came out of the partitions.
        """
        if len(partitions) == 1 and self._is_plain and not self.retries.batches:
            return self._grouping.take_from(partitions[0], most, self.undelivered)
        count, grouping = 0, self._grouping
        collected: list[Batch[T]] = []
        if self.retries.batches and not self.undelivered:
            collected = self.retries.take_due(now)
        is_far = len(partitions) > MANY
        if self._buffers_to_take is not None:
            partitions = self._buffers_to_take(partitions, most)
        causes = causes_of(partitions) if self._is_measured else None
        try:
            for partition in partitions:
                items = partition.take(most)
                count += len(items)
                if is_far:
                    fetch(items)
                grouping.add(partition, items)
        finally:
            # Without the memory for the rest, what was taken is known all the same.
            batches = grouping.batches(most)
            if causes is not None:
                note_cuts(batches, causes)
            collected += batches
            # Whatever a cancellation left there comes first.
            self.undelivered[:0] = reversed(collected)
            for partition in partitions:
                # Items may have been displaced on a thread, which must not tell.
                if partition.accounts.watchers is not None:
                    partition.accounts.tell_watchers()
        return count

    @coroutine
    def deliver(self) -> Generator[Any, None, None]:
        """Have all that was taken handled, or deferred, or failed for good."""
        settled: list[Batch[T]] = []
        try:
            if self.was_cut_short:
                yield from self._resume(settled)
            while self.undelivered and not self.is_stopped:
                batch = self.undelivered[-1]
                registration = batch.registration
                if registration is None:
                    self._delivery.settle_unhandled(batch)
                    error = None
                elif (
                    self.retries.batches or registration.lock.stuck
                ) and self._is_deferred(batch):
                    del batch
                    continue
                else:
                    error = yield from self._delivery.deliver(
                        batch, registration, self._drain_task
                    )
                if error is None:
                    self.undelivered.pop()
                    if batch.is_deferred:
                        settled.append(batch)
                else:
                    yield from self._fail(batch, error, settled)
                # An error that is kept may keep this frame, as that of its callers.
                del batch, error
                if self.task.cancelling():
                    # By a handler, of the task it ran in.
                    yield from absorb_cancellation()
                # After the last one the cycle's end sees to it.
                if self.undelivered and self._turn.is_over():
                    yield from self._turn.next()
        finally:
            # Not before its halves are through: a handoff would let items overtake.
            _resume_partitions_of(settled)

    def _is_deferred(self, batch: Batch[T]) -> bool:
        """Whether it must not be delivered now; then it is among the retries."""
        if not self.retries.defer_if_blocked(batch):
            return False
        self.retries.add(self.undelivered.pop())
        return True

    async def _resume(self, settled: list[Batch[T]]) -> None:
        """Decide on the batch whose delivery was cancelled with the drain task."""
        self.was_cut_short = False
        batch = self.undelivered[-1]
        if batch.is_settled:
            # In its `on_error`, or in the moment after its handler had returned.
            self.undelivered.pop()
            if batch.is_deferred:
                settled.append(batch)
        elif batch.is_in_hands and (error := error_of_cut_off(batch)):
            await self._fail(batch, error, settled)

    async def _fail(
        self, batch: Batch[T], error: BaseException | None, settled: list[Batch[T]]
    ) -> None:
        if isinstance(error, PartialFailure):
            error = settle_handled(batch, error)
        if self.task.cancelling():
            await absorb_cancellation()
        rest: list[Batch[T]] = []
        if error is not None:
            rest = await fail(self._parts, batch, error, self._drain_task)
        self.undelivered.pop()
        if error is not None and rest and rest[0] is batch:
            self.retries.add(batch)
            await report_retry(self._parts, batch, error, self._drain_task)
            return
        self.undelivered.extend(reversed(rest))
        if batch.is_deferred:
            settled.append(batch)


def _resume_partitions_of(settled: list[Batch[T]]) -> None:
    """Let items behind these batches go on."""
    for batch in settled:
        batch.is_deferred = False
        batch.resume_partitions()
    settled.clear()


class Delivery(Generic[T]):
    """The way of a batch from being taken to being settled."""

    __slots__ = (
        "_is_timed",
        "_parts",
        "_unhandled",
        "calls",
        "longest_pause",
        "retried",
    )

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        config = parts.config
        # Handlers are timed only where somebody asks what they cost.
        is_timed = parts.loads.in_seconds or config.measure_handlers
        is_timed = is_timed or parts.ownership.active is not None
        self._is_timed = is_timed or config.max_batch == AUTO
        # Of handlers that are timed, those that did not raise.
        self.calls = 0
        # Items that were tried again, each time.
        self.retried = 0
        # Seconds that a handler asked for, since adaptive drain tasks set it to zero.
        self.longest_pause = 0.0
        self._unhandled = UnhandledTypes()

    async def deliver(
        self, batch: Batch[T], registration: Registration, drain_task: int
    ) -> BaseException | None:
        """Call the handler; returns what it raised."""
        if registration.retry.deadline is not None:
            self._note_deadline(batch, registration.retry.deadline)
        lock, mode = registration.lock, registration.mode
        permit = (detector := self._parts.detector).permit
        # A handler that was cancelled while it waited has come back without the permit.
        if (permit and not permit.is_held) or not lock.try_acquire(mode):
            await detector.enter_handler(lock, mode, drain_task)
        batch.attempts, batch.is_in_hands = batch.attempts + 1, True
        watch = Stopwatch() if self._is_timed else None
        error, left = _NOTHING
        call = HandlerCall(detector, drain_task, lock, mode, registration)
        try:
            # As `attempt` does it, without the price of one coroutine more.
            result = registration.consume(batch.items.copy())
            if type(result) is CoroutineType and registration.timeout is None:
                if (rest := call.run(result, registration)) is not None:
                    await rest
            elif result is not None:
                await finish(registration.consume, result, registration.timeout)
        except BaseException as raised:  # noqa: BLE001 - `own_error` tells what is ours
            error, left = raised, _left_of(raised)
            error = raised if isinstance(raised, Exception) else own_error(raised, call)
        finally:
            call.end()
            if watch:
                self._charge(batch, registration, watch.seconds(), error)
            if left is None:
                lock.release(mode)
            else:
                self._outlive(left, batch, registration, call)
        if error is None:
            batch.settle("handled")
        batch.is_in_hands = False
        return error

    def time_calls(self) -> None:
        """Time them from now on: a handler was registered that needs it."""
        self._is_timed = True

    def _charge(
        self,
        batch: Batch[Any],
        registration: Registration,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """Book what a call took, with all who may ask for it."""
        batch.charge(seconds)
        self.calls += error is None
        if registration.meter is not None:
            registration.meter.called(seconds)
        learn(self._parts, registration, len(batch), seconds, error)

    def report_again(self, item_type: type) -> None:
        """The type had a handler: when it has none again, that is news."""
        self._unhandled.forget(item_type)

    @staticmethod
    def _note_deadline(batch: Batch[T], deadline: float) -> None:
        if batch.give_up_at is None:
            batch.give_up_at = asyncio.get_running_loop().time() + deadline

    def settle_unhandled(self, batch: Batch[T]) -> None:
        """Nobody handles its items: say so, and count them."""
        for item_type in self._unhandled.news(batch.items):
            logger.error(
                "%s: no handler for items of type %s; they count as unhandled",
                self._parts.name,
                item_type.__qualname__,
                queue=self._parts.name,
                item_type=item_type.__qualname__,
            )
        note(self._parts, "unhandled", batch.items)
        batch.settle("unhandled")

    def _outlive(
        self,
        left: asyncio.Future[Any],
        batch: Batch[T],
        registration: Registration,
        call: HandlerCall,
    ) -> None:
        """Block the partitions of a handler that cannot be stopped, until it ends."""
        batch.pause_partitions()
        logger.error(
            "%s: %s cannot be stopped; its partitions are blocked until it ends",
            self._parts.name,
            registration.label,
            queue=self._parts.name,
            handler=registration.label,
            items=len(batch),
        )

        def ended() -> None:
            batch.resume_partitions()
            self._parts.tasks.wake()

        self._parts.detector.calls.outlives(call, left, batch, ended)


def _left_of(error: BaseException) -> asyncio.Future[Any] | None:
    return error.left if isinstance(error, LeftBehind) else None
