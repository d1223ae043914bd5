"""Gives batches to handlers, and decides what becomes of those that failed."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from weakref import ref

from batchqueue_async._engine.draining.batch import Batch
from batchqueue_async._engine.draining.partial import settle_handled
from batchqueue_async._engine.draining.retry_report import report_retry
from batchqueue_async._engine.handlers.handler_lock import EXCLUSIVE, Stuck
from batchqueue_async._engine.handlers.registry import Registration
from batchqueue_async._engine.handlers.stepping import in_steps
from batchqueue_async._engine.handlers.user_call import (
    Stopwatch,
    Unstoppable,
    absorb_cancellation,
    attempt,
    finish,
    left_behind,
    own_error,
)
from batchqueue_async._engine.runtime.call_context import HandlerCall
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.answers import least_wait
from batchqueue_async._policies.handlers import ErrorHandler
from batchqueue_async._policies.retrying import Retry
from batchqueue_async._wording import reason

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")

# What a call has raised, and what is left of it.
_NOTHING: tuple[BaseException | None, asyncio.Future[Any] | None] = (None, None)


class Delivery(Generic[T]):
    """The way of a batch from being taken to being settled."""

    __slots__ = (
        "_cut_off",
        "_is_timed",
        "_on_error",
        "_parts",
        "_reported",
        "retried",
    )

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        config = parts.config
        # Handlers are timed only where somebody asks what they cost.
        rebalancing = config.rebalancing
        is_weighed = rebalancing is not None and rebalancing.measure == "seconds"
        self._is_timed = is_weighed or config.measure_handlers
        # Items that were tried again, each time.
        self.retried = 0
        # By identity: a metaclass may refuse to be hashed.
        self._reported: dict[int, ref[type]] | None = None
        # Batches whose handler was cancelled with its drain task, by identity.
        self._cut_off: set[int] | None = None

    async def deliver(
        self, batch: Batch[T], registration: Registration, drain_task: int
    ) -> BaseException | None:
        """Call the handler; returns what it raised."""
        if registration.retry.deadline is not None:
            self._note_deadline(batch, registration.retry.deadline)
        lock, slot = registration.lock, registration.slot
        permit = (detector := self._parts.detector).permit
        # A handler that was cancelled while it waited has come back without the permit.
        if (permit and not permit.is_held) or not lock.try_acquire(slot):
            await detector.enter_handler(lock, slot, drain_task)
        batch.attempts += 1
        watch = Stopwatch() if self._is_timed else None
        error, left = _NOTHING
        call = HandlerCall(detector, drain_task, lock, slot, registration)
        try:
            # As `attempt` does it, without the price of one coroutine more.
            result = registration.consume(batch.items.copy())
            if type(result) is CoroutineType and registration.timeout is None:
                in_one = detector.calls.may_run_in_one(call, result, registration)
                await (result if in_one else in_steps(result, call))
            elif result is not None:
                await finish(registration.consume, result, registration.timeout)
        except BaseException as raised:  # noqa: BLE001 - `own_error` tells what is ours
            left = left_behind(raised)
            error = self._own_error(raised, call, batch)
        finally:
            call.end()
            if watch:
                _charge(batch, registration, watch.seconds())
            if left is None:
                lock.release(slot)
            else:
                self._outlive(left, batch, registration, call)
        if error is None:
            batch.settle("handled")
            return None
        return settle_handled(batch, error)

    async def fail(
        self, batch: Batch[T], error: BaseException, drain_task: int
    ) -> list[Batch[T]]:
        """Decide what becomes of a batch whose handler raised.

        Returns:
            What is still to be delivered of it, at `due`: the batch itself for another
            attempt, its halves to isolate what fails, or nothing.
        """
        registration = batch.registration
        if batch.is_settled or registration is None:
            return []
        await absorb_cancellation()
        try:
            rest = self._rest_of(batch, registration.retry, error)
        except Exception:  # noqa: BLE001 - no memory for its halves
            logger.exception("%s: a failed batch could not be split", self._parts.name)
            rest = []
        if not rest:
            await self._give_up(batch, registration, error, drain_task)
        return rest

    async def report_retry(
        self, batch: Batch[T], error: BaseException, drain_task: int
    ) -> None:
        """Tell that the batch waits for its next attempt; it is safe already."""
        await report_retry(self._parts, batch, error, drain_task)

    def take_cut_off(self, batch: Batch[T]) -> BaseException | None:
        """Return the error of a batch whose handler was cancelled with its drain task.

        The handler may have done its work in part, or all of it: that was an attempt.
        None if the batch was not in its hands, or if `Retry` allows another attempt: a
        cancellation is no error of the handler, so it counts as any `Exception` would.
        """
        registration = batch.registration
        if self._cut_off is None or id(batch) not in self._cut_off:
            return None
        self._cut_off.remove(id(batch))
        assert registration is not None
        retry, now = registration.retry, asyncio.get_running_loop().time()
        is_in_time = batch.give_up_at is None or now <= batch.give_up_at
        is_worth_it = issubclass(Exception, retry.retry_on)
        if batch.attempts < retry.attempts and is_worth_it and is_in_time:
            return None
        return asyncio.CancelledError("the handler was cancelled with its drain task")

    def report_again(self, item_type: type) -> None:
        """The type had a handler: when it has none again, that is news."""
        if self._reported is not None:
            self._reported.pop(id(item_type), None)

    @staticmethod
    def _note_deadline(batch: Batch[T], deadline: float) -> None:
        if batch.give_up_at is None:
            batch.give_up_at = asyncio.get_running_loop().time() + deadline

    def _own_error(
        self, raised: BaseException, call: object, batch: Batch[T]
    ) -> BaseException:
        try:
            return own_error(raised, call)
        except asyncio.CancelledError:
            self._cut_off = self._cut_off or set()
            self._cut_off.add(id(batch))
            raise

    @staticmethod
    def _rest_of(batch: Batch[T], retry: Retry, error: BaseException) -> list[Batch[T]]:
        if isinstance(error, Unstoppable):
            return []
        is_retried = retry.retries(error)
        if is_retried and batch.attempts < retry.attempts:
            import random  # noqa: PLC0415 - 2 ms, which few programs need at their start

            wait = retry.wait_before(batch.attempts + 1, random.random())
            now = asyncio.get_running_loop().time()
            batch.due = now + max(wait, least_wait(error))
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

    async def _give_up(
        self,
        batch: Batch[T],
        registration: Registration,
        error: BaseException,
        drain_task: int,
    ) -> None:
        count = len(batch)
        try:
            if registration.on_error is None:
                self._parts.repeated_failures.error(
                    "%s: %d items failed in %s",
                    self._parts.name,
                    count,
                    registration.label,
                    title=f"{self._parts.name}: items failed in {registration.label}",
                    error=error,
                    items=len(batch),
                )
            else:
                if (permit := self._parts.detector.permit) is not None:
                    await permit.regain()
                await self._tell_failed(batch, registration, error, drain_task)
        except asyncio.CancelledError:
            logger.error(
                "%s: on_error was cut off at the deadline, for %d items",
                self._parts.name,
                count,
                exc_info=error,
            )
            raise
        finally:
            self._note("failed", batch.items, error)
            batch.settle("failed")

    async def _tell_failed(
        self,
        batch: Batch[T],
        registration: Registration,
        error: BaseException,
        drain_task: int,
    ) -> None:
        try:
            items = list(batch.items)
        except MemoryError:
            # It gets the list itself, and may change it: what is in it is noted before.
            self._note("failed", batch.items, error)
            items, batch.items = batch.items, []
        detector = self._parts.detector
        with HandlerCall(
            detector, drain_task, None, EXCLUSIVE, registration, "on_error"
        ):
            await self._call_on_error(
                registration.on_error, items, error, registration.timeout
            )

    def _note(
        self,
        outcome: Literal["failed", "unhandled"],
        items: list[T],
        error: BaseException | None = None,
    ) -> None:
        """Keep what ended other than handled for the next flush; never raises."""
        try:
            self._parts.failures.add(outcome, items, error)
        except Exception:  # noqa: BLE001 - the account must be right all the same
            logger.exception(
                "%s: the next flush will not tell all of %d items that ended as %s",
                self._parts.name,
                len(items),
                outcome,
            )

    async def tell(self, items: list[T], error: BaseException) -> None:
        """Call the queue's `on_error` for items that are in no batch any more."""
        config = self._parts.config
        await self._call_on_error(config.on_error, items, error, config.handler_timeout)

    async def _call_on_error(
        self,
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
            self._parts.repeated_failures.error(
                "%s: on_error raised %s for %d items that had failed with %s",
                self._parts.name,
                reason(raised),
                len(items),
                reason(error),
                title=f"{self._parts.name}: on_error raised for items that had failed",
                error=raised,
                items=len(items),
            )

    def settle_unhandled(self, batch: Batch[T]) -> None:
        """Nobody handles its items: say so, and count them."""
        for item_type in {id(each): each for each in map(type, batch.items)}.values():
            if self._is_first_report_of(item_type):
                logger.error(
                    "%s: no handler for items of type %s; they count as unhandled",
                    self._parts.name,
                    item_type.__qualname__,
                )
        self._note("unhandled", batch.items)
        batch.settle("unhandled")

    def _is_first_report_of(self, item_type: type) -> bool:
        """Whether it has not been reported yet; from now on it has."""
        if self._reported is None:
            self._reported = {}
        key, reported = id(item_type), self._reported
        known = reported.get(key)
        if known is not None and known() is item_type:
            return False
        # Forgotten with the type: another one may get its identity.
        reported[key] = ref(item_type, lambda _: reported.pop(key, None))
        return True

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
        )

        def ended() -> None:
            batch.resume_partitions()
            self._parts.tasks.wake()

        self._parts.detector.calls.outlives(call, left)
        stuck = Stuck(registration.slot, batch, call.drain_task)
        registration.lock.release_after(stuck, left, ended)


def _charge(batch: Batch[Any], registration: Registration, seconds: float) -> None:
    """Book the time that the handler took, with all who may ask for it."""
    batch.charge(seconds)
    if registration.meter is not None:
        registration.meter.called(seconds)
