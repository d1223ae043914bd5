"""What waits in order for a call that is tried again, and how much of it may."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from batchqueue_async import PartialFailure, Retry, RetryAfter
from tests.spark.calls.served import in_batches, process, rows_of

Batch = list[dict[str, Any]]
PAUSE = 10.0


class FirstFails:
    """A second for each call; the first one's items are told to come again later."""

    def __init__(self, error: Exception | None = None, after: float = 1.0) -> None:
        self._error = error or RetryAfter(PAUSE)
        self._after = after
        self.began: list[tuple[float, int]] = []

    async def __call__(self, batch: Batch) -> Batch:
        first = batch[0]["id"]
        is_again = any(each == first for _, each in self.began)
        self.began.append((asyncio.get_running_loop().time(), first))
        if first == 0 and not is_again:
            await asyncio.sleep(self._after)
            raise self._error
        await asyncio.sleep(1.0)
        return [{"y": item["id"] * 10} for item in batch]

    def before(self, moment: float) -> list[int]:
        """Whose calls began until then."""
        return [first for when, first in self.began if when < moment]


async def run(call: FirstFails, rows: int, size: int, **others: Any) -> list[int]:  # noqa: ANN401
    """Three calls at a time, of one row each; returns the rows."""
    options = {"max_batch": 1, "in_flight": 3, "retry": Retry(attempts=2), **others}
    return [row["y"] for row in await rows_of(call, in_batches(rows, size), **options)]


async def test_nobody_is_held_up_by_a_call_that_is_tried_again() -> None:
    call = FirstFails()

    rows = await run(call, 12, 12)

    # Two at a time beside it; and itself again after its pause.
    times = [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 11]
    assert [when for when, _ in call.began] == times
    assert rows == [n * 10 for n in range(12)]


async def test_who_waits_for_a_call_goes_on_when_that_fails() -> None:
    call = FirstFails(after=5.0)

    await run(call, 6, 6)

    # Until then it may be slow.
    assert [when for when, _ in call.began] == [0, 0, 0, 5, 5, 6, 15]


async def test_as_many_wait_for_it_as_a_record_batch_makes_calls() -> None:
    call = FirstFails()

    rows = await run(call, 30, 5)

    # 3 in flight, of which two end in turn, and 5 beside them.
    assert call.before(PAUSE) == [*range(8)]
    assert rows == [n * 10 for n in range(30)]


async def test_a_record_batch_of_less_than_a_call_is_one_call() -> None:
    call = FirstFails()

    await run(call, 24, 2, max_batch=4, linger=1.0)

    assert call.before(PAUSE) == [0, 4, 8, 12]


async def test_no_reorder_buffer_is_none_for_it_either() -> None:
    call = FirstFails()

    rows = await run(call, 6, 6, reorder_buffer=0)

    assert call.before(PAUSE) == [0, 1, 2]
    assert rows == [n * 10 for n in range(6)]


async def test_what_follows_a_call_in_parts_is_not_held_up_either() -> None:
    results = [{"y": 0}, None]
    call = FirstFails(PartialFailure([1], retry_after=PAUSE, results=results))

    rows = await run(call, 16, 16, max_batch=2)

    assert call.before(PAUSE) == [*range(0, 16, 2)]
    assert rows == [n * 10 for n in range(16)]


async def test_rows_are_read_when_they_are_needed_while_results_wait() -> None:
    read: list[int] = []

    def source() -> Iterator[pa.RecordBatch]:
        for batch in in_batches(100, 10):
            read.append(batch.num_rows)
            yield batch

    async with process(
        FirstFails(), max_batch=1, in_flight=2, retry=Retry(attempts=2)
    ) as running:
        task = asyncio.create_task(running.task(source()))
        await asyncio.sleep(0.5)
        assert len(read) == 2
        # 9 rows are finished, and the tenth is on its way: of the second there are all.
        await asyncio.sleep(9)
        assert len(read) == 2
        assert len(await task) == 100


async def test_once_it_is_settled_a_slow_call_holds_up_those_behind_it() -> None:
    seconds = {1: 30.0}

    class ThenSlow(FirstFails):
        async def __call__(self, batch: Batch) -> Batch:
            answer = await super().__call__(batch)
            await asyncio.sleep(seconds.get(batch[0]["id"], 0.0))
            return answer

    call = ThenSlow(RetryAfter(2.0))

    await run(call, 12, 12)

    # The first is settled after 4 s; those that began until then wait for the second.
    assert sorted(call.before(31.0)) == [0, 0, 1, 2, 3, 4, 5]
