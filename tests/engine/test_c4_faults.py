"""C4: whatever the caller's code raises harms no other item and no drain task."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    DrainTaskPolicy,
    IdleBackoff,
    PartitionPolicy,
    Retry,
    by_key,
    fair_by,
)
from batchqueue_async.testing import RecordingHandler
from tests.engine.every_loop import every_loop
from tests.engine.until import turns, until
from tests.support.oracle import check_accounts, check_settled
from tests.support.own_lines import own_lines

pytestmark = every_loop

QUICK = IdleBackoff(0.001, 0.002)
PATIENCE = 3.0


class Odd(BaseException):
    """Not an Exception, as those of some libraries aren't."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


ERRORS: list[Callable[[], BaseException]] = [
    ValueError,
    Unprintable,
    TimeoutError,
    StopIteration,
    StopAsyncIteration,
    asyncio.CancelledError,
    Odd,
    lambda: BaseExceptionGroup("several", [Odd(), asyncio.CancelledError()]),
]


def raiser(error: BaseException) -> Callable[[list[Any]], None]:
    def consume(batch: list[Any]) -> None:
        raise error

    return consume


def async_raiser(error: BaseException) -> Callable[[list[Any]], Any]:
    async def consume(batch: list[Any]) -> None:
        await asyncio.sleep(0)
        raise error

    return consume


# --- handlers


