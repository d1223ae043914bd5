"""`handler_timeout` and `Retry`: the basics of one batch's attempts."""

import asyncio
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    PartitionPolicy,
    Retry,
)
from tests.engine.every_loop import every_loop
from tests.engine.observing import tasks_of
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])


class TestHandlerTimeout:
    @virtual
    async def test_the_handler_is_cancelled_and_its_batch_has_failed(self) -> None:
        errors: list[BaseException] = []
        handler = RecordingHandler[int](delay=100.0)
        config = BatchQueueConfig[int](
            handler_timeout=5.0, on_error=lambda _, error: errors.append(error)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            await asyncio.sleep(4.9)
            assert handler.running == 1
            await asyncio.sleep(0.2)
            assert handler.running == 0
            assert queue.stats().failed == 1
        assert isinstance(errors[0], TimeoutError)

    async def test_a_quick_handler_is_left_alone(self) -> None:
        handler = RecordingHandler[int](delay=0.001)
        config = BatchQueueConfig[int](handler_timeout=5.0, max_batch=1)
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([1, 2, 3])
        assert handler.handled == [1, 2, 3]

    async def test_an_error_stays_the_handlers_own(self) -> None:
        errors: list[BaseException] = []
        error = ValueError("mine")
        handler = RecordingHandler[int](fail_when=lambda _: error)
        config = BatchQueueConfig[int](
            handler_timeout=5.0, on_error=lambda _, error: errors.append(error)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
        assert errors == [error]

    async def test_cleaning_up_badly_leaves_no_unseen_exception(self) -> None:
        async def consume(batch: list[int]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                message = "cleaning up failed"
                raise ValueError(message)

        config = BatchQueueConfig[int](
            handler_timeout=0.01, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, consume)
            await queue.produce(1)
        assert check_settled(queue).failed == 1

    async def test_the_queue_goes_on_afterwards(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        config = BatchQueueConfig[int](
            handler_timeout=0.01, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await until(lambda: queue.stats().failed == 1)
            handler.gate = None
            await queue.produce(2)
        assert handler.handled == [2]

    async def test_it_is_an_attempt_like_any_other(self) -> None:
        handler = RecordingHandler[int](gate=asyncio.Event())
        config = BatchQueueConfig[int](
            handler_timeout=0.01, retry=Retry(attempts=2, wait_initial=0.001)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await handler.entered()
            handler.gate = None
        assert handler.batches == [[1], [1]]
        assert handler.handled == [1]

    async def test_it_has_a_second_to_clean_up_and_is_retried(self) -> None:
        """As a rollback takes it: such a batch must not have failed for good."""
        calls: list[str] = []

        async def rolls_back(_: list[int]) -> None:
            try:
                calls.append("begin")
                await asyncio.sleep(60.0 if len(calls) == 1 else 0.0)
                calls.append("commit")
            except asyncio.CancelledError:
                await asyncio.sleep(0.9)
                calls.append("rollback")
                raise

        config = BatchQueueConfig[int](
            consumer=rolls_back, handler_timeout=1.0, retry=Retry(attempts=2)
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        assert calls == ["begin", "rollback", "begin", "commit"]
        assert check_settled(queue).handled == 1

    async def test_one_that_cannot_be_stopped_blocks_its_partition_alone(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        let_go = asyncio.Event()
        calls: list[list[int]] = []

        async def stubborn(batch: list[int]) -> None:
            calls.append(batch)
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

        other = RecordingHandler[str]()
        failed: list[list[object]] = []
        config = BatchQueueConfig[object](
            handler_timeout=0.01,
            retry=Retry(attempts=5),
            on_error=lambda batch, _: failed.append(batch),
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, stubborn)
            await queue.produce(1)
            await until(lambda: failed)
            assert failed == [[1]]
            assert queue.stats().failed == 1
            await queue.produce(2)
            await asyncio.sleep(0.02)
            assert calls == [[1]], "never twice at once"
            let_go.set()
            await until(lambda: len(calls) == 2)
        assert calls == [[1], [2]]
        stats = check_settled(queue)
        assert (stats.failed, stats.handled) == (1, 1)
        assert "cannot be stopped" in caplog.text
        assert other.items == []

    async def test_a_piece_behind_it_keeps_nobody_else_waiting(self) -> None:
        """The drain task must not stand at the handler's door with its next piece."""
        let_go = asyncio.Event()
        calls: list[list[object]] = []

        async def stubborn(batch: list[Any]) -> None:
            calls.append(batch)
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

        other = RecordingHandler[str]()
        config = BatchQueueConfig[object](
            partitions=PartitionPolicy.fixed(2),
            max_batch=1,
            handler_timeout=0.01,
            on_error=lambda _batch, _error: None,
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, stubborn)
            queue.add_handler(str, other)
            queue.add_handler(bytes, stubborn)
            await queue.produce(1)
            await queue.produce_many(["a", b"b"])
            await until(lambda: queue.stats().failed == 1)
            await queue.produce_many([2, "c"])
            await until(lambda: other.handled == ["a", "c"])
            assert calls == [[1]], "never twice at once"
            let_go.set()
            await until(lambda: len(calls) == 3)
        assert check_settled(queue).handled == 4

    async def test_such_a_one_is_not_waited_for_at_the_deadline(self) -> None:
        let_go = asyncio.Event()

        async def stubborn(batch: list[int]) -> None:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

        config = BatchQueueConfig[int](
            handler_timeout=0.01, on_error=lambda _batch, _error: None
        )
        queue = BatchQueue("q", config)
        await queue.start()
        queue.add_handler(int, stubborn)
        await queue.produce(1)
        await until(lambda: queue.stats().failed == 1)
        await queue.produce(2)
        assert await queue.shutdown(timeout=0.02) == [2]
        check_settled(queue)
        let_go.set()
        await turns()
        assert tasks_of(queue) == []


class TestRetry:
    async def test_by_default_there_is_one_attempt(self) -> None:
        handler = RecordingHandler[int](fail_when=lambda _: ValueError())
        async with BatchQueue[int]("q") as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
        assert handler.batches == [[1]]

    async def test_up_to_the_number_of_attempts(self) -> None:
        handler = RecordingHandler[int](fail_when=lambda _: ValueError())
        retry = Retry(attempts=4, wait_initial=0.001, wait_max=0.002)
        errors: list[list[int]] = []
        config = BatchQueueConfig[int](
            retry=retry, on_error=lambda batch, _: errors.append(batch)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([1, 2])
            with pytest.raises(DeliveryError, match="2 failures"):
                await queue.flush()
        assert handler.batches == [[1, 2]] * 4
        assert errors == [[1, 2]]
        assert check_settled(queue).failed == 2

    @virtual
    @pytest.mark.parametrize("partitions", [1, 3])
    @pytest.mark.parametrize("limit", [{}, {"max_batch": 7}, {"max_batch_bytes": 7}])
    async def test_each_attempt_has_the_same_items_in_the_same_order(
        self, limit: dict[str, Any], partitions: int
    ) -> None:
        """A token made of them is known to the server, also if its answer was lost."""
        attempts = Counter[tuple[int, ...]]()

        def fail_twice(batch: list[int]) -> None:
            attempts[token := tuple(batch)] += 1
            batch.clear()  # It is the handler's own.
            if attempts[token] < 3:
                raise TimeoutError

        config = BatchQueueConfig[int](
            consumer=fail_twice,
            retry=Retry(attempts=3, wait_initial=1.0),
            selector=lambda number, count: number % count,
            partitions=PartitionPolicy.fixed(partitions),
            size_of=lambda _: 1,
            **limit,
        )
        async with BatchQueue("q", config) as queue:
            for number in range(100):
                await queue.produce(number)
                await asyncio.sleep(0.1)
            await queue.flush()
        assert set(attempts.values()) == {3}
        assert sorted(chain.from_iterable(attempts)) == list(range(100))

    async def test_later_pieces_of_a_cycle_do_not_overtake(self) -> None:
        """Pieces that share a partition with one that waits wait behind it."""
        calls: list[list[tuple[int, int]]] = []

        def consume(batch: list[tuple[int, int]]) -> None:
            calls.append(batch)
            if len(calls) == 1:
                raise ValueError

        config = BatchQueueConfig[tuple[int, int]](
            partitions=PartitionPolicy.fixed(3),
            selector=lambda item, _: item[0],
            max_batch=3,
            retry=Retry(attempts=2, wait_initial=0.01),
        )
        items = [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
        async with BatchQueue("q", config) as queue:
            queue.add_handler(tuple, consume)
            await queue.produce_many(items)
        assert [item for batch in calls[1:] for item in batch] == items
        assert check_settled(queue).handled == 8

    async def test_only_on_the_exceptions_named(self) -> None:
        handler = RecordingHandler[int](
            fail_when=lambda batch: OSError() if batch == [1] else KeyError()
        )
        retry = Retry(attempts=3, wait_initial=0.001, retry_on=(OSError,))
        config = BatchQueueConfig[int](
            retry=retry, max_batch=1, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many([1, 2])
        assert handler.batches.count([1]) == 3
        assert handler.batches.count([2]) == 1

    @virtual
    async def test_none_starts_after_the_deadline(self) -> None:
        handler = RecordingHandler[int](fail_when=lambda _: ValueError())
        retry = Retry(attempts=1000, wait_initial=1.0, wait_max=1.0, deadline=10.0)
        config = BatchQueueConfig[int](
            retry=retry, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce(1)
            await asyncio.sleep(100.0)
            assert queue.stats().failed == 1
        assert len(handler.times) > 2
        assert handler.times[-1] - handler.times[0] <= 10.0

    async def test_a_split_isolates_what_fails(self) -> None:
        handler = RecordingHandler[int](
            fail_when=lambda batch: ValueError() if 5 in batch else None
        )
        errors: list[list[int]] = []
        config = BatchQueueConfig[int](
            retry=Retry(split=True), on_error=lambda batch, _: errors.append(batch)
        )
        async with BatchQueue("q", config) as queue:
            queue.add_handler(int, handler)
            await queue.produce_many(range(8))
        assert errors == [[5]]
        assert handler.handled == [0, 1, 2, 3, 4, 6, 7]
        stats = check_settled(queue)
        assert (stats.handled, stats.failed) == (7, 1)
