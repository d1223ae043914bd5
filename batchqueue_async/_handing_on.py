"""What the calls of several queues hand on, of one `Merging` that they share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from threading import RLock
from typing import Final

from batchqueue_async._engine.handlers.handler_lock_and_call import (
    HandlerCall,
    current_call,
)
from batchqueue_async._engine.handlers.wait_for_graph import Node, Wait
from batchqueue_async._threads.clock import sleep

# Between two looks at what another queue hands on, perhaps on another loop.
_LOOK: Final = 0.01


class HandingOn:
    """A queue's call that hands on, for the others that share the handler."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        # None where a caller of the user's hands on.
        self.call = current_call()
        self.has_ended = False
        self.has_failed = True

    @property
    def is_under_way(self) -> bool:
        return not self.has_ended and self.loop.is_running()

    async def end(self) -> None:
        """Wait until it has ended.

        Raises:
            WouldDeadlock: It waits for the call that would wait here.
        """
        call = current_call()
        if call is None or not self.is_under_way:
            await self._look_until_ended()
            return
        async with _EndWait(call, self) as wait:
            wait.begin()
            await self._look_until_ended()

    async def _look_until_ended(self) -> None:
        while self.is_under_way:
            await sleep(_LOOK)


class _EndWait(Wait):
    """A call waits for what another queue's call hands on."""

    __slots__ = ("_other",)

    # Whoever closes a circle later, by a wait of its own, is refused that.
    is_refusable = False

    def __init__(self, call: HandlerCall, other: HandingOn) -> None:
        super().__init__(call)
        self._other = other

    def targets(self) -> Collection[Node]:
        call = self._other.call
        return () if call is None or not self._other.is_under_way else (call,)

    def _describe(self) -> str:
        return "what another queue hands on of the same handler does not end"

    def _wake(self) -> None:
        """Do nothing: it is never refused while it waits."""


class Sharing:
    """What queues that share a handler need: a lock, and who hands something on.

    A copy, and a forked child, begin anew: there nobody would free, or end, these.
    """

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), RLock()
        self.handing_on: set[HandingOn] = set()

    def __reduce__(self) -> tuple[type[Sharing], tuple[()]]:
        return Sharing, ()
