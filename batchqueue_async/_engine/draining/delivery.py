"""Gives batches to their handlers."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import ref

from batchqueue_async._engine.draining.failed_batch import note, settle_handled
from batchqueue_async._engine.handlers.handler_call import (
    HandlerCall,
    Stuck,
    in_steps,
)
from batchqueue_async._engine.handlers.take_limit import follow_change
from batchqueue_async._engine.handlers.timed_call import (
    Stopwatch,
    finish,
    left_behind,
    own_error,
)
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.handler_options import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.draining.batch import Batch
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")

# What a call has raised, and what is left of it.
_NOTHING: tuple[BaseException | None, asyncio.Future[Any] | None] = (None, None)


class Delivery(Generic[T]):
    """The way of a batch from being taken to being settled."""

    __slots__ = (
        "_cut_off",
        "_is_timed",
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
        self._is_timed |= config.max_batch == AUTO
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
        lock, mode = registration.lock, registration.mode
        permit = (detector := self._parts.detector).permit
        # A handler that was cancelled while it waited has come back without the permit.
        if (permit and not permit.is_held) or not lock.try_acquire(mode):
            await detector.enter_handler(lock, mode, drain_task)
        batch.attempts += 1
        watch = Stopwatch() if self._is_timed else None
        error, left = _NOTHING
        call = HandlerCall(detector, drain_task, lock, mode, registration)
        try:
            # As `attempt` does it, without the price of one coroutine more.
            result = registration.consume(batch.items.copy())
            if type(result) is CoroutineType and registration.timeout is None:
                in_one = detector.calls.may_run_in_one(call, result, registration)
                await (result if in_one else in_steps(result, call))
            elif result is not None:
                await finish(registration.consume, result, registration.timeout)
        except BaseException as raised:  # noqa: BLE001 - `own_error` tells what is ours
            error, left = raised, left_behind(raised)
            error = self._own_error(raised, call, batch)
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
            return None
        return settle_handled(batch, error)

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
        if registration.meter is not None:
            registration.meter.called(seconds)
        if registration.limit is None or isinstance(error, asyncio.CancelledError):
            return
        registration.limit.called(len(batch), seconds, error)
        if registration.limit.size != registration.max_batch:
            registration.max_batch = registration.limit.size
            follow_change(self._parts.handlers, registration)
            self._parts.layout.terms.limit_changed(registration)

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

    def settle_unhandled(self, batch: Batch[T]) -> None:
        """Nobody handles its items: say so, and count them."""
        for item_type in {id(each): each for each in map(type, batch.items)}.values():
            if self._is_first_report_of(item_type):
                logger.error(
                    "%s: no handler for items of type %s; they count as unhandled",
                    self._parts.name,
                    item_type.__qualname__,
                    queue=self._parts.name,
                    item_type=item_type.__qualname__,
                )
        note(self._parts, "unhandled", batch.items)
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
            queue=self._parts.name,
            handler=registration.label,
            items=len(batch),
        )

        def ended() -> None:
            batch.resume_partitions()
            self._parts.tasks.wake()

        self._parts.detector.calls.outlives(call, left)
        stuck = Stuck(registration.mode, batch, call.drain_task)
        registration.lock.release_after(stuck, left, ended)
