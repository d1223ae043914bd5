"""`in_thread`: a blocking handler off the loop, and what happens at its deadlines."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartialFailure,
    PartitionPolicy,
    Retry,
    in_thread,
    round_robin,
)
from tests.engine.observing import tasks_of
from tests.engine.until import until
from tests.support.oracle import check_settled

pytestmark = pytest.mark.real_time


class Blocking:
    """Blocks its thread until it is let go."""

    def __init__(self, *, free: bool = False) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        if free:
            self.let_go.set()
        self.batches: list[list[int]] = []
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.running = 0
        self.most = 0

    def consume(self, batch: list[int]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.threads.add(threading.get_ident())
        self.batches.append(batch)
        self.calls.append("consume")
        self.entered.set()
        self.let_go.wait(10.0)
        time.sleep(0.001)
        self.running -= 1

    def on_flush(self) -> None:
        assert not self.running
        self.threads.add(threading.get_ident())
        self.calls.append("on_flush")

    def on_close(self) -> None:
        assert not self.running
        self.threads.add(threading.get_ident())
        self.calls.append("on_close")


@pytest.fixture
def stuck() -> Iterator[Blocking]:
    handler = Blocking()
    yield handler
    handler.let_go.set()


async def test_it_runs_off_the_loop_and_the_loop_goes_on(stuck: Blocking) -> None:
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, in_thread(stuck))
        await queue.produce(1)
        await until(stuck.entered.is_set)
        stuck.let_go.set()
        await queue.flush()
    assert stuck.calls == ["consume", "on_flush", "on_close"]
    assert threading.get_ident() not in stuck.threads


async def test_it_is_never_entered_twice_at_once() -> None:
    handler = Blocking(free=True)
    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(4),
        partitions=PartitionPolicy.fixed(4),
        selector=round_robin,
        consumer=in_thread(handler),
        max_batch=2,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(50))
    assert handler.most == 1
    assert sorted(item for batch in handler.batches for item in batch) == list(
        range(50)
    )


async def test_its_error_fails_the_batch() -> None:
    def consume(batch: list[int]) -> None:
        raise ValueError

    errors: list[BaseException] = []
    config = BatchQueueConfig[int](on_error=lambda _, error: errors.append(error))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, in_thread(consume))
        await queue.produce(1)
    assert isinstance(errors[0], ValueError)
    assert check_settled(queue).failed == 1


async def test_at_the_shutdown_deadline_it_is_left_behind(
    stuck: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    queue = BatchQueue[int]("q")
    await queue.start()
    queue.add_handler(int, in_thread(stuck))
    await queue.produce(1)
    await until(stuck.entered.is_set)
    await queue.produce(2)
    assert await queue.shutdown(timeout=0.02) == [1, 2]
    assert stuck.running
    assert check_settled(queue).returned == 2
    assert "does not stop" in caplog.text
    before = queue.stats()
    stuck.let_go.set()
    await until(lambda: not tasks_of(queue) and not stuck.running)
    assert queue.stats().partitions == before.partitions
    assert stuck.batches == [[1]]
    assert "on_close" not in stuck.calls


async def test_at_its_timeout_it_has_failed_and_blocks_its_partition(
    stuck: Blocking,
) -> None:
    failed: list[list[int]] = []
    config = BatchQueueConfig[int](
        handler_timeout=0.5, on_error=lambda batch, _: failed.append(batch)
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, in_thread(stuck))
        await queue.produce(1)
        await until(lambda: failed)
        assert failed == [[1]]
        await queue.produce(2)
        await asyncio.sleep(0.05)
        assert stuck.batches == [[1]]
        stuck.let_go.set()
    assert stuck.batches == [[1], [2]]
    assert stuck.most == 1
    stats = check_settled(queue)
    assert (stats.failed, stats.handled) == (1, 1)


async def test_a_cancelled_drain_task_does_not_enter_it_again(stuck: Blocking) -> None:
    """The thread goes on; what follows waits for it."""
    queue = BatchQueue[int]("q")
    await queue.start()
    queue.add_handler(int, in_thread(stuck))
    await queue.produce(1)
    await until(stuck.entered.is_set)
    await queue.produce(2)
    for each in tasks_of(queue):
        each.cancel()
    await asyncio.sleep(0.02)
    closing = asyncio.create_task(queue.shutdown())
    await asyncio.sleep(0.02)
    assert stuck.running == 1
    stuck.let_go.set()
    left = await closing
    assert stuck.most == 1
    items = [item for batch in stuck.batches for item in batch]
    assert {*items, *left} == {1, 2}
    check_settled(queue)


async def test_it_may_produce_from_its_thread_into_nothing_but_a_bridge() -> None:
    """The queue itself belongs to its loop."""
    errors: list[BaseException] = []

    def consume(batch: list[int]) -> None:
        queue.produce_nowait(1)

    config = BatchQueueConfig[int](on_error=lambda _, error: errors.append(error))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, in_thread(consume))
        await queue.produce(1)
        await until(lambda: errors)
    assert check_settled(queue).accepted == 1


def test_an_async_handler_is_refused() -> None:
    async def consume(batch: list[int]) -> None: ...

    with pytest.raises(TypeError):
        in_thread(consume)


async def test_it_may_say_which_items_failed() -> None:
    batches: list[list[int]] = []

    def consume(batch: list[int]) -> None:
        batches.append(batch)
        if len(batch) == 3:
            raise PartialFailure([1])

    config = BatchQueueConfig[int](
        consumer=in_thread(consume), retry=Retry(attempts=2, wait_initial=0)
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce_many(range(3))
    assert batches == [[0, 1, 2], [1]]
    assert check_settled(queue).handled == 3


class Counting:
    """Blocks each call until as many are inside as are awaited; then none does."""

    def __init__(self, awaited: int) -> None:
        self.lock = threading.Lock()
        self.all_are_in = threading.Barrier(awaited)
        self.inside = self.most = 0
        self.threads: set[str] = set()
        self.is_open = False

    def consume(self, batch: list[int]) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.threads.add(threading.current_thread().name)
        if not self.is_open:
            self.all_are_in.wait(30.0)
            self.is_open = True
        with self.lock:
            self.inside -= 1

    def on_flush(self) -> None:
        assert not self.inside


def spread(handler: object, concurrency: int) -> BatchQueueConfig[int]:
    return BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(6),
        partitions=PartitionPolicy.fixed(6),
        selector=lambda item, partitions: item % partitions,
        consumer=in_thread(handler, concurrency=concurrency),  # type: ignore[arg-type]
        max_batch=5,
    )


@pytest.mark.parametrize("concurrency", [2, 4])
async def test_so_many_calls_run_at_once_and_no_more(concurrency: int) -> None:
    handler = Counting(concurrency)
    async with BatchQueue("q", spread(handler, concurrency)) as queue:
        await queue.produce_many(range(300))
        await queue.flush()
        names = {f"in_thread(Counting) {number}" for number in range(concurrency)}
        assert handler.threads <= names
        assert len(handler.threads) >= 2
    assert handler.most == concurrency
    assert check_settled(queue).handled == 300
    left = [each.name for each in threading.enumerate() if each.name in names]
    await until(lambda: not any(name in left for name in _thread_names()))


def _thread_names() -> list[str]:
    return [each.name for each in threading.enumerate()]


async def test_order_per_partition_holds_with_several_threads() -> None:
    seen: list[tuple[int, int]] = []

    def consume(batch: list[int]) -> None:
        seen.extend((item % 6, item) for item in batch)

    async with BatchQueue("q", spread(consume, 4)) as queue:
        await queue.produce_many(range(600))
    for partition in range(6):
        own = [item for where, item in seen if where == partition]
        assert own == sorted(own)
        assert len(own) == 100


async def test_a_call_that_is_left_behind_keeps_its_thread() -> None:
    """One of two threads hangs: the other one does all the rest, one by one."""
    go, hangs = threading.Event(), threading.Event()
    done: list[int] = []

    def consume(batch: list[int]) -> None:
        if 0 in batch:
            hangs.set()
            go.wait(30.0)
        done.extend(batch)

    config = BatchQueueConfig[int](
        drain_tasks=DrainTaskPolicy.fixed(2),
        partitions=PartitionPolicy.fixed(2),
        selector=lambda item, _: item % 2,
        consumer=in_thread(consume, concurrency=2),
        handler_timeout=0.05,
        on_error=lambda *_: None,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(0)
        await until(hangs.is_set)
        await queue.produce_many(range(1, 11, 2))
        await until(lambda: queue.stats().failed == 1)
        await until(lambda: len(done) == 5)
        go.set()
    await until(lambda: len(asyncio.all_tasks()) == 1)
    assert check_settled(queue).handled == 5


def test_a_wrong_concurrency_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^concurrency must be >= 1, got 0$"):
        in_thread(print, concurrency=0)
    with pytest.raises(TypeError, match=r"^concurrency must be an int, got 2\.0$"):
        in_thread(print, concurrency=2.0)  # type: ignore[arg-type]
