"""What leaving's deadline leaves is in the log, whoever catches the `TimeoutError`."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import anyio
import pytest

from batchqueue_async.ring import Disruptor
from tests.ring.events import Event, Recorder, fill


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[None]:
    """A block around the ring's that waits on its way out."""
    try:
        yield
    finally:
        await asyncio.sleep(1.0)


async def test_a_scope_that_ends_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    disruptor = Disruptor(Event, 8, shutdown_timeout=0.2)
    disruptor.handle_events_with(Recorder("stuck", asyncio.Event()))
    with anyio.move_on_after(0.1):
        async with connection(), disruptor as ring:
            await ring.publish_events(fill, "abc")
    told = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert told == ["shutting down: 3 events were not handled before the deadline"]
