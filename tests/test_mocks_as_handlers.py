"""A `Mock` is what most tests pass as a handler: it makes up any attribute."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock, NonCallableMock, create_autospec

import pytest

from batchqueue_async import BatchQueue, BatchQueueConfig, in_thread
from batchqueue_async.logging import BatchingHandler
from batchqueue_async.ring import Disruptor
from batchqueue_async.simulation import measure
from tests.ring.events import Event, fill

MOCKS = [Mock, MagicMock, AsyncMock]


class Sink:
    """A handler as programs have it, with one of the hooks."""

    async def consume(self, batch: list[int]) -> None: ...

    async def on_flush(self) -> None: ...


def calls_of(mock: Mock) -> list[str]:
    """Return which of its methods were called, without those such as `__eq__`."""
    return [name for name, *_ in mock.mock_calls if "__" not in name]


async def handled_by(consumer: Any) -> None:  # noqa: ANN401 - a mock of any kind
    async with BatchQueue("mocked", BatchQueueConfig(consumer=consumer)) as queue:
        await queue.produce_many([1, 2, 3])
        await queue.flush()


@pytest.mark.parametrize("kind", MOCKS)
async def test_a_mock_is_a_consumer(kind: type[Mock]) -> None:
    mock = kind()
    await handled_by(mock)
    mock.assert_called_once_with([1, 2, 3])
    assert calls_of(mock) == [""], "none of its hooks was called"


@pytest.mark.parametrize("kind", MOCKS)
async def test_a_mock_is_a_handler_of_a_type(kind: type[Mock]) -> None:
    mock = kind(side_effect=[ValueError, None])
    async with BatchQueue[int]("mocked") as queue:
        queue.add_handler(int, mock)
        await queue.produce(1)
    mock.assert_called_once_with([1])
    assert queue.stats().failed == 1


async def test_a_mock_has_the_methods_that_were_set() -> None:
    mock = Mock()
    mock.consume = AsyncMock()
    mock.on_flush.return_value = None
    await handled_by(mock)
    mock.consume.assert_awaited_once_with([1, 2, 3])
    assert calls_of(mock) == ["consume", "on_flush"]


@pytest.mark.parametrize(
    "mock", [Mock(Sink), create_autospec(Sink, instance=True)], ids=["spec", "autospec"]
)
async def test_a_mock_has_the_methods_of_its_spec(mock: Mock) -> None:
    await handled_by(mock)
    assert calls_of(mock) == ["consume", "on_flush"]


async def test_a_mock_that_cannot_be_called_needs_a_consume() -> None:
    with pytest.raises(TypeError, match="callable or have a consume method"):
        BatchQueueConfig[int](consumer=NonCallableMock())
    mock = NonCallableMock(consume=AsyncMock())
    await handled_by(mock)
    mock.consume.assert_awaited_once_with([1, 2, 3])


@pytest.mark.real_time
async def test_a_mock_runs_in_a_thread() -> None:
    mock = Mock()
    await handled_by(in_thread(mock))
    mock.assert_called_once_with([1, 2, 3])


@pytest.mark.real_time
def test_a_mock_is_the_target_of_a_log_handler() -> None:
    mock = Mock()
    handler = BatchingHandler(mock)
    handler.handle(logging.makeLogRecord({"msg": "hello"}))
    handler.close()
    mock.assert_called_once()


class Remote:
    """A method of another program's, as `xmlrpc` and other libraries make them up."""

    def __init__(self, received: list[object]) -> None:
        self._received = received

    def __getattr__(self, name: str) -> Remote:
        if name.startswith("__") and name != "__qualname__":
            raise AttributeError(name)
        return Remote(self._received)

    def __call__(self, batch: list[object]) -> None:
        self._received += batch


@pytest.mark.real_time
@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_a_handler_that_makes_names_up_has_that_of_its_class(
    *, is_wrapped: bool
) -> None:
    """A page of metrics failed as a whole."""
    received: list[object] = []
    remote = Remote(received)
    handler: Any = in_thread(remote) if is_wrapped else remote
    async with BatchQueue("q", BatchQueueConfig(consumer=handler)) as queue:
        await queue.produce_many([1, 2])
    assert received == [1, 2]
    name = "in_thread(Remote)" if is_wrapped else "Remote"
    assert queue.stats().handlers[0].name == name


async def test_a_mock_is_measured() -> None:
    mock = AsyncMock()
    await measure(mock, [1], sizes=[1], calls=2)
    assert mock.await_count == 3


@pytest.mark.parametrize("kind", MOCKS)
async def test_a_mock_is_a_handler_of_a_ring(kind: type[Mock]) -> None:
    mock, of_batches, on_error = kind(side_effect=[None, ValueError]), Mock(), kind()
    of_batches.on_batch = AsyncMock()
    disruptor = Disruptor(Event, 4)
    disruptor.handle_events_with(mock).then(of_batches)
    disruptor.handle_exceptions_with(on_error)
    async with disruptor as ring:
        await ring.publish_events(fill, "ab")
    assert [call.args for call in mock.call_args_list] == [
        (ring[0], 0, False),
        (ring[1], 1, True),
    ]
    on_error.assert_called_once()
    of_batches.on_batch.assert_awaited_once_with([ring[0], ring[1]], 0)


async def test_a_mock_fills_a_slot() -> None:
    disruptor, filling = Disruptor(Event, 4), MagicMock()
    disruptor.handle_events_with(Mock())
    async with disruptor as ring:
        await ring.publish_event(filling, "a")
        await asyncio.sleep(0)
    filling.assert_called_once_with(ring[0], 0, "a")
