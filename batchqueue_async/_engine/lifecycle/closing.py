"""The end of a queue: drain, call `on_close`, and see to what is left.

Invariant: an item is given away once, to a caller of `shutdown` or to `on_error`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.draining.failed_batch import tell_on_error
from batchqueue_async._engine.handlers.handler_call import EXCLUSIVE, HandlerCall
from batchqueue_async._engine.partitions.put_in_turn import withdraw_all
from batchqueue_async._engine.runtime.cancellation import GRACE, cancel_for_good
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.errors import BatchQueueError

if TYPE_CHECKING:
    from batchqueue_async._engine.handlers.registry import Registration
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")


# How long `on_error` may take for what an end left, beyond its deadline.
_LEFTOVER_TIME = 1.0


class Closing(Generic[T]):
    """One queue's shutdown; its deadlines hold however often `run` is cut short."""

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        # The `on_close` that runs.
        self._calling: tuple[Registration, asyncio.Task[None]] | None = None

    def end_within(self, timeout: float | None) -> None:
        """Set a deadline; of several, the earliest counts."""
        if timeout is not None and not self._deadline.done():
            self._timers.append(self._loop.call_later(timeout, self.end_now))

    def end_now(self) -> None:
        """The deadline has come."""
        if not self._deadline.done():
            self._deadline.set_result(None)

    async def run(self) -> list[T]:
        """Drain until done or until the deadline; goes on where it was cancelled.

        Returns:
            What was not handled: what was in flight first, then what waited.
        """
        hooks = self._parts.hooks
        await self._drain()
        await self._wait_for(hooks.flushing)
        await self._close_handlers()
        await self._stop()
        if skipped := self._parts.handlers.to_close():
            hooks.skip(skipped)
        # No later call may set a timer any more.
        self.end_now()
        for timer in self._timers:
            timer.cancel()
        self._parts.detector.calls.stop()
        return take_leftovers(self._parts)

    async def _drain(self) -> None:
        tasks = self._parts.tasks
        while not self._deadline.done():
            # Who was cancelled meanwhile starts again.
            tasks.revive()
            if all(task.done() for task in tasks.running.values()):
                return
            await self._wait_for(tasks.running.values())

    async def _wait_for(self, tasks: Iterable[asyncio.Task[Any]]) -> bool:
        """Wait for the tasks; False if the deadline came first."""
        pending = {task for task in tasks if not task.done()}
        while pending and not self._deadline.done():
            await asyncio.wait(
                {*pending, self._deadline}, return_when=asyncio.FIRST_COMPLETED
            )
            pending = {task for task in pending if not task.done()}
        return not pending

    async def _close_handlers(self) -> None:
        handlers, hooks = self._parts.handlers, self._parts.hooks
        await self._end_call()
        while not self._deadline.done() and (due := handlers.to_close()):
            for registration in due:
                if self._deadline.done():
                    return
                call = self._loop.create_task(
                    hooks.close(registration), name=f"on_close of {registration.label}"
                )
                self._calling = registration, call
                await self._end_call()

    async def _end_call(self) -> None:
        """Wait for the `on_close` that runs; at the deadline it is cut off."""
        if self._calling is None:
            return
        registration, call = self._calling
        if not await self._wait_for({call}):
            await self._cancel([call])
            self._parts.hooks.cut_off(registration)
        self._calling = None

    async def _stop(self) -> None:
        hooks = self._parts.hooks
        self._parts.tasks.stop()
        tasks = (*self._parts.tasks.running.values(), *hooks.flushing)
        await self._cancel([each for each in tasks if not each.done()])
        if hooks.flushing:
            hooks.abandon_flushes()

    async def _cancel(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if not tasks:
            return
        for task in tasks:
            cancel_for_good(task)
        ended, survivors = await asyncio.wait(tasks, timeout=GRACE)
        for task in ended:
            # A task gives its cancellation away once. Kept, it would keep the frame of
            # the handler that was cut off, and with it the batch.
            with contextlib.suppress(asyncio.CancelledError):
                task.exception()
        for task in survivors:
            logger.error(
                "%s: a handler does not stop at the deadline; %s is left behind",
                self._parts.name,
                task.get_name(),
                queue=self._parts.name,
            )


def take_leftovers(parts: Parts[T]) -> list[T]:
    """Take out what was not handled; it ends as returned."""
    left: list[T] = []
    for drain_task in parts.tasks.running:
        for batch in drain_task.in_flight.unsettled():
            left.extend(batch.items)
            batch.settle("returned")
            # Its drain task, or a handler that goes on, may keep it for long.
            batch.items = []
    for partition in parts.partitions:
        withdraw_all(partition)
        left.extend(partition.take_rest())
    if left:
        parts.failures.add("returned", left)
    return left


class Leftovers(Generic[T]):
    """The items, and the ways to whoever has to know of them."""

    __slots__ = ("_has_begun", "_parts", "items")

    def __init__(self, parts: Parts[T]) -> None:
        self._parts = parts
        self._has_begun = False
        self.items: list[T] = []

    def take(self) -> list[T]:
        items, self.items = self.items, []
        return items

    async def tell(self, message: str) -> None:
        """Log them, and give them to `on_error`, which has a second.

        If that is cancelled before `on_error` was called, they are still here.
        """
        items = self.take()
        if not items:
            return
        fields = self._fields(items)
        logger.error(message, **fields)
        if self._parts.config.on_error is None:
            return
        self._has_begun = False
        telling = asyncio.create_task(self._call(items, BatchQueueError(message)))
        try:
            _, late = await asyncio.wait({telling}, timeout=_LEFTOVER_TIME)
            if late:
                name = self._parts.name
                logger.error("%s: on_error did not take them in time", name, **fields)
                cancel_for_good(telling)
                await asyncio.wait({telling}, timeout=GRACE)
        finally:
            if not self._has_begun:
                # Somebody cancelled one of both tasks. Cancelled before its first
                # step, the other one never takes it.
                telling.cancel()
                self.items = items + self.items

    def tell_after_loop(self, message: str) -> None:
        """Do the same where nothing can be awaited any more."""
        items = self.take()
        if not items:
            return
        on_error, fields = self._parts.config.on_error, self._fields(items)
        if on_error is None:
            logger.error(message, **fields)
        elif _is_async(on_error):
            says = "%s; on_error is async and is not told: %s"
            logger.error(says, message, _DEAD, **fields)
        else:
            logger.error("%s; on_error is told", message, **fields)
            self._call_after_loop(on_error, items, BatchQueueError(message))

    async def _call(self, items: list[T], error: BaseException) -> None:
        self._has_begun = True
        detector = self._parts.detector
        with HandlerCall(detector, None, None, EXCLUSIVE, None, "on_error"):
            await tell_on_error(self._parts, items, error)

    def _call_after_loop(
        self,
        on_error: Any,  # noqa: ANN401 - sync or async, which shows when it is called
        items: list[T],
        error: BaseException,
    ) -> None:
        try:
            result = on_error(items, error)
        except BaseException as raised:  # noqa: BLE001 - nobody could catch it
            logger.error(
                "%s: on_error raised %r",
                self._parts.name,
                raised,
                exc_info=raised,
                **self._fields(items),
                hook="on_error",
            )
            return
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            logger.error(
                "%s: what on_error returned is not awaited: %s",
                self._parts.name,
                _DEAD,
                **self._fields(items),
                hook="on_error",
            )

    def _fields(self, items: list[T]) -> dict[str, Any]:
        return {"queue": self._parts.name, "items": len(items)}


_DEAD = "the loop does not run any more"


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - what kind it is, not whether
    )
