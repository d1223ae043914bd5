"""The end: everything is handled, or the deadline says how much was not."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from batchqueue_async.ring import (
    BusySpinWait,
    Disruptor,
    RingBuffer,
    RingError,
    RingHalted,
    Sequence,
    WorkerPool,
)
from tests.ring.events import Event, Recorder, fill, mark, small, turns


async def test_everything_claimed_is_handled_first() -> None:
    disruptor = small(8)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    high = await ring.claim(2)
    closing = asyncio.create_task(disruptor.shutdown())
    await turns()
    assert not closing.done(), "two claims are open"
    ring.publish(high - 1, high)
    await closing
    assert handler.sequences == [0, 1]
    assert handler.log == ["start", "shutdown"]


async def test_waiting_claims_are_refused() -> None:
    gate = asyncio.Event()
    disruptor = small(2)
    disruptor.handle_events_with(Recorder(gate=gate))
    ring = await disruptor.start()
    await ring.publish_events(fill, range(2))
    waiting = asyncio.create_task(ring.publish_event(mark))
    await turns()
    closing = asyncio.create_task(disruptor.shutdown())
    with pytest.raises(RingHalted):
        await waiting
    gate.set()
    await closing


async def test_at_the_deadline_what_runs_is_cancelled() -> None:
    cancelled = Recorder("after")
    was_cancelled = False

    async def hangs(event: Event, sequence: int, end_of_batch: bool) -> None:
        nonlocal was_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    disruptor = small(8)
    disruptor.handle_events_with(hangs).then(cancelled)
    ring = await disruptor.start()
    await ring.publish_events(fill, range(5))
    started = asyncio.get_running_loop().time()
    message = "^5 events were not handled before the deadline$"
    with pytest.raises(TimeoutError, match=message):
        await disruptor.shutdown(timeout=3.0)
    assert asyncio.get_running_loop().time() - started == pytest.approx(3)
    assert was_cancelled
    assert cancelled.log == ["start", "shutdown"]


async def test_a_cancelled_handler_may_clean_up() -> None:
    log: list[str] = []

    class Tidy:
        async def on_event(
            self, event: Event, sequence: int, end_of_batch: bool
        ) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.5)
                log.append("event")

        async def on_shutdown(self) -> None:
            await asyncio.sleep(0.2)
            log.append("shutdown")

    disruptor = small()
    disruptor.handle_events_with(Tidy())
    ring = await disruptor.start()
    await ring.publish_event(mark)
    with pytest.raises(TimeoutError):
        await disruptor.shutdown(timeout=1.0)
    assert log == ["event", "shutdown"]


async def test_a_hook_that_hangs_ends_at_the_deadline() -> None:
    class Hanging(Recorder):
        async def on_shutdown(self) -> None:  # type: ignore[override]
            await asyncio.Event().wait()

    disruptor = small()
    handler = Hanging()
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    await ring.publish_event(mark)
    await disruptor.shutdown(timeout=1.0)
    assert handler.sequences == [0]


async def test_a_claim_cancelled_after_its_grant_does_not_hold_shutdown_up() -> None:
    gate = asyncio.Event()
    handler = Recorder(gate=gate)
    disruptor = small(2)
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    await ring.publish_events(fill, range(2))
    waiting = asyncio.create_task(ring.claim(2))
    await turns()
    gate.set()
    while ring.cursor < 3:  # Until it is granted; it has not run then.
        await turns(1)
    waiting.cancel()
    started = asyncio.get_running_loop().time()
    await disruptor.shutdown()
    assert waiting.cancelled()
    assert asyncio.get_running_loop().time() == started
    assert handler.sequences == [0, 1]


async def test_a_slot_that_is_never_published_ends_at_the_deadline() -> None:
    disruptor = small(8)
    disruptor.handle_events_with(Recorder())
    ring = await disruptor.start()
    await ring.claim(3)
    with pytest.raises(TimeoutError, match=r"^3 events"):
        await disruptor.shutdown(timeout=1.0)


async def test_a_handler_that_cannot_be_stopped_is_left_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def stubborn(event: Event, sequence: int, end_of_batch: bool) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    disruptor = small(8)
    disruptor.handle_events_with(stubborn)
    ring = await disruptor.start()
    await ring.publish_event(mark)
    with pytest.raises(TimeoutError):
        await disruptor.shutdown(timeout=1.0)
    assert "ring consumer stubborn could not be stopped" in caplog.text
    release.set()
    await turns()


async def test_it_may_be_called_again_and_at_the_same_time() -> None:
    disruptor = small()
    disruptor.handle_events_with(Recorder())
    async with disruptor as ring:
        await ring.publish_event(mark)
        await asyncio.gather(*(disruptor.shutdown() for _ in range(3)))
    await disruptor.shutdown()


async def test_of_several_deadlines_the_earliest_counts() -> None:
    disruptor = small()
    disruptor.handle_events_with(Recorder(gate=asyncio.Event()))
    ring = await disruptor.start()
    await ring.publish_event(mark)
    started = asyncio.get_running_loop().time()
    calls = (disruptor.shutdown(timeout) for timeout in (None, 50.0, 2.0))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [TimeoutError] * 3
    assert asyncio.get_running_loop().time() - started == pytest.approx(2)


async def test_a_cancelled_shutdown_goes_on() -> None:
    gate = asyncio.Event()
    disruptor = small()
    handler = Recorder(gate=gate)
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    await ring.publish_event(mark)
    closing = asyncio.create_task(disruptor.shutdown())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    gate.set()
    await disruptor.shutdown()
    assert handler.log == ["start", "shutdown"]


@pytest.mark.parametrize("is_waited_for", [False, True])
async def test_one_that_was_cancelled_with_all_tasks_is_begun_again(
    *, is_waited_for: bool
) -> None:
    """The loop lives on; whoever was not cancelled is told how the ring has ended."""
    disruptor = small()
    disruptor.handle_events_with(Recorder(gate=asyncio.Event()))
    ring = await disruptor.start()
    await ring.publish_event(fill, 1)
    closing = asyncio.create_task(disruptor.shutdown())
    await turns()
    spared = {asyncio.current_task(), closing if is_waited_for else None}
    for task in asyncio.all_tasks() - spared:
        task.cancel()
    await turns()
    assert is_waited_for or closing.cancelled()
    with pytest.raises(RingHalted) as caught:
        await (closing if is_waited_for else disruptor.shutdown())
    assert "was cancelled" in str(caught.value.__cause__)
    await disruptor.shutdown()


@pytest.mark.parametrize("way", ["itself", "in a task", "in a hook's task"])
async def test_a_handler_may_shut_its_ring_down(way: str) -> None:
    """It does not wait for itself, nor does a task that it waits for."""
    seen: list[int] = []

    class Handler:
        async def on_event(self, event: Event, sequence: int, is_end: bool) -> None:
            if sequence == 1 and "hook" not in way:
                await end()
            seen.append(sequence)

        async def on_batch_start(self, size: int) -> None:
            if "hook" in way:
                await end()

    async def end() -> None:
        closing = disruptor.shutdown(None)
        await (closing if way == "itself" else asyncio.create_task(closing))

    disruptor = small()
    disruptor.handle_events_with(Handler())
    async with disruptor as ring:
        await ring.publish_events(fill, range(4))
        await turns(20)
        with pytest.raises(RingHalted):
            ring.try_claim()
    assert seen == [*range(4)]


async def test_halting_ends_after_the_batch_at_hand(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disruptor = small(16)
    handler = Recorder()

    def stopping(event: Event, sequence: int, end_of_batch: bool) -> None:
        if sequence == 2:
            disruptor.halt()

    disruptor.handle_events_with(stopping, max_batch=4).then(handler)
    async with disruptor as ring:
        await ring.publish_events(fill, range(10))
        await turns()
        with pytest.raises(RingHalted):
            ring.try_claim()
    assert handler.sequences == []
    assert disruptor.stats().consumers[0].sequence == 3
    assert sorted(caplog.messages) == [
        "ring consumer recorder was halted: 10 events are left",
        "ring consumer stopping was halted: 6 events are left",
    ]


async def test_halting_when_all_is_handled_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disruptor = small()
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await ring.publish_event(mark)
        await turns()
        ring.halt()
    assert handler.sequences == [0]
    assert caplog.messages == []


async def test_a_deadline_that_is_far_away_does_not_hold_it_afterwards() -> None:
    disruptor = small()
    disruptor.handle_events_with(Recorder())
    await disruptor.start()
    await disruptor.shutdown(timeout=3600)
    held = weakref.ref(disruptor.ring.sequencer)
    await turns()
    del disruptor
    gc.collect()
    assert held() is None


async def test_until_then_it_lives_though_nobody_holds_it() -> None:
    disruptor = small()
    handler = Recorder()
    disruptor.handle_events_with(handler)
    await disruptor.start()
    held = weakref.ref(disruptor.ring.sequencer)
    await turns()
    del disruptor
    gc.collect()

    sequencer = held()
    assert sequencer is not None
    sequencer.publish(sequencer.try_claim())
    await turns()
    assert handler.sequences == [0]
    sequencer.halt()
    await turns()
    assert handler.log == ["start", "shutdown"]


async def test_it_starts_once() -> None:
    disruptor = small()
    disruptor.handle_events_with(Recorder())
    async with disruptor:
        with pytest.raises(RingError, match=r"^a disruptor starts once$"):
            await disruptor.start()
    with pytest.raises(RingError):
        await disruptor.start()


async def test_one_that_never_started_can_be_shut_down() -> None:
    disruptor = small()
    disruptor.handle_events_with(Recorder())
    await disruptor.shutdown()
    with pytest.raises(RingHalted):
        await disruptor.start()


async def test_a_ring_without_handlers_runs_too() -> None:
    disruptor: Disruptor[Event] = small(2)
    async with disruptor as ring:
        await ring.publish_events(fill, range(10))
    assert disruptor.stats().consumers == ()


async def test_shutdown_needs_no_turn_of_its_own_with_consumers_that_spin() -> None:
    disruptor = small(4, wait=BusySpinWait())
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await ring.publish_events(fill, range(9))
    assert handler.values == [*range(9)]


@pytest.mark.real_time
async def test_a_publication_from_another_loop_is_an_error() -> None:
    """Found on the edge from empty to not empty, where looking costs nothing."""
    disruptor = small()
    handler = Recorder()
    disruptor.handle_events_with(handler)

    def publish(ring: RingBuffer[Event]) -> None:
        with pytest.raises(RingError, match="publish from threads with SyncRing"):
            ring.try_publish_event(mark)

    async with disruptor as ring:
        await turns()
        await asyncio.to_thread(publish, ring)
        await turns()
    assert handler.sequences == [0]


async def test_a_consumer_of_ones_own_is_told_and_sees_what_is_left() -> None:
    disruptor, handler = small(8), Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        mine, barrier = Sequence(ring.cursor), ring.new_barrier()
        ring.add_gating_sequences(mine)
        await ring.publish_events(fill, range(3))
        mine.value = await barrier.wait_for(0)
        await ring.publish_events(fill, range(3, 6))
    with pytest.raises(RingHalted):
        await barrier.wait_for(mine.value + 1)
    left = ring.events(mine.value + 1, barrier.available())
    assert [event.value for event in left] == [3, 4, 5]


async def test_a_consumer_that_comes_after_a_halt_is_told_at_once() -> None:
    """It has missed the alert, and would wait for ever."""
    ring = RingBuffer(Event, 4)
    ring.halt()
    with pytest.raises(RingHalted):
        await ring.new_barrier().wait_for(0)
    async with WorkerPool(ring, Recorder()):
        pass
