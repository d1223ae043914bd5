"""A loop that ends before the ring's shutdown loses nothing in silence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from batchqueue_async import BatchQueue
from batchqueue_async.ring import (
    Disruptor,
    RingBuffer,
    RingError,
    RingHalted,
    WorkerPool,
)
from tests.ring.events import Event, Recorder, fill, small


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


class Stuck(Recorder):
    """Handles two events, and waits for ever in the third."""

    def __init__(self, name: str) -> None:
        super().__init__(name, asyncio.Event())

    async def on_event(self, event: Event, sequence: int, is_end: bool) -> None:
        if sequence == 2:
            assert self.gate is not None
            await self.gate.wait()
        self._record(event, sequence, is_end)


class StuckBatch:
    name = "batches"

    async def on_batch(self, events: list[Event], first: int) -> None:
        await asyncio.get_running_loop().create_future()


async def publish_and_forget(
    disruptor: Disruptor[Event], values: str = "abcdef"
) -> None:
    ring = await disruptor.start()
    await ring.publish_events(fill, values)
    # A machine that stands still for a moment takes no turn in the time that follows.
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


Lost = list[tuple[str, int, Any]]


def catching(lost: Lost) -> Callable[[Exception, int, Any], None]:
    def on_error(error: Exception, sequence: int, event: Any) -> None:  # noqa: ANN401
        assert isinstance(error, RingError)
        events = event if isinstance(event, list) else [event]
        lost.append((str(error), sequence, [each.value for each in events]))

    return on_error


def test_what_is_left_is_logged_and_the_exception_handler_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost: Lost = []
    stuck = Stuck("stuck")

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_exceptions_with(catching(lost))
        disruptor.handle_events_with(stuck)
        await publish_and_forget(disruptor)

    asyncio.run(main())
    message = "ring consumer stuck was cancelled: 4 events are left"
    assert errors(caplog) == [message]
    assert stuck.values == ["a", "b"]
    assert lost == [(message, n, ["abcdef"[n]]) for n in range(2, 6)]
    assert stuck.log == ["start", "shutdown"]


def test_a_log_filter_that_raises_keeps_nobody_from_being_told() -> None:
    lost: Lost = []

    def refuse(_: logging.LogRecord) -> bool:
        raise OSError

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_exceptions_with(catching(lost))
        disruptor.handle_events_with(Stuck("stuck"))
        await publish_and_forget(disruptor)

    logger = logging.getLogger("batchqueue_async.ring")
    logger.addFilter(refuse)
    try:
        asyncio.run(main())
    finally:
        logger.removeFilter(refuse)
    assert [sequence for _, sequence, _ in lost] == [2, 3, 4, 5]


async def test_a_shutdown_before_the_start_tells_of_what_was_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[int] = []

    async def on_error(error: Exception, sequence: int, event: Event) -> None:
        told.append(sequence)

    disruptor = small(8)
    disruptor.handle_exceptions_with(on_error)
    disruptor.handle_events_with(Recorder("first"))
    await disruptor.ring.publish_events(fill, "abc")
    await disruptor.shutdown()
    await disruptor.shutdown()
    assert errors(caplog) == [
        "ring consumer first was never started: 3 events are left"
    ]
    assert told == [0, 1, 2]


def test_a_batch_handler_gets_them_together(caplog: pytest.LogCaptureFixture) -> None:
    lost: Lost = []

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_events_with(StuckBatch())
        disruptor.handle_exceptions_with(catching(lost))
        await publish_and_forget(disruptor, "ab")
        claimed = disruptor.ring.try_claim(2)
        disruptor.ring.abandon(claimed - 1)

    asyncio.run(main())
    # One is claimed, and whoever fills it is refused; the other holds no event.
    message = "ring consumer batches was cancelled: 2 events are left"
    assert errors(caplog) == [message]
    assert lost == [(message, 0, ["a", "b"])]


def test_an_async_exception_handler_is_awaited() -> None:
    lost = []

    async def on_error(error: Exception, sequence: int, event: Event) -> None:
        await asyncio.sleep(0)
        lost.append(event.value)

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_exceptions_with(on_error)
        disruptor.handle_events_with(Stuck("a")).then(Recorder("b"))
        await publish_and_forget(disruptor, "abc")

    asyncio.run(main())
    assert sorted(lost) == ["a", "b", "c", "c"]


@pytest.mark.parametrize("raises", [True, False])
def test_an_exception_handler_does_not_keep_a_loop_from_its_end(
    caplog: pytest.LogCaptureFixture, *, raises: bool
) -> None:
    async def on_error(error: Exception, sequence: int, event: Event) -> None:
        if raises:
            raise error
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_exceptions_with(on_error)
        disruptor.handle_events_with(Stuck("a"))
        await publish_and_forget(disruptor)

    asyncio.run(main())
    left, failed = errors(caplog)
    assert "4 events are left" in left
    assert failed == "ring consumer a was cancelled: the exception handler failed"


def test_workers_leave_each_event_once(caplog: pytest.LogCaptureFixture) -> None:
    lost: Lost = []

    async def main() -> None:
        ring = RingBuffer(Event, 8)
        workers = [Recorder(str(number), asyncio.Event()) for number in range(2)]
        pool = WorkerPool(ring, *workers, on_error=catching(lost))
        await pool.start()
        await ring.publish_events(fill, "abcdef")
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert sorted(sequence for _, sequence, _ in lost) == [*range(6)]
    assert len(errors(caplog)) == 2


def test_a_closed_loop_tells_as_well(caplog: pytest.LogCaptureFixture) -> None:
    lost: Lost = []

    async def on_error(error: Exception, sequence: int, event: Event) -> None:
        lost.append(("never", sequence, event))

    loop = asyncio.new_event_loop()
    sync, unawaited = small(8), small(8)
    sync.handle_exceptions_with(catching(lost))
    unawaited.handle_exceptions_with(on_error)
    for disruptor in (sync, unawaited):
        disruptor.handle_events_with(Recorder("it", asyncio.Event()))
        loop.run_until_complete(publish_and_forget(disruptor, "abc"))
    loop.close()
    left = "the loop of ring consumer it was closed: 3 events are left"
    not_told = (
        "the loop of ring consumer it was closed: an async exception handler is not "
        "told"
    )
    assert sorted(errors(caplog)) == sorted([left, left, not_told])
    assert [sequence for _, sequence, _ in lost] == [0, 1, 2]


def test_a_program_that_ends_tells_as_well() -> None:
    code = (
        "import asyncio, logging\n"
        "from tests.ring.events import Recorder, fill, small\n"
        "logging.basicConfig()\n"
        "async def main():\n"
        "    disruptor = small(8)\n"
        "    disruptor.handle_events_with(Recorder('it', asyncio.Event()))\n"
        "    ring = await disruptor.start()\n"
        "    await ring.publish_event(fill, 1)\n"
        "loop = asyncio.new_event_loop()\n"
        "loop.run_until_complete(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    logged = "the program ends before ring consumer it: 1 events are left"
    assert done.stderr == f"ERROR:batchqueue_async.ring:{logged}\n"


def test_after_a_shutdown_there_is_nothing_to_tell(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.new_event_loop()
    known = loop.close

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_events_with(Recorder())
        async with disruptor as ring:
            assert loop.close != known
            await ring.publish_events(fill, "abc")

    loop.run_until_complete(main())
    assert loop.close == known
    loop.close()
    assert not errors(caplog)


def test_a_background_shutdown_tells_what_it_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who asked for it was cancelled, so that nobody gets its TimeoutError."""

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_events_with(Stuck("stuck"))
        await publish_and_forget(disruptor)
        closing = asyncio.create_task(disruptor.shutdown(0.02))
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert errors(caplog) == ["4 events were not handled before the deadline"]


