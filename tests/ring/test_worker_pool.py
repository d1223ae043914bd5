"""Handlers that share one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from batchqueue_async.ring import (
    BusySpinWait,
    InvalidArgument,
    ProducerType,
    RingBuffer,
    RingError,
    RingHalted,
    Sequence,
    TimeoutBlockingWait,
    WaitStrategy,
    WorkerPool,
    halt,
)
from tests.ring.events import Event, Recorder, fill, function, mark, small, turns


async def test_each_event_goes_to_exactly_one(
    producer: ProducerType, wait: WaitStrategy
) -> None:
    workers = [Recorder(f"w{number}") for number in range(3)]
    after = Recorder()
    disruptor = small(8, producer=producer, wait=wait)
    disruptor.handle_events_with_worker_pool(*workers).then(after)
    async with disruptor as ring:
        for number in range(60):
            await ring.publish_event(fill, number)
            if number % 7 == 0:
                await turns(5)

    handled = [value for worker in workers for value in worker.values]
    assert sorted(handled) == [*range(60)]
    assert all(worker.values for worker in workers), "nobody is left out"
    assert all(worker.sequences == sorted(worker.sequences) for worker in workers)
    assert after.values == [*range(60)]
    assert all(is_end for worker in workers for _, _, is_end in worker.seen)


async def test_workers_that_never_await_take_turns() -> None:
    workers = [Recorder(f"w{number}") for number in range(3)]
    disruptor = small(32)
    disruptor.handle_events_with_worker_pool(*workers)
    async with disruptor as ring:
        await ring.publish_events(fill, range(30))
    assert [len(worker.seen) for worker in workers] == [10, 10, 10]


async def test_a_slow_worker_leaves_the_work_to_the_others() -> None:
    gate = asyncio.Event()
    slow, quick = Recorder("slow", gate=gate), Recorder("quick")
    disruptor = small(8)
    disruptor.handle_events_with_worker_pool(slow, quick)
    async with disruptor as ring:
        await ring.publish_events(fill, range(8))
        await turns(50)
        assert quick.values == [*range(1, 8)]
        gate.set()
    assert slow.values == [0]


async def test_producers_wait_for_what_is_done_not_for_what_is_assigned() -> None:
    gate = asyncio.Event()
    slow, quick = Recorder("slow", gate=gate), Recorder("quick")
    disruptor = small(4)
    disruptor.handle_events_with_worker_pool(slow, quick)
    async with disruptor as ring:
        await ring.publish_events(fill, range(4))
        await turns(50)
        assert quick.values == [1, 2, 3]
        assert not ring.try_publish_event(fill, "overwrites what the slow one reads")
        assert disruptor.stats().consumers[0].sequence == -1
        gate.set()
        await turns(50)
        assert ring.try_publish_event(fill, 4)
    assert sorted(slow.values + quick.values) == [0, 1, 2, 3, 4]


async def test_what_comes_after_waits_for_each_worker() -> None:
    gate = asyncio.Event()
    slow, quick, after = Recorder("slow", gate=gate), Recorder("quick"), Recorder()
    disruptor = small(8)
    disruptor.handle_events_with_worker_pool(slow, quick).then(after)
    async with disruptor as ring:
        await ring.publish_events(fill, range(5))
        await turns(50)
        assert after.values == []
        gate.set()
    assert after.values == [*range(5)]


async def test_shutdown_waits_for_each_worker() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def slowly(event: Event, sequence: int, end_of_batch: bool) -> None:
        await asyncio.sleep(10)

    disruptor = small(8)
    disruptor.handle_events_with_worker_pool(slowly, Recorder())
    async with disruptor as ring:
        await ring.publish_events(fill, range(3))
    assert loop.time() - started >= 10


async def test_idle_workers_are_told_of_a_timeout() -> None:
    told: list[tuple[str, int]] = []

    class Worker(Recorder):
        def on_timeout(self, sequence: int) -> None:
            told.append((self.name, sequence))

    disruptor = small(wait=TimeoutBlockingWait(2.0))
    disruptor.handle_events_with_worker_pool(Worker("one"), Worker("two"))
    async with disruptor as ring:
        await asyncio.sleep(3)
        await ring.publish_event(mark)
    # The second one holds back nobody: the first event is the first one's.
    assert sorted(told) == [("one", -1), ("two", 0)]


async def test_abandoned_slots_are_nobodys_work() -> None:
    workers = [Recorder("one"), Recorder("two")]
    disruptor = small(4)
    disruptor.handle_events_with_worker_pool(*workers)
    async with disruptor as ring:
        for number in range(30):
            if number % 3:
                await ring.publish_event(fill, number)
            else:
                ring.abandon(await ring.claim())
    handled = sorted(workers[0].values + workers[1].values)
    assert handled == [number for number in range(30) if number % 3]


async def test_an_error_fails_one_event_and_a_halt_stops_all() -> None:
    def picky(event: Event, sequence: int, end_of_batch: bool) -> None:
        if event.value == "bad":
            raise ValueError

    errors: list[int] = []
    disruptor = small(4)
    disruptor.handle_events_with_worker_pool(picky, Recorder())
    disruptor.handle_exceptions_with(lambda _, sequence, __: errors.append(sequence))
    async with disruptor as ring:
        await ring.publish_events(fill, ["bad", "good", "good"])
    assert errors == [0]

    disruptor = small(4)
    disruptor.handle_events_with_worker_pool(picky)
    disruptor.handle_exceptions_with(halt)
    with pytest.raises(RingHalted):
        async with disruptor as ring:
            await ring.publish_events(fill, ["bad"] * 20)


async def test_a_pool_may_stand_alone() -> None:
    ring = RingBuffer(Event, 4)
    for _ in range(6):
        await ring.publish_event(mark)
    workers = [Recorder("one"), Recorder("two")]
    pool = WorkerPool(ring, *workers)
    async with pool:
        await ring.publish_events(fill, range(20))
        with pytest.raises(RingError, match=r"^a worker pool starts once$"):
            await pool.start()

    assert sorted(workers[0].values + workers[1].values) == [*range(20)]
    assert min(workers[0].sequences + workers[1].sequences) == 6
    assert pool.work_sequence.value >= 25
    assert all(isinstance(each, Sequence) for each in pool.sequences)
    for _ in range(10):
        assert ring.try_publish_event(mark), "it holds nobody back any more"
    assert workers[0].log == ["start", "shutdown"]


async def test_the_end_of_a_disruptor_waits_for_a_pool_that_stands_beside_it() -> None:
    """It halts the ring, and with it the pool's workers."""
    worker = Recorder("worker", asyncio.Event())
    assert worker.gate is not None
    disruptor = small(8)
    disruptor.handle_events_with(Recorder("quick"))
    async with WorkerPool(disruptor.ring, worker):
        async with disruptor as ring:
            await ring.publish_events(fill, range(6))
            asyncio.get_running_loop().call_later(0.01, worker.gate.set)
        assert worker.values == [*range(6)]


