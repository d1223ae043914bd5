"""How consumers wait: what wakes them, and what it costs the publishers."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from batchqueue_async.ring import (
    BlockingWait,
    BusySpinWait,
    RingHalted,
    Sequence,
    SingleProducerSequencer,
    SleepingWait,
    TimeoutBlockingWait,
    WaitStrategy,
    YieldingWait,
)
from tests.ring.events import Recorder, mark, small, turns


async def test_an_idle_blocking_consumer_costs_nothing() -> None:
    disruptor = small(wait=BlockingWait())
    disruptor.handle_events_with(Recorder("a")).then(Recorder("b"))
    loop = asyncio.get_running_loop()
    async with disruptor:
        await turns()
        assert not loop._scheduled, "no timer"  # type: ignore[attr-defined]
        assert not loop._ready, "nothing to do"  # type: ignore[attr-defined]
        await asyncio.sleep(1e6)


async def test_publications_wake_a_sleeper_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One wake-up per edge from empty to not empty, whatever is published then."""
    disruptor = small(16)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await turns()
        tells = 0
        tell = type(ring.sequencer)._notify

        def counting(self: SingleProducerSequencer) -> None:
            nonlocal tells
            tells += 1
            tell(self)

        monkeypatch.setattr(type(ring.sequencer), "_notify", counting)
        for _ in range(3):
            for _ in range(5):
                assert ring.try_publish_event(mark)
            await turns()
    assert tells == 3
    assert handler.sizes == [5, 5, 5]


@pytest.mark.parametrize("wait", [SleepingWait(), YieldingWait(), BusySpinWait()])
async def test_strategies_that_poll_are_never_signalled(wait: WaitStrategy) -> None:
    disruptor = small(wait=wait)
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await turns(300)
        assert not ring.sequencer._waiters
        await ring.publish_event(mark)
        await turns(5)
        assert handler.sequences == [0]


async def test_a_worker_is_woken_by_its_own_event_only() -> None:
    disruptor = small()
    workers = [Recorder(str(number)) for number in range(4)]
    disruptor.handle_events_with_worker_pool(*workers)
    async with disruptor as ring:
        await turns()
        assert len(ring.sequencer._waiters) == 4
        await ring.publish_event(mark)
        assert len(ring.sequencer._waiters) == 3
        await turns()


async def test_sleeping_spins_yields_and_then_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps: list[float] = []
    sleep = asyncio.sleep

    async def recording(delay: float, result: object = None) -> None:
        naps.append(delay)
        await sleep(delay)

    monkeypatch.setattr("batchqueue_async.ring.sequence_barrier.sleep", recording)
    sequencer = SingleProducerSequencer(8, SleepingWait(retries=200, sleep=0.5))
    wait = asyncio.create_task(sequencer.new_barrier().wait_for(0))
    await sleep(2.2)
    sequencer.publish(sequencer.try_claim())
    assert await wait == 0
    assert naps == [0] * 200 + [0.5] * 5


async def test_a_timeout_begins_anew_with_each_wait() -> None:
    loop = asyncio.get_running_loop()
    sequencer = SingleProducerSequencer(8, TimeoutBlockingWait(2.0))
    barrier = sequencer.new_barrier()
    loop.call_later(1.5, sequencer.publish, sequencer.try_claim())
    assert await barrier.wait_for(0) == 0
    started = loop.time()
    with pytest.raises(TimeoutError):
        await barrier.wait_for(1)
    assert loop.time() - started == pytest.approx(2)
    assert not sequencer._waiters


async def test_a_barrier_tells_the_minimum_of_its_dependencies() -> None:
    sequencer = SingleProducerSequencer(16)
    first, second = Sequence(3), Sequence(7)
    sequencer.publish(0, sequencer.try_claim(10))
    assert sequencer.new_barrier(first, second).available() == 3
    assert await sequencer.new_barrier(first, second).wait_for(2) == 3
    assert sequencer.new_barrier().available() == 9


async def test_own_strategies_may_be_used() -> None:
    class EachSecond:
        async def wait_for(self, sequence: int, barrier: object) -> int:
            while (available := barrier.available()) < sequence:  # type: ignore[attr-defined]
                barrier.check_alert()  # type: ignore[attr-defined]
                await asyncio.sleep(1)
            return int(available)

    disruptor = small(wait=EachSecond())
    handler = Recorder()
    disruptor.handle_events_with(handler)
    async with disruptor as ring:
        await turns()
        await ring.publish_event(mark)
        await turns()
        assert not handler.seen
        await asyncio.sleep(1.5)
        assert handler.sequences == [0]


def test_arguments_are_checked() -> None:
    for bad in (0.0, -1.0, math.nan, math.inf, 10**400):
        with pytest.raises(ValueError, match=r"^timeout must be > 0, got"):
            TimeoutBlockingWait(bad)
        with pytest.raises(ValueError, match=r"^sleep must be > 0, got"):
            SleepingWait(sleep=bad)
    with pytest.raises(ValueError, match=r"^retries must be >= 0, got -1$"):
        SleepingWait(retries=-1)
    odd: Any
    for odd in (math.nan, 1.5, True, "200"):
        with pytest.raises(TypeError, match=r"^retries must be an int, got"):
            SleepingWait(retries=odd)
    with pytest.raises(TypeError, match=r"^timeout must be a number of seconds, got"):
        TimeoutBlockingWait("1")  # type: ignore[arg-type]
    assert SleepingWait() == SleepingWait(retries=200, sleep=100e-9)


def test_an_alerted_barrier_says_so() -> None:
    barrier = SingleProducerSequencer(4).new_barrier()
    barrier.check_alert()
    barrier.alert()
    assert barrier.is_alerted
    with pytest.raises(RingHalted, match=r"^the consumer was told to stop$"):
        barrier.check_alert()
