"""What the end of a queue left unhandled, until somebody has it.

Invariant: an item is given away once, to a caller of `shutdown` or to `on_error`.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from batchqueue_async._engine.handlers.handler_lock import EXCLUSIVE
from batchqueue_async._engine.handlers.user_call import GRACE
from batchqueue_async._engine.runtime.call_context import HandlerCall
from batchqueue_async._engine.runtime.cancellation import cancel_for_good
from batchqueue_async._engine.runtime.log import logger
from batchqueue_async._policies.errors import BatchQueueError

if TYPE_CHECKING:
    from batchqueue_async._engine.parts import Parts

T = TypeVar("T")

# How long `on_error` may take for what an end left, beyond its deadline.
_LEFTOVER_TIME = 1.0


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
        logger.error(message)
        if self._parts.config.on_error is None:
            return
        self._has_begun = False
        telling = asyncio.create_task(self._call(items, BatchQueueError(message)))
        try:
            _, late = await asyncio.wait({telling}, timeout=_LEFTOVER_TIME)
            if late:
                logger.error("%s: on_error did not take them in time", self._parts.name)
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
        on_error = self._parts.config.on_error
        if on_error is None:
            logger.error(message)
        elif _is_async(on_error):
            logger.error("%s; on_error is async and is not told: %s", message, _DEAD)
        else:
            logger.error("%s; on_error is told", message)
            self._call_after_loop(on_error, items, BatchQueueError(message))

    async def _call(self, items: list[T], error: BaseException) -> None:
        self._has_begun = True
        detector = self._parts.detector
        with HandlerCall(detector, None, None, EXCLUSIVE, None, "on_error"):
            await self._parts.delivery.tell(items, error)

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
                "%s: on_error raised %r", self._parts.name, raised, exc_info=raised
            )
            return
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            logger.error(
                "%s: what on_error returned is not awaited: %s", self._parts.name, _DEAD
            )


_DEAD = "the loop does not run any more"


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - what kind it is, not whether
    )
