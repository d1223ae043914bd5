"""What a handler returns may be work that nobody waits for, or that never begins."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    Merging,
    in_process,
    in_thread,
)
from tests.engine.every_loop import every_loop
from tests.support.oracle import check_settled

Handler = Callable[[list[int]], Any]
each_timeout = pytest.mark.parametrize("handler_timeout", [None, 1.0])


class Query(Awaitable[None]):
    """As those of some drivers: it is sent when somebody awaits it."""

    def __await__(self) -> Generator[Any, None, None]:
        yield


async def told_of(consumer: Handler, handler_timeout: float | None) -> list[str]:
    """Return what `on_error` is told; nothing may count as handled then."""
    told: list[str] = []
    config = BatchQueueConfig[int](
        consumer=consumer,
        handler_timeout=handler_timeout,
        on_error=lambda _, error: told.append(str(error)),
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(1)
    stats = check_settled(queue)
    assert (stats.handled, stats.failed) == (1 - len(told), len(told))
    return told


def query(_: list[int]) -> object:
    return Query()


def of_a_pool(_: list[int]) -> object:
    return Future[None]()


def generated(batch: list[int]) -> object:
    return (str(each) for each in batch)


def generated_async(batch: list[int]) -> object:
    async def each() -> Any:  # noqa: ANN401
        for one in batch:
            yield one

    return each()


def mapped(batch: list[int]) -> object:
    return map(print, batch)


def filtered(batch: list[int]) -> object:
    return filter(print, batch)


@every_loop
@each_timeout
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "returned, what",
    [
        (query, "a Query as its result, which nobody awaits"),
        (of_a_pool, "a Future as its result, which nobody runs, or waits for"),
        (generated, "a generator as its result, which nobody runs, or waits for"),
        (
            generated_async,
            "an async_generator as its result, which nobody runs, or waits for",
        ),
        (mapped, "a map as its result, which nobody runs, or waits for"),
        (filtered, "a filter as its result, which nobody runs, or waits for"),
    ],
)
async def test_what_an_async_handler_does_not_await_never_counts_as_handled(
    returned: Handler, what: str, handler_timeout: float | None, *, waits: bool
) -> None:
    """An `await` forgotten in front of a driver's call: its items were lost."""

    async def forgets_await(batch: list[int]) -> object:
        if waits:
            await asyncio.sleep(0)
        return returned(batch)

    told = await told_of(forgets_await, handler_timeout)
    assert told == [f"an async handler must await what it calls, got {what}"]


@every_loop
@pytest.mark.parametrize(
    "handler, what",
    [(of_a_pool, "a Future"), (mapped, "a map"), (filtered, "a filter")],
)
async def test_what_a_handler_leaves_undone_never_counts_as_handled(
    handler: Handler, what: str
) -> None:
    """`lambda batch: pool.submit(write, batch)`: its error was told to nobody."""
    told = await told_of(handler, None)
    why = "a handler must do its work before it returns"
    assert told == [f"{why}, got {what} as its result"]


@pytest.mark.real_time
@pytest.mark.parametrize("wrap", [in_thread, in_process])
@pytest.mark.parametrize("handler", [of_a_pool, mapped])
async def test_the_same_elsewhere(handler: Handler, wrap: Callable[..., Any]) -> None:
    (told,) = await told_of(wrap(handler), None)
    assert told.startswith("handler must be blocking to run in a ")
    assert told.endswith((", it returned a Future", ", it returned a map"))


async def test_the_same_for_what_takes_merged_items() -> None:
    merging = Merging[int](key=int, merge=min, then=mapped, every=3600)
    async with BatchQueue("q", BatchQueueConfig(consumer=merging)) as queue:
        assert await queue.produce(1)
        with pytest.raises(DeliveryError, match="got a map as its result"):
            await queue.flush()
        assert merging.held == 1


@every_loop
@each_timeout
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "future", [asyncio.Future[None], Future[None]], ids=["asyncio's", "a pool's"]
)
async def test_a_future_that_is_done_may_be_returned(
    future: Callable[[], Any], handler_timeout: float | None, *, is_async: bool
) -> None:
    def returns_it(_: list[int]) -> object:
        done = future()
        done.set_result(None)
        return done

    async def awaits_it(batch: list[int]) -> object:
        return returns_it(batch)

    handler: Handler = awaits_it if is_async else returns_it
    assert await told_of(handler, handler_timeout) == []


@every_loop
@each_timeout
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_future_that_a_handler_returns_is_awaited(
    handler_timeout: float | None, *, is_async: bool, waits: bool
) -> None:
    """As Motor's calls return one: its error was told to nobody."""
    ended: list[int] = []

    async def store(batch: list[int]) -> None:
        await asyncio.sleep(0.01)
        ended.extend(batch)
        if batch == [2]:
            raise ValueError(batch)

    def begins(batch: list[int]) -> object:
        return asyncio.ensure_future(store(batch))

    async def forgets_await(batch: list[int]) -> object:
        if waits:
            await asyncio.sleep(0)
        return begins(batch)

    told: list[tuple[list[int], str]] = []
    config = BatchQueueConfig[int](
        consumer=forgets_await if is_async else begins,
        handler_timeout=handler_timeout,
        max_batch=1,
        on_error=lambda items, error: told.append((items, repr(error))),
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce_many([1, 2, 3]) == 3
        with pytest.raises(DeliveryError):
            await queue.flush()
        assert ended == [1, 2, 3]
    assert told == [([2], "ValueError([2])")]
    assert check_settled(queue).handled == 2


@every_loop
async def test_a_future_that_a_handler_returns_has_its_timeout_and_holds_up_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While it is awaited the loop is free, so nothing is told of one held up."""
    never: list[asyncio.Future[None]] = []

    async def returns_it(_: list[int]) -> object:
        never.append(asyncio.get_running_loop().create_future())
        return never[0]

    (told,) = await told_of(returns_it, 0.2)
    assert "handler_timeout=0.2" in told
    assert never[0].cancelled()
    assert [each.levelname for each in caplog.records] == []


async def test_coroutines_that_futures_lead_to_are_refused() -> None:
    async def store() -> None: ...

    async def returns_it(_: list[int]) -> object:
        later = asyncio.get_running_loop().create_future()
        later.set_result(store())
        return later

    (told,) = await told_of(returns_it, None)
    assert "got the coroutine" in told
