"""Attempts, their time limits, and what becomes of items whose call failed for good."""

import asyncio
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from batchqueue_async import BatchQueueError, PartialFailure, Retry, RetryAfter
from batchqueue_async.spark._calls.options import Call
from tests.spark.calls.served import batch_of, in_batches, process, rows_of

Batch = list[dict[str, Any]]

TWICE = Retry(attempts=2, wait_initial=0.0)


class Scripted:
    """A call that does to its attempts, in turn, what the script says; then answers."""

    def __init__(self, *script: BaseException | float) -> None:
        self._script = [*script]
        self.batches: list[tuple[float, list[int]]] = []

    async def __call__(self, batch: Batch) -> Batch:
        ids = [item["id"] for item in batch]
        self.batches.append((asyncio.get_running_loop().time(), ids))
        what = self._script.pop(0) if self._script else 0.0
        if isinstance(what, BaseException):
            raise what
        await asyncio.sleep(what)
        return [{"y": n * 10} for n in ids]

    @property
    def tried(self) -> list[list[int]]:
        return [ids for _, ids in self.batches]


def poisoned(*ids: int) -> Call:
    """A call that fails for batches with one of these items."""

    async def call(batch: Batch) -> Batch:
        for item in batch:
            if item["id"] in ids:
                msg = f"no answer for {item['id']}"
                raise LookupError(msg)
        return [{"y": item["id"] * 10} for item in batch]

    return call


async def test_a_call_is_tried_again_with_the_same_items() -> None:
    call = Scripted(OSError("down"))
    async with process(call, retry=TWICE) as running:
        rows = await running.task([batch_of([1, 2])])

        assert running.pipeline is not None
        counts = running.pipeline.counts
    assert rows == [{"y": 10}, {"y": 20}]
    assert call.tried == [[1, 2], [1, 2]]
    assert (counts.calls, counts.items, counts.retried, counts.failed) == (2, 2, 2, 0)


class Wordless(Exception):
    def __str__(self) -> str:
        msg = "there is no text"
        raise ValueError(msg)


@pytest.mark.parametrize(
    "error, text",
    [
        (Wordless(), "Wordless"),
        (LookupError("half of \ud83d"), "LookupError: half of \\ud83d"),
        (ExceptionGroup("all", [Wordless()]), "ExceptionGroup: all (1 sub-exception)"),
    ],
    ids=["wordless", "surrogate", "group"],
)
async def test_an_error_without_a_proper_text_is_told_as_well_as_it_can_be(
    error: Exception, text: str
) -> None:
    """Its task stood still for ever, or failed in place of the call."""
    call = Scripted(error)

    rows = await rows_of(call, [batch_of([1])], on_error="column")

    assert [row["error"] for row in rows] == [text]


async def test_a_pause_that_the_service_asks_for_is_kept() -> None:
    call = Scripted(RetryAfter(30.0))

    await rows_of(call, [batch_of([1])], retry=TWICE)

    assert [when for when, _ in call.batches] == [0.0, 30.0]


async def test_only_what_failed_is_tried_again_and_rows_keep_their_order() -> None:
    answers = [{"y": 0}, None, {"y": 20}, "whatever"]
    call = Scripted(
        PartialFailure([1, 3], results=answers),
        PartialFailure([1], results=[{"y": 10}, None]),
    )

    rows = await rows_of(
        call, [batch_of(range(4))], retry=Retry(attempts=3, wait_initial=0.0)
    )

    assert call.tried == [[0, 1, 2, 3], [1, 3], [3]]
    assert rows == [{"y": 0}, {"y": 10}, {"y": 20}, {"y": 30}]


async def test_a_partial_failure_may_ask_for_a_pause_and_may_be_final() -> None:
    partly = PartialFailure([0], retry_after=5, results=[None, {"y": 10}])
    call = Scripted(partly, PartialFailure([0], results=[None]))

    rows = await rows_of(call, [batch_of([0, 1])], retry=TWICE, on_error="null")

    assert [when for when, _ in call.batches] == [0.0, 5.0]
    assert rows == [{"y": None}, {"y": 10}]


async def test_where_nothing_failed_in_part_all_results_count() -> None:
    call = Scripted(PartialFailure([], results=[{"y": 1}, {"y": 2}]))

    assert await rows_of(call, [batch_of([0, 1])]) == [{"y": 1}, {"y": 2}]


