"""G1 to G3, C1 and F5 with producers on threads: real threads, real loops."""

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    DuplicateQueue,
    LoopThread,
    SyncBatchQueue,
    WhenFull,
    WouldDeadlock,
    in_thread,
)
from tests.bridge.background import PATIENCE, wait_until
from tests.bridge.gated import partition_of
from tests.support.oracle import check_accounts, check_settled
from tests.support.wake_ups import WakeUps


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    with LoopThread(shutdown_timeout=5.0) as running:
        yield running


class Gated:
    """Blocks each batch until opened, and remembers what came."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered = threading.Event()
        self.items: list[Any] = []

    async def consume(self, batch: list[Any]) -> None:
        self.entered.set()
        while not self.opened.is_set():  # noqa: ASYNC110 - a thread opens it
            await asyncio.sleep(0.001)
        self.items += batch


def filled(loop_thread: LoopThread, size: int) -> tuple[SyncBatchQueue[int], Gated]:
    """Return a queue with one item in its handler and `size` waiting: it is full."""
    gated = Gated()
    config = BatchQueueConfig[int](buffer_size=size)
    queue = loop_thread.open("q", config, handlers={int: gated})
    assert queue.produce(0)
    assert gated.entered.wait(PATIENCE)
    for item in range(1, size + 1):
        assert queue.produce(item, timeout=0)
    return queue, gated


def on_threads(*bodies: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a producer hangs"
    assert not errors, errors


def test_true_means_waiting_at_once(loop_thread: LoopThread) -> None:
    queue, gated = filled(loop_thread, 3)
    stats = check_accounts(queue)
    assert (stats.accepted, stats.waiting, stats.in_flight) == (4, 3, 1)
    gated.opened.set()


@pytest.mark.parametrize("size", [1, 5])
def test_no_time_is_enough_where_there_is_room(
    loop_thread: LoopThread, size: int
) -> None:
    """Also for the first item of a type, and for a buffer of one."""
    queue, gated = filled(loop_thread, size)
    began = time.monotonic()
    assert queue.produce(99, timeout=0) is False
    assert queue.produce(99, timeout=0.1) is False
    assert time.monotonic() - began >= 0.1
    assert check_accounts(queue).rejected == 2
    gated.opened.set()
    queue.flush(5)
    assert gated.items == list(range(size + 1))


def test_many_returns_what_got_in_before_the_time_was_up(
    loop_thread: LoopThread,
) -> None:
    gated = Gated()
    config = BatchQueueConfig[int](buffer_size=4)
    queue = loop_thread.open("q", config, handlers={int: gated})
    assert queue.produce(0)
    assert gated.entered.wait(PATIENCE)
    assert queue.produce_many(range(1, 100), timeout=0.1) == 4
    gated.opened.set()
    queue.flush(5)
    assert gated.items == [0, 1, 2, 3, 4]


def test_closing_wakes_who_waits_with_false(loop_thread: LoopThread) -> None:
    queue, gated = filled(loop_thread, 1)
    answers: list[object] = []

    def wait() -> None:
        answers.append(queue.produce(7))

    def close() -> None:
        time.sleep(0.05)
        threading.Timer(0.2, gated.opened.set).start()
        assert queue.shutdown(5) == []

    on_threads(wait, wait, close)
    assert answers == [False, False]
    assert gated.items == [0, 1]


def test_waiting_threads_are_served_in_order(loop_thread: LoopThread) -> None:
    queue, gated = filled(loop_thread, 1)

    line = partition_of(queue).line

    def put(number: int) -> Callable[[], None]:
        def body() -> None:
            wait_until(lambda: len(line) == number)
            assert queue.produce(100 + number, timeout=PATIENCE)

        return body

    def release() -> None:
        wait_until(lambda: len(line) == 5)
        gated.opened.set()

    on_threads(*(put(number) for number in range(5)), release)
    queue.flush(5)
    assert gated.items == [0, 1, 100, 101, 102, 103, 104]


def test_a_blocked_loop_is_told_within_a_second(loop_thread: LoopThread) -> None:
    entered, free = threading.Event(), threading.Event()

    def block(_: list[int]) -> None:
        entered.set()
        free.wait(30)

    config = BatchQueueConfig[int](buffer_size=1)
    queue = loop_thread.open("q", config, handlers={int: block})
    assert queue.produce(1)
    assert entered.wait(10)
    assert queue.produce(2)
    # It takes longer beside other busy processes: those seconds hardly count.
    with pytest.raises(BatchQueueError, match=r"has not run for 0\.5 s") as raised:
        queue.produce(3)
    free.set()
    assert "in_thread" in str(raised.value)
    assert "patience=" in str(raised.value)


def test_a_loop_that_stops_is_told_within_a_second() -> None:
    """In half a second of a free machine: its clock counts no other."""
    loop = asyncio.new_event_loop()
    gate = asyncio.Event()
    entered = threading.Event()

    async def consume(_: list[int]) -> None:
        entered.set()
        await gate.wait()

    async def start() -> SyncBatchQueue[int]:
        queue = BatchQueue("q", BatchQueueConfig(buffer_size=1, consumer=consume))
        await queue.start()
        return SyncBatchQueue(queue)

    queue = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert queue.produce(1)
    assert entered.wait(PATIENCE)
    assert queue.produce(2)
    threading.Timer(0.1, lambda: loop.call_soon_threadsafe(loop.stop)).start()
    with pytest.raises(BatchQueueError, match=r"queue 'q' has not run for 0\.5"):
        queue.produce(3)
    thread.join(PATIENCE)
    gate.set()
    loop.run_until_complete(queue._queue.shutdown(0))
    loop.close()
    # The loop is closed now: an answer at once.
    assert queue.produce(4) is False


@pytest.mark.real_time
async def test_blocking_calls_on_the_loops_own_thread_raise_at_once() -> None:
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        sync_queue = SyncBatchQueue(queue)
        for call in (
            lambda: sync_queue.produce(1),
            lambda: sync_queue.produce_many([1]),
            sync_queue.flush,
            sync_queue.shutdown,
            lambda: sync_queue.add_handler(int, print),
        ):
            with pytest.raises(BatchQueueError, match="own thread"):
                call()
        assert sync_queue.stats().accepted == 0


@pytest.mark.real_time
async def test_many_puts_cost_one_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with BatchQueue("q", BatchQueueConfig[int](consumer=lambda _: None)) as queue:
        sync_queue = SyncBatchQueue(queue)
        wake_ups = WakeUps(monkeypatch)

        def burst() -> None:
            for item in range(1000):
                assert sync_queue.produce(item)

        thread = threading.Thread(target=burst)
        thread.start()
        # The loop does not run meanwhile, so nothing but the first put is an edge.
        thread.join()
        assert wake_ups.count == 1
        await queue.flush()
        assert queue.stats().handled == 1000


def test_a_handlers_thread_that_waits_for_its_own_drain_task() -> None:
    seen: list[str] = []

    def consume(_: list[int]) -> None:
        if not seen:
            try:
                queue.produce_many(range(10))
            except WouldDeadlock as error:
                seen.append(type(error).__name__)

    with LoopThread() as loop_thread:
        config = BatchQueueConfig[int](buffer_size=2)
        queue = loop_thread.open("q", config, handlers={int: in_thread(consume)})
        assert queue.produce(1)
        queue.flush(5)
    assert seen == ["WouldDeadlock"]


def test_each_object_is_told_its_failures_once(loop_thread: LoopThread) -> None:
    def fail(_: list[int]) -> None:
        raise ValueError

    one = loop_thread.open("q", BatchQueueConfig[int](consumer=fail))
    assert one.produce_many(range(150)) == 150
    with pytest.raises(DeliveryError, match="150 failures in queue 'q'") as caught:
        one.flush(5)
    assert caught.value.count == 150
    assert [each.item for each in caught.value.failures] == list(range(100))
    one.flush(5)


def test_a_flush_that_takes_too_long(loop_thread: LoopThread) -> None:
    queue, gated = filled(loop_thread, 1)
    with pytest.raises(TimeoutError):
        queue.flush(0.05)
    gated.opened.set()
    queue.flush(5)


def test_queues_close_in_reverse_and_names_are_unique() -> None:
    order: list[str] = []
    with LoopThread() as loop_thread:

        class Closing:
            def __init__(self, name: str) -> None:
                self.name = name

            def consume(self, batch: list[int]) -> None: ...

            def on_close(self) -> None:
                order.append(self.name)

        for name in ("first", "second", "third"):
            loop_thread.open(name, BatchQueueConfig(consumer=Closing(name)))
        with pytest.raises(DuplicateQueue):
            loop_thread.open("first")
    assert order == ["third", "second", "first"]
    with pytest.raises(BatchQueueError, match="does not run"):
        loop_thread.open("late")


def test_chained_queues_run_through_the_portal() -> None:
    async def chain() -> tuple[BatchQueue[int], BatchQueue[int]]:
        last = BatchQueue("last", BatchQueueConfig[int](consumer=seen.extend))
        await last.start()

        async def pass_on(batch: list[int]) -> None:
            await last.produce_many(batch)

        first = BatchQueue("first", BatchQueueConfig[int](consumer=pass_on))
        await first.start()
        return first, last

    seen: list[int] = []
    with LoopThread() as loop_thread:
        first, last = loop_thread.portal.call(chain)
        queue = loop_thread.portal.call(SyncBatchQueue, first)
        assert queue.produce_many(range(10)) == 10
        assert queue.shutdown() == []
        loop_thread.portal.call(last.shutdown)
    assert seen == list(range(10))


def test_after_the_end_nothing_hangs() -> None:
    with LoopThread() as loop_thread:
        queue = loop_thread.open("q", BatchQueueConfig[int](consumer=lambda _: None))
        assert queue.produce(1)
    assert queue.produce(2) is False
    assert queue.produce_many([3, 4]) == 0
    assert queue.shutdown() == []
    assert check_settled(queue).handled == 1
    with pytest.raises(BatchQueueError):
        queue.flush(1)


@pytest.mark.parametrize("when_full", [WhenFull.DROP_NEWEST, WhenFull.DROP_OLDEST])
def test_dropping_never_waits(loop_thread: LoopThread, when_full: WhenFull) -> None:
    gated = Gated()
    config = BatchQueueConfig[int](buffer_size=10, when_full=when_full)
    queue = loop_thread.open("q", config, handlers={int: gated})
    assert queue.produce(-1)
    assert gated.entered.wait(PATIENCE)

    def fill() -> None:
        for item in range(100):
            queue.produce(item)

    on_threads(fill, fill, fill, fill)
    stats = check_accounts(queue)
    assert stats.waiting == 10
    assert stats.rejected + stats.dropped == 390
    gated.opened.set()


class Stress:
    """Threads and tasks on a tiny buffer: time limits, cancellations, failures."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.handled: list[tuple[int, int]] = []
        self.accepted: list[tuple[int, int]] = []
        self.failed: list[tuple[int, int]] = []
        self.most_waiting = 0
        self.queue = BatchQueue[Any](
            "q",
            BatchQueueConfig[Any](
                buffer_size=8,
                consumer=self.consume,
                on_error=lambda batch, _: self.failed.extend(batch),
            ),
        )

    async def consume(self, batch: list[tuple[int, int]]) -> None:
        waiting = self.queue.stats().waiting
        self.most_waiting = max(self.most_waiting, waiting)
        if self.dice.random() < 0.1:
            raise ValueError
        self.handled.extend(batch)

    def on_thread(self, bridge: SyncBatchQueue[Any], number: int) -> None:
        dice = random.Random(self.seed * 100 + number)
        for item in range(300):
            timeout = dice.choice([None, 0, 0.001, 0.01])
            if bridge.produce((number, item), timeout=timeout):
                self.accepted.append((number, item))

    async def on_loop(self, number: int) -> None:
        for item in range(300):
            try:
                async with asyncio.timeout(self.dice.choice([None, 0.001])):
                    if await self.queue.produce((number, item)):
                        self.accepted.append((number, item))
            except TimeoutError:
                await asyncio.sleep(0)


@pytest.mark.real_time
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_an_oracle_of_ids_under_stress(
    seed: int,
) -> None:
    interval = sys.getswitchinterval()
    stress = Stress(seed)
    await stress.queue.start()
    bridge = SyncBatchQueue(stress.queue)
    sys.setswitchinterval(1e-5)
    try:
        async with asyncio.timeout(30):
            await asyncio.gather(
                *(asyncio.to_thread(stress.on_thread, bridge, n) for n in range(4)),
                *(stress.on_loop(n) for n in range(4, 7)),
            )
    finally:
        sys.setswitchinterval(interval)
    left = await stress.queue.shutdown()
    check_settled(stress.queue)
    assert stress.most_waiting <= 8
    assert sorted(stress.handled + stress.failed + left) == sorted(stress.accepted)
    for number in range(7):
        mine = [item for who, item in stress.handled if who == number]
        assert mine == sorted(mine), "reordered"
