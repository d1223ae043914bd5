"""The client that all calls of a process share."""

from __future__ import annotations

import asyncio
import contextlib

from batchqueue_async._wording import shown

from .options import Open


class Client:
    """Opened by the first call that needs it; open until `close`, or the loop's end.

    A task of its own enters the context manager and leaves it: many of those that are
    built on cancel scopes insist on one task for both. A loop cancels its tasks when it
    ends, after the queue is drained: that closes the client.
    """

    def __init__(self, open_client: Open) -> None:
        self._open_client = open_client
        self._opened: asyncio.Future[object] | None = None
        self._holder: asyncio.Task[None] | None = None

    async def get(self) -> object:
        """Return the client; what opening it raises, the next one tries again."""
        if self._opened is None:
            loop = asyncio.get_running_loop()
            self._opened = loop.create_future()
            self._holder = loop.create_task(self._hold(self._opened), name="client")
        # That one call is cancelled is nothing to the others.
        return await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Leave the context manager, if it was entered; raises what that raises."""
        if self._holder is not None:
            self._holder.cancel()
            await self._holder

    async def _hold(self, opened: asyncio.Future[object]) -> None:
        try:
            manager = self._open_client()
            if not hasattr(type(manager), "__aenter__"):
                msg = f"open must return an async context manager, got {shown(manager)}"
                raise TypeError(msg)  # noqa: TRY301 - told as what opening raises is
            async with manager as client:
                opened.set_result(client)
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.get_running_loop().create_future()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            self._opened = self._holder = None
