"""How little is waited for, beside `asyncio.gather` for each record batch.

In virtual time, so nothing but waiting counts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from batchqueue_async import Retry, RetryAfter
from tests.spark.calls.served import in_batches, rows_of

Batch = list[dict[str, Any]]
Call = Callable[[Batch], Awaitable[Batch]]

SECONDS = 0.02
CALLS = 600
IN_A_BATCH = 100
SIZE = 2


async def answers(batch: Batch, seconds: float = SECONDS) -> Batch:
    """A call that takes its time."""
    await asyncio.sleep(seconds)
    return [{"y": item["id"]} for item in batch]


async def is_sometimes_slow(batch: Batch) -> Batch:
    """One call in a hundred takes ten times as long."""
    is_long = batch[0]["id"] // SIZE % 100 == 50
    return await answers(batch, SECONDS * (10 if is_long else 1))


def sometimes_failing() -> Call:
    """Of a hundred calls one fails, and one is told to come again."""
    calls = count()

    async def call(batch: Batch) -> Batch:
        number = next(calls) % 100
        answer = await answers(batch)
        if number == 1:
            raise OSError
        if number == 33:
            raise RetryAfter(SECONDS)
        return answer

    return call


async def of_the_ideal(
    call: Call,
    in_flight: int,
    **order: Any,  # noqa: ANN401 - either setting
) -> float:
    """How much of it `map_async` reaches."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    rows = await rows_of(
        call,
        in_batches(CALLS * SIZE, IN_A_BATCH * SIZE),
        max_batch=SIZE,
        in_flight=in_flight,
        retry=Retry(attempts=5, wait_initial=SECONDS),
        **order,
    )
    assert len(rows) == CALLS * SIZE
    return CALLS * SECONDS / in_flight / (loop.time() - began)


async def gathered(call: Call, in_flight: int) -> float:
    """How much of it `gather` reaches, record batch by record batch."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    gate = asyncio.Semaphore(in_flight)

    async def one(number: int) -> None:
        async with gate:
            while True:
                try:
                    await call([{"id": number * SIZE}] * SIZE)
                except (OSError, RetryAfter):
                    await asyncio.sleep(SECONDS)
                else:
                    return

    for first in range(0, CALLS, IN_A_BATCH):
        await asyncio.gather(*map(one, range(first, first + IN_A_BATCH)))
    return CALLS * SECONDS / in_flight / (loop.time() - began)


@pytest.mark.parametrize("in_flight", [8, 32])
@pytest.mark.parametrize("ordered", [True, False])
async def test_with_equal_calls_hardly_anything(
    in_flight: int, *, ordered: bool
) -> None:
    assert await of_the_ideal(answers, in_flight, ordered=ordered) > 0.96


@pytest.mark.parametrize("in_flight", [8, 32])
async def test_in_order_where_calls_fail_less_than_with_gather(in_flight: int) -> None:
    share = await of_the_ideal(sometimes_failing(), in_flight)

    # Retries wait for random times: that moves it by 0.02, and order by far more.
    assert share > 1.01 * await gathered(sometimes_failing(), in_flight)


async def test_without_order_slow_calls_cost_less_than_half_of_gathers_time() -> None:
    share = await of_the_ideal(is_sometimes_slow, 32, ordered=False)

    assert share > 2 * await gathered(is_sometimes_slow, 32)
