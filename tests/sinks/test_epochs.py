"""Epochs as values, and the writer that knows which one is open."""

import asyncio
import pickle
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, asdict, astuple, replace
from typing import Any

import pytest

from batchqueue_async import BatchQueueError
from batchqueue_async.sinks import Epoch, EpochSink, EpochWriter
from tests.support.settle import settle

FIRST, SECOND = Epoch("query", 0), Epoch("query", 1)


class Memory:
    """A sink that remembers what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.is_closed = False

    async def begin(self, epoch: Epoch) -> None:
        self.calls.append(("begin", epoch.batch))

    async def write(self, epoch: Epoch, items: list[str]) -> None:
        self.calls.append(("write", epoch.batch, *items))

    async def commit(self, epoch: Epoch) -> None:
        self.calls.append(("commit", epoch.batch))

    async def abort(self, epoch: Epoch) -> None:
        self.calls.append(("abort", epoch.batch))

    async def is_committed(self, epoch: Epoch) -> bool:
        return ("commit", epoch.batch) in self.calls

    async def close(self) -> None:
        self.is_closed = True


def test_an_epoch_is_a_value() -> None:
    assert Epoch("query", 3) == Epoch(query="query", batch=3)
    assert {Epoch("query", 3): "found"}[Epoch("query", 3)] == "found"
    assert sorted([SECOND, FIRST]) == [FIRST, SECOND]
    assert str(SECOND) == "batch 1 of query query"
    with pytest.raises(FrozenInstanceError):
        FIRST.batch = 1  # type: ignore[misc]


def test_an_epoch_is_two_values_to_sinks_of_users_own() -> None:
    """Which pass `astuple` on to a statement; where it came from goes along."""
    epoch = Epoch("query", 3, checkpoint="id")
    assert astuple(epoch) == ("query", 3)
    assert asdict(epoch) == {"query": "query", "batch": 3}
    for same in (pickle.loads(pickle.dumps(epoch)), copy(epoch), deepcopy(epoch)):
        assert (same, same.checkpoint) == (epoch, "id")
    assert replace(epoch, batch=4) == Epoch("query", 4)
    with pytest.raises(FrozenInstanceError):
        epoch.checkpoint = None


@pytest.mark.parametrize(
    "query,batch,error,says",
    [
        ("", 0, ValueError, "query must be a name, got ''"),
        (None, 0, TypeError, "query must be a str, got None"),
        ("q\ud800", 0, ValueError, "query must be text that UTF-8 can write"),
        ("query", -1, ValueError, "batch must be >= 0, got -1"),
        ("query", 2**63, ValueError, f"batch must be <= {2**63 - 1}, got {2**63}"),
        ("query", 1.0, TypeError, "batch must be an int, got 1.0"),
        ("query", True, TypeError, "batch must be an int, got True"),
    ],
)
def test_a_wrong_epoch_is_refused(
    query: Any,  # noqa: ANN401
    batch: Any,  # noqa: ANN401
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error, match=says):
        Epoch(query, batch)


async def test_nothing_gets_past_the_fence() -> None:
    sink = Memory()
    writer = EpochWriter(sink)
    assert isinstance(writer, EpochSink)
    with pytest.raises(BatchQueueError, match="no epoch is open: 2 items"):
        await writer.consume(["a", "b"])

    await writer.begin(FIRST)
    await writer.consume(["a"])
    assert writer.epoch == FIRST
    assert writer.written == 1
    await writer.commit(FIRST)

    with pytest.raises(BatchQueueError, match="no epoch is open"):
        await writer.consume(["late"])
    assert sink.calls == [("begin", 0), ("write", 0, "a"), ("commit", 0)]


async def test_what_comes_after_an_abort_is_dropped_until_the_next_attempt() -> None:
    sink = Memory()
    writer = EpochWriter(sink)
    await writer.begin(FIRST)
    await writer.abort(FIRST)
    await writer.consume(["from a cache"])
    await writer.begin(FIRST)
    await writer.write(FIRST, ["again"])

    calls = [("begin", 0), ("abort", 0), ("begin", 0), ("write", 0, "again")]
    assert sink.calls == calls
    assert not await writer.is_committed(FIRST)


async def test_one_epoch_is_open_at_a_time() -> None:
    writer = EpochWriter(Memory())
    await writer.begin(FIRST)
    with pytest.raises(BatchQueueError, match=r"batch 0 .* is open: batch 1"):
        await writer.begin(SECOND)


async def test_who_begins_while_another_begins_is_refused() -> None:
    """Else one of them would take the other's rows, and nobody would be told."""
    begins = asyncio.Event()

    class Slow(Memory):
        async def begin(self, epoch: Epoch) -> None:
            await begins.wait()
            await super().begin(epoch)

    writer = EpochWriter(Slow())
    first = asyncio.create_task(writer.begin(FIRST))
    await settle()
    with pytest.raises(BatchQueueError, match=r"batch 0 .* is open: batch 1 .* each"):
        await writer.begin(SECOND)
    begins.set()
    await first
    assert writer.epoch == FIRST


async def test_who_was_refused_leaves_the_open_epoch_as_it_is() -> None:
    writer = EpochWriter(Memory())
    await writer.begin(FIRST)
    with pytest.raises(BatchQueueError, match="is open"):
        await writer.begin(SECOND)
    await writer.abort(SECOND)
    await writer.consume(["a"])
    await writer.commit(FIRST)

    with pytest.raises(BatchQueueError, match="no epoch is open"):
        await writer.consume(["late"])


async def test_a_begin_that_failed_holds_nobody_up() -> None:
    class Refusing(Memory):
        async def begin(self, epoch: Epoch) -> None:
            if epoch == FIRST:
                raise OSError
            await super().begin(epoch)

    writer = EpochWriter(Refusing())
    with pytest.raises(OSError):  # noqa: PT011  # its class says all
        await writer.begin(FIRST)
    await writer.begin(SECOND)
    assert writer.epoch == SECOND


async def test_the_sink_is_closed_with_the_queue() -> None:
    sink = Memory()
    await EpochWriter(sink).on_close()
    assert sink.is_closed


def test_a_writer_needs_a_sink() -> None:
    for wrong in (None, object(), Memory):
        with pytest.raises(TypeError, match="sink must be an EpochSink, got"):
            EpochWriter(wrong)  # type: ignore[arg-type]