@pytest.mark.parametrize("make", [raiser, async_raiser])
@pytest.mark.parametrize("make_error", ERRORS)
@pytest.mark.parametrize("handler_timeout", [None, 1.0])
async def test_a_failing_handler_fails_its_own_batch_alone(
    make: Callable[[BaseException], Any],
    make_error: Callable[[], BaseException],
    handler_timeout: float | None,
) -> None:
    """The cycle's other handlers run, and so does the next cycle."""
    failed: list[list[Any]] = []
    before, after = RecordingHandler[Any](), RecordingHandler[Any]()
    config = BatchQueueConfig[Any](
        on_error=lambda batch, _: failed.append(batch), handler_timeout=handler_timeout
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(bytes, before)
        queue.add_handler(int, make(make_error()))
        queue.add_handler(str, after)
        assert await queue.produce_many([b"1", 2, "3", 4]) == 4
        await until(lambda: queue.stats().in_flight == queue.stats().waiting == 0)
        assert await queue.produce_many([b"5", 6, "7"]) == 3
        await until(lambda: queue.stats().in_flight == queue.stats().waiting == 0)
    assert failed == [[2, 4], [6]]
    assert (before.items, after.items) == ([b"1", b"5"], ["3", "7"])
    stats = check_settled(queue)
    assert (stats.handled, stats.failed) == (4, 3)


@pytest.mark.parametrize("make", [raiser, async_raiser])
async def test_a_handler_that_raises_generator_exit_does_not_end_the_draining(
    make: Callable[[BaseException], Any],
) -> None:
    """Python ends coroutines with it, and yet it may be the handler's own."""
    async with BatchQueue("q", BatchQueueConfig[Any](on_error=ignore_error)) as queue:
        queue.add_handler(int, make(GeneratorExit()))
        queue.add_handler(str, RecordingHandler())
        assert await queue.produce(1)
        await turns()
        assert await queue.produce("text")
        await until(lambda: queue.stats().handled == 1)
    assert check_settled(queue).failed == 1


async def test_nor_does_a_task_of_a_handler_that_raises_it() -> None:
    """Thrown into a coroutine, it closes all that waits within before it is raised."""

    async def consume(batch: list[int]) -> None:
        await asyncio.create_task(async_raiser(GeneratorExit())(batch))

    handler = RecordingHandler[str]()
    async with BatchQueue("q", BatchQueueConfig[Any](on_error=ignore_error)) as queue:
        queue.add_handler(int, consume)
        queue.add_handler(str, handler)
        started = asyncio.get_running_loop().time()
        assert await queue.produce_many([1, "text", 2]) == 3
        await until(lambda: queue.stats().in_flight == queue.stats().waiting == 0)
        # It is a failure like any other: there is nothing to wait for.
        assert asyncio.get_running_loop().time() - started < 1.0
        assert handler.items == ["text"]
    assert check_settled(queue).failed == 2


async def test_a_failing_group_of_tasks_is_an_error_like_any_other() -> None:
    """A `TaskGroup` cancels the task that it is in, and takes that back."""

    async def consume(batch: list[int]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(PATIENCE))
            group.create_task(async_raiser(ValueError())(batch))

    async with BatchQueue("q", BatchQueueConfig[int](on_error=ignore_error)) as queue:
        queue.add_handler(int, consume)
        for item in range(3):
            assert await queue.produce(item)
            await until(lambda: queue.stats().failed == item + 1)  # noqa: B023


async def test_a_handlers_own_timeout_is_an_error_like_any_other() -> None:
    async def consume(batch: list[int]) -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(PATIENCE)

    async with BatchQueue("q", BatchQueueConfig[int](on_error=ignore_error)) as queue:
        queue.add_handler(int, consume)
        for item in range(3):
            assert await queue.produce(item)
            await until(lambda: queue.stats().failed == item + 1)  # noqa: B023


def ignore_error(_: list[Any], __: BaseException) -> None:
    """Handle an error."""


@pytest.mark.parametrize("handler_timeout", [None, 1.0])
async def test_a_handler_that_cancels_its_task_does_not_end_the_draining(
    handler_timeout: float | None,
) -> None:
    """By mistake: nothing outside has asked the drain task to end."""

    async def consume(batch: list[int]) -> None:
        task = asyncio.current_task()
        if batch == [0] and task is not None:
            task.cancel()
        await asyncio.sleep(0)

    config = BatchQueueConfig[int](
        on_error=ignore_error, handler_timeout=handler_timeout
    )
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce(0)
        await turns()
        assert await queue.produce(1)
        await until(lambda: queue.stats().handled >= 1)
        await until(lambda: queue.stats().in_flight == 0)
    assert check_settled(queue).accepted == 2


@pytest.mark.parametrize("handler_timeout", [None, 1.0])
async def test_a_handler_that_returns_has_handled_its_batch_whatever_it_cancelled(
    handler_timeout: float | None,
) -> None:
    """With a timeout it failed, or came again: the task was cancelled, not the call."""
    batches: list[list[int]] = []
    closed: list[str] = []

    def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    class Handler:
        async def consume(self, batch: list[int]) -> None:
            await asyncio.sleep(0)
            batches.append(batch)
            cancel()

        async def on_close(self) -> None:
            closed.append("on_close")
            cancel()

    config = BatchQueueConfig[int](
        consumer=Handler(),
        handler_timeout=handler_timeout,
        retry=Retry(attempts=3, wait_initial=0),
    )
    async with BatchQueue("q", config) as queue:
        await queue.produce(1)
        await queue.flush()
        await queue.produce(2)
    assert batches == [[1], [2]]
    assert check_settled(queue).handled == 2
    assert (closed, queue.stats().not_closed) == (["on_close"], ())


async def test_without_on_error_a_failure_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue("metrics", BatchQueueConfig[Any]()) as queue:
        queue.add_handler(int, raiser(ValueError("what happened")))
        assert await queue.produce_many([1, 2, 3]) == 3
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.name == "batchqueue_async"
    assert "metrics" in record.getMessage()
    assert "3" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "what happened"


async def test_with_on_error_a_failure_is_not_logged_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = BatchQueueConfig[Any](on_error=ignore_error)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, raiser(ValueError()))
        assert await queue.produce(1)
    assert not own_lines(caplog.records)


async def test_a_failed_batch_is_in_flight_until_on_error_is_done() -> None:
    gate = asyncio.Event()
    entered = asyncio.Event()

    async def on_error(_: list[int], __: BaseException) -> None:
        entered.set()
        await gate.wait()

    async with BatchQueue("q", BatchQueueConfig[int](on_error=on_error)) as queue:
        queue.add_handler(int, raiser(ValueError()))
        assert await queue.produce(1)
        await entered.wait()
        stats = check_accounts(queue)
        assert (stats.in_flight, stats.failed) == (1, 0)
        gate.set()
    assert check_settled(queue).failed == 1


# --- the list that a handler gets


async def test_a_batch_is_the_handlers_to_keep_and_to_change() -> None:
    kept: list[list[int]] = []
    failed: list[list[int]] = []

    def consume(batch: list[int]) -> None:
        kept.append(batch)
        if len(kept) == 1:
            batch.clear()
            raise ValueError

    config = BatchQueueConfig[int](on_error=lambda batch, _: failed.append(batch))
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, consume)
        assert await queue.produce_many([1, 2]) == 2
        await until(lambda: failed)
        assert await queue.produce(3)
    assert failed == [[1, 2]]
    assert kept == [[], [3]]


