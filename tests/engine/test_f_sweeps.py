"""F: a cancellation at whatever tick loses nothing and leaves nothing behind.

Each sweep repeats one scene, and cancels one turn of the loop later every time, until
the victim has ended before its cancellation comes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    DrainTaskPolicy,
    PartitionPolicy,
    Retry,
    round_robin,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import cancel_drain_tasks, tasks_of
from tests.engine.until import until
from tests.support.oracle import check_accounts, check_settled

pytestmark = every_loop

MOST = 500


class Worker:
    """Takes two turns per call, and knows what it got, finished, and was told."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.finished: list[int] = []
        self.errors: list[int] = []
        self.inside = 0
        self.closed = 0

    async def consume(self, batch: list[int]) -> None:
        assert not self.inside
        self.inside += 1
        try:
            self.entered += batch
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if any(item % 5 == 3 for item in batch):
                raise ValueError
            self.finished += batch
        finally:
            self.inside -= 1

    async def on_flush(self) -> None:
        assert not self.inside
        await asyncio.sleep(0)

    async def on_close(self) -> None:
        assert not self.inside
        self.closed += 1
        await asyncio.sleep(0)

    async def on_error(self, batch: list[int], error: BaseException) -> None:
        self.errors += batch
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def open_queue(worker: Worker, retry: Retry) -> BatchQueue[int]:
    config = BatchQueueConfig[int](
        max_batch=3, buffer_size=4, on_error=worker.on_error, retry=retry
    )
    queue = BatchQueue("q", config)
    await queue.start()
    queue.add_handler(int, worker)
    return queue


def check_outcome(queue: BatchQueue[int], worker: Worker, left: list[int]) -> None:
    """Everything ended once: finished, told to `on_error`, or returned."""
    stats = check_settled(queue)
    assert stats.accepted == 9
    assert stats.returned == len(left)
    assert stats.handled == len(set(worker.finished))
    assert sorted(worker.finished) == sorted(set(worker.finished))
    assert {*worker.finished, *worker.errors, *left} == set(range(9))
    assert not set(worker.finished) & set(worker.errors)


@pytest.mark.parametrize("retry", [Retry(), Retry(split=True)], ids=["once", "split"])
async def test_flush(retry: Retry) -> None:
    for tick in count():
        worker = Worker()
        queue = await open_queue(worker, retry)
        assert await queue.produce_many(range(9)) == 9
        flushing = asyncio.create_task(queue.flush())
        for _ in range(tick):
            await asyncio.sleep(0)
        was_cancelled = flushing.cancel()
        await asyncio.wait({flushing})
        check_accounts(queue)
        # Nothing of it stays: neither a watched position nor a request.
        assert not any(each.accounts.is_watched for each in queue._parts.partitions)
        async with asyncio.timeout(30.0):
            await asyncio.gather(queue.flush(), return_exceptions=True)
            left = await queue.shutdown()
        assert left == []
        check_outcome(queue, worker, left)
        if not was_cancelled:
            break
        assert tick < MOST
    assert tick > 10


async def test_flush_tells_each_failure_exactly_once() -> None:
    """Cancelled or not, a failure is told by the first flush that gets to tell."""
    for tick in count():
        worker = Worker()
        queue = await open_queue(worker, Retry())
        await queue.produce_many(range(9))
        told = 0
        flushing = asyncio.create_task(queue.flush())
        for _ in range(tick):
            await asyncio.sleep(0)
        was_cancelled = flushing.cancel()
        for each in (flushing, asyncio.create_task(queue.flush())):
            try:
                await each
            except DeliveryError as error:
                told += error.count
            except asyncio.CancelledError:
                pass
        assert told == queue.stats().failed
        await queue.shutdown()
        if not was_cancelled:
            break
        assert tick < MOST


async def test_shutdown() -> None:
    for tick in count():
        worker = Worker()
        queue = await open_queue(worker, Retry())
        producing = asyncio.create_task(queue.produce_many(range(9)))
        await until(producing.done)
        closing = asyncio.create_task(queue.shutdown())
        for _ in range(tick):
            await asyncio.sleep(0)
        was_cancelled = closing.cancel()
        await asyncio.wait({closing})
        async with asyncio.timeout(30.0):
            assert await queue.shutdown() == []
        check_outcome(queue, worker, [])
        assert worker.closed == 1
        assert tasks_of(queue) == []
        if not was_cancelled:
            break
        assert tick < MOST
    assert tick > 5


async def test_shutdown_at_its_deadline() -> None:
    """The deadline comes at each tick of the draining."""
    for tick in count():
        worker = Worker()
        queue = await open_queue(worker, Retry())
        await queue.produce_many(range(9))
        closing = asyncio.create_task(queue.shutdown(timeout=None))
        for _ in range(tick):
            await asyncio.sleep(0)
        was_late = closing.done()
        left = await queue.shutdown(timeout=0) + await closing
        check_outcome(queue, worker, left)
        assert tasks_of(queue) == []
        if was_late:
            break
        assert tick < MOST
    assert tick > 10


Cut = Callable[[BatchQueue[int]], Awaitable[None]]


async def cut_and_run(queue: BatchQueue[int]) -> None:
    """Cancel the drain tasks and go on while that is under way."""
    for each in tasks_of(queue):
        if "drain task" in each.get_name():
            each.cancel()


