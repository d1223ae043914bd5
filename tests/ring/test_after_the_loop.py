"""Whoever leaves a ring after its loop has ended gets an answer, at once."""

import asyncio
import gc
import logging
import sys

import pytest

from batchqueue_async.ring import RingBuffer, WorkerPool
from tests.ring.events import Event, Recorder, fill, small

PATIENCE = 30.0


class Closing(Recorder):
    async def on_shutdown(self) -> None:  # type: ignore[override]
        """What a closed coroutine can't do any more."""
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_closed_alone", [True, False])
def test_a_shutdown_on_another_loop(*, is_closed_alone: bool) -> None:
    disruptor = small(8)
    disruptor.handle_events_with(Recorder("stuck", asyncio.Event()))

    async def main() -> None:
        ring = await disruptor.start()
        await ring.publish_events(fill, "abc")
        await asyncio.sleep(0.01)

    async def shut_down() -> None:
        async with asyncio.timeout(PATIENCE):
            await disruptor.shutdown()

    if is_closed_alone:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    else:
        asyncio.run(main())
    for _ in range(2):
        asyncio.run(shut_down())


@pytest.mark.parametrize("is_pool", [True, False])
def test_a_block_that_is_collected_raises_nothing(
    asyncio_errors: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_pool: bool,
) -> None:
    raised: list[BaseException | None] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda args: raised.append(args.exc_value)
    )
    stuck = Closing("stuck", asyncio.Event())

    async def main() -> None:
        if is_pool:
            ring = RingBuffer(Event, 8)
            async with WorkerPool(ring, stuck):
                await ring.publish_events(fill, "abc")
                await asyncio.get_running_loop().create_future()
        else:
            disruptor = small(8)
            disruptor.handle_events_with(stuck)
            async with disruptor as ring:
                await ring.publish_events(fill, "abc")
                await asyncio.get_running_loop().create_future()

    async def begin() -> None:
        task = asyncio.ensure_future(main())
        await asyncio.sleep(0.01)
        assert not task.done()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    gc.collect()
    assert raised == []
    left = [
        each.message for each in caplog.records if "events are left" in each.message
    ]
    assert len(left) == 1
    asyncio_errors.clear()
