"""Has a handler opened before its first batch: once, unless that fails.

It stands in the way of `consume` for as long as it is needed, so handlers without an
`on_open` don't pay for it. It belongs to the handler, as its lock does: whatever type a
batch is of, and whichever drain task comes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batchqueue_async._engine.handlers.user_call import finish

Call = Callable[..., Awaitable[object] | object]


class Opening:
    """One handler's `on_open`, and whether it has succeeded."""

    __slots__ = ("_hook", "_turn", "is_done")

    def __init__(self, hook: Call) -> None:
        self._hook = hook
        # Several drain tasks may come at once.
        self._turn: asyncio.Lock | None = None
        self.is_done = False

    def before(self, consume: Call) -> Callable[[list[Any]], Awaitable[None]]:
        """Return what opens the handler if need be, and has it take a batch then."""

        async def open_and_consume(batch: list[Any]) -> None:
            if not self.is_done:
                await self._open()
            await _call(consume, batch)

        return open_and_consume

    async def _open(self) -> None:
        self._turn = self._turn or asyncio.Lock()
        async with self._turn:
            if not self.is_done:
                await _call(self._hook)
                self.is_done = True


async def _call(call: Call, *arguments: object) -> None:
    result = call(*arguments)
    if result is not None:
        # Its timeout is that of the whole.
        await finish(call, result, None)
