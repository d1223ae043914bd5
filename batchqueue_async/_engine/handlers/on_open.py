"""Has a handler opened before its first batch: once, unless that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from batchqueue_async._engine.handlers.call_with_timeout import finish
from batchqueue_async._engine.handlers.handler_lock_and_call import (
    HandlerCall,
    current_call,
)
from batchqueue_async._engine.handlers.wait_for_graph import (
    DrainTaskNode,
    Node,
    Wait,
    refuse_cycles,
)

Call = Callable[..., Awaitable[object] | object]


class Opening:
    """One handler's `on_open`, which succeeds once; until then it is called again.

    It stands in front of `consume`, so handlers without an `on_open` don't pay for it.
    It belongs to the handler, as its lock does: whatever type a batch is of, and
    whichever drain task comes first.
    """

    def __init__(self, hook: Call) -> None:
        self._hook = hook
        # Several drain tasks may come at once.
        self._lock: asyncio.Lock | None = None
        # The call that opens now, or did last.
        self.opener: HandlerCall | None = None
        self.is_done = False

    def before(self, consume: Call) -> Callable[[list[Any]], Awaitable[None]]:
        """Return a function that opens the handler if need be, and calls `consume`."""

        async def open_and_consume(batch: list[Any]) -> None:
            if not self.is_done:
                await self._open()
            await _call(consume, batch)

        return open_and_consume

    async def _open(self) -> None:
        lock = self._lock = self._lock or asyncio.Lock()
        call = current_call()
        if lock.locked() and call is not None:
            await _wait_for(lock, OpeningWait(call, self))
        else:
            await lock.acquire()
        try:
            if not self.is_done:
                self.opener = call
                await _call(self._hook)
                self.is_done = True
        finally:
            lock.release()

    def waits(self) -> Iterable[Wait]:
        """Return the waits of the call that opens, as a node of the wait-for graph."""
        return () if self.opener is None else self.opener.waits()


class OpeningWait(Wait):
    """A drain task waits with a batch while another one opens the handler."""

    __slots__ = ("_opening",)

    is_refusable = False

    def __init__(self, call: HandlerCall, opening: Opening) -> None:
        super().__init__(call)
        self._opening = opening

    def targets(self) -> Collection[Node]:
        return (self._opening,)

    def _describe(self) -> str:
        return "its on_open does not end"

    def _wake(self) -> None:
        """Do nothing: not this wait is refused, but that of the call that opens."""


async def _wait_for(lock: asyncio.Lock, wait: OpeningWait) -> None:
    """Wait for the turn to open; refuse a wait of `on_open` for this drain task."""
    wait.note()
    try:
        refuse_cycles(DrainTaskNode(wait.call.detector, wait.call.drain_task))
        await lock.acquire()
    finally:
        wait.end()


async def _call(call: Call, *arguments: object) -> None:
    result = call(*arguments)
    if result is not None:
        # No timeout: that of the whole call holds.
        await finish(call, result, None)