@pytest.mark.parametrize("cancel", [cancel_drain_tasks, cut_and_run])
async def test_drain_task_by_a_stranger_before_shutdown(cancel: Cut) -> None:
    for tick in range(40):
        worker = Worker()
        queue = await open_queue(worker, Retry())
        producing = asyncio.create_task(queue.produce_many(range(9)))
        for _ in range(tick):
            await asyncio.sleep(0)
        await cancel(queue)
        closing = asyncio.create_task(queue.shutdown())
        accepted = await producing
        async with asyncio.timeout(30.0):
            left = await closing
        stats = check_settled(queue)
        assert stats.accepted == accepted
        assert left == [], f"tick {tick}: no deadline came, so all is handled"
        assert {*worker.finished, *worker.errors} == set(range(accepted))
        assert stats.handled == len(worker.finished)
        assert not set(worker.finished) & set(worker.errors)
        assert worker.closed == 1


async def test_drain_task_by_a_stranger_during_shutdown() -> None:
    for tick in count():
        worker = Worker()
        queue = await open_queue(worker, Retry())
        await queue.produce_many(range(9))
        closing = asyncio.create_task(queue.shutdown())
        for _ in range(tick):
            await asyncio.sleep(0)
        was_late = closing.done()
        await cut_and_run(queue)
        async with asyncio.timeout(30.0):
            left = await closing
        check_outcome(queue, worker, left)
        if was_late:
            break
        assert tick < MOST


async def test_what_on_error_got_is_not_tried_again() -> None:
    """The cancellation comes while `on_error` runs: the batch has ended."""
    entered: list[list[int]] = []
    in_on_error = asyncio.Event()

    def consume(batch: list[int]) -> None:
        entered.append(batch)
        raise ValueError

    async def on_error(batch: list[int], error: BaseException) -> None:
        in_on_error.set()
        await asyncio.sleep(0.01)

    queue = BatchQueue("q", BatchQueueConfig[int](on_error=on_error))
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce(1)
    await in_on_error.wait()
    await cancel_drain_tasks(queue)
    assert await queue.shutdown() == []
    assert entered == [[1]]
    assert check_settled(queue).failed == 1


async def test_a_handler_that_outlasts_a_strangers_cancellation() -> None:
    """It swallowed it; a later handler's own `CancelledError` is a failure again."""
    calls: list[list[int]] = []

    async def consume(batch: list[int]) -> None:
        calls.append(batch)
        if batch == [1]:
            try:
                await asyncio.sleep(1000.0)
            except asyncio.CancelledError:
                return
        if batch == [2]:
            raise asyncio.CancelledError

    failed: list[list[int]] = []
    config = BatchQueueConfig[int](
        max_batch=1, on_error=lambda batch, _: failed.append(batch)
    )
    queue = BatchQueue("q", config)
    await queue.start()
    queue.add_handler(int, consume)
    await queue.produce(1)
    await until(lambda: calls)
    await queue.produce_many([2, 3])
    await cut_and_run(queue)
    async with asyncio.timeout(60.0):
        try:
            await until(lambda: len(calls) == 3, patience=30.0)
        finally:
            await queue.shutdown()
    assert failed == [[2]]
    assert check_settled(queue).handled == 2


async def test_with_several_drain_tasks_and_partitions() -> None:
    """A cancellation that hits a handler fails its batch, and nothing else."""
    for tick in range(40):
        done: list[int] = []
        failed: list[int] = []

        async def consume(batch: list[int]) -> None:
            await asyncio.sleep(0)
            done.extend(batch)  # noqa: B023

        config = BatchQueueConfig[int](
            drain_tasks=DrainTaskPolicy.fixed(3),
            partitions=PartitionPolicy.fixed(4),
            selector=round_robin,
            consumer=consume,
            max_batch=2,
            on_error=lambda batch, _: failed.extend(batch),  # noqa: B023
        )
        queue = BatchQueue("q", config)
        await queue.start()
        await queue.produce_many(range(30))
        for _ in range(tick):
            await asyncio.sleep(0)
        await cancel_drain_tasks(queue)
        assert await queue.shutdown() == []
        assert sorted(done + failed) == list(range(30))
        assert len(failed) <= 3 * 2
        check_settled(queue)


async def test_every_task_of_the_loop_at_every_tick() -> None:
    """The widespread recipe at a program's end: cancel them all, gather, clean up."""
    for tick in range(40):
        worker = Worker()
        queue = await open_queue(worker, Retry())
        producing = asyncio.create_task(queue.produce_many(range(9)))
        flushing = asyncio.create_task(queue.flush())
        for _ in range(tick):
            await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        async with asyncio.timeout(30.0):
            await asyncio.gather(*others, return_exceptions=True)
            left = await queue.shutdown(timeout=1.0)
        # Those that were done before are not among the others.
        await asyncio.gather(producing, flushing, return_exceptions=True)
        stats = check_settled(queue)
        assert stats.returned == len(left)
        accounted = [*worker.finished, *worker.errors, *left]
        assert set(accounted) >= set(range(stats.accepted))
        assert tasks_of(queue) == []


async def test_every_task_of_the_loop_twice_the_queue_can_be_used_in_between() -> None:
    """A test runner or a supervisor cancels what runs, and life goes on."""
    worker = Worker()
    queue = await open_queue(worker, Retry())
    for start in (0, 10):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        async with asyncio.timeout(30.0):
            await asyncio.gather(*others, return_exceptions=True)
        assert queue.produce_nowait(start)
    async with asyncio.timeout(30.0):
        assert await queue.shutdown() == []
    assert worker.finished == [0, 10]
    check_settled(queue)
