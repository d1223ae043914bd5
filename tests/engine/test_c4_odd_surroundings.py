"""C4: what surrounds the queue is odd or broken, and no drain task ends by it."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from batchqueue_async import (
    BatchQueue,
    BatchQueueConfig,
    DeliveryError,
    PartitionPolicy,
)
from tests.engine.every_loop import every_loop
from tests.engine.until import turns
from tests.support.oracle import check_settled

pytestmark = every_loop


class Unhashable(type):
    """A metaclass that defines equality, and so takes hashing away."""

    def __eq__(cls, other: object) -> bool:
        return cls is other

    __hash__ = None  # type: ignore[assignment]


class Incomparable(type):
    """A metaclass whose equality raises."""

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError

    def __hash__(cls) -> int:
        return 7


class Row(metaclass=Unhashable):
    """Its type is in no dict."""


class Cell(metaclass=Incomparable):
    """Its type finds nothing in a dict."""


class Other(metaclass=Incomparable):
    """Has the same hash."""


@pytest.mark.parametrize("items", [[Row()], [Cell(), Other()]], ids=["hash", "eq"])
async def test_items_of_odd_types_go_to_the_handler_of_their_base(
    items: list[object],
) -> None:
    received: list[object] = []
    async with BatchQueue[object]("q") as queue:
        queue.add_handler(object, received.extend)
        assert await queue.produce_many([1, *items, 2]) == 2 + len(items)
        await queue.flush()
        assert await queue.produce(3)
    assert received == [1, *items, 2, 3]
    assert check_settled(queue).handled == len(received)


@pytest.mark.parametrize("items", [[Row()], [Cell(), Other()]], ids=["hash", "eq"])
async def test_without_a_handler_they_are_unhandled(
    items: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    received: list[int] = []
    async with BatchQueue[Any]("q") as queue:
        queue.add_handler(int, received.extend)
        await queue.produce_many([1, *items, 2])
        with pytest.raises(DeliveryError):
            await queue.flush()
    assert received == [1, 2]
    assert check_settled(queue).unhandled == len(items)
    assert "no handler for items of type" in caplog.text


@pytest.mark.parametrize("count", [1, 30])
async def test_a_chunk_that_raises_leaves_nothing_to_the_next(count: int) -> None:
    """Several partitions need a dict of types, and this type is in no dict."""
    received: list[object] = []
    config = BatchQueueConfig[object](partitions=PartitionPolicy.fixed(4))
    async with BatchQueue("q", config) as queue:
        for item_type in (int, str):
            queue.add_handler(item_type, received.extend)
        await queue.produce_many([0, "zero"] * count)
        with pytest.raises(TypeError, match="unhashable"):
            await queue.produce_many([*[1, "one"] * count, Row()])
        await queue.flush()
        before = len(received)
        assert await queue.produce_many([2, "two"] * count) == 2 * count
    assert sorted(map(str, received[before:])) == ["2"] * count + ["two"] * count
    assert check_settled(queue).handled == len(received)


class Broken(logging.Handler):
    """Raises where `logging`'s own handlers print."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError


@pytest.fixture
def broken_log() -> Iterator[None]:
    handler = Broken()
    log = logging.getLogger("batchqueue_async")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


@pytest.mark.usefixtures("broken_log")
async def test_a_log_that_raises_harms_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def consume(batch: list[int]) -> None:
        if 1 in batch:
            raise ValueError

    async with BatchQueue("q", BatchQueueConfig[Any](max_batch=1)) as queue:
        queue.add_handler(int, consume)
        await queue.produce_many([1, "nobody's", 2])
        with pytest.raises(DeliveryError):
            await queue.flush()
    stats = check_settled(queue)
    assert (stats.handled, stats.failed, stats.unhandled) == (1, 1, 1)
    assert "OSError" in capsys.readouterr().err, "and is not silent"


async def test_a_record_names_the_line_that_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with BatchQueue[Any]("q") as queue:
        await queue.produce("nobody's")
    assert [record.filename for record in caplog.records] == ["drops_and_unhandled.py"]


async def test_all_tasks_are_cancelled_and_the_loop_lives_on() -> None:
    """As a program may do that thinks it ends; then producing goes on."""
    received: list[int] = []
    async with BatchQueue[int]("q") as queue:
        queue.add_handler(int, received.extend)
        await queue.produce(1)
        await queue.flush()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await turns()
        await queue.produce(2)
        await queue.flush(timeout=5.0)
    assert received == [1, 2]
    check_settled(queue)


class Proxy:
    """Stands for something that cannot be had, as lazy proxies may."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise LookupError


async def test_a_failed_item_is_told_of_without_being_asked_for_its_class() -> None:
    async with BatchQueue[Proxy]("q") as queue:
        await queue.produce(Proxy())
        with pytest.raises(DeliveryError) as caught:
            await queue.flush()
    assert str(caught.value) == "1 failure in queue 'q'; first: unhandled a Proxy"
    assert check_settled(queue).unhandled == 1


class Untraceable(Exception):
    """Its attributes are those of the other side's error, which is away."""

    @property
    def __traceback__(self) -> None:  # type: ignore[override]
        raise ConnectionError

    __cause__ = __context__ = __traceback__


class Homeless(Exception):
    """Its module is none."""

    __module__ = bytearray()  # type: ignore[assignment]


class Secretive(ExceptionGroup[ValueError]):
    """Shows none of its errors."""

    @property
    def exceptions(self) -> Any:  # noqa: ANN401 - never returns
        raise ConnectionError


ODD = [Untraceable(), Homeless(), Secretive("all", [ValueError()])]


@pytest.mark.parametrize("error", ODD)
async def test_an_odd_error_is_told_like_any_other(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: list[int]) -> None:
        raise error

    async with BatchQueue("q", BatchQueueConfig(consumer=fail)) as queue:
        await queue.produce_many([1, 2])
        with pytest.raises(DeliveryError) as told:
            await queue.flush(5)
    assert [each.error for each in told.value.failures] == [error, error]
    assert check_settled(queue).failed == 2
    assert [each.message for each in caplog.records] == [
        f"q: 2 items failed in {fail.__qualname__}"
    ]
