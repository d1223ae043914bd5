"""What the end of a queue left unhandled, until somebody has it.

Invariant: an item is given away once, to a caller of `shutdown` or to `on_error`.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Generic, TypeVar

from batchqueue_async._engine.attempt import GRACE
from batchqueue_async._engine.delivery import Delivery
from batchqueue_async._engine.doom import doom
from batchqueue_async._engine.log import logger
from batchqueue_async._engine.own_work import OwnWork
from batchqueue_async._policies.config import BatchQueueConfig
from batchqueue_async._policies.errors import BatchQueueError

T = TypeVar("T")

# How long `on_error` may take for what an end left, beyond its deadline.
_LEFTOVER_TIME = 1.0


class Leftovers(Generic[T]):
    """The items, and the ways to whoever has to know of them."""

    __slots__ = ("_delivery", "_has_begun", "_name", "_on_error", "_own_work", "items")

    def __init__(
        self,
        name: str,
        config: BatchQueueConfig[T],
        delivery: Delivery[T],
        own_work: OwnWork,
    ) -> None:
        self._name = name
        self._on_error = config.on_error
        self._delivery = delivery
        self._own_work = own_work
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
        if self._on_error is None:
            return
        self._has_begun = False
        telling = asyncio.create_task(self._call(items, BatchQueueError(message)))
        try:
            _, late = await asyncio.wait({telling}, timeout=_LEFTOVER_TIME)
            if late:
                logger.error("%s: on_error did not take them in time", self._name)
                doom(telling)
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
        if self._on_error is None:
            logger.error(message)
        elif _is_async(self._on_error):
            logger.error("%s; on_error is async and is not told: %s", message, _DEAD)
        else:
            logger.error("%s; on_error is told", message)
            self._call_after_loop(self._on_error, items, BatchQueueError(message))

    async def _call(self, items: list[T], error: BaseException) -> None:
        self._has_begun = True
        with self._own_work.inside(None):
            await self._delivery.tell(items, error)

    def _call_after_loop(
        self,
        on_error: Any,  # noqa: ANN401 - sync or async, which shows when it is called
        items: list[T],
        error: BaseException,
    ) -> None:
        try:
            result = on_error(items, error)
        except BaseException as raised:  # noqa: BLE001 - nobody could catch it
            logger.error("%s: on_error raised %r", self._name, raised, exc_info=raised)
            return
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            logger.error(
                "%s: what on_error returned is not awaited: %s", self._name, _DEAD
            )


_DEAD = "the loop does not run any more"


def _is_async(call: object) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - what kind it is, not whether
    )
