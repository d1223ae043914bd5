"""A COPY that ends in time, and with its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from .connections import Connection


@asynccontextmanager
async def copying(connection: Connection, seconds: float) -> AsyncIterator[None]:
    """Bound a COPY, and end it when its connection ends.

    asyncpg watches for the answer, not on the way there: where it waits until the
    socket takes more, it would go on waiting, whatever has become of the connection.
    """
    is_over = False

    def end(_connection: object) -> None:
        if not (is_over or limit.expired()):
            limit.reschedule(0)

    try:
        async with asyncio.timeout(seconds) as limit:
            connection.add_termination_listener(end)
            try:
                yield
            finally:
                is_over = True
                connection.remove_termination_listener(end)
    except (TimeoutError, AttributeError):
        # asyncpg would tell the server, and finds no transport: an AttributeError.
        if not connection.is_closed():
            raise
    else:
        return
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    msg = "connection was closed in the middle of a COPY"
    raise asyncpg.ConnectionDoesNotExistError(msg)
