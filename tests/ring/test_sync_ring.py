"""Producers on other threads: bounded, in order, and never hanging."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn

import pytest

from batchqueue_async._threads.dead_loop_watchdog import LoopWatchdog
from batchqueue_async.ring import (
    Disruptor,
    ProducerType,
    RingBuffer,
    RingError,
    RingHalted,
    Sequence,
    SyncRing,
    halt,
)
from batchqueue_async.ring.claim_queue import WaitingClaim
from tests.ring.events import Event, Recorder, fill, mark, small
from tests.support.faked_time import fake_monotonic

pytestmark = pytest.mark.real_time


class Refused(Exception):
    pass


def refuse(event: Event, sequence: int, *_: object) -> NoReturn:
    raise Refused


async def until(condition: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + 20
    while not condition():
        assert loop.time() < end, "it never happened"
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("size", [1, 4, 256])
async def test_threads_and_the_loop_share_a_ring(
    size: int, producer: ProducerType
) -> None:
    threads, count = 3, 400
    handler, after = Recorder(), Recorder()
    disruptor = small(size, producer=producer)
    disruptor.handle_events_with(handler).then(after)

    def from_thread(sync: SyncRing[Event], name: int) -> None:
        for number in range(count):
            assert sync.publish_event(fill, (name, number))

    async def from_loop(ring: RingBuffer[Event]) -> None:
        for number in range(count):
            await ring.publish_event(fill, (threads, number))

    async with disruptor as ring:
        sync = SyncRing(ring)
        await asyncio.gather(
            from_loop(ring),
            *(asyncio.to_thread(from_thread, sync, name) for name in range(threads)),
        )

    assert handler.sequences == [*range(count * (threads + 1))]
    assert after.values == handler.values
    for name in range(threads + 1):
        assert [number for who, number in handler.values if who == name] == [
            *range(count)
        ]


@pytest.mark.parametrize("timeout", [None, 20.0])
async def test_a_thread_waits_for_room_in_line(
    timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    handler = Recorder(gate=gate)
    disruptor = small(2)
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        sync = SyncRing(ring)
        await ring.publish_events(fill, ["a", "b"])
        # However a test fakes the clock meanwhile: it waits by the machine's.
        fake_monotonic(monkeypatch)
        call = partial(sync.publish_event, fill, "c", timeout=timeout)
        waiting = asyncio.create_task(asyncio.to_thread(call))
        await until(lambda: ring.sequencer.claims_waiting)
        assert not ring.try_publish_event(fill, "overtakes")
        gate.set()
        assert await waiting
    assert handler.values == ["a", "b", "c"]


async def test_a_timeout_leaves_nothing_behind() -> None:
    gate = asyncio.Event()
    handler = Recorder(gate=gate)
    disruptor = small(2)
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        sync = SyncRing(ring)
        await ring.publish_events(fill, ["a", "b"])
        late = partial(sync.publish_event, fill, "late", timeout=0.05)
        assert await asyncio.to_thread(late) is False
        none = asyncio.to_thread(sync.publish_events, fill, "xyz", timeout=0.05)
        assert await none == 0
        assert ring.sequencer.claims_waiting == 0
        gate.set()
        in_time = partial(sync.publish_event, fill, "c", timeout=20)
        assert await asyncio.to_thread(in_time)
    assert handler.values == ["a", "b", "c"]


async def test_one_that_leaves_lets_those_behind_it_go_on() -> None:
    disruptor = small(4)
    gate = asyncio.Event()
    disruptor.handle_events_with(Recorder(gate=gate))
    async with disruptor as ring:
        sync = SyncRing(ring)
        await ring.publish_events(fill, range(3))
        big = asyncio.to_thread(sync._ingress.claim, WaitingClaim(4), 0.2)
        waiting_for_four = asyncio.create_task(big)
        await until(lambda: ring.sequencer.claims_waiting)
        small_one = asyncio.create_task(ring.publish_event(fill, "small"))
        assert await waiting_for_four is False
        await small_one
        gate.set()


async def test_many_publications_cost_one_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disruptor = small(1024)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    calls = 0
    async with disruptor as ring:
        sync = SyncRing(ring)
        wake = sync._ingress._wake_loop

        def counting() -> None:
            nonlocal calls
            calls += 1
            wake()

        monkeypatch.setattr(sync._ingress, "_wake_loop", counting)
        thread = threading.Thread(
            target=lambda: [sync.publish_event(fill, n) for n in range(500)]
        )
        thread.start()
        thread.join()  # The loop stands still meanwhile.
        assert calls == 1
        await until(lambda: len(handler.seen) == 500)


async def test_portions_from_a_thread_keep_their_order() -> None:
    disruptor = small(8)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        sync = SyncRing(ring)
        assert sync.capacity == 8
        published = asyncio.to_thread(sync.publish_events, fill, iter(range(500)))
        assert await published == 500
    assert handler.values == [*range(500)]


async def test_a_fill_that_raises_abandons_and_tells_the_thread() -> None:
    disruptor = small(8)
    handler = Recorder()
    disruptor.handle_events_with(handler)

    def picky(event: Event, sequence: int, item: int) -> None:
        if item == 2:
            raise Refused
        event.value = item

    async with disruptor as ring:
        sync = SyncRing(ring)
        with pytest.raises(Refused):
            await asyncio.to_thread(sync.publish_event, refuse, 1)
        with pytest.raises(Refused):
            await asyncio.to_thread(sync.publish_events, picky, range(5))
        assert await asyncio.to_thread(sync.publish_event, fill, "after")
    assert handler.values == [0, 1, "after"]


async def test_closing_wakes_and_refuses_threads() -> None:
    gate = asyncio.Event()
    disruptor = small(1)
    disruptor.handle_events_with(Recorder(gate=gate))
    ring = await disruptor.start()
    sync = SyncRing(ring)
    await ring.publish_event(mark)
    waiting = asyncio.create_task(asyncio.to_thread(sync.publish_event, mark))
    await until(lambda: ring.sequencer.claims_waiting)
    closing = asyncio.create_task(disruptor.shutdown())
    assert await waiting is False
    assert await asyncio.to_thread(sync.publish_event, mark) is False
    assert await asyncio.to_thread(sync.publish_events, fill, "ab") == 0
    gate.set()
    await closing
    assert await asyncio.to_thread(sync.publish_event, mark) is False


async def test_a_halt_tells_threads_its_cause() -> None:
    def faulty(event: Event, sequence: int, end_of_batch: bool) -> None:
        message = "boom"
        raise OSError(message)

    disruptor = small(1)
    disruptor.handle_events_with(faulty)
    disruptor.handle_exceptions_with(halt)

    def publish(sync: SyncRing[Event]) -> BaseException | None:
        with pytest.raises(RingHalted) as caught:  # noqa: PT012
            while True:
                sync.publish_event(mark)
        return caught.value.__cause__

    async with disruptor as ring:
        cause = await asyncio.to_thread(publish, SyncRing(ring))
    assert str(cause) == "boom"


async def test_a_thread_interrupted_as_it_is_served_wedges_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(BaseException):
        pass

    def wait_on(
        self: LoopWatchdog, wait: Callable[[float], object], seconds: object
    ) -> None:
        is_waiting.set()
        wait(20)  # Until it is granted.
        raise Interrupted

    is_waiting = threading.Event()
    monkeypatch.setattr(LoopWatchdog, "wait", wait_on)
    gate = asyncio.Event()
    handler = Recorder(gate=gate)
    disruptor = small(1)
    disruptor.handle_events_with(handler)

    def publish(sync: SyncRing[Event]) -> None:
        with pytest.raises(Interrupted):
            sync.publish_event(fill, "never")

    async with disruptor as ring:
        await ring.publish_event(fill, "before")
        thread = asyncio.create_task(asyncio.to_thread(publish, SyncRing(ring)))
        await until(is_waiting.is_set)
        gate.set()
        await thread
        await ring.publish_event(fill, "after")
    assert handler.values == ["before", "after"]


async def test_its_own_thread_is_refused() -> None:
    sync = SyncRing(RingBuffer(Event, 4))
    with pytest.raises(RingError, match="on the loop's own thread"):
        sync.publish_event(mark)
    with pytest.raises(RingError, match="on the loop's own thread"):
        sync.publish_events(fill, [1])


async def test_a_disruptor_is_no_ring() -> None:
    with pytest.raises(TypeError, match=r"^ring must be a RingBuffer, as `async with"):
        SyncRing(small(4))  # type: ignore[arg-type]


async def test_all_objects_of_a_ring_share_one_ingress() -> None:
    ring = RingBuffer(Event, 4)
    assert SyncRing(ring)._ingress is SyncRing(ring)._ingress


async def test_what_threads_claimed_is_waited_for_at_shutdown() -> None:
    disruptor = small(8)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    entered, leave = threading.Event(), threading.Event()

    def slowly(event: Event, sequence: int) -> None:
        entered.set()
        leave.wait(20)
        event.value = "slow"

    ring = await disruptor.start()
    sync = SyncRing(ring)
    publishing = asyncio.create_task(asyncio.to_thread(sync.publish_event, slowly))
    await until(entered.is_set)
    closing = asyncio.create_task(disruptor.shutdown())
    await asyncio.sleep(0.01)
    assert not closing.done()
    leave.set()
    await closing
    assert await publishing
    assert handler.values == ["slow"]


# --- loops that end, and forks: plain tests, each with a loop of its own


def started(size: int) -> tuple[asyncio.AbstractEventLoop, SyncRing[Event]]:
    """Return a loop that stands still, and a ring on it."""
    loop = asyncio.new_event_loop()

    async def make() -> SyncRing[Event]:
        ring = RingBuffer(Event, size)
        ring.add_gating_sequences(Sequence())
        return SyncRing(ring)

    return loop, loop.run_until_complete(make())


def test_a_loop_that_does_not_run_is_noticed() -> None:
    loop, sync = started(1)
    try:
        assert sync.publish_event(mark)  # There is room; the loop may run later.
        before = time.monotonic()
        with pytest.raises(RingError, match=r"has not run for 0\.5 s"):
            sync.publish_event(mark)
        assert time.monotonic() - before >= 0.4
        assert not sync._ring.sequencer.claims_waiting
    finally:
        loop.close()


def test_a_closed_loop_is_noticed() -> None:
    loop, sync = started(1)
    loop.close()
    with pytest.raises(RingError, match=r"^the ring's loop is closed$"):
        sync.publish_event(mark)


def test_a_loop_that_closes_in_the_middle_of_a_call_is_noticed() -> None:
    loop, sync = started(2)

    def closing(event: Event, sequence: int) -> None:
        loop.close()

    with pytest.raises(RingError, match=r"^the ring's loop is closed$"):
        sync.publish_event(closing)


def test_a_loop_that_closes_during_a_wait_is_noticed() -> None:
    loop, sync = started(1)
    assert sync.publish_event(mark)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sync.publish_event, mark)
        while not sync._ring.sequencer.claims_waiting:
            time.sleep(0.001)
        loop.close()
        with pytest.raises(RingError):
            waiting.result(timeout=20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_refused() -> None:
    program = (
        "import asyncio, os, sys\n"
        "from batchqueue_async.ring import RingBuffer, RingError, SyncRing\n"
        "async def make():\n"
        "    return SyncRing(RingBuffer(list, 4))\n"
        "loop = asyncio.new_event_loop()\n"
        "sync = loop.run_until_complete(make())\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        sync.publish_event(lambda *_: None)\n"
        "    except RingError as error:\n"
        "        os._exit(0 if 'forked from' in str(error) else 2)\n"
        "    os._exit(1)\n"
        "_, status = os.wait()\n"
        "assert sync.publish_event(lambda *_: None)\n"
        "loop.close()\n"
        "sys.exit(os.waitstatus_to_exitcode(status))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=50)
    assert done.returncode == 0


def test_the_ring_needs_a_loop() -> None:
    disruptor: Disruptor[Event] = small()
    with pytest.raises(RuntimeError):
        SyncRing(disruptor.ring)
