"""What becomes of a batch whose handler raised: another attempt, halves, or `on_error`.

What gets another attempt waits for it in the drain task's retry queue.

Of the items that a handler says to have handled none is tried again. Whatever is told
of a batch, in the log, to `on_retry` or to `on_error`, it is safe meanwhile.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from batchqueue_async._engine.draining.batch import Batch, Share
from batchqueue_async._engine.handlers.handler_call import EXCLUSIVE, HandlerCall
from batchqueue_async._engine.handlers.timed_call import Unstoppable, attempt
from batchqueue_async._engine.partitions.pausing import resume
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.answers import PartialFailure, RetryAfter
from batchqueue_async._wording import reason

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.parts import Parts
    from batchqueue_async._policies.handlers import ErrorHandler
    from batchqueue_async._policies.retrying import Retry

T = TypeVar("T")


async def fail(
    parts: Parts[T], batch: Batch[T], error: BaseException, drain_task: int
) -> list[Batch[T]]:
    """Decide what becomes of a batch whose handler raised.

    Returns:
        What is still to be delivered of it, at `due`: the batch itself for another
        attempt, its halves to isolate what fails, or nothing.
    """
    registration = batch.registration
    if batch.is_settled or registration is None:
        return []
    try:
        rest = _rest_of(batch, registration.retry, error)
    except Exception:  # noqa: BLE001 - no memory for its halves
        logger.exception("%s: a failed batch could not be split", parts.name)
        rest = []
    if not rest:
        await _give_up(parts, batch, registration, error, drain_task)
    return rest


def _rest_of(batch: Batch[T], retry: Retry, error: BaseException) -> list[Batch[T]]:
    if isinstance(error, Unstoppable):
        return []
    is_retried = retry.retries(error)
    if is_retried and batch.attempts < retry.attempts:
        import random  # noqa: PLC0415 - 2 ms, which few programs need at their start

        wait = retry.wait_before(batch.attempts + 1, random.random())
        if isinstance(error, RetryAfter):
            wait = max(wait, error.seconds)
        elif isinstance(error, PartialFailure):
            wait = max(wait, error.retry_after or 0.0)
        batch.due = asyncio.get_running_loop().time() + wait
        if batch.give_up_at is None or batch.due <= batch.give_up_at:
            return [batch]
    if not retry.splits(error) or len(batch) == 1:
        return []
    halves = batch.pieces((len(batch) + 1) // 2)
    for half in halves:
        if is_retried:
            # The whole batch has had the other attempts.
            half.attempts = retry.attempts - 1
        else:
            # What was no attempt for the whole batch is none for its halves.
            half.attempts = batch.attempts - 1
            half.give_up_at = batch.give_up_at
    return halves


def settle_handled(batch: Batch[T], answer: BaseException) -> BaseException | None:
    """Book what was handled by a `PartialFailure`, and leave what failed in the batch.

    The rest keeps its place, its order and its attempts (promises A1 and B1). So
    whoever was behind the batch is behind the rest, if that has items of his partition.

    Returns:
        Why what is left in it failed: what was raised, or what is wrong with that. None
        if nothing is left.
    """
    if not isinstance(answer, PartialFailure) or batch.is_settled:
        return answer
    try:
        failed = sorted(set(answer.failed))
        if not failed:
            batch.settle("handled")
            return None
        _require_within(len(batch), failed, answer)
        if len(failed) < len(batch):
            _leave(batch, failed)
    except Exception as error:  # noqa: BLE001 - a subclass may be anything, or no memory
        return error
    return answer


def _require_within(count: int, failed: list[int], answer: PartialFailure) -> None:
    for position in (failed[0], failed[-1]):
        if not 0 <= position < count:
            msg = f"failed must be positions from 0 to {count - 1}, got {position}"
            raise ValueError(msg) from answer


def _leave(batch: Batch[T], failed: list[int]) -> None:
    """Leave the items at these positions, ascending, in the batch."""
    former = batch.items
    items = [former[position] for position in failed]
    parts = _parted(batch.shares, failed)
    first, *others = (rest for _, rest in parts if rest is not None)
    # All that takes memory is made. The batch first: what it has no more, it cannot
    # settle again.
    batch.items = items
    batch.partition = first.partition
    batch.count, batch.first = first.count, first.first
    batch.others = others or None
    if batch.registration is not None:
        batch.registration.items += len(former) - len(items)
    for share, rest in parts:
        accounts = share.partition.accounts
        if rest is None:
            accounts.settle("handled", share.count, share.first)
            if batch.is_deferred:
                resume(share.partition)
        elif rest.count < share.count:
            accounts.settle_some(share.count - rest.count, share.first, rest.first)


def _parted(
    shares: list[Share[T]], failed: list[int]
) -> list[tuple[Share[T], Share[T] | None]]:
    """Return each share with what is left of it, if anything is."""
    parts: list[tuple[Share[T], Share[T] | None]] = []
    start = known = 0
    for share in shares:
        end = start + share.count
        beyond = bisect_left(failed, end, known)
        rest = None
        if beyond > known:
            # As many of the share's items are before it, so its position is no lower.
            first = share.first + failed[known] - start
            rest = Share(share.partition, beyond - known, first)
        parts.append((share, rest))
        start, known = end, beyond
    return parts


async def report_retry(
    parts: Parts[T],
    batch: Batch[T],
    error: BaseException,
    drain_task: int,
) -> None:
    """Tell everybody who wants to know that the batch waits for its next attempt.

    The batch is safe meanwhile: in the retry queue, whatever cuts this short.
    """
    registration = batch.registration
    assert registration is not None
    count, retry = len(batch), registration.retry
    wait = max(0.0, batch.due - asyncio.get_running_loop().time())
    registration.retried += count
    parts.delivery.retried += count
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
        items=count,
    )
    if parts.config.on_retry is None:
        return
    try:
        await _tell_on_retry(parts, batch, error, wait, drain_task)
    except Exception:  # noqa: BLE001 - no memory for the list
        logger.exception("%s: on_retry could not be told", parts.name)


async def _tell_on_retry(
    parts: Parts[T],
    batch: Batch[T],
    error: BaseException,
    wait: float,
    drain_task: int,
) -> None:
    on_retry, registration = parts.config.on_retry, batch.registration
    timeout = None if registration is None else registration.timeout
    assert on_retry is not None
    items, tried = batch.items.copy(), batch.attempts
    if (permit := parts.detector.permit) is not None:
        await permit.regain()
    detector = parts.detector
    with HandlerCall(detector, drain_task, None, EXCLUSIVE, registration, "on_retry"):
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
            items=len(batch),
        )


async def _give_up(
    parts: Parts[T],
    batch: Batch[T],
    registration: Registration,
    error: BaseException,
    drain_task: int,
) -> None:
    count = len(batch)
    try:
        if registration.on_error is None:
            parts.repeated_failures.error(
                "%s: %d items failed in %s",
                parts.name,
                count,
                registration.label,
                title=f"{parts.name}: items failed in {registration.label}",
                error=error,
                items=len(batch),
            )
        else:
            if (permit := parts.detector.permit) is not None:
                await permit.regain()
            await _tell_failed(parts, batch, registration, error, drain_task)
    except asyncio.CancelledError:
        logger.error(
            "%s: on_error was cut off at the deadline, for %d items",
            parts.name,
            count,
            exc_info=error,
        )
        raise
    finally:
        note(parts, "failed", batch.items, error)
        batch.settle("failed")


async def _tell_failed(
    parts: Parts[T],
    batch: Batch[T],
    registration: Registration,
    error: BaseException,
    drain_task: int,
) -> None:
    try:
        items = list(batch.items)
    except MemoryError:
        # It gets the list itself, and may change it: what is in it is noted before.
        note(parts, "failed", batch.items, error)
        items, batch.items = batch.items, []
    detector = parts.detector
    with HandlerCall(detector, drain_task, None, EXCLUSIVE, registration, "on_error"):
        await _call_on_error(
            parts, registration.on_error, items, error, registration.timeout
        )


async def tell_on_error(parts: Parts[T], items: list[T], error: BaseException) -> None:
    """Call the queue's `on_error` for items that are in no batch any more."""
    config = parts.config
    await _call_on_error(parts, config.on_error, items, error, config.handler_timeout)


