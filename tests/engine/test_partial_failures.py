"""`PartialFailure`, `RetryAfter` and `split_on`: what failed is tried again, alone."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    PartialFailure,
    PartitionPolicy,
    Retry,
    RetryAfter,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts, check_settled
from tests.support.recording_handler import RecordingHandler

pytestmark = every_loop

virtual = pytest.mark.asyncio(loop_factories=["virtual"])

SOON = Retry(attempts=3, wait_initial=0.001)


class Rejected(PartialFailure):
    """A subclass that keeps what its author wants to know, and forgets the rest."""

    def __init__(self, status: int) -> None:
        self.status = status


class Paused(PartialFailure):
    def __init__(self, pause: Any) -> None:  # noqa: ANN401 - what a header has
        self.failed = (0,)
        self.retry_after = pause


class Throttled(RetryAfter):
    def __init__(self, pause: Any) -> None:  # noqa: ANN401 - what a header has
        self.seconds = pause


UNCHECKED = [
    (Rejected(500), "no attribute 'failed'"),
    (Paused("5"), "retry_after must be a number, got '5'"),
    (Throttled("5"), "seconds must be a number, got '5'"),
    (Throttled(None), "seconds must be a number, got None"),
    (Throttled(-5.0), "seconds must be >= 0, got -5.0"),
    (Throttled(float("inf")), "seconds must be finite, got inf"),
]


class Bulk:
    """As a server with bulk requests: takes what is good, and tells what is not.

    Args:
        bad: Items that fail so often, from now on.
        retry_after: As for `PartialFailure`.
    """

    def __init__(
        self, bad: dict[int, int], *, retry_after: float | None = None
    ) -> None:
        self.bad = bad
        self.retry_after = retry_after
        self.batches: list[list[int]] = []
        self.times: list[float] = []
        self.stored: list[int] = []

    async def consume(self, batch: list[int]) -> None:
        self.times.append(asyncio.get_running_loop().time())
        self.batches.append(list(batch))
        await asyncio.sleep(0)
        self.store(batch)

    def store(self, batch: list[int]) -> None:
        failed = [place for place, item in enumerate(batch) if self._fails(item)]
        self.stored += [item for n, item in enumerate(batch) if n not in failed]
        if failed:
            # Whatever it does with its own list.
            batch.clear()
            raise PartialFailure(failed, retry_after=self.retry_after)

    def _fails(self, item: int) -> bool:
        left = self.bad.get(item, 0)
        self.bad[item] = left - 1
        return left > 0


class TestPartialFailure:
    async def test_a_bulk_of_1000_with_3_bad_sends_only_those_again(self) -> None:
        bulk = Bulk({7: 1, 500: 2, 999: 1})
        config = BatchQueueConfig[int](consumer=bulk, retry=SOON)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(1000))
            await queue.flush()
        assert bulk.batches == [list(range(1000)), [7, 500, 999], [500]]
        assert sorted(bulk.stored) == list(range(1000))
        assert check_settled(queue).handled == 1000

    async def test_the_rest_counts_as_handled_at_once(self) -> None:
        bulk = Bulk({1: 1}, retry_after=5.0)
        config = BatchQueueConfig[int](consumer=bulk, retry=SOON)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([0, 1, 2])
            await until(lambda: bulk.batches)
            await turns()
            stats = check_accounts(queue)
            assert (stats.handled, stats.in_flight) == (2, 1)
            bulk.retry_after = None
            assert await queue.shutdown(timeout=0) == [1]
        stats = check_settled(queue)
        assert (stats.handled, stats.returned) == (2, 1)

    async def test_it_is_retried_whatever_retry_on_says(self) -> None:
        bulk = Bulk({1: 1})
        retry = Retry(attempts=2, wait_initial=0, retry_on=(OSError,))
        config = BatchQueueConfig[int](consumer=bulk, retry=retry)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([0, 1])
        assert bulk.batches == [[0, 1], [1]]

    @pytest.mark.parametrize("split", [False, True])
    async def test_without_an_attempt_left_they_fail_alone(
        self, *, split: bool
    ) -> None:
        told: list[tuple[list[int], BaseException]] = []
        bulk = Bulk({1: 9, 3: 9})
        config = BatchQueueConfig[int](
            consumer=bulk,
            retry=Retry(attempts=2, wait_initial=0, split=split),
            on_error=lambda batch, error: told.append((batch, error)),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(5))
            with pytest.raises(DeliveryError, match="2 failures"):
                await queue.flush()
        assert bulk.batches == [[0, 1, 2, 3, 4], [1, 3]], "known already: no split"
        ((batch, error),) = told
        assert batch == [1, 3]
        assert isinstance(error, PartialFailure)
        stats = check_settled(queue)
        assert (stats.handled, stats.failed) == (3, 2)

    async def test_by_default_there_is_one_attempt(self) -> None:
        bulk = Bulk({1: 1})
        config = BatchQueueConfig[int](
            consumer=bulk, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(3))
        stats = check_settled(queue)
        assert (stats.handled, stats.failed) == (2, 1)

    async def test_none_that_failed_is_all_handled(self) -> None:
        def consume(_: list[int]) -> None:
            raise PartialFailure([])

        async with BatchQueue("q", BatchQueueConfig[int](consumer=consume)) as queue:
            await queue.produce_many(range(3))
            await queue.flush()
        assert check_settled(queue).handled == 3

    @pytest.mark.parametrize("positions", [[0, 3], [-1], [-1, 0, 1, 2], [10**30]])
    async def test_one_out_of_range_fails_all(self, positions: list[int]) -> None:
        told: list[tuple[list[int], BaseException]] = []

        def consume(_: list[int]) -> None:
            raise PartialFailure(positions)

        config = BatchQueueConfig[int](
            consumer=consume,
            retry=Retry(attempts=2, wait_initial=0, retry_on=(OSError,)),
            on_error=lambda batch, error: told.append((batch, error)),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(3))
        ((batch, error),) = told
        assert batch == [0, 1, 2]
        wrong = positions[0] if positions[0] < 0 else positions[-1]
        expected = f"failed must be positions from 0 to 2, got {wrong}"
        assert (type(error), str(error)) == (ValueError, expected)
        assert isinstance(error.__cause__, PartialFailure)
        assert check_settled(queue).failed == 3

    async def test_a_subclass_that_is_none_fails_its_batch_alone(self) -> None:
        class Broken(PartialFailure):
            def __init__(self) -> None:
                self.failed = None  # type: ignore[assignment]

        handler = RecordingHandler[int](
            fail_when=lambda batch: Broken() if batch == [1] else None
        )
        config = BatchQueueConfig[int](
            consumer=handler, max_batch=1, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
        stats = check_settled(queue)
        assert (stats.handled, stats.failed) == (1, 1)

    @pytest.mark.parametrize("max_batch", [10, "auto"])
    @pytest.mark.parametrize("error, why", UNCHECKED)
    async def test_a_subclass_with_an_init_of_its_own_handles_nothing(
        self, error: Exception, why: str, max_batch: Literal["auto"] | int
    ) -> None:
        """A1: it counted as handled, failed another batch, or waited for ever."""
        told: list[tuple[list[int], BaseException]] = []
        handler = RecordingHandler[int](
            fail_when=lambda batch: error if batch == [1] else None
        )
        config = BatchQueueConfig[int](
            consumer=handler,
            max_batch=max_batch,
            retry=SOON,
            on_error=lambda batch, error: told.append((batch, error)),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            with pytest.raises(DeliveryError):
                await queue.flush(5)
            await queue.produce(2)
        ((batch, raised),) = told
        assert batch == [1]
        assert why in str(raised)
        assert raised.__cause__ is error
        assert handler.handled == [2]
        assert check_settled(queue).failed == 1

    async def test_what_is_behind_does_not_overtake(self) -> None:
        """B1: nothing of the partition comes before what failed has ended."""
        bulk = Bulk({0: 2, 4: 1})
        config = BatchQueueConfig[int](consumer=bulk, retry=SOON, max_batch=3)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(6))
        assert bulk.batches == [[0, 1, 2], [0], [0], [3, 4, 5], [4]]
        check_settled(queue)

    async def test_a_partition_that_has_nothing_left_in_it_goes_on(self) -> None:
        """One batch of two partitions: whose items are handled is not held up."""
        handled: list[tuple[int, int]] = []
        let_go = False

        def consume(batch: list[tuple[int, int]]) -> None:
            failed = [n for n, item in enumerate(batch) if not item[0] and not let_go]
            handled.extend(item for n, item in enumerate(batch) if n not in failed)
            # As a whole first, so that it is deferred when it fails in part.
            if len(batch) == 4 and not handled[4:]:
                handled.append((9, 9))
                handled[:] = [(9, 9)] * 5
                raise OSError
            if failed:
                raise PartialFailure(failed)

        config = BatchQueueConfig[tuple[int, int]](
            consumer=consume,
            partitions=PartitionPolicy.fixed(2),
            selector=lambda item, _: item[0],
            retry=Retry(attempts=1000, wait_initial=0.001, wait_max=0.001),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([(0, 1), (1, 1), (0, 2), (1, 2)])
            await until(lambda: (1, 2) in handled)
            await queue.produce((1, 3))
            await until(lambda: (1, 3) in handled)
            first, second = check_accounts(queue).partitions
            assert (first.in_flight, first.handled) == (2, 0)
            assert (second.in_flight, second.handled) == (0, 3)
            await queue.produce((0, 3))
            let_go = True
            await queue.flush()
        assert [item for item in handled if item[0] == 0] == [(0, 1), (0, 2), (0, 3)]
        check_settled(queue)

    async def test_a_flush_waits_for_what_was_before_it_alone(self) -> None:
        """F5: the first of a take were handled, and one behind the flush was not."""
        bulk = Bulk({2: 1}, retry_after=1000.0)
        config = BatchQueueConfig[int](consumer=bulk, retry=SOON, linger=1000)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([0, 1])
            flush = asyncio.create_task(queue.flush())
            # Behind the flush, which ends the linger, and before the drain task.
            if not queue._parts.partitions[0].accounts.is_watched:
                # It is not an eager task, and begins in the next turn.
                await asyncio.sleep(0)
            assert queue.produce_nowait(2)
            await flush
            assert check_accounts(queue).in_flight == 1
            assert await queue.shutdown(timeout=0) == [2]
        assert bulk.batches == [[0, 1, 2]]

    async def test_a_flush_waits_for_what_failed_before_it(self) -> None:
        bulk = Bulk({0: 1, 2: 2})
        config = BatchQueueConfig[int](consumer=bulk, retry=SOON)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([0, 1, 2])
            await queue.flush()
            assert check_settled(queue).handled == 3
        assert bulk.stored == [1, 0, 2]

    async def test_sync_handlers_say_it_too(self) -> None:
        bulk = Bulk({1: 1})
        config = BatchQueueConfig[int](consumer=bulk.store, retry=SOON)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(3))
        assert bulk.stored == [0, 2, 1]
        assert check_settled(queue).handled == 3


def gives_up_when_cancelled(stored: list[int]) -> Callable[[list[int]], Any]:
    """Stores one item a moment, and says what is left when it is cancelled."""

    async def consume(batch: list[int]) -> None:
        try:
            for item in batch:
                await asyncio.sleep(0.01)
                stored.append(item)
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise PartialFailure(range(2, len(batch))) from None

    return consume


class TestDeadlines:
    @pytest.mark.parametrize("timeout", [None, 1000.0])
    @pytest.mark.parametrize("attempts", [1, 2])
    async def test_a_handler_may_say_it_at_the_shutdown_deadline(
        self, timeout: float | None, attempts: int
    ) -> None:
        stored: list[int] = []
        config = BatchQueueConfig[int](
            consumer=gives_up_when_cancelled(stored),
            handler_timeout=timeout,
            retry=Retry(attempts=attempts),
            on_error=lambda _batch, _error: None,
        )
        queue = BatchQueue("q", config)
        await queue.start()
        await queue.produce_many(range(4))
        await until(lambda: len(stored) == 4)
        left = await queue.shutdown(timeout=0)
        stats = check_settled(queue)
        assert stats.handled == 2
        assert stats.failed + stats.returned == 2
        assert left == ([] if attempts == 1 else [2, 3])

    async def test_and_at_its_timeout(self) -> None:
        stored: list[int] = []
        told: list[list[int]] = []
        config = BatchQueueConfig[int](
            consumer=gives_up_when_cancelled(stored),
            handler_timeout=0.2,
            on_error=lambda batch, _: told.append(batch),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(4))
            await until(lambda: told)
        assert told == [[2, 3]]
        assert check_settled(queue).handled == 2

    async def test_an_answer_after_the_end_changes_nothing(self) -> None:
        let_go = asyncio.Event()

        async def stubborn(_: list[int]) -> None:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            raise PartialFailure([0])

        queue = BatchQueue("q", BatchQueueConfig[int](consumer=stubborn))
        await queue.start()
        await queue.produce_many(range(3))
        await turns()
        left = await queue.shutdown(timeout=0.01)
        assert left == [0, 1, 2]
        let_go.set()
        await turns()
        assert check_settled(queue).returned == 3


class TestRetryAfter:
    @virtual
    async def test_it_is_the_least_wait_and_may_exceed_the_longest(self) -> None:
        handler = RecordingHandler[int](
            fail_when=lambda _: RetryAfter(60.0) if not handler.failed else None
        )
        retry = Retry(attempts=2, wait_max=5.0, retry_on=(OSError,))
        config = BatchQueueConfig[int](consumer=handler, retry=retry)
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await queue.flush()
        first, second = handler.times
        assert 60.0 <= second - first <= 60.01
        assert check_settled(queue).handled == 1

    @virtual
    async def test_of_a_part_too(self) -> None:
        bulk = Bulk({1: 1}, retry_after=60.0)
        config = BatchQueueConfig[int](consumer=bulk, retry=SOON)
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(3))
            await queue.flush()
        assert bulk.batches == [[0, 1, 2], [1]]
        assert 60.0 <= bulk.times[1] - bulk.times[0] <= 60.01

    @virtual
    async def test_the_longer_one_of_both_waits_counts(self) -> None:
        handler = RecordingHandler[int](
            fail_when=lambda _: RetryAfter(0.001) if len(handler.times) < 40 else None
        )
        retry = Retry(attempts=40, wait_initial=10.0, wait_max=10.0)
        config = BatchQueueConfig[int](consumer=handler, retry=retry)
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
            await queue.flush()
        assert handler.times[-1] - handler.times[0] > 40, "chance alone decided"

    @virtual
    async def test_the_deadline_bounds_it(self) -> None:
        handler = RecordingHandler[int](fail_when=lambda _: RetryAfter(60.0))
        config = BatchQueueConfig[int](
            consumer=handler,
            retry=Retry(attempts=9, deadline=90.0, split=True),
            on_error=lambda _batch, _error: None,
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many([1, 2])
            with pytest.raises(DeliveryError):
                await queue.flush()
            assert asyncio.get_running_loop().time() - handler.times[0] < 61
        assert handler.batches == [[1, 2]] * 2

    async def test_without_an_attempt_left_its_batch_fails(self) -> None:
        errors: list[BaseException] = []
        handler = RecordingHandler[int](fail_when=lambda _: RetryAfter(60.0))
        config = BatchQueueConfig[int](
            consumer=handler, on_error=lambda _, error: errors.append(error)
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce(1)
        assert [type(error) for error in errors] == [RetryAfter]
        assert check_settled(queue).failed == 1


class TestSplitOn:
    async def test_one_error_is_retried_and_another_one_split(self) -> None:
        """The halves have all their attempts: a bad row is no outage."""

        def fails(batch: list[int]) -> Exception | None:
            if batch == [0, 1] and handler.batches.count(batch) < 3:
                return ConnectionError()
            return KeyError() if 3 in batch else None

        handler = RecordingHandler[int](fail_when=fails)
        told: list[list[int]] = []
        config = BatchQueueConfig[int](
            consumer=handler,
            retry=Retry(attempts=3, wait_initial=0, split_on=(LookupError,)),
            on_error=lambda batch, _: told.append(batch),
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(4))
        assert handler.batches == [[0, 1, 2, 3], *[[0, 1]] * 3, [2, 3], [2], [3]]
        assert told == [[3]]
        assert check_settled(queue).handled == 3

    @virtual
    async def test_the_halves_keep_to_the_deadline(self) -> None:
        def fails(batch: list[int]) -> Exception | None:
            return KeyError() if len(batch) > 1 else ConnectionError()

        handler = RecordingHandler[int](fail_when=fails)
        retry = Retry(1000, 1.0, 1.0, deadline=10.0, split_on=(KeyError,))
        config = BatchQueueConfig[int](
            consumer=handler, retry=retry, on_error=lambda _batch, _error: None
        )
        async with BatchQueue("q", config) as queue:
            await queue.produce_many(range(2))
            with pytest.raises(DeliveryError):
                await queue.flush()
        assert [0, 1] in handler.batches
        assert max(handler.times) - handler.times[0] <= 10.0
