"""The main demo's handlers, in virtual time and without Spark."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batchqueue_async import BatchQueue, BatchQueueConfig
from examples.flights.events import Arrival, Departure
from examples.flights.merging import merging
from examples.flights.metrics import CarrierDeparture, Window
from examples.flights.topn import LongestDelays, TopDelay

HOUR = 377_000


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[BatchQueue[Any], list[Any]]]:
    """A downstream queue, and what has come out of it."""
    collected: list[Any] = []

    async def collect(batch: list[Any]) -> None:
        collected.extend(batch)

    config = BatchQueueConfig[Any](consumer=collect)
    async with BatchQueue("downstream", config) as queue:
        yield queue, collected


@asynccontextmanager
async def merged(
    every: float = 0.5, at_most: int = 100
) -> AsyncIterator[tuple[BatchQueue[Window], list[Any]]]:
    metric: type[Window] = CarrierDeparture
    async with collector() as (downstream, collected):
        handler = merging(downstream, every=every, at_most=at_most)
        async with BatchQueue[Window]("windows") as queue:
            queue.add_handler(metric, handler)
            yield queue, collected


def departure(minutes: int | None = 0, key: str = "UA") -> CarrierDeparture:
    return CarrierDeparture.of(key, HOUR, minutes)


async def test_windows_are_merged_and_passed_on_when_half_a_second_has_passed() -> None:
    async with merged() as (queue, collected):
        await queue.produce_many([departure(5), departure(-2), departure(None)])
        await asyncio.sleep(0.4)
        assert collected == []

        await asyncio.sleep(0.2)

    assert collected == [CarrierDeparture("UA", HOUR, 3, 2, 3, -2, 5)]


async def test_windows_are_passed_on_when_there_are_many() -> None:
    async with merged(every=3600, at_most=10) as (queue, collected):
        await queue.produce_many([departure(key=f"{n}") for n in range(10)])
        await asyncio.sleep(0.1)

        assert len(collected) == 10


async def test_a_flush_passes_windows_on() -> None:
    async with merged(every=3600) as (queue, collected):
        await queue.produce(departure())
        await queue.flush()
        await asyncio.sleep(0.1)

        assert len(collected) == 1


async def test_closing_passes_windows_on() -> None:
    async with merged(every=3600) as (queue, collected):
        await queue.produce(departure())

    assert len(collected) == 1


async def test_changed_days_are_reported_with_their_longest_delays() -> None:
    async with collector() as (downstream, collected):
        handler = LongestDelays[Departure]("Departure", downstream, size=2, every=1.0)
        async with BatchQueue[Departure]("delays") as queue:
            queue.add_handler(Departure, handler)
            await queue.produce_many(
                Departure("UA", 1, "EWR", "ORD", 7, HOUR, delay)
                for delay in (30, None, 10, 20)
            )
            await asyncio.sleep(1.2)

            where = (HOUR, "UA", 1, "EWR", "ORD")
            assert collected == [
                TopDelay("Departure", 7, 1, 30, *where),
                TopDelay("Departure", 7, 2, 20, *where),
            ]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), max_size=60))
def test_whatever_the_order_the_longest_delays_are_kept(
    flights: list[tuple[int, int]],
) -> None:
    async def ranked() -> list[tuple[int, int, int]]:
        async with collector() as (downstream, collected):
            handler = LongestDelays[Arrival]("Arrival", downstream, size=3, every=0)
            for number, (day, delay) in enumerate(flights):
                event = Arrival("UA", number, "EWR", "ORD", day, HOUR, delay)
                await handler.consume([event])
        # Later reports replace earlier ones, as in the database.
        latest = {(row.day, row.rank): row.delay for row in collected}
        return sorted((*place, delay) for place, delay in latest.items())

    expected = [
        (day, rank, delay)
        for day in range(3)
        for rank, delay in enumerate(
            sorted((late for on, late in flights if on == day), reverse=True)[:3], 1
        )
    ]
    assert asyncio.run(ranked()) == expected


@given(st.lists(st.one_of(st.none(), st.integers(-60, 600)), min_size=1), st.randoms())
def test_the_order_of_combining_does_not_matter(
    minutes: list[int | None], random: Random
) -> None:
    windows = [departure(each) for each in minutes]
    while len(windows) > 1:
        random.shuffle(windows)
        windows[-2].combine(windows.pop())

    known = [each for each in minutes if each is not None]
    assert windows == [
        CarrierDeparture(
            "UA",
            HOUR,
            len(minutes),
            len(known),
            sum(known),
            min(known, default=None),
            max(known, default=None),
        )
    ]