async def _call_on_error(
    parts: Parts[T],
    on_error: ErrorHandler[T] | None,
    items: list[T],
    error: BaseException,
    timeout: float | None,
) -> None:
    """Call it; what it raises is logged, with the error that it got."""
    if on_error is None:
        return
    raised = await attempt(on_error, items, error, timeout=timeout)
    if raised is not None:
        parts.repeated_failures.error(
            "%s: on_error raised %s for %d items that had failed with %s",
            parts.name,
            reason(raised),
            len(items),
            reason(error),
            title=f"{parts.name}: on_error raised for items that had failed",
            error=raised,
            items=len(items),
        )


def note(
    parts: Parts[T],
    outcome: Literal["failed", "unhandled"],
    items: list[T],
    error: BaseException | None = None,
) -> None:
    """Keep what ended other than handled for the next flush; never raises."""
    try:
        parts.failures.add(outcome, items, error)
    except Exception:  # noqa: BLE001 - the account must be right all the same
        logger.exception(
            "%s: the next flush will not tell all of %d items that ended as %s",
            parts.name,
            len(items),
            outcome,
        )


class RetryQueue(Generic[T]):
    """Batches that wait for a next attempt, or behind one that does.

    In the order in which they came; their partitions are paused meanwhile.
    """

    __slots__ = ("_drain_task", "batches")

    def __init__(self, drain_task: int) -> None:
        self._drain_task = drain_task
        self.batches: list[Batch[T]] = []

    def add(self, batch: Batch[T]) -> None:
        if not batch.is_deferred:
            batch.is_deferred = True
            batch.pause_partitions()
        self.batches.append(batch)

    def defer_if_blocked(self, batch: Batch[T]) -> bool:
        """Whether it must not be delivered now; its `due` is when to look again."""
        ahead = [each.due for each in self.batches if batch.follows(each)]
        batch.due = max(ahead, default=batch.due)
        return bool(ahead) or batch.is_kept_out(self._drain_task)

    def take_due(self, now: float) -> list[Batch[T]]:
        """Take out what may be delivered now; its partitions stay paused."""
        staying: list[Batch[T]] = []
        due: list[Batch[T]] = []
        for batch in self.batches:
            stays = batch.due > now or batch.is_kept_out(self._drain_task)
            stays = stays or any(map(batch.follows, staying))
            (staying if stays else due).append(batch)
        self.batches = staying
        return [piece for each in due for piece in each.as_limited()]

    def dues(self) -> list[float]:
        """Return when to look again.

        What a stuck handler keeps out has no such time: the call's end wakes.
        """
        dues: list[float] = []
        kept_out: list[Batch[T]] = []
        for batch in self.batches:
            if batch.is_kept_out(self._drain_task) or any(map(batch.follows, kept_out)):
                kept_out.append(batch)
            else:
                dues.append(batch.due)
        return dues
