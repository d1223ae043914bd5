"""A Ctrl-C at every point of a publication from a thread: nobody is ever wedged."""

from __future__ import annotations

import asyncio
import threading

import pytest

from batchqueue_async._threads.guard import Guard
from batchqueue_async.ring import ProducerType, RingBuffer, Sequence, SyncRing
from tests.ring.events import Event, Recorder, fill, small
from tests.support.interrupts import MOST, interrupted


@pytest.mark.parametrize("verb", ["event", "events", "event, full", "events, full"])
@pytest.mark.real_time
async def test_a_publication_interrupted_at_any_point(
    verb: str, producer: ProducerType
) -> None:
    # In debug mode a loop looks at stacks, which has very many points.
    asyncio.get_running_loop().set_debug(False)
    for step in range(1, MOST):
        disruptor = small(4, producer=producer)
        gate = asyncio.Event()
        handler = Recorder(gate=gate)
        disruptor.handle_events_with(handler)
        async with disruptor as ring:
            was_interrupted = await _publish_interrupted(ring, verb, step, gate)
            gate.set()
            later = asyncio.to_thread(SyncRing(ring).publish_event, fill, "later")
            assert await later
            await disruptor.shutdown(5)
        assert ring.sequencer.published == ring.sequencer.claimed
        assert handler.values[-1] == "later"
        assert [each for each in handler.values if isinstance(each, int)] in (
            [*range(length)] for length in range(7)
        )
        if not was_interrupted:
            break
    else:
        pytest.fail("more points than expected")


async def _publish_interrupted(
    ring: RingBuffer[Event], verb: str, step: int, gate: asyncio.Event
) -> bool:
    sync = SyncRing(ring)
    if "full" in verb:
        await ring.publish_events(fill, "abcd")
        asyncio.get_running_loop().call_later(0.001, gate.set)
    else:
        gate.set()

    def publish() -> None:
        if "events" in verb:
            sync.publish_events(fill, range(6))
        else:
            sync.publish_event(fill, 0)

    return await asyncio.to_thread(interrupted, step, publish)


def test_the_guard_is_never_leaked() -> None:
    for depth in (0, 1):
        for step in range(1, MOST):
            guard = Guard()

            def enter(guard: Guard = guard) -> None:
                with guard:
                    pass

            for _ in range(depth):
                guard.lock.acquire()
            was_interrupted = interrupted(step, enter)
            for _ in range(depth):
                guard.lock.release()
            assert not guard.is_mine
            if not was_interrupted:
                break
        else:
            pytest.fail("more points than expected")


def test_the_guard_naps_while_another_thread_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = Guard()
    has_it, may_leave = threading.Event(), threading.Event()

    def hold() -> None:
        with guard:
            has_it.set()
            may_leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    has_it.wait(20)
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            may_leave.set()
            thread.join()

    monkeypatch.setattr("time.sleep", nap)
    with guard:
        assert guard.is_mine
    assert len(naps) == 3
    assert not guard.is_mine


@pytest.mark.real_time
async def test_the_loop_is_called_without_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wake-up is a system call, in which other threads come to run."""
    ring = RingBuffer(Event, 4)
    ring.add_gating_sequences(Sequence())
    sync = SyncRing(ring)
    guard = ring.sequencer._guard
    assert isinstance(guard, Guard)
    owned = []
    wake = sync._ingress._wake_loop

    def looking() -> None:
        owned.append(guard.is_mine)
        wake()

    monkeypatch.setattr(sync._ingress, "_wake_loop", looking)
    await asyncio.to_thread(sync.publish_event, fill, 1)
    await asyncio.to_thread(sync.publish_events, fill, range(9), 0.01)
    assert len(owned) >= 3
    assert not any(owned)