# --- on_error


@pytest.mark.parametrize("make_error", ERRORS)
async def test_a_failing_on_error_is_logged_and_harms_nobody(
    make_error: Callable[[], BaseException],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An exception that can't be printed makes `logging` complain, not the queue.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    other = RecordingHandler[Any]()

    def on_error(_: list[Any], __: BaseException) -> None:
        raise make_error()

    async with BatchQueue("q", BatchQueueConfig[Any](on_error=on_error)) as queue:
        queue.add_handler(int, raiser(ValueError("first")))
        queue.add_handler(str, other)
        for round_ in range(2):
            assert await queue.produce_many([1, "text"]) == 2
            await until(lambda: queue.stats().failed == round_ + 1)  # noqa: B023
    assert other.items == ["text", "text"]
    levels = [record.levelno for record in own_lines(caplog.records)]
    assert levels == [logging.ERROR] * 2


async def test_a_failing_on_error_does_not_hide_the_first_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def on_error(_: list[Any], __: BaseException) -> None:
        message = "second"
        raise ValueError(message)

    async with BatchQueue("q", BatchQueueConfig[Any](on_error=on_error)) as queue:
        queue.add_handler(int, raiser(ValueError("first")))
        assert await queue.produce(1)
    assert "first" in caplog.text
    assert "second" in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
async def test_on_error_may_be_sync_or_async(*, is_async: bool) -> None:
    seen: list[tuple[list[int], BaseException]] = []

    def sync(batch: list[int], error: BaseException) -> None:
        seen.append((batch, error))

    async def async_(batch: list[int], error: BaseException) -> None:
        await asyncio.sleep(0)
        seen.append((batch, error))

    error = ValueError()
    config = BatchQueueConfig[int](on_error=async_ if is_async else sync)
    async with BatchQueue("q", config) as queue:
        queue.add_handler(int, raiser(error))
        assert await queue.produce_many([1, 2]) == 2
    assert seen == [([1, 2], error)]


# --- hooks


@pytest.mark.parametrize("make_error", ERRORS)
async def test_a_failing_on_idle_is_logged_and_harms_nobody(
    make_error: Callable[[], BaseException],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    class Failing(RecordingHandler[Any]):
        async def on_idle(self) -> None:
            await super().on_idle()
            raise make_error()

    failing, other = Failing(), RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any](idle=QUICK)) as queue:
        queue.add_handler(int, failing)
        queue.add_handler(str, other)
        await until(lambda: failing.idle_calls > 2 and other.idle_calls > 1)
        assert await queue.produce_many([1, "text"]) == 2
    assert (failing.items, other.items) == ([1], ["text"])
    # Equal ones are logged once, and then counted.
    first, more = caplog.records
    assert first.exc_info
    assert f"{failing.idle_calls - 1} more times" in more.getMessage()


async def test_a_failing_on_flush_is_reported_to_who_flushes() -> None:
    class Failing(RecordingHandler[Any]):
        async def on_flush(self) -> None:
            message = "the buffer is lost"
            raise ValueError(message)

    handler = Failing()
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        queue.add_handler(int, handler)
        assert await queue.produce(1)
        with pytest.raises(DeliveryError, match="the buffer is lost"):
            await queue.flush()
        assert await queue.produce(2)
    assert handler.items == [1, 2]


async def test_a_failing_on_close_lets_the_others_close() -> None:
    class Failing(RecordingHandler[Any]):
        async def on_close(self) -> None:
            raise ValueError

    other = RecordingHandler[Any]()
    async with BatchQueue("q", BatchQueueConfig[Any]()) as queue:
        queue.add_handler(int, Failing())
        queue.add_handler(str, other)
    assert other.close_calls == 1


# --- selectors


def partitioned(
    selector: Callable[[Any, int], Any], partitions: int = 3
) -> BatchQueue[Any]:
    config = BatchQueueConfig[Any](
        partitions=PartitionPolicy.fixed(partitions),
        drain_tasks=DrainTaskPolicy.fixed(1),
        selector=selector,
        consumer=RecordingHandler[Any](),
    )
    return BatchQueue("q", config)


async def produce_by(call: str, queue: BatchQueue[Any], item: int) -> None:
    if call == "produce":
        await queue.produce(item)
    elif call == "produce_many":
        await queue.produce_many([item])
    else:
        queue.produce_nowait(item)