@pytest.mark.parametrize(
    "partial, sentence",
    [
        (PartialFailure([0]), "must have results, one for each item of the batch, got"),
        (PartialFailure([0], results=[{"y": 1}]), "got 1 for 2"),
        (PartialFailure([7], results=[1, 2]), "positions from 0 to 1, got 7"),
        (PartialFailure([0], results=[None, 3]), "must be a dict, a tuple or a Row"),
    ],
)
async def test_a_wrong_partial_failure_fails_the_call(
    partial: PartialFailure, sentence: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        await rows_of(Scripted(partial), [batch_of([0, 1])])


async def test_a_time_limit_is_for_each_attempt() -> None:
    call = Scripted(60.0, 60.0, 0.5)
    retry = Retry(attempts=3, wait_initial=0.0)

    rows = await rows_of(call, [batch_of([1])], timeout=2.0, retry=retry)

    assert [when for when, _ in call.batches] == [0.0, 2.0, 4.0]
    assert rows == [{"y": 10}]


async def test_a_call_that_is_too_slow_fails_with_a_sentence() -> None:
    with pytest.raises(TimeoutError, match=r"Scripted gave no answer within 2.0 s"):
        await rows_of(Scripted(60.0), [batch_of([1])], timeout=2.0)


async def test_a_time_limit_of_the_call_s_own_is_told_as_it_is() -> None:
    with pytest.raises(TimeoutError, match="no connection"):
        await rows_of(
            Scripted(TimeoutError("no connection")), [batch_of([1])], timeout=2.0
        )


async def test_waiting_for_the_rate_is_not_on_the_call_s_time() -> None:
    call = Scripted()

    rows = await rows_of(
        call, in_batches(3, 3), max_batch=1, rate=0.1, timeout=1.0, retry=Retry()
    )

    assert [when for when, _ in call.batches] == [0.0, 10.0, 20.0]
    assert len(rows) == 3


async def test_the_first_error_ends_the_task_and_no_more_calls_begin() -> None:
    call = Scripted(LookupError("gone"))

    async with process(call, max_batch=10, in_flight=1) as running:
        pipeline = await running.caller.begin(running.queue)
        with pytest.raises(LookupError, match="gone") as told:
            await pipeline.advance(batch_of(range(1000)), is_last=True)
        # Spark's thread may be busy elsewhere when it happens.
        await asyncio.sleep(10)

    assert told.value.__notes__ == ["map_async gave up a call of 10 items"]
    assert call.tried == [[*range(10)]]


async def test_a_call_that_cancels_itself_fails_like_any_other() -> None:
    with pytest.raises(BatchQueueError, match="a call was cancelled by itself"):
        await rows_of(Scripted(asyncio.CancelledError()), [batch_of([1])])


async def test_nulls_stand_for_what_failed() -> None:
    rows = await rows_of(
        poisoned(2), in_batches(6, 6), max_batch=2, on_error="null", ordered=False
    )

    assert rows == [{"y": y} for y in (0, 10, None, None, 40, 50)]


async def test_halving_isolates_what_fails() -> None:
    rows = await rows_of(
        poisoned(2, 5), in_batches(8, 8), retry=Retry(split=True), on_error="null"
    )

    assert rows == [{"y": y} for y in (0, 10, None, 30, 40, None, 60, 70)]


async def test_a_column_tells_why_beside_the_input() -> None:
    async with process(
        poisoned(1), max_batch=1, on_error="column", in_flight=2
    ) as running:
        rows = await running.task([batch_of([0, 1, 2])])

        assert running.pipeline is not None
        assert running.pipeline.counts.failed == 1
    assert rows == [
        {"id": 0, "y": 0, "error": None},
        {"id": 1, "y": None, "error": "LookupError: no answer for 1"},
        {"id": 2, "y": 20, "error": None},
    ]


async def test_a_column_of_both_is_the_result_s_where_there_is_one() -> None:
    schema = StructType(
        [StructField("ID", LongType()), StructField("text", StringType())]
    )

    async def call(batch: Batch) -> Batch:
        if batch[0]["id"] == 1:
            raise TimeoutError
        return [{"ID": item["id"] + 100, "text": "good"} for item in batch]

    rows = await rows_of(
        call, [batch_of([0, 1])], schema, max_batch=1, on_error="column"
    )

    assert rows == [
        {"id": 100, "text": "good", "error": None},
        {"id": 1, "text": None, "error": "TimeoutError"},
    ]


async def test_what_failed_in_part_keeps_its_own_input() -> None:
    call = Scripted(PartialFailure([0, 2], results=[0, {"y": 1}, 0, {"y": 3}]))

    rows = await rows_of(
        call, [batch_of([5, 6]), batch_of([7, 8])], on_error="column", linger=1.0
    )

    error = "PartialFailure: 2 items failed, at 0, 2"
    assert rows == [
        {"id": 5, "y": None, "error": error},
        {"id": 6, "y": 1, "error": None},
        {"id": 7, "y": None, "error": error},
        {"id": 8, "y": 3, "error": None},
    ]


async def test_a_column_needs_an_item_per_row() -> None:
    def odd(batch: pa.RecordBatch) -> list[int]:
        return [n for n in batch.column(0).to_pylist() if n % 2]

    with pytest.raises(ValueError, match="must make one item per row, got 2"):
        await rows_of(poisoned(), [batch_of(range(4))], to_items=odd, on_error="column")


class SometimesFailing:
    """20 ms; of a hundred calls one fails, and one is told to come again."""

    def __init__(self) -> None:
        self._calls = count()

    async def __call__(self, batch: list[dict[str, int]]) -> list[tuple[int]]:
        number = next(self._calls) % 100
        await asyncio.sleep(0.02)
        if number == 1:
            raise OSError
        if number == 33:
            raise RetryAfter(0.02)
        return [(item["id"],) for item in batch]


async def seconds_for_1000_calls(**order: Any) -> float:  # noqa: ANN401 - either setting
    loop = asyncio.get_running_loop()
    began = loop.time()
    retry = Retry(attempts=5, wait_initial=0.02)
    rows = in_batches(10_000, 1000)
    await rows_of(
        SometimesFailing(), rows, max_batch=10, in_flight=8, retry=retry, **order
    )
    return loop.time() - began


async def test_failures_cost_no_more_in_order_than_without() -> None:
    ordered = await seconds_for_1000_calls()
    reordered = await seconds_for_1000_calls(reorder_buffer=100)
    unordered = await seconds_for_1000_calls(ordered=False)
    strict = await seconds_for_1000_calls(reorder_buffer=0)

    ideal = 1000 * 0.02 / 8
    assert ideal / ordered > 0.94
    assert ordered == pytest.approx(unordered, rel=0.02)
    assert reordered == pytest.approx(unordered, rel=0.02)
    assert strict > 1.1 * ordered
