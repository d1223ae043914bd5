"""Calls the handler of one batch, and books what came of it."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.draining.batch import Batch
from batchqueue_async._engine.draining.failed_batch import (
    note,
)
from batchqueue_async._engine.draining.lost_items import UnhandledTypes
from batchqueue_async._engine.draining.shares import (
    INSIDE,
    NOTED,
    RETURNED,
)
from batchqueue_async._engine.handlers.call_with_timeout import (
    LeftBehind,
    Stopwatch,
    finish,
    own_error,
)
from batchqueue_async._engine.handlers.handler_lock_and_call import HandlerCall
from batchqueue_async._engine.handlers.take_limit import learn
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.handler_options import AUTO

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.queue_parts import Parts

T = TypeVar("T")

# What a call has raised, and what is left of it.
_NOTHING: tuple[BaseException | None, asyncio.Future[Any] | None] = (None, None)


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
        # No call in between: it is inside from here on, whatever is raised.
        batch.attempts, batch.stage = batch.attempts + 1, INSIDE
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
            error, left = _raised(raised, call)
        finally:
            call.end()
            if watch:
                self._charge(batch, registration, watch.seconds(), error)
            if left is None:
                leave(batch, registration)
            else:
                self._outlive(left, batch, registration, call)
        if error is None:
            batch.settle("handled")
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
        if batch.stage is not NOTED:
            self._tell_unhandled(batch)
            note(self._parts, "unhandled", batch.items)
            batch.stage = NOTED
        batch.settle("unhandled")

    def _tell_unhandled(self, batch: Batch[T]) -> None:
        for item_type in self._unhandled.news(batch.items):
            logger.error(
                "%s: no handler for items of type %s; they count as unhandled",
                self._parts.name,
                item_type.__qualname__,
                queue=self._parts.name,
                item_type=item_type.__qualname__,
            )

    def _outlive(
        self,
        left: asyncio.Future[Any],
        batch: Batch[T],
        registration: Registration,
        call: HandlerCall,
    ) -> None:
        """Block the partitions of a handler that cannot be stopped, until it ends."""
        batch.pause_partitions(call)

        def ended() -> None:
            batch.resume_partitions(call)
            self._parts.tasks.wake()

        self._parts.detector.calls.outlives(call, left, batch, ended)
        # It is inside, and its drain task is not.
        batch.stage = RETURNED
        logger.error(
            "%s: %s cannot be stopped; its partitions are blocked until it ends",
            self._parts.name,
            registration.label,
            queue=self._parts.name,
            handler=registration.label,
            items=len(batch),
        )


def leave(batch: Batch[Any], registration: Registration) -> None:
    """Leave the handler that was entered for a batch."""
    is_waited_for = registration.lock.leave(registration.mode)
    # No call in between.
    batch.stage = RETURNED
    if is_waited_for:
        registration.lock.left()


def _raised(
    error: BaseException, call: HandlerCall
) -> tuple[BaseException, asyncio.Future[Any] | None]:
    """Return what came out of a call, and what goes on of it; raises what is ours."""
    left = error.left if isinstance(error, LeftBehind) else None
    assert call.registration is not None
    if call.coroutine is not None and call.registration.timeout is None:
        # Where a signal handler has raised, nobody goes on with it.
        call.coroutine.close()
    return error if isinstance(error, Exception) else own_error(error, call), left
