"""What a handler returns may be a generator, or a coroutine, of a type of others."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, NoReturn

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


class Generated(Generator[int, Any, None]):
    """As Cython's, it is registered as a generator, and `inspect` does not know it."""

    def send(self, _: object) -> NoReturn:
        raise StopIteration

    def throw(self, *_: object) -> NoReturn:
        raise StopIteration


class GeneratedAsync(AsyncGenerator[int, Any]):
    async def asend(self, _: object) -> NoReturn:
        raise StopAsyncIteration

    async def athrow(self, *_: object) -> NoReturn:
        raise StopAsyncIteration


class Request(Coroutine[Any, Any, None]):
    """As aiohttp's, and Cython's coroutines: it runs when somebody awaits it."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield

    def send(self, _: object) -> NoReturn:
        raise StopIteration

    def throw(self, *_: object) -> NoReturn:
        raise StopIteration

    def close(self) -> None: ...


def generates(_: list[int]) -> object:
    return Generated()


def generates_async(_: list[int]) -> object:
    return GeneratedAsync()


each_kind = pytest.mark.parametrize("handler", [generates, generates_async])


async def failed(consumer: Any) -> None:  # noqa: ANN401 - what is no handler
    config = BatchQueueConfig[int](consumer=consumer, on_error=lambda _, __: None)
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(1)
    stats = check_settled(queue)
    assert (stats.handled, stats.failed) == (0, 1)


@every_loop
@each_kind
async def test_none_of_it_counts_as_handled(handler: Callable[[Any], object]) -> None:
    """Nothing of its body had run, and its batch counted as handled."""
    await failed(handler)


@pytest.mark.real_time
@each_kind
@pytest.mark.parametrize("wrap", [in_thread, in_process])
async def test_none_of_it_counts_as_handled_elsewhere(
    handler: Callable[[Any], Any], wrap: Callable[..., Any]
) -> None:
    await failed(wrap(handler))


@each_kind
async def test_none_of_it_is_handed_on(handler: Callable[[Any], object]) -> None:
    merging = Merging[int](key=int, merge=min, then=handler, every=3600)
    async with BatchQueue("q", BatchQueueConfig(consumer=merging)) as queue:
        assert await queue.produce(1)
        with pytest.raises(DeliveryError, match="then must be no generator function"):
            await queue.flush()
        assert merging.held == 1


@every_loop
@pytest.mark.parametrize("handler_timeout", [None, 1.0])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_request_that_nobody_awaits_never_counts_as_handled(
    handler_timeout: float | None, *, waits: bool
) -> None:
    """`return session.post(...)`: it was never sent."""

    async def forgets_await(_: list[int]) -> object:
        if waits:
            await asyncio.sleep(0)
        return Request()

    told: list[str] = []
    config = BatchQueueConfig[int](
        consumer=forgets_await,
        handler_timeout=handler_timeout,
        on_error=lambda _, error: told.append(str(error)),
    )
    async with BatchQueue("q", config) as queue:
        assert await queue.produce(1)
    why = (
        "an async handler must await what it calls, "
        "got the coroutine Request as its result, which nothing runs"
    )
    assert told == [why]
    assert check_settled(queue).failed == 1
