"""One partition through a queue, as Spark's thread takes it: rows in, rows out."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from batchqueue_async import (
    BatchQueueConfig,
    BatchQueueError,
    DeliveryError,
    LoopThread,
    Merging,
    SyncBatchQueue,
    WhenFull,
    in_thread,
)
from batchqueue_async.spark._calls.declared import DeclaredColumns, declare
from batchqueue_async.spark._emitting import Emit, OpenEmittingQueue, QueueTask
from batchqueue_async.spark.items import to_tuples
from tests.spark.worker_main import rows_flushed_one_by_one

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60)]


Handler: TypeAlias = Any
MakeHandler: TypeAlias = Callable[[Emit], Handler]


def in_batches(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, size):
        ids = range(start, min(rows, start + size))
        yield pa.record_batch({"id": pa.array(ids, pa.int64())})


def declared(*names: str) -> DeclaredColumns:
    columns = StructType([StructField(name, LongType()) for name in names])
    return declare(columns, None, "raise", "error")


def task(open_queue: OpenEmittingQueue[Any]) -> QueueTask:
    return QueueTask(open_queue, to_tuples, declared("id"))


def ids(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [row["id"] for batch in batches for row in batch.to_pylist()]


class Opening:
    """Opens a queue with one consumer, made with `emit`."""

    def __init__(self, make: MakeHandler, **config: Any) -> None:  # noqa: ANN401
        self._make = make
        self._config = {"buffer_size": 100, **config}

    def __call__(self, loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Any]:
        config = BatchQueueConfig[Any](consumer=self._make(emit), **self._config)
        return loop_thread.open("numbers", config)


def passing(emit: Emit) -> Handler:
    async def consume(items: list[tuple[int]]) -> None:
        for item in items:
            emit(item)

    return consume


def waiting(emit: Emit) -> Handler:
    async def consume(items: list[tuple[int]]) -> None:
        for item in items:
            await emit({"id": item[0]})

    return consume


def test_rows_leave_the_worker_s_buffer_before_others_are_waited_for() -> None:
    assert rows_flushed_one_by_one(task(Opening(waiting)), in_batches(25_000, 1000)) > 1


def on_a_thread(emit: Emit) -> Handler:
    def consume(items: list[tuple[int]]) -> None:
        for item in items:
            emit(item)

    return in_thread(consume)


@pytest.mark.parametrize("make", [passing, waiting, on_a_thread])
def test_what_is_emitted_comes_out_in_order(make: MakeHandler) -> None:
    made = task(Opening(make))(in_batches(25_000, 4_000))

    assert ids(made) == [*range(25_000)]


def test_a_stop_iteration_of_to_items_is_not_the_rows_end() -> None:
    def to_items(batch: pa.RecordBatch) -> list[tuple[int]]:
        first = batch.column(0)[0].as_py()
        return [next(row for row in batch.to_pylist() if first < 2_000)["id"]]

    made = QueueTask(Opening(passing), to_items, declared("id"))

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        ids(made(in_batches(4_000, 1_000)))


@pytest.mark.parametrize("make", [waiting, on_a_thread])
def test_ten_rows_out_for_each_row_in_never_block_each_other(make: MakeHandler) -> None:
    """The queue is full, the output is full, and one thread serves both."""

    def tenfold(emit: Emit) -> Handler:
        handler = make(emit)
        consume = handler if make is waiting else handler.consume

        async def each(items: list[tuple[int]]) -> None:
            await consume([item for item in items for _ in range(10)])

        return each

    made = task(Opening(tenfold, buffer_size=1))(in_batches(6_000, 6_000))

    assert len(ids(made)) == 60_000


def test_a_handler_that_waits_is_never_far_ahead_of_spark() -> None:
    emitted = []

    def thousandfold(emit: Emit) -> Handler:
        async def consume(items: list[tuple[int]]) -> None:
            for item in items:
                for _ in range(1_000):
                    await emit(item)
                    emitted.append(item)

        return consume

    rows = task(Opening(thousandfold))(in_batches(100, 100))
    taken = next(rows).num_rows

    # Beside the rows that were taken there is one full output.
    assert len(emitted) <= taken + 10_000
    assert taken + len(ids(rows)) == 100_000


def test_input_is_not_read_while_the_output_is_full() -> None:
    """Without `await`, what is emitted beyond that is what the queue holds."""
    read = []

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in in_batches(200_000, 1_000):
            read.append(batch.num_rows)
            yield batch

    rows = task(Opening(passing))(noted())
    taken = next(rows).num_rows

    assert sum(read) <= taken + 1_000
    assert taken + len(ids(rows)) == 200_000


class Held:
    """Emits what it holds when it is flushed, or closed."""

    def __init__(self, emit: Emit, when: str) -> None:
        self._emit = emit
        self._held: list[tuple[int]] = []
        setattr(self, when, self._hand_over)

    async def consume(self, items: list[tuple[int]]) -> None:
        self._held += items

    async def _hand_over(self) -> None:
        held, self._held = self._held, []
        for item in held:
            await self._emit(item)


@pytest.mark.parametrize("when", ["on_flush", "on_close"])
def test_what_is_held_back_comes_out_before_the_task_ends(when: str) -> None:
    made = task(Opening(lambda emit: Held(emit, when)))(in_batches(35_000, 5_000))

    assert ids(made) == [*range(35_000)]


def test_a_chain_is_flushed_through() -> None:
    def key(pair: tuple[int, int]) -> int:
        return pair[0]

    def add(old: tuple[int, int], new: tuple[int, int]) -> tuple[int, int]:
        return old[0], old[1] + new[1]

    def open_chain(loop_thread: LoopThread, emit: Emit) -> SyncBatchQueue[Any]:
        last: Any = Merging(key=key, merge=add, then=emit.many, every=3600)
        l2 = loop_thread.open("L2", handlers={tuple: last})
        first: Any = Merging(key=key, merge=add, then=l2.queue, every=3600)
        return loop_thread.open("L1", handlers={tuple: first})

    def pairs(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
        return ((number % 7, number) for (number,) in to_tuples(batch))

    chain = QueueTask(open_chain, pairs, declared("k", "total"))
    (made,) = chain(in_batches(1_000, 300))

    totals = {row["k"]: row["total"] for row in made.to_pylist()}
    assert totals == {k: sum(range(k, 1_000, 7)) for k in range(7)}


def failing(emit: Emit) -> Handler:
    async def consume(items: list[tuple[int]]) -> None:
        if (300,) in items:
            msg = "300 can't be handled"
            raise LookupError(msg)
        await passing(emit)(items)

    return consume


def test_a_handler_that_fails_fails_the_task_soon() -> None:
    read = []

    def noted() -> Iterator[pa.RecordBatch]:
        for batch in in_batches(100_000, 100):
            read.append(batch)
            yield batch

    with pytest.raises(
        DeliveryError, match=r"'numbers'; first: .*300 can't be"
    ) as told:
        ids(task(Opening(failing))(noted()))

    assert "\n" not in str(told.value)
    assert len(read) < 100


def test_no_thread_is_left_however_it_ends() -> None:
    before = threading.active_count()

    ids(task(Opening(passing))(in_batches(100, 100)))
    with pytest.raises(DeliveryError):
        ids(task(Opening(failing))(in_batches(1_000, 100)))
    for make in (passing, waiting, on_a_thread):
        rows = task(Opening(make))(in_batches(100_000, 1_000))
        assert next(rows).num_rows
        rows.close()  # type: ignore[attr-defined]

    # Those of pools for blocking calls end by themselves.
    ours = [t.name for t in threading.enumerate() if t.name.startswith("batchqueue")]
    assert not ours
    assert threading.active_count() <= before + 2


def test_a_handler_may_block_the_loop_of_its_task() -> None:
    def blocking(emit: Emit) -> Handler:
        async def consume(items: list[tuple[int]]) -> None:
            time.sleep(0.7)  # noqa: ASYNC251 - that is the point
            emit.many(items)

        return consume

    assert ids(task(Opening(blocking))(in_batches(10, 10))) == [*range(10)]


@pytest.mark.parametrize("make", [passing, waiting, on_a_thread])
def test_rows_that_nobody_wants_are_no_handler_s_failure(
    make: MakeHandler, caplog: pytest.LogCaptureFixture
) -> None:
    rows = task(Opening(make))(in_batches(50_000, 1_000))

    next(rows)
    rows.close()  # type: ignore[attr-defined]

    assert [record.getMessage() for record in caplog.records] == []


def test_a_row_that_does_not_fit_fails_the_task() -> None:
    def wrong(emit: Emit) -> Handler:
        async def consume(items: list[tuple[int]]) -> None:
            emit.many({"di": item[0]} for item in items)

        return consume

    with pytest.raises(ValueError, match="has no 'id'; the schema is id"):
        ids(task(Opening(wrong))(in_batches(10, 10)))


def test_nothing_can_be_emitted_after_the_task() -> None:
    kept = []

    def keeping(emit: Emit) -> Handler:
        kept.append(emit)
        return passing(emit)

    assert ids(task(Opening(keeping))(in_batches(3, 3))) == [0, 1, 2]

    with pytest.raises(BatchQueueError, match="a task of Spark's that is over"):
        kept[0]((1,))


def test_a_handler_that_cannot_close_fails_the_task() -> None:
    class Broken:
        def __init__(self, emit: Emit) -> None:
            self.consume = passing(emit)

        async def on_close(self) -> None:
            raise OSError

    with pytest.raises(BatchQueueError, match=r"queue 'numbers': .*Broken.* close"):
        ids(task(Opening(Broken))(in_batches(3, 3)))


def test_dropped_items_fail_the_task() -> None:
    def slow(emit: Emit) -> Handler:
        async def consume(items: list[tuple[int]]) -> None:
            await asyncio.sleep(0.01)
            emit.many(items)

        return consume

    opening = Opening(slow, buffer_size=1, when_full=WhenFull.DROP_NEWEST)
    with pytest.raises(BatchQueueError, match="it is closed, or drops new items"):
        ids(task(opening)(in_batches(1_000, 1_000)))


def test_a_queue_from_elsewhere_is_refused() -> None:
    with LoopThread() as other:
        queue = other.open("elsewhere", handlers={tuple: print})

        with pytest.raises(ValueError, match="got 'elsewhere' from elsewhere"):
            ids(task(lambda *_: queue)(in_batches(1, 1)))
    with pytest.raises(TypeError, match="must return a SyncBatchQueue, got None"):
        ids(task(lambda *_: None)(in_batches(1, 1)))  # type: ignore[arg-type]


def test_each_task_has_a_queue_of_its_own() -> None:
    """What one has left, also by failing, is not the next one's."""
    opened = []

    def holding(emit: Emit) -> Held:
        opened.append(emit)
        return Held(emit, "on_flush")

    made = task(Opening(holding))
    broken = made(in_batches(10, 5))
    broken.close()  # type: ignore[attr-defined]

    assert ids(made(in_batches(10, 5))) == [*range(10)]
    assert ids(made(iter(()))) == []
    assert len(opened) == 2
