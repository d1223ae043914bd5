"""A halted ring takes nothing: who publishes is told, or the consumers tell of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchqueue_async.ring import RingBuffer, RingHalted, Sequence, SyncRing, halt
from batchqueue_async.ring.claim_queue import WaitingClaim
from tests.ring.events import Event, Recorder, fill, small, turns


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


async def fails(event: Event, sequence: int, end_of_batch: bool) -> None:
    raise ValueError(sequence)


@asynccontextmanager
async def halted_by_an_error(size: int) -> AsyncIterator[RingBuffer[Event]]:
    """Give a ring that the first event published to it halts."""
    disruptor = small(size)
    disruptor.handle_events_with(fails)
    disruptor.handle_exceptions_with(halt)
    ring = await disruptor.start()
    yield ring
    await disruptor.shutdown()


async def test_a_claim_that_is_open_at_a_halt_is_refused_when_it_is_published() -> None:
    async with halted_by_an_error(8) as ring:
        high = await ring.claim(2)
        ring.publish(high - 1)
        await turns()
        with pytest.raises(RingHalted, match="event 0, in fails") as halted:
            ring.publish(high)
    assert isinstance(halted.value.__cause__, ValueError)


async def in_a_block(ring: RingBuffer[Event]) -> None:
    async with ring.claim() as event:
        await turns()
        event.value = "late"


async def test_so_is_the_block_of_one() -> None:
    async with halted_by_an_error(8) as ring:
        await ring.publish_event(fill, "fails")
        with pytest.raises(RingHalted) as halted:
            await in_a_block(ring)
    assert halted.value.published == 0  # type: ignore[attr-defined]


class PassesThenFails:
    """Says that it has passed an event, which gives its slot away, and raises then."""

    def set_sequence_callback(self, sequence: Sequence) -> None:
        self.sequence = sequence

    async def on_event(self, event: Event, sequence: int, end_of_batch: bool) -> None:
        await turns()
        self.sequence.value = sequence
        raise ValueError


async def test_so_is_who_got_room_right_before_the_halt() -> None:
    disruptor = small(1)
    disruptor.handle_events_with(PassesThenFails())
    disruptor.handle_exceptions_with(halt)
    ring = await disruptor.start()
    await ring.publish_event(fill, "fails")
    granted = asyncio.create_task(ring.publish_event(fill, "granted"))
    with pytest.raises(RingHalted):
        await granted
    assert ring.sequencer.claimed == 1
    await disruptor.shutdown()


async def test_what_is_abandoned_after_a_halt_is_no_error() -> None:
    async with halted_by_an_error(8) as ring:
        high = await ring.claim(2)
        ring.publish(high - 1)
        await turns()
        ring.abandon(high)
        with pytest.raises(RingHalted):
            ring.try_claim()


async def test_what_was_claimed_before_a_shutdown_may_be_published() -> None:
    disruptor, handler = small(8), Recorder()
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    high = await ring.claim()
    closing = asyncio.create_task(disruptor.shutdown())
    await turns()
    ring.publish(high)
    await closing
    assert handler.sequences == [high]


@pytest.mark.real_time
async def test_a_thread_that_fills_its_slot_too_late_is_told() -> None:
    async with halted_by_an_error(8) as ring:
        sync, loop = SyncRing(ring), asyncio.get_running_loop()

        def fill_late(event: Event, sequence: int) -> None:
            halting = asyncio.run_coroutine_threadsafe(fail(ring), loop)
            halting.result()

        with pytest.raises(RingHalted) as halted:
            await asyncio.to_thread(sync.publish_event, fill_late)
    assert isinstance(halted.value.__cause__, ValueError)
    assert halted.value.published == 0  # type: ignore[attr-defined]


async def fail(ring: RingBuffer[Event]) -> None:
    ring.halt(ValueError())


@pytest.mark.real_time
@pytest.mark.parametrize("is_many", [False, True])
async def test_after_a_deadline_it_gets_no(*, is_many: bool) -> None:
    disruptor, handler = small(8), Recorder()
    disruptor.handle_events_with(handler)
    sync, loop = SyncRing(await disruptor.start()), asyncio.get_running_loop()

    def fill_late(event: Event, sequence: int, number: int) -> None:
        if number == 1:
            ending = asyncio.run_coroutine_threadsafe(disruptor.shutdown(0), loop)
            assert isinstance(ending.exception(), TimeoutError)

    if is_many:
        published = asyncio.to_thread(sync.publish_events, fill_late, [0, 1, 0])
        assert await published == 0
    else:
        assert not await asyncio.to_thread(sync.publish_event, fill_late, 1)
    assert not handler.seen


@pytest.mark.parametrize("way", ["halt", "close"])
def test_what_a_thread_had_filled_is_told_by_the_consumer(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread was told that it is in; the loop has not seen it before its end."""
    told: list[tuple[int, Any]] = []
    disruptor = small(8)
    disruptor.handle_events_with(Recorder())
    disruptor.handle_exceptions_with(
        lambda _, at, event: told.append((at, event.value))
    )

    async def start() -> SyncRing[Event]:
        sync = SyncRing(await disruptor.start())
        await turns()
        return sync

    loop = asyncio.new_event_loop()
    sync = loop.run_until_complete(start())
    # The loop rests, so this may be called on its thread.
    assert sync.publish_event(fill, "filled")
    if way == "halt":
        loop.run_until_complete(cancel_all(loop))
    loop.close()
    assert told == [(0, "filled")]
    assert len(errors(caplog)) == 1
    with pytest.raises(RingHalted):
        sync.publish_event(fill, "later")


async def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in tasks:
        assert task is not None
        task.cancel()
    await asyncio.gather(*filter(None, tasks), return_exceptions=True)


def test_a_thread_that_claimed_before_the_loop_was_closed_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disruptor = small(8)
    disruptor.handle_events_with(Recorder())
    loop = asyncio.new_event_loop()

    async def start() -> SyncRing[Event]:
        sync = SyncRing(await disruptor.start())
        await turns()
        return sync

    def fill_late(event: Event, sequence: int) -> None:
        loop.close()

    sync = loop.run_until_complete(start())
    # So that nobody finds out by waking it.
    sync._ingress._is_woken = True
    with pytest.raises(RingHalted, match="loop is closed"):
        sync.publish_event(fill_late)
    assert not errors(caplog)


@pytest.mark.parametrize("says", ["the loop of {} was closed", "{} was cancelled"])
def test_what_a_thread_was_granted_and_fills_afterwards_is_refused(
    says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """So it is told, and what consumers log does not count it."""
    claim = WaitingClaim(1)

    async def main() -> RingBuffer[Event]:
        granted = asyncio.Event()
        # The thread itself does not run before the loop's end.
        claim.wake = granted.set
        disruptor = small(2)
        disruptor.handle_events_with(lambda *_: None)
        ring = await disruptor.start()
        await ring.publish_event(fill, "a")
        ring.sequencer.enqueue(claim)
        ring.sequencer.recheck()
        await granted.wait()
        await ring.publish_event(fill, "b")
        return ring

    if "closed" in says:
        loop = asyncio.new_event_loop()
        ring = loop.run_until_complete(main())
        loop.close()
    else:
        ring = asyncio.run(main())
    assert ring.sequencer.dequeue(claim)
    with pytest.raises(RingHalted):
        ring.publish(1)
    reason = says.format("ring consumer <lambda>")
    assert errors(caplog) == [f"{reason}: 1 events are left"]
