"""C4: somebody cancels all tasks of a loop that lives on: draining goes on by itself.

What was in a handler's hands fails: at most once is what is promised without `Retry`.
"""

import asyncio
from collections.abc import Sequence

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DrainTaskPolicy,
    PartitionPolicy,
    Rebalancing,
    Retry,
    round_robin,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import live_timers, tasks_of
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


def cancel_all(*but: asyncio.Task[object] | None) -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task(), *but}:
        task.cancel()


async def opened(
    handler: RecordingHandler[int], retry: Retry | None = None
) -> tuple[BatchQueue[int], list[tuple[list[int], BaseException]]]:
    failed: list[tuple[list[int], BaseException]] = []
    config = BatchQueueConfig[int](
        consumer=handler,
        max_batch=2,
        retry=retry or Retry(),
        on_error=lambda batch, error: failed.append((batch, error)),
    )
    queue = BatchQueue("q", config)
    await queue.start()
    return queue, failed


class TestGoesOnByItself:
    async def test_with_what_waits(self) -> None:
        """Nobody calls the queue again: neither an edge nor a flush."""
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        queue, failed = await opened(handler)
        await queue.produce_many([1, 2])
        await handler.entered()
        await queue.produce_many([3, 4, 5])
        gate.set()
        cancel_all()
        await until(lambda: queue.stats().waiting == queue.stats().in_flight == 0)
        assert handler.handled == [3, 4, 5]
        assert [batch for batch, _ in failed] == [[1, 2]]
        await queue.shutdown()
        check_settled(queue)

    async def test_with_what_comes_later_by_the_hot_path(self) -> None:
        handler = RecordingHandler[int]()
        queue, _ = await opened(handler)
        for start in (0, 10, 20):
            cancel_all()
            assert all(queue.produce_nowait(start + n) for n in range(5))
            await until(lambda start=start: start + 4 in handler.handled)  # type: ignore[misc]
        assert len(handler.handled) == 15
        await queue.shutdown()

    async def test_when_the_caller_is_among_the_cancelled(self) -> None:
        handler = RecordingHandler[int]()
        queue, _ = await opened(handler)
        await queue.flush()

        async def cancel_and_go_on() -> None:
            for task in asyncio.all_tasks() - {main}:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(1.0)
            queue.produce_nowait(1)
            await until(lambda: handler.handled == [1])

        main = asyncio.current_task()
        await asyncio.create_task(cancel_and_go_on())
        await queue.shutdown()

    async def test_with_a_shutdown_that_is_under_way(self) -> None:
        """F3: a cancelled one goes on in the background; so does this one."""
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        queue, failed = await opened(handler)
        await queue.produce_many([1, 2])
        await handler.entered()
        await queue.produce_many([3, 4])
        closing = asyncio.create_task(queue.shutdown())
        await turns()
        gate.set()
        cancel_all()
        await asyncio.wait({closing})
        await until(lambda: "closed" in repr(queue))
        # Its task has a step or two to go from there.
        await turns()
        assert tasks_of(queue) == []
        assert [batch for batch, _ in failed] == [[1, 2]]
        assert handler.handled == [3, 4]
        assert handler.close_calls == 1

    @virtual
    async def test_and_its_deadline_holds(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        queue, _ = await opened(handler)
        await queue.produce_many([1, 2, 3])
        await handler.entered()
        closing = asyncio.create_task(queue.shutdown(timeout=2.0))
        await turns()
        cancel_all()
        await asyncio.wait({closing})
        await until(lambda: "closed" in repr(queue))
        # Its task has a step or two to go from there.
        await turns()
        assert tasks_of(queue) == []
        assert asyncio.get_running_loop().time() < 2.5
        assert await queue.shutdown() == [3]
        assert live_timers() == []

    async def test_who_leaves_meanwhile_gets_to_the_end(self) -> None:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        queue, _ = await opened(handler)
        await queue.produce_many([1, 2])
        await handler.entered()
        await queue.produce_many([3, 4])
        leaving = asyncio.create_task(queue.close())
        await turns()
        gate.set()
        cancel_all(leaving)
        await leaving
        assert handler.handled == [3, 4]
        assert check_settled(queue).failed == 2

    async def test_with_rebalancing(self) -> None:
        class Swap:
            def assign(
                self, loads: Sequence[float], owners: Sequence[int], drain_tasks: int
            ) -> Sequence[int]:
                return [(owner + 1) % drain_tasks for owner in owners]

        handler = RecordingHandler[int]()
        config = BatchQueueConfig[int](
            consumer=handler.consume,
            drain_tasks=DrainTaskPolicy.fixed(2),
            partitions=PartitionPolicy.fixed(2),
            selector=round_robin,
            rebalancing=Rebalancing(Swap(), 0.02),
        )
        async with BatchQueue("q", config) as queue:
            cancel_all()
            await turns()

            def number() -> int:
                last = queue.stats().last_round
                return 0 if last is None else last.number

            before = number()
            await until(lambda: number() > before)
            assert all(queue.produce_nowait(item) for item in range(4))
            await until(lambda: len(handler.handled) == 4)

    @virtual
    async def test_no_timer_stays(self) -> None:
        received: list[int] = []
        config = BatchQueueConfig[int](consumer=received.extend)
        queue = BatchQueue("q", config)
        await queue.start()
        await queue.flush()
        cancel_all()
        await asyncio.sleep(1.0)
        assert live_timers() == []
        await queue.shutdown()
        assert live_timers() == []

    async def test_at_any_tick_twice(self) -> None:
        for tick in range(25):
            handler = RecordingHandler[int]()
            queue, failed = await opened(handler)
            queue.produce_nowait(0)
            for _ in range(2):
                await turns(tick)
                cancel_all()
            for item in range(1, 7):
                queue.produce_nowait(item)
            await until(lambda queue=queue: _is_settled(queue))  # type: ignore[misc]
            lost = [item for batch, _ in failed for item in batch]
            assert sorted(handler.handled + lost) == list(range(7))
            assert len(handler.items) == len(set(handler.items))
            await queue.shutdown()


def _is_settled(queue: BatchQueue[int]) -> bool:
    stats = queue.stats()
    return stats.waiting == stats.in_flight == 0


class TestTheBatchInTheHandlersHands:
    async def cut_off(
        self, retry: Retry | None
    ) -> tuple[
        BatchQueue[int], RecordingHandler[int], list[tuple[list[int], BaseException]]
    ]:
        gate = asyncio.Event()
        handler = RecordingHandler[int](gate=gate)
        queue, failed = await opened(handler, retry)
        await queue.produce_many([1, 2])
        await handler.entered()
        cancel_all()
        await turns()
        gate.set()
        return queue, handler, failed

    async def test_fails_and_is_not_delivered_again(self) -> None:
        queue, handler, failed = await self.cut_off(None)
        assert await queue.shutdown() == []
        assert handler.batches == [[1, 2]]
        ((batch, error),) = failed
        assert batch == [1, 2]
        assert isinstance(error, asyncio.CancelledError)
        assert check_settled(queue).failed == 2

    async def test_is_tried_again_where_retry_allows_it(self) -> None:
        queue, handler, failed = await self.cut_off(Retry(attempts=2))
        assert await queue.shutdown() == []
        assert handler.batches == [[1, 2], [1, 2]]
        assert failed == []
        assert check_settled(queue).handled == 2

    async def test_counts_as_an_attempt(self) -> None:
        queue, handler, failed = await self.cut_off(Retry(attempts=2))
        handler.fail_when = lambda _: OSError()
        assert await queue.shutdown() == []
        assert handler.batches == [[1, 2], [1, 2]]
        assert [type(error) for _, error in failed] == [OSError]

    async def test_fails_where_retry_is_for_other_errors(self) -> None:
        retry = Retry(attempts=3, retry_on=(ConnectionError,))
        queue, handler, failed = await self.cut_off(retry)
        assert await queue.shutdown() == []
        assert handler.batches == [[1, 2]]
        assert len(failed) == 1

    async def test_whose_on_error_was_cut_off_is_not_delivered_again(self) -> None:
        entered: list[list[int]] = []
        in_on_error = asyncio.Event()

        async def consume(batch: list[int]) -> None:
            entered.append(batch)
            raise OSError

        async def on_error(batch: list[int], error: BaseException) -> None:
            in_on_error.set()
            await asyncio.Event().wait()

        config = BatchQueueConfig[int](consumer=consume, on_error=on_error)
        queue = BatchQueue("q", config)
        await queue.start()
        await queue.produce(1)
        await in_on_error.wait()
        cancel_all()
        await turns()
        assert await queue.shutdown() == []
        assert entered == [[1]]
        assert check_settled(queue).failed == 1

    async def test_that_was_only_waiting_at_its_gate_is_delivered(self) -> None:
        """It was not in its handler's hands, so nothing of it is done."""
        gate = asyncio.Event()
        config = BatchQueueConfig[int](
            drain_tasks=DrainTaskPolicy.fixed(2), partitions=PartitionPolicy.fixed(2)
        )
        queue = BatchQueue("q", config)
        await queue.start()

        class Flushing(RecordingHandler[int]):
            async def on_flush(self) -> None:
                await gate.wait()

        handler = Flushing()
        queue.add_handler(int, handler)
        flushing = asyncio.create_task(queue.flush())
        await turns()
        await queue.produce(1)
        await until(lambda: queue.stats().in_flight == 1)
        assert handler.batches == []
        cancel_all()
        await asyncio.wait({flushing})
        assert await queue.shutdown() == []
        assert handler.batches == [[1]]


@virtual
async def test_who_produces_does_not_wait_for_the_restart() -> None:
    """The loop gets a moment to end; a producer shows before that it lives on."""
    handler = RecordingHandler[int]()
    queue, _ = await opened(handler)
    await turns()
    cancel_all()
    await turns()
    began = asyncio.get_running_loop().time()
    assert await queue.produce(1)
    await turns()
    assert handler.items == [1]
    assert asyncio.get_running_loop().time() == began
    await queue.close()
    check_settled(queue)