def test_a_queue_that_is_shut_down_takes_the_rings_last_line_not_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both have to be told when the loop is closed, and there is one way to be told."""

    async def main() -> None:
        async with BatchQueue("queue"):
            await publish_and_forget(disruptor, "abc")

    disruptor = small(8)
    disruptor.handle_events_with(Recorder("it", asyncio.Event()))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    assert errors(caplog) == [
        "the loop of ring consumer it was closed: 3 events are left"
    ]


@pytest.mark.parametrize("timeout", [0.0, 0.02])
def test_a_deadline_that_comes_with_the_loops_end_tells_what_it_left(
    timeout: float, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler cleans up, and whoever is to get the TimeoutError is cancelled."""

    async def clean_up(event: Event, sequence: int, end_of_batch: bool) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_events_with(clean_up)
        await publish_and_forget(disruptor, "abc")
        closing = asyncio.create_task(disruptor.shutdown(timeout))
        await asyncio.sleep(timeout + 0.01)
        assert not closing.done()

    asyncio.run(main())
    assert errors(caplog) == ["3 events were not handled before the deadline"]


async def test_a_caller_that_is_cancelled_as_the_shutdown_ends_takes_no_count_along(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disruptor = small(8)
    disruptor.handle_events_with(Stuck("stuck"))
    await publish_and_forget(disruptor)
    closing = asyncio.create_task(disruptor.shutdown(0.01))
    await asyncio.sleep(0)
    ending = next(each for each in asyncio.all_tasks() if "shutdown" in each.get_name())
    ending.add_done_callback(lambda _: closing.cancel())
    await asyncio.wait({closing})
    assert closing.cancelled()
    assert errors(caplog) == ["4 events were not handled before the deadline"]
    with pytest.raises(TimeoutError, match="4 events"):
        await disruptor.shutdown()


class Swallowing(Recorder):
    """Takes its cancellation for the end of what it waits for."""

    async def on_event(self, event: Event, sequence: int, is_end: bool) -> None:
        if sequence == 2:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        self._record(event, sequence, is_end)


@pytest.mark.parametrize("way", ["alone", "beside another", "workers"])
def test_a_handler_that_swallows_its_cancellation_holds_no_loop_up(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets no further batch, and what is left is told."""
    handler, other = Swallowing("swallows"), Recorder("other")

    async def main() -> None:
        disruptor = small(8)
        if way == "workers":
            disruptor.handle_events_with_worker_pool(handler)
        else:
            disruptor.handle_events_with(handler, max_batch=3)
        if way == "beside another":
            disruptor.handle_events_with(other)
        await publish_and_forget(disruptor)

    asyncio.run(main())
    assert handler.values == ["a", "b", "c"]
    assert handler.log == ["start", "shutdown"]
    assert errors(caplog) == ["ring consumer swallows was cancelled: 3 events are left"]


class AlwaysSwallowing(Recorder):
    """Takes each cancellation for the end of what it waits for."""

    async def on_event(self, event: Event, sequence: int, is_end: bool) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        self._record(event, sequence, is_end)


def test_the_rest_of_a_batch_holds_no_loop_up_either(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waited for a minute for each event of a batch, which may be a whole ring."""
    handler = AlwaysSwallowing("swallows")

    async def main() -> None:
        disruptor = small(8)
        disruptor.handle_events_with(handler)
        await publish_and_forget(disruptor)

    asyncio.run(main())
    assert handler.values == ["a"]
    assert handler.log == ["start", "shutdown"]
    assert errors(caplog) == ["ring consumer swallows was cancelled: 5 events are left"]


async def test_the_rest_of_a_batch_holds_no_shutdown_up_either(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler = AlwaysSwallowing("swallows")
    disruptor = small(8)
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    await ring.publish_events(fill, "abcdef")
    with pytest.raises(TimeoutError, match=r"^5 events were not handled"):
        await disruptor.shutdown(1)
    assert asyncio.get_running_loop().time() < 2
    assert handler.values == ["a"]
    assert errors(caplog) == []


def test_what_was_published_beyond_a_gap_is_told_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its producer was told that it is in; only the claim before it is still open.

    Whoever has that one is told, too, as he publishes it: each event is told once.
    """
    told: list[int] = []

    async def main() -> None:
        disruptor.handle_events_with(lambda *_: None)
        disruptor.handle_exceptions_with(lambda error, at, event: told.append(at))
        ring = await disruptor.start()
        assert await ring.claim() == 0
        await ring.publish_events(fill, "ab")

    disruptor = small(8)
    asyncio.run(main())
    assert told == [1, 2]
    assert "2 events are left" in caplog.text
    with pytest.raises(RingHalted):
        disruptor.ring.publish(0)
