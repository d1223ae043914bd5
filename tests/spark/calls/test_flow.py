"""When calls begin and end, how many run at once, and in which order rows leave."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.calls.served import (
    advanced,
    batch_of,
    in_batches,
    process,
    rows_of,
    tenfold,
)

Batch = list[dict[str, Any]]


class Recorder:
    """A call that notes when which items came; each takes as long as `seconds` says."""

    def __init__(self, seconds: dict[int, float] | float = 1.0) -> None:
        self._seconds = seconds
        self.began: list[tuple[float, int, int]] = []
        self.running = self.most = 0

    async def __call__(self, batch: Batch) -> Batch:
        first = batch[0]["id"]
        self.began.append((asyncio.get_running_loop().time(), first, len(batch)))
        self.running += 1
        self.most = max(self.most, self.running)
        seconds = self._seconds
        await asyncio.sleep(
            seconds.get(first, 1.0) if isinstance(seconds, dict) else seconds
        )
        self.running -= 1
        return [{"y": item["id"] * 10} for item in batch]

    @property
    def sizes(self) -> list[int]:
        return [size for _, _, size in self.began]


async def test_there_is_a_row_for_each_item_in_their_order() -> None:
    rows = await rows_of(tenfold, in_batches(1000, 300))

    assert rows == [{"y": n * 10} for n in range(1000)]


async def test_calls_go_on_across_the_borders_of_record_batches() -> None:
    call = Recorder()

    await rows_of(call, in_batches(450, 150), linger=5.0)

    # With rows of two of them; and all at once, as nothing waits for a batch's end.
    assert call.sizes == [100, 100, 100, 100, 50]
    assert asyncio.get_running_loop().time() == 1.0


async def test_no_more_calls_run_than_may_be_in_flight_and_no_fewer() -> None:
    call = Recorder()

    await rows_of(call, in_batches(1000, 170), max_batch=10, in_flight=7)

    assert call.most == 7
    assert asyncio.get_running_loop().time() == 15.0  # 100 calls, 7 at a time


async def test_in_order_what_waits_for_earlier_rows_is_in_flight() -> None:
    call = Recorder({0: 10.0})

    rows = await rows_of(call, in_batches(6, 6), max_batch=1, in_flight=3)

    assert [first for _, first, _ in call.began] == [0, 1, 2, 3, 4, 5]
    assert [when for when, _, _ in call.began] == [0, 0, 0, 10, 10, 10]
    assert [row["y"] for row in rows] == [0, 10, 20, 30, 40, 50]


async def test_with_a_reorder_buffer_finished_calls_wait_beside_those_in_flight() -> (
    None
):
    call = Recorder({0: 10.0})

    rows = await rows_of(
        call, in_batches(12, 4), max_batch=1, in_flight=3, reorder_buffer=5
    )

    # Beside the slow one there are two at a time, until five of them wait for it.
    assert [when for when, _, _ in call.began[:8]] == [0, 0, 0, 1, 1, 2, 2, 3]
    assert [when for when, _, _ in call.began[8:]] == [10, 10, 10, 11]
    assert call.most == 3
    assert [row["y"] for row in rows] == [n * 10 for n in range(12)]


async def test_without_order_a_slow_call_holds_nobody_up() -> None:
    call = Recorder({0: 10.0})

    rows = await rows_of(
        call, in_batches(9, 9), max_batch=1, in_flight=3, ordered=False
    )

    assert [when for when, _, _ in call.began] == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert [row["y"] for row in rows] == [10, 20, 30, 40, 50, 60, 70, 80, 0]


async def test_no_more_than_two_record_batches_are_read_ahead() -> None:
    read: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for batch in in_batches(1000, 100):
            read.append(batch.num_rows)
            yield batch

    async with process(Recorder(), max_batch=10, in_flight=2) as running:
        task = asyncio.create_task(running.task(source()))
        await asyncio.sleep(0.5)
        # The rest of the first one, of which 20 rows are in flight, and the second.
        assert len(read) == 2
        await asyncio.sleep(5)
        assert len(read) == 3
        assert len(await task) == 1000


async def test_record_batches_smaller_than_a_call_are_read_until_it_is_full() -> None:
    call = Recorder()

    await rows_of(call, in_batches(200, 5), in_flight=1)

    # The first one begins with what is there.
    assert call.sizes == [5, 100, 95]


async def test_what_is_finished_leaves_soon_although_others_run() -> None:
    call = Recorder({0: 1.0, 1: 60.0})
    async with process(call, max_batch=1) as running:
        rows = running.rows([batch_of([0, 1])])

        first = await anext(rows)

        assert first.to_pylist() == [{"y": 0}]
        assert asyncio.get_running_loop().time() == pytest.approx(1.1)
        await rows.aclose()


async def test_small_results_leave_together() -> None:
    # One call after the other ends.
    call = Recorder({10 * n: 1.0 + n / 10_000 for n in range(300)})
    async with process(call, max_batch=10, in_flight=300) as running:
        sizes: list[int] = []
        pipeline = await running.caller.begin(running.queue)
        step = await advanced(pipeline, batch_of(range(3000)), is_last=True)
        while not step.is_done:
            sizes.append(sum(batch.num_rows for batch in step.rows))
            step = await advanced(pipeline)

    assert sizes == [2000]
    assert sum(batch.num_rows for batch in step.rows) == 1000


async def test_no_rows_are_no_calls() -> None:
    call = Recorder()

    assert await rows_of(call, []) == []
    assert await rows_of(call, [batch_of([]), batch_of([])]) == []
    assert call.began == []


class Slowly:
    """A source whose record batches come late: one at each of these times."""

    def __init__(self, *times: float) -> None:
        self._times = times

    async def run(self, *, linger: float = 0.0) -> list[int]:
        call = Recorder(0.1)
        loop = asyncio.get_running_loop()
        async with process(call, linger=linger) as running:
            pipeline = await running.caller.begin(running.queue)
            for number, moment in enumerate(self._times):
                await asyncio.sleep(moment - loop.time())
                feeding = asyncio.create_task(
                    pipeline.advance(batch_of(range(number * 30, number * 30 + 30)))
                )
                await asyncio.sleep(0)
                if not feeding.done():
                    feeding.cancel()
            await asyncio.sleep(2)
            step = await pipeline.advance(is_last=True)
            while not step.is_done:
                step = await pipeline.advance()
        return call.sizes


async def test_items_linger_for_more_of_them_but_not_for_longer() -> None:
    # In time, too late, and then together with what would fill it.
    assert await Slowly(1.0, 1.4, 3.0, 3.2, 3.3, 3.4).run(linger=0.5) == [60, 100, 20]


async def test_without_linger_a_call_begins_with_what_is_there() -> None:
    assert await Slowly(1.0, 1.4).run() == [30, 30]


async def test_at_the_end_nothing_lingers() -> None:
    rows = await rows_of(tenfold, [batch_of(range(30))], linger=60.0)

    assert len(rows) == 30
    assert asyncio.get_running_loop().time() == 1.0


async def test_a_rate_spreads_calls_over_time_whichever_task_they_are_of() -> None:
    call = Recorder(0.01)
    async with process(call, max_batch=1, rate=4.0, in_flight=3) as running:
        await running.task([batch_of(range(4))])
        await running.task([batch_of(range(4, 8))])

    began = [when for when, _, _ in call.began]
    assert began == [0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


async def test_items_are_what_to_items_makes_however_many() -> None:
    call = Recorder()

    def halves(batch: pa.RecordBatch) -> Iterator[dict[str, int]]:
        for n in batch.column(0).to_pylist():
            yield from ({"id": 2 * n}, {"id": 2 * n + 1})

    rows = await rows_of(call, in_batches(10, 4), to_items=halves, max_batch=3)

    assert [row["y"] for row in rows] == [n * 10 for n in range(20)]
    assert max(call.sizes) == 3

    def even(batch: pa.RecordBatch) -> Iterator[dict[str, int]]:
        return ({"id": n} for n in batch.column(0).to_pylist() if n % 2 == 0)

    call = Recorder()
    rows = await rows_of(call, in_batches(10, 10), to_items=even, max_batch=3)

    assert [row["y"] for row in rows] == [0, 20, 40, 60, 80]
    assert call.sizes == [3, 2]


async def test_what_to_items_raises_ends_the_task() -> None:
    def broken(_: pa.RecordBatch) -> Iterator[int]:
        msg = "no items of this"
        raise RuntimeError(msg)

    for on_error in ("raise", "null"):
        with pytest.raises(RuntimeError, match="no items of this"):
            await rows_of(tenfold, in_batches(1, 1), to_items=broken, on_error=on_error)


async def test_counts_tell_calls_and_items() -> None:
    async with process(tenfold) as running:
        await running.task(in_batches(450, 450))

        assert running.pipeline is not None
        counts = running.pipeline.counts
        assert (counts.calls, counts.items) == (5, 450)
        assert (counts.retried, counts.failed) == (0, 0)
        # And so does the queue.
        await running.queue.flush()
        assert running.queue.stats().handled == 450