@pytest.mark.parametrize(
    "answer", [3, -1, 10**30, True, False, 1.0, "1", None, [1], NotImplemented]
)
@pytest.mark.parametrize("call", ["produce", "produce_nowait", "produce_many"])
async def test_a_selection_out_of_range_is_refused(answer: object, call: str) -> None:
    """The original's D11: it took whatever came, also negative."""
    async with partitioned(lambda _, __: answer) as queue:
        with pytest.raises((BatchQueueError, ValueError), match="selector") as caught:
            await produce_by(call, queue, 7)
        assert "2" in str(caught.value), "it tells the range"
        stats = check_accounts(queue)
        assert (stats.accepted, stats.rejected) == (0, 0)


async def test_a_selection_is_checked_with_one_partition_too() -> None:
    async with partitioned(lambda _, __: 1, partitions=1) as queue:
        with pytest.raises(BatchQueueError):
            await queue.produce(7)


@pytest.mark.parametrize("call", ["produce", "produce_nowait", "produce_many"])
async def test_a_failing_selector_raises_to_its_caller_alone(call: str) -> None:
    def selector(item: int, _: int) -> int:
        if item == 7:
            raise LookupError(item)
        return item % 3

    async with partitioned(selector) as queue:
        with pytest.raises(LookupError):
            await produce_by(call, queue, 7)
        assert await queue.produce(1)
        assert await queue.produce_many([2, 3]) == 2
    stats = check_settled(queue)
    assert (stats.accepted, stats.handled, stats.rejected) == (3, 3, 0)


async def test_a_selector_that_fails_midway_leaves_an_exact_account() -> None:
    """What was placed before stays; what came after is not accepted."""

    def selector(item: int, _: int) -> int:
        return 99 if item == 3 else 0

    async with partitioned(selector) as queue:
        consumer = queue.config.consumer
        with pytest.raises(BatchQueueError):
            await queue.produce_many([1, 2, 3, 4])
        await queue.flush()
        accepted = check_settled(queue).accepted
        assert isinstance(consumer, RecordingHandler)
        assert consumer.items == [1, 2][:accepted]


async def test_an_iterable_that_fails_midway_keeps_what_came_before() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError

    async with partitioned(lambda _, __: 0) as queue:
        with pytest.raises(LookupError):
            await queue.produce_many(items())
        await queue.flush()
    assert check_settled(queue).accepted == 2


@pytest.mark.parametrize("key", [[], {}, set(), bytearray(), ([],)])
async def test_by_key_refuses_an_unhashable_key(key: object) -> None:
    async with partitioned(by_key(lambda item: item[0])) as queue:
        with pytest.raises(TypeError, match="hashable"):
            await queue.produce((key, 1))
        assert await queue.produce(("fine", 1))
    assert check_settled(queue).accepted == 1


async def test_by_key_raises_what_its_function_raises() -> None:
    async with partitioned(by_key(lambda item: item["key"])) as queue:
        with pytest.raises(KeyError):
            await queue.produce({})
        assert await queue.produce({"key": 1})
    assert check_settled(queue).accepted == 1


@pytest.mark.parametrize("selector", [by_key, fair_by])
async def test_a_key_function_whose_next_finds_nothing_is_told(
    selector: Callable[[Callable[[Any], object]], Any],
) -> None:
    """A chunk's items were taken to end there: a ValueError said so of a `zip`."""
    keys = iter(range(3))
    async with partitioned(selector(lambda _: next(keys))) as queue:
        with pytest.raises(RuntimeError, match=r"^coroutine raised Stop") as raised:
            await queue.produce_many(range(20))
    accepted = getattr(raised.value, "accepted", None)
    assert check_settled(queue).accepted == accepted


async def test_by_key_takes_every_hashable_key() -> None:
    keys: list[object] = [
        None,
        -1,
        float("nan"),
        "",
        b"",
        (1, None),
        frozenset(),
        -(2**70),
        1.5,
    ]
    async with partitioned(by_key(lambda item: item)) as queue:
        assert await queue.produce_many(keys) == len(keys)
        assert await queue.produce_many(keys) == len(keys)
        counts = [each.accepted for each in queue.stats().partitions]
        assert all(count % 2 == 0 for count in counts), "equal keys went together"
    assert check_settled(queue).handled == 2 * len(keys)
