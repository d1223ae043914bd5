"""What becomes of a batch whose handler raised: another attempt, halves, or `on_error`.

What gets another attempt waits for it in the drain task's retry queue.

While a batch is reported, to the log, `on_retry` or `on_error`, it is kept, so that it
is not lost if the report is cut short.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from batchqueue_async._engine.draining.batch import Batch, OrderKey
from batchqueue_async._engine.draining.batch_stages import (
    PART_WAITING,
    TO_BE_SETTLED,
    TOLD,
    WAITING,
)
from batchqueue_async._engine.draining.behind_parts import pieces_of
from batchqueue_async._engine.draining.drops_and_unhandled import keep_for_flush
from batchqueue_async._engine.handlers.call_with_timeout import (
    Unstoppable,
    attempt,
    call_on_error,
)
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    EXCLUSIVE,
    HandlerCall,
)
from batchqueue_async._log import logger
from batchqueue_async._loop_time import LONG_AGO
from batchqueue_async._policies.retry import PartialFailure, pause_asked_for
from batchqueue_async._wording import reason

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerLock
    from batchqueue_async._engine.handlers.registration import Registration
    from batchqueue_async._engine.queue_parts import Parts
    from batchqueue_async._policies.retry import Retry

T = TypeVar("T")

FEW: Final = 64
"""Batches that may be looked at as often as one of them is due."""
LOOK_PAUSE: Final = 20e-6
"""Seconds between two looks, for each of more batches; a look takes 0.7 us for each.
Where thousands of handlers fail, each with its own due time, more would take it all."""


class RetryQueue(Generic[T]):
    """Batches that wait for a next attempt, or behind one that does.

    In the order in which they came; their partitions are paused meanwhile.
    """

    __slots__ = ("_drain_task", "_dues", "_next_look", "_parts", "batches")

    def __init__(self, parts: Parts, drain_task: int) -> None:
        self._parts = parts
        self._drain_task = drain_task
        self.batches: list[Batch[T]] = []
        # None until it is asked for: an idle queue is to be small.
        self._dues: Dues[T] | None = None
        # When all batches may be looked at again.
        self._next_look = LONG_AGO

    async def fail(self, batch: Batch[T], error: BaseException) -> list[Batch[T]]:
        """Decide what becomes of a batch whose handler raised.

        Returns:
            What is still to be delivered of it, at `due`: the batch itself for another
            attempt, its halves to isolate what fails, or nothing.
        """
        registration, parts = batch.registration, self._parts
        if batch.is_settled or registration is None:
            return []
        try:
            rest = _rest_of(batch, registration.retry, error)
        except Exception:  # noqa: BLE001 - no memory for its halves
            logger.exception(
                "%s: a failed batch could not be split", parts.name, queue=parts.name
            )
            rest = []
        if not rest:
            await self._give_up(batch, registration, error)
        return rest

    async def report(self, batch: Batch[T], error: BaseException) -> None:
        """Report, to the log and `on_retry`, that a batch waits for its next attempt.

        The batch is in the retry queue already, so it is kept if this is cut short.
        """
        registration, parts = batch.registration, self._parts
        assert registration is not None
        count, retry = len(batch), registration.retry
        wait = max(0.0, batch.due - asyncio.get_running_loop().time())
        registration.retried += count
        counts, asked = parts.delivery_counts, pause_asked_for(error)
        counts.retried += count
        counts.retry_after = max(counts.retry_after, asked)
        parts.repeated_failures.warning(
            "%s: %d items failed in %s with %s; attempt %d of %d in %.3g s",
            parts.name,
            count,
            registration.label,
            reason(error),
            batch.attempts + 1,
            retry.attempts,
            wait,
            title=f"{parts.name}: items are tried again in {registration.label}",
            error=error,
            **_fields(parts, batch),
            attempt=batch.attempts + 1,
            attempts=retry.attempts,
            wait=wait,
        )
        if parts.config.on_retry is None:
            return
        try:
            await self._tell_on_retry(batch, registration, error, wait)
        except Exception:  # noqa: BLE001 - no memory for the list
            says, name = "%s: on_retry could not be told", parts.name
            logger.exception(says, name, queue=name, hook="on_retry")

    async def _tell_on_retry(
        self,
        batch: Batch[T],
        registration: Registration,
        error: BaseException,
        wait: float,
    ) -> None:
        parts = self._parts
        on_retry, timeout = parts.config.on_retry, registration.timeout
        assert on_retry is not None
        items, tried = batch.items.copy(), batch.attempts
        with await self._call_of(registration, "on_retry"):
            raised = await attempt(on_retry, items, error, tried, wait, timeout=timeout)
        if raised is not None:
            parts.repeated_failures.error(
                "%s: on_retry raised %s for %d items that had failed with %s",
                parts.name,
                reason(raised),
                len(batch),
                reason(error),
                title=f"{parts.name}: on_retry raised",
                error=raised,
                **_fields(parts, batch),
                hook="on_retry",
            )

    async def _call_of(self, registration: Registration, hook: str) -> HandlerCall:
        """Get the permit back, and return a call of this hook, which has begun."""
        detector = self._parts.detector
        if (permit := detector.permit) is not None:
            await permit.regain(or_tell=hook == "on_error")
        drain_task = self._drain_task
        return HandlerCall(detector, drain_task, None, EXCLUSIVE, registration, hook)

    async def _give_up(
        self, batch: Batch[T], registration: Registration, error: BaseException
    ) -> None:
        parts = self._parts
        if batch.stage >= TOLD:
            return
        try:
            if registration.on_error is None:
                parts.repeated_failures.error(
                    "%s: %d items failed in %s",
                    parts.name,
                    len(batch),
                    registration.label,
                    title=f"{parts.name}: items failed in {registration.label}",
                    error=error,
                    **_fields(parts, batch),
                )
            else:
                await self._tell_failed(batch, registration, error)
        except BaseException as raised:
            if isinstance(raised, asyncio.CancelledError):
                logger.error(
                    "%s: on_error was cut off by a deadline or loop's end: %d items",
                    parts.name,
                    len(batch),
                    exc_info=error,
                    **_fields(parts, batch),
                    hook="on_error",
                )
                batch.stage = TOLD
            if batch.stage >= TOLD:
                self.end_failed(batch, error)
            # If it was not told yet, it is told when the drain task goes on.
            raise
        self.end_failed(batch, error)

    async def _tell_failed(
        self, batch: Batch[T], registration: Registration, error: BaseException
    ) -> None:
        parts, on_error = self._parts, registration.on_error
        assert on_error is not None

        def tell(items: list[T], error: BaseException) -> Any:  # noqa: ANN401 - as on_error
            batch.stage = TOLD
            return on_error(items, error)

        with await self._call_of(registration, "on_error"):
            try:
                items = list(batch.items)
            except MemoryError:
                # `on_error` gets the list itself, and may change it, so the items are
                # noted before.
                keep_for_flush(parts, "failed", batch.items, error)
                items, batch.items = batch.items, []
            while batch.stage is not TOLD:
                await call_on_error(parts, tell, items, error, registration.timeout)

    def end_failed(self, batch: Batch[T], error: BaseException | None) -> None:
        """Book a batch as failed, after that was logged or told to `on_error`."""
        if batch.is_settled:
            return
        if batch.stage is not TO_BE_SETTLED:
            keep_for_flush(self._parts, "failed", batch.items, error)
            batch.stage = TO_BE_SETTLED
        batch.settle("failed")

    def hold(self, batch: Batch[T], error: BaseException | None) -> int:
        """Pause the partitions of a batch that is to wait here; again has no effect.

        Returns:
            Its stage: whether others of the batches behind it may pass.
        """
        batch.is_deferred = True
        batch.pause_partitions()
        is_part = error is None and self._see().has_parts_ahead(batch)
        is_part = is_part or isinstance(error, PartialFailure)
        return PART_WAITING if is_part else WAITING

    def holds(self, lock: HandlerLock) -> bool:
        """Whether a batch of this handler is here."""
        return bool(self.batches) and lock in self._see().locks

    def note_due_if_blocked(self, batch: Batch[T]) -> bool:
        """Whether it must not be delivered now; its `due` is when to look again."""
        last = self._see().last
        ahead = [last[key] for key in batch.order_keys if key in last]
        batch.due = max(ahead, default=batch.due)
        return bool(ahead) or batch.is_kept_out(self._drain_task)

    def apart(self, batch: Batch[T]) -> list[Batch[T]]:
        """Return a blocked batch in pieces, if some of them need not wait."""
        if batch.is_kept_out(self._drain_task):
            return []
        try:
            return pieces_of(batch, self._see())
        except MemoryError:
            return []

    def _see(self) -> Dues[T]:
        dues = self._dues
        if dues is None or dues.batches is not self.batches:
            # What looked at all was cut short, before what stays was kept.
            self._dues = dues = Dues(self.batches)
        dues.note_new()
        return dues

    def due_at(self, now: float) -> tuple[list[Batch[T]], list[Batch[T]]]:
        """Return what may be delivered now, and what stays, to be kept as `batches`."""
        if now < max(self._see().soonest, self._next_look):
            return [], self.batches
        due: list[Batch[T]] = []
        staying: Dues[T] = Dues([])
        for batch in self.batches:
            keys = batch.order_keys
            if (
                batch.due > now
                or not staying.last.keys().isdisjoint(keys)
                or batch.is_kept_out(self._drain_task)
            ):
                staying.batches.append(batch)
                staying.note(batch, keys)
            else:
                due.append(batch)
        if (count := len(staying.batches)) > FEW:
            self._next_look = now + count * LOOK_PAUSE
        self._dues = staying
        return due, staying.batches

    def dues(self, now: float) -> list[float]:
        """Return when to look again, if a time for that is known.

        Batches that a stuck call keeps out have no such time: its end wakes.
        """
        soonest = self._see().soonest
        if now >= soonest:
            soonest, kept_out = math.inf, set[OrderKey]()
            for batch in self.batches:
                keys = batch.order_keys
                if batch.is_kept_out(self._drain_task) or not kept_out.isdisjoint(keys):
                    kept_out.update(keys)
                elif (soonest := min(soonest, batch.due)) <= max(now, self._next_look):
                    break
        return [max(soonest, self._next_look)] if soonest < math.inf else []


class Dues(Generic[T]):
    """When batches of one list are due: of thousands, new ones alone are looked at."""

    __slots__ = ("_seen", "batches", "last", "locks", "soonest", "whole")

    def __init__(self, batches: list[Batch[T]]) -> None:
        self.batches = batches
        self._seen = 0
        # The last due time of each order key, and the earliest of all.
        self.last: dict[OrderKey, float] = {}
        # The keys of those whose handler did not say that a part only has failed.
        self.whole: set[OrderKey] = set()
        # The locks of their handlers.
        self.locks: set[HandlerLock] = set()
        self.soonest = math.inf

    def note_new(self) -> None:
        """Look at the batches that were appended since the last call."""
        while self._seen < len(self.batches):
            batch = self.batches[self._seen]
            self.note(batch, batch.order_keys)

    def note(self, batch: Batch[T], keys: Sequence[OrderKey]) -> None:
        """Look at the next batch, which has these keys."""
        due, last = batch.due, self.last
        for key in keys:
            if key not in last or last[key] < due:
                last[key] = due
        if batch.stage != PART_WAITING:
            self.whole.update(keys)
        self.locks.update(lock for lock, _ in keys[:1])
        self.soonest = min(self.soonest, due)
        self._seen += 1

    def has_parts_ahead(self, batch: Batch[T]) -> bool:
        """Whether it is behind parts of batches, and behind nothing else."""
        keys = batch.order_keys
        return self.whole.isdisjoint(keys) and not self.last.keys().isdisjoint(keys)


def _rest_of(batch: Batch[T], retry: Retry, error: BaseException) -> list[Batch[T]]:
    if isinstance(error, Unstoppable):
        return []
    is_retried = retry.retries(error)
    if is_retried and batch.attempts < retry.attempts:
        import random  # noqa: PLC0415 - `HandlerSettings` has done it

        wait = retry.wait_before(batch.attempts + 1, random.random())
        wait = max(wait, pause_asked_for(error))
        batch.due = asyncio.get_running_loop().time() + wait
        if batch.give_up_at is None or batch.due <= batch.give_up_at:
            return [batch]
    if not retry.splits(error) or len(batch) == 1:
        return []
    halves = batch.pieces((len(batch) + 1) // 2)
    for half in halves:
        if is_retried:
            # The whole batch has used all attempts but one.
            half.attempts = retry.attempts - 1
        else:
            # What did not count as an attempt of the batch does not count for its
            # halves.
            half.attempts = batch.attempts - 1
            half.give_up_at = batch.give_up_at
    return halves


def error_of_cut_off(batch: Batch[Any]) -> BaseException | None:
    """Return why a batch fails whose handler was cancelled with its drain task.

    The handler may have done its work in part, or all of it: that was an attempt. None
    if `Retry` allows another one: a cancellation is no error of the handler, so it
    counts as any `Exception` would.
    """
    assert batch.registration is not None
    retry, now = batch.registration.retry, asyncio.get_running_loop().time()
    is_in_time = batch.give_up_at is None or now <= batch.give_up_at
    is_worth_it = issubclass(Exception, retry.retry_on)
    if batch.attempts < retry.attempts and is_worth_it and is_in_time:
        return None
    return asyncio.CancelledError("the handler was cancelled with its drain task")


def _fields(parts: Parts, batch: Batch[T]) -> dict[str, Any]:
    """Return what log lines about a batch have beside their text."""
    registration = batch.registration
    return {
        "queue": parts.name,
        "handler": None if registration is None else registration.label,
        # With shares of several partitions no single one can be named.
        "partition": batch.partition.index if batch.others is None else None,
        "items": len(batch),
    }
