"""Each retry is told: to `on_retry`, in one log line, and in `stats()`."""

import asyncio
import logging
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    DrainTaskPolicy,
    PartialFailure,
    Retry,
    RetryAfter,
    SharedDrainTasks,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])

Told = list[tuple[list[int], BaseException, int, float]]


def failing(*errors: BaseException) -> RecordingHandler[int]:
    """Return a handler whose first calls raise these."""
    left = list(errors)
    return RecordingHandler[int](fail_when=lambda _: left.pop(0) if left else None)


class TestOnRetry:
    @pytest.mark.parametrize("is_async", [False, True])
    async def test_it_gets_batch_error_attempt_and_wait(
        self, *, is_async: bool
    ) -> None:
        told: Told = []
        errors = [OSError("first"), RetryAfter(0.05)]

        def on_retry(*what: Any) -> Any:  # noqa: ANN401
            told.append(what)
            return asyncio.sleep(0) if is_async else None

        config = BatchQueueConfig[int](
            consumer=failing(*errors),
            retry=Retry(attempts=3, wait_initial=0),
            on_retry=on_retry,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
        assert [what[:3] for what in told] == [
            ([1, 2], errors[0], 1),
            ([1, 2], errors[1], 2),
        ]
        assert told[0][3] == 0
        # A difference of two times of the loop, which may round up.
        assert 0.04 < round(told[1][3], 6) <= 0.05
        assert check_settled(queue).handled == 2

    async def test_of_a_part_it_gets_what_failed(self) -> None:
        told: Told = []
        config = BatchQueueConfig[int](
            consumer=failing(PartialFailure([1])),
            retry=Retry(attempts=2, wait_initial=0),
            on_retry=lambda *what: told.append(what),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([7, 8, 9])
        ((batch, _, attempt, _),) = told
        assert (batch, attempt) == ([8], 1)

    async def test_its_list_is_its_own(self) -> None:
        handler = failing(OSError())
        config = BatchQueueConfig[int](
            consumer=handler,
            retry=Retry(attempts=2, wait_initial=0),
            on_retry=lambda batch, *_: batch.clear(),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
        assert handler.batches == [[1, 2]] * 2

    async def test_who_fails_for_good_is_not_told(self) -> None:
        told: Told = []
        config = BatchQueueConfig[int](
            consumer=failing(OSError()),
            retry=Retry(split=True),
            on_retry=lambda *what: told.append(what),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
        assert told == []
        assert queue.stats().retried == 0

    async def test_what_it_raises_is_logged_and_changes_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def on_retry(*_: object) -> None:
            raise KeyError

        config = BatchQueueConfig[int](
            consumer=failing(OSError()),
            retry=Retry(attempts=2, wait_initial=0),
            on_retry=on_retry,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        assert check_settled(queue).handled == 1
        assert "q: on_retry raised KeyError() for 1 items" in caplog.text

    @virtual
    async def test_it_is_bounded_by_the_handler_timeout(self) -> None:
        handler = failing(OSError())
        config = BatchQueueConfig[int](
            consumer=handler,
            retry=Retry(attempts=2, wait_initial=0),
            handler_timeout=5.0,
            on_retry=lambda *_: asyncio.sleep(1000),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await queue.flush()
        assert 5.0 <= handler.times[1] - handler.times[0] < 6.0

    async def test_a_deadline_in_it_returns_the_batch(self) -> None:
        entered = asyncio.Event()

        async def on_retry(*_: object) -> None:
            entered.set()
            await asyncio.Event().wait()

        config = BatchQueueConfig[int](
            consumer=failing(OSError()), retry=Retry(attempts=2), on_retry=on_retry
        )
        queue = BatchQueue("q", config)
        await queue.start()
        await queue.produce(1)
        await entered.wait()
        assert await queue.shutdown(timeout=0) == [1]
        assert check_settled(queue).returned == 1

    async def test_cancelled_with_its_task_the_batch_keeps_its_place(self) -> None:
        """The drain task goes on, and the retry comes when it is due."""
        handler = failing(OSError())

        def on_retry(*_: object) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        config = BatchQueueConfig[int](
            consumer=handler,
            max_batch=1,
            retry=Retry(attempts=2, wait_initial=0.01),
            on_retry=on_retry,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
            await until(lambda: queue.stats().handled == 2)
        assert handler.batches == [[1], [1], [2]]

    async def test_it_may_produce_into_a_queue_of_the_same_drain_tasks(self) -> None:
        """As `on_error` may: the permit is held while it is called."""
        handler = RecordingHandler[int]()
        shared = SharedDrainTasks("io", DrainTaskPolicy.fixed(1))
        audit = BatchQueueConfig[int](
            consumer=handler, buffer_size=1, drain_tasks=shared
        )
        async with BatchQueueManager() as manager:
            other = await manager.create("audit", audit)

            async def on_retry(batch: list[int], *_: object) -> None:
                await other.produce_many(batch)

            config = BatchQueueConfig[int](
                consumer=failing(OSError()),
                drain_tasks=shared,
                retry=Retry(attempts=2, wait_initial=0),
                on_retry=on_retry,
            )
            queue = await manager.create("q", config)
            await queue.produce_many([1, 2, 3])
        assert handler.handled == [1, 2, 3]


class TestLog:
    @virtual
    async def test_a_retry_is_one_line_and_a_storm_is_counted(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = RecordingHandler[int](
            fail_when=lambda _: OSError("gone") if len(handler.times) < 40 else None
        )
        config = BatchQueueConfig[int](
            consumer=handler, retry=Retry(attempts=50, wait_initial=0.1, wait_max=0.1)
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
            await queue.flush()
        lines = [record for record in caplog.records if record.name != "asyncio"]
        assert {line.levelno for line in lines} == {logging.WARNING}
        assert not any(line.exc_info for line in lines)
        first, *rest = [line.getMessage() for line in lines]
        assert first.startswith(
            "q: 2 items failed in RecordingHandler with OSError('gone'); attempt 2 of "
            "50 in "
        )
        assert len(rest) < 10
        assert "q: items are tried again in RecordingHandler ... " in rest[0]

    @virtual
    @pytest.mark.parametrize("error", [PartialFailure([1]), RetryAfter(0.1)])
    async def test_a_retry_says_what_the_handler_raised_it_from(
        self, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As one does that groups its batch: else an outage is a line of positions."""
        error.__cause__ = ConnectionError("its server is away")
        config = BatchQueueConfig[int](consumer=failing(error), retry=Retry(attempts=2))
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
        (line,) = [each.getMessage() for each in caplog.records]
        assert "since ConnectionError('its server is away')" in line

    @virtual
    async def test_a_retry_says_what_a_task_group_of_the_handler_met(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = ExceptionGroup("in a TaskGroup", [ConnectionError("it is away")])
        config = BatchQueueConfig[int](consumer=failing(error), retry=Retry(attempts=2))
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        (line,) = [each.getMessage() for each in caplog.records]
        assert "such as ConnectionError('it is away')" in line


class TestCount:
    async def test_each_item_counts_each_time(self) -> None:
        consumer = failing(OSError(), PartialFailure([0]))
        config = BatchQueueConfig[int](
            consumer=consumer, retry=Retry(attempts=3, wait_initial=0)
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2, 3])
            await queue.flush()
            await turns()
            assert queue.stats().retried == 4
            assert queue.stats().handlers[0].retried == 4


@virtual
async def test_how_often_it_was_tried_again_is_told_before_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: list[int]) -> None:
        raise OSError

    config = BatchQueueConfig[int](
        consumer=fail,
        retry=Retry(attempts=1_000, wait_initial=0.01, wait_max=0.01),
        shutdown_timeout=0.5,
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
    lines = [each.getMessage() for each in caplog.records]
    counted = [place for place, line in enumerate(lines) if "more times in" in line]
    (left,) = [place for place, line in enumerate(lines) if "were left at" in line]
    assert counted
    assert max(counted) < left
