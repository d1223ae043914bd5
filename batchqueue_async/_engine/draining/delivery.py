"""Delivers items that drain tasks took to handlers; keeps them until they are settled.

Invariants:
* Items that were taken are kept here until they are settled, so none is lost when the
  drain task is cancelled, and a restarted one goes on with them.
* No batch is delivered while one that was taken before it, for the same handler and
  from one of the same partitions, waits for its retry or has a handler at work that
  cannot be stopped (promises B1 and B3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.draining.batch import Batch, Grouping, grouping_of
from batchqueue_async._engine.draining.batch_stages import (
    INSIDE,
    PART_BOOKED,
    TOLD,
    UNDECIDED,
    WAITING,
)
from batchqueue_async._engine.draining.drops_and_unhandled import end_unhandled
from batchqueue_async._engine.draining.failed_batch import RetryQueue, error_of_cut_off
from batchqueue_async._engine.draining.partial_failure import settle_handled
from batchqueue_async._engine.handler_stats import causes_of, note_cuts
from batchqueue_async._engine.handlers.call_with_timeout import (
    LeftBehind,
    finish,
    user_error,
)
from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
from batchqueue_async._engine.handlers.unstoppable_call import outlive
from batchqueue_async._engine.partitions.accounts import taken_again
from batchqueue_async._engine.partitions.item_types import MANY, fetch
from batchqueue_async._engine.runtime.loop_end import absorb_cancellation
from batchqueue_async._policies.retry import PartialFailure, checked_answer
from batchqueue_async._threads.clock import monotonic

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.partitions.partition import Partition
    from batchqueue_async._engine.queue_parts import Parts
    from batchqueue_async._loop_time import LoopTurn

T = TypeVar("T")

# What a call has raised, and its future if it still runs.
_NOTHING: tuple[BaseException | None, asyncio.Future[Any] | None] = (None, None)


def leave(batch: Batch[Any], registration: Registration) -> None:
    """Leave the handler that was entered for a batch."""
    is_waited_for = registration.lock.leave(registration.mode)
    # No call in between.
    batch.stage = UNDECIDED
    if is_waited_for:
        registration.lock.admit_next()


def _raised(
    error: BaseException, call: HandlerCall
) -> tuple[BaseException, asyncio.Future[Any] | None]:
    """Return what a call raised, and its future if it still runs; see `user_error`."""
    left = error.left if isinstance(error, LeftBehind) else None
    assert call.registration is not None
    if call.coroutine is not None and call.registration.timeout is None:
        # After a signal handler has raised nobody resumes the coroutine.
        call.coroutine.close()
    if isinstance(error, Exception):
        return checked_answer(error), left
    return user_error(error, call), left


class InFlight(Generic[T]):
    """Takes from partitions, and delivers what it took, oldest first."""

    __slots__ = (
        "_buffers_to_take",
        "_counts",
        "_drain_task",
        "_error",
        "_grouping",
        "_is_measured",
        "_is_plain",
        "_parts",
        "_to_resume",
        "_turn",
        "is_stopped",
        "retries",
        "taking",
        "task",
        "undelivered",
        "was_cut_short",
    )

    task: asyncio.Task[Any]
    """The asyncio task of the drain task, which is another one when that runs again."""

    def __init__(self, parts: Parts, drain_task: int, turn: LoopTurn) -> None:
        self._parts = parts
        self._counts = parts.delivery_counts
        self._grouping: Grouping[T] = grouping_of(parts)
        self._drain_task = drain_task
        self._turn = turn
        # Where keys share partitions, these are taken from buffer by buffer.
        self._buffers_to_take = parts.placement.buffers_to_take
        # Whether statistics tell why batches are cut.
        self._is_measured = parts.config.measure_handlers
        # Whether there are no keys, measures or sizes for a take to ask for.
        self._is_plain = not (
            self._buffers_to_take or self._is_measured or parts.byte_budget
        )
        # Batches to deliver in this cycle, or left by one that was cut short. The next
        # one is the last: a stack takes a tenth of a deque's memory.
        self.undelivered: list[Batch[T]] = []
        # Partitions of the last take whose items are not in batches yet.
        self.taking: Sequence[Partition[T]] = ()
        # What the handler of the batch at hand has raised.
        self._error: BaseException | None = None
        # Deferred batches that have ended, and whose partitions are still paused.
        self._to_resume: list[Batch[T]] = []
        self.retries: RetryQueue[T] = RetryQueue(parts, drain_task)
        # At the deadline nothing more is delivered: all that is left returns.
        self.is_stopped = False
        # Whether a delivery was cut short, and it is not decided yet what becomes of
        # the batch that was at hand.
        self.was_cut_short = False

    def unsettled(self) -> Iterator[Batch[T]]:
        """Return what was taken and has not ended, oldest first."""
        yield from (
            batch for batch in reversed(self.undelivered) if not batch.is_settled
        )
        yield from (batch for batch in self.retries.batches if not batch.is_settled)

    def take(self, partitions: list[Partition[T]], most: int | None, now: float) -> int:
        """Take batches to retry that are due, then from the partitions; count these."""
        if len(partitions) == 1 and self._is_plain and not self.retries.batches:
            partition = partitions[0]
            self.taking = partitions
            count = self._grouping.take_from(partition, most, self.undelivered)
            self.taking = ()
            # A thread may have displaced items, and must not call the watchers.
            if partition.accounts.watchers is not None:
                partition.accounts.tell_watchers()
            return count
        if self.retries.batches and not self.undelivered:
            self._take_retries(now)
        is_far = len(partitions) > MANY
        if self._buffers_to_take is not None:
            partitions = self._buffers_to_take(partitions, most)
        causes = causes_of(partitions) if self._is_measured else None
        count, grouping = 0, self._grouping
        grouping.forget()
        self.taking = partitions
        for partition in partitions:
            items = partition.take(most)
            count += len(items)
            if is_far:
                fetch(items)
            grouping.add(partition, items)
        batches = grouping.batches(most)
        self._have_taken(partitions, batches)
        if causes is not None:
            note_cuts(batches, causes)
        return count

    def _take_retries(self, now: float) -> None:
        """Move batches that may be retried to `undelivered`, cut to the new limit."""
        due, staying = self.retries.due_at(now)
        pieces, cut = [], []
        for batch in due:
            parts = batch.as_limited()
            pieces += parts
            if parts != [batch]:
                cut.append(batch)
        pieces.reverse()
        # No call from here on: each batch is in one of both lists.
        self.undelivered[:0] = pieces
        self.retries.batches = staying
        self._to_resume += cut

    def _have_taken(
        self, partitions: Sequence[Partition[T]], batches: list[Batch[T]]
    ) -> None:
        """Keep these batches, which have all items of the take from now on."""
        # Batches that are there already are delivered first.
        self.undelivered[:0] = reversed(batches)
        # No call in between.
        self.taking = ()
        self._grouping.forget()
        for partition in partitions:
            partition.taken = None
            # A thread may have displaced items, and must not call the watchers.
            if partition.accounts.watchers is not None:
                partition.accounts.tell_watchers()

    def recover(self) -> None:
        """Go on after whatever has cut the drain task short, at any point.

        A signal handler may raise after each call. So what was taken is at each moment
        in the partition's `taken`, in `undelivered`, or among the retries.
        """
        self.sort_again()
        if self.undelivered:
            self._parts.running_calls.end_those_of(self._drain_task)
            batch = self.undelivered[-1]
            if batch.stage is INSIDE and batch.registration is not None:
                leave(batch, batch.registration)
            elif batch.registration is not None:
                # It may have left, and not let the next one in.
                batch.registration.lock.bring_on()
        else:
            self._resume_partitions()
        self.was_cut_short = bool(self.undelivered)

    def sort_again(self) -> None:
        """Put items that were taken, and are in no batch yet, into batches."""
        if self.taking:
            grouping, most = self._grouping, self._parts.handlers.most_taken
            grouping.forget()
            for partition in self.taking:
                if items := taken_again(partition):
                    grouping.add(partition, items)
            self._have_taken(self.taking, grouping.batches(most))

    @coroutine
    def deliver(self) -> Generator[Any, None, None]:
        """Have all that was taken handled, or deferred, or failed for good."""
        try:
            if self.was_cut_short:
                yield from self._resume()
            while self.undelivered and not self.is_stopped:
                batch = self.undelivered[-1]
                registration = batch.registration
                if registration is None:
                    end_unhandled(self._parts, batch)
                    error = None
                elif (self.retries.batches or registration.lock.stuck) and (
                    yield from self._defer_if_blocked(batch)
                ):
                    continue
                else:
                    error = yield from self._call(batch, registration)
                if error is None:
                    # No call in between.
                    if batch.is_deferred:
                        self._to_resume += (batch,)
                    del self.undelivered[-1]
                else:
                    self._error = error
                    yield from self._fail(batch, error)
                # If the error is kept, its traceback may keep this frame and the batch.
                del batch, error
                if self.task.cancelling():
                    # A handler has cancelled the task that it ran in.
                    yield from absorb_cancellation()
                # After the last batch the end of the cycle gives the loop its turn.
                if self.undelivered and self._turn.is_over():
                    yield from self._turn.next()
        finally:
            # Not before the halves are delivered: a handoff would let items overtake.
            if self._to_resume:
                self._resume_partitions()

    async def _call(
        self, batch: Batch[T], registration: Registration
    ) -> BaseException | None:
        """Call the handler of one batch; returns what it raised."""
        lock, mode, retry = registration.lock, registration.mode, registration.retry
        if retry.deadline is not None and batch.give_up_at is None:
            batch.give_up_at = asyncio.get_running_loop().time() + retry.deadline
        permit = (detector := self._parts.detector).permit
        # A handler that was cancelled while it waited has returned without its permit.
        if (permit and not permit.is_held) or not lock.try_acquire(mode):
            await detector.enter_handler(lock, mode, self._drain_task)
        # No call in between: it is inside from here on, whatever is raised.
        batch.attempts, batch.stage = batch.attempts + 1, INSIDE
        started = monotonic() if self._counts.is_timed else None
        error, left = _NOTHING
        call = HandlerCall(detector, self._drain_task, lock, mode, registration)
        try:
            # As `attempt` does it, without the price of one coroutine more.
            result = registration.consume(batch.items.copy())
            if type(result) is CoroutineType and registration.timeout is None:
                rest = call.run(result, registration)
                if rest is not None and (returned := await rest) is not None:
                    await detector.calls.finish(call, returned)
            elif result is not None:
                await finish(registration.consume, result, registration.timeout)
        except BaseException as raised:  # noqa: BLE001 - `user_error` raises others
            error, left = _raised(raised, call)
        finally:
            call.end()
            if started is not None:
                self._charge(batch, call, started, error)
            if left is None:
                leave(batch, registration)
            else:
                outlive(self._parts, left, call, batch)
                batch.stage = UNDECIDED
        if error is None:
            batch.settle("handled")
        return error

    def _charge(
        self,
        batch: Batch[Any],
        call: HandlerCall,
        started: float,
        error: BaseException | None,
    ) -> None:
        """Book a call's time with partitions, counts, meter and adaptive limit."""
        registration, now = call.registration, call.detector.calls.clock()
        assert registration is not None
        # A virtual clock stands still while a handler computes.
        seconds = max(now - call.began, monotonic() - started)
        batch.charge(seconds)
        self._counts.calls += error is None
        if registration.meter is not None:
            registration.meter.called(seconds)
        self._parts.batch_terms.learn(registration, len(batch), seconds, error)

    @coroutine
    def _defer_if_blocked(self, batch: Batch[T]) -> Generator[Any, None, bool]:
        """Defer a batch if it must not be delivered now; returns whether it was."""
        if not self.retries.note_due_if_blocked(batch):
            return False
        if pieces := self.retries.apart(batch):
            self._replace(batch, pieces[::-1])
            return True
        self._defer(batch)
        # There may be thousands of such batches.
        if self._turn.is_over():
            yield from self._turn.next()
        return True

    def _defer(self, batch: Batch[T]) -> None:
        """Have the batch at hand wait among the retries."""
        stage = self.retries.hold(batch, self._error)
        # No call from here on: the batch is in one of both lists.
        batch.stage, self._error = stage, None
        self.retries.batches += (batch,)
        del self.undelivered[-1]

    async def _resume(self) -> None:
        """Decide on the batch whose delivery was cut short with the drain task."""
        self.was_cut_short = False
        batch = self.undelivered[-1]
        if batch.stage >= TOLD:
            self.retries.end_failed(batch, self._error)
        if batch.is_settled:
            # It was cut short in its `on_error`, or just after its handler returned.
            batch.tell()
            self._replace(batch, [])
        elif batch.stage > WAITING and (
            error := self._error or error_of_cut_off(batch)
        ):
            await self._fail(batch, error)

    async def _fail(self, batch: Batch[T], error: BaseException | None) -> None:
        if isinstance(error, PartialFailure) and batch.stage is not PART_BOOKED:
            error = settle_handled(batch, error)
        if self.task.cancelling():
            await absorb_cancellation()
        rest: list[Batch[T]] = []
        if error is not None:
            rest = await self.retries.fail(batch, error)
        if error is not None and rest and rest[0] is batch:
            self._defer(batch)
            await self.retries.report(batch, error)
            return
        rest.reverse()
        self._replace(batch, rest)

    def _replace(self, batch: Batch[T], rest: list[Batch[T]]) -> None:
        """Have these delivered instead of the batch at hand; the last one first."""
        # No call from here on.
        if batch.is_deferred:
            self._to_resume += (batch,)
        self.undelivered[-1:] = rest
        self._error = None

    def _resume_partitions(self) -> None:
        """Let items behind deferred batches that have ended go on."""
        while self._to_resume:
            batch = self._to_resume[-1]
            batch.is_deferred = False
            batch.resume_partitions()
            del self._to_resume[-1]