async def test_a_halt_that_no_producer_noticed_is_raised_at_a_pools_end() -> None:
    def faulty(event: Event, sequence: int, end_of_batch: bool) -> None:
        raise OSError

    ring = RingBuffer(Event, 4)
    with pytest.raises(RingHalted) as caught:
        async with WorkerPool(ring, faulty, on_error=halt):
            await ring.publish_event(mark)
    assert isinstance(caught.value.__cause__, OSError)

    ring = RingBuffer(Event, 4)
    with pytest.raises(KeyError):  # noqa: PT012
        async with WorkerPool(ring, faulty, on_error=halt):
            await ring.publish_event(mark)
            raise KeyError


async def test_a_worker_may_end_its_pool() -> None:
    seen: list[object] = []

    async def worker(event: Event, sequence: int, end_of_batch: bool) -> None:
        if sequence == 0:
            await pool.drain_and_halt()
        await asyncio.sleep(0)
        seen.append(event.value)

    ring = RingBuffer(Event, 4)
    pool = WorkerPool(ring, worker)
    await pool.start()
    await ring.publish_events(fill, "abcd")
    await turns(2)
    assert not ring.try_publish_event(fill, "overwrites what is not handled")
    await pool.drain_and_halt()
    assert seen == [*"abcd"]
    assert ring.try_publish_event(fill, "e")


async def test_a_pool_that_never_started_ends_at_once() -> None:
    await WorkerPool(RingBuffer(Event, 4), Recorder()).drain_and_halt()


async def test_a_pool_needs_a_worker() -> None:
    with pytest.raises(InvalidArgument, match="at least one handler"):
        WorkerPool(RingBuffer(Event, 4))


async def test_a_deadline_ends_a_pool() -> None:
    ring = RingBuffer(Event, 4, wait=BusySpinWait())
    pool = WorkerPool(ring, Recorder(gate=asyncio.Event()))
    await pool.start()
    await ring.publish_events(fill, range(3))
    with pytest.raises(TimeoutError, match=r"^3 events were not handled before"):
        await pool.drain_and_halt(timeout=0)


async def test_a_worker_is_one_of_the_pools_once() -> None:
    worker = Recorder("w")
    with pytest.raises(InvalidArgument, match=r"distinct handlers, got w, w$"):
        WorkerPool(RingBuffer(Event, 4), worker, worker)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_generator_is_no_handler(*, is_async: bool) -> None:
    """Nothing of its body would ever run."""

    def generate(event: Event, sequence: int, end_of_batch: bool) -> Iterator[None]:
        yield

    async def generate_later(
        event: Event, sequence: int, end_of_batch: bool
    ) -> AsyncIterator[None]:
        yield

    generator = generate_later if is_async else generate
    with pytest.raises(InvalidArgument, match="must not be a generator"):
        WorkerPool(RingBuffer(Event, 4), generator)


async def test_what_no_worker_had_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of a pool that was never started no worker has an event of its own."""
    disruptor = small(8)
    told: list[int] = []
    disruptor.handle_events_with_worker_pool(function("one"), function("two"))
    disruptor.handle_exceptions_with(lambda error, at, event: told.append(at))
    await disruptor.ring.publish_events(fill, range(3))
    await disruptor.shutdown()
    assert told == [0, 1, 2]
    assert caplog.text.count("events are left") == 1


async def test_a_shutdown_does_not_wait_for_a_pool_that_has_left() -> None:
    """The pool ends where the ring was when it was told to; the shutdown came later."""
    disruptor, handler, gate = small(8), Recorder(), asyncio.Event()
    disruptor.handle_events_with(handler)
    ring = await disruptor.start()
    worker = Recorder(gate=gate)
    pool = WorkerPool(ring, worker)
    await pool.start()
    await ring.publish_event(fill, 0)
    await turns()
    leaving = asyncio.create_task(pool.drain_and_halt(None))
    await turns()
    await ring.publish_events(fill, range(1, 7))
    closing = asyncio.create_task(disruptor.shutdown(None))
    await turns()
    assert not closing.done()
    gate.set()
    await asyncio.gather(leaving, closing)
    assert handler.values == [*range(7)]
    assert 0 < len(worker.values) < 7
